"""Two linears that read the same, whose results are multiplied, by scales that are known beforehand: in training they run as one. By
emulation on a CPU."""

import copy
import pathlib
import pickle
import sys
import unittest
from functools import partial
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from test_apply_blocks import batch
from test_apply_handed import BF16, DELAYED, WIDTHS, Feeds, Holds, Planned
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from triton_support import interpreted, needs_triton

import loka
from loka.kernels import gated, handed, passes
from loka.kernels.delayed import Notes, codes, largest
from loka.plans import handing
from loka.plans.following import following
from loka.plans.straight import Fork, steps_of
from loka.plans.tails import gate_of

INTERPRETED = """
import torch
from loka.kernels import delayed, gated, handed, triton_gated
torch.manual_seed(0)
for at, name in enumerate(gated._PLACES[1:]):
    for rows, cols, bias, other in ((48, 128, None, "linear"), (80, 48, torch.randn(48), "linear"), (16, 192, torch.randn(192), "relu")):
        z, other_z, dh = torch.randn(rows, cols).bfloat16() * 3, torch.randn(rows, cols).bfloat16(), torch.randn(rows, cols).bfloat16() * 1e-4
        scale, small, other_small = torch.tensor([2.0**-2]), torch.tensor([2.0**-17]), torch.tensor([2.0**-16])
        other_bias = None if bias is None else bias * 0.5
        keep, by = (torch.rand(rows, cols) < 0.5, 2.0) if rows > 16 else (None, 1.0)
        dropout, places = 1 - 1 / by, (at + 1, gated._PLACES.index(other))
        first, second = gated.Half(z, bias, name), gated.Half(other_z, other_bias, other)
        packed, most = triton_gated.output(z, bias, other_z, other_bias, keep, 1 / scale, *places, by)
        exact, maxima = gated.output(first, second, 1 / scale, keep, dropout)
        seen = [torch.rand(count) for count in (2000, 5)]
        amaxes = [torch.zeros(1) for _ in range(5)]
        notes = delayed.Notes(amaxes[0], [(seen[0], amaxes[1]), (seen[1], amaxes[2])]), delayed.Notes(amaxes[3], [(seen[0], amaxes[4])])
        halves = z, bias, other_z, other_bias, keep
        made = triton_gated.gradient(dh, *halves, 1 / small, 1 / other_small, *places, True, by)
        noted = triton_gated.gradient(dh, *halves, 1 / small, 1 / other_small, *places, True, by, *notes)
        wanted = gated.gradient(dh, first, second, small, 1 / small, other_small, 1 / other_small, True, keep, dropout)
        assert noted[2] is None and noted[5] is None and [float(amax) for amax in amaxes] == [
            float(made[2].max()), float(seen[0].max()), float(seen[1].max()), float(made[5].max()), float(seen[0].max())
        ]
        for ours, theirs, most, maxima in (
            ([one.bits for one in handed.taken(packed.view(z.dtype), scale)], [one.bits for one in handed.taken(exact, scale)], most, maxima),
            (made[:2], [one.bits for one in wanted[0][:2]], made[2], wanted[0].maxima),
            (made[3:5], [one.bits for one in wanted[1][:2]], made[5], wanted[1].maxima),
        ):
            assert torch.equal(*(one.contiguous().view(torch.uint8) for one in (ours[0].t(), ours[1])))
            # It cuts BF16 off where a GPU rounds, and casts to FP8 otherwise than one does, here and there.
            assert float((ours[0].float() == theirs[0].float()).float().mean()) > 0.85, (name, other)
            assert abs(float(most.max()) - float(maxima.max())) <= 0.03 * float(maxima.max())
        for ours, theirs in zip(made[6].sum(1), wanted):
            assert float((ours - theirs.sums).norm()) <= 0.05 * float(theirs.sums.norm()), (name, other)
print("as defined")
"""

