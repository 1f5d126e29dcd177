"""Takes a layer or stack of PyTorch's transformers; gives what its forward does with its inputs, without what it looks at
first: masks, nested tensors, whether a fused kernel may run. A tracer has no data to show it."""

from typing import Any, Callable, Dict, Optional, Type

from torch import nn


def forward_of(module: nn.Module) -> Callable[..., Any]:
    """The module's forward as it can be traced; its own where it is no transformer's."""
    for cls, written in _WRITTEN.items():
        if isinstance(module, cls) and type(module).forward is cls.forward:
            return written.__get__(module)  # type: ignore[no-any-return]
    return module.forward


def _encoder_layer(
    self: Any, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
) -> Any:
    masks = (src_mask, src_key_padding_mask, is_causal)
    if self.norm_first:
        x = src + self._sa_block(self.norm1(src), *masks)
        return x + self._ff_block(self.norm2(x))
    x = self.norm1(src + self._sa_block(src, *masks))
    return self.norm2(x + self._ff_block(x))


def _decoder_layer(
    self: Any, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
    memory_key_padding_mask: Any = None, tgt_is_causal: bool = False, memory_is_causal: bool = False,
) -> Any:
    own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
    others = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
    if self.norm_first:
        x = tgt + self._sa_block(self.norm1(tgt), *own)
        x = x + self._mha_block(self.norm2(x), *others)
        return x + self._ff_block(self.norm3(x))
    x = self.norm1(tgt + self._sa_block(tgt, *own))
    x = self.norm2(x + self._mha_block(x, *others))
    return self.norm3(x + self._ff_block(x))


def _encoder(
    self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Optional[bool] = None
) -> Any:
    for layer in self.layers:
        src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    return src if self.norm is None else self.norm(src)


def _decoder(self: Any, tgt: Any, memory: Any, *_: Any, **__: Any) -> Any:
    for layer in self.layers:
        tgt = layer(tgt, memory)
    return tgt if self.norm is None else self.norm(tgt)


_WRITTEN: Dict[Type[nn.Module], Callable[..., Any]] = {
    nn.TransformerEncoderLayer: _encoder_layer,
    nn.TransformerDecoderLayer: _decoder_layer,
    nn.TransformerEncoder: _encoder,
    nn.TransformerDecoder: _decoder,
}

__all__ = ["forward_of"]
