"""Takes parameters that a model's code multiplies by with functions (F.linear, `x @ w`, mm, addmm); hands each such product to
whoever asked for it, while a forward runs.

Such a product has no module that could be replaced. A TorchFunctionMode sees it, run as it is written or traced by torch.compile,
which leaves nothing of the mode in what it makes. Of a parameter as a whole, not of a part; of its transpose where the code is run as
it is written. PyTorch's attention comes to a mode as one call; it is run so that the linears in it come, too.
"""

import threading
import types
from typing import Any, Callable, List, Mapping, Optional, Protocol, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MATMULS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}
ADDMMS = {torch.addmm, Tensor.addmm}
_FLIPS = {Tensor.t, torch.t, getattr(Tensor.T, "__get__"), getattr(Tensor.mT, "__get__")}
_TRANSPOSES = {torch.transpose, Tensor.transpose, torch.swapaxes, Tensor.swapaxes}

TRACEABLE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)
"""Whether torch.compile of this PyTorch follows the mode. Older ones are left alone: their compiled code runs as it is written."""

Plain = Callable[[], Tensor]


class Product(Protocol):
    """A parameter of two dimensions, and what becomes of a product with it."""

    columns: bool
    """It is [k, n], as in `x @ w`; else [n, k], as F.linear reads it."""

    @property
    def parameter(self) -> Tensor:
        """As the model has it at the moment."""
        ...

    def multiply(self, x: Tensor, bias: Optional[Tensor], plain: Plain, examples: int, /) -> Tensor:
        """[..., n] of x [..., k] and bias [n]; `plain()` is what the model's code asked for. `examples`: see `examples_of`, of
        compiled code."""
        ...


class _Attending(threading.local):
    examples = 0
    mode: Optional[TorchFunctionMode] = None


attending = _Attending()
"""The attention of PyTorch's that runs at the moment as it is written: its `examples_of`, and the mode that its linears come to."""


def examples_of(args: Sequence[Any], kwargs: Any) -> int:
    """Of a call of PyTorch's attention, whose rows are positions first, [positions, examples, k] or the two as one: how many examples;
    0 of a single one."""
    query = args[0] if args else kwargs["query"]
    return query.shape[1] if query.dim() == 3 else 0


def attend(mode: TorchFunctionMode, args: Sequence[Any], kwargs: Any) -> Any:
    """Runs the attention that came to `mode` as one call: the linears in it come, too."""
    before = attending.examples, attending.mode
    attending.examples, attending.mode = examples_of(args, kwargs), mode
    try:
        return _attention.as_written(*args, **kwargs)
    finally:
        attending.examples, attending.mode = before


def _linear(*args: Any, **kwargs: Any) -> Tensor:
    assert attending.mode is not None, "nothing but `attend` comes here"
    # For this call alone: under a mode each of the many others would take a few microseconds.
    with attending.mode:
        return F.linear(*args, **kwargs)


def _check_key_padding_mask(mask: Tensor, positions: int, examples: int) -> None:
    """As PyTorch does, without a function that compilers do not follow."""
    if mask.shape != (examples, positions):
        raise AssertionError(f"key_padding_mask is {list(mask.shape)}, expected [{examples}, {positions}]")


_CHANGES = {"has_torch_function": lambda *_: False, "_check_key_padding_mask": _check_key_padding_mask}


class _Attention:
    """PyTorch's attention as it is at the moment, but for its linears: it takes no notice of a mode, and runs itself."""

    def __init__(self) -> None:
        self._functions = dict(vars(F))
        plain, parts = F.multi_head_attention_forward, ("_in_projection_packed", "_in_projection")
        linears = {name: _copied(getattr(F, name), {"linear": _linear}) for name in parts if hasattr(F, name)}
        self.compiled = _copied(plain, _CHANGES)
        self.as_written = _copied(plain, {**_CHANGES, **linears, "linear": _linear})

    def is_current(self) -> bool:
        """Whether nobody has replaced it since, or what it calls: scaled_dot_product_attention is by some."""
        return all(self._functions.get(name) is each for name, each in vars(F).items())


def _copied(function: Any, changes: Mapping[str, Any]) -> Any:
    """The function, with other globals. What somebody has put in its place and is none is left as it is."""
    if not isinstance(function, types.FunctionType):
        return function
    scope = {**function.__globals__, **changes}
    # By its module's name compilers would look for what it calls in the module itself.
    scope.pop("__name__", None)
    made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


_attention = _Attention()


def read_attention() -> None:
    """Looks at PyTorch's attention again. Not in every call, nor if it is what it was: compiled code would be compiled again."""
    global _attention
    if not _attention.is_current():
        _attention = _Attention()


