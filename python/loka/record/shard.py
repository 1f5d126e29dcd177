"""Takes a snapshot on the host; gives the tensors and the manifest of a trace file (format v1), in FP64 until stored.

Runs on the writer's thread. What cannot be told honestly is left out and named in the manifest:
`left_out` (site: reason), `never_ran` (sites), and per site `skipped_steps`.
"""

import json
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from loka.record import magnitudes, noise
from loka.record.columns import hist_bins
from loka.record.cross import factors
from loka.record.moments import AMAX, COUNT, HIST_BINS, QUANTILE_ROWS_SEEN, SKIPPED
from loka.record.options import QUANTILE_PROBS, Options
from loka.record.sketch import from_covariance, from_sketch, test_matrix
from loka.record.snapshot import SiteCopy, Snapshot
from loka.record.weights import low_rank
from loka.record.writer import Content

_WEIGHT_CHUNK = 1 << 22
"""Values of a weight binned at a time: a large layer's indices would be eight times its size."""


def make(snapshot: Snapshot) -> Tuple[Content, List[str]]:
    """The file's content, and what its reader should be told of, one line each."""
    snapshot.copies.wait()
    tensors: Dict[str, Tensor] = {}
    notes: List[str] = []
    sites: List[Dict[str, Any]] = []
    left_out: Dict[str, str] = {}
    for site in snapshot.sites:
        name = site.entry["id"]
        found, reason = _site(site, snapshot, notes)
        if reason:
            left_out[name] = reason
            notes.append(f"{name} is left out: {reason}")
            continue
        sites.append(site.entry)
        tensors.update({f"{name}/{part}": value.contiguous() for part, value in found.items()})
    manifest = {**snapshot.manifest, "quantile_probs": list(QUANTILE_PROBS), "sites": _checked_feeds(sites, notes)}
    manifest["loss"] = _loss(snapshot, notes)
    if snapshot.loss_weight is not None:
        manifest["loss"]["weight"] = snapshot.loss_weight
    if left_out:
        manifest["left_out"] = left_out
    return (tensors, {"loka.trace": json.dumps(manifest)}), notes


def _site(site: SiteCopy, snapshot: Snapshot, notes: List[str]) -> Tuple[Dict[str, Tensor], Optional[str]]:
    name, options = site.entry["id"], snapshot.options
    skipped = int(site.moments["input"]["counters"][SKIPPED])
    if skipped:
        site.entry["skipped_steps"] = skipped
        notes.append(f"{name}: {skipped} calls had a value that is not finite and are not in the statistics")
    if site.moments["input"]["counters"][COUNT] < 2:
        return {}, "fewer than two finite rows"
    tensors: Dict[str, Tensor] = {}
    for part, state in site.moments.items():
        if state["counters"][COUNT] >= 2:
            tensors.update({f"{part}.{key}": value for key, value in _distribution(state, options).items()})
    counts = [tensors[key] for key in ("input.count", "grad_output.count") if key in tensors]
    # Only if every row of one has its row in the other are the means those of the products too.
    if site.cross and len(counts) == 2 and torch.equal(*counts):
        tensors.update(_cross(site, int(counts[0]) - 1, options))
    if site.noise is not None:
        moments = noise.tensors(site.noise, site.missed)
        tensors.update(moments)
        # Of a gradient whose noise is not known there is nothing to weigh.
        if moments and site.magnitudes is not None:
            tensors.update(magnitudes.tensors(site.magnitudes, site.noise, site.missed))
    samples = {key: value for key, value in site.tensors.items() if key.startswith("sample.")}
    whole = bool(samples) and all(bool(torch.isfinite(value).all()) for value in samples.values())
    tensors.update({key: value for key, value in site.tensors.items() if key not in samples or whole})
    tensors.update(_weight_summary(site.tensors, name, notes))
    # Only where it is the smaller one, and never of what is not finite: that a reader has to see.
    if options.weights == "low_rank" and "weight.amax" in tensors and "weight" in tensors:
        n, k = tensors["weight"].shape
        if options.rank * (n + k) < n * k:
            tensors.update(low_rank(tensors.pop("weight"), options.rank, options.oversample, options.seed))
    if snapshot.steps:
        tensors["series.step"] = torch.tensor(snapshot.steps, dtype=torch.int64)
        tensors.update({f"series.{key}": value for key, value in site.series.items()})
    return tensors, None


