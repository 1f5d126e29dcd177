#!/usr/bin/env bash
# Times the kernels of the user's libraries on a machine with a GPU, beside LoKA's own, and trains under plans of them;
# writes it to OUT. Builds nothing, ends in time, and keeps what it has by then.
#
#     PYTHONPATH=WHERE_THEY_ARE scripts/gpu_libraries.sh LOKA OUT MINUTES [PART]...
#
# LOKA: the binary (cargo build --package loka --no-default-features). The libraries are those of `python3`, or of PYTHON.
# PART, in the order in which they are done; all but `odd` and `launched` without: versions warm fprop training gradients
# torchao autotune odd launched. KERNELS: those of `launched`. Databases are OUT/PART.kernels.parquet with a text of it beside, tables are OUT/libraries.txt.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
loka=$1 out=$2 minutes=$3
shift 3
parts=${*:-versions warm fprop training gradients torchao autotune}
python=${PYTHON:-python3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"
ends=$(awk -v m="$minutes" -v now="$SECONDS" 'BEGIN { printf "%d", now + 60 * m }')
# Compiled once, for warm and for what is timed.
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$scratch/inductor} TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$scratch/triton}
export DG_JIT_CACHE_DIR=${DG_JIT_CACHE_DIR:-$scratch/deepgemm} PYTHONUNBUFFERED=1

# Most telling first: what time cuts off is the rest.
few=$scratch/few.csv all=$scratch/all.csv
cat >"$few" <<CSV
m,k,n
6144,4096,4096
2048,2048,2048
6144,2048,2048
2048,4096,1024
20480,1536,2048
12288,4096,4096
2048,512,512
2048,30720,1024
6144,4096,7680
1024,1536,2048
10240,2048,6144
3072,6144,2048
CSV
{
    cat "$few"
    cat "$here/benches/lrm_shapes.csv" "$here/benches/lrm_shapes_more.csv" | grep -v '^m' | grep -vxFf "$few"
} >"$all"

head -n 2 "$few" >"$scratch/one.csv"
head -n 3 "$few" >"$scratch/two.csv"

# left MOST KEEP: seconds for the next step: at most MOST, and so that KEEP are over after it.
left() {
    local seconds=$((ends - SECONDS - $2))
    echo $((seconds < $1 ? seconds : $1))
}

# run SECONDS COMMAND...: its output and how long it took, into libraries.txt; ended when the time is over.
run() {
    local limit=$1 begin=$SECONDS status=0
    shift
    if [ "$limit" -lt 5 ]; then
        echo "no time left for: ${*//$here\//}" | tee -a "$out/libraries.txt"
        return
    fi
    { echo "\$ ${*//$here\//}"; date -u +%FT%TZ; } >>"$out/libraries.txt"
    timeout --kill-after=5 "$limit" "$@" >"$scratch/said" 2>&1 || status=$?
    cat "$scratch/said" >>"$out/libraries.txt"
    echo "exit $status after $((SECONDS - begin)) s" | tee -a "$out/libraries.txt"
    tail -n 3 "$scratch/said" | cut -c1-180
}

# bench PART SECONDS GEMMS SHAPES KERNEL...: BF16 is always beside them.
bench() {
    local part=$1 seconds=$2 gemms=$3 shapes=$4 kernels=()
    shift 4
    for kernel in "$@"; do kernels+=(--kernels "$kernel"); done
    [ "$seconds" -lt 15 ] && { echo "no time left for $part" | tee -a "$out/libraries.txt"; return; }
    run $((seconds + 20)) "$loka" bench --shapes "$shapes" --gemms "$gemms" --libraries --python "$python" "${kernels[@]}" \
        --samples "${SAMPLES:-21}" --minutes "$(awk -v s="$seconds" 'BEGIN { printf "%.2f", s / 60 }')" \
        --out "$out/$part.kernels.parquet" --csv "$out/$part.csv"
}

