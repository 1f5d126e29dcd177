"""Takes modules that read parameters by functions (F.linear, @, einsum, bmm, baddbmm, nn.MultiheadAttention); gives the same
modules, whose recorded steps record each such product as a site named after its parameter.

    attention.in_proj_weight          a whole parameter, [n, k] or [k, n]
    attention.in_proj_weight[0:64]    rows of one, as attention over other keys reads it
    experts[3]                        the fourth matrix of [experts, k, n], alone or in one bmm or einsum

Such a module's forward runs, in recorded steps, under a TorchFunctionMode that knows its parameters. Compiled code is traced under
one that knows whole matrices alone (`loka.products`): stacks and parts are listed as not seen there.
"""

import functools
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from loka.names import clean, unwrapped
from loka.products import ADDMMS, MATMULS, TRACEABLE, Hooks, Plain, Products, attend, attending, read_attention, saving
from loka.record.taps import Batch, Sink, Tap, Untapped, tapped
from loka.steps import Active

_BATCHED = {torch.bmm, Tensor.bmm}
_BATCHED_ADDS = {torch.baddbmm, Tensor.baddbmm}


SiteOf = Callable[[str, str, Callable[[], List[Optional[Tensor]]], str], Sink]

_APART = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
"""Of an attention: their bias is one, in this order."""

_PLAIN = {("", "nk", ""): "linear", ("", "kn", ""): "matmul"}
"""What the manifest calls the forward of a product with a whole matrix, which `loka.apply` reaches."""


class Part(NamedTuple):
    """A matrix or a stack of them among a module's parameters. `take` gives it of the parameter."""

    parameter: str
    suffix: str
    take: Callable[[Tensor], Tensor]
    transposed: bool = False

    @property
    def site(self) -> str:
        return self.parameter + self.suffix


class Product(NamedTuple):
    """One product, in einsum's letters: of the input, the weight and the output. Input and output of "" have their
    features last."""

    part: Part
    x: Tensor
    bias: Optional[Part]
    """`[n]`, of a stack `[stack, 1, n]`."""
    letters: Tuple[str, str, str]
    examples: int = 0
    """In PyTorch's attention: `loka.products.examples_of`."""

    @property
    def forward(self) -> str:
        """As the manifest has it."""
        return "parameter" if self.part.suffix else _PLAIN.get(self.letters, "parameter")


def readers(model: nn.Module) -> Iterator[Tuple[str, nn.Module]]:
    """(name, module) of the modules that hold matrices which only a function can read."""
    for name, module in unwrapped(model).named_modules():
        if isinstance(module, nn.MultiheadAttention):
            # One with a forward of its own may do anything with them.
            own = _author_of_forward(type(module)) is not nn.MultiheadAttention
        else:
            own = isinstance(module, nn.Linear) or type(module).__module__.startswith("torch.nn.modules.")
        matrices = [path for path in paths(module) if (each := _parameter(module, path)) is not None and _is_matrix(each)]
        if matrices and not own and "forward" not in module.__dict__:
            yield clean(name), module


def _author_of_forward(cls: type) -> type:
    """The class whose forward it is, apart from what a plan puts around it."""
    return next(each for each in cls.__mro__ if "forward" in vars(each) and not each.__module__.startswith("loka."))


def _is_matrix(parameter: Tensor) -> bool:
    return not torch.nn.parameter.is_lazy(parameter) and parameter.dim() in (2, 3)


def paths(module: nn.Module) -> List[str]:
    """The parameters that a module's forward reads by functions, by their names in it."""
    found = list(module._parameters)
    for name, child in module._modules.items():
        is_output = isinstance(module, nn.MultiheadAttention) and name == "out_proj"
        if child is not None and (is_output or isinstance(child, (nn.ParameterList, nn.ParameterDict))):
            found += [f"{name}.{each}" for each in child._parameters]
    return found


def _parameter(module: nn.Module, path: str) -> Optional[Tensor]:
    inside, _, name = path.rpartition(".")
    return getattr(module.get_submodule(inside) if inside else module, name)


