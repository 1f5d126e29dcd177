"""Models that are not plain, recorded: per-example gradients and their noise against those of one example at a time."""

import pathlib
import tempfile
import unittest
import warnings
from unittest import mock

from record_support import read

import ml_dtypes
import models
import numpy
import torch

import loka as package
from loka.products import TRACEABLE

EXAMPLES = 48


def e4m3(values):
    """Rounded with one power of two for all, by ml_dtypes."""
    scale = 2.0 ** numpy.ceil(numpy.log2(numpy.abs(values).max() / 448))
    return (values / scale).astype(ml_dtypes.float8_e4m3fn).astype(numpy.float64) * scale


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)
        caught = warnings.catch_warnings()
        caught.__enter__()
        self.addCleanup(caught.__exit__, None, None, None)
        warnings.simplefilter("ignore", RuntimeWarning)

    def record(self, name, steps=1, model=None, sizes=None, call=None, **options):
        """(recorder, manifest, tensors, the model before each step, the batches), of SGD."""
        case = models.CASES[name]
        model = case.model() if model is None else model
        before, batches = [], []
        with package.Recorder(model, self.out / name, every=1, name=name, **{"history": "all", **options}) as recorder:
            optimizer = None
            for step in range(steps):
                batch = case.batch((sizes or [EXAMPLES] * steps)[step], step)
                twin = case.model()
                if name != "lazy" or step:
                    twin(*batch[:-1])
                    twin.load_state_dict(getattr(model, "_orig_mod", model).state_dict())
                before.append(twin), batches.append(batch)
                *inputs, target = batch
                recorder.loss(case.loss((call or model)(*inputs), target)).backward()
                optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.05)
                optimizer.step()
                optimizer.zero_grad()
        manifest, tensors = read(recorder.path)
        return recorder, manifest, tensors, before, batches


