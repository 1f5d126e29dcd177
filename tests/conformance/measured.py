"""Takes a function that quantizes and gives back what it quantized, gives which elements share a scale.

By what it does to numbers, not by what its configuration is called: scaling the elements that share a scale together
changes nothing but that scale.
"""

from typing import Callable

import torch

FEATURES = 256
"""Two blocks of 128."""


def sharing(quantize: Callable[[torch.Tensor], torch.Tensor], shape=(6, FEATURES)) -> str:
    """`tensor`, `row`, `block` (128 features of a row, told from a row where it has several), `column`; `static` where
    scales do not follow the data; `off`."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    factors = lambda *sizes: 0.5 + 3 * torch.rand(sizes, generator=generator)
    unmoved = lambda by: torch.allclose(quantize(x * by) / by, quantize(x), rtol=1e-3, atol=1e-5)
    if torch.equal(quantize(x), x):
        return "off"
    if not unmoved(torch.tensor(1.7)):
        return "static"
    if unmoved(factors(shape[-1])):
        return "column"
    if not unmoved(factors(*shape[:-1], 1)):
        return "tensor"
    blocks = shape[-1] // 128
    in_blocks = blocks > 1 and unmoved(factors(*shape[:-1], blocks).repeat_interleave(128, -1))
    return "block" if in_blocks else "row"
