"""TorchAO's float8 training: the casts and matmuls of `Float8Linear`, one direction at a time.

`Float8Linear` computes its two gradients in one backward, so each direction is taken out of it: the same
calls of `hp_tensor_to_float8_dynamic` with the same roles and axes, the same `torch.mm` on its tensor type,
under torch.compile when timed, as TorchAO tells its users to run it.
"""

from typing import Any, Optional

from ..protocol import Refused
from . import Adapter, Calls, at_least, distribution_version, need, not_multiple

OLDEST = (0, 10)


class TorchAO(Adapter):
    library = "torchao"
    remedy = "pip install torchao (0.18.0 was seen to work with PyTorch 2.11)"
    kernels = ("torchao/tensorwise", "torchao/rowwise", "torchao/rowwise_with_gw_hp")

    def version(self) -> Optional[str]:
        return distribution_version("torchao")

    def load(self) -> None:
        need("TorchAO", "torchao")
        if not at_least(self.version(), OLDEST):
            raise Refused(f"TorchAO {self.version()} is older than {'.'.join(map(str, OLDEST))}")
        self.config = need("TorchAO's float8", "torchao.float8.config")
        self.linear = need("TorchAO's float8", "torchao.float8.float8_linear")
        self.scaling = need("TorchAO's float8", "torchao.float8.float8_scaling_utils")
        try:
            self.tensors = need("TorchAO's float8", "torchao.float8.float8_training_tensor")
            self.tensor_type = self.tensors.Float8TrainingTensor
        except Refused:
            # Its name before 0.13.
            self.tensors = need("TorchAO's float8", "torchao.float8.float8_tensor")
            self.tensor_type = self.tensors.Float8Tensor

    def lacks(self, kernel: str) -> Optional[str]:
        capability = self.environment.capability
        wanted = (8, 9) if kernel == "torchao/tensorwise" else (9, 0)
        if capability < wanted:
            return "{} needs compute capability {}.{}, this GPU has {}.{}".format(kernel, *wanted, *capability)
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        if kernel == "torchao/rowwise_with_gw_hp" and gemm == "wgrad":
            return None
        return not_multiple(gemm, m, k, n, 16)

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        direction = self._direction(kernel, gemm)
        return direction.multiply(direction.cast_a(a), direction.cast_b(b))

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        direction = self._direction(kernel, gemm)
        # allow_in_graph, as TorchAO marks its own autograd function: the tensor type is traced below Dynamo.
        allow_in_graph: Any = need("PyTorch's compiler", "torch._dynamo").allow_in_graph

        # Named functions: the graph is printed as Python, and a lambda has no name to print.
        @allow_in_graph  # type: ignore[untyped-decorator]
        def torchao_whole(a: Any, b: Any) -> Any:
            return direction.multiply(direction.cast_a(a), direction.cast_b(b))

        @allow_in_graph  # type: ignore[untyped-decorator]
        def torchao_cached(a: Any, b: Any) -> Any:
            return direction.multiply(direction.cast_a(a), b)

        return Calls(
            full=self.compile(lambda a, b: torchao_whole(a, b), kernel, gemm, "full", m, k, n),
            prepare_a=lambda a: self._laid_out(direction.cast_a(a), row_major=True),
            prepare_b=lambda b: self._laid_out(direction.cast_b(b), row_major=False),
            gemm=self.compile(lambda a, b: direction.multiply(a, b), kernel, gemm, "gemm", m, k, n),
            cached=None
            if gemm == "wgrad"
            else self.compile(lambda a, b: torchao_cached(a, b), kernel, gemm, "cached", m, k, n),
            note="Float8Linear's casts and matmul, compiled",
        )

    def _direction(self, kernel: str, gemm: str) -> "Direction":
        config = self.config.Float8LinearConfig.from_recipe_name(kernel.split("/")[1])
        return Direction(self, config, gemm)

    def _laid_out(self, value: Any, row_major: bool) -> Any:
        """The layout that the matmul wants, so that the GEMM alone is timed without TorchAO's transposing."""
        if not isinstance(value, self.tensor_type):
            return value
        bits = value._data
        if (bits.stride(0) > bits.stride(1)) == row_major:
            return value
        bits = bits.contiguous() if row_major else bits.t().contiguous().t()
        return self.tensor_type(
            bits, value._scale, value._orig_dtype, value._linear_mm_config, value._gemm_input_role, value._axiswise_dim
        )


class Direction:
    """One GEMM of `matmul_with_hp_or_float8_args`, its forward or half of its backward."""

    def __init__(self, adapter: "TorchAO", config: Any, gemm: str) -> None:
        self.adapter = adapter
        self.torch = adapter.torch
        self.config = config
        self.gemm = gemm
        nn = self.torch.nn
        # TorchAO derives this from the recipe in its constructor; on meta it costs nothing.
        model = adapter.linear.Float8Linear.from_float(nn.Linear(16, 16, bias=False, device="meta"), config=config)
        self.mm_config = model.linear_mm_config

    def cast_a(self, a: Any) -> Any:
        roles, config = self.adapter.tensors.GemmInputRole, self.config
        if self.gemm == "fprop":
            return self._cast(a, config.cast_config_input, roles.INPUT, -1)
        if self.gemm == "dgrad":
            return self._cast(a, config.cast_config_grad_output, roles.GRAD_OUTPUT, -1)
        return self._cast(a, config.cast_config_grad_output_for_grad_weight, roles.GRAD_OUTPUT, 0).t()

    def cast_b(self, b: Any) -> Any:
        roles, config = self.adapter.tensors.GemmInputRole, self.config
        if self.gemm == "fprop":
            return self._cast(b.t(), config.cast_config_weight, roles.WEIGHT, 0)
        if self.gemm == "dgrad":
            return self._cast(b.t(), config.cast_config_weight_for_grad_input, roles.WEIGHT, -1).t()
        return self._cast(b, config.cast_config_input_for_grad_weight, roles.INPUT, 0)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.torch.mm(a, b)

    def _cast(self, value: Any, cast: Any, role: Any, axis: int) -> Any:
        if cast.scaling_type is self.adapter.config.ScalingType.DISABLED:
            # What reaches TorchAO from a BF16 model; an FP32 operand would multiply in FP32.
            return value.to(self.torch.bfloat16)
        return self.adapter.scaling.hp_tensor_to_float8_dynamic(
            value,
            cast.target_dtype,
            self.mm_config,
            gemm_input_role=role,
            scaling_granularity=cast.scaling_granularity,
            axiswise_dim=self.adapter.scaling.get_maybe_axiswise_dim(axis, cast.scaling_granularity),
            round_scales_to_power_of_2=self.config.round_scales_to_power_of_2,
        )


ADAPTER = TorchAO
