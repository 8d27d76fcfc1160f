"""`checkpoint`: trade time for memory in the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trellis.core import dispatch, rerun
from trellis.core.array import Array
from trellis.core.leaves import MixedNest, backend_of
from trellis.core.typing import AnyArray
from trellis.random.state import key_of_call
from trellis.transforms.arguments import check_callable, once_more

__all__ = ["checkpoint"]

Function = TypeVar("Function", bound=Callable[..., Any])


def checkpoint(f: Function) -> Function:
    """`f` with a backward pass that keeps only the arguments of `f` and runs it again for the arrays in between.

    So the memory of a deep model falls to that of its parts, for about a third more time. Arguments and results are nests that
    hold arrays; arrays and parameters that `f` closes over get their gradients too. Of a Module it is a Module, with the same
    parameters under the same names: `tl.Sequential(*[tl.checkpoint(block) for block in blocks])`. Layers draw what they would
    without it, and their buffers change once; other draws without `seed=` come from a key that is taken at the call.

    It is jax.checkpoint, torch.utils.checkpoint, a gradient of our own like tf.recompute_grad, and the tape of NumPy. Inside
    torch.compile, which decides itself what it computes twice, inside torch.func and in tl.trace `f` runs as it is.

    >>> import trellis as tl
    >>> tl.grad(tl.checkpoint(lambda x: tl.sum(tl.exp(tl.sin(x)))))(tl.asarray([0.0]))
    Array([1.], dtype=float32, backend='numpy', device='cpu')
    """
    check_callable("checkpoint", "f", f)
    if hasattr(type(f), "_repeated"):
        return f._repeated(checkpoint)  # type: ignore[attr-defined]

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return once_more(lambda like: _call(f, MixedNest((args, kwargs), like)))

    return functools.update_wrapper(checkpointed, f, updated=())  # type: ignore[return-value]


def _call(f: Callable[..., Any], given: MixedNest) -> Any:
    if not given.arrays:
        raise TypeError("checkpoint: no argument holds an array; give the function what it computes from")
    backend = backend_of(given.arrays)
    if backend.level or dispatch.is_compiling():
        args, kwargs = given.fill(given.arrays)
        return f(*args, **kwargs)
    run = rerun.Run(key_of_call("checkpoint", backend))
    structure: Any = None  # of what the function returns: its arrays would keep all that they were made from

    def once(leaves: Sequence[AnyArray]) -> list[AnyArray]:
        nonlocal structure
        args, kwargs = given.fill(leaves)
        result = f(*args, **kwargs)
        outputs = MixedNest((result, [x for *_, x in run.after() if isinstance(x, Array)]))
        structure = outputs.structure()
        return outputs.arrays

    arrays = backend.checkpoint(lambda leaves: run(lambda: once(leaves)), given.arrays)
    result, changed = MixedNest.from_structure(structure).fill(arrays)
    places = [(owner, name) for owner, name, x in run.after() if isinstance(x, Array)]
    for (owner, name), x in zip(places, changed):  # what the function left may belong to a trace of its own
        setattr(owner, name, x)
    return result