ACTIVATIONS = {
    "linear": lambda x: x, "sigmoid": torch.sigmoid, "hard_swish": F.hardswish, "relu": F.relu, "swish": F.silu, "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}  # fmt: skip


class Codes(unittest.TestCase):
    def test_they_are_those_of_the_steps_apart(self):
        """Against PyTorch's own activations and product, and all gradients by autograd."""
        scale, small, other_small = torch.tensor([2.0**-4]), torch.tensor([2.0**-20]), torch.tensor([2.0**-18])
        self.assertEqual(set(ACTIVATIONS), gated.GATES)
        for name, act in ACTIVATIONS.items():
            for other, bias, keep in (("linear", None, None), ("linear", torch.randn(96), torch.rand(48, 96) < 0.5), ("sigmoid", torch.randn(96), None)):
                with self.subTest(name, other=other, biased=bias is not None):
                    z, other_z = torch.randn(48, 96).bfloat16() * 3, torch.randn(48, 96).bfloat16()
                    dh, dropout = torch.randn(48, 96).bfloat16() * 1e-4, 0.0 if keep is None else 0.5
                    y, other_y = ((each if bias is None else each + bias.bfloat16()).requires_grad_() for each in (z, other_z))
                    h = act(y) * ACTIVATIONS[other](other_y)
                    h = h if keep is None else h * keep * 2.0
                    exact = torch.autograd.grad(h, (y, other_y), dh)
                    first, second = gated.Half(z, bias, name), gated.Half(other_z, bias, other)
                    self.assertTrue(torch.equal(gated.joined(first, second, keep, dropout), h))
                    packed, maxima = gated.output(first, second, 1 / scale, keep, dropout)
                    made = gated.gradient(dh, first, second, small, 1 / small, other_small, 1 / other_small, True, keep, dropout)
                    for wanted, by, (straight, turned), most in (
                        (h.detach(), scale, handed.taken(packed, scale), maxima),
                        (exact[0], small, made[0][:2], made[0].maxima), (exact[1], other_small, made[1][:2], made[1].maxima),
                    ):  # fmt: skip
                        bits = codes(wanted, 1 / by, "e4m3").view(torch.uint8)
                        self.assertTrue(torch.equal(straight.bits.view(torch.uint8), bits))
                        self.assertTrue(torch.equal(turned.bits.view(torch.uint8), bits.t()))
                        self.assertTrue(torch.equal(most, largest(wanted)) and torch.equal(straight.scale, by))
                    for one, wanted in zip(made, exact):
                        torch.testing.assert_close(one.sums, wanted.float().sum(0), rtol=1e-5, atol=1e-9)
                    amaxes = [torch.zeros(1) for _ in range(3)]
                    notes = Notes(amaxes[0], [(maxima, amaxes[1])]), Notes(amaxes[2], [])
                    again = gated.gradient(dh, first, second, small, 1 / small, small, 1 / small, False, keep, dropout, *notes)
                    self.assertEqual([one.maxima for one in again] + [one.sums for one in again], [None] * 4)
                    self.assertEqual([float(amax) for amax in amaxes], [float(each.detach().abs().max()) for each in (exact[0], h, exact[1])])

    @needs_triton
    def test_the_kernels_make_the_same(self):
        interpreted(self, INTERPRETED, "as defined")


class SwiGlu(nn.Module):
    def __init__(self, bias=True, act=nn.Identity, width=WIDTHS[0], hidden=WIDTHS[1]):
        super().__init__()
        self.w1, self.w3, self.w2 = (nn.Linear(*sizes, bias=bias) for sizes in ((width, hidden), (width, hidden), (hidden, width)))
        self.drop, self.act = nn.Dropout(0.5), act()

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Dropped(SwiGlu):
    """Behind the product and behind what reads it."""

    def forward(self, x):
        return self.drop(self.w2(self.drop(self.w3(x) * F.gelu(self.w1(x)))))


class Sigmoid(SwiGlu):
    def forward(self, x):
        gate = self.w1(x)
        up = self.w3(x)
        gate = torch.sigmoid(gate)
        return self.w2(up * gate)


class Bilinear(SwiGlu):
    def forward(self, x):
        return self.w2(self.w1(x) * self.w3(x))


class Module(SwiGlu):
    def forward(self, x):
        return self.w2(self.act(self.w1(x)) * self.w3(x))


class Method(Feeds, SwiGlu):
    def feed(self, x):
        return self.drop(self.w2(F.silu(self.w1(x)) * self.w3(x)))


class Twice(SwiGlu):
    """One linear on both sides."""

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w1(x)) + 0.0 * self.w3(x).sum()