class Products(TorchFunctionMode):
    """While one forward runs."""

    def __init__(self, products: Sequence[Product], examples: int = 0) -> None:
        super().__init__()
        self._products, self._examples = products, examples
        self._known: List[Tuple[Tensor, Product, bool]] = [
            (product.parameter, product, product.columns) for product in products
        ]
        self._saving = None if torch.compiler.is_compiling() else saving()

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func is F.linear or func in MATMULS or func in ADDMMS:
            x, weight, bias = _factors(func, args, given)
            product = self._find(x, weight, func is not F.linear)
            if product is not None:
                return product.multiply(x, bias, lambda: func(*args, **given), self._examples)
            return func(*args, **given)
        if func is F.multi_head_attention_forward:
            if torch.compiler.is_compiling():
                # Another mode, of its own: to change this one is not allowed either.
                with Products(self._products, examples_of(args, given)):
                    return _attention.compiled(*args, **given)
            return attend(self, args, given)
        if func is Tensor.unflatten and torch.compiler.is_compiling():
            # The method asks its base class by super(), which compilers follow from no mode.
            return torch.unflatten(*args, **given)
        result = func(*args, **given)
        if torch.compiler.is_compiling():
            # What is noted here might be noted within a higher-order operator, where compilers allow no such thing.
            return result
        if (func in _FLIPS and len(args) == 1) or (func in _TRANSPOSES and len(args) == 3 and _is_flip(*args)):
            for whole, product, columns in self._known:
                if args[0] is whole:
                    self._known.append((result, product, not columns))
                    break
        return result

    def _find(self, x: Any, weight: Any, columns: bool) -> Optional[Product]:
        """Whose product that is. Nobody's, inside of a checkpoint that was begun inside of this forward: run again, it would not
        come by here, and checkpointing insists that a forward does the same twice."""
        for whole, product, as_columns in self._known:
            if weight is whole and columns == as_columns and type(x) in (Tensor, nn.Parameter) and x.dim() >= 2:
                return product if torch.compiler.is_compiling() or saving() == self._saving else None
        return None


def _factors(func: Any, args: Sequence[Any], kwargs: Any) -> Tuple[Any, Any, Any]:
    """x, the weight and the bias of a product; None for what is not there."""
    if func is F.linear:
        x = args[0] if args else kwargs.get("input")
        weight = args[1] if len(args) > 1 else kwargs.get("weight")
        return x, weight, args[2] if len(args) > 2 else kwargs.get("bias")
    if kwargs:
        # Other names, factors of their own: as it is written.
        return None, None, None
    if func in ADDMMS:
        # A bias [n] alone: else it is a sum of two matrices.
        return (args[1], args[2], args[0]) if len(args) == 3 and args[0].dim() == 1 else (None, None, None)
    return (args[0], args[1], None) if len(args) == 2 else (None, None, None)


def _is_flip(whole: Tensor, first: Any, second: Any) -> bool:
    """Whether these two dimensions of a matrix are both of them."""
    return isinstance(first, int) and isinstance(second, int) and whole.dim() == 2 and (first - second) % 2 == 1


def saving() -> Any:
    """What checkpointing, or offloading, has put around saved tensors; None without."""
    if _top_hooks is None:
        return Hooks.inside or None
    hooks = _top_hooks(True)
    return None if hooks is None else hooks[0]


_autograd: Any = getattr(torch._C, "_autograd")
_top_hooks: Optional[Callable[[bool], Any]] = getattr(_autograd, "_top_saved_tensors_default_hooks", None)


class Hooks:
    """Before PyTorch 2.7 nobody tells what is around saved tensors: it is counted while a forward is read."""

    inside = 0
    _readings = 0
    _enter: Any = None
    _exit: Any = None

    @classmethod
    def count(cls) -> None:
        """Begins to."""
        if _top_hooks is not None:
            return
        cls._readings += 1
        if cls._readings > 1:
            return
        plain = torch.autograd.graph.saved_tensors_hooks
        enter, leave = cls._enter, cls._exit = plain.__enter__, plain.__exit__

        def entered(hooks: Any) -> Any:
            cls.inside += 1
            return enter(hooks)

        def left(hooks: Any, *error: Any) -> Any:
            cls.inside -= 1
            return leave(hooks, *error)

        setattr(plain, "__enter__", entered)
        setattr(plain, "__exit__", left)

    @classmethod
    def stop(cls) -> None:
        """Ends it."""
        if _top_hooks is not None:
            return
        cls._readings -= 1
        if not cls._readings:
            setattr(torch.autograd.graph.saved_tensors_hooks, "__enter__", cls._enter)
            setattr(torch.autograd.graph.saved_tensors_hooks, "__exit__", cls._exit)
            cls.inside = 0


__all__ = [
    "ADDMMS", "Hooks", "MATMULS", "Product", "Products", "TRACEABLE", "attend", "attending", "read_attention", "saving",
]
