"""Takes a `*.plan.json`, gives the plan in it, read with every check that `loka` itself makes.

A plan that was edited, cut short, is of another version or says what cannot be is refused: what is trained with a
plan must be what its reviewer saw.
"""

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from ..catalogue import GEMMS
from ..file_kind import kind_of
from .canonical import canonical_json, digest_of, parse
from .error import PlanError, one_line
from .fields import Malformed, boolean, integer, items, number, one_of, record, text
from .show import plan_table, plan_text, summary

FORMAT = "loka-plan"
VERSION = 1

MAX_BYTES = 128 << 20
"""Larger files are not read: a plan of 10,000 sites has 16 MB."""

HIGH_PRECISION = ("cublaslt/tf32", "cublaslt/bf16", "pytorch/bf16")
METRICS = (
    "mere", "rel_l2", "sqnr_db", "median_rel", "max_abs", "block_rel_l2", "loss_cost", "noise_share", "bias",
)  # fmt: skip
MODS = ("block_norm", "hard_swish", "no_bias")
SOURCES = ("dispatch", "override")
FORMS = ("bf16", "e4m3")
PASSED_OVER = ("unsafe", "uncertain", "budget", "override", "runtime", "forward")
RUNTIMES = ("launched", "graph", "inference")
ROLES = ("viewer", "reviewer", "approver", "owner")

BESIDE = ("approvals", "digest", "draft", "review")
"""Keys that are not under the digest: what is said of a plan does not change it."""

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Choice:
    """The kernel of one GEMM (`library/recipe`), who chose it (`dispatch` or `override`), and why. `static_scale`: of a
    kernel whose left operand has a scale known beforehand; `saturation`: the probability that any element of a step is
    beyond it; `flushed`: the share of its left operand's nonzero elements that become zero; `rel_l2_lo`, `rel_l2_hi`: the
    interval of rel L2; `rel_l2_first`, `rel_l2_last`: of wgrad, rel L2 in the first recorded step and the median of the last five; `error`: metric -> what
    the probe measured of it."""

    kernel: str
    source: str
    reason: str
    speedup: Optional[float] = None
    static_scale: Optional[float] = None
    saturation: Optional[float] = None
    flushed: Optional[float] = None
    rel_l2_lo: Optional[float] = None
    rel_l2_hi: Optional[float] = None
    rel_l2_first: Optional[float] = None
    rel_l2_last: Optional[float] = None
    error: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Site:
    """One linear y[m, n] = x[m, k] W[n, k]^T. `m`, `k`, `n` are None in plans that do not carry them; `mods`
    are the model changes that its kernels were measured with; `calls`: how often it is called in a step, with `m` rows
    each; `never_runs`: GEMMs whose result nobody needs; `chain`: what its forward GEMM reads and stores, where
    either is codes (None: BF16); `forward`: the trace's word, where it is no plain nn.Linear's."""

    site: str
    fprop: Choice
    dgrad: Choice
    wgrad: Choice
    mods: Tuple[str, ...] = ()
    m: Optional[int] = None
    k: Optional[int] = None
    n: Optional[int] = None
    calls: int = 1
    never_runs: Tuple[str, ...] = ()
    chain: Optional[Mapping[str, Any]] = None
    forward: Optional[str] = None

    @property
    def choices(self) -> Tuple[Choice, Choice, Choice]:
        """In the order of `loka.catalogue.GEMMS`."""
        return self.fprop, self.dgrad, self.wgrad

    @property
    def kernels(self) -> Tuple[str, str, str]:
        return self.fprop.kernel, self.dgrad.kernel, self.wgrad.kernel


