"""The random state of a context: draws without `seed=` come from it.

The state belongs to one thread and one asyncio task. A thread or task that inherits it with a copied context gets a child of it,
with other numbers: nothing is shared, and nothing repeats.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from contextvars import ContextVar
from typing import Any

from trellis.core import dispatch, rerun
from trellis.core.dispatch import interpreters
from trellis.core.typing import SeedLike
from trellis.random.keys import CHILD, DRAW, GENERATOR, MASK, Words, fold_in, make_key, one_key, plain_words, threefry

__all__ = ["seed"]


class State:
    """A key, the number of keys taken of it, and the generators of the frameworks that it has seeded.

    A key that came from the operating system holds for one process: a forked child gets another.
    """

    def __init__(self, words: Words, before: State | None = None, process: int | None = None) -> None:
        self.words, self.owner, self.process = words, _owner(), process
        self.taken = itertools.count()
        self.children = itertools.count()
        self.generators: dict[str, Any] = {}
        if before is not None and before.owner == self.owner:
            for name, generator in before.generators.items():
                if generator.outlives_seed:  # a compiled function holds on to it
                    generator.reset(self._words_of(name))
                    self.generators[name] = generator

    def next_words(self) -> Words:
        return threefry(self.words, (DRAW, next(self.taken)))

    def generator(self, interpreter: Any) -> Any:
        found = self.generators.get(interpreter.name)
        if found is None:
            found = self.generators[interpreter.name] = interpreter.Generator(self._words_of(interpreter.name))
        return found

    def _words_of(self, name: str) -> Words:
        return threefry(self.words, (GENERATOR, int.from_bytes(name.encode()[:4], "big")))


_STATE: ContextVar[State | None] = ContextVar("trellis_random", default=None)


def _owner() -> tuple[int, Any]:
    """The thread and the asyncio task that run now."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio._get_running_loop() if asyncio else None  # type: ignore[attr-defined]
    return threading.get_ident(), None if loop is None else asyncio.current_task(loop)  # type: ignore[union-attr]


def current_state() -> State:
    state = _STATE.get()
    if state is None or state.process not in (None, _process):
        state = _unseeded(None)
    elif state.owner == _owner():
        return state
    else:
        state = State(threefry(state.words, (CHILD, next(state.children))), process=state.process)
    _STATE.set(state)
    return state


def _unseeded(before: State | None) -> State:
    number = int.from_bytes(os.urandom(8), "big")
    return State((number >> 32, number & MASK), before, _process)


_process = os.getpid()


def _in_child() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def seed(value: SeedLike = None, /, *, seed_value: SeedLike = None) -> None:
    """Seed every draw without `seed=` in this context (thread or task); None takes a seed from the operating system.

    `seed_value` is another name of the seed.

    The frameworks' global generators do not change: each context has generators of its own. The numbers of such draws differ
    between backends, but shuffles and initial weights are the same on all.

    >>> import trellis as tl
    >>> tl.seed(0)
    >>> x = tl.random_normal(shape=3)
    >>> tl.seed(0)
    >>> bool(tl.all(x == tl.random_normal(shape=3)))
    True
    """
    value = seed_value if value is None else value
    if value is None:
        _STATE.set(_unseeded(_STATE.get()))
        return
    words = one_key("seed", value)
    if type(words) is not tuple:
        found = interpreters[type(words)]
        if found.is_traced(words):
            raise TypeError("seed: the key is traced, but the state of a context outlives the trace; pass seed=key to the draws")
        words = plain_words(found.to_numpy(words))
    _STATE.set(State(words, _STATE.get()))


def next_key(op: str, interpreter: Any) -> Any:
    """The words of a new key from the state of the context: after `tl.seed` they are the same on every backend."""
    interpreter.check_draw(op)
    return generator(interpreter).graph_key() if interpreter.draws_in_graph() else current_state().next_words()


def key_of_call(op: str, interpreter: Any) -> Any:
    """A key for the draws of a function that runs twice; None where nothing can be drawn without a seed."""
    if (outer := rerun.current()) is not None:
        return next_key_of(outer)
    try:
        return make_key(next_key(op, interpreter))
    except RuntimeError:  # under jax.jit; a draw says so
        return None


def next_key_of(run: rerun.Run) -> Any:
    run.count += 1
    return None if run.key is None else fold_in(run.key, run.count - 1)


def generator(interpreter: Any) -> Any:
    """The framework's own generator of this context; in a graph of torch.compile, one that asks for the context when it runs."""
    if dispatch.is_compiling() and hasattr(interpreter, "GraphGenerator"):
        return interpreter.GraphGenerator
    return current_state().generator(interpreter)
