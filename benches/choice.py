"""Which of LoKA's kernels is taken at shapes that nobody chose: 400 random ones, every kernel timed at each.

    python benches/choice.py --time FILE.json [--seed 1] [--minutes 4] [--shared]    # a GPU of compute capability 9.0 and PyTorch
    python benches/choice.py --fit FILE.json...                                      # anywhere, with numpy and scipy
    python benches/choice.py --judge FILE.json...                                    # anywhere

--time: m from 512 to 32,768, k and n from 128 to 16,384, k of every seventh up to 131,072, all of them multiples of 16 and
uniform in their logarithm, by a seed. Codes lie in rows that begin at lines of memory. Each kernel is a CUDA graph over more buffers than the L2 holds, all of a shape
interleaved round by round, as in static_gemm.py; medians of 7 rounds. At every fourth shape, which no fit sees, BF16 by
cuBLASLt (the fastest of its heuristics' eight) is timed too, the casts of the weight in front, and products of codes whose rows lie
behind one another (`packed+`). --shared: only those of the
shapes at which blocks can share k. Files of one shape are put together, the last one's times count.

--fit prints what kernels/src/gemm has of each kernel's cost (cost.rs says what the terms are), by least squares of the
logarithm, from one start.

--judge: over the held-out shapes, the time of the kernel that these costs expect to be fastest, over that of the fastest.
Families: `fast` and `promoted` (the GEMM on codes), `static` (x in BF16: cast on its way in, or cast first).
"""

import argparse
import json
import math
import pathlib
import random
import time

import costs

HELD_OUT = 4
"""One shape of so many is for judging."""


def shapes(count: int, seed: int) -> list:
    """(m, n, k) that fit a GPU and take no longer than some milliseconds."""
    draw, found = random.Random(seed), []

    def size(least: float, most: float) -> int:
        return 16 * max(1, round(math.exp(draw.uniform(math.log(least), math.log(most))) / 16))

    while len(found) < count:
        long = len(found) % 7 == 6
        m, n, k = size(512, 32768), size(128, 16384), size(16384, 131072) if long else size(128, 16384)
        if 2 * m * n * k <= 3e12 and m * k <= 7e8 and n * k <= 7e8 and m * n <= 3e8:
            found.append((m, n, k))
    return found


def timed(path: pathlib.Path, count: int, seed: int, minutes: float, shared: bool) -> None:
    """Writes the medians of every shape that there is time for."""
    import torch

    import fp8_gemm as fp8
    import static_gemm as own

    statics = own.static_tilings()
    plain = [tiling for tiling in fp8.tilings() if not tiling.is_e5m2]
    ends, rows = time.monotonic() + 60 * minutes, []
    for index, (m, n, k) in enumerate(shapes(count, seed)):
        if time.monotonic() > ends:
            print(f"time is up after {index} shapes")
            break
        if shared and not any(tiling.splits > 1 and tiling.suits(m, n, k) for tiling in plain):
            continue
        us = measure(torch, fp8, own, statics, plain, (m, n, k), judged=index % HELD_OUT == 0)
        rows.append({"index": index, "m": m, "n": n, "k": k, "us": us})
        if index % 20 == 0:
            print(index, (m, n, k), {name: round(value, 1) for name, value in us.items()}, flush=True)
    device = torch.cuda.get_device_name()
    told = {"device": device, "torch": torch.__version__, "seed": seed, "multiprocessors": fp8.SMS, "shapes": rows}
    path.write_text(json.dumps(told))
    print(f"{len(rows)} shapes on {device}: {path.name}")