@dataclass(frozen=True, repr=False)
class Plan:
    """What a plan file holds. `mods`: site -> names of mods; `authors`: whoever decided something in it; `release`: the
    version as which it was submitted for approval; `approvals`: signatures, which `loka verify` checks and nothing here;
    `review`: what people said of it; `draft`: why it is no plan to train with yet, by its file or because its policy
    asks for more approvals than there are; `runtime`: where it was made to run ("launched", "graph" or "inference": a
    compiled training step launched kernel by kernel, replayed as a CUDA graph, or forward only); `device`: the type of GPU
    whose times it was made by, where one was chosen; `path`: where it was read."""

    name: str
    created_at: str
    model: Mapping[str, Any]
    trace_digest: str
    results_digest: str
    policy: Mapping[str, Any]
    mods: Mapping[str, Tuple[str, ...]]
    sites: Tuple[Site, ...]
    totals: Mapping[str, Any]
    digest: str
    authors: Tuple[str, ...] = ()
    release: Optional[int] = None
    approvals: Tuple[Mapping[str, Any], ...] = ()
    review: Optional[Mapping[str, Any]] = None
    draft: Optional[str] = None
    runtime: str = "launched"
    device: Optional[str] = None
    path: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"Plan({summary(self)}; print it for the table)"

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        return plan_table(self)


def load_plan(path: Path) -> Plan:
    """Reads a plan file. Raises PlanError, one line `cause: file`, where it cannot be read or trusted."""
    if not isinstance(path, (str, os.PathLike)):
        raise PlanError(f"expected a plan, or the path of its file, not a {type(path).__name__}")
    try:
        return _checked(parse(_read(path)), os.fspath(path))
    except OSError as error:
        cause = error.strerror or str(error)
    except Malformed as error:
        cause = str(error)
    except ValueError as error:
        kind = kind_of(path)
        # Of what begins as JSON it is where it ends to be JSON that helps.
        begins = kind in (None, "JSON") or (kind == "a text file" and not str(error).startswith("Expecting value"))
        cause = f"not a plan: {error if begins else f'it is {kind}'}"
    raise PlanError(one_line(f"{cause}: {os.fspath(path)}", limit=1000))


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None


def _checked(value: Any, path: str) -> Plan:
    """In the order in which the Rust side checks, so that both give the same cause."""
    top: Dict[str, Any] = value if isinstance(value, dict) else {}
    if top.get("format") != FORMAT:
        raise Malformed(f'not a plan: format is {_shown(top.get("format"))}, not "{FORMAT}"')
    if type(top.get("version")) is not int or top["version"] != VERSION:
        version = _shown(top.get("version"))
        raise Malformed(f"plan version {version} is not known (this program reads {VERSION})")
    content = digest_of({key: item for key, item in top.items() if key not in BESIDE})
    if top.get("digest") != content:
        found = _shown(top.get("digest"))
        raise Malformed(f"the plan was changed after it was made: its digest is {found}, its content's is {content}")
    plan = _plan(top, path)
    check_policy(plan.policy)
    seen = set()
    for site in plan.sites:
        if site.site in seen:
            raise Malformed(f"site '{one_line(site.site)}' is in the plan twice")
        seen.add(site.site)
    return plan


def _shown(value: Any) -> str:
    return one_line(canonical_json(value), limit=80)


_TOP = ("name", "created_at", "model", "trace_digest", "results_digest", "policy", "mods", "sites", "totals")


def _plan(top: Dict[str, Any], path: str) -> Plan:
    record(top, "", ("format", "version", *_TOP, "digest"), ("authors", "release", "approvals", "review", "draft", "runtime", "device"))
    mods = {site: _mods(names, f"mods of '{one_line(site)}'") for site, names in record(top["mods"], "mods").items()}
    sites = items(top["sites"], "sites")
    policy = _policy(top["policy"])
    signed = items(top.get("approvals", []), "approvals")
    approvals = tuple(_approval(item, f"approvals[{index}]") for index, item in enumerate(signed))
    return Plan(
        name=text(top["name"], "name"),
        created_at=text(top["created_at"], "created_at"),
        model=_model(top["model"]),
        trace_digest=text(top["trace_digest"], "trace_digest"),
        results_digest=text(top["results_digest"], "results_digest"),
        policy=policy,
        mods=mods,
        sites=tuple(_site(site, f"sites[{index}]", mods) for index, site in enumerate(sites)),
        totals=_totals(top["totals"]),
        digest=top["digest"],
        authors=tuple(text(name, "authors") for name in items(top.get("authors", []), "authors")),
        release=_unless_null(integer, top.get("release"), "release"),
        approvals=approvals,
        review=_unless_null(_review, top.get("review"), "review"),
        draft=_draft(_unless_null(text, top.get("draft"), "draft"), policy, len(approvals)),
        runtime=one_of(top.get("runtime", "launched"), "runtime", RUNTIMES),
        device=_unless_null(text, top.get("device"), "device"),
        path=path,
    )