class Reader:
    """What one module knows of its recorder, as a `Tap` is of a linear's: of the parameters `paths` in it.
    `site(parameter, name, tensors, forward)` gives the sink of a site, `tensors()` its weight and bias as they are then."""

    def __init__(self, switch: Active, module: nn.Module, name: str, site: "SiteOf", paths: Sequence[str]) -> None:
        self.switch = switch
        self.paths = list(paths)
        self.running: Optional[str] = None
        """The parameter of the product that runs at the moment and is recorded."""
        self.error: Optional[Exception] = None
        self._module = module
        self._prefix = f"{name}." if name else ""
        self._site = site
        self._taps: Dict[str, Tap] = {}
        self._sinks: Dict[str, Tuple[Tuple[str, str, str], "_Sinks"]] = {}
        self.products: List["_TappedProduct"] = []
        """What compiled code hands its products to."""
        self.vectors: List[str] = []
        self.read(paths)

    def read(self, paths: Sequence[str]) -> None:
        """From now on of these parameters, too."""
        read_attention()
        known = {product.path for product in self.products}
        # An attention with a plan's kernels is run by the plan's mode, and compiled code leaves no note of its examples.
        planned = isinstance(self._module, nn.MultiheadAttention) and "_loka_products" in self._module.__dict__
        for path in paths if TRACEABLE and not planned else ():
            whole = self._parameter(path)
            if path in known or whole is None or torch.nn.parameter.is_lazy(whole):
                continue
            if whole.dim() == 1:
                self.vectors.append(path)
            elif whole.dim() == 2:
                self.products += [_TappedProduct(self, path, columns) for columns in (False, True)]

    def release(self) -> None:
        """Calls that still come go nowhere."""
        for tap in [*self._taps.values(), *(product.tap for product in self.products)]:
            tap.release()
        self._taps.clear()
        self._sinks.clear()
        self.products = []

    def reading(self) -> "_Reading":
        """The mode of one forward."""
        return _Reading(self)

    def held(self) -> Dict[int, Tuple[str, Tensor]]:
        """The parameters of this moment, by identity: FSDP2 puts others in place."""
        found = ((path, self._parameter(path)) for path in self.paths)
        return {id(each): (path, each) for path, each in found if each is not None}

    def full_name(self, path: str) -> str:
        """As the model has it."""
        return clean(self._prefix + path)

    def fits(self, product: Product) -> bool:
        """Whether the letters are those of what is multiplied: a vector for each example, or one matrix of a stack for all of x's,
        are not."""
        (inputs, letters, _), weight = product.letters, self._tensor(product.part)
        if weight is None or weight.dim() != len(letters) or inputs and product.x.dim() != len(inputs):
            return False
        stack = _batch(product.letters)
        return not stack or product.x.shape[inputs.index(stack)] == weight.shape[letters.index(stack)]

    def tap(self, product: Product) -> Optional[Tap]:
        """The tap of a product; None where the same matrix was read in another way before."""
        sinks = self.sinks(product)
        if sinks is None:
            return None
        site = product.part.site
        if site not in self._taps:
            self._taps[site] = Tap(self.switch, sinks)
        sinks.leading, sinks.examples = product.examples or _leading(product), product.examples
        return self._taps[site]

    def sinks(self, product: Product) -> Optional["_Sinks"]:
        """Where the calls of a product go; None where the same matrix was read in another way before."""
        # Not the product itself in what stays: its x has a graph, which leads back here.
        part, of_bias = product.part, product.bias
        if part.site not in self._sinks:
            names, weights = self._weights(part, product.letters)

            def tensors(index: int) -> List[Optional[Tensor]]:
                bias = self._tensor(of_bias)
                return [weights(index), bias if bias is None or bias.dim() == 1 else bias[index].flatten()]

            self._sinks[part.site] = product.letters, _Sinks(product.letters, [
                self._site(self.full_name(part.parameter), name, functools.partial(tensors, i), product.forward)
                for i, name in enumerate(names)
            ])  # fmt: skip
        letters, sinks = self._sinks[part.site]
        return sinks if letters == product.letters else None

    def _weights(
        self, part: Part, letters: Tuple[str, str, str]
    ) -> Tuple[List[str], Callable[[int], Optional[Tensor]]]:
        name = self.full_name(part.site)
        # An attention's output projection is a module, and its name the module's, though nobody calls it.
        name = name.removesuffix(".out_proj.weight") + ".out_proj" if name.endswith(".out_proj.weight") else name
        weight, batch = letters[1], _batch(letters)

        def matrix(index: int) -> Optional[Tensor]:
            whole = self._tensor(part)
            found = None if whole is None else _matrices(whole, letters)
            return found[index] if batch and found is not None else found

        if not batch:
            return [name], matrix
        stack = self._tensor(part)
        assert stack is not None, "it is being read"
        return [f"{name}[{i}]" for i in range(stack.shape[weight.index(batch)])], matrix

    def _tensor(self, part: Optional[Part]) -> Optional[Tensor]:
        if part is None:
            return None
        whole = self._parameter(part.parameter)
        return None if whole is None else part.take(whole)

    def parameter(self, path: str) -> Tensor:
        """That of this moment."""
        found = self._parameter(path)
        assert found is not None, "it was there when the recorder was attached"
        return found

    def _parameter(self, path: str) -> Optional[Tensor]:
        return _parameter(self._module, path)