class Shared(SwiGlu):
    def __init__(self):
        super().__init__()
        self.w3 = self.w1


class DroppedBefore(SwiGlu):
    def forward(self, x):
        return self.w2(self.drop(F.silu(self.w1(x))) * self.w3(x))


class Residual(SwiGlu):
    def forward(self, x):
        return x + self.w2(F.silu(self.w1(x)) * self.w3(x))


def stacked():
    """Within and before other linears."""
    return nn.Sequential(nn.Linear(64, 64), nn.SiLU(), SwiGlu(), nn.ReLU(), Dropped(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))


class Gated(Planned):
    def ran(self, model, rows=64, grad=True):
        """Of each fork that runs as one in a forward of the model as it stands, what `gate_of` says of it and whether it gives codes."""
        model, found, run = copy.deepcopy(model), [], handing.gated_linear

        def seen(x, first, second, emulate, stretch, dropout, gives):
            found.append((f"{first.activation} * {second.activation}", dropout, gives is not None))
            return run(x, first, second, emulate, stretch, dropout, gives)

        with mock.patch.object(handing, "gated_linear", seen), torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(grad):
            model(torch.randn(rows, WIDTHS[0]).to(next(model.parameters()).dtype))
        return found

    def ran_as(self, block, wanted, **options):
        model = self.same(lambda: Holds(block), **options)
        self.assertEqual(self.ran(model), wanted)
        return model

    def scales(self, model):
        linears = [module for module in model.modules() if isinstance(module, loka.plans.LokaLinear)]
        return [[float(scale.scale) for scale in module._loka_scales] for module in linears if module._loka_scales[0] is not None]


ONE = [("swish * linear", 0.0, True)]


