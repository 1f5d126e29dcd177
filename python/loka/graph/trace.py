"""Takes a model; gives the flow of its forward from a symbolic trace: no data is run.

What cannot be traced is read in parts: each module inside it that can be is traced alone, and where its result
goes is then unknown.
"""

import operator
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from loka import names

from .calls import LEAVES, OPAQUE, OUTPUT, RESHAPE, SITE, STRUCTURE, Call, Flow, Op
from .ops import Look, of_function, of_module
from .tracer import SiteTracer, Untraceable, contains_linear, inside, trace

_ABOUT = frozenset(
    """shape size dim ndim ndimension numel nelement dtype device layout stride is_contiguous requires_grad is_cuda
    element_size is_floating_point names itemsize nbytes is_sparse is_quantized""".split()
)
"""What tells about a tensor and reads none of its numbers."""


def traced(model: nn.Module, example: Optional[Tuple[Any, ...]]) -> Flow:
    """The flow of an unwrapped model. Notes say what could not be traced."""
    flow = Flow()
    if isinstance(model, nn.Linear):
        value = flow.new_value(model.out_features)
        site = next(site for site, _ in names.linears(model))
        flow.calls += [Call(Op(SITE), (), (value,), site=site), Call(Op(OUTPUT), (value,), ())]
        return flow
    reading = _Reading(model, flow)
    if reading.read(model, example, top=True) is None:
        for part in reading.parts(model):
            reading.read_part(part)
    return flow


class _Reading:
    """One model being read, part by part."""

    def __init__(self, model: nn.Module, flow: Flow):
        self.flow = flow
        self.sites: Dict[nn.Module, str] = {module: site for site, module in names.linears(model)}
        self.names: Dict[nn.Module, str] = {}
        for name, module in model.named_modules():
            self.names.setdefault(inside(module), names.clean(name))
        self.opaque: Dict[nn.Module, str] = {}

    def read(self, root: nn.Module, example: Optional[Tuple[Any, ...]], top: bool) -> Optional[Tuple[int, ...]]:
        """Adds the calls of one trace; gives the values that it returns, or None when it cannot be traced."""
        try:
            graph, tracer = trace(root, example, self.opaque)
        except Untraceable as error:
            self.flow.note(f"{self.names.get(root) or 'the model'} cannot be traced: {error}")
            return None
        return _Graph(self, tracer, root, top).add(graph)

    def read_part(self, part: nn.Module) -> Tuple[int, ...]:
        """Adds what can be read of a module on its own; gives the values that leave it."""
        if isinstance(part, nn.Linear):
            if part not in self.sites:
                return ()
            value = self.flow.new_value(part.out_features)
            self.flow.calls += [
                Call(Op(SITE), (), (value,), site=self.sites[part]), Call(Op(LEAVES), (value,), ()),
            ]
            return (value,)
        found = None if part in self.opaque else self.read(part, None, top=False)
        if found is not None:
            return found
        return tuple(value for inner in self.parts(part) for value in self.read_part(inner))

    def parts(self, module: nn.Module) -> Iterator[nn.Module]:
        """The nearest modules within that have a forward of their own and hold linears."""
        for child in map(inside, module.children()):
            if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
                yield from self.parts(child)
            elif contains_linear(child) and not isinstance(child, nn.MultiheadAttention):
                yield child


