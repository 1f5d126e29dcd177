"""Takes what a checked step saw of each FP8 GEMM and what the plan predicted of it; gives a verdict, and the table of
them: `loka.health(model)`.

Plain numbers in, plain data out: devices, files, ranks and the clock are in `canary`.
"""

import html
import json
import math
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..kernels import KERNELS, numerics
from .document import Choice
from .error import one_line

FACTOR, MARGIN = 1.5, 0.01
"""A relative L2 error is off above FACTOR times the upper end of the predicted one's interval, plus MARGIN. Probe draws operands from recorded
statistics; training's own differ from these as weights and data move, and 1.5 is what a plan is held to elsewhere. The
margin is for errors near BF16's own rounding (.002), of which any factor is small, and for the noise of few rows."""

ROUNDING = {"e4m3": 0.0256, "e5m2": 0.0511, "bf16": 0.0017, "tf32": 0.0002}
"""Root mean square relative error of rounding to nearest, over mantissas that are spread log-uniformly."""

ROUNDING_SLACK = 1.2
"""Both operands' rounding, times this, is what FP8 does to centred data at best (E5M2 x E4M3: .069): no kernel is at
fault for it. A plan may predict less, from inputs whose means are large, which a model at its first step has not."""

FEW_VALUES_SLACK = 2.0
"""The same of wgrad, which sums over rows: of few distinct sizes, as in the gradient that a classifier begins with (a column of
dy has one of a click and one of none), rounding does not average out, and what is left of clicks less none has all of it.
A mixture of experts had .054 in its first step on an H200 (.044 without the accumulation of tensor cores), and trained as
BF16 does."""

UNPREDICTED = 0.15
"""Above this a relative L2 error is off where the plan has no prediction of it: twice what E5M2's rounding makes."""

FLUSHED_MARGIN, UNPREDICTED_FLUSHED = 0.05, 0.25
"""How much more of an operand may become zero than predicted, and how much where that is not known."""

HARMLESS_FLUSHED, HARMLESS_MASS = 0.5, 0.02
"""How much of it may where the error is that of rounding: gradients grow long tails near zero as a model learns, whose
products are too small to be missed (14 % of dy after 200 steps of a small ranker, at the error of the first step). More than half
may where all of it together is no more than this share of the operand's magnitudes: then no sum over it misses more than that,
in whatever direction the elements lie. So it is with examples that a model knows by heart."""

LOST = 0.25
"""What share of a weight's gradient may become zero that is not zero in BF16: hardly any of its length, and yet so many
parameters that Adam, which divides by what each had so far, would have moved as far as the others."""

SATURATED = 1e-3
"""How much of an operand with a scale known beforehand may lie beyond the format's largest value."""

OVERFLOWED, FEWEST = 0.01, 3
"""In what share of the steps since the last check, and in how many, the largest value of an operand may lie beyond a scale that
follows it. The recorder's scales leave one step in a thousand; rankers had one in three hundred at most, 1.3 times too large, of
all their tensors together (docs/concepts/method.md)."""

FAR = 8.0
"""How many times what its scale held an operand may be in a single step. The scale leaves room for two to four times the largest
value of late: the operand has leapt by sixteen, which no step of a healthy run does."""

LEFT = {"fprop": "x", "dgrad": "dy", "wgrad": "dy"}
"""The left operand of each GEMM, whose codes are counted."""


class Predicted(NamedTuple):
    """What a plan says of one GEMM, None where it does not say. `rel_l2`: relative L2 error of its output, of wgrad the
    largest of any time in training; `flushed`: share of its left operand's nonzero elements that become zero; `interval`: of `rel_l2`."""

    rel_l2: Optional[float] = None
    flushed: Optional[float] = None
    interval: Tuple[Optional[float], Optional[float]] = (None, None)

    @property
    def at_most(self) -> Optional[float]:
        """What `rel_l2` may be."""
        ends = [end for end in (self.rel_l2, self.interval[1]) if end is not None]
        return max(ends, default=None)