class Training(Gated):
    def test_it_trains_as_it_does_apart(self):
        for block, wanted in (
            (SwiGlu, ONE), (Dropped, [("linear * gelu", 0.5, True)]), (Sigmoid, [("sigmoid * linear", 0.0, True)]),
            (Bilinear, [("linear * linear", 0.0, True)]), (partial(SwiGlu, bias=False), ONE), (Method, ONE),
            (lambda: nn.Sequential(SwiGlu(), SwiGlu(), nn.Linear(WIDTHS[0], WIDTHS[-1])), ONE * 2),
        ):  # fmt: skip
            with self.subTest(block):
                self.ran_as(block, wanted)

    def test_modules_as_activations(self):
        for name, act in {
            "relu": nn.ReLU, "swish": nn.SiLU, "gelu": nn.GELU, "gelu_tanh": lambda: nn.GELU(approximate="tanh"), "hard_swish": nn.Hardswish,
            "sigmoid": nn.Sigmoid, "linear": nn.Identity,
        }.items():  # fmt: skip
            with self.subTest(name):
                self.ran_as(lambda: Module(act=act), [(f"{name} * linear", 0.0, True)], steps=2)

    def test_scales_follow_as_they_do_apart(self):
        """Both sites of the shared x, too."""
        for make in (lambda: Holds(SwiGlu), lambda: Holds(Dropped)):
            models = [self.plain(make()), self.plain(make(), together=False)]
            for model in models:
                torch.manual_seed(3)
                self.train(model, 5)
            scales = [self.scales(model) for model in models]
            self.assertEqual(*scales)
            self.assertEqual(len(scales[0]), 3)
            self.assertTrue(all(scale > 0 for of_one in scales[0] for scale in of_one))
            # What they follow is exactly that, not its power of two alone.
            for one, other in zip(*(following(model)._histories for model in models)):
                torch.testing.assert_close(one.decaying, other.decaying, rtol=1e-3, atol=0)

    def test_x_is_cast_once(self):
        """By the first one's scale; both note how large it was."""
        model = self.plain(Holds(SwiGlu))
        self.train(model)
        first, second = (module._loka_scales[0] for module in (model.block.w1, model.block.w3))
        with mock.patch.object(passes, "by_known_scale", side_effect=passes.by_known_scale) as cast, torch.autocast("cpu", torch.bfloat16):
            loss = model(batch(seed=5)).float().square().mean()
            self.assertEqual(cast.call_count, 1)
            second.scale.mul_(64)
            second.inverse.div_(64)
            self.assertEqual(float(model(batch(seed=5)).float().square().mean()), float(loss))
        self.assertEqual([float(scale.amax) for scale in (first, second)], [0.0, 0.0])
        with torch.autocast("cpu", torch.bfloat16):
            model(batch(seed=5)).float().square().mean().backward()
        wanted = float(batch(seed=5).bfloat16().abs().max())
        self.assertEqual([float(scale.amax) for scale in (first, second)], [wanted, wanted])

    def test_it_is_as_far_from_bf16(self):
        truth = self.train(Holds(SwiGlu))
        together, apart = (self.train(self.plain(Holds(SwiGlu), each)) for each in (True, False))
        for (exact, wanted), (loss, ours), (_, theirs) in zip(truth, together, apart):
            self.assertAlmostEqual(loss, exact, delta=0.02)
            for one, two, three in zip(wanted, ours, theirs):
                self.assertLess(float((two - one).norm()), 1.15 * float((three - one).norm()) + 0.01 * float(one.norm()))

    def test_compiled(self):
        """As far from BF16 as it is eager, by both compilers."""
        for block in (SwiGlu, Sigmoid):
            truth = self.train(Holds(block))
            eager = self.train(self.plain(Holds(block)))
            for backend in ("inductor", "aot_eager"):
                torch._dynamo.reset()
                wrap = lambda model: torch.compile(model, fullgraph=True, backend=backend)
                for (_, wanted), (_, one), (_, other) in zip(truth, eager, self.train(self.plain(Holds(block)), wrap=wrap)):
                    for exact, mine, its in zip(wanted, one, other):
                        self.assertLess(float((its - exact).norm()), 1.15 * float((mine - exact).norm()) + 0.01 * float(exact.norm()))

    def test_compiled_with_dropouts(self):
        wrap = lambda model: torch.compile(model, fullgraph=True)
        for block in (Dropped, Method):
            losses = [loss for loss, _ in self.train(self.plain(Holds(block)), 5, wrap=wrap)]
            self.assertTrue(all(0.5 < loss < 0.9 for loss in losses), losses)

    def test_mixed_plans(self):
        """Whose reader, or whose fprops, run in BF16; x has codes for its wgrads alone then."""
        for only, wanted in (({"block.w1", "block.w3"}, [("swish * linear", 0.0, False)]), ({"block.w1", "block.w2"}, [])):
            found = []
            for together in (True, False):
                model = self.plain(Holds(SwiGlu), together, only=only)
                found.append(self.train(model))
                self.assertEqual(self.ran(model), wanted if together else [])
            self.near(*found)
        self.ran_as(SwiGlu, [("swish * linear", 0.0, False)], kernels=(BF16, DELAYED, DELAYED))
        self.ran_as(SwiGlu, [], kernels=(DELAYED, BF16, DELAYED))

    def near(self, together, apart):
        for (loss, ours), (other, theirs) in zip(together, apart):
            self.assertAlmostEqual(loss, other, delta=1e-3)
            for one, two in zip(ours, theirs):
                self.assertLessEqual(float((one - two).norm()), 0.02 * float(two.norm()))

    def test_within_longer_rows(self):
        model = self.ran_as(stacked, [("swish * linear", 0.0, True), ("linear * gelu", 0.5, True)], apart_by=0.03)
        self.assertEqual({key for module in model.modules() for key in vars(module).get("_loka_links", ())}, {"forward"})

    def test_frozen_biases_and_inputs(self):
        def make():
            model = Holds(SwiGlu)
            model.block.w1.bias.requires_grad_(False)
            return model

        model = self.plain(make())
        for step in range(3):
            with torch.autocast("cpu", torch.bfloat16):
                model(batch(seed=step).requires_grad_(step == 2)).float().square().mean().backward()
            self.assertEqual([parameter.grad is None for parameter in model.block.parameters()], [False, True] + [False] * 4)
            torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1).step()
        self.assertEqual(self.ran(model), ONE)

    def test_gradients_of_x_are_added_in_its_own_type(self):
        found = []
        for together in (True, False):
            model = self.plain(Holds(SwiGlu), together)
            self.train(model)
            x = batch(seed=7).requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                model(x).float().square().mean().backward()
            found.append(x.grad)
        self.assertEqual(found[0].dtype, torch.float32)
        self.assertTrue(torch.equal(*found))

    def test_bf16_parameters(self):
        model = self.plain(Holds(SwiGlu).bfloat16())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(batch(seed=step).bfloat16()).float().square().mean().backward()
            self.assertEqual({parameter.grad.dtype for parameter in model.parameters()}, {torch.bfloat16})
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(self.ran(model), ONE)

    def test_checkpoints_and_accumulation(self):
        class Saves(Holds):
            def forward(self, x):
                return self.head(checkpoint(self.block, x, use_reentrant=False)).squeeze(-1)

        self.near(self.train(self.plain(Holds(SwiGlu))), self.train(self.plain(Saves(SwiGlu))))
        found = []
        for together in (True, False):
            model = self.plain(Holds(SwiGlu), together)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(6):
                with torch.autocast("cpu", torch.bfloat16):
                    model(batch(seed=step)).float().square().mean().backward()
                if step % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            found.append(([parameter.detach() for parameter in model.parameters()], self.scales(model)))
        self.assertEqual(found[0][1], found[1][1])
        for one, other in zip(found[0][0], found[1][0]):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


