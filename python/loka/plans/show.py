"""Takes a plan, gives it in a line, and as a table for a notebook."""

import collections
from typing import TYPE_CHECKING, List, Tuple

from ..catalogue import GEMMS
from ..tables import html_table, text_table
from .error import one_line
from .precision import fp8_gemms

if TYPE_CHECKING:
    from .document import Plan, Site


def summary(plan: "Plan") -> str:
    """Name, size, policy, what it promises, and whether it is one to train with."""
    num_fp8 = sum(sum(fp8_gemms(site.kernels)) for site in plan.sites)
    # Those that run: a first layer, say, has no dgrad.
    num_gemms = plan.totals.get("num_gemms") or 3 * len(plan.sites)
    speedup = plan.totals.get("speedup")
    parts = [
        f"'{one_line(plan.name)}' {plan.digest[:19]}",
        f"{num_fp8} of {num_gemms} GEMMs of {len(plan.sites)} sites in FP8",
        f"policy '{one_line(plan.policy['name'])}', {plan.runtime}" + ("" if plan.device is None else f" on {one_line(plan.device)}"),
        "speed-up unknown" if speedup is None else f"{speedup:.2f}x BF16",
    ]
    return ", ".join(parts) + ("" if plan.draft is None else f", a draft: {one_line(plan.draft)}")


HEAD = ("site", "m", "k", "n", *GEMMS, "mods")


def plan_table(plan: "Plan") -> str:
    """A row a site, as `loka plan` prints them, and why the rest is in high precision, for a notebook."""
    rows = [_row(site) for site in plan.sites]
    return html_table(f"plan {summary(plan)}", HEAD, rows, _why_high(plan), numbers=(1, 2, 3))


def plan_text(plan: "Plan") -> str:
    """The same, for a terminal."""
    rows = [HEAD, *(_row(site) for site in plan.sites)]
    return "\n".join([f"plan {summary(plan)}", *text_table(rows, numbers=(1, 2, 3)), *_why_high(plan)])


def _why_high(plan: "Plan") -> List[str]:
    """How many GEMMs stay in high precision for each reason, most first. Numbers that a reason ends in are each GEMM's own."""
    reasons: "collections.Counter[str]" = collections.Counter()
    for site in plan.sites:
        for choice, low in zip(site.choices, fp8_gemms(site.kernels)):
            if not low:
                reason = one_line(choice.reason).removeprefix("high precision: ")
                reasons[reason.partition(";")[0].partition(" (")[0]] += 1
    return [f"in high precision: {count} x {reason}" for reason, count in reasons.most_common()]


def _row(site: "Site") -> Tuple[str, ...]:
    sizes = ("?" if size is None else str(size) for size in (site.m, site.k, site.n))
    kernels = (
        one_line(choice.kernel)
        + (" (override)" if choice.source == "override" else "")
        + (f" {choice.speedup:.2f}x" if choice.speedup is not None else "")
        for choice in site.choices
    )
    return (one_line(site.site), *sizes, *kernels, ", ".join(site.mods))


__all__ = ["plan_table", "plan_text", "summary"]
