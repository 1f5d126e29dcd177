"""DeepGEMM, FBGEMM and Transformer Engine by doubles of the signatures that were recorded where they ran (DeepGEMM 2.6.1,
FBGEMM GenAI 1.6.0, Transformer Engine 2.12.0, PyTorch 2.11): a call that they would not take is a TypeError here, and
the doubles multiply what they are given, so that operands in the wrong place are wrong numbers."""

import contextlib
import inspect
import os
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch._dynamo.testing
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

# Before sys.modules is patched, which would forget them: their ops are registered once a process.
from loka.kernels import libraries
from loka.kernels.linear import linear
from loka.worker import adapters, timing
from loka.worker.protocol import Refused
from loka.worker.adapters import deepgemm, fbgemm, transformer_engine
from loka.worker.adapters import operand_shapes

M, K, N = 256, 128, 384
GEMMS = ("fprop", "dgrad", "wgrad")


def environment():
    found = adapters.Environment.__new__(adapters.Environment)
    found.torch, found.reason, found.capability, found.device_name = torch, None, (9, 0), "a test double"
    return found


def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    return made


def operands(gemm, scale=1.0, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float32).mul(scale).to(dtype) for shape in operand_shapes(gemm, M, K, N)]


def exact(gemm, a, b):
    a, b = a.double(), b.double()
    return {"fprop": lambda: a @ b.t(), "dgrad": lambda: a @ b, "wgrad": lambda: a.t() @ b}[gemm]()


def distance(out, wanted):
    return float((out.double() - wanted).norm() / wanted.norm())


def on_cpu(case):
    """The adapters make buffers on "cuda"; here there is none. What is compiled runs as it is."""
    for name in ("zeros", "randn"):
        real = getattr(torch, name)
        patch = mock.patch.object(torch, name, lambda *a, real=real, **k: real(*a, **{**k, "device": "cpu"}))
        patch.start()
        case.addCleanup(patch.stop)
    patch = mock.patch.object(torch, "compile", lambda function, dynamic: function)
    patch.start()
    case.addCleanup(patch.stop)


def installed(case, **modules):
    patch = mock.patch.dict(sys.modules, {name.replace("__", "."): made for name, made in modules.items()})
    patch.start()
    case.addCleanup(patch.stop)


