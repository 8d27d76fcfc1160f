"""The processes that belong together, and collectives over nests of arrays: one meaning on every backend."""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from trellis import ops as tl
from trellis.core import dtypes, tree
from trellis.core.array import Array
from trellis.core.dispatch import BACKENDS, default_backend, interpreters
from trellis.core.leaves import ARRAY, Nest, kind_of
from trellis.distributed import environment
from trellis.distributed.control import Control, DistributedError, listen
from trellis.distributed.environment import Start
from trellis.transforms.gradients import bind_custom_gradient_function

__all__ = ["all_gather", "all_reduce", "barrier", "broadcast", "initialize", "rank", "reduce_scatter", "shutdown", "size"]

Flat = list[Any]
_OPS = ("sum", "mean", "max")


class Group:
    """All processes: their engine, for arrays, and their control channel."""

    def __init__(self, start: Start, control: Control | None, engine: Any) -> None:
        self.start, self.control, self.engine = start, control, engine
        self.rank, self.size = start.rank, start.size
        self.waits_since = math.inf  # the beginning of a block of `explaining`
        if engine is not None and engine.waits_forever:
            threading.Thread(target=self._watch, daemon=True, name="trellis-watch").start()

    def _watch(self) -> None:
        """Give up if another process is missing, for an engine that does not leave a collective by itself."""
        timeout = self.control.timeout if self.control else math.inf
        while True:
            time.sleep(min(1.0, timeout / 4))
            begun = self.waits_since
            if time.monotonic() - begun < timeout:
                continue
            missing = self._who("a step", timeout)
            if self.waits_since == begun and missing:
                self.engine.give_up(f"rank {self.rank} waits in vain{missing}")
            elif self.waits_since == begun:  # all are in the midst of a step, or of its compilation
                self.waits_since = time.monotonic()

    def compare(self, name: str, mine: Mapping[str, str]) -> None:
        if self.control is not None:
            self.control.compare(name, mine)

    def exchange(self, name: str, value: Any) -> list[Any]:
        return [value] if self.control is None else self.control.exchange(name, value)

    @contextlib.contextmanager
    def explaining(self, what: str) -> Iterator[None]:
        """A block in which an error of the engine is told with the ranks that have ended or do not come."""
        self.waits_since = time.monotonic()
        try:
            yield
        except DistributedError as error:
            raise type(error)(f"{what}: {error}{self._who(what)}") from error
        except Exception as error:
            if type(error).__module__.startswith(("trellis", "builtins")) and not isinstance(error, RuntimeError):
                raise
            raise DistributedError(f"{what}: {type(error).__name__}: {error}{self._who(what)}") from error
        finally:
            self.waits_since = math.inf

    def _who(self, what: str, most: float = 5.0) -> str:
        try:
            if self.control is not None:
                self.control.exchange(f"{what}, failed", None, min(most, self.control.timeout), key="failed")
        except DistributedError as error:
            return f". {error}"
        return ""


_group: Group | None = None


def initialize(backend: str | None = None, *, timeout: float = 600.0) -> None:
    """Join the other processes that the same launcher started; alone if there is no launcher. A second call does nothing.

    The environment says who this process is: torchrun, mpirun, SLURM, TF_CONFIG or `trellis launch`. The engine is that of
    `backend`, by default the default backend: torch.distributed, jax.distributed, tf.distribute's collectives, or MPI for NumPy.
    Call it before anything is computed: JAX cannot join later. `timeout` is in seconds: a process that lets the others
    wait for longer is reported by its rank.

    >>> import trellis as tl
    >>> tl.distributed.initialize()
    >>> tl.distributed.rank(), tl.distributed.size()
    (0, 1)
    """
    global _group
    name = backend or default_backend() or "numpy"
    if name not in BACKENDS:
        raise ValueError(f"initialize: backend={name!r} is unknown; there are {', '.join(BACKENDS)}")
    if _group is not None:
        known = name if _group.engine is None else _group.engine.name
        if known != name:
            raise RuntimeError(f"initialize: this process has joined for {known}; it cannot join for {name} too")
        return
    start = environment.find()
    if start.size == 1:
        _group = Group(start, None, None)
        return
    control = _open_control(start, timeout)
    versions = {package: import_module(package).__version__ for package in ("trellis", "numpy", name)}
    about = {"backend": name, "processes": str(start.size), "Python": platform.python_version(), **versions}
    control.compare("initialize", about)
    with socket.create_server(("", 0)) as held:  # until the others are told
        addresses = control.exchange("initialize: addresses", f"{control.host}:{held.getsockname()[1]}")
    engine = import_module(f"trellis.distributed.{name}").Engine(start, control, addresses, timeout)
    _group = Group(start, control, engine)
    atexit.register(shutdown)
    sys.excepthook = functools.partial(_end_at_once, sys.excepthook)


def _end_at_once(before: Any, *error: Any) -> None:
    """End a process that fails: MPI and JAX would wait for the others first, which wait for it, and no launcher would see it."""
    before(*error)
    if _group is not None and not issubclass(error[0], KeyboardInterrupt):
        sys.stdout.flush()
        sys.stderr.flush()
        _group.engine.abort()


