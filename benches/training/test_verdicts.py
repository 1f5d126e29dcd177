"""What the verdicts of `end_to_end.py` say of made-up stages: each bar, held and broken."""

import json
import math
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Optional

import verdicts

FP8, BF16 = "cublaslt/fp8-tensorwise+fast", "cublaslt/bf16"


def plan(kernels: List[str], saved_us: Optional[float] = None) -> Dict[str, Any]:
    """A plan with one site for each kernel, all its GEMMs alike."""
    sites = [{"site": f"s{index}", **{gemm: {"kernel": kernel, "error": {"rel_l2": 0.04}} for gemm in verdicts.GEMMS}}
             for index, kernel in enumerate(kernels)]  # fmt: skip
    totals = {"baseline_us": 3000.0, "planned_us": 2000.0}
    if saved_us is not None:
        totals["saved_us"] = saved_us
    return {"sites": sites, "totals": totals, "digest": "sha256:0"}


def runs(losses: List[Optional[float]]) -> Dict[str, Any]:
    """A quality file: the second half's loss of each seed, None where it diverged."""
    return {"runs": {str(seed): {"second_half": loss, "diverged_at": None if loss else 50}
                     for seed, loss in enumerate(losses)}}  # fmt: skip


def speed(bf16: float, planned: float) -> Dict[str, Any]:
    """A speed file of the policy `paper`, both kinds alike."""
    times = {"bf16": bf16, "paper": planned}
    ms = {arm: {kind: {"median": time} for kind in ("step", "dense")} for arm, time in times.items()}
    return {"ms": ms, "device": "a GPU"}


def gradients(wgrad: float, whole: float) -> Dict[str, Any]:
    """An apply file with one weight."""
    row = {"site": "s0", "wgrad": wgrad, "wgrad_predicted": 0.04, "whole": whole, "whole_predicted": 0.06}
    return {"policies": {"paper": {"fresh": {"rows": [row]}}}}


class Verdicts(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.here = self.folder / "dcnv2-fp32"
        self.here.mkdir()

    def row(self, **files: Any) -> Dict[str, Any]:
        """The row of `paper` with these files; `_` stands for `-` in their names."""
        files = {"paper.plan": plan([FP8, BF16]), **files}
        for name, value in files.items():
            (self.here / f"{name.replace('_', '-')}.json").write_text(json.dumps(value))
        row = verdicts.row_of(self.folder, "dcnv2", "fp32", "paper")
        assert row is not None
        return row

    def test_all_bars_hold(self) -> None:
        row = self.row(
            apply=gradients(0.05, 0.08), speed_paper=speed(10.0, 9.1), quality_bf16=runs([0.5, 0.51, 0.52]),
            quality_paper=runs([0.5001, 0.5099, 0.5201]),
        )  # fmt: skip
        self.assertEqual(row["verdict"], ["loss ok", "gradients ok", "saving ok"])
        self.assertEqual((row["fp8"], row["gemms"], row["promised_ms"]), (3, 6, 1.0))
        self.assertTrue(verdicts.table([row])[1].endswith("saving ok"))

    def test_each_bar_broken(self) -> None:
        row = self.row(
            apply=gradients(0.04, 1.0), speed_paper=speed(10.0, 10.2), quality_bf16=runs([0.5, 0.51, 0.52]),
            quality_paper=runs([0.6, 0.61, 0.62]),
        )  # fmt: skip
        told = "; ".join(row["verdict"])
        for said in ("LOSS WORSE", "GRADIENT 17x predicted (whole, fresh: s0)", "SLOWER (step, 2.0 %)", "SAVES -20 %"):
            self.assertIn(said, told)

    def test_a_gradient_that_is_no_number_is_the_worst(self) -> None:
        row = self.row(apply=gradients(math.nan, 0.05))
        self.assertIn("GRADIENT nanx predicted (wgrad, fresh: s0)", row["verdict"])

    def test_divergence_is_a_row(self) -> None:
        row = self.row(quality_bf16=runs([0.5, 0.51]), quality_paper=runs([0.5, None]))
        self.assertEqual(row["verdict"], ["DIVERGED in 1 of 2 seeds"])
        self.assertIn("diverged", verdicts.table([row])[1])

    def test_a_loss_that_leaps_is_told_of_and_not_averaged(self) -> None:
        calm, leapt = runs([0.5, 0.51]), runs([0.5, 0.6])
        for each in (calm, leapt):
            for run in each["runs"].values():
                run["losses"] = [0.69, 0.65, 0.62, 0.6, 0.58, 0.57, 0.6, 0.55]
        leapt["runs"]["1"]["losses"] = [0.69, 0.65, 0.62, 0.6, 0.58, 0.57, 0.98, 0.63]
        row = self.row(quality_bf16=calm, quality_paper=leapt)
        self.assertEqual(row["verdict"], ["LOSS LEAPS in 1 of 2 seeds, BF16's in 0"])

    def test_a_gain_is_no_loss_and_one_seed_proves_nothing(self) -> None:
        gain = self.row(quality_bf16=runs([0.5, 0.51]), quality_paper=runs([0.49, 0.501]))
        self.assertEqual(gain["verdict"], ["loss ok"])
        one = self.row(quality_bf16=runs([0.5]), quality_paper=runs([0.5]))
        self.assertEqual(one["verdict"], ["loss: one seed proves nothing"])

    def test_saved_us_goes_before_the_difference_of_totals(self) -> None:
        self.assertEqual(verdicts.promised_ms(plan([FP8], saved_us=250.0)), 0.25)
        self.assertIsNone(verdicts.promised_ms({"totals": {"baseline_us": None, "planned_us": None}}))

    def test_plans_of_the_same_choices_are_measured_once(self) -> None:
        self.row(**{"rel-l2.plan": plan([FP8, BF16]), "speed_paper": speed(10.0, 9.0)})
        row = verdicts.row_of(self.folder, "dcnv2", "fp32", "rel-l2")
        assert row is not None
        self.assertEqual((row["same_choices_as"], row["verdict"]), ("paper", ["saving ok"]))
        other = dict(plan([FP8, BF16]), runtime="graph")
        self.assertNotEqual(verdicts.choices_digest(other), verdicts.choices_digest(plan([FP8, BF16])))

    def test_a_refused_plan_and_one_without_fp8_are_rows(self) -> None:
        refused = self.row(apply={"policies": {"paper": {"fresh": {"error": "PlanError: no", "rows": []}}}})
        self.assertEqual(refused["verdict"], ["REFUSED (fresh): PlanError: no"])
        (self.here / "plan-paper.failed").write_text("no such policy\n")
        self.assertEqual(self.row()["verdict"], ["FAILED at plan-paper: no such policy"])
        (self.here / "plan-paper.failed").unlink()
        nothing = self.row(**{"paper.plan": plan([BF16])})
        self.assertEqual(nothing["verdict"], ["nothing in FP8: it is BF16"])

    def test_a_report_is_strict_json(self) -> None:
        json.dumps(verdicts.strict({"a": [math.inf, 1.0], "b": math.nan}), allow_nan=False)


if __name__ == "__main__":
    unittest.main()