def _unless_null(read: Callable[[Any, str], Any], value: Any, where: str) -> Any:
    return None if value is None else read(value, where)


_SIGNED = ("digest", "review_digest", "name", "role", "at", "note", "key", "signature")


def _approval(value: Any, where: str) -> Dict[str, Any]:
    fields = record(value, where, _SIGNED)
    for key in _SIGNED:
        text(fields[key], f"{where}.{key}")
    one_of(fields["role"], f"{where}.role", ROLES)
    return fields


def _review(value: Any, where: str) -> Dict[str, Any]:
    review = record(value, where, ("marks", "comments"), open=True)
    for key in ("marks", "comments"):
        for index, item in enumerate(items(review[key], f"{where}.{key}")):
            record(item, f"{where}.{key}[{index}]")
    return review


def _draft(said: Optional[str], policy: Mapping[str, Any], num_approvals: int) -> Optional[str]:
    """What the file says, or what it no longer says: the mark is under no digest, the policy is."""
    rule = policy["approval"]
    if said is None and rule is not None and num_approvals < rule["approvers"]:
        return f"{num_approvals} of {rule['approvers']} approvals"
    return said


def _mods(value: Any, where: str) -> Tuple[str, ...]:
    return tuple(sorted({one_of(name, where, MODS) for name in items(value, where)}))


def _model(value: Any) -> Dict[str, Any]:
    model = record(value, "model", ("name",), open=True)
    for key in ("name", "family", "framework"):
        text(model.get(key, ""), f"model.{key}")
    if model.get("note") is not None:
        text(model["note"], "model.note")
    integer(model.get("parameters", 0), "model.parameters")
    return model


def _site(value: Any, where: str, mods: Mapping[str, Tuple[str, ...]]) -> Site:
    fields = record(value, where, ("site", *GEMMS), ("m", "k", "n", "calls", "never_runs", "forward", "chain"))
    forward = _unless_null(text, fields.get("forward"), f"{where}.forward")
    name = text(fields["site"], f"{where}.site")
    fprop, dgrad, wgrad = (_choice(fields[gemm], f"{where}.{gemm}") for gemm in GEMMS)
    m, k, n = (None if fields.get(key) is None else integer(fields[key], f"{where}.{key}") for key in ("m", "k", "n"))
    calls = integer(fields.get("calls", 1), f"{where}.calls")
    never = tuple(one_of(gemm, f"{where}.never_runs", GEMMS) for gemm in items(fields.get("never_runs", []), f"{where}.never_runs"))
    chain = _unless_null(_chain, fields.get("chain"), f"{where}.chain")
    return Site(name, fprop, dgrad, wgrad, mods.get(name, ()), m, k, n, calls, never, chain, forward)


def _chain(value: Any, where: str) -> Dict[str, Any]:
    chain = record(value, where, ("reads", "stores", "saved_us"), ("from", "store_scale"))
    one_of(chain["reads"], f"{where}.reads", FORMS)
    for form in items(chain["stores"], f"{where}.stores"):
        one_of(form, f"{where}.stores", FORMS)
    _unless_null(text, chain.get("from"), f"{where}.from")
    _unless_null(number, chain.get("store_scale"), f"{where}.store_scale")
    number(chain["saved_us"], f"{where}.saved_us")
    return chain


def _choice(value: Any, where: str) -> Choice:
    numbers = ("speedup", "static_scale", "saturation", "flushed", "rel_l2_lo", "rel_l2_hi", "rel_l2_first", "rel_l2_last")
    fields = record(value, where, ("kernel", "source", "reason", "error", "runners_up"), (*numbers, "passed_over"))
    for metric, error in record(fields["error"], f"{where}.error").items():
        number(error, f"{where}.error.{one_of(metric, f'{where}.error', METRICS)}")
    for kernel in items(fields["runners_up"], f"{where}.runners_up"):
        text(kernel, f"{where}.runners_up")
    for cause in record(fields.get("passed_over", {}), f"{where}.passed_over").values():
        one_of(cause, f"{where}.passed_over", PASSED_OVER)
    return Choice(
        kernel=text(fields["kernel"], f"{where}.kernel"),
        source=one_of(fields["source"], f"{where}.source", SOURCES),
        reason=text(fields["reason"], f"{where}.reason"),
        **{key: _unless_null(number, fields.get(key), f"{where}.{key}") for key in numbers},
        error=dict(fields["error"]),
    )