def measure(torch, fp8, own, statics, plain, shape, judged: bool, sample_us: float = 700.0, rounds: int = 7) -> dict:
    m, n, k = shape
    sets = max(2, min(64, -(-180_000_000 // (3 * m * k + n * k + 2 * m * n))))
    repeats = max(1, math.ceil(sample_us / (max(3.0, 2 * m * n * k / 1.3e9) * sets)))
    x_scale, saturated = torch.full((1,), own.SCALE, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    spread = x_scale.expand(m).contiguous()
    data = []
    for _ in range(sets):
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        codes, scales = fp8.spaced(n, k), torch.empty(n, device="cuda")
        own.cast_rowwise(w, codes, scales)()
        x_codes = fp8.spaced(m, k).copy_(own.e4m3(x / own.SCALE))
        data.append((x, x_codes, w, codes, scales, torch.empty(m, n, dtype=torch.bfloat16, device="cuda")))
    graphs, launches, alive = {}, {}, []

    def add(name: str, *steps: list) -> None:
        runs = [run for together in zip(*steps) for run in together]
        # A graph does not keep what its kernels point to.
        alive.append(runs)
        graphs[name], launches[name] = fp8.graph(runs, repeats), len(steps)

    x_casts = [own.cast_static(x, codes, x_scale, saturated) for x, codes, *_ in data]
    w_casts = [own.cast_rowwise(w, codes, scales) for _, _, w, codes, scales, _ in data]
    for tiling in plain:
        if not tiling.suits(m, n, k):
            continue
        bare = [tiling.prepare(x_codes, codes, y, spread, scales, True) for _, x_codes, _, codes, scales, y in data]
        add(tiling.name, bare)
        if tiling.fast:
            add(f"cast+{tiling.name}", x_casts, bare)
            if judged:
                add(f"w+cast+{tiling.name}", w_casts, x_casts, bare)
    for tiling in statics:
        if tiling.suits(m, n, k):
            runs = [tiling.prepare(x, codes, y, x_scale, scales, saturated) for x, _, _, codes, scales, y in data]
            add(tiling.entry, runs)
            if judged:
                add(f"w+{tiling.entry}", w_casts, runs)
    if judged:
        library = own.tuned(m, n, k, data, repeats)
        add("bf16", [library.prepare(x, w, y, x, x) for x, _, w, _, _, y in data])
        add("cublaslt_fp8", theirs(fp8, shape, data, spread, repeats))
        if k % 128:
            packed = [(x, x_codes.contiguous(), w, codes.contiguous(), scales, y) for x, x_codes, w, codes, scales, y in data]
            alive.append(packed)
            add("packed+cublaslt_fp8", theirs(fp8, shape, packed, spread, repeats, packed=True))
            for tiling in plain:
                if tiling.fast and tiling.suits(m, n, k):
                    runs = [tiling.prepare(x, w, y, spread, scales, True) for _, x, _, w, scales, y in packed]
                    add(f"packed+{tiling.name}", runs)
    samples = fp8.times(graphs, rounds)
    return {name: fp8.median(taken) * launches[name] for name, taken in samples.items()}


def theirs(fp8, shape, data, spread, repeats: int, packed: bool = False) -> list:
    """The bare product by cuBLASLt, scales by rows, fast accumulation: the fastest of its heuristics' eight."""
    library, tried = fp8.Library(*shape, True, True, packed=packed), {}
    for index in range(library.count):
        runs = [lambda run=library.prepare(x, w, y, spread, s), index=index: run(index) for _, x, _, w, s, y in data]
        tried[index] = fp8.graph(runs, max(1, repeats // 2))
    found = fp8.times(tried, 3)
    library.algorithm = min(found, key=lambda index: fp8.median(found[index]))
    return [library.prepare(x, w, y, spread, scales) for _, x, _, w, scales, y in data]


def read(paths: list) -> list:
    """[held out?, (m, n, k), {kernel: us}] of every shape."""
    found = {}
    for path in paths:
        told = json.loads(path.read_text())
        for place, row in enumerate(told["shapes"]):
            key = told["seed"], row.get("index", place)
            found[key] = [key[1] % HELD_OUT == 0, (row["m"], row["n"], row["k"]), row["us"]]
    return [found[key] for key in sorted(found)]


def candidates(us: dict, shape: tuple) -> dict:
    """By family, (microseconds, expected, kernel) of each."""
    m, _, k = shape
    # Those that the choice has: what does not suit is timed no more.
    plain = [told for told in costs.gemms() if "_e4m3_" in told.entry and told.name in us and told.suits(*shape)]
    timed = [(us[told.name], told.expected(*shape), told) for told in plain]
    families = {
        "fast": [each for each in timed if "_fast_" in each[2].entry],
        "promoted": [each for each in timed if "_promoted_" in each[2].entry],
    }
    first = [(us[f"cast+{told.name}"], costs.cast(m, k) + expected, told) for _, expected, told in families["fast"]]
    on_the_way = [(us[t.name], t.expected(*shape), t) for t in costs.static_gemms() if t.name in us]
    return {**families, "static": first + on_the_way}


def judge(paths: list) -> None:
    held = [(shape, us) for is_held, shape, us in read(paths) if is_held]
    print(f"{len(held)} held-out shapes\nfamily      kernels  lost by the choice  worst  within 10 %  by the best over BF16  chosen over BF16")
    for family in ("fast", "promoted", "static"):
        lost, best, chosen, most = [], [], [], 0
        for shape, us in held:
            found = candidates(us, shape)[family]
            most = max(most, len(found))
            least, taken = min(each[0] for each in found), min(found, key=lambda each: each[1])[0]
            lost.append((taken / least, shape))
            best.append(us["bf16"] / least)
            chosen.append(us["bf16"] / taken)
        worst = max(lost)
        within = sum(each[0] <= 1.1 for each in lost) / len(lost)
        print(f"{family:10} {most:8} {100 * costs.geomean([each[0] for each in lost]) - 100:17.1f} % {worst[0]:7.2f} {100 * within:10.0f} % "
              f"{costs.geomean(best):22.2f} {costs.geomean(chosen):17.2f}   worst at m, n, k = {worst[1]}")  # fmt: skip
    is_read_well = lambda shape, us: shape[2] % 32 == 0
    is_large = lambda shape, us: us["bf16"] >= 30
    kinds = [
        ("all", lambda *each: True),
        ("k no multiple of 32", lambda *each: not is_read_well(*each)),
        ("  and BF16 takes 30 us", lambda *each: not is_read_well(*each) and is_large(*each)),
        ("k a multiple of 32", is_read_well),
        ("  and BF16 takes 30 us", lambda *each: is_read_well(*each) and is_large(*each)),
        ("  and n and k from 512 on", lambda *each: is_read_well(*each) and is_large(*each) and min(each[0][1:]) >= 512),
        ("BF16 takes less than 12 us", lambda shape, us: us["bf16"] < 12),
    ]
    print("BF16 over the fastest of ours and itself, and at how many ours is: codes; x cast; both cast. Last: over cuBLASLt's FP8 on codes")
    for kind, suits in kinds:
        suited = [us for shape, us in held if suits(shape, us)]
        told = []
        for begins in (("sm90_e4m3_gemm_fast",), ("cast+", "sm90_bf16_gemm"), ("w+",)):
            ratios = [us["bf16"] / min(value for name, value in us.items() if name.startswith(begins)) for us in suited]
            told.append(f"{costs.geomean([max(1.0, ratio) for ratio in ratios]):.2f} ({sum(ratio > 1 for ratio in ratios)})")
        told.append(f"{costs.geomean([us['bf16'] / us['cublaslt_fp8'] for us in suited]):.2f}")
        print(f"{kind:28} {len(suited):4}   {'   '.join(told)}")
    for name, starts in (("cuBLASLt's", "cublaslt_fp8"), ("the best of ours", "sm90_e4m3_gemm_fast")):
        told = []
        for suits in (lambda k: k % 32 != 0, lambda k: k % 128 != 0 and k % 32 == 0):
            pairs = [[min((value for each, value in us.items() if each.startswith(begin)), default=0) for begin in (f"packed+{starts}", starts)]
                     for (_, _, k), us in held if suits(k)]  # fmt: skip
            ratios = [packed / spaced for packed, spaced in pairs if packed]
            if ratios:
                told.append(f"{costs.geomean(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} shapes)")
        print(f"{name}, codes packed over in rows at lines, k no multiple of 32, one of 32 but not of 128: {', '.join(told)}")
    library = [us["cublaslt_fp8"] / min(each[0] for each in candidates(us, shape)["fast"]) for shape, us in held]
    print(f"cuBLASLt's FP8 GEMM (rowwise, fast) over the best of ours: {costs.geomean(library):.3f}, from {min(library):.2f} to {max(library):.2f}")


def fit(paths: list) -> None:
    import numpy
    from scipy.optimize import least_squares

    rows = [(shape, us) for is_held, shape, us in read(paths) if not is_held]
    kernels = [told for told in costs.gemms() if "_e4m3_" in told.entry] + costs.static_gemms()
    rows = [(shape, us, {told.name for told in kernels if told.suits(*shape)}) for shape, us in rows]
    samples = [[(shape, us[told.name]) for shape, us, suit in rows if told.name in us and told.name in suit] for told in kernels]
    casts = [[(shape, us[name]) for shape, us, suit in rows if (name := f"cast+{told.name}") in us and told.name in suit]
             for told in kernels]  # fmt: skip

    def terms(told: costs.Told, pairs: list):
        """What `Told.expected` sums, so that the sum is one product of arrays: see there."""
        m, n, k = (numpy.array([shape[at] for shape, _ in pairs], float) for at in range(3))
        units = numpy.ceil(m / told.rows) * numpy.ceil(n / told.columns) * told.splits
        waves, left = numpy.divmod(units, costs.H200)
        stages = numpy.ceil(numpy.ceil(k / 128) / told.splits)

        us = numpy.array([us for _, us in pairs])
        # Rows of codes begin at lines.
        crossing = (k * told.x_bytes % 128 != 0) & (told.x_bytes > 1)
        high, wide = numpy.array([told.wave(*shape[:2]) for shape, _ in pairs], float).T
        return m, n, k, waves + (left > 0), stages, units, crossing, high, wide, us

    def expected(told, of_one, of_all, at):
        m, n, k, waves, stages, units, crossing, high, wide, _ = at
        lines, store_us = of_all[:2]
        stage_us, traffic_us, distinct_us, tile_us, launch_us = of_one
        x_kb, w_kb = 0.128 * told.rows * told.x_bytes * (1 + lines * crossing), 0.128 * told.columns
        waits = units / 1e3 * (x_kb + w_kb) * traffic_us
        waits = waits + waves * told.splits / 1e3 * (high * x_kb + wide * w_kb) * distinct_us
        return stages * (waves * stage_us + waits) + waves * tile_us + 2e-6 * m * n * store_us + launch_us

    known, known_casts = ([terms(told, pairs) if pairs else None for told, pairs in zip(kernels, each)] for each in (samples, casts))

    def weight(k):
        # Widths of real models are multiples of 64 more often than one in four.
        return numpy.where(k % 64 == 0, 2.0, 1.0)

    def off(logs):
        values, found = numpy.exp(logs), []
        of_all = values[:4]
        for index, told in enumerate(kernels):
            of_one = values[4 + 5 * index : 9 + 5 * index]
            if known[index] is not None:
                at = known[index]
                found.append(weight(at[2]) * numpy.log(expected(told, of_one, of_all, at) / at[-1]))
            if known_casts[index] is not None:
                m, _, k, *_, us = at = known_casts[index]
                cast_us = of_all[2] + 3e-6 * m * k * of_all[3]
                found.append(weight(k) * numpy.log((expected(told, of_one, of_all, at) + cast_us) / us))
        return numpy.concatenate(found)

    begin = numpy.log([0.15, 0.1, 2.5, 0.27] + [0.3, 0.02, 0.05, 0.5, 2.0] * len(kernels))
    # Within what a kernel can be: a term that the shapes do not tell apart from another would run away.
    lowest = numpy.log([1e-3, 1e-3, 0.5, 0.05] + [0.05, 1e-3, 1e-3, 0.05, 0.5] * len(kernels))
    found = least_squares(off, begin, bounds=(lowest, numpy.inf), loss="soft_l1", f_scale=0.05, x_scale="jac", max_nfev=2000)
    values = numpy.exp(found.x)
    names = ("OF_LINES", "STORE_US", "LAUNCH_US", "TRAFFIC_US")
    print(len(rows), "shapes;", ", ".join(f"{name} {value:.3f}" for name, value in zip(names, values)))
    for index, told in enumerate(kernels):
        of_one = values[4 + 5 * index : 9 + 5 * index]
        off_by = math.nan
        if known[index] is not None:
            off_by = float(numpy.sqrt((numpy.log(expected(told, of_one, values[:4], known[index]) / known[index][-1]) ** 2).mean()))
        print(f"{told.name:42} [{', '.join(f'{value:.4g}' for value in of_one)}]   off by {100 * off_by:.0f} % (rms)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--time", type=pathlib.Path, metavar="FILE.json")
    for name in ("fit", "judge"):
        way.add_argument(f"--{name}", type=pathlib.Path, nargs="+", metavar="FILE.json")
    parser.add_argument("--shapes", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--shared", action="store_true")
    arguments = parser.parse_args()
    if arguments.time:
        timed(arguments.time, arguments.shapes, arguments.seed, arguments.minutes, arguments.shared)
    elif arguments.fit:
        fit(arguments.fit)
    else:
        judge(arguments.judge)


if __name__ == "__main__":
    main()