class Apart(Gated):
    def setUp(self):
        super().setUp()
        self.model = self.plain(Holds(lambda: Module(act=nn.SiLU)))
        self.assertEqual(self.ran(self.model), [])
        self.train(self.model)
        self.assertEqual(self.ran(self.model), ONE)

    def test_hooks(self):
        block, seen = self.model.block, []
        for module, which in ((block.w1, "Linear"), (block.w3, "Linear"), (block.act, "SiLU"), (block.w2, "Linear")):
            handle = module.register_forward_hook(lambda module, inputs, output: seen.append(output))
            self.assertEqual(self.ran(self.model), [("swish * linear", 0.0, False)] if module is block.w2 else [])
            for site in ("block.w1", "block.w3"):
                self.assertIn(f"not now: {which} has hooks", self.note(self.model, site))
            seen.clear()
            self.train(self.model, 1)
            self.assertEqual(len(seen), 1)
            handle.remove()
            self.assertEqual(self.ran(self.model), ONE)
        handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
        self.assertEqual(self.ran(self.model), [])
        handle.remove()

    def test_what_is_not_training(self):
        self.assertEqual((self.ran(self.model, 63), self.ran(self.model, grad=False)), ([], []))
        self.model.eval()
        self.assertEqual(self.ran(self.model), [])
        apart = copy.deepcopy(self.model)
        vars(apart.block).pop("_loka_links")
        with torch.autocast("cpu", torch.bfloat16):
            self.assertTrue(torch.equal(self.model(batch()), apart(batch())))
        self.model.train()
        self.model.block.w3.weight.requires_grad_(False)
        self.assertEqual(self.ran(self.model), [])
        self.train(self.model, 0)

    def test_what_was_changed(self):
        self.model.block.act = nn.Tanh()
        self.assertEqual(self.ran(self.model), [])
        self.assertIn("not now: what follows it was changed", self.note(self.model, "block.w3"))
        self.train(self.model, 1)
        self.model.block.act = nn.ReLU()
        self.assertEqual(self.ran(self.model), [("relu * linear", 0.0, True)])
        self.model.block.w3.__dict__["_loka_kernels"] = (DELAYED, BF16, DELAYED)
        self.assertEqual(self.ran(self.model), [])
        self.train(self.model, 1)
        self.assertIn("by another kernel", handing.why_apart([nn.Tanh(), nn.ReLU()]))
        self.model.block.w3 = nn.Linear(WIDTHS[0], WIDTHS[1])
        self.assertEqual(self.ran(self.model), [])
        self.train(self.model, 1)

    def test_steps_that_are_recorded_or_checked(self):
        none = mock.patch.object(handing, "gated_linear", side_effect=AssertionError)
        with none, loka.Recorder(self.model, out=self.folder, every=1):
            self.train(self.model, 1)
        self.assertEqual(self.ran(self.model), ONE)
        self.model.block.w3._loka_watch.switch.active = True
        with none, torch.autocast("cpu", torch.bfloat16):
            self.model(batch())
        told = loka.compare(self.model, lambda: F.binary_cross_entropy_with_logits(self.model(batch()), torch.ones(64)))
        self.assertTrue(all(row.apart < 0.3 for row in told.rows), str(told))

    def test_copies_and_back(self):
        keys, model = list(Holds(SwiGlu).state_dict()), self.plain(Holds(SwiGlu))
        self.train(model)
        for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model):
            self.assertEqual((self.ran(made), list(made.state_dict()), isinstance(made.block, SwiGlu)), (ONE, keys, True))
            loka.unapply(made)
            self.assertEqual((type(made.block), type(made.block.w1), list(made.state_dict())), (SwiGlu, nn.Linear, keys))
            self.assertFalse(any(key.startswith("_loka") for module in made.modules() for key in vars(module)))
            self.train(made, 1)

    def test_kernels_that_give_something_else_are_not_used(self):
        with mock.patch.object(handing, "gate_sound", lambda *_: False), self.assertWarns(UserWarning) as warned:
            self.assertFalse(handing._is_sound(handing.Gate("swish", "linear", 0.0), nn.Linear(16, 16)))
        self.assertIn("LoKA's kernels for swish * linear are not used on cpu", str(warned.warning))
        self.assertTrue(gated.sound("swish", "linear", torch.device("cpu")))

    def test_what_does_not_fit(self):
        # As kernels have no broadcasting.
        self.assertIsNone(gate_of(Fork((nn.Linear(64, 1),), (nn.Linear(64, 128),)), []))
        for block in (Twice, Shared, DroppedBefore, Residual):
            with self.subTest(block.__name__):
                self.ran_as(block, [], steps=2)


