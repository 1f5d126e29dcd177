"""Plan files: the digest against the real `loka`'s, every check, and whatever a damaged file may hold."""

import json
import math
import os
import pathlib
import pickle
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
from loka.plans import PlanError, canonical, document, load_plan

DIGESTS = json.loads((ranker.DATA / "digests.json").read_text(encoding="utf-8"))


class Digest(unittest.TestCase):
    """data/*.json were made by the Rust program (data/make_plans.py)."""

    def test_plans_of_the_real_program_are_read(self):
        for path, sites in ((ranker.PLAN, 4), (ranker.MODDED, 4)):
            plan = load_plan(path)
            self.assertEqual(len(plan.sites), sites)
            self.assertEqual(plan.digest, json.loads(path.read_text(encoding="utf-8"))["digest"])

    def test_numbers_and_strings_of_every_kind(self):
        self.assertEqual(canonical.digest_of(canonical.parse(DIGESTS["text"])), DIGESTS["digest"])

    def test_floats_are_laid_out_as_serde_json_does(self):
        # Each was printed by the program itself, through the digest of a document that holds it.
        for value, text in (
            (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (-2.5, "-2.5"), (1e-4, "0.0001"), (1e-5, "0.00001"),
            (-1e-5, "-0.00001"), (2.5e-5, "0.000025"), (9.75e-6, "9.75e-6"), (-1e-7, "-1e-7"), (1e-10, "1e-10"),
            (5e-324, "5e-324"), (1e15, "1000000000000000.0"), (9999999999999998.0, "9999999999999998.0"),
            (1e16, "1e+16"), (1.5e17, "1.5e+17"), (1.7976931348623157e308, "1.7976931348623157e+308"),
        ):
            self.assertEqual(canonical.float_text(value), text)
        for value in (math.nan, math.inf):
            with self.assertRaises(ValueError):
                canonical.canonical_json([value])

    def test_integers_beyond_64_bits_are_floats_and_minus_zero_keeps_its_sign(self):
        for text, canonical_text in (
            ("18446744073709551615", "18446744073709551615"), ("18446744073709551616", "1.8446744073709552e+19"),
            ("-9223372036854775808", "-9223372036854775808"), ("-9223372036854775809", "-9.223372036854776e+18"),
            ("-0", "-0.0"), ("0", "0"), ("1E2", "100.0"),
        ):
            self.assertEqual(canonical.canonical_json(canonical.parse(text)), canonical_text)

    def test_keys_are_sorted_by_code_point_and_strings_escaped_no_more_than_needed(self):
        value = {"b": [1, {"z": None, "a": 'x"y'}], "a": 0.1, "é": True, "\U0001f600": {}, "\uffff": []}
        expected = '{"a":0.1,"b":[1,{"a":"x\\"y","z":null}],"é":true,"\uffff":[],"\U0001f600":{}}'
        self.assertEqual(canonical.canonical_json(value), expected)
        self.assertEqual(canonical.canonical_json("/\x7f\x1f\b\u2028"), '"/\x7f\\u001f\\b\u2028"')

    def test_spaces_and_order_are_no_edit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "p.plan.json"
            path.write_text(json.dumps(ranker.document(), sort_keys=True), encoding="utf-8")
            self.assertEqual(load_plan(path), load_plan(ranker.PLAN))

    def test_an_edited_plan_is_refused_with_the_digest_that_it_would_need(self):
        path = ranker.DATA / "edited.plan.json"
        with self.assertRaises(PlanError) as refused:
            load_plan(path)
        found = json.loads(path.read_text(encoding="utf-8"))["digest"]
        cause = f'the plan was changed after it was made: its digest is "{found}", its content\'s is '
        self.assertEqual(str(refused.exception), f"{cause}{DIGESTS['edited']}: {path}")


class Reading(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def refused(self, path):
        """The message without the file, after making sure that it is one line that ends with the file."""
        with self.assertRaises(PlanError) as refused:
            load_plan(path)
        message = str(refused.exception)
        self.assertTrue(message.endswith(f": {path}"), message)
        self.assertNotIn("\n", message)
        return message[: -len(f": {path}")]

    def forged(self, change):
        return self.refused(ranker.forged(self.folder, change))

    def written(self, content):
        path = os.path.join(self.folder, "p.plan.json")
        with open(path, "wb") as file:
            file.write(content)
        return self.refused(path)

    def test_what_a_plan_says(self):
        plan = load_plan(ranker.PLAN)
        self.assertEqual((plan.name, plan.model["name"], plan.path), ("ranker", "ranker “é”", str(ranker.PLAN)))
        site = plan.sites[0]
        self.assertEqual(site.kernels, ("cublaslt/fp8-rowwise", "cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise+fast"))
        self.assertEqual([choice.source for choice in site.choices], ["override"] * 3)
        self.assertEqual(plan.sites[3].fprop.source, "dispatch")
        self.assertEqual(site.mods, ())
        self.assertEqual(load_plan(ranker.MODDED).sites[0].mods, ("block_norm", "hard_swish", "no_bias"))
        self.assertEqual(pickle.loads(pickle.dumps(plan)), plan)

    def test_shapes_are_read_where_a_plan_carries_them(self):
        def edit(plan):
            plan["sites"][0].update(m=8192, k=128, n=256)
            for key in ("m", "k", "n"):
                plan["sites"][1].pop(key, None)

        path = ranker.forged(self.folder, edit)
        first, second = load_plan(path).sites[:2]
        self.assertEqual((first.m, first.k, first.n), (8192, 128, 256))
        self.assertEqual((second.m, second.k, second.n), (None, None, None))
        self.assertEqual(
            self.forged(lambda plan: plan["sites"][0].update(k=-1)),
            "not a plan: sites[0].k is -1, it must be an integer of at least 0",
        )

    def test_files_that_are_no_json(self):
        for content, reason in (
            (b"", "it is empty"), (b"{", "Expecting property name"), (b"\x00", "Expecting value"),
            (b"\xff\xfe", "byte 0 is not UTF-8"), (b'{"a": NaN}', "NaN is not a JSON number"),
            (b'{"a": 1e999}', "number out of range"), (b"9" * 5000, "number out of range"),
            (b"[" * 200_000, "recursion limit exceeded"), (ranker.PLAN.read_bytes()[:-200], "Expecting ',' delimiter"),
        ):
            message = self.written(content)
            self.assertTrue(message.startswith("not a plan: "), message)
            self.assertIn(reason, message)

    def test_json_that_is_no_plan(self):
        for content, reason in (
            (b"[]", 'not a plan: format is null, not "loka-plan"'),
            (b'{"format": "loka-\\nplan"}', 'not a plan: format is "loka-\\nplan", not "loka-plan"'),
            (b'{"format": "loka-plan", "version": 2}', "plan version 2 is not known (this program reads 1)"),
            (b'{"format": "loka-plan", "version": 1.0}', "plan version 1.0 is not known (this program reads 1)"),
            (b'{"format": "loka-plan", "version": true}', "plan version true is not known (this program reads 1)"),
            (
                b'{"format": "loka-plan", "version": 1, "name": "\\ud800"}',
                "not a plan: a string holds half a surrogate pair",
            ),
            (
                b'{"format": "loka-plan", "version": 1, "a": ' + b"[" * 127 + b"]" * 127 + b"}",
                "not a plan: recursion limit exceeded",
            ),
        ):
            self.assertEqual(self.written(content), reason)

    def test_a_file_that_cannot_be_read(self):
        self.assertEqual(self.refused(os.path.join(self.folder, "none.json")), "No such file or directory")
        self.assertEqual(self.refused(self.folder), "Is a directory")

    def test_a_file_too_large_for_a_plan_is_not_read_whole(self):
        path = os.path.join(self.folder, "huge.plan.json")
        with open(path, "wb") as file:
            file.truncate(document.MAX_BYTES + 1)
        self.assertEqual(self.refused(path), f"not a plan: it is larger than {document.MAX_BYTES} bytes")

    def test_what_cannot_be_is_refused_though_the_digest_is_right(self):
        def change(*keys, to=None):
            def edit(plan):
                for key in keys[:-1]:
                    plan = plan[key]
                if to is None:
                    del plan[keys[-1]]
                else:
                    plan[keys[-1]] = to
            return edit

        first = ("sites", 0)
        expected = "expected one of site, fprop, dgrad, wgrad, m, k, n, calls, never_runs, forward, chain"
        for edit, message in (
            (change("sites", 1, "site", to="bottom.0"), "site 'bottom.0' is in the plan twice"),
            (change("policy", "max_error", to=-1.0),
             "policy 'paper': max_error is -1, it must be a number of at least 0"),
            (change("policy", "confidence", to=1), "policy 'paper': confidence is 1, it must be between 0 and 1"),
            (change("policy", "name", to=" "), "policy ' ': the name is empty"),
            (change("policy", "baseline", to="te/current"),
             "policy 'paper': the baseline 'te/current' is not in high precision"),
            (change(*first, "bprop", to={}), f"not a plan: sites[0]: unknown field 'bprop', {expected}"),
            (change(*first, "dgrad"), "not a plan: sites[0]: missing field 'dgrad'"),
            (change(*first, "fprop", "source", to="luck"),
             "not a plan: sites[0].fprop.source: unknown word 'luck', expected one of dispatch, override"),
            (change(*first, "fprop", "kernel", to=["x"]),
             "not a plan: sites[0].fprop.kernel is an array, it must be text"),
            (change(*first, "fprop", "error", to={"meer": 1.0}),
             "not a plan: sites[0].fprop.error: unknown word 'meer', expected one of mere, rel_l2, sqnr_db, "
             "median_rel, max_abs, block_rel_l2, loss_cost, noise_share, bias"),
            (change(*first, "chain", to={"reads": "int8", "stores": ["bf16"], "saved_us": 0.0}),
             "not a plan: sites[0].chain.reads: unknown word 'int8', expected one of bf16, e4m3"),
            (change(*first, "chain", to={"reads": "e4m3", "stores": ["bf16"]}),
             "not a plan: sites[0].chain: missing field 'saved_us'"),
            (change("mods", to={"bottom.0": ["bias"]}),
             "not a plan: mods of 'bottom.0': unknown word 'bias', expected one of block_norm, hard_swish, no_bias"),
            (change("model", "parameters", to="many"),
             "not a plan: model.parameters is text, it must be an integer of at least 0"),
            (change("totals", "planned_us", to=True),
             "not a plan: totals.planned_us is a boolean, it must be a number"),
            (change("sites", to={}), "not a plan: sites is an object, it must be an array"),
            (change("trace_digest"), "not a plan: missing field 'trace_digest'"),
        ):
            self.assertEqual(self.forged(edit), message)

    def test_a_plan_says_where_it_runs_and_is_launched_by_default(self):
        self.assertEqual(load_plan(ranker.PLAN).runtime, "launched")
        def graph(plan):
            plan["runtime"] = "graph"
            plan["totals"].update(saved_us=1.5, measured_sites=3, modelled_sites=1)
            plan["sites"][0]["fprop"]["passed_over"] = {"loka/fp8-rowwise+fast": "runtime"}
        plan = load_plan(ranker.forged(self.folder, graph))
        self.assertEqual((plan.runtime, plan.totals["measured_sites"]), ("graph", 3))
        def eager(plan):
            plan["runtime"] = "eager"
        self.assertEqual(
            self.forged(eager), "not a plan: runtime: unknown word 'eager', expected one of launched, graph, inference"
        )

    def test_a_policy_of_groups_and_a_site_of_its_own_forward_are_read(self):
        def marked(plan):
            plan["policy"]["groups"] = [{"sites": "tokens.*", "max_error": 0.1}]
            plan["sites"][0]["forward"] = "own"
            plan["sites"][0]["fprop"]["passed_over"] = {"te/current": "forward"}
        plan = load_plan(ranker.forged(self.folder, marked))
        self.assertEqual(plan.policy["groups"][0]["sites"], "tokens.*")
        def loose(plan):
            plan["policy"]["groups"] = [{"sites": "tokens.*", "max_err": 0.1}]
        self.assertEqual(
            self.forged(loose),
            "not a plan: policy.groups[0]: unknown field 'max_err', expected one of sites, max_error",
        )

    def test_a_hostile_name_cannot_break_the_line(self):
        def edit(plan):
            plan["sites"][1]["site"] = plan["sites"][0]["site"] = "a\nb\x1b[2J" + "x" * 1000
        message = self.forged(edit)
        self.assertTrue(message.startswith("site 'a b [2Jxxx"), message)
        self.assertLess(len(message), 300)


if __name__ == "__main__":
    unittest.main()
