"""One module a library. Takes operands as the model stores them, gives the GEMM's output in BF16.

Operands: fprop a = x[m,k], b = W[n,k]; dgrad a = dy[m,n], b = W[n,k]; wgrad a = dy[m,n], b = x[m,k].
Outputs: fprop [m,n], dgrad [m,k], wgrad [n,k].

Importing this package imports no library: a missing one costs its own kernels and says so.
"""

import importlib
import importlib.metadata
import itertools
import sys
import types
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..protocol import Refused, one_line, reason_of

Cast = Callable[[Any], Any]

Parts = Tuple[Cast, Cast, Callable[[Any, Any], Any]]
"""How a and b are cast, and the GEMM of what that gives."""

TRANSPOSED = {"fprop": (False, False), "dgrad": (False, True), "wgrad": (True, True)}
"""Whether a and b must be turned to read [rows, reduced] and [cols, reduced], both reduced along their rows,
as FP8 tensor cores on Hopper want them."""


def operand_shapes(gemm: str, m: int, k: int, n: int) -> Tuple[Tuple[int, int], Tuple[int, int]]:
    """As the model stores them."""
    return {"fprop": ((m, k), (n, k)), "dgrad": ((m, n), (n, k)), "wgrad": ((m, n), (m, k))}[gemm]


REDUCED_AND_COLS = {"fprop": ("k", "n"), "dgrad": ("n", "k"), "wgrad": ("m", "k")}


@dataclass
class Calls:
    """What timing times, on BF16 operands. `prepare_*` are not timed: they make what `gemm` and `cached` read."""

    full: Callable[[Any, Any], Any]
    """Both operands cast, then the GEMM."""
    prepare_a: Optional[Callable[[Any], Any]] = None
    prepare_b: Optional[Callable[[Any], Any]] = None
    gemm: Optional[Callable[[Any, Any], Any]] = None
    """The GEMM alone, on prepared operands; None when the library has no such call."""
    cached: Optional[Callable[[Any, Any], Any]] = None
    """a cast, b prepared; None where b is no weight."""
    before_full: Optional[Callable[[Any, Any], Any]] = None
    """What `full` does before that is no part of the GEMM asked for (a forward before its backward); its time is taken
    off, sample by sample."""
    before_cached: Optional[Callable[[Any, Any], Any]] = None
    note: str = ""


TORCH = "pip install torch, of the CUDA that the driver has (pytorch.org)"
"""How PyTorch is had."""


class Environment:
    """PyTorch and the GPU, looked for once."""

    def __init__(self, device: Any = None) -> None:
        self.torch: Any = None
        self.reason: Optional[str] = None
        self.capability: Tuple[int, ...] = (0, 0)
        self.device_name: Optional[str] = None
        try:
            self.torch = importlib.import_module("torch")
        except Exception as error:
            self.reason = missing("PyTorch", "torch", error)
            return
        try:
            if not self.torch.cuda.is_available():
                self.reason = f"PyTorch {self.torch.__version__} finds no GPU"
                return
            if device is not None:
                self.torch.cuda.set_device(device)
            self.capability = tuple(self.torch.cuda.get_device_capability())
            self.device_name = self.torch.cuda.get_device_name()
        except Exception as error:
            self.reason = f"PyTorch {self.torch.__version__} cannot use the GPU: {reason_of(error)}"

    @property
    def torch_version(self) -> Optional[str]:
        return None if self.torch is None else str(self.torch.__version__)

    @property
    def cuda_version(self) -> Optional[str]:
        return None if self.torch is None else self.torch.version.cuda


