"""Takes a module, or a function's name and arguments; gives the operation that it is."""

from typing import Any, Callable, Dict, Mapping, Optional, Sequence

import torch
from torch import nn

from .calls import RESHAPE, SAME, STRUCTURE, Op

FLOAT32_EPS = torch.finfo(torch.float32).eps
"""What PyTorch's rms_norm takes when it is given no epsilon and computes in FP32."""

_MODULES = {
    nn.SiLU: "swish", nn.Hardswish: "hard_swish", nn.ReLU: "relu", nn.Sigmoid: "sigmoid", nn.Tanh: "tanh",
    nn.Identity: SAME,
}
_DROPOUTS = (nn.modules.dropout._DropoutNd,)
_STRUCTURES = (
    nn.Linear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase, nn.Embedding, nn.EmbeddingBag, nn.Bilinear,
    nn.modules.conv._ConvNd, nn.CosineSimilarity, nn.PairwiseDistance, nn.modules.loss._Loss,
)
_FUNCTIONS = {
    "silu": "swish", "hardswish": "hard_swish", "relu": "relu", "sigmoid": "sigmoid", "expit": "sigmoid",
    "tanh": "tanh",
}
_SAME = frozenset(
    "contiguous clone to float double half bfloat16 type type_as cpu cuda requires_grad_ alias detach".split()
)
_DROPOUT = frozenset("dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d".split())
_STRUCTURE = frozenset(
    """squeeze unsqueeze transpose swapaxes t permute movedim cat concat concatenate stack hstack vstack split chunk
    tensor_split unbind getitem setitem get select narrow index_select gather take_along_dim matmul bmm mm mv addmm
    baddbmm einsum tensordot outer linear bilinear scaled_dot_product_attention multi_head_attention_forward sum mean
    std var max min amax amin argmax argmin prod logsumexp norm cumsum topk sort expand expand_as repeat
    repeat_interleave tile flip roll masked_select scatter scatter_add index_add index_copy cross_entropy nll_loss
    mse_loss l1_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div huber_loss
    poisson_nll_loss cosine_similarity embedding embedding_bag zeros_like ones_like empty_like rand_like
    randn_like full_like T mT data new_zeros new_ones new_empty new_full getattr iter""".split()
)
_UNARY_SHAPES = frozenset("squeeze unsqueeze view reshape flatten unflatten view_as reshape_as T t".split())
_LOSSES = frozenset(
    """cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits
    kl_div huber_loss poisson_nll_loss""".split()
)
_ADDS = frozenset("add iadd radd".split())
_NORM_PARAMETERS = {
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "rms_norm": ("input", "normalized_shape", "weight", "eps"),
}


def keeps_each_prediction(function: str) -> bool:
    """True when a function of one tensor gives each prediction in another form, or its loss."""
    return function in _UNARY_SHAPES or function in _LOSSES


def is_known(module: nn.Module) -> bool:
    """True for a module that is one operation of a tail, or does nothing to it."""
    known = (*_MODULES, *_DROPOUTS, nn.LayerNorm, nn.RMSNorm, nn.GELU)
    return hasattr(module, "loka_op") or (isinstance(module, known) and type(module).__module__.startswith("torch."))


def of_module(module: nn.Module) -> Op:
    """The operation of a module that is not read into. A module of another library may say what it is in an
    attribute `loka_op`: a dict like an entry of a tail, {"op": "block_norm", "eps": 1e-6, "block": 256}."""
    said: Optional[Dict[str, Any]] = getattr(module, "loka_op", None)
    if said is not None:
        return Op(said["op"], eps=said.get("eps"), block=said.get("block"))
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return _norm_of(module)
    if isinstance(module, nn.GELU):
        return Op("gelu", approximate=_approximate(module.approximate))
    if isinstance(module, _DROPOUTS):
        return Op(SAME if module.p == 0 or not module.training else "other", inplace=module.inplace)
    for known, kind in _MODULES.items():
        if isinstance(module, known):
            return Op(kind, inplace=getattr(module, "inplace", False))
    if isinstance(module, (nn.Flatten, nn.Unflatten)):
        return Op(RESHAPE, function="flatten")
    if isinstance(module, _STRUCTURES):
        return Op(STRUCTURE)
    return Op("other")


