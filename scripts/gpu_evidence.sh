#!/usr/bin/env bash
# Runs on a machine with a GPU everything that docs/evidence records, and writes it to OUT. Builds nothing.
#
#     scripts/gpu_evidence.sh LOKA OUT [PART]...
#
# LOKA: the binary (cargo build --release --package loka --no-default-features). PART: selftest bench gemm repeat
# probe wide libraries sanitizer; all of them without. Each part has its own files, so that a part may be run alone.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
loka=$1 out=$2
shift 2
parts=${*:-selftest bench gemm repeat probe wide libraries sanitizer}
sample=$here/sample-traces/wukong-clicks.trace.safetensors
shapes=$here/benches/lrm_shapes.csv
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"

# run FILE COMMAND...: the command, its output and its seconds into FILE.
run() {
    local file=$out/$1
    shift
    { echo "\$ ${*//$here\//}"; date -u +%FT%TZ; } >>"$file"
    local start=$EPOCHREALTIME status=0
    "$@" >>"$file" 2>&1 || status=$?
    awk -v s="$start" -v e="$EPOCHREALTIME" -v c="$status" 'BEGIN { printf "exit %d after %.2f s\n", c, e - s }' >>"$file"
    echo "$file: exit $status: $(tail -n 2 "$file" | head -n 1 | cut -c1-150)"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$out/device.txt"
for part in $parts; do
    case $part in
    selftest) run selftest.txt "$loka" selftest --gpu ;;
    bench)
        run bench.txt "$loka" bench --shapes "$shapes" --out "$out/lrm.kernels.parquet" --csv "$out/lrm.csv"
        run bench.txt "$loka" bench --shapes "$sample" --out "$out/sample.kernels.parquet" --csv "$out/sample.csv"
        ;;
    gemm) # ours against cuBLASLt's, with and without LoKA's engine
        run gemm-bench.txt "$loka" bench --shapes "$shapes" --gemms fprop --kernels 'cublaslt/fp8-[tr]*' \
            --kernels 'loka/*' --out "$scratch/gemm.kernels.parquet" --csv "$out/gemm.csv"
        run gemm.txt python3 "$here/benches/fp8_gemm.py" --gemms fprop,dgrad,wgrad
        ;;
    repeat) # the same machine again, in a new process
        run repeat.txt "$loka" bench --shapes "$shapes" --gemms fprop --out "$scratch/1.kernels.parquet"
        run repeat.txt "$loka" bench --shapes "$shapes" --gemms fprop --out "$scratch/2.kernels.parquet" \
            --against "$scratch/1.kernels.parquet"
        ;;
    probe)
        # Twice: the second has its kernels compiled, as every start but the first.
        for _ in 1 2; do
            run probe.txt "$loka" probe "$sample" --engine cuda --kernels 'cublaslt/*' --min-draws 50 --max-draws 50 \
                --out "$scratch/p.results.parquet"
        done
        run probe.txt python3 "$here/benches/pytorch_probe.py" "$sample" --draws 50
        run probe.txt python3 "$here/benches/pytorch_probe.py" "$sample" --draws 50 --compile
        run agree.txt "$loka" probe "$sample" --engine cpu --out "$out/cpu.results.parquet"
        run agree.txt "$loka" probe "$sample" --engine cuda --out "$out/cuda.results.parquet"
        ;;
    wide)
        python3 "$here/benches/wide_trace.py" "$scratch/wide.trace.safetensors"
        run wide.txt "$loka" probe "$scratch/wide.trace.safetensors" --engine cuda --kernels 'cublaslt/*' \
            --out "$scratch/w.results.parquet" --json
        ;;
    libraries)
        run libraries.txt "$loka" kernels --libraries
        run libraries.txt python3 "$here/python/tests/gpu_check.py"
        run libraries.txt "$loka" probe "$sample" --engine cuda --libraries --kernels 'torchao/*' --kernels 'pytorch/*' \
            --min-draws 8 --max-draws 8 --out "$out/libraries.results.parquet"
        run libraries.txt "$loka" bench --shapes "$shapes" --gemms fprop --libraries --kernels 'pytorch/*' \
            --kernels 'torchao/*' --samples 21 --out "$out/libraries.kernels.parquet" --csv "$out/libraries.csv"
        ;;
    sanitizer)
        for tool in memcheck racecheck; do
            run sanitizer.txt timeout 200 compute-sanitizer --tool $tool --error-exitcode 9 \
                "$loka" selftest --gpu --own-kernels
        done
        ;;
    *) echo "no part is called $part" ;;
    esac
done