class Gradients(Recorded):
    """All the linears of ten models (the lazy one: see below), over three steps of training."""

    def check(self, name, **options):
        case = models.CASES[name]
        _, manifest, tensors, before, batches = self.record(name, steps=3, **options)
        apart = [models.per_example(case, model, batch) for model, batch in zip(before, batches)]
        sites = [site["id"] for site in manifest["sites"]]
        self.assertLessEqual(set(apart[0]), set(sites))
        for site in manifest["sites"]:
            self.check_site(site, tensors, [each[site["id"]] for each in apart if site["id"] in each], batches)
        return manifest, tensors

    def check_site(self, site, tensors, apart, batches):
        if not apart:
            return
        key = f"{site['id']}/"
        rows, grads = torch.cat([each["xs"] for each in apart]), torch.cat([each["gs"] for each in apart])
        self.assertEqual(int(tensors[key + "grad_output.count"]), len(grads))
        for part, values in (("input", rows), ("grad_output", grads)):
            mean, cov = tensors[f"{key}{part}.mean"].double(), tensors[f"{key}{part}.cov"].double()
            count = len(values)
            square = float(cov.diagonal().sum() * (count - 1) / count + mean.square().sum())
            expected = float(values.square().sum(1).mean())
            self.assertLess(abs(square / expected - 1), 0.01, f"{key}{part}: E|.|^2 {square}, apart {expected}")
        # Gradients of the weight, example by example; absent examples have none.
        squares = sum(float(each["G"].square().sum()) for each in apart)
        pairs = weights = 0.0
        for each, batch in zip(apart, batches):
            size = len(batch[0])
            total = float(each["G"].sum(0).square().sum()) - float(each["G"].square().sum())
            pairs, weights = pairs + size * total / (size * (size - 1)), weights + size
        examples = sum(len(batch[0]) for batch in batches)
        xg2, mean2 = float(tensors[key + "noise.xg2"]), float(tensors[key + "noise.mean2"])
        self.assertEqual(int(tensors[key + "noise.count"]), examples)
        self.assertLess(abs(xg2 / (squares / examples) - 1), 0.01, f"{key}noise.xg2")
        # Of rows, not of examples: what an error of a single product grows with.
        products = float((rows.square().sum(1) * grads.square().sum(1)).sum()) / examples
        for part in ("input", "grad_output"):
            of_part = float(tensors[f"{key}noise.{part}_hist"][0].sum())
            self.assertLess(abs(of_part / products - 1), 0.01, f"{key}noise.{part}_hist")
        # mean2 is a small difference: held to the trace that it is taken from.
        self.assertLess(abs(mean2 - pairs / weights), 0.01 * squares / examples, f"{key}noise.mean2")
        # The gradient of each step's batch: as large as it is, and as large as noise alone would be.
        steps = [step for step, rows in enumerate(tensors[key + "series.rows"]) if rows]
        self.assertEqual(len(steps), len(apart))
        for step, each in zip(steps, apart):
            size = len(batches[step][0])
            for name, expected in (("norm", each["G"].sum(0).norm()), ("noise", each["G"].square().sum().sqrt())):
                found = float(tensors[f"{key}series.weight_grad_{name}"][step]) * size / float(expected)
                self.assertLess(abs(found - 1), 0.01, f"{key}series.weight_grad_{name}")
            if site["calls"] == 1:
                # As it runs: dy of a mean loss, rounded by ml_dtypes, summed in FP64.
                x, g = (numpy.array(each[part], numpy.float64) for part in ("xs", "gs"))
                g = g / size
                error = e4m3(g).T @ e4m3(x) - g.T @ x
                found = float(tensors[f"{key}series.weight_grad_e4m3"][step])
                self.assertLess(abs(found / max(numpy.linalg.norm(error), 1e-30) - 1), 0.02, f"{key}e4m3")

    def test_dlrm(self):
        manifest, _ = self.check("dlrm")
        grads = {site["id"]: site["grads"] for site in manifest["sites"]}
        self.assertEqual(grads["bottom.0"], {"input": False, "weight": True})
        self.assertEqual(grads["top.0"], {"input": True, "weight": True})
        self.assertTrue(all("rows" not in site and "forward" not in site for site in manifest["sites"]))

    def test_a_tower_that_runs_twice(self):
        manifest, _ = self.check("two_tower")
        self.assertEqual([(site["m"], site["calls"]) for site in manifest["sites"]], [(EXAMPLES, 2)] * 2)
        self.assertEqual({site["noise"]["unit"] for site in manifest["sites"]}, {"example"})

    def test_sequence(self):
        manifest, _ = self.check("sequence")
        site = {site["id"]: site for site in manifest["sites"]}["uvqk"]
        self.assertEqual((site["m"], site["examples"], site["noise"]["unit"]), (5 * EXAMPLES, EXAMPLES, "example"))

    def test_dcnv2(self):
        self.check("dcnv2")

    def test_mmoe(self):
        self.check("mmoe")

    def test_sparse_moe(self):
        manifest, tensors = self.check("sparse_moe")
        experts = {site["id"]: site for site in manifest["sites"] if site["id"].startswith("experts")}
        self.assertTrue(experts)
        total = 0
        for name, site in experts.items():
            self.assertEqual(site["examples"], EXAMPLES)
            rows = tensors[f"{name}/series.rows"]
            self.assertEqual(int(rows.sum()), int(tensors[f"{name}/input.count"]))
            seen = [int(each) for each in rows if each]
            if "rows" in site:
                expected = (min(seen), max(seen), len(seen))
                self.assertEqual((site["rows"]["min"], site["rows"]["max"], site["rows"]["steps"]), expected)
            total += int(rows.sum()) * name.endswith(".0")
        self.assertEqual(total, 3 * EXAMPLES)

    def test_raw(self):
        self.check("raw")

    def test_tied(self):
        self.check("tied")

    def test_adapted(self):
        manifest, _ = self.check("adapted")
        sites = {site["id"]: site for site in manifest["sites"]}
        self.assertEqual(sites["adapted"]["forward"], "own")
        self.assertEqual(sites["adapted"]["grads"], {"input": True, "weight": False})
        self.assertNotIn("forward", sites["normed"])

    def test_norms(self):
        self.check("norms")


