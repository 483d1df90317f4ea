"""Writes the modules of a folder of StableHLO tests as portable artifacts: bytecode that `suite --bytecode OUT` reads in
place of the text.

    python artifacts.py DIR OUT [VERSION]

Needs `pip install jax`, whose MLIR writes them. VERSION is that of VHLO, the newest by default. A module that this MLIR
does not read or write has no artifact, and is told."""

import pathlib
import re
import sys

import jaxlib.mlir.dialects.stablehlo as stablehlo
from jax._src.interpreters import mlir

# Comparisons of tests are custom calls here: their dialect is not one that artifacts may have.
VALUE = r"%[\w#]+"


def plain(text):
    """The text with comparisons as custom calls."""
    lines, made = [], 0
    for line in text.splitlines():
        const = re.match(rf"\s*check\.(expect\w*?)_const ({VALUE}), (dense<.*>) : (\S.*)", line)
        both = re.match(rf"\s*check\.(expect\w*) ({VALUE}), ({VALUE})(?: \{{.*\}})? : (\S.*)", line)
        if const:
            made += 1
            name, got, wanted, ty = const.groups()
            lines.append(f"%wanted_{made} = stablehlo.constant {wanted} : {ty}")
            lines.append(f"stablehlo.custom_call @check.{name}({got}, %wanted_{made}) : ({ty}, {ty}) -> ()")
        elif both:
            name, got, wanted, ty = both.groups()
            ty = ty.split(",")[0] if "->" in ty or ty.count("tensor<") > 1 else ty
            lines.append(f"stablehlo.custom_call @check.{name}({got}, {wanted}) : ({ty}, {ty}) -> ()")
        else:
            lines.append(line)
    return "\n".join(lines)


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    version = sys.argv[3] if len(sys.argv) > 3 else stablehlo.get_current_version()
    written = refused = 0
    for path in sorted(folder.rglob("*.mlir")):
        for k, part in enumerate(path.read_text().split("// -----")):
            to = out / path.relative_to(folder).with_suffix(f".{k}.mlirbc")
            to.parent.mkdir(parents=True, exist_ok=True)
            try:
                with mlir.make_ir_context():
                    to.write_bytes(stablehlo.serialize_portable_artifact_str(plain(part), version))
                written += 1
            except Exception as e:
                refused += 1
                print(f"{path.relative_to(folder)}, module {k}: {str(e).strip().splitlines()[0]}")
    print(f"{written} written, {refused} refused")


if __name__ == "__main__":
    main()