class DeepGemm(unittest.TestCase):
    def setUp(self):
        on_cpu(self)
        self.calls = []

        def cast(x, block, use_ue8m0):
            assert use_ue8m0 is False and x.dim() == 2 and x.is_contiguous()
            rows, cols = x.shape
            view = x.float().view(rows // block, block, cols // 128, 128)
            amax = view.abs().amax((1, 3)).clamp(1e-4)
            scale = amax / 448.0
            bits = (view / scale[:, None, :, None]).to(torch.float8_e4m3fn).view(rows, cols)
            return bits, scale

        def per_token_cast_to_fp8(x, use_ue8m0, gran_k=128, use_packed_ue8m0=False):
            return cast(x, 1, use_ue8m0)

        def per_block_cast_to_fp8(x, use_ue8m0, gran_k=128):
            return cast(x, 128, use_ue8m0)

        def read(operand):
            bits, scale = operand
            scale = scale.repeat_interleave(128, 1).repeat_interleave(bits.shape[0] // scale.shape[0], 0)
            return bits.float() * scale

        def fp8_gemm_nt(
            a, b, d, c=None, recipe=None, recipe_a=None, recipe_b=None, compiled_dims="nk", disable_ue8m0_cast=False
        ):
            assert disable_ue8m0_cast is True
            self.calls.append((recipe, d.dtype, c is d))
            out = read(a) @ read(b).t()
            if c is not None:
                # 1D1D: 1x128 scales on both sides, and an FP32 output that is added to.
                assert recipe == (1, 1, 128) and c is d and d.dtype == torch.float32
                assert b[1].shape[0] == b[0].shape[0]
                out += d
            d.copy_(out)

        utils = module(
            "deep_gemm.utils", per_token_cast_to_fp8=per_token_cast_to_fp8, per_block_cast_to_fp8=per_block_cast_to_fp8
        )
        aligned = lambda scales: scales
        library = module("deep_gemm", fp8_gemm_nt=fp8_gemm_nt, get_mn_major_tma_aligned_tensor=aligned, utils=utils)
        installed(self, deep_gemm=library, deep_gemm__utils=utils)
        self.adapter = deepgemm.ADAPTER(environment())
        self.assertIsNone(self.adapter.why_not("deepgemm/blockwise"))

    def test_three_gemms(self):
        for gemm in GEMMS:
            a, b = operands(gemm)
            out = self.adapter.run("deepgemm/blockwise", gemm, a, b)
            self.assertLess(distance(out, exact(gemm, a, b)), 0.05, gemm)
            # The weight's gradient is FP32 as the library makes it: an FP32 weight needs no rounding.
            self.assertEqual(out.dtype, torch.float32 if gemm == "wgrad" else torch.bfloat16)

    def test_what_is_timed_is_what_a_bf16_training_does(self):
        for gemm in GEMMS:
            a, b = operands(gemm)
            calls = self.adapter.calls("deepgemm/blockwise", gemm, M, K, N)
            wanted = exact(gemm, a, b)
            self.assertEqual(calls.full(a, b).dtype, torch.bfloat16)
            self.assertLess(distance(calls.full(a, b), wanted), 0.05)
            prepared = calls.prepare_a(a), calls.prepare_b(b)
            self.assertLess(distance(calls.gemm(*prepared), wanted), 0.05)
            self.assertEqual(calls.cached is None, gemm == "wgrad")
            self.assertEqual("memset" in calls.note, gemm == "wgrad")

    def test_a_compiler_sees_the_casts_of_a_linear_that_a_plan_routed(self):
        """The GEMM is the one thing that it does not look into."""
        seen = []

        def look(graph, inputs):
            seen.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
            return make_boxed_func(graph.forward)

        torch.manual_seed(0)
        weight = (torch.randn(N, K) * K**-0.5).to(torch.bfloat16).requires_grad_(True)
        x = torch.randn(M, K).to(torch.bfloat16).requires_grad_(True)
        dy = torch.randn(M, N).to(torch.bfloat16)
        wanted = torch.autograd.grad(torch.nn.functional.linear(x, weight), (x, weight), dy)
        step = lambda a, w: linear(a, w, None, ("deepgemm/blockwise",) * 3)
        with mock.patch.object(libraries, "adapter", lambda library: self.adapter), mock.patch.object(
            torch, "zeros", ZEROS
        ), mock.patch.object(deepgemm.DeepGemm, "_zeros", lambda self, rows, cols: torch.zeros(rows, cols)):
            eager = torch.autograd.grad(step(x, weight), (x, weight), dy)
            compiled = COMPILE(step, backend=aot_autograd(fw_compiler=look))
            found = torch.autograd.grad(compiled(x, weight), (x, weight), dy)
        for one, other, by in zip(found, eager, wanted):
            self.assertTrue(torch.equal(one, other))
            self.assertLess(distance(one, by.double()), 0.06)
        forward, backward = seen
        for graph, gemms in ((forward, 1), (backward, 2)):
            ours = [name for name in graph if name.startswith("loka.")]
            self.assertEqual(ours, ["loka.library_product.default"] * gemms)
            self.assertGreaterEqual(sum("amax" in name for name in graph), 2 * gemms)

    def test_small_gradients_keep_the_library_s_error(self):
        a, b = operands("wgrad", scale=1e-9, dtype=torch.float32)
        lost = distance(self.adapter.run("deepgemm/blockwise", "wgrad", a, b * 1e9), exact("wgrad", a, b * 1e9))
        self.assertGreater(lost, 0.1)

    def test_scales_that_need_too_much_shared_memory(self):
        refuses = lambda gemm, m, k: self.adapter.refuses("deepgemm/blockwise", gemm, m, k, 128)
        self.assertIsNone(refuses("wgrad", 116096, 128))
        self.assertIn("m = 131072 is above 116096", refuses("wgrad", 131072, 128))
        self.assertIsNone(refuses("fprop", 131072, 128))
        self.assertIn("k = 131072", refuses("fprop", 128, 131072))


class Fbgemm(unittest.TestCase):
    def setUp(self):
        on_cpu(self)

        def quantize_fp8_row(
            a, scale_ub=None, zero_start_index_M=None, use_triton=True, output_device=None, align_rows_to=None
        ):
            assert a.is_contiguous()
            scale = a.float().abs().amax(-1) / 448.0
            return (a.float() / scale[:, None]).to(torch.float8_e4m3fn), scale

        def f8f8bf16_rowwise(XQ, WQ, x_scale, w_scale, bias=None, use_fast_accum=True):
            out = (XQ.float() * x_scale[:, None]) @ (WQ.float() * w_scale[:, None]).t()
            return out.to(torch.bfloat16)

        casts = module("fp8_gemm", quantize_fp8_row=quantize_fp8_row)
        installed(
            self, fbgemm_gpu=module("fbgemm_gpu"), fbgemm_gpu__experimental=module("experimental"),
            fbgemm_gpu__experimental__gen_ai=module("gen_ai"), fbgemm_gpu__experimental__gemm=module("gemm"),
            fbgemm_gpu__experimental__gemm__triton_gemm=module("triton_gemm"),
            fbgemm_gpu__experimental__gemm__triton_gemm__fp8_gemm=casts,
        )
        ops = types.SimpleNamespace(fbgemm=types.SimpleNamespace(f8f8bf16_rowwise=f8f8bf16_rowwise))
        found = environment()
        found.torch = types.SimpleNamespace(ops=ops)
        self.adapter = fbgemm.ADAPTER(found)
        self.assertIsNone(self.adapter.why_not("fbgemm/rowwise"))

    def test_three_gemms(self):
        for gemm in GEMMS:
            a, b = operands(gemm)
            calls = self.adapter.calls("fbgemm/rowwise", gemm, M, K, N)
            wanted = exact(gemm, a, b)
            for out in (self.adapter.run("fbgemm/rowwise", gemm, a, b), calls.full(a, b)):
                self.assertLess(distance(out, wanted), 0.05, gemm)
            self.assertLess(distance(calls.gemm(calls.prepare_a(a), calls.prepare_b(b)), wanted), 0.05)
            if gemm != "wgrad":
                self.assertLess(distance(calls.cached(a, calls.prepare_b(b)), wanted), 0.05)

    def test_autotuning_is_said(self):
        note = lambda: self.adapter.calls("fbgemm/rowwise", "fprop", M, K, N).note
        with mock.patch.dict(os.environ):
            os.environ.pop(fbgemm.AUTOTUNE, None)
            self.assertIn("heuristic", note())
            os.environ[fbgemm.AUTOTUNE] = "0"
            # FBGEMM looks whether it is there.
            self.assertIn("autotuned", note())


class _Linear(torch.autograd.Function):
    """Exact products; notes which casts te.Linear would make."""

    @staticmethod
    def forward(ctx, weight, x, layer):
        ctx.save_for_backward(weight, x)
        ctx.layer = layer
        return x @ weight.t()

    @staticmethod
    def backward(ctx, dy):
        weight, x = ctx.saved_tensors
        need_weight, need_x = ctx.needs_input_grad[:2]
        ctx.layer.log.append(f"backward: dx {need_x} dw {need_weight}")
        return dy.t() @ x if need_weight else None, dy @ weight if need_x else None, None


def te_double(log, power_of_two=(False, True), fails=None):
    class Linear(torch.nn.Module):
        def __init__(
            self, in_features, out_features, sequence_parallel=False, fuse_wgrad_accumulation=False, tp_group=None,
            tp_size=1, get_rng_state_tracker=None, rng_tracker_name=None, init_method=None, bias=True,
            return_bias=False, params_dtype=None, parallel_mode=None, parameters_split=None, device="cuda",
        ):
            super().__init__()
            assert not bias and params_dtype == torch.bfloat16, params_dtype
            self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=params_dtype))
            self.log, self.kept = log, None

        def forward(self, inp, is_first_microbatch=None, fp8_output=False, fp8_grad=False):
            assert log.active, "outside autocast"
            assert inp.dtype == torch.bfloat16
            grad = torch.is_grad_enabled()
            x_both, weight_both = grad and self.weight.requires_grad, grad and inp.requires_grad
            if is_first_microbatch is False:
                assert self.kept is not None, "no cast of the weight was kept"
                assert self.kept or not weight_both, "the turned weight was not kept"
            elif is_first_microbatch:
                self.kept = weight_both
            log.append(f"forward: x twice {x_both}, weight {'kept' if is_first_microbatch is False else 'cast'}")
            # As te.Linear: the function itself where no gradient is wanted.
            return _Linear.apply(self.weight, inp, self) if grad else inp @ self.weight.t()

    class Autocast:
        def __init__(self, enabled=True, calibrating=False, recipe=None, amax_reduction_group=None, _graph=False):
            assert enabled and recipe is not None

        def __enter__(self):
            log.active = True

        def __exit__(self, *_):
            log.active = False

    def recipe(power):
        scaled = types.SimpleNamespace(power_2_scale=power, amax_epsilon=0.0)
        return lambda: types.SimpleNamespace(fp8_quant_fwd_inp=scaled)

    recipes = module("recipe", Float8CurrentScaling=recipe(power_of_two[0]), Float8BlockScaling=recipe(power_of_two[1]))
    pytorch = module("pytorch", Linear=Linear, autocast=Autocast)
    return dict(
        transformer_engine=module("transformer_engine"), transformer_engine__pytorch=pytorch,
        transformer_engine__common=module("common"), transformer_engine__common__recipe=recipes,
    )


