"""Takes a number of sites, of places and of seconds a task; gives how busy `loka.ray.probe` keeps a Ray cluster of so many places, and how
large its driver grows.

    python benches/ray_driver.py --sites 10000 --places 8 --seconds 2

A cluster of this machine's own with as many logical CPUs. A stand-in for the program sleeps in the place of a probe, so that eight places
fit on two cores and what is seen is Ray's part and ours. A real part takes some 25 s: the shorter a task, the more it shows. Needs
`pip install 'loka[ray]'`.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time
from typing import List

PACKAGE = str(pathlib.Path(__file__).resolve().parents[1] / "python")
sys.path.insert(0, PACKAGE)

STAND_IN = """#!/bin/sh
# Of `loka`: what a driver asks of it.
part= out= verb=
for word in "$@"; do
    case "$before" in --part) part=$word ;; --out) out=$word ;; esac
    case "$word" in info|probe|merge) [ -n "$verb" ] || verb=$word ;; esac
    before=$word
done
case "$verb" in
info) echo '{"num_sites": SITES}' ;;
probe) sleep SECONDS; echo "{\\"file\\": \\"$out/$(echo "$part" | tr / -).results.parquet\\", \\"made\\": true, \\"seconds\\": SECONDS}" ;;
merge) mkdir -p "$(dirname "$out")"; : >"$out" ;;
esac
"""


def resident() -> float:
    """MB of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--places", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp())
    program = folder / "loka"
    program.write_text(STAND_IN.replace("SITES", str(args.sites)).replace("SECONDS", str(args.seconds)))
    program.chmod(0o755)
    # Workers have it from here.
    os.environ |= {"LOKA_BIN": str(program), "PYTHONPATH": PACKAGE}
    import ray

    import loka.ray

    ray.init(num_cpus=args.places, log_to_driver=False, include_dashboard=False)
    # Worker processes are there before the clock starts, as on a cluster that is in use.
    nap = ray.remote(lambda: time.sleep(2.0))
    ray.get([nap.remote() for _ in range(args.places)])
    sizes: List[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            sizes.append(resident())

    threading.Thread(target=watch, daemon=True).start()
    begin = time.monotonic()
    loka.ray.probe("made-up.trace.safetensors", folder / "out", progress=False)
    wall = time.monotonic() - begin
    over.set()
    parts = -(-args.sites // loka.ray.SITES_A_TASK["cpu"])
    busy = parts * args.seconds / (args.places * wall)
    tenth = max(1, len(sizes) // 10)
    early, late = (statistics.median(some) for some in (sizes[tenth : 3 * tenth] or sizes, sizes[-2 * tenth :]))
    print(f"Ray {ray.__version__}, Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    print(f"{args.sites:,} sites in {parts:,} parts of {args.seconds} s on {args.places} places: {wall:.1f} s, {100 * busy:.1f} % busy")
    print(f"driver: {early:.0f} MB early, {late:.0f} MB late, {max(sizes):.0f} MB at most")
    ray.shutdown()


if __name__ == "__main__":
    main()
