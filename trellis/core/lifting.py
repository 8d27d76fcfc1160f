"""Functions of arrays take Containers in the place of arrays: they run on the leaves at each path.

Rules this file obeys:
- All Containers of a call have one structure. Arguments that are not Containers go to every leaf.
- A result that is a tuple becomes a tuple of Containers, also inside another tuple.
- An error carries a note that names the leaf.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from trellis.core import errors, tree
from trellis.core.diagnosis import array_parameters
from trellis.core.dispatch import UnknownOperand
from trellis.core.hints import refuse, refuse_all, refuse_more

Function = TypeVar("Function", bound=Callable[..., Any])

CONTAINERS: set[type] = set()  # Container and its subclasses: a set of types is quicker to ask than a class of `collections.abc`
PER_LEAF: dict[str, Callable[[Any, int], Any]] = {}  # keyword -> function of its value and the number of the leaf
# Arguments that other libraries call otherwise.
_RENAMED = {"argnums", "axis", "in_axes", "k", "keepdims", "lower", "n_rows", "seed", "shape", "static_argnums", "upper"}


def lift_module(module: ModuleType, *, only: Callable[[str], bool] = lambda name: True) -> None:
    """Lift the public functions of a module that take arrays, as their annotations say."""
    for name in module.__all__:
        public = getattr(module, name)
        if inspect.isfunction(public) and takes_arrays(public) and only(name):
            setattr(module, name, lift(public))


def takes_arrays(function: Callable[..., Any]) -> bool:
    """Whether a parameter of `function` is annotated as an array. Functions of nests see to Containers themselves."""
    return bool(array_parameters(function))


def name_arguments(module: ModuleType) -> None:
    """Let the public functions of a module that are not lifted say what an argument of another library is called here.

    `reshape` is left out: it is too short for the one call more.
    """
    for name in module.__all__:
        public = getattr(module, name)
        if inspect.isfunction(public) and name != "reshape" and not hasattr(public, "__wrapped__"):
            setattr(module, name, _naming(public))


def _naming(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with two parameters more, which take the arguments that it does not know, and those too many, and refuse them.

    The parameters are written out one by one: packing all keywords would take three times as long as this call does.
    """
    code = function.__code__
    if "unknown" in code.co_varnames:  # it does so by itself
        shown = [p for p in inspect.signature(function).parameters.values() if p.name != "unknown"]
        function.__signature__ = inspect.signature(function).replace(parameters=shown)  # type: ignore[attr-defined]
    first, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names, slash = code.co_varnames, code.co_posonlyargcount
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or _RENAMED.isdisjoint(names[slash:last]):
        return function
    known = [*names[:slash], *["/"][:slash], *names[slash:first], "*_more", *names[first:last]]
    given = [*names[:first], *(f"{name}={name}" for name in names[first:last])]
    run = f"_run({', '.join(given)}) if not (_unknown or _more) else _refuse(_run, _unknown, _more)"
    text = f"lambda {', '.join(known)}, **_unknown: {run}"
    made = eval(compile(text, code.co_filename, "eval"), {"_run": function, "_refuse": refuse_all})
    made.__kwdefaults__ = function.__kwdefaults__
    made.__defaults__ = function.__defaults__
    made.autograph_info__ = None  # TensorFlow's AutoGraph finds no source of it, and warns unless it sees this mark
    return functools.update_wrapper(made, function)


@functools.cache
def lift(function: Function) -> Function:
    """`function`, which takes Containers too. Lifting a function twice gives the same result: it may have several names."""

    @functools.wraps(function)
    def lifted(*args: Any, **kwargs: Any) -> Any:
        for x in args:
            if type(x) in CONTAINERS:
                return over_leaves(function.__name__, function, args, kwargs)
        for x in kwargs.values():
            if type(x) in CONTAINERS:
                return over_leaves(function.__name__, function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if any(x is None for x in args):
                _check_present(function, args, error)
            if isinstance(error, TypeError):
                refuse(function.__name__, kwargs, inspect.signature(function).parameters, error)
                refuse_more(function, len(args), error)
            raise

    return lifted  # type: ignore[return-value]


def _check_present(function: Callable[..., Any], args: Sequence[Any], error: Exception) -> None:
    """TypeError if an argument is None where `function` needs an array."""
    kinds = dict(array_parameters(function))
    for name, x in zip(inspect.signature(function).parameters, args):
        if x is None and "None" not in kinds.get(name, "None"):
            raise errors.missing_operand(function.__name__, name, kinds[name]) from error


def over_leaves(op: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function` at each path of the Containers among the arguments, at least one."""
    treedef: Any = None
    columns: dict[Any, list[Any]] = {}  # position or keyword -> the leaves of the Container there
    for place, x in (*enumerate(args), *kwargs.items()):
        if type(x) in CONTAINERS:
            columns[place], structure = tree.flatten(x)
            if treedef is not None and structure != treedef:
                raise tree.structure_error(op, treedef, structure)
            treedef = treedef or structure
    results = []
    for i in range(treedef.num_leaves):
        row = [columns[place][i] if place in columns else x for place, x in enumerate(args)]
        options = {key: columns[key][i] if key in columns else x for key, x in kwargs.items()}
        for key in PER_LEAF.keys() & kwargs.keys() - columns.keys():
            options[key] = None if kwargs[key] is None else PER_LEAF[key](kwargs[key], i)
        try:
            results.append(function(*row, **options))
        except UnknownOperand as error:  # made another class, because operators turn this one into NotImplemented
            place = f"the leaf at {tree.paths(treedef)[i]!r}"
            raise TypeError(f"{op}: {place} is not an array ({error}); take it out with c.partition first") from error
        except Exception as error:
            error.add_note(f"in leaf {tree.paths(treedef)[i]!r}")
            raise
    return _gather(op, treedef, results)


def _gather(op: str, treedef: tree.TreeDef, results: Sequence[Any]) -> Any:
    """A Container of the results; where they are tuples, a tuple of Containers."""
    if not results or not isinstance(results[0], tuple):
        return tree.unflatten(treedef, results)
    kind, count = type(results[0]), len(results[0])
    for i, result in enumerate(results):
        if len(result) != count:
            raise ValueError(f"{op}: the leaf at {tree.paths(treedef)[i]!r} gives {len(result)} arrays, the first leaf {count}")
    members = [_gather(op, treedef, column) for column in zip(*results, strict=True)]
    return tuple(members) if kind is tuple else kind(*members)
