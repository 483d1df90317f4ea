#!/usr/bin/env bash
# Puts the assembler `ptxas` where tests look for it, target/ptxas: from the wheel that NVIDIA publishes on
# PyPI, at a fixed version. Needs python3 with pip; nothing of CUDA is needed otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
version=12.9.86
[ -x target/ptxas ] && exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m pip download --quiet --no-deps --dest "$folder" "nvidia-cuda-nvcc-cu12==$version"
python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
folder = sys.argv[1]
wheel = zipfile.ZipFile(glob.glob(os.path.join(folder, "*.whl"))[0])
name = next(n for n in wheel.namelist() if n.endswith("/bin/ptxas"))
with open(os.path.join(folder, "ptxas"), "wb") as out:
    out.write(wheel.read(name))
PY
chmod +x "$folder/ptxas"
mkdir -p target
# Whole or not at all.
cp "$folder/ptxas" "target/ptxas.$$"
mv "target/ptxas.$$" target/ptxas
