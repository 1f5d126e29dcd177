#!/usr/bin/env bash
# A probe by torchrun: each rank makes one part, on the GPU of its local rank. The first line of every host is the same:
#   TRACE=run/ OUT=parts/ torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
#       --no-python scripts/fleet/torchrun.sh --engine cuda
# Then, once: loka merge "$OUT" --out R.results.parquet. What follows the script's name are options of `loka probe`.
# torchrun starts all ranks anew where one fails (--max-restarts): parts that are there are not made again.
set -euo pipefail
export CUDA_VISIBLE_DEVICES=${LOCAL_RANK:?started by torchrun}
exec loka probe "${TRACE:?}" --part "$((RANK + 1))/$WORLD_SIZE" --out "${OUT:?}" "$@"