def _distribution(state: Dict[str, Tensor], options: Options) -> Dict[str, Tensor]:
    counters = state["counters"]
    tensors = {
        "count": counters[COUNT : COUNT + 1].round().long(),
        "mean": state["mean"],
        "hist": state["hist"],
        "amax": counters[AMAX : AMAX + 1].float(),
    }
    if counters[QUANTILE_ROWS_SEEN] > 0:
        tensors["quantiles"] = (state["quantile_sum"] / counters[QUANTILE_ROWS_SEEN]).float()
    tensors.update(_covariance(state, options))
    return tensors


def _covariance(state: Dict[str, Tensor], options: Options) -> Dict[str, Tensor]:
    features, freedom = len(state["mean"]), state["counters"][COUNT] - 1
    variance = state["square"].clamp(min=0.0) / freedom
    scatter = state["scatter"].double() / freedom
    rank = min(options.rank, features)
    if options.sketched(features):
        omega = test_matrix(features, scatter.shape[1], options.seed)
        factor, diag = from_sketch(scatter, omega, variance, rank, torch.finfo(state["scatter"].dtype).eps)
    else:
        cov = 0.5 * (scatter + scatter.T)
        # The sums of squares are kept in FP64 on any device.
        cov.diagonal().copy_(variance)
        if not options.factored(features):
            return {"cov": cov.float()}
        factor, diag = from_covariance(cov, rank)
    return {"cov_factor": factor.float(), "cov_diag": diag.float()}


def _cross(site: SiteCopy, freedom: int, options: Options) -> Dict[str, Tensor]:
    """The covariance of output gradient with input: whole where that was asked for, else its leading part."""
    if options.crossed(site.entry["n"], site.entry["k"]):
        return {"cross_cov": (site.cross["whole"].double() / freedom).float()}
    found = factors(site.cross, options.cross_rank, options.seed)
    return {name: (value / freedom**0.5).float() for name, value in found.items()}


def _weight_summary(tensors: Dict[str, Tensor], name: str, notes: List[str]) -> Dict[str, Tensor]:
    weight = tensors.get("weight", tensors.get("weight.mean"))
    if weight is None:
        return {}
    counts = torch.zeros(HIST_BINS, dtype=torch.int64)
    amax = torch.zeros(1)
    for some in weight.flatten().split(_WEIGHT_CHUNK):
        values = some.float()
        counts += torch.bincount(hist_bins(values), minlength=HIST_BINS)
        amax = torch.maximum(amax, values.abs().max())
    if counts[-1]:
        notes.append(f"{name}: its weight has {int(counts[-1])} values that are not finite: no tool will use this site")
        return {"weight.hist": counts}
    return {"weight.hist": counts, "weight.amax": amax}


def _checked_feeds(sites: List[Dict[str, Any]], notes: List[str]) -> List[Dict[str, Any]]:
    """A feed that cannot be would make its whole site unusable to a reader: it is dropped and named."""
    index = {site["id"]: i for i, site in enumerate(sites)}
    for i, site in enumerate(sites):
        good = [to for to in site["feeds"] if index.get(to, -1) > i and sites[index[to]]["k"] == site["n"]]
        if len(good) < len(site["feeds"]):
            notes.append(f"{site['id']} cannot feed {', '.join(sorted(set(site['feeds']) - set(good)))}: dropped")
        site["feeds"] = good
    return sites


def _loss(snapshot: Snapshot, notes: List[str]) -> Dict[str, Any]:
    options = snapshot.options
    if options.loss_value is not None:
        return {"name": options.loss_name, "value": float(options.loss_value)}
    if snapshot.losses is not None and len(snapshot.losses):
        sums = snapshot.losses
        means = sums[:, 0] / sums[:, 1]
        means = means[torch.isfinite(means)]
        if len(means):
            return {"name": options.loss_name, "value": float(means.mean()), "recorded_steps": len(means)}
    # A budget is a share of the loss: of zero it lets nothing through, which is the safe way to be wrong.
    note = "no loss was recorded: a loss budget of zero keeps everything in high precision"
    notes.append("no loss was recorded: use `loss = recorder.loss(loss)`, or Recorder(loss_value=...)")
    return {"name": "not recorded", "value": 0.0, "note": note}


__all__ = ["make"]
