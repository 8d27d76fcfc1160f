"""A captured model as a `tl.Module`: its state under torch's names, and one graph for each mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from trellis.convert.common import Node, attribute_name
from trellis.core.array import Array
from trellis.core.container import Container
from trellis.nn.module import Module
from trellis.nn.structure import is_floating
from trellis.trace.graph import Graph, is_array_leaf
from trellis.trace.rows import RANDOM
from trellis.trace.rows.support import DRAW


class Mode(NamedTuple):
    """The graph of a model in one mode. Its inputs are the state, by name, then the arrays among the arguments."""

    graph: Graph
    state: list[str]
    changed: list[str]
    results: int
    result: Any


class Arguments:
    """Takes the arrays from the arguments of a call, which must have the structure of the example."""

    def __init__(self, name: str, signature: inspect.Signature | None, skeleton: Any, is_hole: Callable[[Any], bool]) -> None:
        self.name, self.signature, self.is_hole = name, signature, is_hole
        self.skeleton = self._bound(*skeleton)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if self.signature is None:
            return {"args": tuple(args), **kwargs}
        try:
            found = dict(self.signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None
        for name, parameter in self.signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                found |= found.pop(name, {})
        return found

    def take(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        found: dict[int, Any] = {}
        given = self._bound(args, kwargs)
        for name in {**self.skeleton, **given}:
            if name not in self.skeleton and given[name] is not None:
                raise TypeError(
                    f"{self.name}: the argument {name!r} was not in the example; transpile with an example that has it"
                )
            if name in self.skeleton:
                self._match(self.skeleton[name], given.get(name), name, found)
        return [found[i] for i in sorted(found)]

    def _match(self, expected: Any, given: Any, path: str, found: dict[int, Any]) -> None:
        if self.is_hole(expected):
            if not is_array_leaf(given):
                raise TypeError(f"{self.name}: {path} is {_named(given)}; the example has an array there")
            found[expected.number] = given
            return
        if isinstance(expected, Mapping) and isinstance(given, Mapping):
            pairs = [(key, expected.get(key), given.get(key)) for key in {**expected, **given}]
        elif isinstance(expected, (list, tuple)) and isinstance(given, (list, tuple)) and len(expected) == len(given):
            pairs = [(i, a, b) for i, (a, b) in enumerate(zip(expected, given))]
        else:
            if is_array_leaf(given) or (expected is not given and expected != given):
                raise TypeError(
                    f"{self.name}: {path} is {_named(given)}; the example has {_named(expected)} there, and the graph is for that"
                )
            return
        for key, a, b in pairs:
            self._match(a, b, f"{path}/{key}", found)


def _named(x: Any) -> str:
    return f"a {type(x).__name__}" if is_array_leaf(x) or isinstance(x, (list, tuple, dict, Container)) else repr(x)


def _draws(node: Any) -> bool:
    return node.op in RANDOM or "dropout" in node.op or (node.op.startswith("scaled_dot") and bool(node.operands[4]))


class Program:
    """What a transpiled model runs: graphs by mode, and how arguments and results come apart and together."""

    def __init__(self, modes: Mapping[bool, Mode], arguments: Arguments, fill: Callable[[Any, Sequence[Any]], Any]) -> None:
        self.modes, self.arguments, self.fill = dict(modes), arguments, fill

    def mode(self, training: bool) -> Mode | None:
        """The graph of a mode; a source without modes, or captured in one only, has the other in its place."""
        return self.modes.get(training) or self.modes.get(not training)

    def run(self, training: bool, state: Callable[[str], Any], leaves: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        """The result, and the new values of buffers by name."""
        mode: Any = self.mode(training)
        outputs = mode.graph.run([*map(state, mode.state), *leaves])
        return self.fill(mode.result, outputs[: mode.results]), dict(zip(mode.changed, outputs[mode.results :]))

    def __deepcopy__(self, memo: Any) -> Program:
        return self  # nothing changes it


class Transpiled(Module):
    """A model of another framework as a Module. Its own attributes have no leading underscore: those with one are its state."""

    program: Program
    title: str
    draws: bool

    def __init__(self, title: str, program: Program, state: Mapping[str, Array], buffers: set[str], frozen: set[str]) -> None:
        self.title, self.program = title, program
        self.draws = any(_draws(node) for mode in program.modes.values() for node in mode.graph.nodes)  # read by converters
        parts: dict[tuple[str, ...], Module] = {(): self}
        for name, array in state.items():
            path = tuple(name.split("."))
            for end in range(1, len(path)):
                if path[:end] not in parts:
                    parts[path[:end]] = Node()
                    setattr(parts[path[: end - 1]], attribute_name(path[end - 1]), parts[path[:end]])
            owner, attribute = parts[path[:-1]], attribute_name(path[-1])
            if name in buffers or not is_floating(array):
                owner._meta.buffers.add(attribute)
            object.__setattr__(owner, attribute, array)
            if name in frozen:
                owner._meta.frozen.add(attribute)

    @property
    def graph(self) -> Graph:
        """The graph of the present mode."""
        return (self.program.modes.get(self.training) or self.program.modes[not self.training]).graph

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self.program.arguments.take(args, kwargs)
        token = DRAW.set(self.next_seed)
        try:
            result, changed = self.program.run(self.training, self.state_at, leaves)
        finally:
            DRAW.reset(token)
        for name, value in changed.items():
            owner, attribute = self.place_of(name)
            setattr(owner, attribute, value)
        return result

    def place_of(self, name: str) -> tuple[Any, str]:
        *above, last = name.split(".")
        owner: Any = self
        for part in above:
            owner = owner.__dict__[attribute_name(part)]
        return owner, attribute_name(last)

    def state_at(self, name: str) -> Any:
        owner, attribute = self.place_of(name)
        return owner.__dict__[attribute]

    def _repr_arguments(self) -> str:
        return self.title