def predicted_of(choice: Choice) -> Predicted:
    """The signal-to-noise ratio is the same number otherwise written; other metrics say nothing of relative L2. That of
    wgrad depends on how much of the gradient is noise: a step may be like the first one, the last ones, or their mean."""
    rel_l2, sqnr_db = choice.error.get("rel_l2"), choice.error.get("sqnr_db")
    if rel_l2 is None and sqnr_db is not None:
        rel_l2 = 10 ** (-sqnr_db / 20)
    by_time = [value for value in (rel_l2, choice.rel_l2_first, choice.rel_l2_last) if value is not None]
    most = max(by_time, default=None)
    # Of what was drawn, and of nothing else that it may be.
    interval = (choice.rel_l2_lo, choice.rel_l2_hi) if most == rel_l2 else (None, None)
    return Predicted(most, choice.flushed, interval)


class Seen(NamedTuple):
    """The sums of one GEMM over a checked step, in the order of `kernels.watch.FIELDS`."""

    squared_errors: float
    squares: float
    beyond: float
    became_zero: float
    mass_became_zero: float
    nonzero: float
    mass: float
    elements: float
    not_finite: float
    answers: float
    lost_answers: float
    calls: float
    rows: float = 0.0

    @property
    def rel_l2(self) -> float:
        if self.squares == 0:
            return 0.0 if self.squared_errors == 0 else math.inf
        return math.sqrt(self.squared_errors / self.squares)

    @property
    def saturated(self) -> float:
        return _share(self.beyond, self.elements)

    @property
    def flushed(self) -> float:
        return _share(self.became_zero, self.nonzero)

    @property
    def flushed_mass(self) -> float:
        return _share(self.mass_became_zero, self.mass)

    @property
    def lost(self) -> float:
        return _share(self.lost_answers, self.answers)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


class Beyond(NamedTuple):
    """Steps since the last check in which the left operand's largest value lay beyond a scale that follows it: its codes
    saturated. `of`: how many steps there were; `most`: the farthest, as a multiple of what the scale held."""

    steps: int = 0
    of: int = 0
    most: float = 0.0

    @property
    def severity(self) -> float:
        often = self.steps / self.of / OVERFLOWED if self.of and self.steps >= FEWEST else 0.0
        return max(often, self.most / FAR)

    def in_words(self, gemm: str) -> str:
        many = f"{self.steps} of the last {self.of} steps" if self.of > 1 else "the last step"
        return f"{LEFT[gemm]} was beyond its scale in {many}, {short(self.most)} times at most"


class Verdict(NamedTuple):
    """`word`: "ok"; "above" (more than predicted, no more than FP8's rounding makes); "off"; "unclear" (BF16's own
    result is not finite, or the first step's x lay beyond a scale that follows it); "not run". `why`: in words. `severity`: how
    many times its limit the worst number is."""

    word: str
    why: str = ""
    severity: float = 0.0


def judge(kernel: str, gemm: str, predicted: Predicted, seen: Seen, beyond: Beyond = Beyond()) -> Verdict:
    """Holds what was seen of one GEMM against what was predicted; and what no check saw, the steps between two."""
    verdict = _judge(kernel, gemm, predicted, seen)
    if not beyond.steps or verdict.word not in ("ok", "above", "off"):
        return verdict
    why = "; ".join(filter(None, (verdict.why, beyond.in_words(gemm))))
    word = "off" if beyond.severity > 1 else verdict.word
    return Verdict(word, why, max(verdict.severity, beyond.severity))


