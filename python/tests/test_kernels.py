"""Every kernel's emulated numerics in all three GEMMs against an independent computation with numpy and ml_dtypes."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ml_dtypes
import numpy as np
import torch

from loka.kernels import KERNELS, Scale, linear, numerics, why_not
from loka.catalogue import Cast
from loka.kernels.scales import quantize
from record_support import loka, loka_binary

TENSOR, ROW, BLOCK, SQUARE = "tensor", "row", "1x128", "128x128"
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2

# What docs/concepts/method.md and the libraries say, written out once more: (format, granularity, power of two) of a and b.
TENSORWISE = {
    "fprop": ((E4M3, TENSOR, False), (E4M3, TENSOR, False)),
    "dgrad": ((E5M2, TENSOR, False), (E4M3, TENSOR, False)),
    "wgrad": ((E5M2, TENSOR, False), (E4M3, TENSOR, False)),
}
ROWWISE = {gemm: ((E4M3, ROW, False),) * 2 for gemm in TENSORWISE}
ROWWISE_2 = {gemm: ((E4M3, ROW, True),) * 2 for gemm in TENSORWISE}
BLOCKWISE = {gemm: ((E4M3, BLOCK, False), (E4M3, BLOCK if gemm == "wgrad" else SQUARE, False)) for gemm in TENSORWISE}
BLOCKWISE_2 = {gemm: ((E4M3, BLOCK, True), (E4M3, BLOCK if gemm == "wgrad" else SQUARE, True)) for gemm in TENSORWISE}
STATIC = {gemm: ((E4M3, 2.0**-7, True), (E4M3, ROW, False)) for gemm in ("fprop", "dgrad")}
STATIC["wgrad"] = ("bf16", "bf16")
# x and dy by scales known beforehand, W by its own.
DELAYED = {gemm: ((E4M3, 2.0**-7, True), (E4M3, TENSOR, False)) for gemm in ("fprop", "dgrad")}
DELAYED["wgrad"] = ((E4M3, 2.0**-7, True), (E4M3, 2.0**-7, True))
BF16 = {gemm: ("bf16", "bf16") for gemm in TENSORWISE}
EXPECTED = {
    "cublaslt/tf32": {gemm: ("tf32", "tf32") for gemm in TENSORWISE},
    "cublaslt/bf16": BF16,
    "cublaslt/fp8-tensorwise": TENSORWISE,
    "cublaslt/fp8-tensorwise+fast": TENSORWISE,
    "cublaslt/fp8-rowwise": ROWWISE,
    "cublaslt/fp8-rowwise+fast": ROWWISE,
    "cublaslt/fp8-blockwise": BLOCKWISE,
    "loka/fp8-tensorwise": TENSORWISE,
    "loka/fp8-tensorwise+fast": TENSORWISE,
    "loka/fp8-rowwise": ROWWISE,
    "loka/fp8-rowwise+fast": ROWWISE,
    "cublaslt/fp8-delayed": DELAYED,
    "cublaslt/fp8-delayed+fast": DELAYED,
    "loka/fp8-static+fast": STATIC,
    "loka/fp8-block+fast": STATIC,
    "pytorch/bf16": BF16,
    "pytorch/fp8-tensorwise+fast": TENSORWISE,
    "pytorch/fp8-rowwise+fast": ROWWISE,
    "pytorch/fp8-blockwise": BLOCKWISE,
    "torchao/tensorwise": TENSORWISE,
    "torchao/rowwise": ROWWISE_2,
    "torchao/rowwise_with_gw_hp": {
        "fprop": ROWWISE_2["fprop"],
        "dgrad": ((E4M3, ROW, True), (E4M3, TENSOR, True)),
        "wgrad": ("bf16", "bf16"),
    },
    "deepgemm/blockwise": BLOCKWISE,
    "fbgemm/rowwise": ROWWISE,
    "te/current": TENSORWISE,
    "te/blockwise": BLOCKWISE_2,
}
FAST = {
    "cublaslt/fp8-tensorwise+fast": "fprop dgrad wgrad", "cublaslt/fp8-rowwise+fast": "fprop dgrad wgrad",
    "cublaslt/fp8-delayed+fast": "fprop dgrad wgrad",
    "loka/fp8-tensorwise+fast": "fprop dgrad wgrad", "loka/fp8-rowwise+fast": "fprop dgrad wgrad",
    "loka/fp8-static+fast": "fprop dgrad wgrad", "loka/fp8-block+fast": "fprop dgrad wgrad",
    "pytorch/fp8-tensorwise+fast": "fprop dgrad wgrad", "pytorch/fp8-rowwise+fast": "fprop dgrad wgrad",
    "fbgemm/rowwise": "fprop dgrad wgrad", "torchao/tensorwise": "fprop", "torchao/rowwise": "fprop",
    "torchao/rowwise_with_gw_hp": "fprop", "te/current": "fprop",
}


def numpy_cast(x, how):
    """The values that an operand [rows, reduced] has after its cast, FP64."""
    if how == "bf16":
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)
    if how == "tf32":
        mantissa, exponent = np.frexp(x.astype(np.float64))
        return np.ldexp(np.round(mantissa * 2**11), exponent - 11)  # numpy rounds halves to even
    format, granularity, power_of_two = how
    rows, reduced = x.shape
    if isinstance(granularity, float):  # The scale itself.
        largest = float(ml_dtypes.finfo(format).max)
        codes = np.clip(x.astype(np.float64) / granularity, -largest, largest).astype(format)
        return codes.astype(np.float64) * granularity
    tall, wide = {TENSOR: (rows, reduced), ROW: (1, reduced), BLOCK: (1, 128), SQUARE: (128, 128)}[granularity]
    out = np.empty((rows, reduced), np.float64)
    for top in range(0, rows, tall):
        for left in range(0, reduced, wide):
            part = (slice(top, top + tall), slice(left, left + wide))
            largest = np.float32(ml_dtypes.finfo(format).max)
            scale = max(np.float32(np.abs(x[part]).max()) / largest, np.float32(1e-12))
            if power_of_two:
                scale = np.float32(2.0 ** np.ceil(np.log2(np.float64(scale))))
            divided = np.clip(x[part].astype(np.float32) / scale, -largest, largest)
            out[part] = divided.astype(format).astype(np.float64) * np.float64(scale)
    return out


def operands(m=136, k=256, n=384, seed=0):
    rng = np.random.default_rng(seed)
    spread = lambda *shape: (rng.standard_normal(shape) * np.exp2(rng.normal(0, 2, shape))).astype(np.float32)
    return spread(m, k), spread(n, k) * np.float32(0.1), spread(m, n) * np.float32(1e-3)


class Emulated(unittest.TestCase):
    def test_all_kernels_in_all_gemms(self):
        self.assertEqual(sorted(EXPECTED), sorted(KERNELS))
        x, weight, dy = operands()
        for kernel, hows in EXPECTED.items():
            if kernel == "loka/fp8-block+fast":
                continue  # Its output is behind a norm: test_apply_blocks.
            tx, tw = (torch.from_numpy(t.copy()).requires_grad_() for t in (x, weight))
            # No kernel of a static scale has a wgrad.
            chosen = (kernel, kernel, "cublaslt/bf16") if hows is STATIC else (kernel,) * 3
            scales = tuple(Scale.of(2.0**-7, torch.device("cpu")) for _ in range(2))
            y = linear(tx, tw, None, chosen, True, scales)
            dx, dw = torch.autograd.grad(y, (tx, tw), torch.from_numpy(dy))
            pairs = {"fprop": (y.detach(), x, weight), "dgrad": (dx, dy, weight.T), "wgrad": (dw, dy.T, x.T)}
            for gemm, (found, a, b) in pairs.items():
                cast_a, cast_b = numpy_cast(a, hows[gemm][0]), numpy_cast(b, hows[gemm][1])
                expected = cast_a @ cast_b.T
                error = np.abs(found.double().numpy() - expected)
                # Half a unit of the output's type, plus what FP32 sums lose.
                is_wide = kernel == "cublaslt/tf32"
                is_wide |= hows is DELAYED and gemm == "wgrad"  # Of an FP32 weight.
                unit = 2.0**-24 if is_wide else 2.0**-8
                bound = np.abs(expected) * unit * 1.01 + 2e-6 * (np.abs(cast_a) @ np.abs(cast_b).T)
                with self.subTest(kernel=kernel, gemm=gemm):
                    self.assertTrue((error <= bound).all(), float((error / bound).max()))
                    if not is_wide:
                        self.assertTrue(torch.equal(found, found.bfloat16().float()), "the output is BF16")

    def test_where_accumulation_is_fast(self):
        for kernel in KERNELS:
            for gemm in ("fprop", "dgrad", "wgrad"):
                with self.subTest(kernel=kernel, gemm=gemm):
                    self.assertEqual(numerics(kernel, gemm).fast, gemm in FAST.get(kernel, ""))

    def test_gemms_of_one_linear_are_routed_apart(self):
        x, weight, dy = operands()
        kernels = ("cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/bf16")
        results = []
        for chosen in (kernels, *((kernel,) * 3 for kernel in kernels)):
            tx, tw = (torch.from_numpy(t.copy()).requires_grad_() for t in (x, weight))
            y = linear(tx, tw, None, chosen, emulate=True)
            results.append((y.detach(), *torch.autograd.grad(y, (tx, tw), torch.from_numpy(dy))))
        for index in range(3):
            self.assertTrue(torch.equal(results[0][index], results[index + 1][index]))
            self.assertFalse(torch.equal(results[0][index], results[(index + 1) % 3 + 1][index]))


class Scales(unittest.TestCase):
    def test_power_of_two_is_rounded_up_and_floor_holds(self):
        for amax, expected in ((448.0, 1.0), (449.0, 2.0), (224.0, 0.5), (0.0, 2.0**-39)):
            _, scale = quantize(torch.full((16, 16), amax), Cast("e4m3", "tensor", True))
            self.assertEqual(float(scale), expected)
        _, scale = quantize(torch.zeros(16, 16), Cast("e4m3", "row", False))
        self.assertEqual(scale.flatten().tolist(), [float(np.float32(1e-12))] * 16)

    def test_all_bf16_values_round_as_ml_dtypes(self):
        codes = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
        for name, format in (("e4m3", E4M3), ("e5m2", E5M2)):
            largest = float(ml_dtypes.finfo(format).max)
            values = codes[np.abs(codes) <= largest]
            values = np.concatenate([values, [largest]]).astype(np.float32)
            bits, scale = quantize(torch.from_numpy(values)[None], Cast(name, "tensor", False))
            self.assertEqual(float(scale), 1.0)
            self.assertTrue(np.array_equal(bits.view(torch.uint8).numpy()[0], values.astype(format).view(np.uint8)))

    def test_a_bad_value_spoils_its_group_and_no_other(self):
        x, weight, _ = operands()
        for value in (np.nan, np.inf, -np.inf):
            spoiled = x.copy()
            spoiled[5, 7] = value
            spoiled = torch.from_numpy(spoiled)
            for kernel, rows in (("tensorwise", 136), ("rowwise", 1), ("blockwise", 1)):
                kernel = f"cublaslt/fp8-{kernel}"
                y = linear(spoiled, torch.from_numpy(weight), None, (kernel,) * 3, emulate=True)
                self.assertEqual(int(y.isnan().all(1).sum()), rows, (kernel, value))
                self.assertEqual(int((~y.isfinite()).any(1).sum()), rows, (kernel, value))


class Catalogue(unittest.TestCase):
    def test_it_is_the_planners(self):
        """The same ids in the same order as `core/src/model/kernel.rs`, each with the same numerics."""
        if loka_binary() is None:
            self.skipTest("no loka binary: set LOKA_BIN")
        rows = [json.loads(line) for line in loka("kernels", "--json").stdout.splitlines()]
        rows = [row for row in rows if "numerics" in row]
        self.assertEqual([row["kernel"] for row in rows], list(KERNELS))
        words = {"Block1x128": "block_1x128", "Block128x128": "block_128x128"}
        cast = lambda each: Cast(
            each["format"].lower(),
            words.get(each["granularity"], each["granularity"].lower()),
            each["power_of_two"],
        )
        for row in rows:
            for gemm, planned in row["numerics"].items():
                mine = numerics(row["kernel"], gemm)
                self.assertEqual((mine.a, mine.b), (cast(planned["a"]), cast(planned["b"])), (row["kernel"], gemm))
                self.assertEqual(mine.fast, planned["accumulation"] == "Fast", (row["kernel"], gemm))
                self.assertEqual(mine.output, planned["output"].lower(), (row["kernel"], gemm))


class WhyNot(unittest.TestCase):
    def ask(self, kernel, gemm="fprop", k=256, n=384, device="cpu", emulate=False):
        return why_not(kernel, gemm, k, n, torch.device(device), emulate)

    def test_reasons(self):
        self.assertIsNone(self.ask("cublaslt/bf16"))
        self.assertIsNone(self.ask("pytorch/bf16", k=7, n=5))
        self.assertIsNone(self.ask("cublaslt/fp8-rowwise", emulate=True))
        self.assertEqual(
            self.ask("cublaslt/fp8-rowwise"),
            "cublaslt/fp8-rowwise needs a CUDA GPU with FP8: there is none here; emulate=True runs its numerics slowly",
        )
        self.assertIn("needs a CUDA GPU with TF32", self.ask("cublaslt/tf32"))
        self.assertIn("unknown kernel 'cublaslt/fp7'", self.ask("cublaslt/fp7"))
        self.assertIn("needs a CUDA GPU with FP8", self.ask("loka/fp8-rowwise"))
        self.assertIn("n = 384 is not a multiple of 256", self.ask("loka/fp8-block+fast", emulate=True))
        self.assertIn("both operands transposed", self.ask("loka/fp8-static+fast", "wgrad", emulate=True))
        self.assertIsNone(self.ask("loka/fp8-static+fast", emulate=True))
        self.assertIsNone(self.ask("loka/fp8-rowwise", emulate=True))
        self.assertIsNone(self.ask("cublaslt/fp8-rowwise", k=429, n=1677, emulate=True))
        self.assertEqual(
            self.ask("cublaslt/fp8-rowwise", n=15, emulate=True), "cublaslt/fp8-rowwise fprop: n = 15 is less than 16"
        )
        self.assertEqual(
            self.ask("torchao/rowwise", k=200, emulate=True), "torchao/rowwise fprop: k = 200 is not a multiple of 16"
        )
        self.assertEqual(
            self.ask("deepgemm/blockwise", "dgrad", n=192, emulate=True),
            "deepgemm/blockwise dgrad: n = 192 is not a multiple of 128",
        )
        # Its last block is filled up.
        self.assertIsNone(self.ask("te/blockwise", "dgrad", n=192, emulate=True))
        self.assertEqual(
            self.ask("te/blockwise", "wgrad", n=200, emulate=True), "te/blockwise wgrad: n = 200 is not a multiple of 16"
        )
        self.assertIsNone(self.ask("torchao/rowwise_with_gw_hp", "wgrad", k=7, emulate=True))

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_an_absent_gpu_is_the_reason_of_every_fp8_kernel(self):
        for kernel in KERNELS:
            if not kernel.endswith("bf16"):
                self.assertTrue(self.ask(kernel, device="cuda"), kernel)


if __name__ == "__main__":
    unittest.main()