class Adapter:
    """A library. Subclasses say `library`, `kernels` and how to run them."""

    library = ""
    kernels: Tuple[str, ...] = ()
    remedy = ""
    """How the library is had, beside the PyTorch that docs/reference/gpu.md says it was seen to work with."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._compiled: Dict[Tuple[Any, ...], Any] = {}
        self.torch = environment.torch
        self._checked = False
        self._why_not: Optional[str] = None

    def version(self) -> Optional[str]:
        """The library's version; None when it is not installed."""
        return None

    def why_not(self, kernel: str) -> Optional[str]:
        """Why this kernel cannot run here at all; None when it can."""
        if self.environment.reason:
            return self.environment.reason
        if not self._checked:
            self._checked = True
            try:
                self.load()
            except Exception as error:
                self._why_not = reason_of(error)
        return self._why_not or self.lacks(kernel)

    def remedy_of(self, kernel: str) -> Optional[str]:
        """How to get the library; None where it is there, or where getting it would not help."""
        if self.environment.torch is None:
            return TORCH
        self.why_not(kernel)
        return None if self._why_not is None else self.remedy

    def load(self) -> None:
        """Imports the library and checks its version; raises Refused with the reason."""

    def lacks(self, kernel: str) -> Optional[str]:
        """Why this GPU or this version has no such kernel, the library being there; None when it has."""
        return None

    def refuses(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Optional[str]:
        """Why a shape is refused; None to let the library say it itself."""
        return None

    def run(self, kernel: str, gemm: str, a: Any, b: Any) -> Any:
        """One GEMM by the library's own casts, not compiled; the output in any type."""
        raise NotImplementedError

    def parts(self, gemm: str) -> Optional["Parts"]:
        """The casts of both operands, where they are PyTorch's own operations, and the GEMM of what they give: a compiler
        joins such casts to what makes the operand. None: the whole is the library's alone."""
        return None

    def calls(self, kernel: str, gemm: str, m: int, k: int, n: int) -> Calls:
        """What timing times. May compile."""
        raise NotImplementedError

    def compile(self, function: Callable[..., Any], *key: Any) -> Any:
        """As users run casts. dynamic=False: two shapes through one function must not make a general kernel.

        What is compiled is kept by `key`, which says all that it depends on: rows that cast alike compile once."""
        kept = self._compiled.get(key)
        if kept is None:
            kept = self._compiled[key] = self.torch.compile(of_its_own(function), dynamic=False)
        return kept


_NUMBERS = itertools.count()


def of_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with code of its own. Dynamo keeps what it compiled by code object and gives up after eight of
    one, running eagerly and saying nothing; closures of one line have one code object."""
    code = function.__code__
    code = code.replace(co_name=f"{code.co_name.strip('<>')}_{next(_NUMBERS)}")
    made = types.FunctionType(code, function.__globals__, code.co_name, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def adapters(environment: Environment) -> List[Adapter]:
    """Every adapter, in the order in which LoKA lists libraries."""
    from . import deepgemm, fbgemm, pytorch, torchao, transformer_engine

    modules = (pytorch, torchao, deepgemm, fbgemm, transformer_engine)
    return [module.ADAPTER(environment) for module in modules]


def missing(name: str, package: str, error: BaseException) -> str:
    """The reason for a library that does not import."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == package.split(".")[0]:
        return f"{name} is not installed in {sys.executable}"
    return f"{name} does not load: {reason_of(error)}"


def need(name: str, package: str) -> Any:
    """Imports a module, or raises Refused."""
    try:
        return importlib.import_module(package)
    except Exception as error:
        raise Refused(missing(name, package, error)) from None


def distribution_version(*names: Any) -> Optional[str]:
    """The version of the first of these distributions that is installed."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except Exception:
            continue
    return None


def at_least(version: Optional[str], wanted: Sequence[int]) -> bool:
    """True when `version` ("2.11.0+cu130") is `wanted` (2, 11) or later. A version that says nothing is not."""
    found = []
    for part in str(version or "").split("+")[0].split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        found.append(int(digits))
    return tuple(found) >= tuple(wanted) if found else False


def not_multiple(gemm: str, m: int, k: int, n: int, multiple: int) -> Optional[str]:
    """The reason when the reduced size or the output's columns are no multiple; the same words as LoKA's own."""
    sizes = {"m": m, "k": k, "n": n}
    for name in REDUCED_AND_COLS[gemm]:
        if sizes[name] % multiple:
            return f"{name} = {sizes[name]} is not a multiple of {multiple}"
    return None


__all__ = [
    "TORCH", "TRANSPOSED", "Adapter", "Calls", "Cast", "Environment", "Refused", "adapters", "at_least", "distribution_version",
    "Parts", "missing", "need", "not_multiple", "of_its_own", "one_line",
    "operand_shapes",
]
