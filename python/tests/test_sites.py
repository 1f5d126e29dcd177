"""Times of whole sites on a CPU, by emulated kernels: that the protocol and every runtime run, not what they take."""

import json
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

PYTHON = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))

from loka.worker import protocol
from loka.worker.protocol import BadRequest

BF16 = "cublaslt/bf16"
FAST = "cublaslt/fp8-rowwise+fast"


class Requests(unittest.TestCase):
    def test_triples_are_three_kernels_each(self):
        self.assertEqual(protocol.triples_of({"triples": [[FAST, BF16, BF16]]}), [[FAST, BF16, BF16]])
        for wrong in (None, [], [[]], [[FAST, BF16]], [[FAST, BF16, 3]], "x", [[FAST, BF16, ""]]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(BadRequest, "three kernels each"):
                protocol.triples_of({"triples": wrong})


class Timing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            import torch
        except ImportError:
            raise unittest.SkipTest("skipped: no PyTorch") from None
        cls.torch = torch

    def times(self, runtime, *triples):
        from loka.worker.sites import time_sites

        request = {"m": 32, "k": 32, "n": 16, "runtime": runtime, "triples": list(triples), "samples": 3, "l2_bytes": 1}
        return time_sites(self.torch, {**request, "target_us": 1}, emulate=True)["rows"]

    def test_what_was_compiled_before_is_what_is_timed(self):
        from loka.worker import sites

        request = {"m": 32, "k": 32, "n": 16, "runtime": "graph", "samples": 3, "l2_bytes": 1, "target_us": 1}
        triples = [(FAST, FAST, FAST), ("a/b", BF16, BF16)]
        asked = {**request, "triples": triples}
        self.assertEqual(sites.compile_sites(self.torch, asked, emulate=True), {})
        with mock.patch.object(sites, "_compiled", side_effect=AssertionError("it is there")):
            rows = sites.time_sites(self.torch, asked, emulate=True)["rows"]
        self.assertEqual(len(rows[0]["site_us"]), 3)
        self.assertIn("unknown kernel 'a/b'", rows[1]["reason"])

    def test_a_training_step_and_one_that_fails(self):
        rows = self.times("launched", (FAST, FAST, FAST), (BF16, "loka/fp8-block+fast", BF16), ("a/b", BF16, BF16))
        self.assertEqual(rows[0]["kernels"], [FAST, FAST, FAST])
        for name in ("site_us", "bf16_us"):
            self.assertEqual(len(rows[0][name]), 3)
            self.assertTrue(all(us > 0 for us in rows[0][name]))
        # Of a graph's samples and of those of a step that is launched, which on a CPU are one.
        self.assertEqual((rows[0]["launch_us"], rows[0]["bf16_launch_us"]), (0.0, 0.0))
        self.assertNotIn("site_us", rows[1])
        self.assertIn("loka/fp8-block+fast", rows[1]["reason"])
        self.assertIn("unknown kernel 'a/b'", rows[2]["reason"])

    def test_inference_is_forward_alone(self):
        rows = self.times("inference", (FAST, BF16, BF16), (BF16, FAST, BF16))
        self.assertEqual(len(rows[0]["site_us"]), 3)
        self.assertEqual(rows[1]["reason"], "inference runs no dgrad: its kernel is cublaslt/bf16")

    def test_a_block_is_timed_with_what_is_inside_of_it(self):
        from loka.worker import sites

        block = "loka/fp8-block+fast"
        request = {"m": 32, "k": 32, "n": 256, "samples": 3, "l2_bytes": 1, "target_us": 1}
        asked = {**request, "runtime": "inference", "triples": [(block, BF16, BF16)]}
        (row,) = sites.time_sites(self.torch, asked, emulate=True)["rows"]
        self.assertEqual([len(row[name]) for name in ("site_us", "codes_us", "bf16_us")], [3, 3, 3], row)
        (row,) = sites.time_sites(self.torch, {**asked, "runtime": "graph"}, emulate=True)["rows"]
        self.assertIn("in inference alone", row["reason"])

    def test_a_block_s_three_ways_give_the_same(self):
        from loka.kernels.scales import to_fp8
        from loka.worker import sites

        torch, shape = self.torch, (32, 32, 512)
        x = torch.randn(32, 32, dtype=torch.bfloat16)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            apart, fused, handing_on = (
                sites._fused_model(torch, shape, torch.device("cpu"), how, True)(x) for how in (None, False, True)
            )
        self.assertEqual(handing_on.dtype, torch.float8_e4m3fn)
        same = (fused.view(torch.uint8) == handing_on.view(torch.uint8)).float().mean()
        # Rounded to BF16 first, or not.
        self.assertGreater(float(same), 0.95)
        scale = torch.full((1,), sites.STATIC_SCALE)
        error = (handing_on.float() * scale - apart.float()).norm() / apart.float().norm()
        cast = (to_fp8(apart, scale, "e4m3").float() * scale - apart.float()).norm() / apart.float().norm()
        self.assertLess(float(error), 2.5 * float(cast))

    def test_what_is_routed_is_what_runs(self):
        from loka.plans.linear import LokaLinear
        from loka.worker import sites

        device = self.torch.device("cpu")
        model = sites._model(self.torch, (32, 32, 16), device, (FAST, BF16, "loka/fp8-rowwise+fast"), True)
        self.assertIsInstance(model.linear, LokaLinear)
        self.assertEqual(model.linear._loka_kernels, (FAST, BF16, "loka/fp8-rowwise+fast"))
        self.assertEqual(model.linear.weight.dtype, self.torch.float32)
        plain = sites._model(self.torch, (32, 32, 16), device, (BF16, BF16, BF16), True)
        self.assertNotIsInstance(plain.linear, LokaLinear)

    def test_unknown_runtimes_are_refused(self):
        with self.assertRaisesRegex(BadRequest, "unknown runtime 'eager'"):
            self.times("eager", (FAST, BF16, BF16))


class Worker(unittest.TestCase):
    def test_without_a_gpu_it_says_so_in_a_line(self):
        request = {"id": 1, "do": "sites", "m": 16, "k": 16, "n": 16, "runtime": "launched", "samples": 3, "l2_bytes": 1}
        line = json.dumps({**request, "target_us": 1, "triples": [[BF16, BF16, BF16]]}) + "\n"
        command = [sys.executable, "-m", "loka.worker"]
        done = subprocess.run(command, input=line.encode(), capture_output=True, cwd=PYTHON, timeout=300)
        answer = json.loads(done.stdout)
        if not answer["ok"]:
            self.assertRegex(answer["reason"], "PyTorch")


if __name__ == "__main__":
    unittest.main()