class _Graph:
    """One torch.fx graph on its way into the flow."""

    def __init__(self, reading: _Reading, tracer: SiteTracer, root: nn.Module, top: bool):
        self.reading, self.flow, self.tracer, self.root, self.top = reading, reading.flow, tracer, root, top
        self.values: Dict[fx.Node, int] = {}
        self.about: Dict[fx.Node, Tuple[str, Optional[int]]] = {}
        """Nodes that are sizes: ("shape" | "last" | "width" | "", the last dimension they speak of)."""
        self.parameters: Dict[fx.Node, torch.Tensor] = {}
        self.look = Look(self.num_values, self.reshaped, self.parameter, self.width)

    def add(self, graph: fx.Graph) -> Tuple[int, ...]:
        for node in graph.nodes:
            getattr(self, node.op)(node)
        self.flow.held |= {self.values[node] for node in self.put_aside() if node in self.values}
        return self.reads(next(node for node in reversed(graph.nodes) if node.op == "output").args)  # pyright: ignore

    def put_aside(self) -> Iterator[fx.Node]:
        """What the forward left in attributes, also inside their lists, tuples and dicts."""
        for module in self.root.modules():
            for held in pytree.tree_leaves(list(vars(module).values())):
                if isinstance(held, fx.Proxy) and held.tracer is self.tracer:
                    yield held.node

    # One method for each kind of node, by torch.fx's names.

    def placeholder(self, node: fx.Node) -> None:
        self.values[node] = self.flow.new_value()

    def get_attr(self, node: fx.Node) -> None:
        found: Any = self.root
        try:
            found = operator.attrgetter(str(node.target))(found)
        except AttributeError:
            found = None
        if isinstance(found, nn.Parameter):
            self.parameters[node] = found

    def call_module(self, node: fx.Node) -> None:
        module = self.tracer.called[node]
        site = self.reading.sites.get(module, "")
        name = self.reading.names.get(module, "")
        if isinstance(module, nn.Linear) and site:
            self.append(node, Op(SITE), site=site, features=module.out_features)
        elif module in self.reading.opaque:
            self.opaque_module(node, module, name)
        else:
            self.append(node, of_module(module), name=name)

    def opaque_module(self, node: fx.Node, module: nn.Module, name: str) -> None:
        self.flow.note(f"{name} is not read through: {self.reading.opaque[module]}")
        first = len(self.flow.calls)
        leaving = tuple(value for part in self.reading.parts(module) for value in self.reading.read_part(part))
        inner = tuple(call.site for call in self.flow.calls[first:] if call.site)
        self.append(node, Op(OPAQUE), name=name, more=leaving, inner=inner)

    def call_function(self, node: fx.Node) -> None:
        function, attribute = node.target, str(node.args[1]) if len(node.args) > 1 else ""
        if function is getattr and attribute in _ABOUT:
            self.about[node] = ("shape", self.known(node.args[0])) if attribute == "shape" else ("", None)  # pyright: ignore
        elif self.only_about(node):
            self.about[node] = self.of_shape(node)
        elif is_named_linear(function):
            weight = self.parameter(node.args[1] if len(node.args) > 1 else node.kwargs.get("weight"))
            features = None if weight is None else weight.shape[0]
            self.append(node, Op(SITE), site=str(node.kwargs.get("name")), features=features)
        elif function is getattr:
            self.function(node, attribute)
        else:
            self.function(node, function_name(function))

    def call_method(self, node: fx.Node) -> None:
        method = str(node.target)
        if method in _ABOUT:
            whole = method == "size" and len(node.args) == 1
            last = method == "size" and node.args[1:] == (-1,)
            kind = "shape" if whole else "width" if last else ""
            self.about[node] = (kind, self.known(node.args[0]) if kind else None)
        elif self.only_about(node):
            self.about[node] = ("", None)
        else:
            self.function(node, plain_name(method))

    def output(self, node: fx.Node) -> None:
        kind = OUTPUT if self.top else LEAVES
        self.flow.calls.append(Call(Op(kind), self.reads(node.args), ()))

    # What the methods above need.

    def function(self, node: fx.Node, name: str) -> None:
        op = of_function(name, node.args, node.kwargs, self.look)
        if op.function == "linear":
            self.flow.note("a functional linear is not a site: loka.linear(..., name=...) makes it one")
        self.append(node, op)

    def append(
        self, node: fx.Node, op: Op, site: str = "", name: str = "", features: Optional[int] = None,
        more: Tuple[int, ...] = (), inner: Tuple[str, ...] = (),
    ) -> None:
        reads = self.reads((node.args, node.kwargs))
        if op.function in ("view_as", "reshape_as", "type_as"):
            reads = reads[:1]
        if op.kind == RESHAPE:
            features = op.features
        elif op.kind not in (SITE, STRUCTURE, OPAQUE) and reads:
            features = self.flow.features.get(reads[0])
        value = self.flow.new_value(features)
        self.values[node] = value
        source = node.args[0] if node.args else None
        if op.inplace and isinstance(source, fx.Node):
            # Who reads that tensor from here on reads the result.
            self.values[source] = value
        self.flow.calls.append(Call(op, reads + more, (value,), site=site, name=name, inner=inner))

    def reads(self, args: Any) -> Tuple[int, ...]:
        found: List[int] = []
        fx.map_arg(args, lambda node: found.append(self.values[node]) if node in self.values else None)
        return tuple(dict.fromkeys(found))

    def only_about(self, node: fx.Node) -> bool:
        sources = node.all_input_nodes
        return bool(sources) and all(source in self.about for source in sources)

    def known(self, node: Any) -> Optional[int]:
        """The last dimension of a node's tensor."""
        if node in self.parameters:
            return self.parameters[node].shape[-1]
        return self.flow.features.get(self.values.get(node, -1))

    def of_shape(self, node: fx.Node) -> Tuple[str, Optional[int]]:
        source = node.args[0] if node.args else None
        kind, last = self.about.get(source, ("", None)) if isinstance(source, fx.Node) else ("", None)
        if node.target is operator.getitem and kind == "shape":
            if node.args[1] == -1:
                return "width", last
            if node.args[1] == slice(-1, None):
                return "last", last
        return "", None

    def width(self, arg: Any) -> Optional[int]:
        if isinstance(arg, (tuple, list)):
            return self.size(arg[0]) if len(arg) == 1 else None
        if isinstance(arg, fx.Node) and self.about.get(arg, ("",))[0] == "last":
            return self.about[arg][1]
        return self.size(arg)

    def size(self, arg: Any) -> Optional[int]:
        """The number that one entry of a shape is."""
        if isinstance(arg, int) and arg > 0:
            return arg
        if isinstance(arg, fx.Node) and self.about.get(arg, ("",))[0] == "width":
            return self.about[arg][1]
        return None

    def reshaped(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[int]:
        rest = list(args[1:]) or list(kwargs.values())
        if not rest:
            return None
        if name in ("view_as", "reshape_as"):
            return self.known(rest[0])
        if name == "unflatten":
            return self.size(rest[1][-1]) if rest[0] == -1 and isinstance(rest[1], (tuple, list)) else None
        if name == "flatten":
            keeps = kwargs.get("end_dim", rest[1] if len(rest) > 1 else None) == -2
            return self.known(args[0]) if keeps else None
        if len(rest) == 1 and isinstance(rest[0], fx.Node) and self.about.get(rest[0], ("",))[0] == "shape":
            return self.about[rest[0]][1]
        shape = rest[0] if len(rest) == 1 and isinstance(rest[0], (tuple, list)) else rest
        return self.size(shape[-1]) if shape else None

    def parameter(self, arg: Any) -> Optional[torch.Tensor]:
        return self.parameters.get(arg) if isinstance(arg, fx.Node) else None

    def num_values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        return len(self.reads((args, kwargs)))


def function_name(function: Any) -> str:
    """The plain name of one of PyTorch's or Python's own functions, else nothing: a user's `relu` may be anything."""
    home = getattr(function, "__module__", None) or "torch"
    known = home.split(".")[0] in ("torch", "_operator", "operator", "builtins", "math")
    return plain_name(getattr(function, "__name__", "")) if known else ""


def plain_name(name: str) -> str:
    """`__add__` is add; `add_`, in place, stays."""
    return name.strip("_") + "_" * (name.endswith("_") and not name.endswith("__"))


def is_named_linear(function: Any) -> bool:
    """True for loka.linear."""
    home = getattr(function, "__module__", None) or ""
    return getattr(function, "__name__", "") == "linear" and home.split(".")[0] == "loka"


__all__ = ["function_name", "is_named_linear", "traced"]