class Log(list):
    active = False


class TransformerEngine(unittest.TestCase):
    def setUp(self):
        on_cpu(self)
        self.log = Log()
        installed(self, **te_double(self.log))
        self.adapter = transformer_engine.ADAPTER(environment())
        for kernel in self.adapter.kernels:
            self.assertIsNone(self.adapter.why_not(kernel))

    def test_each_gemm_asks_for_itself_alone(self):
        casts = {
            "fprop": ["forward: x twice False, weight cast"],
            "dgrad": ["forward: x twice False, weight cast", "backward: dx True dw False"],
            "wgrad": ["forward: x twice True, weight cast", "backward: dx False dw True"],
        }
        for gemm in GEMMS:
            # FP32 operands, as the core hands them over: the double takes BF16 alone.
            a, b = operands(gemm, dtype=torch.float32)
            self.log.clear()
            with torch.no_grad():
                out = self.adapter.run("te/current", gemm, a, b)
            self.assertEqual(self.log, casts[gemm])
            self.assertLess(distance(out, exact(gemm, a, b)), 0.01)
            self.assertFalse(out.requires_grad)

    def test_what_is_timed(self):
        for kernel in self.adapter.kernels:
            for gemm in GEMMS:
                a, b = operands(gemm)
                with torch.no_grad():
                    calls = self.adapter.calls(kernel, gemm, M, K, N)
                    wanted = exact(gemm, a, b)
                    self.assertLess(distance(calls.full(a, b), wanted), 0.01, (kernel, gemm))
                    self.assertIsNone(calls.gemm)
                    self.assertEqual(calls.before_full is None, gemm == "fprop")
                    if gemm == "wgrad":
                        self.assertIsNone(calls.cached)
                    else:
                        layer = calls.prepare_b(b)
                        self.assertLess(distance(calls.cached(calls.prepare_a(a), layer), wanted), 0.01)
                        self.assertEqual(calls.before_cached is None, gemm == "fprop")
                    for before in (calls.before_full, calls.before_cached):
                        if before is not None:
                            self.log.clear()
                            before(a, layer if before is calls.before_cached else b)
                            # The forward alone: nothing is cast for a gradient, and none is made.
                            self.assertEqual(len(self.log), 1)
                            self.assertIn("x twice False", self.log[0])

    def test_sizes_are_the_library_s(self):
        refuses = lambda gemm, *shape: self.adapter.refuses("te/blockwise", gemm, *shape)
        self.assertIsNone(refuses("fprop", 8, 48, 24))
        self.assertEqual(refuses("fprop", 4, 48, 24), "m = 4 is not a multiple of 8")
        self.assertEqual(refuses("fprop", 8, 40, 24), "k = 40 is not a multiple of 16")
        self.assertEqual(refuses("dgrad", 8, 48, 24), "n = 24 is not a multiple of 16")
        self.assertEqual(refuses("wgrad", 8, 48, 32), "m = 8 is not a multiple of 16")

    def test_a_recipe_that_the_environment_made_another_is_refused_by_its_name(self):
        installed(self, **te_double(self.log, power_of_two=(True, False)))
        adapter = transformer_engine.ADAPTER(environment())
        current, blockwise = (adapter.why_not(kernel) for kernel in ("te/current", "te/blockwise"))
        self.assertIn("NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES makes Float8CurrentScaling's scales powers of two", current)
        self.assertIn("NVTE_FP8_BLOCK_SCALING_FP32_SCALES makes Float8BlockScaling's scales FP32", blockwise)

    def test_in_a_linear_that_a_plan_routed(self):
        """As loka.apply runs it: inside ops that run below autograd, in a backward, launched and compiled."""
        torch.manual_seed(0)
        weight = (torch.randn(N, K) * K**-0.5).to(torch.bfloat16).requires_grad_(True)
        x = torch.randn(M, K).to(torch.bfloat16).requires_grad_(True)
        dy = torch.randn(M, N).to(torch.bfloat16)
        wanted = torch.autograd.grad(torch.nn.functional.linear(x, weight), (x, weight), dy)
        step = lambda a, w: linear(a, w, None, ("te/current", "te/blockwise", "te/current"))
        with mock.patch.object(libraries, "adapter", lambda library: self.adapter), mock.patch.object(
            torch, "zeros", ZEROS
        ):
            for run in (step, COMPILE(step, backend="aot_eager")):
                y = run(x, weight)
                for found, by in zip(torch.autograd.grad(y, (x, weight), dy), wanted):
                    self.assertLess(distance(found, by.double()), 0.01)


