"""Takes a plan, gives it in a line, and as a table for a notebook."""

from typing import TYPE_CHECKING, Tuple

from ..catalogue import GEMMS
from ..tables import html_table
from .error import one_line
from .precision import fp8_gemms

if TYPE_CHECKING:
    from .document import Plan, Site


def summary(plan: "Plan") -> str:
    """Name, size, policy, what it promises, and whether it is one to train with."""
    num_fp8 = sum(sum(fp8_gemms(site.kernels)) for site in plan.sites)
    speedup = plan.totals.get("speedup")
    parts = [
        f"'{one_line(plan.name)}' {plan.digest[:19]}",
        f"{num_fp8} of {3 * len(plan.sites)} GEMMs of {len(plan.sites)} sites in FP8",
        f"policy '{one_line(plan.policy['name'])}', {plan.runtime}",
        "speed-up unknown" if speedup is None else f"{speedup:.2f}x BF16",
    ]
    return ", ".join(parts) + ("" if plan.draft is None else f", a draft: {one_line(plan.draft)}")


def plan_table(plan: "Plan") -> str:
    """A row a site, as `loka plan` prints them."""
    head = ("site", "m", "k", "n", *GEMMS, "mods")
    return html_table(f"plan {summary(plan)}", head, [_row(site) for site in plan.sites], numbers=(1, 2, 3))


def _row(site: "Site") -> Tuple[str, ...]:
    sizes = ("?" if size is None else str(size) for size in (site.m, site.k, site.n))
    kernels = (
        one_line(choice.kernel)
        + (" (override)" if choice.source == "override" else "")
        + (f" {choice.speedup:.2f}x" if choice.speedup is not None else "")
        for choice in site.choices
    )
    return (one_line(site.site), *sizes, *kernels, ", ".join(site.mods))


__all__ = ["plan_table", "summary"]