def _judge(kernel: str, gemm: str, predicted: Predicted, seen: Seen) -> Verdict:
    if seen.calls == 0:
        return Verdict("not run")
    if not math.isfinite(seen.squares):
        return Verdict("unclear", "BF16's result is not finite either")
    if seen.not_finite or not math.isfinite(seen.squared_errors):
        return Verdict("off", f"{seen.not_finite:.0f} sampled outputs are not finite, BF16's are", math.inf)
    if seen.squares == 0 and seen.squared_errors == 0:
        # Right, and no proof: of a sequence of which only the last position is read, say.
        return Verdict("ok", "every sampled output is zero, which says little")
    rounding = _rounding(kernel, gemm)
    at_most = rounding * (FEW_VALUES_SLACK if gemm == "wgrad" else ROUNDING_SLACK)
    promised = UNPREDICTED if predicted.at_most is None else FACTOR * predicted.at_most + MARGIN
    harmless = seen.rel_l2 <= ROUNDING_SLACK * rounding
    # A gradient of one magnitude, as a mean loss begins with, may lie just beyond whole, and lose next to nothing.
    saturated = 0.0 if harmless else seen.saturated
    flushed_limit = max(_flushed_limit(predicted), HARMLESS_FLUSHED if harmless else 0.0)
    is_tail = harmless and seen.flushed_mass <= HARMLESS_MASS
    flushed = 0.0 if is_tail else seen.flushed / flushed_limit
    lost = seen.lost / LOST if gemm == "wgrad" else 0.0
    severity = max(seen.rel_l2 / max(promised, at_most), flushed, saturated / SATURATED, lost)
    if severity > 1:
        return Verdict("off", _in_words(gemm, predicted, seen), severity)
    is_above = seen.rel_l2 > promised
    said = [_error_text(predicted, seen)] if is_above else []
    if seen.flushed > flushed_limit:
        said.append(f"{_zero_text(gemm, seen)}, {percent(seen.flushed_mass)} of its magnitude")
    return Verdict("above" if is_above else "ok", "; ".join(said))


def _rounding(kernel: str, gemm: str) -> float:
    """Relative L2 that rounding both operands makes of centred data."""
    if kernel not in KERNELS:
        return 0.0
    how = numerics(kernel, gemm)
    return math.hypot(ROUNDING.get(how.a.format, 0.0), ROUNDING.get(how.b.format, 0.0))


def _flushed_limit(predicted: Predicted) -> float:
    return UNPREDICTED_FLUSHED if predicted.flushed is None else predicted.flushed + FLUSHED_MARGIN


def _in_words(gemm: str, predicted: Predicted, seen: Seen) -> str:
    """The error, and what may have caused it."""
    said = [_error_text(predicted, seen)]
    if seen.flushed > FLUSHED_MARGIN:
        said.append(_zero_text(gemm, seen))
    if gemm == "wgrad" and seen.lost > FLUSHED_MARGIN:
        said.append(f"{percent(seen.lost)} of the gradient became zero")
    if seen.saturated > SATURATED:
        said.append(f"{percent(seen.saturated)} of {LEFT[gemm]} saturates")
    return "; ".join(said)


def _zero_text(gemm: str, seen: Seen) -> str:
    return f"{percent(seen.flushed)} of {LEFT[gemm]} became zero"


def _error_text(predicted: Predicted, seen: Seen) -> str:
    promised = "none" if predicted.rel_l2 is None else interval_text(predicted.rel_l2, predicted.interval)
    return f"rel L2 {short(seen.rel_l2)} seen, {promised} predicted"


@dataclass(frozen=True)
class HealthRow:
    """One FP8 GEMM as it was when it was last checked; None for what was not seen. `kernel`: that was checked.
    `predicted`, `seen`: relative L2 error, `predicted_lo` and `predicted_hi` the interval of the first; `saturated`, `flushed`: shares of the left operand's elements; `step`: from
    0, since the plan was applied; `time`: UTC; `verdict`: see `Verdict`, or "not checked"; `note`: why, and what was
    done; `overflow_steps`: since the check before, in which the left operand was beyond a scale that follows it."""

    site: str
    gemm: str
    kernel: str
    predicted: Optional[float]
    seen: Optional[float] = None
    saturated: Optional[float] = None
    flushed: Optional[float] = None
    step: Optional[int] = None
    time: Optional[str] = None
    verdict: str = "not checked"
    note: str = ""
    overflow_steps: Optional[int] = None
    predicted_lo: Optional[float] = None
    predicted_hi: Optional[float] = None


