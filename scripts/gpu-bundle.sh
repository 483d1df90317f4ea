#!/usr/bin/env bash
# Builds what the tests of the engine `gpu` need on a machine with a GPU, a driver and nothing else, into a
# folder: the program, the tests, and a script that runs them there, from a folder that has this
# repository's tests and benches (`./FOLDER/run [--sanitize] [--only NAME]`).
#
#   scripts/gpu-bundle.sh FOLDER [--release]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/gpu-bundle.sh FOLDER [--release]}
profile=${2:-}
mkdir -p "$out"

# The binary that a build of tests makes, as Cargo tells it.
built() {
    cargo test $profile --no-run --message-format=json "$@" 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

cargo build $profile --bin adfuse
adfuse=$(cargo build $profile --bin adfuse --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
for pair in "adfuse=$adfuse" "tests-gpu=$(built -p adfuse --test gpu)" \
    "tests-runtime=$(built -p adfuse-backends --lib)"; do
    name=${pair%%=*}
    strip -o "$out/$name" "${pair#*=}"
    gzip -nf9 "$out/$name"
done

cat > "$out/run" <<'RUN'
#!/usr/bin/env bash
# Runs the tests of the engine `gpu`. With --sanitize they run under compute-sanitizer, which looks for
# accesses out of bounds and races, and takes long: ADFUSE_PROGRAMS is 20 then.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for name in adfuse tests-gpu tests-runtime; do
    gzip -dc "$here/$name.gz" > "$place/$name" && chmod +x "$place/$name"
done
sanitize=() only=()
while [ $# -gt 0 ]; do
    case $1 in
    --sanitize) sanitize=(memcheck racecheck); export ADFUSE_PROGRAMS=${ADFUSE_PROGRAMS:-20} ;;
    --only) only=("$2"); shift ;;
    *) echo "usage: run [--sanitize] [--only NAME]" >&2; exit 2 ;;
    esac
    shift
done
status=0
for tests in tests-runtime tests-gpu; do
    filter=("${only[@]}")
    [ "$tests" = tests-runtime ] && [ ${#only[@]} -eq 0 ] && filter=(gpu::)
    if [ ${#sanitize[@]} -eq 0 ]; then
        "$place/$tests" "${filter[@]}" || status=1
    fi
    for tool in "${sanitize[@]}"; do
        compute-sanitizer --tool "$tool" --error-exitcode 1 "$place/$tests" --test-threads 1 \
            "${filter[@]}" || status=1
    done
done
exit $status
RUN
chmod +x "$out/run"
ls -l "$out"
