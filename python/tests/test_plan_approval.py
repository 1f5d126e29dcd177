"""Plans that have to be approved: what is beside the digest, what a draft is, and that none is trained with unasked."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ranker
import loka
from loka.plans import PlanError, load_plan
from ranker import APPROVED, DRAFT, PLAN, Ranker


class Approval(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def edited(self, change, source=APPROVED):
        """The path of a changed plan whose digest is as it was."""
        value = json.loads(source.read_text(encoding="utf-8"))
        change(value)
        path = pathlib.Path(self.folder) / "edited.plan.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        return str(path)

    def forged(self, change, source=APPROVED):
        return ranker.forged(self.folder, change, source)

    def refused(self, path):
        with self.assertRaises(PlanError) as refused:
            load_plan(path)
        message = str(refused.exception)
        self.assertTrue(message.endswith(f": {path}"), message)
        return message[: -len(f": {path}")]

    def test_what_the_real_program_signed_is_read(self):
        plan = load_plan(APPROVED)
        self.assertEqual([approval["name"] for approval in plan.approvals], ["Anna “é”", "Bo"])
        self.assertEqual((plan.authors, plan.release, plan.draft, plan.review), (("Olga",), 1, None, None))
        rule = {"approvers": 2, "roles": ["approver", "owner"], "own": False}
        self.assertEqual(plan.policy["approval"], rule)
        draft = load_plan(DRAFT)
        self.assertEqual(draft.digest, plan.digest, "signatures are beside it")
        self.assertTrue(draft.draft.startswith("0 of 2 approvals"), draft.draft)
        bare = load_plan(PLAN)
        self.assertEqual((bare.authors, bare.release, bare.approvals, bare.draft), ((), None, (), None))
        self.assertIsNone(bare.policy["approval"])

    def test_what_is_said_of_a_plan_is_no_edit_and_what_it_decides_is(self):
        def say(plan):
            plan["review"] = {"marks": [{"site": None}], "comments": []}
            plan["approvals"].pop()
            plan["draft"] = "1 of 2"

        plan = load_plan(self.edited(say))
        self.assertEqual((plan.digest, plan.draft), (load_plan(APPROVED).digest, "1 of 2"))
        for key, value in (("authors", ["Eve"]), ("release", 2), ("name", "x")):
            message = self.refused(self.edited(lambda plan: plan.update({key: value})))
            self.assertTrue(message.startswith("the plan was changed after it was made"), message)

    def test_a_draft_is_applied_only_when_asked_for(self):
        model = Ranker()
        with self.assertRaises(PlanError) as refused:
            loka.apply(model, DRAFT, emulate=True)
        message = str(refused.exception)
        self.assertRegex(message, r"^the plan is a draft \(0 of 2 approvals.*\): have it approved, or allow_draft=True: ")
        with self.assertRaises(PlanError):
            loka.resolved(model)
        # Dispatch alone chose, so that nothing here has to run in FP8.
        self.assertEqual(len(loka.apply(model, DRAFT, emulate=True, allow_draft=True).rows), 4)
        self.assertEqual(len(loka.apply(Ranker(), APPROVED, emulate=True).rows), 4)

    def test_a_mark_that_was_taken_off_is_missed(self):
        plan = load_plan(self.edited(lambda plan: plan.pop("draft"), DRAFT))
        self.assertEqual(plan.draft, "0 of 2 approvals")
        plan = load_plan(self.edited(lambda plan: plan["approvals"].pop()))
        self.assertEqual(plan.draft, "1 of 2 approvals")

    def test_what_cannot_be_is_refused(self):
        def first(change):
            return lambda plan: change(plan["approvals"][0])

        expected = "expected one of digest, review_digest, name, role, at, note, key, signature"
        for change, message in (
            (first(lambda of: of.update(extra=1)), f"not a plan: approvals[0]: unknown field 'extra', {expected}"),
            (first(lambda of: of.pop("signature")), "not a plan: approvals[0]: missing field 'signature'"),
            (first(lambda of: of.update(role="king")),
             "not a plan: approvals[0].role: unknown word 'king', expected one of viewer, reviewer, approver, owner"),
            (first(lambda of: of.update(at=1)), "not a plan: approvals[0].at is 1, it must be text"),
            (lambda plan: plan.update(approvals={}), "not a plan: approvals is an object, it must be an array"),
            (lambda plan: plan.update(review={}), "not a plan: review: missing field 'marks'"),
            (lambda plan: plan.update(draft=True), "not a plan: draft is a boolean, it must be text"),
        ):
            self.assertEqual(self.refused(self.edited(change)), message)
        for rule, message in (
            ({"approvers": 0}, "policy 'two': approval asks for 0 approvers, it must be 1 to 100"),
            ({"approvers": 2, "roles": []}, "policy 'two': approval names no role that may sign"),
            ({"approvers": 2, "own": 1}, "not a plan: policy.approval.own is 1, it must be true or false"),
            ({}, "not a plan: policy.approval: missing field 'approvers'"),
            ({"approvers": 1, "by": 2},
             "not a plan: policy.approval: unknown field 'by', expected one of approvers, roles, own"),
        ):
            self.assertEqual(self.refused(self.forged(lambda plan: plan["policy"].update(approval=rule))), message)
        self.assertEqual(
            self.refused(self.forged(lambda plan: plan.update(release=-1))),
            "not a plan: release is -1, it must be an integer of at least 0",
        )


if __name__ == "__main__":
    unittest.main()
