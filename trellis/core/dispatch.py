"""Find the interpreter of an op by the type of its operands, and call it.

Rules this file obeys:
- An interpreter is a namespace of ops; `op(*arrays, **params)`: arrays positional, everything static by keyword.
- The operand of the highest level decides. Two frameworks at level 0 are an error, never a guess.
- Only libraries that are already imported are looked at: meeting an array never imports a second framework.
- Nothing is checked twice on the way down. When a framework raises, `diagnose` looks for a mistake that it can name better.
- No state that a second thread can see: the default backend is a context variable.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from operator import attrgetter
from typing import Any

import numpy as np

from trellis.core.diagnosis import Facts, check_present, explain

# One row per backend: name -> (module to look for, its array types, how to install it). A tracer of JAX is an instance of
# jax.Array, but its type is no subclass.
BACKENDS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "numpy": ("numpy", ("ndarray", "generic"), "numpy"),
    "jax": ("jax", ("Array", "core.Tracer"), "trellis[jax]"),
    "torch": ("torch", ("Tensor",), "trellis[torch]"),
    "tensorflow": ("tensorflow", ("Tensor", "Variable"), "trellis[tensorflow]"),
}


_MEANINGS = ("__mul__", "__array_ufunc__")  # a subclass of np.ndarray that has its own is another kind of array


class TwoFrameworks(TypeError):
    """Arrays of two frameworks meet in one call."""


class UnknownOperand(TypeError):
    """No interpreter knows operands of this type. A TypeError; operators turn it into NotImplemented."""


class Scalars:
    """The interpreter of Python numbers, below all others: alone, they go to the default backend as 0-d `tl.Array`s."""

    level = -1
    name = "python"
    as_array: Callable[[Any], Any]  # the module of `Array` sets it
    beside: Callable[[Any, tuple[Any, ...]], Any]  # of the best interpreter and operands, some free or lists; `free` sets it

    def __getattr__(self, op: str) -> Any:
        def run(*operands: Any, **params: Any) -> Any:
            if all(x is None for x in operands):
                check_present(op, operands, None)
                raise TypeError(f"{op}: expected an array or a number, got None")
            return call(op, *(x if x is None else self.as_array(x) for x in operands), **params)

        return run


class _Interpreters(dict[type, Any]):
    """Operand type -> interpreter. A type that is met first is looked up among the libraries already imported."""

    def __missing__(self, kind: type) -> Any:
        if issubclass(kind, np.ndarray) and any(getattr(kind, m) is not getattr(np.ndarray, m) for m in _MEANINGS):
            raise UnknownOperand(
                f"a {kind.__module__}.{kind.__qualname__} computes by rules of its own, which would be lost; "
                f"take the plain array with np.asarray(x){', or x.filled(value)' if issubclass(kind, np.ma.MaskedArray) else ''}"
            )
        for name in BACKENDS:
            if issubclass(kind, _array_types(name)):
                self[kind] = load(name)
                return self[kind]
        for known, interpreter in list(self.items()):
            if interpreter.level and issubclass(kind, known) and known not in (list, tuple):  # of Array, Container or a number
                self[kind] = interpreter
                return interpreter
        raise UnknownOperand(
            f"expected an array, got {kind.__module__}.{kind.__qualname__}; make it an array with tl.asarray, "
            f"or import the framework that it belongs to"
        )


def _array_types(name: str) -> tuple[type, ...]:
    """The array types of a backend whose library is imported; none of one that another thread is still importing."""
    module, array_types, _ = BACKENDS[name]
    try:
        return tuple(attrgetter(t)(sys.modules[module]) for t in array_types)
    except (KeyError, AttributeError):
        return ()


class Bringing:
    """An interpreter of operands that lie in several places: `bring` takes them to one, whose interpreter runs the op."""

    def __init__(self, level: float, bring: Callable[[tuple[Any, ...]], list[Any]], name: str = "") -> None:
        self.level, self.bring, self.name = level, bring, name

    def __getattr__(self, op: str) -> Any:
        def run(*operands: Any, **params: Any) -> Any:
            brought = self.bring(operands)
            return getattr(find_all(*brought), op)(*brought, **params)

        return run


def _beside_scalars(interpreter: Any) -> Bringing:
    """NumPy scalars beside arrays of a framework become 0-d arrays of the framework."""

    def bring(operands: tuple[Any, ...]) -> list[Any]:
        like = next((x for x in operands if interpreters[type(x)] is interpreter), None)
        return [interpreter.constant(np.asarray(x), like=like) if is_scalar(x) else x for x in operands]

    return Bringing(0, bring, interpreter.name)


FREE = -0.5  # the level of arrays that belong to no framework yet: above numbers, below all other arrays
LISTS = -0.75  # the level of lists of numbers, which become free arrays
SCALARS: Any = Scalars()
interpreters = _Interpreters(dict.fromkeys((bool, int, float, complex, type(None)), SCALARS))
_LOADED: dict[str, Any] = {}
_LOADING = threading.RLock()
_DEFAULT: ContextVar[str | None] = ContextVar("trellis_backend", default=None)


def find(x1: Any, x2: Any) -> Any:
    """The interpreter of two operands. For one, and for two of one type, write `interpreters[type(x)]`: each call counts."""
    first = interpreters[type(x1)]
    second = interpreters[type(x2)]
    if first is second or second is SCALARS:
        return first
    return second if first is SCALARS else find_all(x1, x2)


def find_all(*operands: Any) -> Any:
    """The interpreter of the highest level among the operands."""
    best, free = SCALARS, False
    for x in operands:
        other = interpreters[type(x)]
        if other is not best:
            if best is SCALARS:
                best = other
            elif other is not SCALARS:
                lower = min(other.level, best.level)
                free = free or lower <= FREE
                best = other if other.level > lower else best if best.level > lower else _same_level(best, other, operands)
    return SCALARS.beside(best, operands) if free else best


def _same_level(a: Any, b: Any, operands: tuple[Any, ...]) -> Any:
    """Two frameworks in one call are an error; but a NumPy scalar goes to the framework of the arrays beside it."""
    names = [found.name for found in [interpreters[type(x)] for x in operands if not is_scalar(x)] if found.level == a.level]
    if len(set(names)) == 1:
        return _beside_scalars(_LOADED[names[0]])
    raise two_frameworks(a.name, b.name)


def is_scalar(x: Any) -> bool:
    """Whether this is a NumPy scalar. torch.compile reads one as an array without dimensions."""
    return isinstance(x, np.generic) or (is_compiling() and type(x) is np.ndarray and x.ndim == 0)


def two_frameworks(a: str, b: str) -> TwoFrameworks:
    return TwoFrameworks(
        f"the arrays are from two frameworks, {a} and {b}; bring them to one with "
        f'tl.to_backend(x, "{a}") or tl.to_backend(x, "{b}")'
    )


def call(op: str, *operands: Any, **params: Any) -> Any:
    """Run `op` on the interpreter of its operands. If it fails, name the mistake in our words if we can."""
    interpreter = interpreters[type(operands[0])] if len(operands) == 1 else find_all(*operands)
    try:
        return getattr(interpreter, op)(*operands, **params)
    except Exception as error:
        diagnose(op, operands, params, error)
        raise


def diagnose(op: str, operands: tuple[Any, ...], params: dict[str, Any], error: Exception) -> None:
    """Raise a clearer error, from this one, where the mistake can be named; else return."""
    if any(x is None for x in operands):
        check_present(op, operands, error)
    found: list[Any] = []
    for x in operands:
        try:
            interpreter = interpreters[type(x)]
            if interpreter.level in (2, FREE):
                x = x._data
                interpreter = interpreters[type(x)]
        except UnknownOperand:
            return
        if interpreter.level == LISTS:
            return  # the call of its array has been looked at
        if interpreter is SCALARS:
            found.append(x)
            continue
        shape = interpreter.shape_of(x) if interpreter.level < 2 else None
        if shape is None or None in shape:
            return  # a size that a graph does not know, or a Container, whose leaves have been looked at one by one
        values = None if interpreter.is_traced(x) else functools.partial(interpreter.to_numpy, x)
        found.append(Facts(shape, interpreter.dtype_of(x), interpreter.device_of(x), values))
    if any(isinstance(x, Facts) for x in found):
        explain(op, found, params, error)


def register(operand_type: type, interpreter: Any) -> None:
    """Make `interpreter` the one that runs ops on operands of `operand_type`."""
    interpreters[operand_type] = interpreter


def is_compiling() -> bool:
    """Whether torch.compile reads what runs; torch's own function once its backend is loaded."""
    return False


