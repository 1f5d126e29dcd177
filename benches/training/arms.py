"""Takes the name of an arm; gives the model that it trains: what the quality proof compares."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional

import torch
from torch import Tensor, nn

import naive
from models import ModelConfig, build

MODS: Dict[str, Dict[str, object]] = {
    "no_bias": {"bias": False},
    "block_norm": {"norm": "block"},
    "hard_swish": {"act": "hswish"},
}
"""Each Mod, and what builds a model with it outright."""

ARMS: Dict[str, str] = {
    "fp32": "FP32 parameters, TF32 products: the original",
    "fp32_again": "the same from parameters moved by a part in 10^6: what chance alone does",
    "naive": "every linear in tensorwise FP8, all three products",
    "no_bias": "this Mod alone",
    "block_norm": "this Mod alone",
    "hard_swish": "this Mod alone",
    "mods": "all three Mods",
    "mods_bare": "all three Mods, the first layer's too",
    "mods_again": "all three Mods, parameters moved by a part in 10^6",
    "mods_naive": "all three Mods, every linear in tensorwise FP8",
    "plan": "the original under a LoKA plan",
    "mods_plan": "all three Mods under a LoKA plan",
}


def mods_of(arm: str) -> List[str]:
    """The Mods of an arm."""
    return list(MODS) if arm.startswith("mods") else [arm] if arm in MODS else []


FIRST = "tokens.bottom.0"
"""The layer that reads the dense inputs keeps its bias and its norm in every arm but `mods_bare`: without a bias, the
norm after it forgets how long the input was, and that alone costs half a percent of log loss."""


def kept(model: nn.Module, bare: bool = False) -> List[str]:
    """What Mods leave alone."""
    return heads(model) + ([] if bare else [FIRST])


def heads(model: nn.Module) -> List[str]:
    """Final prediction layers, which keep their bias."""
    return [name for name, part in model.named_modules() if isinstance(part, nn.Linear) and part.out_features == 1]


MADE_BY = ("surgery", "everywhere", "built")
"""How Mods come into a model: `loka.mods.apply` with norms that follow a linear, or with every norm; or built in, which
starts from other random numbers, so that runs must not mix them."""


def modified(config: ModelConfig, seed: int, mods: List[str], made_by: str, bare: bool = False) -> nn.Module:
    """A fresh model with Mods; those that are built in are always on every layer."""
    if not mods or made_by == "built":
        for mod in mods:
            config = replace(config, **MODS[mod])  # type: ignore[arg-type]
        return build(config, seed)
    import loka

    model = build(config, seed)
    loka.mods.apply(model, mods, keep=kept(model, bare), everywhere=made_by == "everywhere")
    return model


def fresh_state(config: ModelConfig, seed: int, arm: str, made_by: str) -> Dict[str, Tensor]:
    """Where an arm starts: the same numbers for every arm of a seed, but for what its Mods took away."""
    state = modified(config, seed, mods_of(arm), made_by, arm == "mods_bare").state_dict()
    if arm.endswith("_again"):
        moved = torch.Generator().manual_seed(seed + 1)
        for value in state.values():
            value.mul_(1 + 1e-6 * torch.randn(value.shape, generator=moved))
    return state


def model_of(
    config: ModelConfig, arm: str, made_by: str, device: torch.device, plan: Optional[Path] = None
) -> nn.Module:
    """The model of an arm on the device, seed 0; `plan` is the plan file of the arms that have one."""
    model = modified(config, 0, mods_of(arm), made_by, arm == "mods_bare").to(device)
    if arm.endswith("naive"):
        naive.convert(model)
    if arm.endswith("plan"):
        if plan is None:
            raise ValueError(f"arm {arm} needs a plan file")
        import loka

        loka.apply(model, str(plan))
    return model


def plan_digest(plan: Optional[Path]) -> Optional[str]:
    """The digest that names a plan in results."""
    return None if plan is None else json.loads(plan.read_text()).get("digest")