own='cublaslt/fp8-rowwise+fast cublaslt/fp8-tensorwise+fast cublaslt/fp8-blockwise loka/fp8-rowwise+fast loka/fp8-static+fast'
for part in $parts; do
    echo "== $part ($((ends - SECONDS)) s left)"
    case $part in
    versions)
        {
            nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit --format=csv,noheader
            "$python" -c 'import sys, importlib.metadata as m
def version(name):
    try: return m.version(name)
    except Exception: return "-"
names = "torch triton nvidia-cublas nvidia-cuda-nvrtc torchao deep_gemm fbgemm-gpu-genai transformer-engine transformer-engine-cu13"
print("python", sys.version.split()[0], *(f"{name} {version(name)}" for name in names.split()), sep="; ")'
        } >"$out/versions.txt" 2>&1
        cat "$out/versions.txt"
        run "$(left 90 0)" "$loka" kernels --libraries --python "$python"
        ;;
    warm)
        # LoKA's own kernels are compiled meanwhile; what that run times beside the others is thrown away.
        timeout 100 "$loka" bench --shapes "$scratch/one.csv" --gemms fprop --kernels 'loka/fp8-[rs]*+fast' --samples 5 \
            --out "$scratch/own.kernels.parquet" >/dev/null 2>&1 &
        run "$(left 75 300)" "$python" "$here/benches/library_casts.py" --shapes "$all" --gemms fprop \
            --kernels 'deepgemm/*' --kernels 'fbgemm/*'
        run "$(left 75 240)" "$python" "$here/benches/library_casts.py" --shapes "$few" --gemms dgrad,wgrad \
            --kernels 'deepgemm/*' --kernels 'fbgemm/*'
        wait
        # What was fastest while others kept the GPU busy is looked for again.
        find "$TORCHINDUCTOR_CACHE_DIR" -name '*.best_config' -delete 2>/dev/null
        ;;
    fprop) bench fprop "$(left 190 190)" fprop "$all" 'fbgemm/*' 'te/*' 'deepgemm/*' $own ;;
    training)
        run "$(left 80 110)" "$python" "$here/benches/training/libraries.py" --loka "$loka" --out "$scratch/training"
        cp "$scratch"/training/{training.json,mixed.plan.json} "$out/" 2>/dev/null
        ;;
    gradients) bench gradients "$(left 160 5)" dgrad,wgrad "$few" 'fbgemm/*' 'te/*' 'deepgemm/*' 'cublaslt/fp8-rowwise+fast' ;;
    torchao)
        run "$(left 90 60)" "$python" "$here/benches/library_casts.py" --shapes "$few" --kernels 'torchao/*'
        find "$TORCHINDUCTOR_CACHE_DIR" -name '*.best_config' -delete 2>/dev/null
        bench torchao "$(left 180 5)" fprop,dgrad,wgrad "$few" 'torchao/*'
        ;;
    autotune)
        export FBGEMM_AUTOTUNE_ENABLE=1
        bench autotune "$(left 60 5)" fprop "$few" 'fbgemm/*'
        unset FBGEMM_AUTOTUNE_ENABLE
        ;;
    odd) # sizes that are no multiples of 128, which Transformer Engine takes
        printf 'm,k,n\n4104,1040,2064\n6144,4112,4112\n' >"$scratch/odd.csv"
        bench odd "$(left 60 5)" fprop,dgrad,wgrad "$scratch/odd.csv" 'te/*'
        ;;
    launched) # whole sites in a compiled model, launched one by one and as graphs
        for kernel in ${KERNELS:-torchao/rowwise deepgemm/blockwise te/blockwise fbgemm/rowwise te/current torchao/tensorwise}; do
            for runtime in launched graph; do
                run "$(left 90 5)" "$loka" bench --sites --runtime $runtime --shapes "$scratch/two.csv" --python "$python" \
                    --kernels "$kernel" --out "$out/$runtime-${kernel/\//-}.sites.json"
            done
        done
        ;;
    *) echo "no part is called $part" ;;
    esac
done
echo "== $((ends - SECONDS)) s were left"
