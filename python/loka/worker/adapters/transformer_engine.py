"""Transformer Engine: `te.Linear` under its FP8 autocast, with Float8CurrentScaling or Float8BlockScaling.

Seen to work: 2.12.0 beside PyTorch 2.11 on an H200; 2.13 to 2.20 do not load there (docs/reference/gpu.md). A te.Linear is a whole
layer: the forward casts for the backward too, and the backward makes both gradients. So each GEMM is had by asking for
one gradient alone: the forward with neither, dgrad of a frozen weight, wgrad of an input without a gradient. A gradient's
time is that of forward and backward less the forward's, so that casts which the forward makes for it count as its own.
Operands are BF16 in errors as in times: that is what training hands it.
"""

from typing import Any, Dict, Optional

from ..protocol import Refused
from . import Adapter, Calls, distribution_version, need

RECIPES = {"te/current": "Float8CurrentScaling", "te/blockwise": "Float8BlockScaling"}

POWER_OF_TWO = {"te/current": False, "te/blockwise": True}
"""Whether scales are powers of two, in the kernel of that name and by Transformer Engine's defaults."""

CHANGED_BY = {
    "te/current": "NVTE_FP8_CURRENT_SCALING_POWER_2_SCALES",
    "te/blockwise": "NVTE_FP8_BLOCK_SCALING_FP32_SCALES",
}
"""The environment's variable that makes it the other way."""


