#!/usr/bin/env bash
# Makes the still pictures of README and docs again, in assets/screenshots, by `loka open --screenshot` under Xvfb.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_rust
need_packages xvfb xauth mesa-vulkan-drivers libvulkan1 libx11-6 libx11-xcb1 libxcursor1 libxi6 libxrandr2 libxkbcommon-x11-0
cargo build --manifest-path "$root/Cargo.toml" --workspace --lib --bin loka $quiet >&2

# picture NAME FILE ARGUMENT...: of a sample, by a screen that has room for it.
picture() {
    env -u WAYLAND_DISPLAY -u DBUS_SESSION_BUS_ADDRESS WINIT_X11_SCALE_FACTOR=1 WGPU_BACKEND=vulkan \
        xvfb-run --auto-servernum --server-args "-screen 0 2600x1500x24 -nolisten tcp" \
        "$CARGO_TARGET_DIR/debug/loka" open "$root/sample-traces/$2" "${@:3}" --screenshot "$root/assets/screenshots/$1" ||
        die "no picture: $1"
    say "$1"
}
ranker=dcnv2-ranker.trace.safetensors
picture workbench-dark-1920x1080.png $ranker --size 1920x1080 --do view.graph --do view.plan
picture workbench-light-1920x1080.png $ranker --size 1920x1080 --theme light --do view.distribution --do view.plan
picture workbench-frontier-1280x800.png $ranker --size 1280x800 --do view.frontier
picture workbench-mods-1280x800.png wukong-clicks.trace.safetensors --size 1280x800 --do mod.block_norm --do view.mods

# The report of a plan that one of two people has signed.
need_packages chromium
loka=$CARGO_TARGET_DIR/debug/loka
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/policy.json" <<'POLICY'
{"name": "balanced, two to agree", "metric": "noise_share", "max_error": 0.01, "min_speedup": 1.05, "confidence": 0.95,
 "loss_budget": 0.0002, "max_bias": 0.01, "approval": {"approvers": 2}}
POLICY
results=$root/sample-traces/dcnv2-ranker.results.parquet
"$loka" plan "$results" --policy "$scratch/policy.json" --name nightly --release 2 --author Olga --out "$scratch/p.plan.json" >/dev/null
"$loka" key new --name "Anna Meyer" --out "$scratch/anna.json" >/dev/null
"$loka" approve "$scratch/p.plan.json" --key "$scratch/anna.json" --note "Errors as last week" >/dev/null
"$loka" report "$scratch/p.plan.json" --results "$results" --out "$scratch/report.html" >/dev/null
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1590 \
    --screenshot="$root/assets/screenshots/report.png" "file://$scratch/report.html" >/dev/null 2>&1 || die "no picture: report.png"
say report.png
