"""FP8 at widths that are no multiples of 16: what it gives is what a linear gives whose x and weight are padded with zeros by
hand, to the bit; kept codes, plans, tails behind linears and frozen models, too. By emulation on a CPU."""

import copy
import itertools
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from torch import nn
from torch.nn import functional as F

import loka
from loka.kernels import Scale, WeightCache, bf16_linear, linear, short_of, weight_casts
from loka.plans.frozen import FrozenLinear
from ranker import forged

BF16, DELAYED = "cublaslt/bf16", "cublaslt/fp8-delayed+fast"
TRIPLES = (
    ("cublaslt/fp8-rowwise+fast",) * 3,
    ("cublaslt/fp8-tensorwise",) * 3,
    (DELAYED,) * 3,
    ("loka/fp8-static+fast", "loka/fp8-rowwise", BF16),
    (BF16, "cublaslt/fp8-rowwise", BF16),
    (BF16, BF16, "cublaslt/fp8-delayed"),
)
SIZES = ((37, 53), (48, 53), (37, 64))


def padded(x, short, dim=-1):
    return torch.cat([x, x.new_zeros(*x.shape[:dim], short)], dim) if dim == -1 else torch.cat([x, x.new_zeros(short, *x.shape[1:])], 0)


class Linear(unittest.TestCase):
    def test_which_kernels_pad(self):
        rowwise = "cublaslt/fp8-rowwise"
        for kernels, n, k, wanted in (
            ((rowwise, BF16, BF16), 1677, 429, (3, 3)),
            ((BF16, rowwise, BF16), 48, 429, (0, 3)),
            # wgrad stores any number of rows.
            ((BF16, BF16, rowwise), 1, 48, (0, 0)),
            ((BF16, BF16, rowwise), 1, 429, (0, 3)),
            ((BF16, BF16, rowwise), 333, 429, (3, 3)),
            # BF16's want multiples of 8, where that is worth it.
            ((BF16, BF16, BF16), 1677, 429, (3, 3)),
            ((BF16, BF16, BF16), 1048, 1044, (0, 4)),
            ((BF16, BF16, BF16), 53, 37, (0, 0)),
            ((BF16, BF16, BF16), 1, 429, (0, 0)),
            (("te/current",) * 3, 1677, 429, (0, 0)),
            (("pytorch/fp8-blockwise", BF16, BF16), 1677, 429, (0, 0)),
            (("loka/fp8-block+fast", BF16, BF16), 512, 429, (0, 0)),
        ):
            self.assertEqual(short_of(kernels, n, k), wanted, kernels)

    def test_it_is_what_a_linear_padded_by_hand_is(self):
        for kernels, (k, n), compiled in itertools.product(TRIPLES, SIZES, (False, True)):
            with self.subTest(kernels=kernels, k=k, n=n, compiled=compiled):
                torch.manual_seed(0)
                torch._dynamo.reset()
                short_n, short_k = short_of(kernels, n, k)
                x, w, b, dy = torch.randn(3, 16, k), torch.randn(n, k), torch.randn(n), torch.randn(3, 16, n).bfloat16()
                # What no kernel pads is padded here by nothing.
                theirs = [padded(x, short_k), padded(padded(w, short_k), short_n, 0), padded(b, short_n)]
                ours = [x.clone(), w.clone(), b.clone()]
                found = []
                for (x, w, b), dy in ((ours, dy), (theirs, padded(dy, short_n))):
                    for part in (x, w, b):
                        part.requires_grad_()
                    scales = tuple(Scale.of(2.0**-5, torch.device("cpu")) for _ in range(2))
                    run = lambda x, w, b, s=scales: linear(x, w, b, kernels, True, s, True)
                    run = torch.compile(run, backend="aot_eager") if compiled and w.shape == (n, k) else run
                    with torch.autocast("cpu", torch.bfloat16):
                        y = run(x, w, b)
                    y.backward(dy)
                    found.append((y.detach(), x.grad, w.grad, b.grad))
                y, dx, dw, db = found[0]
                self.assertTrue(y.is_contiguous() and dw.is_contiguous())
                wanted = found[1][0][..., :n], found[1][1][..., :k], found[1][2][:n, :k], found[1][3][:n]
                for name, one, other in zip(("y", "dx", "dw", "db"), (y, dx, dw, db), wanted):
                    self.assertEqual(one.dtype, other.dtype)
                    self.assertTrue(torch.equal(one, other), name)
                self.assertFalse(found[1][0][..., n:].any() or found[1][1][..., k:].any() or found[1][2][n:].any())

    def test_the_weight_gradient_of_one_output_is_no_wider(self):
        torch.manual_seed(0)
        x, w = torch.randn(32, 37, requires_grad=True), torch.randn(1, 37, requires_grad=True)
        y = linear(x.bfloat16(), w.bfloat16(), None, (BF16, BF16, "cublaslt/fp8-rowwise"), True)
        y.backward(torch.ones_like(y))
        exact = x.detach().sum(0, keepdim=True)
        self.assertLess(float((w.grad - exact).norm() / exact.norm()), 0.06)

    def test_bf16_is_padded_too(self):
        torch.manual_seed(0)
        for (k, n), wide in itertools.product(((429, 537), (432, 537), (429, 512)), (False, True)):
            x, w, b = torch.randn(2, 8, k), torch.randn(n, k), torch.randn(n)
            dy, found = torch.randn(2, 8, n), []
            for run in (F.linear, bf16_linear, torch.compile(bf16_linear, backend="aot_eager")):
                parts = [part.to(torch.float32 if wide else torch.bfloat16).requires_grad_() for part in (x, w, b)]
                with torch.autocast("cpu", torch.bfloat16, enabled=wide):
                    y = run(*parts)
                y.backward(dy.to(y.dtype))
                self.assertTrue(y.is_contiguous())
                found.append((y.detach(), *(part.grad for part in parts)))
            for ours in found[1:]:
                for one, other in zip(ours, found[0]):
                    self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
                    self.assertLess(float((one - other).float().norm() / other.float().norm()), 0.004)
        # Under torch.compile alone, unless it is large.
        graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        layer = nn.Linear(429, 537, dtype=torch.bfloat16)
        torch.compile(lambda x: bf16_linear(x, layer.weight, layer.bias), backend=graphs)(torch.zeros(8, 429, dtype=torch.bfloat16))
        self.assertTrue(any("pad" in str(node.target) for node in graphs.graphs[0].graph.nodes))
        # In FP32 nothing is.
        x, w = torch.randn(8, 429), torch.randn(537, 429)
        self.assertTrue(torch.equal(bf16_linear(x, w, None), F.linear(x, w)))

    def test_x_of_another_width_is_said_so(self):
        with self.assertRaisesRegex(RuntimeError, "x has 36 features and weight takes 37"):
            linear(torch.zeros(16, 36), torch.zeros(53, 37), None, TRIPLES[0], True)

    def test_no_rows(self):
        x, w = torch.zeros(0, 37, requires_grad=True), torch.ones(53, 37, requires_grad=True)
        y = linear(x, w, None, TRIPLES[0], True)
        y.sum().backward()
        self.assertEqual((tuple(y.shape), tuple(x.grad.shape), float(w.grad.abs().sum())), ((0, 53), (0, 37), 0.0))

    def test_kept_codes_are_padded_and_current(self):
        torch.manual_seed(0)
        for kernels, dtype in itertools.product(TRIPLES[:3], (torch.float32, torch.bfloat16)):
            weight = torch.randn(53, 37, dtype=dtype)
            wanted = weight_casts(kernels, True)
            cache = WeightCache([weight], [wanted])
            cache.refresh()
            codes = cache.codes[0]
            self.assertEqual((tuple(codes.for_fprop.bits.shape), tuple(codes.for_dgrad.bits.shape)), ((64, 48), (48, 64)))
            self.assertFalse(codes.for_fprop.bits.float()[53:].any() or codes.for_fprop.bits.float()[:, 37:].any())
            self.assertEqual(cache.differing(), [])
            x = torch.randn(16, 37).bfloat16().requires_grad_()
            outputs = []
            for of in (None, codes):
                with torch.autocast("cpu", torch.bfloat16):
                    y = linear(x, weight.clone().requires_grad_(), None, kernels, True, settled=False, codes=of)
                outputs += [y, *torch.autograd.grad(y, x, torch.ones_like(y))]
            self.assertTrue(torch.equal(outputs[0], outputs[2]) and torch.equal(outputs[1], outputs[3]), kernels)


