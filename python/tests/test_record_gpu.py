"""The recorder on a CUDA device: Triton passes against FP64, no wait for the device, CUDA graphs, mixed precision."""

import pathlib
import tempfile
import unittest

from record_support import batch, loss_of, read, small_model

import torch

import loka as package
from loka.record.options import Options
from loka.record.site import SiteStats


@unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
class Gpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def assert_close(self, found, expected, tolerance, scale=None):
        expected = expected.double()
        scale = float(expected.abs().max()) if scale is None else float(scale)
        self.assertLess(float((found.double() - expected).abs().max()) / scale, tolerance)

    def check_moments(self, dtype, k, n, tolerance, **options):
        settings = Options(rows=512, quantile_every=1, **options)
        stats = SiteStats("site", None, settings)
        scale = torch.tensor([0.5], device="cuda")
        torch.manual_seed(0)
        mixing = torch.randn(8, k, device="cuda")
        inputs, grads = [], []
        for index, size in enumerate((1500, 700, 3, 1)):
            x = torch.randn(size, 8, device="cuda") @ mixing + torch.linspace(0, 50, k, device="cuda")
            x, grad = x.to(dtype), (torch.randn(size, n, device="cuda") * 1e-4).to(dtype)
            stats.add(x, grad, index, scale)
            stride = max(size // 512, 1)
            some = slice(index % stride, None, stride)
            inputs.append(x[some][:512].double())
            grads.append(grad[some][:512].double() * size / 0.5)
        bad = x.expand(9, k).clone()
        bad[4, 1] = torch.nan
        stats.add(bad, torch.zeros(9, n, device="cuda", dtype=dtype), 4, scale)
        for moments, rows in ((stats.input, torch.cat(inputs)), (stats.grad, torch.cat(grads))):
            centred = rows - rows.mean(0)
            self.assertEqual(moments.counters[:2].tolist(), [len(rows), 1.0])
            # Rows are FP32: a mean near zero is known to that of their spread.
            self.assert_close(moments.mean, rows.mean(0), 1e-7, rows.std())
            self.assert_close(moments.square, centred.square().sum(0), 1e-6)
            exact = centred.T @ centred
            expected = exact if moments.omega is None else exact @ moments.omega.double()
            self.assert_close(moments.scatter, expected, tolerance)
        self.assertEqual(int(stats.input.hist[81]), 1)
        if stats.cross is not None:
            rows, others = torch.cat(grads), torch.cat(inputs)
            self.assert_close(stats.cross, (rows - rows.mean(0)).T @ (others - others.mean(0)), tolerance)

    def test_moments(self):
        before = torch.get_float32_matmul_precision()
        # TF32 allowed for the run must not reach the statistics.
        torch.set_float32_matmul_precision("high")
        self.addCleanup(torch.set_float32_matmul_precision, before)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            with self.subTest(dtype=dtype):
                # TF32 would be off by some 1e-3.
                self.check_moments(dtype, 96, 40, 5e-5, cross_cov=True)
                self.check_moments(dtype, 96, 70, 5e-5, limit=64, rank=16)
        self.assertEqual(torch.get_float32_matmul_precision(), "high")

    def run_steps(self, model, call, steps=5, **options):
        recorder = package.Recorder(model, self.out, every=2, name="small", cross_cov=True, **options).attach()
        for step in range(steps):
            x, target = (each.cuda() for each in batch(64, step))
            recorder.loss(loss_of(call(x), target)).backward()
            recorder.step()
        recorder.close()
        self.assertEqual(recorder.warnings, [])
        return read(recorder.path)[1]

    def test_no_step_waits_for_the_device(self):
        model = small_model().cuda()
        recorder = package.Recorder(model, self.out, every=1, name="small", cross_cov=True, limit=9, rank=4).attach()
        batches = [tuple(each.cuda() for each in batch(64, step)) for step in range(6)]
        try:
            for step, (x, target) in enumerate(batches):
                if step == 1:
                    # The first call makes buffers; from here a wait is an error.
                    torch.cuda.set_sync_debug_mode("error")
                recorder.loss(loss_of(model(x), target)).backward()
                recorder.step()
            recorder.save()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        recorder.close()
        self.assertEqual(recorder.warnings, [])
        self.assertEqual(read(recorder.path)[1]["0/input.count"].tolist(), [384])

    def test_a_save_is_of_its_moment(self):
        model = small_model().cuda()
        recorder = package.Recorder(model, self.out, every=1, name="small").attach()
        for step in range(3):
            x, target = (each.cuda() for each in batch(64, step))
            recorder.loss(loss_of(model(x), target)).backward()
            recorder.step()
            if step == 0:
                recorder.save()
                saved = model[0].weight.detach().clone()
                with torch.no_grad():
                    model[0].weight.zero_()
        recorder._writer.wait()
        manifest, tensors = read(recorder.path)
        self.assertEqual(manifest["run"]["step"], 1)
        self.assertTrue(torch.equal(tensors["0/weight"], saved.cpu()))
        self.assertEqual(tensors["0/input.count"].tolist(), [64])
        recorder.detach()

    def test_compiled_with_cuda_graphs(self):
        model = small_model().cuda()
        expected = self.run_steps(model, model)
        twin = small_model().cuda()
        found = self.run_steps(twin, torch.compile(twin, mode="reduce-overhead", fullgraph=True))
        for name, value in expected.items():
            if value.is_floating_point() and "quantiles" not in name:
                self.assertTrue(torch.allclose(found[name].double(), value.double(), rtol=1e-3, atol=1e-5), name)

    def test_a_gradient_scaler_is_taken_out(self):
        model = small_model().cuda()
        expected = self.run_steps(model, model)
        twin = small_model().cuda()
        recorder = package.Recorder(twin, self.out, every=2, name="half", cross_cov=True).attach()
        for step in range(5):
            x, target = (each.cuda() for each in batch(64, step))
            with torch.autocast("cuda", torch.float16):
                loss = loss_of(twin(x), target)
            (recorder.loss(loss) * 1024).backward()
            recorder.step()
        recorder.close()
        manifest, tensors = read(recorder.path)
        self.assertEqual(manifest["sites"][0]["dtype"], "f16")
        self.assertEqual(tensors["0/input.mean"].tolist(), expected["0/input.mean"].tolist())
        norm = torch.linalg.matrix_norm(expected["3/grad_output.cov"])
        difference = tensors["3/grad_output.cov"] - expected["3/grad_output.cov"]
        self.assertLess(float(torch.linalg.matrix_norm(difference) / norm), 0.02)


class Kernels(unittest.TestCase):
    def test_every_kernel_compiles_for_hopper_without_a_gpu(self):
        try:
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource, compile
        except ImportError:
            self.skipTest("no Triton")
        from loka.record import columns_triton as kernels

        sizes = {"rows": "i32", "cols": "i32", "count": "i32", "stride_row": "i32"}
        exact = {"counters": "*fp64", "mean": "*fp64", "square": "*fp64", "hist": "*i64", "bits": "*i32"}
        rest = {"factor": "*fp32", "finite": "*i1", "z": "*fp32", "correction": "*fp32", "seen": "*fp32"}
        blocks = {"stride_col": 1, "BLOCK_ROWS": 32, "BLOCK_COLS": 128, "STRIP": 32}
        for values in ("*bf16", "*fp32"):
            for kernel, data in (("_scan", "values"), ("_histogram", "rows"), ("_shifted", "rows"), ("_finish", "")):
                function = getattr(kernels, kernel)
                known = {**sizes, **exact, **rest, data: values}
                signature = {name: known.get(name, "constexpr") for name in function.arg_names}
                constants = {name: blocks[name] for name in function.arg_names if name in blocks}
                compiled = compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", 90, 32))
                self.assertIn("cubin", compiled.asm, kernel)


if __name__ == "__main__":
    unittest.main()