ZEROS, COMPILE = torch.zeros, torch.compile


class Compiled(unittest.TestCase):
    def test_rows_that_cast_alike_compile_once(self):
        made = []
        found = environment()
        found.torch = types.SimpleNamespace(compile=lambda function, dynamic: made.append(function) or function)
        adapter = adapters.Adapter(found)
        functions = [adapter.compile(lambda x: x + 1, "cast", shape) for shape in ((1, 2), (3, 4), (1, 2))]
        self.assertEqual(len(made), 2)
        self.assertIs(functions[0], functions[2])
        # Dynamo counts by code object, and gives up at the ninth shape of one.
        self.assertIsNot(functions[0].__code__, functions[1].__code__)
        self.assertEqual(functions[1](1), 2)

    def test_code_of_its_own_keeps_what_it_closes_over(self):
        turn = 3

        def cast(x, by=2, *, more=1):
            return x * turn + by + more

        again = adapters.of_its_own(cast)
        self.assertEqual(again(1), 6)
        self.assertEqual(inspect.signature(again), inspect.signature(cast))

    def test_more_than_eight_shapes_stay_compiled(self):
        adapter = adapters.Adapter(environment())
        counter = torch._dynamo.testing.CompileCounter()
        with mock.patch.object(torch, "compile", lambda function, dynamic: COMPILE(function, dynamic=dynamic, backend=counter)):
            for size in range(1, 13):
                cast = adapter.compile(lambda x: x + 1, size)
                for _ in range(2):
                    cast(torch.zeros(size, 2))
        self.assertEqual(counter.frame_count, 12)