class TransformerEngine(Adapter):
    library = "te"
    kernels = ("te/current", "te/blockwise")
    remedy = (
        "pip install --no-build-isolation 'transformer-engine[pytorch]==2.12.0' beside PyTorch 2.11: "
        "2.13 to 2.20 for CUDA 13 want a newer cuBLAS than it has (cublasLtGroupedMatrixLayoutInit_internal)"
    )

    def version(self) -> Optional[str]:
        names = ("transformer-engine", "transformer_engine_torch", "transformer-engine-cu13", "transformer-engine-cu12")
        return distribution_version(*names)

    def load(self) -> None:
        need("Transformer Engine", "transformer_engine")
        self.te = need("Transformer Engine for PyTorch", "transformer_engine.pytorch")
        self.recipes = need("Transformer Engine's recipes", "transformer_engine.common.recipe")
        self.autocast = getattr(self.te, "autocast", None)
        old = getattr(self.te, "fp8_autocast", None)
        if self.autocast is None and old is None:
            raise Refused(f"Transformer Engine {self.version()} has no FP8 autocast")
        # `autocast(enabled, recipe)` follows `fp8_autocast(enabled, fp8_recipe)`.
        self.in_fp8: Any = self.autocast or old
        self.recipe_key = "fp8_recipe" if self.autocast is None else "recipe"

    def lacks(self, kernel: str) -> Optional[str]:
        name, capability = RECIPES[kernel], self.environment.capability
        if not hasattr(self.recipes, name):
            return f"Transformer Engine {self.version()} has no {name}"
        wanted = (8, 9) if kernel == "te/current" else (9, 0)
        if capability < wanted:
            return "{} needs compute capability {}.{}, this GPU has {}.{}".format(name, *wanted, *capability)
        if kernel == "te/blockwise" and capability[0] != 9:
            # Elsewhere it is carried out with MXFP8: another recipe.
            return "{} needs compute capability 9.0, this GPU has {}.{}".format(name, *capability)
        found = self._power_of_two(kernel)
        if found is not None and found != POWER_OF_TWO[kernel]:
            what = "powers of two" if found else "FP32"
            return f"{CHANGED_BY[kernel]} makes {name}'s scales {what}, which {kernel}'s are not: unset it"
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        # What te.Linear asserts of its operands: rows by 8, features by 16; gradients reduce n and m, by 16 too.
        for name, size, multiple in (
            ("m", m, 16 if gemm == "wgrad" else 8), ("k", k, 16), ("n", n, 8 if gemm == "fprop" else 16),
        ):
            if size % multiple:
                return f"{name} = {size} is not a multiple of {multiple}"
        return None

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        torch = self.torch
        a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
        if gemm == "fprop":
            return self._forward(kernel, self._layer(b), a).detach()
        if gemm == "dgrad":
            x = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
            return self._dgrad(kernel, a, self._layer(b), x)
        layer = self._layer(torch.zeros(a.shape[1], b.shape[1], dtype=a.dtype, device=a.device))
        return self._wgrad(kernel, a, layer, b)

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        scales = "powers of two" if POWER_OF_TWO[kernel] else "FP32"
        note = f"te.Linear, scales are {scales}; its GEMM has no call of its own"
        if gemm == "fprop":
            return self._fprop_calls(kernel, m, k, note)
        note = f"{note}; forward and backward less the forward"
        return self._dgrad_calls(kernel, m, k, note) if gemm == "dgrad" else self._wgrad_calls(kernel, k, n, note)

    def _fprop_calls(self, kernel: str, m: int, k: int, note: str) -> Calls:
        torch, layers = self.torch, Layers(self)

        def warm(weight: Any) -> Any:
            # is_first_microbatch=True casts the weight and keeps it; False uses what was kept.
            layer = self._layer(weight)
            x = torch.randn(m, k, dtype=weight.dtype, device=weight.device)
            self._forward(kernel, layer, x, is_first_microbatch=True)
            return layer

        return Calls(
            full=lambda a, b: self._forward(kernel, layers.of(b), a),
            prepare_a=lambda a: a,
            prepare_b=warm,
            cached=lambda a, layer: self._forward(kernel, layer, a, is_first_microbatch=False),
            note=note,
        )

    def _dgrad_calls(self, kernel: str, m: int, k: int, note: str) -> Calls:
        torch, layers = self.torch, Layers(self)
        inputs: Dict[int, Any] = {}

        def input_of(dy: Any) -> Any:
            """Random: a product with zeros would leave the GPU cooler than it is in training."""
            x = inputs.get(dy.data_ptr())
            if x is None:
                x = inputs[dy.data_ptr()] = torch.randn(m, k, dtype=dy.dtype, device=dy.device)
            return x

        def warm(weight: Any) -> Any:
            layer = self._layer(weight)
            x = torch.randn(m, k, dtype=weight.dtype, device=weight.device)
            with torch.enable_grad():
                # The turned weight is cast where somebody will want a gradient of x.
                self._forward(kernel, layer, x.requires_grad_(True), is_first_microbatch=True)
            return layer

        kept = {"is_first_microbatch": False}
        return Calls(
            full=lambda a, b: self._dgrad(kernel, a, layers.of(b), input_of(a)),
            before_full=lambda a, b: self._forward(kernel, layers.of(b), input_of(a)),
            prepare_a=lambda a: a,
            prepare_b=warm,
            cached=lambda a, layer: self._dgrad(kernel, a, layer, input_of(a), **kept),
            before_cached=lambda a, layer: self._forward(kernel, layer, input_of(a), **kept),
            note=note,
        )

    def _wgrad_calls(self, kernel: str, k: int, n: int, note: str) -> Calls:
        torch = self.torch
        # Which weight it is changes nothing; its cast is kept, so that there is less to take off.
        layer = self._layer(torch.randn(n, k, dtype=torch.bfloat16, device="cuda") * k**-0.5)
        self._forward(kernel, layer, torch.randn(16, k, dtype=torch.bfloat16, device="cuda"), is_first_microbatch=True)
        kept = {"is_first_microbatch": False}
        return Calls(
            full=lambda a, b: self._wgrad(kernel, a, layer, b, **kept),
            before_full=lambda a, b: self._frozen_forward(kernel, layer, b, **kept),
            note=note,
        )

    def _dgrad(self, kernel: str, dy: Any, layer: Any, x: Any, **options: Any) -> Any:
        """The gradient of x alone."""
        with self.torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return self.torch.autograd.grad(self._forward(kernel, layer, x, **options), x, dy)[0]

    def _wgrad(self, kernel: str, dy: Any, layer: Any, x: Any, **options: Any) -> Any:
        """The gradient of the weight alone."""
        layer.weight.requires_grad_(True)
        with self.torch.enable_grad():
            y = self._forward(kernel, layer, x.detach(), **options)
            return self.torch.autograd.grad(y, layer.weight, dy)[0]

    def _frozen_forward(self, kernel: str, layer: Any, x: Any, **options: Any) -> Any:
        layer.weight.requires_grad_(False)
        return self._forward(kernel, layer, x, **options)

    def _layer(self, weight: Any) -> Any:
        """Its weight frozen: with a gradient to come, x would be cast both ways in the forward."""
        layer = self.te.Linear(
            weight.shape[1], weight.shape[0], bias=False, params_dtype=weight.dtype, device=weight.device
        )
        with self.torch.no_grad():
            layer.weight.copy_(weight)
        layer.weight.requires_grad_(False)
        return layer

    def _power_of_two(self, kernel: str) -> Optional[bool]:
        """As the recipe has it, which read the environment when it was imported; None where it does not say."""
        parameters = getattr(getattr(self.recipes, RECIPES[kernel])(), "fp8_quant_fwd_inp", None)
        return getattr(parameters, "power_2_scale", None)

    def _forward(self, kernel: str, layer: Any, x: Any, **options: Any) -> Any:
        recipe = getattr(self.recipes, RECIPES[kernel])()
        with self.in_fp8(enabled=True, **{self.recipe_key: recipe}):
            return layer(x, **options)


class Layers:
    """A layer a weight, by where the weight lies."""

    def __init__(self, adapter: TransformerEngine) -> None:
        self.adapter = adapter
        self.made: Dict[int, Any] = {}

    def of(self, weight: Any) -> Any:
        layer = self.made.get(weight.data_ptr())
        if layer is None:
            layer = self.made[weight.data_ptr()] = self.adapter._layer(weight)
        return layer


ADAPTER = TransformerEngine
