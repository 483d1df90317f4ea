"""How a training step is measured, as in `rust/measure`: `python measure.py MODEL SECONDS STARTED` prints a line of JSON."""

import json
import sys
import time


def peak_mib():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return float(line.split()[1]) / 1024


def main(model, seconds, started):
    import importlib

    step = importlib.import_module(model).training()
    first_loss = step()
    first_ms = (time.time_ns() - started) / 1e6
    samples, begin, loss = [], time.perf_counter(), first_loss
    while len(samples) < 5 or time.perf_counter() - begin < seconds:
        at = time.perf_counter()
        loss = step()
        samples.append((time.perf_counter() - at) * 1e3)
    samples.sort()
    print(
        json.dumps(
            {
                "first_ms": first_ms,
                "least_ms": samples[0],
                "median_ms": samples[len(samples) // 2],
                "steps": len(samples) + 1,
                "peak_mib": peak_mib(),
                "loss": [first_loss, loss],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
