"""Noise shares and loss costs of a model that reads raw counters in front of a norm, predicted against measured. The
products that count there are in rows that no statistics of x alone tell of: with x and dy taken as independent the loss
cost of BF16 is off by 1e5. LOKA_BIN: the binary."""

import os
import tempfile
import unittest
from pathlib import Path

import noise
import torch


@unittest.skipUnless(os.environ.get("LOKA_BIN"), "LOKA_BIN is not set")
class Predicted(unittest.TestCase):
    def test_a_tower_on_raw_counters(self):
        torch.manual_seed(0)
        model, kernels = noise.Tower(), ["cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise", noise.BF16]
        with tempfile.TemporaryDirectory() as folder:
            noise.train(model, 60, 1024, Path(folder))
            trace = next(Path(folder).glob("*.trace.safetensors"))
            found = noise.measured(model, list(noise.batches(3, 1024, 9)), kernels)
            wanted = noise.predicted(os.environ["LOKA_BIN"], trace, 1024, kernels)
        for (site, gemm, kernel), value in found.items():
            predicted, basis = wanted[site, gemm, kernel]
            self.assertEqual(basis, "loss cost" if gemm == "fprop" else "recorded")
            ratio, most = predicted / value, {"fprop": 5.0, "wgrad": 1.5, "dgrad": 3.0}[gemm]
            self.assertTrue(1 / most <= ratio <= most, f"{site} {gemm} {kernel}: {predicted:.3e}, measured {value:.3e}")


if __name__ == "__main__":
    unittest.main()
