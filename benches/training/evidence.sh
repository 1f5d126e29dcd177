#!/usr/bin/env bash
# Makes the training evidence again: benches/training/evidence.sh LOKA OUT [PART]...
# LOKA is a release build; PART is speed, cost, samples, quality or checks (default: all). Needs one NVIDIA GPU with FP8,
# PyTorch and, for its arms, TorchAO. About 25 minutes on one H200; outputs are OUT/*.txt and *.json.
set -uo pipefail
[ $# -ge 2 ] || { sed -n 2,4p "$0" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
loka=$(realpath "$1")
mkdir -p "$2" && out=$(realpath "$2")
shift 2
export PYTHONPATH=$root/python:$here${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
cd "$here"

# run NAME COMMAND...: the command and what it prints, into OUT/NAME.txt.
run() {
    local name=$1
    shift
    { printf '$ %s\n' "$*"; "$@"; } >>"$out/$name.txt" 2>&1 || printf '%s failed: %s\n' "$name" "$*" >&2
}

speed() {
    local config trace
    for config in 2.1G 5.6G; do
        trace=$out/wukong-$config-rank0.trace.safetensors
        run speed python3 wukong_step.py --gpu --configs "$config" --trace "$out" --trace-steps 10
        run speed "$loka" bench --shapes "$trace" --kernels 'cublaslt/*' --samples 15 --out "$out/$config.kernels.parquet"
        run speed "$loka" probe "$trace" --engine cuda --kernels 'cublaslt/*' --max-draws 16 \
            --latencies "$out/$config.kernels.parquet" --out "$out/$config.results.parquet"
        run speed "$loka" plan "$out/$config.results.parquet" --policy training.policy.json --out "$out/$config.plan.json"
        run speed python3 wukong_step.py --gpu --configs "$config" --plan "$config=$out/$config.plan.json" --graphs \
            --rounds 8 --calls 5 --out "$out/wukong-step-$config.json"
        rm -f "$trace"
    done
}

cost() { run cost python3 recorder_cost.py --configs 2.1G 5.6G --steps 100 --out "$out/recorder-cost.json"; }

samples() {
    local name millions
    for name in wukong-drift dhen-counters interformer-past; do
        millions=6
        [ "$name" = interformer-past ] && millions=3
        run prediction python3 record_samples.py --gpu --only "$name" --steps 5000 --lr 2e-3 --decay --out "$out"
        "$loka" probe "$out/$name.trace.safetensors" --engine cuda --max-draws 64 --out "$out/$name.results.parquet" \
            --json >"$out/$name.jsonl" || continue
        run prediction python3 prediction.py "$out/$name.pt" --results "$out/$name.jsonl" --gpu --millions "$millions" \
            --out "$out/$name.prediction.json"
    done
}

quality() {
    local folder=$out/quality gemm overrides=()
    mkdir -p "$folder"
    # Larger than a sample may be, which the script says with exit code 1.
    run quality python3 record_samples.py --gpu --only wukong-drift --mods --steps 2500 --lr 4e-3 --counters 16 \
        --hidden 512 --out "$folder"
    run quality "$loka" probe "$folder/wukong-drift.trace.safetensors" --engine cuda --kernels 'cublaslt/*' \
        --max-draws 24 --out "$folder/q.results.parquet"
    for gemm in fprop dgrad wgrad; do overrides+=(--override "tokens.bottom.0:$gemm=cublaslt/bf16"); done
    run quality "$loka" plan "$folder/q.results.parquet" --policy quality.policy.json "${overrides[@]}" \
        --out "$folder/q.plan.json"
    run quality python3 quality.py --gpu --steps 3000 --lr 4e-3 --counters 16 --seeds 6 --mods-plan "$folder/q.plan.json" \
        --out "$out/quality.json" --arms fp32 fp32_again naive no_bias block_norm hard_swish mods mods_again mods_bare \
        mods_naive mods_plan
}

checks() {
    run checks python3 "$root/python/tests/gpu_kernels.py"
    run checks python3 "$root/python/tests/gpu_mods.py"
    run checks python3 -m unittest discover --start-directory "$root/python/tests" --pattern 'test_*gpu*.py'
}

[ $# -gt 0 ] || set -- checks speed cost samples quality
for part in "$@"; do
    case $part in
        checks | speed | cost | samples | quality) "$part" ;;
        *) printf 'unknown part: %s\n' "$part" >&2; exit 2 ;;
    esac
done