def _totals(value: Any) -> Dict[str, Any]:
    counts = ("num_gemms", "num_without_latency")
    sites = ("measured_sites", "modelled_sites", "num_cost_out_of_range")
    unknowable = ("speedup", "loss_cost", "loss_cost_hi")
    optional = (*unknowable, "handed_on_us", "saved_us", *sites)
    totals = record(value, "totals", ("baseline_us", "planned_us", *counts), optional)
    for key, item in totals.items():
        if key in counts + sites:
            integer(item, f"totals.{key}")
        elif item is not None or key not in unknowable:
            number(item, f"totals.{key}")
    return totals


def _policy(value: Any) -> Dict[str, Any]:
    required = ("name", "metric", "max_error")
    optional = ("min_speedup", "confidence", "loss_budget", "max_bias", "baseline", "approval", "groups")
    policy = record(value, "policy", required, optional)
    policy = {"min_speedup": 1.05, "confidence": 0.95, "loss_budget": None, "baseline": "cublaslt/bf16", **policy}
    policy["approval"] = _unless_null(_rule, policy.get("approval"), "policy.approval")
    text(policy["name"], "policy.name")
    text(policy["baseline"], "policy.baseline")
    one_of(policy["metric"], "policy.metric", METRICS)
    for key in ("max_error", "min_speedup", "confidence"):
        number(policy[key], f"policy.{key}")
    for key in ("loss_budget", "max_bias"):
        _unless_null(number, policy.get(key), f"policy.{key}")
    for index, group in enumerate(items(policy.get("groups", []), "policy.groups")):
        fields = record(group, f"policy.groups[{index}]", ("sites", "max_error"))
        text(fields["sites"], f"policy.groups[{index}].sites")
        number(fields["max_error"], f"policy.groups[{index}].max_error")
    return policy


def _rule(value: Any, where: str) -> Dict[str, Any]:
    rule = {"roles": ["approver", "owner"], "own": False, **record(value, where, ("approvers",), ("roles", "own"))}
    integer(rule["approvers"], f"{where}.approvers")
    for role in items(rule["roles"], f"{where}.roles"):
        one_of(role, f"{where}.roles", ROLES)
    boolean(rule["own"], f"{where}.own")
    return rule


def check_policy(policy: Mapping[str, Any]) -> None:
    """What no policy may say. Raises ValueError."""
    name = one_line(policy["name"])
    for key in ("max_error", "min_speedup", "loss_budget", "max_bias"):
        if (value := policy.get(key)) is not None and value < 0:
            raise Malformed(f"policy '{name}': {key} is {value:g}, it must be a number of at least 0")
    if not 0 < policy["confidence"] < 1:
        raise Malformed(f"policy '{name}': confidence is {policy['confidence']:g}, it must be between 0 and 1")
    if not policy["name"].strip():
        raise Malformed(f"policy '{name}': the name is empty")
    _check_rule(name, policy["approval"])
    if policy["baseline"] not in HIGH_PRECISION:
        raise Malformed(f"policy '{name}': the baseline '{one_line(policy['baseline'])}' is not in high precision")


def _check_rule(name: str, rule: Optional[Mapping[str, Any]]) -> None:
    if rule is None:
        return
    if not 1 <= rule["approvers"] <= 100:
        raise Malformed(f"policy '{name}': approval asks for {rule['approvers']} approvers, it must be 1 to 100")
    if not rule["roles"]:
        raise Malformed(f"policy '{name}': approval names no role that may sign")


__all__ = ["BESIDE", "Choice", "HIGH_PRECISION", "MAX_BYTES", "Plan", "Site", "load_plan"]