@dataclass(frozen=True, repr=False)
class Health:
    """What every FP8 GEMM of a model was when it was last checked. `print` it. `steps`: that have ended since the plan
    was applied; `notes`: what keeps a model from being checked."""

    plan: str
    digest: str
    rank: int
    steps: int
    rows: Tuple[HealthRow, ...]
    notes: Tuple[str, ...] = ()

    @property
    def off(self) -> Tuple[HealthRow, ...]:
        """The GEMMs that are not as the plan predicted."""
        return tuple(row for row in self.rows if row.verdict == "off")

    def to_json_lines(self) -> str:
        """A line for each GEMM, as `health_log` has them."""
        return json_lines(self.rows, self.digest, self.rank)

    def __repr__(self) -> str:
        return f"Health(plan '{one_line(self.plan)}', {len(self.rows)} FP8 GEMMs, {len(self.off)} off; print it for the table)"

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        rows = "".join(_html_row("td", _cells(row)) for row in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<p>{html.escape(_title(self))}</p><table>{_html_row('th', _HEAD)}{rows}</table>{notes}"


def json_lines(rows: Sequence[HealthRow], digest: str, rank: int) -> str:
    """One JSON object a row; what is no number in JSON (an infinite error) is null, and the note says it."""
    return "".join(json.dumps(_json(row, digest, rank), ensure_ascii=False) + "\n" for row in rows)


def _json(row: HealthRow, digest: str, rank: int) -> Dict[str, Any]:
    found: Dict[str, Any] = {"time": row.time, "step": row.step, "rank": rank, "plan": digest}
    for key in ("site", "gemm", "kernel", "predicted", "predicted_lo", "predicted_hi", "seen", "saturated", "flushed", "overflow_steps", "verdict", "note"):
        value = getattr(row, key)
        found[key] = None if isinstance(value, float) and not math.isfinite(value) else value
    return found


_HEAD = ("site", "GEMM", "kernel", "predicted", "seen", "saturated", "flushed", "step", "verdict")
_NUMBERS = range(3, 8)
"""The columns of numbers, aligned to the right."""


def _title(health: Health) -> str:
    plan = f"plan '{one_line(health.plan)}' {health.digest[:19]}"
    return f"health of {plan}, rank {health.rank}, after {health.steps} steps"


def _lines(health: Health) -> Iterator[str]:
    yield _title(health)
    table = [_HEAD, *(_cells(row) for row in health.rows)]
    widths = [max(map(len, cells)) for cells in zip(*table)]
    for line in table:
        sides = (">" if column in _NUMBERS else "<" for column in range(len(line)))
        yield "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths)).rstrip()
    yield from health.notes
    checked = sum(row.verdict not in ("not checked", "not run") for row in health.rows)
    above = sum(row.verdict == "above" for row in health.rows)
    harmless = f", {above} above: more error than predicted, no more than FP8's rounding makes" if above else ""
    yield f"{checked} of {len(health.rows)} FP8 GEMMs checked, {len(health.off)} off{harmless}"


def _cells(row: HealthRow) -> Tuple[str, ...]:
    predicted = interval_text(row.predicted, (row.predicted_lo, row.predicted_hi))
    numbers: List[str] = [predicted, short(row.seen), percent(row.saturated), percent(row.flushed)]
    step = "-" if row.step is None else str(row.step)
    verdict = f"{row.verdict}: {row.note}" if row.note else row.verdict
    return (one_line(row.site), row.gemm, row.kernel, *numbers, step, one_line(verdict))


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def interval_text(value: Optional[float], interval: Tuple[Optional[float], Optional[float]]) -> str:
    """With the ends, where they are another number to two digits."""
    lo, hi = map(short, interval)
    known = None not in interval and (lo, hi) != (short(value), short(value))
    return f"{short(value)} ({lo} to {hi})" if known else short(value)


def short(value: Optional[float], digits: int = 2) -> str:
    """So many digits, without the zero before the point."""
    if value is None:
        return "-"
    text = f"{value:.{digits}g}"
    return text[1:] if text.startswith("0.") else text


def percent(share: Optional[float]) -> str:
    return "-" if share is None else f"{short(100 * share, 3)} %"


__all__ = [
    "Beyond", "Health", "HealthRow", "LEFT", "Predicted", "Seen", "Verdict", "interval_text", "json_lines", "judge", "percent", "predicted_of",
    "short",
]