def load(name: str) -> Any:
    """The interpreter of the backend called `name`; imports the framework when it is asked for first."""
    if name in _LOADED:
        return _LOADED[name]
    if name not in BACKENDS:
        raise ValueError(f"backend={name!r} is unknown; use one of {', '.join(map(repr, BACKENDS))}")
    module, _, extra = BACKENDS[name]
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"backend={name!r} needs {module}, which is not installed; pip install '{extra}'")
    with _LOADING:  # a second thread waits, and finds the backend whole
        if name not in _LOADED:
            interpreter = importlib.import_module(f"trellis.backends.{name}").interpreter
            interpreters.update(dict.fromkeys(_array_types(name), interpreter))
            _LOADED[name] = interpreter
    return _LOADED[name]


def chosen_backend() -> str | None:
    """The backend that `using`, `set_backend` or the environment chose."""
    return _DEFAULT.get() or os.environ.get("TRELLIS_BACKEND")


def default_backend() -> str:
    return _DEFAULT.get() or chosen_backend() or "numpy"


def target(backend: Any = None) -> Any:
    """The level-0 interpreter that a creation function makes its array on: `backend`, else the default."""
    name = backend or ("torch" if is_compiling() else default_backend())  # torch.compile reads no other framework
    return _LOADED[name] if name in _LOADED else load(getattr(name, "name", name))


def drawing(op: str) -> Any:
    """The interpreter that draws random numbers if nothing says where: a framework that traces, where the draw belongs to the
    graph, else the default one. A draw on NumPy would be a constant of the graph."""
    if not is_compiling():
        for found in list(_LOADED.values()):
            if found.draws_in_graph():
                return found
        if "jax" in _LOADED:
            _LOADED["jax"].check_draw(op)  # raises under jax.jit, which has no generator
    return target()


def current_backend() -> str:
    """The name of the default backend in this context.

    >>> import trellis as tl
    >>> with tl.using("numpy"):
    ...     tl.current_backend()
    'numpy'
    """
    return target().name


def set_backend(name: str) -> None:
    """Make `name` the default backend of this context (thread or task); `tl.using` does it for a block.

    >>> import trellis as tl
    >>> tl.set_backend("numpy")
    """
    load(name)
    _DEFAULT.set(name)


@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
    """Make `name` the default backend inside a `with` block.

    >>> import trellis as tl
    >>> with tl.using("numpy"):
    ...     x = tl.zeros((2, 3))
    >>> x.backend
    'numpy'
    """
    load(name)
    token = _DEFAULT.set(name)
    try:
        yield
    finally:
        _DEFAULT.reset(token)