def _norm_of(module: Any) -> Op:
    kind = "layer_norm" if isinstance(module, nn.LayerNorm) else "rms_norm"
    shape = module.normalized_shape
    eps = FLOAT32_EPS if module.eps is None else float(module.eps)
    gamma, beta = module.weight, getattr(module, "bias", None)
    return Op(kind, eps=eps, gamma=gamma, beta=beta, features=shape[0] if len(shape) == 1 else None)


def of_function(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], look: "Look") -> Op:
    """The operation of the torch function or tensor method `name`: without underscores around it, and with the
    tensor first among `args`."""
    inplace = bool(kwargs.get("inplace", False)) or (name.endswith("_") and name != "requires_grad_")
    inplace = inplace or name in ("iadd", "imul", "isub", "itruediv", "setitem")
    base = name if name == "requires_grad_" else name.rstrip("_")
    if base in _FUNCTIONS:
        return Op(_FUNCTIONS[base], inplace=inplace or (len(args) > 1 and args[1] is True), function=base)
    if base == "gelu":
        return Op("gelu", approximate=_approximate(kwargs.get("approximate", "none")))
    if base in _NORM_PARAMETERS:
        return _norm_function(base, args, kwargs, look)
    if base in _DROPOUT:
        return _dropout(args, kwargs, inplace)
    if base in _SAME:
        return Op(SAME, function=base)
    if base in ("view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"):
        return Op(RESHAPE, features=look.reshaped(base, args, kwargs), function=base)
    if base in _ADDS:
        return Op("residual" if look.num_values(args, kwargs) == 2 else "other", inplace=inplace, function="add")
    return Op(STRUCTURE if base in _STRUCTURE else "other", inplace=inplace, function=base)


class Look:
    """What a way of reading can say of a function's arguments."""

    def __init__(
        self,
        num_values: Callable[[Sequence[Any], Mapping[str, Any]], int],
        reshaped: Callable[[str, Sequence[Any], Mapping[str, Any]], Optional[int]],
        parameter: Callable[[Any], Optional[torch.Tensor]],
        width: Callable[[Any], Optional[int]],
    ):
        self.num_values = num_values
        """Distinct values that the arguments hold."""
        self.reshaped = reshaped
        """Last dimension after a reshape, if known."""
        self.parameter = parameter
        """The model's own parameter that an argument is."""
        self.width = width
        """The one number of a normalized_shape of one dimension."""


def _norm_function(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], look: Look) -> Op:
    bound = {**dict(zip(_NORM_PARAMETERS[name], args)), **kwargs}
    gamma, beta = (look.parameter(bound.get(key)) for key in ("weight", "bias"))
    unknown = any(
        bound.get(key) is not None and found is None for key, found in (("weight", gamma), ("bias", beta))
    )
    eps = bound.get("eps")
    if eps is None:
        eps = 1e-5 if name == "layer_norm" else FLOAT32_EPS
    if unknown or not isinstance(eps, float) or (beta is not None and gamma is None):
        # A gain that is computed, not learned: no such norm in a trace.
        return Op("other", function=name)
    return Op(name, eps=eps, gamma=gamma, beta=beta, features=look.width(bound.get("normalized_shape")), function=name)


def _dropout(args: Sequence[Any], kwargs: Mapping[str, Any], inplace: bool) -> Op:
    bound = {"p": 0.5, "training": True, **dict(zip(("input", "p", "training", "inplace"), args)), **kwargs}
    idle = bound["training"] is False or bound["p"] == 0
    return Op(SAME if idle else "other", inplace=inplace or bound.get("inplace") is True, function="dropout")


def _approximate(value: Any) -> Optional[str]:
    return None if value == "none" else str(value)


__all__ = ["FLOAT32_EPS", "Look", "is_known", "keeps_each_prediction", "of_function", "of_module"]
