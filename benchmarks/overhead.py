"""What a call costs over the framework's own function, on arrays so small that nothing else counts: `make bench`.

For each installed framework one process (Keras fixes its backend when it is imported) runs every variant of every op in turn,
many rounds; a figure is the median over the rounds of the process's CPU time, less that of the native function. Python calls are
counted by the interpreter's own profiler hook, not timed.

    python benchmarks/overhead.py                  all installed frameworks
    python benchmarks/overhead.py --backend torch  one
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]
Variants = dict[str, dict[str, Call]]
OPS = ("add", "exp", "matmul", "sum", "reshape")
SHAPE, NEW_SHAPE = (4, 4), (2, 8)

# Each variant is a namespace with the five ops, by the names they have there.
_NATIVE_NAMES = {"tensorflow": {"sum": "reduce_sum"}}
_NATIVE_MODULES = {"numpy": "numpy", "jax": "jax.numpy", "torch": "torch", "tensorflow": "tensorflow"}
_COMPAT_BACKENDS = ("numpy", "jax", "torch")  # array-api-compat does not take TensorFlow's tensors


def calls_of(functions: dict[str, Any], x: Any, y: Any) -> dict[str, Call]:
    """The five calls, given the function for each op."""
    add, exp, matmul, total, reshape = (functions[op] for op in OPS)
    return {
        "add": lambda: add(x, y),
        "exp": lambda: exp(x),
        "matmul": lambda: matmul(x, y),
        "sum": lambda: total(x),
        "reshape": lambda: reshape(x, NEW_SHAPE),
    }


def native_calls(backend: str, x: Any, y: Any) -> dict[str, Call]:
    module, names = importlib.import_module(_NATIVE_MODULES[backend]), _NATIVE_NAMES.get(backend, {})
    return calls_of({op: getattr(module, names.get(op, op)) for op in OPS}, x, y)


def trellis_calls(x: Any, y: Any) -> dict[str, Call]:
    import trellis as tl

    return calls_of({op: getattr(tl, op) for op in OPS}, x, y)


def operator_calls(x: Any, y: Any) -> dict[str, Call]:
    return {"add": lambda: x + y, "matmul": lambda: x @ y}


def compat_calls(x: Any, y: Any) -> dict[str, Call]:
    """array-api-compat as a library uses it: the namespace is looked up from the arrays in each call."""
    from array_api_compat import array_namespace

    return {
        "add": lambda: array_namespace(x, y).add(x, y),
        "exp": lambda: array_namespace(x).exp(x),
        "matmul": lambda: array_namespace(x, y).matmul(x, y),
        "sum": lambda: array_namespace(x).sum(x),
        "reshape": lambda: array_namespace(x).reshape(x, NEW_SHAPE),
    }


def keras_calls(x: Any, y: Any) -> dict[str, Call]:
    from keras import ops

    return calls_of({op: getattr(ops, op) for op in OPS}, x, y)


def variants(backend: str) -> Variants:
    """Everything that is measured on one backend; the native calls come first."""
    import trellis as tl

    values = np.random.default_rng(0).normal(size=(2, *SHAPE)).astype(np.float32)
    wrapped = [tl.asarray(v, backend=backend) for v in values]
    native = [w.native for w in wrapped]
    found = {
        "native": native_calls(backend, *native),
        "tl, native arrays": trellis_calls(*native),
        "tl, tl.Array": trellis_calls(*wrapped),
        "tl.Array operators": operator_calls(*wrapped),
    }
    if backend in _COMPAT_BACKENDS and importlib.util.find_spec("array_api_compat"):
        found["array-api-compat"] = compat_calls(*native)
    if importlib.util.find_spec("keras"):
        found["keras.ops"] = keras_calls(*native)
    return found


def cpu_microseconds(call: Call, repeats: int, finish: Callable[[Any], Any]) -> float:
    """CPU time of one call, in a loop of `repeats`; `finish` waits for work that is still under way."""
    start = time.process_time_ns()
    for _ in range(repeats):
        result = call()
    finish(result)
    return (time.process_time_ns() - start) / repeats / 1000


def python_calls(call: Call) -> int:
    """How many Python functions a call enters, itself not counted."""
    count = -1

    def hook(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(hook)
    try:
        call()
    finally:
        sys.setprofile(None)
    return count


def medians(found: Variants, rounds: int, repeats: int, finish: Callable[[Any], Any]) -> dict[str, dict[str, float]]:
    """Median microseconds of each variant of each op, the variants taking turns."""
    times: dict[tuple[str, str], list[float]] = {(name, op): [] for name, calls in found.items() for op in calls}
    for name, op in times:
        cpu_microseconds(found[name][op], repeats, finish)  # warm up: caches, compiled kernels
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, op in times:
            times[name, op].append(cpu_microseconds(found[name][op], repeats, finish))
    gc.enable()
    return {name: {op: statistics.median(times[name, op]) for op in calls} for name, calls in found.items()}


def finish_of(backend: str) -> Callable[[Any], Any]:
    """How to wait for a result: JAX computes in the background."""
    return (lambda x: getattr(x, "native", x).block_until_ready()) if backend == "jax" else (lambda x: x)


def one_thread(backend: str) -> None:
    """One thread per framework, so that CPU time is the time of the call."""
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def figure(measured: float | None, native: float) -> str:
    """Time beyond native, with its sign; native itself without; a dash where a variant does not have the op."""
    if measured is None:
        return f"{'-':>9}"
    return f"{measured - native:+9.2f}" if native else f"{measured:9.2f}"


def report(backend: str, rounds: int, repeats: int) -> None:
    """Measure one backend in this process and print its table."""
    os.environ["KERAS_BACKEND"] = backend
    import trellis as tl

    one_thread(backend)
    found = variants(backend)
    times = medians(found, rounds, repeats, finish_of(backend))
    version = next(b.version for b in tl.backends() if b.name == backend)
    print(f"{backend + ' ' + str(version):26}" + "".join(f"{op:>9}" for op in OPS) + "   microseconds")
    for name, measured in times.items():
        print(f"  {name:24}" + "".join(figure(measured.get(op), 0 if name == "native" else times["native"][op]) for op in OPS))
    for name in ("native", "tl, native arrays", "tl, tl.Array"):
        print(f"  {'calls: ' + name:24}" + "".join(f"{python_calls(found[name][op]):9}" for op in OPS))
    print(flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of a small call over the framework's own.")
    parser.add_argument("--backend", help="measure this one, in this process; by default all, each in its own")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.backend:
        report(arguments.backend, arguments.rounds, arguments.repeats)
        return 0
    import trellis as tl

    print(f"One call on {SHAPE} float32, eager, one thread: native, what others take beyond it, Python calls entered\n")
    sizes = ["--rounds", str(arguments.rounds), "--repeats", str(arguments.repeats)]
    failed = 0
    for backend in tl.backends():
        if backend.installed:
            settings = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
            command = [sys.executable, __file__, "--backend", backend.name, *sizes]
            failed |= subprocess.run(command, env=os.environ | settings, check=False).returncode
        else:
            print(f"{backend.name}: not installed, not measured\n", flush=True)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
