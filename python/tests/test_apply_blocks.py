"""A plan with `loka/fp8-block+fast`: linear, BlockNorm and hard swish as one, by emulation on a CPU; what stays apart."""

import copy
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import torch
from torch import nn
from torch.nn import functional as F

import loka
from loka.kernels import native_ops
from loka.catalogue import numerics
from loka.kernels.delayed import Scale
from loka.kernels.emulate import multiply
from loka.plans import LokaLinear, PlanError
from loka.plans.frozen import FrozenLinear

BLOCK, STATIC, BF16 = "loka/fp8-block+fast", "loka/fp8-static+fast", "cublaslt/bf16"
DELAYED = "cublaslt/fp8-delayed+fast"
SIZES = {"mlp.0": (64, 256), "mlp.3": (256, 512), "mlp.6": (512, 256), "head": (256, 1)}
MODS = ["block_norm", "hard_swish", "no_bias"]


class Model(nn.Module):
    """Three blocks and a head."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        parts = []
        for k, n in list(SIZES.values())[:3]:
            parts += [nn.Linear(k, n), nn.LayerNorm(n), nn.SiLU()]
        self.mlp = nn.Sequential(*parts)
        self.head = nn.Linear(256, 1)

    def forward(self, x):
        return self.head(self.mlp(x)).squeeze(-1)


def modded(seed=0):
    model = Model(seed)
    loka.mods.apply(model, MODS)
    return model


def batch(rows=64, seed=1):
    return torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))


def gradients(model, x):
    model.zero_grad()
    y = model(x)
    F.binary_cross_entropy_with_logits(y, (x[:, 0] > 0).float()).backward()
    return [y.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


class Blocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def plan(self, sizes=SIZES, dgrad=BF16, wgrad=BF16, chains=None, edit=None, mods=MODS):
        """Blocks at all sites with n of a multiple of 256, the rest in BF16."""

        def change(plan):
            first = plan["sites"][0]
            plan["sites"] = []
            for site, (k, n) in sizes.items():
                made = copy.deepcopy(first)
                made.update(site=site, k=k, n=n)
                is_block = n % 256 == 0
                for gemm, kernel in (("fprop", BLOCK), ("dgrad", dgrad), ("wgrad", wgrad)):
                    made[gemm]["kernel"] = kernel if is_block else BF16
                if is_block:
                    made["fprop"].update(static_scale=2.0**-6 if site == "mlp.0" else 2.0**-4)
                if chains and site in chains:
                    made["chain"] = chains[site]
                plan["sites"].append(made)
            plan["mods"] = {site: list(mods) for site in sizes if site != "head"} if mods else {}
            if edit:
                edit(plan)

        return ranker.forged(self.folder, change)

    def applied(self, model=None, **options):
        model = modded() if model is None else model
        found = loka.apply(model, self.plan(**options), emulate=True)
        return model, found

    def notes(self, model):
        return {row.site: row.note for row in loka.resolved(model).rows}

    def is_fused(self, model, x=None):
        """Site -> whether BlockNorm and hard swish hand on what they get."""
        seen = {}
        for name, module in model.named_modules():
            if isinstance(module, LokaLinear) and module._loka_block is not None:
                seen[name] = module._loka_block.is_fused()
        return seen


class Compared(Blocks):
    def test_against_bf16_and_back(self):
        """`loka.compare` runs the blocks apart in BF16, and they are as they were afterwards."""
        model, _ = self.applied()
        x = batch()
        truth, found = gradients(modded(), x), gradients(model, x)
        model.zero_grad()
        told = loka.compare(model, lambda: F.binary_cross_entropy_with_logits(model(x), (x[:, 0] > 0).float()))
        expected = {name: (mine, other) for (name, _), mine, other in zip(model.named_parameters(), found[1:], truth[1:])}
        self.assertEqual(len(told.rows), len(expected))
        for row in told.rows:
            mine, other = expected[row.parameter]
            self.assertAlmostEqual(row.apart, float((mine - other).norm() / other.norm()), delta=1e-5)
        for one, other in zip(gradients(model, x), found):
            self.assertTrue(torch.equal(one, other))


class Frozen(Blocks):
    def test_blocks_and_chains_give_what_they_gave(self):
        for chains in (None, CHAINS):
            with self.subTest(chains=bool(chains)), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                model, _ = self.applied(chains=chains)
                before = model.eval()(batch())
                loka.freeze(model)
                self.assertTrue(all(model.mlp[at]._loka_codes is not None for at in (0, 3, 6)))
                self.assertTrue(torch.equal(model(batch()), before))
                loka.unapply(model)
                self.assertFalse(torch.equal(model(batch()), before))


class Training(Blocks):
    def test_the_linear_gives_the_blocks_output(self):
        model, found = self.applied()
        self.assertEqual([row.kernels and row.kernels[0] for row in found.rows], [BLOCK] * 3 + [None])
        self.assertEqual([row.note for row in found.rows[:3]], [""] * 3)
        x, first = batch(), model.mlp[0]
        scale = Scale.of(2.0**-6, torch.device("cpu"))
        z = multiply(x, first.weight, numerics(BLOCK, "fprop"), scale)
        expected = native_ops.block_output(z).bfloat16().float()
        self.assertTrue(torch.equal(model.mlp[:3](x), expected))
        # Rounded once: BlockNorm and hard swish in their own modules round twice.
        self.assertEqual(loka.saturated(model)["mlp.0"]["fprop"], 0)

    def test_gradients_are_those_of_the_planned_kernels(self):
        """Against autograd through the same values: dz in BF16, dgrad and wgrad by the plan."""
        mixed = ("cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise")
        for dgrad, wgrad in ((BF16, BF16), ("loka/fp8-rowwise+fast", BF16), mixed):
            model, _ = self.applied(dgrad=dgrad, wgrad=wgrad)
            site = model.mlp[3]
            x = (torch.randn(64, 256) * 2).requires_grad_()
            dh = torch.randn(64, 512)
            h = site(x)
            dx, dw = torch.autograd.grad(h, (x, site.weight), dh)
            scale = Scale.of(2.0**-4, torch.device("cpu"))
            z = multiply(x.detach(), site.weight, numerics(BLOCK, "fprop"), scale).bfloat16().detach().requires_grad_()
            groups = z.float().view(64, 2, 256)
            y = (groups * torch.rsqrt(groups.square().mean(2, keepdim=True) + 2.0**-23)).view(64, 512)
            (dz,) = torch.autograd.grad(F.hardswish(y), z, dh.bfloat16().float())
            plain = nn.Linear(256, 512, bias=False)
            plain.weight.data.copy_(site.weight.data)
            other = x.detach().clone().requires_grad_()
            out = loka.kernels.linear(other, plain.weight, None, (BF16, dgrad, wgrad), True)
            for ours, exact in zip((dx, dw), torch.autograd.grad(out, (other, plain.weight), dz.float())):
                self.assertLess(float((ours - exact).norm() / exact.norm()), 4e-3, (dgrad, wgrad))

    def test_the_kernels_are_what_is_emulated(self):
        """The ops as a GPU's path calls them, with dgrad from the codes that the block's backward makes."""
        x, weight, dh = torch.randn(64, 96), torch.randn(512, 96) * 0.1, torch.randn(64, 512)
        x, weight, bias = (each.bfloat16().requires_grad_() for each in (x, weight, torch.randn(512)))
        found = []
        for emulate in (True, False):
            known = (Scale.of(2.0**-6, torch.device("cpu")), None)
            kernels = (BLOCK, "loka/fp8-rowwise+fast", "loka/fp8-rowwise+fast")
            h = loka.kernels.linear(x, weight, bias, kernels, emulate, known)
            found.append((h, *torch.autograd.grad(h, (x, weight, bias), dh.bfloat16())))
        for one, other in zip(*found):
            self.assertEqual(one.dtype, other.dtype)
            self.assertLess(float((one - other).detach().float().norm() / one.detach().float().norm()), 2e-3)

    def test_a_bias_is_inside_and_has_its_gradient(self):
        model = Model()
        loka.mods.apply(model, ["block_norm", "hard_swish"])
        reference = copy.deepcopy(model)
        loka.apply(model, self.plan(mods=MODS[:2]), emulate=True)
        self.assertEqual(self.is_fused(model), {"mlp.0": True, "mlp.3": True, "mlp.6": True})
        x = batch()
        for ours, exact in zip(gradients(model, x), gradients(reference, x)):
            self.assertLess(float((ours - exact).norm() / exact.norm()), 0.2)

    def test_it_trains_as_bf16_does(self):
        losses = {}
        for arm in ("bf16", "fp8"):
            model = modded()
            if arm == "fp8":
                loka.apply(model, self.plan(dgrad=STATIC, wgrad="cublaslt/fp8-rowwise"), emulate=True)
            optimizer = torch.optim.Adam(model.parameters(), 2e-3)
            seen = []
            for step in range(25):
                x = batch(64, seed=step)
                with torch.autocast("cpu", torch.bfloat16):
                    loss = F.binary_cross_entropy_with_logits(model(x).float(), (x[:, 0] + x[:, 1] > 0).float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen.append(float(loss.detach()))
            losses[arm] = sum(seen[-8:]) / 8
        self.assertLess(losses["bf16"], 0.5)
        self.assertLess(abs(losses["fp8"] - losses["bf16"]), 0.03)

    def test_compiled_it_is_the_same(self):
        found = []
        for wrap in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager", fullgraph=True)):
            model, _ = self.applied(dgrad="loka/fp8-rowwise+fast")
            found.append(gradients(wrap(model), batch()))
        for eager, compiled in zip(*found):
            self.assertTrue(torch.equal(eager, compiled))

    def test_parameters_names_and_files_stay(self):
        model = modded()
        before = {name: parameter for name, parameter in model.named_parameters()}
        keys, names = list(model.state_dict()), [name for name, _ in model.named_modules()]
        modules, kinds = list(model.modules()), [type(module) for module in model.modules()]
        text = repr(model.mlp[1])
        plain = model(batch())
        loka.apply(model, self.plan(), emulate=True)
        self.assertEqual(list(model.state_dict()), keys)
        self.assertEqual([name for name, _ in model.named_modules()], names)
        self.assertTrue(all(one is other for one, other in zip(model.modules(), modules)))
        self.assertTrue(all(parameter is before[name] for name, parameter in model.named_parameters()))
        self.assertEqual(repr(model.mlp[1]), text)
        self.assertFalse(torch.equal(model(batch()), plain))
        loka.unapply(model)
        self.assertEqual([type(module) for module in model.modules()], kinds)
        self.assertFalse(any(key.startswith("_loka") for module in model.modules() for key in vars(module)))
        self.assertTrue(torch.equal(model(batch()), plain))

    def test_copies_and_files_are_blocks_too(self):
        model, _ = self.applied()
        expected = model(batch())
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False), copy.deepcopy(copy.deepcopy(model))):
            self.assertTrue(torch.equal(other(batch()), expected))
            self.assertEqual(set(self.is_fused(other).values()), {True})
            self.assertIs(other.mlp[0]._loka_block.norm, other.mlp[1])
            loka.unapply(other)
            self.assertIs(type(other.mlp[0]), nn.Linear)
        self.assertEqual(set(self.is_fused(model).values()), {True})

    def test_a_copy_of_one_module_does_what_it_does_alone(self):
        model, _ = self.applied()
        alone = copy.deepcopy(model.mlp[0])
        x = batch()
        self.assertLess(float((alone(x) - F.linear(x, model.mlp[0].weight)).norm() / alone(x).norm()), 0.05)
        norm = copy.deepcopy(model.mlp[1])
        self.assertFalse(torch.equal(norm(alone(x)), alone(x)))


class Apart(Blocks):
    """What runs unfused, and that it is right then."""

    def unfused(self, model, plan, site, reason):
        """The model's result where that site's linear runs by static scales and its tail by its modules."""
        found = loka.apply(model, plan, emulate=True)
        row = next(row for row in found.rows if row.site == site)
        self.assertEqual(row.kernels[0], STATIC)
        self.assertIn(reason, row.note)
        self.assertIn("not one kernel with what follows", row.note)
        return model

    def test_a_hook_sees_what_it_saw(self):
        places = (
            ("linear", lambda model, see: model.mlp[0].register_forward_hook(lambda m, i, o: see(o))),
            ("BlockNorm", lambda model, see: model.mlp[1].register_forward_pre_hook(lambda m, i: see(i[0]))),
            ("BlockNorm", lambda model, see: model.mlp[1].register_forward_hook(lambda m, i, o: see(i[0]))),
            ("hard swish", lambda model, see: model.mlp[2].register_forward_pre_hook(lambda m, i: see(i[0]))),
            ("linear", lambda model, see: model.mlp[0].register_full_backward_hook(lambda m, gi, go: see(go[0]))),
        )
        for when in ("before", "after"):
            for index, (what, register) in enumerate(places):
                with self.subTest(when=when, place=index):
                    model, seen = modded(), []
                    if when == "before":
                        handle = register(model, seen.append)
                    loka.apply(model, self.plan(), emulate=True)
                    fused = None
                    if when == "after":
                        fused = model(batch())
                        handle = register(model, seen.append)
                    self.assertEqual(self.is_fused(model), {"mlp.0": False, "mlp.3": True, "mlp.6": True})
                    self.assertIn(f"a hook on its {what} reads what is in between", self.notes(model)["mlp.0"])
                    y = model(batch().requires_grad_())
                    y.sum().backward()
                    z = F.linear(batch(), model.mlp[0].weight)
                    if index < 3:
                        self.assertLess(float((seen[0] - z).norm().detach() / z.norm().detach()), 0.05)
                    if index == 3:
                        self.assertLess(float(seen[0].detach().abs().max()), 16.1)
                        self.assertLess(float(seen[0].detach().min()), -1)
                    handle.remove()
                    self.assertEqual(self.is_fused(model)["mlp.0"], True)
                    self.assertEqual(self.notes(model)["mlp.0"], "")
                    if fused is not None:
                        self.assertTrue(torch.equal(model(batch()), fused))

    def test_hooks_at_its_ends_are_no_matter(self):
        model, seen = modded(), []
        model.mlp[0].register_forward_pre_hook(lambda m, i: seen.append(i[0]))
        model.mlp[2].register_forward_hook(lambda m, i, o: seen.append(o))
        loka.apply(model, self.plan(), emulate=True)
        self.assertEqual(set(self.is_fused(model).values()), {True})
        x = batch()
        model(x)
        self.assertIs(seen[0], x)
        self.assertTrue(torch.equal(seen[1], model.mlp[0](x)))

    def test_a_hook_on_a_compiled_model(self):
        model, seen = modded(), []
        model.mlp[1].register_forward_hook(lambda m, i, o: seen.append(1))
        loka.apply(model, self.plan(), emulate=True)
        eager = model(batch())
        compiled = torch.compile(model, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(batch()), eager))

    def test_another_reader_keeps_it_apart(self):
        class Two(Model):
            def forward(self, x):
                z = self.mlp[0](x)
                h = self.mlp[2](self.mlp[1](z))
                return self.head(self.mlp[3:](h)).squeeze(-1) + z.sum(1)

        model = Two()
        loka.mods.apply(model, MODS)
        self.unfused(model, self.plan(), "mlp.0", "its output is read by 2")

    def test_an_attribute_keeps_it_apart(self):
        class Keeps(Model):
            def forward(self, x):
                self.seen = [self.mlp[0](x)]
                h = self.mlp[2](self.mlp[1](self.seen[0]))
                return self.head(self.mlp[3:](h)).squeeze(-1)

        model = Keeps()
        loka.mods.apply(model, MODS)
        self.unfused(model, self.plan(), "mlp.0", "kept as an attribute")

    def test_a_dropout_in_between_keeps_it_apart(self):
        model = modded().eval()
        model.mlp[1] = nn.Sequential(nn.Dropout(0.1), model.mlp[1])
        self.unfused(model, self.plan(), "mlp.0", "not by a block norm")

    def test_only_in_training(self):
        class Sometimes(Model):
            def forward(self, x):
                z = self.mlp[0](x)
                h = self.mlp[2](self.mlp[1](z)) if self.training else z
                return self.head(self.mlp[3:](h)).squeeze(-1)

        model = Sometimes()
        loka.mods.apply(model, MODS)
        self.unfused(model, self.plan(), "mlp.0", "not by a block norm")

    def test_a_shared_norm_or_activation(self):
        model = modded()
        model.mlp[8] = model.mlp[2]
        for site in ("mlp.0", "mlp.6"):
            model = modded()
            model.mlp[8] = model.mlp[2]
            self.unfused(model, self.plan(), site, "its hard swish 'mlp.2' is used elsewhere too")
        self.assertEqual(self.is_fused(model), {"mlp.3": True})

    def test_a_shared_block_is_one_each_time(self):
        class Twice(Model):
            def forward(self, x):
                return super().forward(x) + super().forward(-x)

        model = Twice()
        loka.mods.apply(model, MODS)
        loka.apply(model, self.plan(), emulate=True)
        self.assertEqual(set(self.is_fused(model).values()), {True})

    def test_another_norm_is_not_inside(self):
        model = modded()
        model.mlp[1] = loka.mods.BlockNorm(256, 128) if hasattr(loka.mods, "BlockNorm") else nn.Identity()
        self.unfused(model, self.plan(), "mlp.0", "blocks of 128")

    def test_unfused_it_computes_the_same_function(self):
        fused, _ = self.applied()
        apart, _ = self.applied()
        apart.mlp[1].register_forward_hook(lambda m, i, o: None)
        apart.mlp[4].register_forward_hook(lambda m, i, o: None)
        for one, other in zip(gradients(fused, batch()), gradients(apart, batch())):
            self.assertLess(float((one - other).norm() / other.norm()), 0.05)

    def test_a_linear_that_goes_back_to_bf16_is_apart(self):
        """As when a check has found its errors too large."""
        model, _ = self.applied(chains=CHAINS)
        for site in ("mlp.0", "mlp.3"):
            model.get_submodule(site).__dict__["_loka_kernels"] = (BF16,) * 3
        self.assertEqual(self.is_fused(model), {"mlp.0": False, "mlp.3": False, "mlp.6": True})
        reference = modded()
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                y, exact = model(batch()), reference(batch())
            self.assertLess(float(((y - exact).norm() / exact.norm()).detach()), 0.1)

    def test_what_cannot_be_is_refused(self):
        for options, said in (
            ({"dgrad": BLOCK}, "only fprop has a tail"), ({"wgrad": BLOCK}, "only fprop has a tail"),
            ({"edit": lambda plan: plan["sites"][0]["fprop"].pop("static_scale")}, "the plan has no static_scale"),
        ):
            with self.assertRaises(PlanError) as refused:
                self.applied(**options)
            self.assertIn(said, str(refused.exception))
        with self.assertRaises(PlanError) as refused:
            narrow = ranker.forged(self.folder, lambda plan: plan["sites"][1]["fprop"].update(kernel=BLOCK))
            loka.apply(ranker.Ranker(), narrow)
        self.assertIn("n = 128 is not a multiple of 256", str(refused.exception))


def chain(reads, stores, feeder=None):
    made = {"reads": reads, "stores": stores, "saved_us": 1.0}
    made.update({"from": feeder} if feeder else {})
    made.update({"store_scale": 2.0**-4} if "e4m3" in stores else {})
    return made


CHAINS = {
    "mlp.0": chain("bf16", ["bf16", "e4m3"]), "mlp.3": chain("e4m3", ["e4m3"], "mlp.0"),
    "mlp.6": chain("e4m3", ["bf16"], "mlp.3"),
}


class Inference(Blocks):
    def inputs(self, model, x):
        """What types the linears read."""
        found = []

        def seeing(forward):
            def seen(module, input):
                found.append(input.dtype)
                self.seen = input
                return forward(module, input)

            return seen

        with mock.patch.object(LokaLinear, "forward", seeing(LokaLinear.forward)):
            with mock.patch.object(FrozenLinear, "forward", seeing(FrozenLinear.forward)):
                y = model(x)
        return found, y

    def test_codes_are_handed_on(self):
        model, found = self.applied(chains=CHAINS)
        notes = self.notes(model)
        self.assertEqual([notes[site] for site in SIZES][:3], ["in inference its output is codes"] * 2 + [""])
        x, E4M3 = batch(), torch.float8_e4m3fn
        with torch.no_grad():
            types, y = self.inputs(model, x)
        self.assertEqual(types, [torch.float32, E4M3, E4M3])
        first, second = model.mlp[0].weight, model.mlp[3].weight
        how, scales = numerics(BLOCK, "fprop"), [Scale.of(2.0**-6, x.device), Scale.of(2.0**-4, x.device)]
        h = native_ops.block_output(multiply(x, first, how, scales[0]))
        h = native_ops.block_output(multiply(h, second, how, scales[1]))
        # Rounded once, from FP32.
        self.assertTrue(torch.equal(self.seen.float(), (h / 2.0**-4).clamp(-448, 448).to(E4M3).float()))
        types, trained = self.inputs(model, x)
        self.assertEqual(types, [torch.float32] * 3)
        plain, _ = self.applied()
        with torch.no_grad():
            expected = plain(x)
        self.assertEqual(y.dtype, expected.dtype)
        self.assertLess(float((y - expected).norm() / expected.norm()), 0.06)
        self.assertTrue(torch.equal(plain(x), expected))
        self.assertTrue(torch.equal(trained, expected))

    def test_compiled_and_in_autocast(self):
        for dtype in (torch.float32, torch.bfloat16):
            model, _ = self.applied(chains=CHAINS)
            model.eval()
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                eager = model(batch())
                compiled = torch.compile(model, backend="aot_eager", fullgraph=True)(batch())
            self.assertEqual(eager.dtype, dtype)
            self.assertTrue(torch.equal(eager, compiled))

    def test_a_static_linear_reads_codes_too(self):
        def edit(plan):
            plan["sites"][2]["fprop"]["kernel"] = STATIC

        model, _ = self.applied(chains=CHAINS, edit=edit)
        plain, _ = self.applied(edit=edit)
        with torch.no_grad():
            types, y = self.inputs(model, batch())
            expected = plain(batch())
        self.assertEqual(types[2], torch.float8_e4m3fn)
        self.assertLess(float((y - expected).norm() / expected.norm()), 0.06)

    def test_a_scale_that_training_moves_reads_codes_where_nothing_trains(self):
        def of(runtime):
            def edit(plan):
                plan["sites"][2]["fprop"]["kernel"] = DELAYED
                plan.update({"runtime": runtime} if runtime else {})

            return edit

        E4M3 = torch.float8_e4m3fn
        with torch.no_grad():
            model, _ = self.applied(chains=CHAINS, edit=of("inference"))
            self.assertEqual(self.inputs(model, batch())[0], [torch.float32, E4M3, torch.float32], "not frozen yet")
            expected = model.eval()(batch())
            loka.freeze(model)
            types, y = self.inputs(model, batch())
            self.assertEqual(types, [torch.float32, E4M3, E4M3])
            self.assertLess(float((y - expected).norm() / expected.norm()), 0.06)

            moved, _ = self.applied(chains=CHAINS, edit=of("inference"))
            moved.mlp[6]._loka_scales[0].scale.mul_(2.0)
            loka.freeze(moved)
            self.assertEqual(self.inputs(moved, batch())[0], [torch.float32, E4M3, torch.float32])

        trains, _ = self.applied(chains=CHAINS, edit=of(None))
        self.assertIn("'mlp.6' has a scale that training moves", self.notes(trains)["mlp.3"])

    def test_nobody_but_a_reader_sees_codes(self):
        for place in ("activation", "reader", "pre"):
            model, _ = self.applied(chains=CHAINS)
            seen = []
            if place == "activation":
                model.mlp[2].register_forward_hook(lambda m, i, o: seen.append(o))
            elif place == "reader":
                model.mlp[3].register_forward_hook(lambda m, i, o: seen.append(i[0]))
            else:
                model.mlp[3].register_forward_pre_hook(lambda m, i: seen.append(i[0]))
            with torch.no_grad():
                model(batch())
            self.assertEqual(seen[0].dtype, torch.float32, place)

    def test_where_codes_cannot_be_handed_on_it_says_so(self):
        class Reads(Model):
            def forward(self, x):
                h = self.mlp[:3](x)
                return self.head(self.mlp[3:](h)).squeeze(-1) + h.sum(1)

        model = Reads()
        loka.mods.apply(model, MODS)
        loka.apply(model, self.plan(chains=CHAINS), emulate=True)
        said = "codes are not handed on here: its output is read by more than linears beside it"
        self.assertEqual(self.notes(model)["mlp.0"], said)
        with torch.no_grad():
            self.assertEqual(self.inputs(model, batch())[0][1], torch.float32)

        def other_scale(plan):
            plan["sites"][1]["fprop"]["static_scale"] = 2.0**-5

        model, _ = self.applied(chains=CHAINS, edit=other_scale)
        self.assertIn("'mlp.3' has another scale", self.notes(model)["mlp.0"])

    def test_unapplied_nothing_is_left(self):
        model, _ = self.applied(chains=CHAINS)
        loka.unapply(model)
        self.assertFalse(any(key.startswith("_loka") for module in model.modules() for key in vars(module)))
        with torch.no_grad():
            self.assertTrue(torch.equal(model(batch()), modded()(batch())))


if __name__ == "__main__":
    unittest.main()
