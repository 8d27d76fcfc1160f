"""The default backend belongs to a context: threads and tasks never see each other's."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from helpers import BACKENDS

import trellis as tl

pytestmark = pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two installed backends")


def test_two_threads_use_two_default_backends_at_once() -> None:
    first, second = BACKENDS[0], BACKENDS[1]
    barrier = threading.Barrier(2, timeout=120)
    seen: dict[str, set[str]] = {first: set(), second: set()}
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            tl.set_backend(name)
            for _ in range(50):
                barrier.wait()
                seen[name].add(tl.zeros(2).backend)
                seen[name].add(tl.current_backend())
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(name,)) for name in seen]
    before = tl.current_backend()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert seen == {first: {first}, second: {second}}
    assert tl.current_backend() == before


def test_a_new_thread_starts_with_the_default() -> None:
    found: list[str] = []
    with tl.using(BACKENDS[1]):
        thread = threading.Thread(target=lambda: found.append(tl.current_backend()))
        thread.start()
        thread.join()
    assert found == [tl.current_backend()]


def test_tasks_do_not_see_each_other() -> None:
    async def work(name: str) -> str:
        tl.set_backend(name)
        await asyncio.sleep(0)
        return tl.ones(1).backend

    async def both() -> list[str]:
        return list(await asyncio.gather(*(work(name) for name in BACKENDS)))

    assert asyncio.run(both()) == BACKENDS


def test_using_restores_after_an_error() -> None:
    before = tl.current_backend()
    with pytest.raises(KeyError), tl.using(BACKENDS[1]):
        raise KeyError
    assert tl.current_backend() == before


FIRST_USE = """
import threading, importlib
import numpy as np, trellis as tl
errors = []
start = threading.Barrier(3)

def attempt(work):
    start.wait()
    try:
        for _ in range(20):
            work()
    except Exception as error:
        errors.append(repr(error))

def on_backend():
    assert float(tl.sum(tl.ones(3, backend={backend!r}))) == 3.0

def on_numpy():
    assert tl.add(np.ones(2), 1.0)[0] == 2.0 and float(tl.exp(tl.zeros(1, backend="numpy"))[0]) == 1.0

threads = [threading.Thread(target=attempt, args=(work,)) for work in (on_backend, on_backend, on_numpy)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
"""


def test_first_use_from_two_threads_beside_numpy(backend: str) -> None:
    """The framework is imported by whoever is first; the other waits, and NumPy goes on."""
    done = subprocess.run([sys.executable, "-c", FIRST_USE.format(backend=backend)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