class Model(nn.Module):
    def __init__(self, features=37, inner=53):
        super().__init__()
        torch.manual_seed(0)
        self.cross = nn.Linear(features, features)
        self.tower = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, inner), nn.ReLU(), nn.Linear(inner, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        return self.head(self.tower(x * self.cross(x) + x)).squeeze(-1)


class Plan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def applied(self, model, kernels, **options):
        def change(plan):
            first, plan["sites"] = plan["sites"][0], []
            for site, module in model.named_modules():
                if isinstance(module, nn.Linear):
                    made = copy.deepcopy(first)
                    made.update(site=site, k=module.in_features, n=module.out_features)
                    for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels):
                        made[gemm].update(kernel=BF16 if module.out_features == 1 else kernel, static_scale=2.0**-5)
                    plan["sites"].append(made)
            plan["mods"] = {}

        return loka.apply(model, forged(self.folder, change), emulate=True, on_slow_host="warn", **options)

    def train(self, model, steps=4, run=None):
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        for step in range(steps):
            x = torch.randn(64, model.cross.in_features, generator=torch.Generator().manual_seed(step))
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.binary_cross_entropy_with_logits((model if run is None else run)(x).float(), (x[:, 0] > 0).float())
            loss.backward()
            losses.append(float(loss))
            optimizer.step()
            optimizer.zero_grad()
        return losses

    def test_a_model_of_odd_widths_trains_by_a_plan(self):
        wanted = self.train(Model())
        for kernels, compiled in itertools.product((TRIPLES[0], TRIPLES[2]), (False, True)):
            torch._dynamo.reset()
            model = Model()
            resolved = self.applied(model, kernels)
            in_fp8 = [row.site for row in resolved.rows if row.kernels and kernels[0] in row.kernels]
            self.assertEqual(len(in_fp8), 4, resolved)
            # From 37 and from 53 features, into 64 and 32; what gives 53 runs apart.
            links = {at: to for of in vars(model.tower).get("_loka_links", {}).values() for at, to in of.items()}
            self.assertEqual(links, {0: 2, 4: 6} if kernels[0] == DELAYED else {})
            run = torch.compile(model, backend="aot_eager") if compiled else None
            for ours, exact in zip(self.train(model, run=run), wanted):
                self.assertAlmostEqual(ours, exact, delta=0.02)
            loka.unapply(model)
            self.assertEqual(type(model.cross), nn.Linear)

    def test_what_stays_in_bf16_is_padded_where_it_is_large(self):
        model = Model(429, 300)
        resolved = self.applied(model, (BF16,) * 3)
        rows = {row.site: row for row in resolved.rows}
        self.assertEqual(rows["cross"].kernels, (BF16,) * 3)
        self.assertIn("padded to 432 x 432", rows["cross"].note)
        self.assertIsNone(rows["head"].kernels)
        self.assertIsNone(rows["tower.2"].kernels)
        self.assertEqual(resolved.num_fp8, 0)
        plain = Model(429, 300)
        for ours, exact in zip(self.train(model), self.train(plain)):
            self.assertAlmostEqual(ours, exact, delta=2e-3)
        loka.unapply(model)
        self.assertTrue(all(type(module) is nn.Linear for module in model.modules() if isinstance(module, nn.Linear)))

    def test_frozen_it_gives_what_it_gave(self):
        for kernels, save in itertools.product((TRIPLES[0], TRIPLES[1], TRIPLES[2], TRIPLES[3]), (False, True)):
            model = Model()
            self.applied(model, kernels)
            self.train(model, 2)
            model.eval()
            x = torch.randn(24, 37, generator=torch.Generator().manual_seed(9))
            with torch.no_grad():
                before = model(x)
                loka.freeze(model, save_codes=save)
                self.assertIsInstance(model.tower[2], FrozenLinear)
                self.assertTrue(torch.equal(before, model(x)), kernels)
                if save:
                    model.load_state_dict(copy.deepcopy(model.state_dict()))
                    self.assertTrue(torch.equal(before, model(x)), kernels)


if __name__ == "__main__":
    unittest.main()
