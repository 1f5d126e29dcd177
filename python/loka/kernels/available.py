"""Takes a kernel, a GEMM, sizes and a device; gives why it cannot run there, in words for whoever applies a plan."""

import functools
from typing import Optional, Tuple

import torch

from . import blocks, native
from ..catalogue import BLOCK, KERNELS, multiple_of, numerics
from .gemms import route
from .padding import NARROWEST, SIZES, pads

NEEDS_GPU = "needs a CUDA GPU"
"""In every reason that a GPU would take away."""


def why_not(kernel: str, gemm: str, k: int, n: int, device: torch.device, emulate: bool) -> Optional[str]:
    """Why `kernel` cannot run `gemm` of a linear with k inputs and n outputs on `device`; None when it can.
    `emulate` asks for its numerics only, which need neither GPU nor library, but sizes that the kernel itself takes."""
    if kernel not in KERNELS:
        return f"unknown kernel '{kernel}'; known are {', '.join(KERNELS)}"
    if kernel == blocks.KERNEL:
        if gemm != "fprop":
            return f"{kernel} {gemm}: only fprop has a tail"
        if n % blocks.BLOCK or n > blocks.LONGEST:
            return f"{kernel} {gemm}: n = {n} is not a multiple of {blocks.BLOCK} up to {blocks.LONGEST}"
    if kernel == "loka/fp8-static+fast" and gemm == "wgrad":
        return f"{kernel} wgrad: it reads both operands transposed, which casting on the way in cannot"
    multiple = multiple_of(kernel, gemm)
    sizes = {"k": k, "n": n}
    for name in ("k", "n") if multiple == BLOCK or kernel.startswith("te/") else SIZES[gemm]:
        if pads(kernel, gemm):
            if sizes[name] < NARROWEST:
                return f"{kernel} {gemm}: {name} = {sizes[name]} is less than {NARROWEST}"
        elif sizes[name] % multiple:
            return f"{kernel} {gemm}: {name} = {sizes[name]} is not a multiple of {multiple}"
    if emulate:
        return None
    return _lacks(kernel, gemm, torch.device(device))


def _lacks(kernel: str, gemm: str, device: torch.device) -> Optional[str]:
    """What is missing: a GPU, a newer one, a newer PyTorch, a library."""
    how = route(kernel, gemm, False)
    if how == "mm":
        return None
    if device.type != "cuda":
        what = "TF32" if how == "tf32" else "FP8"
        remedy = "move the model there first, or" if torch.cuda.is_available() else "there is none here;"
        return f"{kernel} {NEEDS_GPU} with {what}: {remedy} emulate=True runs its numerics slowly"
    if how == "library":
        from . import libraries

        return libraries.why_not(kernel)
    capability = _capability(device)
    found = "this GPU has {}.{}".format(*capability)
    if how == "own":
        if capability != (9, 0):
            return f"{kernel} needs compute capability 9.0, {found}"
        reason = native.why_not(device)
        return None if reason is None else f"{kernel} runs by libloka: {reason}"
    if how == "tf32":
        return None if capability >= (8, 0) else f"{kernel} needs compute capability 8.0, {found}"
    if numerics(kernel, gemm).a.granularity == "block_1x128":
        if not hasattr(torch.nn.functional, "scaled_mm"):
            return f"{kernel} needs PyTorch 2.10, this is {torch.__version__}"
        return None if capability[0] == 9 else f"{kernel} needs compute capability 9.0, {found}"
    wanted = (9, 0) if numerics(kernel, gemm).a.granularity == "row" else (8, 9)
    if capability < wanted:
        return "{} needs compute capability {}.{}, {}".format(kernel, *wanted, found)
    if _no_triton():
        return f"{kernel} casts with Triton, which is not installed (pip install triton)"
    return None


def _capability(device: torch.device) -> Tuple[int, int]:
    if not torch.cuda.is_available():
        return (0, 0)
    return torch.cuda.get_device_capability(device)


@functools.lru_cache(maxsize=None)
def _no_triton() -> bool:
    from . import casts

    return casts.triton_casts is None


__all__ = ["NEEDS_GPU", "why_not"]
