"""Takes how many variants of one function LoKA adds in torch.compile; makes room for them.

Parts of a model that are compiled each by itself, as with FSDP2, have one function in common: `nn.Sequential.forward`, or the
model's own block. Dynamo keeps at most eight variants of a function (`recompile_limit`), and runs what comes after them
eagerly, with a line in the log. In BF16 that is one for each shape of a block. A plan has another where kernels differ, and
each again for a step that is checked, for one that is not, and while the model runs in BF16 for a while.
"""

import importlib
from typing import Dict

LIMITS = (("recompile_limit", "cache_size_limit"), ("accumulated_recompile_limit", "accumulated_cache_size_limit"))
"""Of `torch._dynamo.config`: of one function, and of all that its frames have compiled; the second name is the older one."""

_given: Dict[str, int] = {}
"""As they were before any of them was raised."""


def make_room(more: int) -> None:
    """Raises the limits to what they were and so many more; never lowers them. Of several models the one with most counts: each
    alone is within its own."""
    # A second or two of importing, which nobody pays who only looks at a plan.
    config = importlib.import_module("torch._dynamo").config
    for names in LIMITS:
        name = next((name for name in names if hasattr(config, name)), None)
        if name is not None:
            limit = getattr(config, name)
            setattr(config, name, max(limit, _given.setdefault(name, limit) + more))


__all__ = ["make_room"]