def _open_control(start: Start, timeout: float) -> Control:
    host, port, listener = start.host, start.port, None
    if not port:
        comm = import_module("trellis.distributed.numpy").mpi().COMM_WORLD if start.starter == "mpirun" else None
        if comm is None:
            raise RuntimeError(
                f"initialize: {start.starter} does not say where rank 0 is; set TRELLIS_COORDINATOR=host:port for all"
            )
        listener = listen(0) if start.rank == 0 else None
        here = socket.gethostname() if len(set(comm.allgather(socket.gethostname()))) > 1 else "127.0.0.1"
        host, port = comm.bcast((here, listener.getsockname()[1]) if listener else None)
    return Control(start.rank, start.size, host, port, timeout, listener)


def shutdown() -> None:
    """Leave the other processes; done at the end of the program by itself.

    >>> import trellis as tl
    >>> tl.distributed.shutdown()
    """
    global _group
    left, _group = _group, None
    if left is not None and left.control is not None:
        with contextlib.suppress(Exception):  # the others may be gone
            left.control.exchange("shutdown", None, min(30.0, left.control.timeout), key="shutdown")
            left.engine.shutdown()
        left.control.close()


def group() -> Group:
    """The processes that this one has joined; itself alone before `initialize`."""
    return _ALONE if _group is None else _group


_ALONE = Group(Start("python", 0, 1), None, None)


def rank() -> int:
    """The number of this process, from 0.

    >>> import trellis as tl
    >>> tl.distributed.rank()
    0
    """
    return group().rank


def size() -> int:
    """How many processes there are.

    >>> import trellis as tl
    >>> tl.distributed.size()
    1
    """
    return group().size


def barrier() -> None:
    """Wait until every process is here. A process that does not come within the timeout is named.

    >>> import trellis as tl
    >>> tl.distributed.barrier()
    """
    group().exchange("barrier", None)