class Shapes(unittest.TestCase):
    def test_which_forwards_fork(self):
        known = {"torch": torch, "F": F}

        def steps(source):
            found = dict(known)
            exec(f"def forward(self, x{source}", found)
            return steps_of(type("Made", (SwiGlu,), {"forward": found["forward"]})())

        fork = Fork(("w1", F.silu), ("w3",))
        for source, wanted in {
            "): return self.w2(F.silu(self.w1(x)) * self.w3(x))": (fork, "w2"),
            "): return self.drop(self.w2(self.drop(self.w3(x) * self.act(self.w1(x)))))": (Fork(("w3",), ("w1", "act")), "drop", "w2", "drop"),
            "):\n g = self.w1(x)\n u = self.w3(x)\n return self.w2(u * F.silu(g))": (fork, "w2"),
            "):\n x = self.act(x)\n x = F.silu(self.w1(x)) * self.w3(x)\n return x": ("act", fork),
            "):\n h = self.w1(x)\n h *= torch.sigmoid(self.w3(x))\n return h": (Fork(("w1",), ("w3", torch.sigmoid)),),
            "):\n x = self.w1(x) * self.w3(x)\n return self.w1(x) * self.w3(x)": (Fork(("w1",), ("w3",)),) * 2,
        }.items():  # fmt: skip
            self.assertEqual(steps(source), wanted, source)
        for source in (
            "): return self.w1(x) * x", "): return x * F.silu(x)", "): return 2 * self.w1(x)", "): return self.w1(x) * 2", "): return self.w1(x) + self.w3(x)",
            "):\n h = self.w1(x)\n return F.silu(h) * h", "): return self.w1(x) * self.w3(self.w2(x))", "): return self.drop(F.silu(self.w1(x))) * self.w3(x)",
            "): return self.w2(self.w1(x) * self.w3(x)) * self.w3(x)", "):\n h = self.w1(x) * self.w3(x)\n return self.w2(h) * h",
            "):\n h = self.w1(x)\n g = self.w3(x)\n p = h * g\n return self.w2(g)", "):\n h = self.w1(x) * self.w3(x)\n return h * h",
            "): return self.w1(x) * self.w3(x), x", "): return self.drop(x) * self.w3(x)", "): return (self.w1(x) * self.w3(x)) * self.w1(x)",
        ):  # fmt: skip
            self.assertIsNone(steps(source), source)


if __name__ == "__main__":
    unittest.main()
