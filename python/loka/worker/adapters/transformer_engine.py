"""Transformer Engine: `te.Linear` under its FP8 autocast, with Float8CurrentScaling or Float8BlockScaling.

Written from its published signatures. A te.Linear is a whole layer: the forward casts for the backward too,
and the backward makes both gradients. Errors are taken of all three GEMMs; only the forward is timed.
"""

from typing import Any, Dict, Optional

from ..protocol import Refused
from . import Adapter, Calls, distribution_version, need, not_multiple

RECIPES = {"te/current": "Float8CurrentScaling", "te/blockwise": "Float8BlockScaling"}


class TransformerEngine(Adapter):
    library = "te"
    kernels = ("te/current", "te/blockwise")

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
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        # A layer is built whatever the GEMM, and its casts look at all sides.
        for name, size in (("m", m), ("k", k), ("n", n)):
            if size % 16:
                return f"{name} = {size} is not a multiple of 16"
        return not_multiple(gemm, m, k, n, 128 if kernel == "te/blockwise" else 16)

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        torch = self.torch
        with torch.enable_grad():
            if gemm == "fprop":
                return self._forward(kernel, self._layer(b), a).detach()
            if gemm == "dgrad":
                layer = self._layer(b)
                layer.weight.requires_grad_(False)
                x = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device, requires_grad=True)
                return torch.autograd.grad(self._forward(kernel, layer, x), x, a)[0]
            weight = torch.zeros(a.shape[1], b.shape[1], dtype=a.dtype, device=a.device)
            layer = self._layer(weight)
            return torch.autograd.grad(self._forward(kernel, layer, b), layer.weight, a)[0]

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        if gemm != "fprop":
            raise Refused("te.Linear makes both gradients in one backward: the time of one cannot be told")
        torch = self.torch
        layers: Dict[int, Any] = {}

        def layer_of(weight: Any) -> Any:
            layer = layers.get(weight.data_ptr())
            if layer is None:
                layer = layers[weight.data_ptr()] = self._layer(weight)
                layer.weight.requires_grad_(False)
            return layer

        def warm(weight: Any) -> Any:
            # is_first_microbatch=True casts the weight and keeps it; False uses what was kept.
            layer = self._layer(weight)
            layer.weight.requires_grad_(False)
            x = torch.randn(m, k, dtype=weight.dtype, device=weight.device)
            self._forward(kernel, layer, x, is_first_microbatch=True)
            return layer

        return Calls(
            full=lambda a, b: self._forward(kernel, layer_of(b), a),
            prepare_a=lambda a: a,
            prepare_b=warm,
            cached=lambda a, layer: self._forward(kernel, layer, a, is_first_microbatch=False),
            note="te.Linear; its GEMM has no call of its own",
        )

    def _layer(self, weight: Any) -> Any:
        layer = self.te.Linear(
            weight.shape[1], weight.shape[0], bias=False, params_dtype=weight.dtype, device=weight.device
        )
        with self.torch.no_grad():
            layer.weight.copy_(weight)
        return layer

    def _forward(self, kernel: str, layer: Any, x: Any, **options: Any) -> Any:
        recipe = getattr(self.recipes, RECIPES[kernel])()
        with self.in_fp8(enabled=True, **{self.recipe_key: recipe}):
            return layer(x, **options)


ADAPTER = TransformerEngine