# ---- collectives over nests ----------------------------------------------------------------------------------------------------
def all_reduce(nest: Any, op: str = "sum") -> Any:
    """The sum, the mean or the maximum over all processes, array by array; every process gets it.

    `mean` takes floating-point arrays only. A gradient flows through all collectives but a maximum: it is that of the sum of the
    losses of all processes.

    >>> import trellis as tl
    >>> tl.distributed.all_reduce({"w": tl.asarray([1.0, 2.0])}, "mean")["w"]
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    return _collective("all_reduce", nest, op, lambda own, arrays: reduce_arrays(own, arrays, op))


def all_gather(nest: Any) -> Any:
    """The arrays of all processes, stacked along a new first axis in the order of ranks.

    >>> import trellis as tl
    >>> tl.distributed.all_gather(tl.asarray([1.0, 2.0])).shape
    (1, 2)
    """
    return _collective("all_gather", nest, "", lambda own, arrays: packed(arrays, lambda x: _gathered(own, x)))


def broadcast(nest: Any, source: int = 0) -> Any:
    """The arrays of the process `source`, on every process; the others say by theirs which shapes and dtypes they expect.

    >>> import trellis as tl
    >>> tl.distributed.broadcast(tl.asarray([1.0, 2.0]))
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """
    if not isinstance(source, int) or not 0 <= source < size():
        raise ValueError(f"broadcast: source={source!r} must be a rank, from 0 to {size() - 1}")
    return _collective("broadcast", nest, str(source), lambda own, arrays: broadcast_arrays(own, arrays, source))


def reduce_scatter(nest: Any, op: str = "sum") -> Any:
    """Reduce over all processes, and keep this process's part of the first axis, which the number of processes divides.

    >>> import trellis as tl
    >>> tl.distributed.reduce_scatter(tl.asarray([1.0, 2.0]))
    Array([1., 2.], dtype=float32, backend='numpy', device='cpu')
    """

    def run(own: Group, arrays: Flat) -> Flat:
        rows = [tl.reshape(x, (own.size, x.shape[0] // own.size, *x.shape[1:])) for x in arrays]
        return [_mean_of(op, own, x) for x in packed(rows, lambda x: _scattered(own, x, op), lead=1)]

    for path, x in tree.leaves_with_paths(nest):
        if not x.shape or x.shape[0] % size():
            raise ValueError(
                f"reduce_scatter: the array at {path!r} has shape {tuple(x.shape)}; {size()} processes do not divide its rows"
            )
    return _collective("reduce_scatter", nest, op, run)


def _collective(name: str, nest: Any, detail: str, run: Callable[[Group, Flat], Flat]) -> Any:
    if name in ("all_reduce", "reduce_scatter") and detail not in _OPS:
        raise ValueError(f"{name}: op={detail!r} is unknown; there are {', '.join(map(repr, _OPS))}")
    own, taken = group(), Nest(nest)
    described = _description(name, taken, detail, own)
    if own.engine is None:
        return taken.rebuild([x[None] if name == "all_gather" else x for x in taken.leaves])
    own.compare(name, described)
    with own.explaining(name):
        return taken.rebuild(own.engine.uncompiled(run)(own, taken.leaves))


def _description(name: str, nest: Nest, detail: str, own: Group) -> dict[str, str]:
    """What must be equal on all processes."""
    found = {"the call": f"{name}({detail})"}
    for path, x in zip(tree.paths(nest.treedef), nest.leaves):
        if kind_of(x) != ARRAY:
            raise TypeError(f"{name}: the leaf at {path!r} is a {type(x).__name__}; expected arrays")
        backend = interpreters[type(x)]
        if own.engine is not None and backend.name != own.engine.name:
            raise TypeError(
                f"{name}: the array at {path!r} is of {backend.name}, but the processes joined for {own.engine.name}; bring it "
                f"there, or initialize(backend={backend.name!r})"
            )
        dtype = backend.dtype_of(x)
        if detail == "mean" and dtype.kind not in "fc":
            raise TypeError(f"{name}: the mean of {dtype} at {path!r} is no {dtype}; cast it to a floating-point dtype, or sum")
        if detail == "max" and dtype.kind == "c":
            raise TypeError(f"{name}: complex numbers at {path!r} have no maximum")
        found[path] = describe(x)
    return found


def describe(x: Any) -> str:
    backend = interpreters[type(x)]
    return f"{backend.dtype_of(x)}{list(backend.shape_of(x))}"


def _mean_of(op: str, own: Group, total: Any) -> Any:
    return total / own.size if op == "mean" else total


def reduce_arrays(own: Group, arrays: Flat, op: str) -> Flat:
    return [_mean_of(op, own, x) for x in packed(arrays, lambda x: _reduced(own, x, op))]


def broadcast_arrays(own: Group, arrays: Flat, source: int) -> Flat:
    return packed(arrays, lambda x: _sent(own, x, source))


def packed(arrays: Flat, run: Callable[[Any], Any], lead: int = 0) -> Flat:
    """`run` on one array for all arrays of a dtype, made flat but for `lead` axes, and the parts of what it returns."""
    by_dtype: dict[Any, list[int]] = {}
    for i, x in enumerate(arrays):
        by_dtype.setdefault(interpreters[type(x)].dtype_of(x), []).append(i)
    results = list(arrays)
    for positions in by_dtype.values():
        shapes = [tuple(arrays[i].shape) for i in positions]
        flats = [tl.reshape(arrays[i], (*s[:lead], math.prod(s[lead:]))) for i, s in zip(positions, shapes)]
        flat = run(tl.concat(flats, axis=-1))
        end = 0
        for i, shape in zip(positions, shapes):
            begin, end = end, end + math.prod(shape[lead:])
            results[i] = tl.reshape(flat[..., begin:end], (*flat.shape[:-1], *shape[lead:]))
    return results


# Each of these has a gradient, by the others: that of the sum of what all processes make of their results.
def _reduced(own: Group, x: Any, op: str) -> Any:
    return _bound(own, x, lambda x: own.engine.all_reduce(x, op), lambda upstream: _reduced(own, _of_sum(upstream, op), "sum"))


def _gathered(own: Group, x: Any) -> Any:
    return _bound(own, x, own.engine.all_gather, lambda upstream: _scattered(own, upstream, "sum"))


def _scattered(own: Group, x: Any, op: str) -> Any:
    return _bound(own, x, lambda x: own.engine.reduce_scatter(x, op), lambda upstream: _gathered(own, _of_sum(upstream, op)))


def _sent(own: Group, x: Any, source: int) -> Any:
    def rows(upstream: Any) -> Any:  # no row but that of the source
        return tl.stack([upstream if i == source else tl.zeros_like(upstream) for i in range(own.size)])

    return _bound(own, x, lambda x: own.engine.broadcast(x, source), lambda upstream: _scattered(own, rows(upstream), "sum"))


def _of_sum(upstream: Any, op: str) -> Any:
    if op == "max":
        raise NotImplementedError("tl.distributed: a maximum over processes has no gradient; put tl.stop_gradient around it")
    return upstream


def _bound(own: Group, x: Any, run: Callable[[Any], Any], gradient: Callable[[Any], Any]) -> Any:
    if interpreters[type(x)].dtype_of(x).kind not in "fc":
        return _carried(own, x, run)
    return bind_custom_gradient_function(lambda x: _carried(own, x, run), lambda saved, upstream: gradient(upstream))(x)


def _carried(own: Group, x: Any, run: Callable[[Any], Any]) -> Any:
    """`run` in a dtype that the engine carries, and back: complex numbers as two real ones, the others in a longer dtype."""
    dtype = interpreters[type(x)].dtype_of(x)
    if dtype.name in own.engine.carries:
        return run(x)
    if dtype.kind == "c":
        parts = [Array(_carried(own, part(x), run)) for part in (tl.real, tl.imag)]
        return tl.astype(parts[0] + 1j * parts[1], dtype)._data
    longer = "float32" if dtype.kind == "f" else "int32" if dtype.bits < 32 else "int64"
    return tl.astype(run(tl.astype(x, dtypes.DTYPES[longer])), dtype)
