"""catalogue.json, which Rust writes (`loka kernels --catalogue`), against the Python catalogue, entry by entry."""

import json
import pathlib
import sys
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))

CARRIED = json.loads((PYTHON / "loka" / "kernels" / "catalogue.json").read_text())
GEMMS = ("fprop", "dgrad", "wgrad")


class Catalogue(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            import torch  # noqa: F401
        except ImportError:
            raise unittest.SkipTest("skipped: no PyTorch") from None
        # Beyond the try: what has moved is a failure, and no reason to skip.
        from loka import catalogue
        from loka.kernels import available, padding

        cls.available, cls.catalogue, cls.padding = available, catalogue, padding

    def test_both_know_the_same_kernels(self):
        self.assertEqual(sorted(CARRIED["kernels"]), sorted(self.catalogue.KERNELS))

    def test_numerics_and_sizes_are_the_same(self):
        for kernel, entry in CARRIED["kernels"].items():
            for gemm in GEMMS:
                with self.subTest(kernel=kernel, gemm=gemm):
                    found, carried = self.catalogue.numerics(kernel, gemm), entry["gemms"][gemm]
                    for operand in ("a", "b"):
                        self.assertEqual(getattr(found, operand)._asdict(), carried[operand])
                    self.assertEqual((found.fast, found.output), (carried["fast"], carried["output"]))
                    self.assertEqual(self.catalogue.multiple_of(kernel, gemm), carried["multiple_of"])
                    self.assertEqual(self.padding.pads(kernel, gemm), carried["pads"])

    def test_widths_are_padded_by_one_rule(self):
        bf16 = {"multiple_of": self.padding.BF16_MULTIPLE, "elements": self.padding.LARGE}
        self.assertEqual(CARRIED["padding"], {"narrowest": self.padding.NARROWEST, "bf16": bf16})

    def test_apply_runs_what_the_catalogue_says_it_runs(self):
        """By emulation: what a GPU or a library lacks is no matter of the catalogue."""
        for kernel, entry in CARRIED["kernels"].items():
            for runtime in ("launched", "graph"):
                for gemm, reason in entry["runtimes"][runtime]["not_applied"].items():
                    with self.subTest(kernel=kernel, gemm=gemm, runtime=runtime):
                        found = self.available.why_not(kernel, gemm, 1024, 1024, "cpu", True)
                        self.assertEqual(found is None, reason is None, f"{found} | {reason}")

    def test_inference_runs_forward_gemms_alone(self):
        for kernel, entry in CARRIED["kernels"].items():
            refused = entry["runtimes"]["inference"]["not_applied"]
            self.assertEqual(refused["fprop"], entry["runtimes"]["graph"]["not_applied"]["fprop"], kernel)
            self.assertTrue(refused["dgrad"] and refused["wgrad"], kernel)


if __name__ == "__main__":
    unittest.main()
