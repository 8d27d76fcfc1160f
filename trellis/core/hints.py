"""What a name of another library is called here: the rows of `hints.tsv`.

Rules this file obeys:
- A row has an owner (where the name is looked for), the name, the libraries it comes from, the expression to write here, and a
  note. Without an expression, the note says what there is instead.
- Arrays, Modules and optimizers have an attribute per row that raises: a `__getattr__` would slow every access to the others.
- `hasattr` is as quick as before after the first time: texts are kept.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Row(NamedTuple):
    owner: str
    name: str
    library: str
    here: str
    note: str

    def text(self) -> str:
        """What the name is here, as the end of a sentence."""
        if not self.here:
            return f"{self.name} of {self.library} has no counterpart: {self.note}"
        return f"{self.name} of {self.library} is `{self.here}` here{'; ' if self.note else ''}{self.note}"


@functools.cache
def lines() -> list[str]:
    """The table, a line per row."""
    return (pkgutil.get_data("trellis.core", "hints.tsv") or b"").decode().splitlines()[1:]


def rows(owner: str, name: str = "") -> list[Row]:
    """The rows of an owner, or the one of a name."""
    start = f"{owner}\t{name}\t" if name else f"{owner}\t"
    return [Row(*line.split("\t")) for line in lines() if line.startswith(start)]


_OTHERS = {"tl": ("Array", "linalg", "fft"), "Array": ("tl", "linalg")}  # where else a name may have its row


@functools.cache
def hint(owner: str, name: str, public: tuple[str, ...] = (), elsewhere: str = "") -> str:
    """The end of an error about a missing name: its row, the place where it is, or the public name that is most like it."""
    found = rows(owner, name)
    if not found and not elsewhere:  # tl.view is x.view, and x.cat is tl.cat
        found = [row for other in _OTHERS.get(owner, ()) for row in rows(other, name)]
    if found or elsewhere:
        return f"; {found[0].text() if found else f'it is {elsewhere}'}"
    if name.endswith("_"):  # torch writes in place
        plain = name.removesuffix("_")
        return f"; it is x[...] = tl.{plain}(x)" if plain in public else hint(owner, plain, public)
    letters = name.replace("_", "").lower()
    same = [other for other in public if other.replace("_", "").lower() == letters]
    near = sorted(same, key=lambda other: other[0].isupper() is not name[0].isupper())  # Conv2d is like Conv2D
    near = near or importlib.import_module("difflib").get_close_matches(name, public, 1, 0.8)
    near = near or [other for other in public if len(name) > 3 and other.startswith(name)]
    return f"; did you mean {near[0]!r}?" if near else ""


def missing(place: str, owner: str, name: str, public: Sequence[str] = (), elsewhere: str = "") -> AttributeError:
    said = "" if name.startswith("_") else hint(owner, name, tuple(public), elsewhere)
    return AttributeError(f"{place} has no attribute {name!r}{said}")


def refuse(op: str, given: Iterable[str], known: Collection[str], error: Exception | None = None) -> None:
    """TypeError for the first argument that has another name here, if there is one."""
    for name in given:
        for row in [] if name in known else rows("argument", name):
            if not row.here or row.here in known:
                raise TypeError(f"{op}: there is no argument {name!r}; {row.text()}") from error


def refuse_all(function: Callable[..., Any], given: Iterable[str], more: Sequence[Any] = ()) -> NoReturn:
    """TypeError for an argument that `function` does not have, or for `more` arguments by position than it takes."""
    name, parameters = function.__name__, inspect.signature(function).parameters
    refuse(name, given, parameters)
    if more:
        count = sum(p.kind is not p.KEYWORD_ONLY for p in parameters.values())
        refuse_more(function, count + len(more))
    raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(given))!r}")


def refuse_more(function: Callable[..., Any], given: int, error: Exception | None = None) -> None:
    """TypeError if `function` does not take so many arguments by position; it says which to give by name."""
    parameters = inspect.signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    count = len(parameters) - len(named)
    if given > count and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        rest = f"; give {', '.join(f'{n}=' for n in named)} by name" if named else ""
        takes = f"{count} positional argument{'s' * (count != 1)}"
        raise TypeError(f"{function.__name__}() takes {takes}, got {given}{rest}") from error


def naming(function: Function) -> Function:
    """`function`, a method that is called now and then; its TypeErrors tell what arguments of other libraries are called here."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
            refuse(name, kwargs, inspect.signature(function).parameters, error)
            raise

    return run  # type: ignore[return-value]


def hooks(module: str, owner: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a public module, whose names are those in `__all__`."""

    def public() -> list[str]:
        return vars(sys.modules[module]).get("__all__", [])

    def get(name: str) -> Any:
        flat = getattr(sys.modules.get("trellis"), "__all__", ())
        raise missing(f"module {module!r}", owner, name, public(), f"tl.{name}" if name in flat else "")

    return get, public


class Hint:
    """An attribute that is missing: reading it raises the AttributeError of its row. An instance may set one of its own."""

    def __init__(self, owner: str, name: str, elsewhere: str = "") -> None:
        self.owner, self.name, self.elsewhere = owner, name, elsewhere

    def __get__(self, instance: Any, kind: type) -> Any:
        raise missing(f"{kind.__name__!r} object", self.owner, self.name, (), self.elsewhere)


def install(kind: type, owner: str, functions: Mapping[str, str] = MappingProxyType({})) -> None:
    """Give a class the hints of an owner and of `functions` of its instances, but for names that it has. `dir` hides them."""
    places = [line.split("\t", 3) for line in lines()]
    hinted = {name: library for place, name, library, _ in places if place in (owner, *_OTHERS.get(owner, ()))}
    in_place = {f"{name}_": "" for name, library in hinted.items() if "torch" in library and functions}
    in_place |= {f"{name}_": f"x[...] = {place}(x)" for name, place in functions.items()}
    for name, elsewhere in {**in_place, **functions, **dict.fromkeys(hinted, "")}.items():
        if not hasattr(kind, name):
            setattr(kind, name, Hint(owner, name, elsewhere))
    kind.__dir__ = _dir  # type: ignore[method-assign]


def _dir(self: Any) -> list[str]:
    return [name for name in object.__dir__(self) if hasattr(type(self), name) or name in getattr(self, "__dict__", ())]