class WhatComesBefore(unittest.TestCase):
    def test_it_is_taken_off_sample_by_sample(self):
        self.assertEqual(timing._less([5.0, 6.0], [2.0, 4.0]), [3.0, 2.0])
        with self.assertRaisesRegex(Refused, "no longer than what comes before"):
            timing._less([5.0, 4.0], [2.0, 4.0])

    def test_a_launched_sequence_is_not_held_against_a_captured_one(self):
        launched, captured = (timing.Stage(torch, name, None, []) for name in ("cached", "before cached"))
        captured.graph, launched.eager_reason = object(), "it syncs"
        with self.assertRaisesRegex(Refused, "it syncs"):
            timing._alike(launched, captured)
        timing._alike(captured, captured)


class Remedies(unittest.TestCase):
    def test_each_library_says_how_it_is_had(self):
        found = environment()
        for adapter in (deepgemm.ADAPTER(found), fbgemm.ADAPTER(found), transformer_engine.ADAPTER(found)):
            with mock.patch("importlib.import_module", side_effect=OSError("libcublasLt.so.13: undefined symbol")):
                self.assertIn("does not load", adapter.why_not(adapter.kernels[0]))
            self.assertTrue(adapter.remedy_of(adapter.kernels[0]))
        self.assertIn("2.12.0", transformer_engine.ADAPTER.remedy)

    def test_nothing_to_get_where_the_library_is_there(self):
        log = Log()
        installed(self, **te_double(log, power_of_two=(True, False)))
        adapter = transformer_engine.ADAPTER(environment())
        self.assertIsNotNone(adapter.why_not("te/current"))
        self.assertIsNone(adapter.remedy_of("te/current"))


if __name__ == "__main__":
    unittest.main()
