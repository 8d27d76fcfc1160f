"""Graphs of functions, and torch models on other frameworks.

`tl.trace` records a function as a `tl.Graph`; `tl.transpile` brings a torch module to NumPy, JAX or TensorFlow. The package is
light: its parts load when they are used first.
"""

from importlib import import_module
from typing import Any

from trellis.ops import linalg

__all__ = ["trace"]


def trace(f: Any, /, *example: Any, batch_axis: int | None = None, **options: Any) -> Any:
    """The function `f` as a `tl.Graph` of the ops that it runs on the example; for an array, the sum of its diagonal.

    `f` is a function of arrays, a `tl.Module`, or a function or module of torch. It runs once on the example, so a Python branch
    on the value of an array is an error that names the line; write `tl.cond` there. Arrays that `f` closes over are constants
    of the graph. With `batch_axis=0` the graph takes any size of that axis: `f` runs twice, and sizes that differ become symbols.

    >>> import trellis as tl
    >>> graph = tl.trace(lambda x: tl.reshape(x, (x.shape[0], -1)) * 2, tl.ones((3, 2, 2)), batch_axis=0)
    >>> print(graph)
    graph(%x0: float32[batch, 2, 2]) {
      %0: float32[batch, 4] = reshape(%x0, shape=(batch, -1), copy=None)
      %1: float32[batch, 4] = multiply(%0, 2)
      return %1
    }
    >>> graph.eval(tl.ones((5, 2, 2))).shape
    (5, 4)
    >>> tl.trace(tl.asarray([[1, 2], [3, 4]]))
    Array(5, dtype=int64, backend='numpy', device='cpu')
    """
    if not callable(f):
        if batch_axis is not None or example:
            raise TypeError(f"trace: f is a {type(f).__name__}, not a function; example arrays and batch_axis= are for functions")
        return linalg.trace(f, *example, **options)
    return import_module("trellis.trace.tracing").trace(f, example, options, batch_axis)
