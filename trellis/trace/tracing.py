"""`tl.trace` for functions of Trellis and of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis.core import tree
from trellis.core.array import unwrap
from trellis.trace.errors import TraceError
from trellis.trace.graph import Graph, backend_name
from trellis.trace.recorder import record
from trellis.trace.sizes import record_with_batch
from trellis.trace.transpile import transpile

__all__ = ["trace"]


def trace(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], batch_axis: int | None) -> Graph:
    """The graph of a function; one of torch is captured first, and the rows of its ops are what is recorded."""
    if hasattr(f, "named_parameters"):
        f = _captured(f, args, kwargs)
    try:
        return _recorded(f, args, kwargs, batch_axis)
    except TraceError:
        raise
    except Exception as error:
        if backend_name([unwrap(x) for x in tree.leaves((args, kwargs))]) != "torch":
            raise
        try:  # a function of torch cannot run on traced arrays
            captured = _captured(f, args, kwargs)
        except Exception:
            raise error from None
        return _recorded(captured, args, kwargs, batch_axis)


def _captured(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    made = transpile(f, "torch", example=args, example_kwargs=kwargs, check=False)
    return made.train(f.training) if hasattr(f, "training") else made


def _recorded(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], batch_axis: int | None) -> Graph:
    if batch_axis is None:
        return record(f, args, kwargs).verify(types=False)
    return record_with_batch(lambda a, k: record(f, a, k), args, kwargs, batch_axis).verify(types=False)