class _Reading(TorchFunctionMode):
    """While one forward runs."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self._held = reader.held()
        self._saving = saving()

    def __enter__(self) -> Any:
        Hooks.count()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        Hooks.stop()
        super().__exit__(*error)

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            return attend(self, args, kwargs)
        tap = product = None
        try:
            product = _product(func, args, kwargs, self._find)
            # Inside of a checkpoint that was begun inside of this forward: run again, it would not come by here, and
            # checkpointing insists that a forward does the same twice.
            if product is not None and self._reader.fits(product) and saving() == self._saving:
                product = product._replace(examples=attending.examples)
                tap = self._reader.tap(product)
        except Exception as error:  # What cannot be recorded is not; the forward goes on.
            self._reader.error = error
        if tap is None or product is None:
            return func(*args, **kwargs)
        self._reader.running = self._reader.full_name(product.part.parameter)
        try:
            result = func(*args, **kwargs)
        finally:
            self._reader.running = None
        return tapped(result, product.x, tap, self._weight(product))

    def _weight(self, product: Product) -> Optional[Tensor]:
        return next((each for name, each in self._held.values() if name == product.part.parameter), None)

    def _find(self, tensor: Any) -> Optional[Part]:
        """What a tensor is of the module's parameters."""
        if not isinstance(tensor, Tensor):
            return None
        if id(tensor) in self._held:
            return Part(self._held[id(tensor)][0], "", lambda whole: whole)
        base = tensor._base
        if base is None or id(base) not in self._held:
            return None
        name, whole = self._held[id(base)]
        offset = tensor.storage_offset() - whole.storage_offset()
        if offset == 0 and tensor.shape == whole.shape[::-1] and tensor.stride() == whole.stride()[::-1]:
            return Part(name, "", lambda whole: whole, transposed=True)
        if tensor.stride() == whole.stride() and tensor.shape[1:] == whole.shape[1:]:
            first = int(offset // whole.stride(0))
            rows = slice(first, first + len(tensor))
            return Part(name, f"[{rows.start}:{rows.stop}]", lambda whole: whole[rows])
        if whole.dim() == 3 and tensor.stride() == whole.stride()[1:] and tensor.shape == whole.shape[1:]:
            index = offset // whole.stride(0)
            return Part(name, f"[{index}]", lambda whole: whole[index])
        if whole.dim() == 3 and offset == 0 and (tensor.shape, tensor.stride()) == _turned(whole):
            return Part(name, "", lambda whole: whole.transpose(1, 2))
        return None


class _Sinks(Sink):
    """Where the calls of one product go: to one site, or to that of each matrix of a stack."""

    def __init__(self, letters: Tuple[str, str, str], sinks: List[Sink]) -> None:
        self._letters = letters
        self._sinks = sinks
        self.leading = 0
        self.examples = 0

    def called(self, _leading: int) -> Batch:
        return [sink.called(self.leading) for sink in self._sinks][0]

    def take(self, x: Tensor, grad: Optional[Tensor], needs: int, examples: int) -> None:
        inputs, _, outputs = self._letters
        if self.examples:
            x = _examples_first(x, self.examples)
            grad = None if grad is None else _examples_first(grad, self.examples)
        xs = _rows(x, inputs, self._letters, 0)
        grads: Sequence[Optional[Tensor]] = [None] * len(xs) if grad is None else _rows(grad, outputs, self._letters, 2)
        for sink, some, other in zip(self._sinks, xs, grads):
            sink.take(some, other, needs, examples)


class _TappedProduct:
    """A parameter of a module that runs in compiled code (`loka.products.Product`). Whether anybody reads it so shows with the first
    call: a site is made then."""

    def __init__(self, reader: Reader, path: str, columns: bool) -> None:
        self.path, self.columns = path, columns
        self._reader = reader
        self.tap = Tap(reader.switch, self)

    @property
    def parameter(self) -> Tensor:
        return self._reader.parameter(self.path)

    def multiply(self, x: Tensor, bias: Optional[Tensor], plain: Plain, examples: int, /) -> Tensor:
        y = plain()
        if not examples:
            return tapped(y, x, self.tap, self.parameter)
        taken = tapped(_examples_first(y, examples), _examples_first(x, examples), self.tap, self.parameter)
        return taken.transpose(0, 1).reshape(y.shape)

    def called(self, _leading: int) -> Batch:
        return Batch()

    def take(self, x: Tensor, grad: Optional[Tensor], needs: int, examples: int) -> None:
        letters = ("", "kn" if self.columns else "nk", "")
        sinks = self._reader.sinks(Product(Part(self.path, "", lambda whole: whole), x, self._bias(), letters))
        if sinks is not None:
            sinks.take(x, grad, needs, examples)

    def _bias(self) -> Optional[Part]:
        """What is added, by its name: compiled code leaves no note of it."""
        name = self.path.replace("weight", "bias")
        outputs = self.parameter.shape[1 if self.columns else 0]
        if self.path in _APART and "in_proj_bias" in self._reader.vectors:
            rows = slice(_APART.index(self.path) * outputs, (_APART.index(self.path) + 1) * outputs)
            return Part("in_proj_bias", f"[{rows.start}:{rows.stop}]", lambda whole: whole[rows])
        vector = self._reader.parameter(name) if name in self._reader.vectors else None
        return None if vector is None or len(vector) != outputs else Part(name, "", lambda whole: whole)


class TappedReader(Untapped):
    """Put before the class of a module that reads parameters."""

    _loka_tap: Optional[Reader] = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        reader = self._loka_tap
        compiling = torch.compiler.is_compiling()
        if reader is None or not reader.switch.active or not self.training or (compiling and not TRACEABLE):
            return super().forward(*args, **kwargs)
        with Products(reader.products) if compiling else reader.reading():
            return super().forward(*args, **kwargs)


def _product(func: Any, args: Sequence[Any], kwargs: Any, find: Callable[[Any], Optional[Part]]) -> Optional[Product]:
    """What a function's call is, if it is the product of a tensor with a parameter from the right."""
    if func is F.linear:
        bound = {**dict(zip(("input", "weight", "bias"), args)), **kwargs}
        return _matrix(bound["input"], find(bound["weight"]), find(bound.get("bias")), rows_first=True)
    if func in MATMULS and len(args) == 2 and not kwargs:
        part = find(args[1])
        return _stack(args[0], part, None) if args[1].dim() == 3 else _matrix(args[0], part, None, rows_first=False)
    if func in _BATCHED and len(args) == 2:
        return _stack(args[0], find(args[1]), None)
    if func in _BATCHED_ADDS and len(args) == 3 and not kwargs:
        stack, _, features = args[2].shape
        # One that all matrices share is added to what they give, and none of their own.
        return _stack(args[1], find(args[2]), find(args[0]) if args[0].shape == (stack, 1, features) else None)
    if func in ADDMMS and len(args) == 3 and not kwargs:
        return _matrix(args[1], find(args[2]), find(args[0]), rows_first=False)
    if func is torch.einsum and len(args) == 3 and isinstance(args[0], str):
        return _einsum(args[0], args[1:], find)
    return None


def _matrix(x: Tensor, part: Optional[Part], bias: Optional[Part], rows_first: bool) -> Optional[Product]:
    if part is None or x.dim() < 2:
        return None
    shape = "nk" if rows_first != part.transposed else "kn"
    return Product(part, x, bias, ("", shape, ""))


def _stack(x: Tensor, part: Optional[Part], bias: Optional[Part]) -> Optional[Product]:
    """x `[..., stack, m, k]` by each of `[stack, k, n]`, or `[m, k]` by all of them."""
    if part is None or part.transposed or x.dim() < 2:
        return None
    if x.dim() == 2:
        return Product(part, x, None, ("mk", "ekn", "emn"))
    rows = "abcdfgh"[: x.dim() - 3]
    return Product(part, x, bias, (f"{rows}emk", "ekn", f"{rows}emn"))


def _turned(whole: Tensor) -> Tuple[torch.Size, Tuple[int, ...]]:
    """Shape and strides of the view in which the matrices of a stack are transposed."""
    turned = whole.detach().transpose(1, 2)
    return turned.shape, turned.stride()


def _einsum(equation: str, factors: Sequence[Tensor], find: Callable[[Any], Optional[Part]]) -> Optional[Product]:
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or "." in equation or len(terms) != 2:
        return None
    parts = [find(each) for each in factors]
    read = next(((i, part) for i, part in enumerate(parts) if part is not None and not part.transposed), None)
    if read is None:
        return None
    place, part = read
    weight, x = terms[place], terms[1 - place]
    letters = (x, weight, output)
    stack, ins, outs = _batch(letters), _ins(letters), _outs(letters)
    rows = [each for each in x if each not in weight]
    known = set(stack) | set(ins) | set(outs)
    plain = all(len(set(term)) == len(term) for term in letters)
    whole = set(weight) == known and set(x) == {*stack, *ins, *rows} and set(output) == {*stack, *outs, *rows}
    if not (plain and whole and ins and outs and rows and len(stack) <= 1):
        return None
    return Product(part, factors[1 - place], None, letters)


def _batch(letters: Tuple[str, str, str]) -> str:
    """The letter that numbers the matrices of a stack; nothing where there is one."""
    x, weight, output = letters
    return "".join(each for each in weight if each in x and each in output)


def _ins(letters: Tuple[str, str, str]) -> str:
    x, weight, output = letters
    return "k" if not x else "".join(each for each in weight if each in x and each not in output)


def _outs(letters: Tuple[str, str, str]) -> str:
    x, weight, output = letters
    return "n" if not x else "".join(each for each in weight if each in output and each not in x)


def _matrices(weight: Tensor, letters: Tuple[str, str, str]) -> Tensor:
    """`[n, k]`, or `[stack, n, k]`."""
    stack, ins, outs = _batch(letters), _ins(letters), _outs(letters)
    order = stack + outs + ins
    ordered = weight.permute([letters[1].index(each) for each in order]) if order != letters[1] else weight
    at = len(stack)
    return ordered if len(order) == at + 2 else ordered.flatten(at + len(outs)).flatten(at, at + len(outs) - 1)


def _rows(values: Tensor, term: str, letters: Tuple[str, str, str], place: int) -> List[Tensor]:
    """`[..., features]` of each site. Rows come in the order of the input's letters."""
    if not term:
        return [values]
    stack, features = _batch(letters), _ins(letters) if place == 0 else _outs(letters)
    rows = "".join(each for each in letters[0] if each not in letters[1])
    ordered = values.permute([term.index(each) for each in stack + rows + features])
    ordered = ordered.flatten(len(stack) + len(rows))
    return list(ordered.unbind(0)) if stack else [ordered]


def _examples_first(values: Tensor, examples: int) -> Tensor:
    values = values.unflatten(0, (-1, examples)) if values.dim() == 2 else values
    return values.transpose(0, 1)


def _leading(product: Product) -> int:
    inputs, weight, _ = product.letters
    if not inputs:
        return product.x.shape[0]
    return product.x.shape[next(i for i, each in enumerate(inputs) if each not in weight)]


__all__ = ["Reader", "TappedReader", "paths", "readers"]
