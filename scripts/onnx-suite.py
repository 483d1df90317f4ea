#!/usr/bin/env python3
"""Writes the node tests of the package onnx, and the light models in it, to a folder.

    python3 scripts/onnx-suite.py DIR

Each case is a folder with model.onnx, input_K.pb, output_K.pb, and `tolerance`, which has a relative and an absolute one. Cases are left out whose
inputs or outputs are other than tensors of truth values, integers or floats; how many there are is printed.
Transforms of Fourier have exact_0.pb besides: the output as f64, by the definition. The package's own come from the transforms
of NumPy, which from version 2 on are rounded to f32 in between.
"""

import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

PLAIN = {
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.FLOAT16,
    TensorProto.BFLOAT16,
    TensorProto.BOOL,
    TensorProto.INT8,
    TensorProto.INT16,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.UINT8,
    TensorProto.UINT16,
    TensorProto.UINT32,
    TensorProto.UINT64,
}


def is_plain(model):
    values = list(model.graph.input) + list(model.graph.output)
    return all(
        v.type.WhichOneof("value") == "tensor_type" and v.type.tensor_type.elem_type in PLAIN for v in values
    )


def proto(array, value):
    if isinstance(array, TensorProto):
        return array
    kind = value.type.tensor_type.elem_type
    array = np.asarray(array)
    if array.dtype == np.uint16 and kind == TensorProto.BFLOAT16:
        made = TensorProto(dims=array.shape, data_type=kind)
        made.raw_data = array.tobytes()
        return made
    return numpy_helper.from_array(array)


def exact(model, inputs):
    """The output of a model that is one inverse complex transform, as f64 by its definition; otherwise None."""
    if [n.op_type for n in model.graph.node] != ["DFT"]:
        return None
    node = model.graph.node[0]
    attributes = {a.name: a.i for a in node.attribute}
    x = np.asarray(inputs[0], np.float64)
    if not attributes.get("inverse") or attributes.get("onesided") or x.shape[-1] != 2:
        return None
    if any(node.input[k] for k in range(1, min(2, len(node.input)))):
        return None
    axis = int(np.asarray(inputs[-1])) if len(node.input) > 2 else attributes.get("axis", 1)
    values = np.moveaxis(x[..., 0] + 1j * x[..., 1], axis if axis >= 0 else axis + 1, -1)
    n = values.shape[-1]
    waves = np.exp(2j * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n) / n
    values = np.moveaxis(values @ waves, -1, axis if axis >= 0 else axis + 1)
    return np.stack([values.real, values.imag], -1)


def write(folder, model, inputs, outputs, tolerance):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString())
    for what, arrays, values in [("input", inputs, model.graph.input), ("output", outputs, model.graph.output)]:
        for k, (array, value) in enumerate(zip(arrays, values)):
            with open(os.path.join(folder, f"{what}_{k}.pb"), "wb") as f:
                f.write(proto(array, value).SerializeToString())
    exactly = exact(model, inputs)
    if exactly is not None:
        with open(os.path.join(folder, "exact_0.pb"), "wb") as f:
            f.write(numpy_helper.from_array(exactly).SerializeToString())
    with open(os.path.join(folder, "tolerance"), "w") as f:
        f.write(f"{tolerance[0]} {tolerance[1]}\n")


def light_models(folder):
    """The models whose layers are real and whose weights are made up, at the inputs of the package's own runner."""
    data = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light")
    count = 0
    for name in sorted(os.listdir(data)):
        if not name.endswith(".onnx"):
            continue
        model = onnx.load(os.path.join(data, name))
        initializers = {t.name for t in model.graph.initializer}
        inputs = []
        for value in model.graph.input:
            if value.name in initializers:
                continue
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            inputs.append((np.arange(n).reshape(shape) / n).astype(np.float32))
        with open(os.path.join(data, name.replace(".onnx", "_output_0.pb")), "rb") as f:
            output = TensorProto.FromString(f.read())
        write(os.path.join(folder, name[: -len(".onnx")]), model, inputs, [output], (1e-3, 1e-7))
        count += 1
    return count


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    cases = load_model_tests(kind="node")
    plain = [c for c in cases if is_plain(c.model)]
    for case in plain:
        for k, (inputs, outputs) in enumerate(case.data_sets):
            name = case.name if k == 0 else f"{case.name}_{k}"
            write(os.path.join(folder, name), case.model, inputs, outputs, (case.rtol, case.atol))
    print(f"{len(cases)} node tests, {len(plain)} of them with tensors of truth values, integers or floats alone")
    print(f"{light_models(folder)} light models")


if __name__ == "__main__":
    main()