class ByTorchFunc(Recorded):
    """Every site of all eleven models, also those that functions read: E|G|^2 against gradients of one example's own loss by
    the parameter, which PyTorch's functional transforms find without a hook and without a module of ours."""

    def of_example(self, case, model, batch):
        """Parameter -> its gradient for each example, `[examples, ...]`; zeros where an example does not come. Of tied
        ones each by itself, of frozen ones too, and of a computed one by the weight that it gives."""
        for module in list(model.modules()):
            if torch.nn.utils.parametrize.is_parametrized(module):
                torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
        parameters = {name: each.detach() for name, each in model.named_parameters(remove_duplicate=False)}

        def loss(parameters, *example):
            *inputs, target = (each[None] for each in example)
            found = torch.func.functional_call(model, parameters, tuple(inputs), tie_weights=False)
            return case.loss(found, target)

        gradient = torch.func.grad(loss)
        each = [gradient(parameters, *(part[i] for part in batch)) for i in range(len(batch[0]))]
        return {name: torch.stack([one[name] for one in each]).double() for name in parameters}

    def weight_of(self, site, found):
        """The gradients of a site's weight among those of parameters, by its name: `experts[3]`, `mix`, `tower.0`."""
        name, _, part = site.partition("[")
        grads = found.get(f"{name}.weight", found.get(name))
        if not part or grads is None:
            return grads
        first, colon, last = part[:-1].partition(":")
        return grads[:, int(first) : int(last)] if colon else grads[:, int(first)]

    def test_all_models(self):
        for name, case in models.CASES.items():
            with self.subTest(name):
                _, manifest, tensors, before, batches = self.record(name, steps=2)
                self.assertTrue(manifest["sites"])
                # The lazy one's first layer has no weight before the first step, and is recorded from the second on.
                known = [step for step, model in enumerate(before) if name != "lazy" or step]
                apart = {step: self.of_example(case, before[step], batches[step]) for step in known}
                for site in manifest["sites"]:
                    seen = [step for step, rows in enumerate(tensors[f"{site['id']}/series.rows"]) if rows and step in apart]
                    squares = [self.weight_of(site["id"], apart[step]).flatten(1).square().sum(1) for step in seen]
                    if name == "lazy" and site["id"] == "head":
                        # Recorded in both steps, of which one is not known apart.
                        continue
                    expected = float(torch.cat(squares).sum()) / (len(known) * EXAMPLES)
                    found = float(tensors[f"{site['id']}/noise.xg2"])
                    self.assertLess(abs(found / expected - 1), 0.01, site["id"])


