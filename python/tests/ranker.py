"""The small model that the plans in data/ were made for, and how to change such a plan as a careful forger would."""

import copy
import json
import pathlib
from typing import Any, Callable, Dict

import torch
from torch import nn

from loka.plans.canonical import digest_of
from loka.plans.document import BESIDE

DATA = pathlib.Path(__file__).resolve().parent / "data"
PLAN = DATA / "ranker.plan.json"
MODDED = DATA / "modded.plan.json"
APPROVED = DATA / "approved.plan.json"
DRAFT = DATA / "draft.plan.json"


class Ranker(nn.Module):
    """128 inputs, one logit, four linears: bottom.0, bottom.3, top.0, top.2."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        norms = (nn.LayerNorm(256, elementwise_affine=False), nn.LayerNorm(128, elementwise_affine=False))
        self.bottom = nn.Sequential(
            nn.Linear(128, 256), norms[0], nn.SiLU(), nn.Linear(256, 128), norms[1], nn.SiLU()
        )
        self.top = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.top(self.bottom(x)).squeeze(-1)


def batch(rows: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, 128, generator=torch.Generator().manual_seed(seed))


def document() -> Dict[str, Any]:
    return json.loads(PLAN.read_text(encoding="utf-8"))


def forged(folder: str, change: Callable[[Dict[str, Any]], Any], source: pathlib.Path = PLAN) -> str:
    """The path of a changed plan whose digest is right."""
    value = copy.deepcopy(json.loads(source.read_text(encoding="utf-8")))
    change(value)
    value["digest"] = digest_of({key: item for key, item in value.items() if key not in BESIDE})
    path = pathlib.Path(folder) / "forged.plan.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)
