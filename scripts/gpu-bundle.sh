#!/usr/bin/env bash
# Builds what the tests of the engine `gpu` need on a machine with a GPU, a driver and nothing else, into a
# folder: the program, the tests, and a script that runs them there, from a folder that has this
# repository's tests and benches (`FOLDER/run [--sanitize] [--only NAME]`).
#
#   scripts/gpu-bundle.sh FOLDER [--release]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu-bundle.sh FOLDER [--release]}
profile=${2:-}
mkdir -p "$out"

# The executable that a build made last, as Cargo tells it; what went wrong is on standard error.
built() {
    cargo "$@" $profile --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

# Each as a command of its own, so that a build that fails ends the script.
adfuse=$(built build -p adfuse-cli --bin adfuse)
tests_gpu=$(built test --no-run -p adfuse --test gpu)
tests_runtime=$(built test --no-run -p adfuse-backends --lib)
for pair in "adfuse=$adfuse" "tests-gpu=$tests_gpu" "tests-runtime=$tests_runtime"; do
    name=${pair%%=*}
    strip -o "$out/$name" "${pair#*=}"
    gzip -nf9 "$out/$name"
done

cat > "$out/run" <<'RUN'
#!/usr/bin/env bash
# Runs the tests of the engine `gpu`. With --sanitize they run under compute-sanitizer, which looks for
# accesses out of bounds and races, and takes long: then these are the runtime's tests, the programs of the filetests
# and a few random ones (ADFUSE_PROGRAMS, 20). --only NAME runs the tests of the engine that have it in their names;
# it may be given several times.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -d tests/filetests ]; then
    echo "run: the working folder has no tests/filetests; run this from the repository's root" >&2
    exit 2
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for name in adfuse tests-gpu tests-runtime; do
    gzip -dc "$here/$name.gz" > "$place/$name" && chmod +x "$place/$name"
done
sanitize=() only=()
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize) sanitize=(memcheck racecheck) ;;
    --only) only+=("${2:?--only NAME}"); shift ;;
    *) echo "usage: run [--sanitize] [--only NAME]" >&2; exit 2 ;;
    esac
    shift
done
status=0
tests() { # under these tools, or none: a program and its arguments
    if [ ${#sanitize[@]} -eq 0 ]; then
        "$@" || status=1
        return
    fi
    for tool in "${sanitize[@]}"; do
        echo "== $tool: ${*:2}"
        compute-sanitizer --tool "$tool" --error-exitcode 1 "$@" --test-threads 1 || status=1
    done
}
if [ ${#sanitize[@]} -gt 0 ]; then
    command -v compute-sanitizer > /dev/null || { echo "run: no compute-sanitizer on the PATH" >&2; exit 2; }
    export ADFUSE_PROGRAMS=${ADFUSE_PROGRAMS:-20}
    [ ${#only[@]} -gt 0 ] || only=(strict::random strict::programs_of)
    tests "$place/tests-runtime" gpu::tests::
else
    tests "$place/tests-runtime" gpu::
fi
# One filter a run is all that the tests take.
[ ${#only[@]} -gt 0 ] || only=("")
for name in "${only[@]}"; do
    tests "$place/tests-gpu" ${name:+"$name"}
done
exit $status
RUN
chmod +x "$out/run"
ls -l "$out"