class Routed(Recorded):
    def test_it_is_said_that_rows_change_and_what_gradients_are_scaled_by(self):
        recorder, manifest, *_ = self.record("sparse_moe", steps=3)
        self.assertTrue(any("change from call to call" in text and "experts." in text for text in recorder.warnings))
        recorder, manifest, *_ = self.record("dlrm", steps=3, sizes=[40, 40, 17])
        self.assertEqual(recorder.warnings, [])
        site = manifest["sites"][0]
        self.assertEqual((site["m"], site["examples"]), (40, 40))
        self.assertEqual(site["rows"], {"min": 17, "mean": 32.333, "max": 40, "steps": 3})

    def test_histories_padded_to_the_longest_of_their_batch(self):
        model, lengths = models.Sequence(), [9, 12, 5, 20, 7, 8, 11, 6]
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        with package.Recorder(model, self.out / "padded", every=1, name="padded", history="all") as recorder:
            for at, length in enumerate(lengths):
                recorder.loss(model(torch.randint(20, (4, length))).square().mean() / 2).backward()
                if at % 2:
                    optimizer.step()
                    optimizer.zero_grad()
        manifest, _ = read(recorder.path)
        site = next(site for site in manifest["sites"] if site["id"] == "uvqk")
        # No two calls have as many rows: the median is what a call is like, and no call has what a step has.
        self.assertEqual((site["m"], site["calls"]), (4 * 9, 2))
        self.assertEqual(site["rows"], {"min": 4 * 15, "mean": 4 * 19.5, "max": 4 * 25, "steps": 4})
        self.assertIn(" 36 (60 to 100 in 2 calls) ", str(recorder.report()))

    def test_batches_of_changing_sizes(self):
        Gradients.check(self, "sparse_moe", sizes=[48, 30, 7])

    check_site = Gradients.check_site

    def test_heads_of_domains_see_a_part_each(self):
        # The model's result, not a head, has the examples; and heads run backward before anything else.
        class Domains(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.trunk = torch.nn.Linear(8, 6)
                self.heads = torch.nn.ModuleList(torch.nn.Linear(6, 1) for _ in range(2))

            def forward(self, x):
                x, y = torch.relu(self.trunk(x)), x.new_zeros(len(x))
                for head, rows in zip(self.heads, ((x[:, 0] > 0.2).nonzero()[:, 0], (x[:, 0] <= 0.2).nonzero()[:, 0])):
                    y = y.index_add(0, rows, head(x[rows]).squeeze(1))
                return y

        models.CASES["domains"] = models.Case(Domains, models.CASES["norms"].batch)
        self.addCleanup(models.CASES.pop, "domains")
        Gradients.check(self, "domains", sizes=[48, 30, 20])

    def test_rows_of_positions_flattened_are_scaled_by_the_examples_of_the_result(self):
        class Flat(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.head = torch.nn.Linear(4, 6), torch.nn.Linear(12, 1)

            def forward(self, x):
                rows = torch.relu(self.first(x.reshape(-1, 4)))
                return self.head(rows.reshape(len(x), 12)).squeeze(1)

        models.CASES["flat"] = case = models.Case(Flat, models.CASES["norms"].batch)
        self.addCleanup(models.CASES.pop, "flat")
        _, manifest, tensors, before, batches = self.record("flat")
        apart = models.per_example(case, before[0], batches[0])["first"]
        mean, cov = tensors["first/grad_output.mean"].double(), tensors["first/grad_output.cov"].double()
        count = len(apart["gs"])
        square = float(cov.diagonal().sum() * (count - 1) / count + mean.square().sum())
        self.assertAlmostEqual(square / float(apart["gs"].square().sum(1).mean()), 1.0, places=4)
        site = manifest["sites"][0]
        self.assertEqual((site["m"], site["examples"], site["noise"]["unit"]), (2 * EXAMPLES, EXAMPLES, "row"))


class Coverage(Recorded):
    """FLOPs counted apart: by PyTorch's own counter, and by hand."""

    def test_all_products_of_all_models(self):
        from torch.utils.flop_counter import FlopCounterMode

        for name in models.CASES:
            with self.subTest(name):
                _, manifest, *_ = self.record(name)
                case = models.CASES[name]
                model, batch = case.model(), case.batch(EXAMPLES, 0)
                with FlopCounterMode(display=False) as counter:
                    model(*batch[:-1])
                counts = counter.get_flop_counts()["Global"]
                expected = sum(count for op, count in counts.items() if "convolution" not in str(op))
                # Older counters do not know the attention of a CPU.
                if name == "sequence" and not any("scaled_dot_product" in str(op) for op in counts):
                    expected += 2 * EXAMPLES * 2 * 2 * (2 * 5 * 5 * 4) + EXAMPLES * 2 * 2 * (2 * 5 * 4)
                coverage = manifest["coverage"]
                self.assertEqual(coverage["flops"], expected)
                self.assertEqual(coverage["sites"] + sum(each["flops"] for each in coverage["unseen"]), expected)

    def test_what_is_not_seen_by_hand(self):
        unseen = {name: self.record(name)[1]["coverage"] for name in ("dlrm", "sequence", "adapted", "raw", "tied")}
        self.assertEqual(unseen["raw"]["unseen"], [])
        self.assertEqual(unseen["raw"]["sites"], 2 * EXAMPLES * (8 * 12 + 12 * 10 + 10 * 6 + 3 * 6 * 5 + 5))
        self.assertEqual(unseen["tied"]["unseen"], [])
        (pairs,) = unseen["dlrm"]["unseen"]
        self.assertEqual((pairs["op"], pairs["flops"]), ("bmm", EXAMPLES * 2 * 4 * 4 * 6))
        self.assertRegex(pairs["where"], r"^models\.py:\d+$")
        self.assertIn("neither operand is a parameter", pairs["reason"])
        ops = [(each["op"], each["flops"]) for each in unseen["sequence"]["unseen"]]
        own, last = EXAMPLES * 2 * 2 * (2 * 5 * 5 * 4), EXAMPLES * 2 * 2 * (2 * 1 * 5 * 4)
        self.assertEqual(ops, [("scaled_dot_product_attention", each) for each in (own, own, last)])
        adapters = {each["name"]: each["flops"] for each in unseen["adapted"]["unseen"]}
        self.assertEqual(adapters, {"adapted.down": EXAMPLES * 2 * 12 * 2, "adapted.up": EXAMPLES * 2 * 2 * 10})
        source = (pathlib.Path(models.__file__)).read_text().splitlines()
        self.assertIn("F.linear", source[int(unseen["adapted"]["unseen"][0]["where"].split(":")[1]) - 1])


    def test_what_has_a_weight_and_is_not_recorded_is_said_at_the_end(self):
        recorder, *_ = self.record("adapted")
        (said,) = recorder.warnings
        self.assertRegex(said, r"sites are 83.7% of .*: adapted.down \(models.py:\d+, 8.9%\), adapted.up")
        self.assertEqual(recorder.coverage["flops"], 25920)
        self.assertEqual(self.record("dlrm")[0].warnings, [])

    def test_less_than_a_hundredth_is_told_without_a_warning(self):
        recorder, *_ = self.record("adapted")
        told = []
        for flops in (9, 10):
            unseen = [{"op": "bmm", "flops": flops, "name": "mix", "reason": ""}]
            counted = {"flops": 1000, "sites": 1000 - flops, "how": "forward", "unseen": unseen}
            with mock.patch.object(type(recorder), "coverage", counted), mock.patch.object(recorder, "_warn") as warn:
                recorder._say_coverage()
            told.append(warn.call_count)
        self.assertEqual(told, [0, 1])

    def test_a_compiled_model_is_counted_on_shapes_alone(self):
        import torch._dynamo

        self.addCleanup(torch._dynamo.reset)
        for name in ("dlrm", "raw"):
            eager = self.record(name)[1]["coverage"]
            model = models.CASES[name].model()
            compiled = torch.compile(model, backend="aot_eager")
            recorder, manifest, *_ = self.record(name, model=compiled)
            coverage = manifest["coverage"]
            self.assertEqual((coverage["how"], coverage["flops"]), ("fake", eager["flops"]), recorder.warnings)
        # Of parameters that functions read, compiled code shows whole matrices by themselves; what it hides is said.
        seen = [] if TRACEABLE else ["mix", "first"]
        self.assertEqual([each["name"] for each in coverage["unseen"]], [*seen, "experts", "low"])
        self.assertTrue(any(f"not recorded: {[*seen, 'experts'][0]}" in text for text in recorder.warnings))


class Functions(Recorded):
    """Products with a parameter that no module holds are sites by themselves."""

    def test_weights_rows_and_gradients(self):
        recorder, manifest, tensors, before, batches = self.record("raw")
        self.assertEqual([site["id"] for site in manifest["sites"]],
                         ["first", "mix", "low", "experts[0]", "experts[1]", "experts[2]", "head"])  # fmt: skip
        model = models.CASES["raw"].model()
        *inputs, target = batches[0]
        shadow = {name: each.detach().clone().requires_grad_() for name, each in model.named_parameters()}
        x = inputs[0]
        y1 = x @ shadow["first"].T + shadow["shift"]
        x2 = torch.nn.functional.silu(y1)
        y2 = x2 @ shadow["mix"]
        x3 = torch.nn.functional.silu(y2)
        y3 = x3 @ shadow["low"]
        x4 = torch.nn.functional.silu(y3)
        ys = [x4 @ shadow["experts"][i] for i in range(3)]
        out = sum(ys) / 3 @ shadow["head.weight"].T + shadow["head.bias"]
        loss = models.log_loss(out.squeeze(1), target)
        outs = {"first": (x, y1), "mix": (x2, y2), "low": (x3, y3), **{f"experts[{i}]": (x4, ys[i]) for i in range(3)}}
        grads = torch.autograd.grad(loss, [y for _, y in outs.values()])
        for (name, (rows, _)), grad in zip(outs.items(), grads):
            torch.testing.assert_close(tensors[f"{name}/input.mean"], rows.double().mean(0), rtol=1e-4, atol=1e-6)
            expected = (grad.double() * EXAMPLES).mean(0)
            torch.testing.assert_close(tensors[f"{name}/grad_output.mean"], expected, rtol=1e-4, atol=1e-7)
        now = dict(self.model_of(recorder).named_parameters())
        torch.testing.assert_close(tensors["mix/weight"], now["mix"].detach().T)
        torch.testing.assert_close(tensors["experts[1]/weight"], now["experts"][1].detach().T)
        torch.testing.assert_close(tensors["first/bias"], now["shift"].detach())
        # Whole matrices, which `loka.apply` reaches, and others.
        forwards = {site["id"]: site.get("forward") for site in manifest["sites"][:-1]}
        self.assertEqual(
            forwards, {"first": "linear", "mix": "matmul", **{name: "parameter" for name in forwards if name[0] in "el"}}
        )

    def test_stacks_of_matrices(self):
        recorder, manifest, tensors, before, batches = self.record("stacked")
        stacks = [f"{name}[{i}]" for name in ("up", "turned", "each") for i in range(4)]
        self.assertEqual([site["id"] for site in manifest["sites"]], [*stacks, "every", "head"])
        model = models.CASES["stacked"].model()
        x, target = batches[0]
        silu = torch.nn.functional.silu
        ups = [x @ model.up[i] + model.shift[i, 0] for i in range(4)]
        turns = [silu(ups[i]) @ model.turned[i].T + model.common[0, 0] for i in range(4)]
        eachs = [silu(turns[i]) @ model.each[i] for i in range(4)]
        mean = sum(silu(each) for each in eachs) / 4
        every = torch.cat([mean @ model.every[i] for i in range(4)], 1)
        ones = [silu(every[:, 6 * i : 6 * i + 6]) @ model.one[0] for i in range(4)]
        out = sum(ones) / 4 @ model.head.weight.T + model.head.bias
        loss = models.log_loss(out.squeeze(1), target)
        rows = {"up": [x] * 4, "turned": [silu(each) for each in ups], "each": [silu(each) for each in turns]}
        outs = {"up": ups, "turned": turns, "each": eachs}
        found = {f"{name}[{i}]": (rows[name][i], outs[name][i]) for name in rows for i in range(4)}
        found["every"] = (mean, every)
        grads = torch.autograd.grad(loss, [y for _, y in found.values()])
        for (name, (inputs, _)), grad in zip(found.items(), grads):
            torch.testing.assert_close(tensors[f"{name}/input.mean"], inputs.double().mean(0), rtol=1e-4, atol=1e-6)
            expected = (grad.double() * EXAMPLES).mean(0)
            torch.testing.assert_close(tensors[f"{name}/grad_output.mean"], expected, rtol=1e-4, atol=1e-7)
        now = recorder.model
        for i in range(4):
            torch.testing.assert_close(tensors[f"up[{i}]/weight"], now.up[i].detach().T)
            torch.testing.assert_close(tensors[f"up[{i}]/bias"], now.shift[i, 0].detach())
            torch.testing.assert_close(tensors[f"turned[{i}]/weight"], now.turned[i].detach())
            self.assertNotIn(f"turned[{i}]/bias", tensors)
        torch.testing.assert_close(tensors["every/weight"], now.every.detach().transpose(0, 1).flatten(1).T)
        (unseen,) = manifest["coverage"]["unseen"]
        self.assertEqual((unseen["name"], unseen["flops"]), ("one", 2 * 4 * EXAMPLES * 6 * 3))

    def test_an_error_of_ours_ends_no_training(self):
        from loka.record.record import Record

        with mock.patch.object(Record, "owns", side_effect=RuntimeError("no such weight")):
            recorder, *_ = self.record("two_tower", steps=2)
        self.assertTrue(any("no such weight: which optimizer ends a step" in text for text in recorder.warnings))

    @staticmethod
    def model_of(recorder):
        return recorder.model

    def test_training_is_not_changed_and_the_model_is_given_back(self):
        for name in ("raw", "sequence"):
            case = models.CASES[name]
            plain = case.model()
            optimizer = torch.optim.SGD(plain.parameters(), 0.05)
            for step in range(2):
                *inputs, target = case.batch(EXAMPLES, step)
                case.loss(plain(*inputs), target).backward()
                optimizer.step()
                optimizer.zero_grad()
            recorder, *_ = self.record(name, steps=2)
            for mine, other in zip(recorder.model.parameters(), plain.parameters()):
                torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)
            self.assertIs(type(recorder.model), type(plain))
            self.assertEqual([type(each) for each in recorder.model.modules()], [type(each) for each in plain.modules()])

    def test_attention_projections(self):
        _, manifest, tensors, before, batches = self.record("sequence")
        sites = {site["id"]: site for site in manifest["sites"]}
        expected = {
            "attention.in_proj_weight": (5 * EXAMPLES, 8, 24),
            "attention.out_proj": (5 * EXAMPLES, 8, 8),
            "cross.in_proj_weight[0:8]": (EXAMPLES, 8, 8),
            "cross.in_proj_weight[8:24]": (5 * EXAMPLES, 8, 16),
            "cross.out_proj": (EXAMPLES, 8, 8),
        }
        self.assertEqual({name: (sites[name]["m"], sites[name]["k"], sites[name]["n"]) for name in expected}, expected)
        # The gradient of a bias is that of the output, summed over rows: apart, of each example alone.
        case, model = models.CASES["sequence"], before[0]
        square = total = 0.0
        weights = []
        for i in range(EXAMPLES):
            *inputs, target = (each[i : i + 1] for each in batches[0])
            model.zero_grad()
            case.loss(model(*inputs), target).backward()
            weights.append(model.attention.in_proj_weight.grad.double().clone())
        gradients = torch.stack(weights)
        square = float(gradients.square().sum()) / EXAMPLES
        self.assertEqual(sites["attention.in_proj_weight"]["noise"]["unit"], "example")
        self.assertLess(abs(float(tensors["attention.in_proj_weight/noise.xg2"]) / square - 1), 0.01)
        total = float(gradients.sum(0).square().sum()) - EXAMPLES * square
        mean2 = float(tensors["attention.in_proj_weight/noise.mean2"])
        self.assertLess(abs(mean2 - total / (EXAMPLES * (EXAMPLES - 1))), 0.01 * square)

    def test_inside_of_a_checkpoint(self):
        from torch.utils.checkpoint import checkpoint

        class Outer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = models.Raw()
                self.own = torch.nn.Parameter(torch.randn(8, 8) / 3)

            def part(self, x):
                return torch.tanh(x @ self.own)

            def forward(self, x):
                return checkpoint(self.inner, checkpoint(self.part, x, use_reentrant=False), use_reentrant=False)

        models.CASES["checkpointed"] = models.Case(Outer, models.CASES["raw"].batch)
        self.addCleanup(models.CASES.pop, "checkpointed")
        _, manifest, tensors, *_ = self.record("checkpointed", steps=2)
        self.assertEqual(int(tensors["inner.mix/input.count"]), 2 * EXAMPLES)
        (unseen,) = manifest["coverage"]["unseen"]
        self.assertEqual(unseen["name"], "own")

    def test_an_embedding_that_scores_too(self):
        class Scores(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.items, self.up = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8)

            def forward(self, sparse):
                return self.up(self.items(sparse).sum(1)) @ self.items.weight.T

        models.CASES["scores"] = models.Case(Scores, models.CASES["tied"].batch)
        self.addCleanup(models.CASES.pop, "scores")
        _, manifest, tensors, *_ = self.record("scores", steps=3)
        self.assertEqual([site["id"] for site in manifest["sites"]], ["up", "items.weight"])
        # What a function reads of an embedding only the first forward tells: from the second on it is recorded.
        self.assertEqual(int(tensors["items.weight/input.count"]), 2 * EXAMPLES)
        self.assertEqual(manifest["coverage"]["sites"], 2 * EXAMPLES * (8 * 8 + 8 * 20))


class CrossCovariance(Recorded):
    def test_a_sketch_finds_the_leading_pairs(self):
        from loka.record.cross import Cross, factors
        from loka.record.moments import Batch

        generator = torch.Generator().manual_seed(0)
        n, k, rows = 200, 300, 4000
        shared = torch.randn(rows, 6, generator=generator, dtype=torch.float64)
        x = shared @ torch.randn(6, k, generator=generator, dtype=torch.float64)
        x += 0.1 * torch.randn(rows, k, generator=generator, dtype=torch.float64)
        grad = shared @ torch.randn(6, n, generator=generator, dtype=torch.float64)
        grad += 0.1 * torch.randn(rows, n, generator=generator, dtype=torch.float64)
        expected = grad.T @ x
        cross = Cross(n, k, 16, 0, torch.float64, torch.device("cpu"))
        self.assertFalse(cross.whole)
        for start in range(0, rows, 1000):
            some = slice(start, start + 1000)
            pad = torch.zeros(1, dtype=torch.float64)
            mine = Batch(torch.cat([x[some], pad.expand(1, k)]), pad.expand(k))
            other = Batch(torch.cat([grad[some], pad.expand(1, n)]), pad.expand(n))
            cross.add(mine, other)
        found = factors(cross.state, 16, 0)
        again = found["cross_cov_left"] @ found["cross_cov_right"].T
        self.assertLess(float((again - expected).norm() / expected.norm()), 0.01)

    def test_by_default_and_the_same_as_the_whole(self):
        _, _, whole, *_ = self.record("dlrm", steps=3, cross_cov=True)
        _, _, tensors, *_ = self.record("dlrm", steps=3)
        for site in ("bottom.0", "bottom.2", "top.0", "top.2"):
            self.assertNotIn(f"{site}/cross_cov", tensors)
            left, right = tensors[f"{site}/cross_cov_left"], tensors[f"{site}/cross_cov_right"]
            self.assertLessEqual(left.shape[1], 16)
            expected = whole[f"{site}/cross_cov"]
            self.assertLess(float((left @ right.T - expected).norm() / expected.norm()), 1e-4)
        _, _, tensors, *_ = self.record("dlrm", steps=1, cross_rank=0)
        self.assertFalse(any("cross_cov" in name for name in tensors))


if __name__ == "__main__":
    unittest.main()
