"""The calls of the tables beside this file: run one on NumPy arrays and on the arrays of a column, and compare.

A column is a backend (its `tl.Array`s), `strict` (array-api-strict) or `native` (torch.Tensor). One process runs one column:
SciPy reads SCIPY_ARRAY_API once, when it is imported: `python -m clients` sets it first.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
# client, by its module -> the submodules that the calls need
CLIENTS = {
    "scipy": "cluster.hierarchy cluster.vq constants differentiate fft integrate interpolate linalg ndimage optimize.elementwise",
    "sklearn": "calibration decomposition discriminant_analysis kernel_approximation linear_model metrics.cluster",
    "array_api_extra": "",
}
CLIENTS["scipy"] += " signal.windows spatial.transform special stats"
CLIENTS["sklearn"] += (
    " metrics.pairwise mixture model_selection naive_bayes pipeline preprocessing utils.extmath utils.multiclass"
)


class Outcome(NamedTuple):
    client: str
    call: str
    passed: bool
    text: str  # why not
    seconds: float


def table(client: str) -> list[str]:
    lines = (HERE / f"{client}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def chosen(part: str) -> list[tuple[str, str]]:
    """(client, call) of every call, or of a third of them."""
    every = [(client, call) for client in CLIENTS for call in table(client)]
    return every if part == "all" else every[::3]


# ---- operands ------------------------------------------------------------------------------------------------------------------
def operands() -> dict[str, np.ndarray[Any, Any]]:
    """The arrays that the calls name, drawn anew each time, for a call may write into them."""
    r = np.random.default_rng(0)
    samples, classes = r.normal(size=(30, 4)), np.arange(30) % 3
    sq = r.normal(size=(4, 4))
    nans = r.normal(size=12)
    nans[[2, 7]] = np.nan
    scores = r.dirichlet(np.ones(3), size=30)
    img = r.uniform(size=(8, 8))
    return {
        "x": r.normal(size=24), "y": r.normal(size=24), "p": r.uniform(0.5, 3.0, size=24), "u": r.uniform(0.05, 0.95, size=24),
        "n": r.integers(0, 8, size=12), "m": r.normal(size=(4, 6)), "w": r.normal(size=(4, 6)), "sq": sq,
        "spd": sq @ sq.T + 4 * np.eye(4), "img": img, "lab": np.arange(64).reshape(8, 8) // 20, "mask": img > 0.4,
        "z": r.normal(size=8) + 1j * r.normal(size=8), "zm": r.normal(size=(4, 4)) + 1j * r.normal(size=(4, 4)),
        "t": np.linspace(0.0, 1.0, 24), "points": r.normal(size=(12, 2)), "labels": np.asarray([1, 1, 2, 3, 2], dtype=np.int32),
        "sos": np.asarray([[0.2, 0.4, 0.2, 1.0, -0.3, 0.1], [1.0, 0.5, 0.2, 1.0, -0.2, 0.05]]),
        "links": np.asarray([[0, 1, 0.5, 2], [2, 3, 0.75, 2], [4, 5, 1.0, 3], [6, 7, 1.5, 5]], dtype=np.float64),
        "nans": nans, "nm": nans.reshape(3, 4),
        "X": samples + classes[:, None], "Z": r.normal(size=(30, 4)), "P": r.uniform(0.5, 3.0, size=(30, 4)),
        "r": samples @ np.asarray([1.0, -2.0, 0.5, 0.0]) + r.normal(size=30), "s": r.normal(size=30), "c": classes,
        "d": (classes + (r.uniform(size=30) < 0.3)) % 3, "b": (classes > 0).astype(np.int64),
        "e": (r.uniform(size=30) < 0.6).astype(np.int64), "q": r.normal(size=30), "h": r.uniform(0.05, 0.95, size=30),
        "Q": scores,
    }  # fmt: skip


def converter(column: str) -> Callable[[Any], Any]:
    """From NumPy's arrays to those of a column."""
    if column == "numpy arrays":
        return np.asarray
    if column == "strict":
        return importlib.import_module("array_api_strict").asarray
    if column == "native":
        return lambda x: importlib.import_module("torch").from_numpy(np.asarray(x).copy())
    tl = importlib.import_module("trellis")
    return lambda x: tl.asarray(np.asarray(x), backend=column)


def names(call: str, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """What a call may name: its arrays, their namespace `xp`, and `A`, which makes an array of numbers."""
    compat = importlib.import_module("array_api_compat")
    used = set(re.findall(r"\w+", call))
    arrays = {name: convert(value) for name, value in operands().items() if name in used}
    return {**arrays, "xp": compat.array_namespace(convert(np.zeros(1))), "A": lambda value: convert(np.asarray(value))}


# ---- one call ------------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def dispatching() -> Iterator[None]:
    sklearn = importlib.import_module("sklearn")
    with sklearn.config_context(array_api_dispatch=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run(client: str, call: str, column: str) -> Outcome:
    module = importlib.import_module(client)
    for part in CLIENTS[client].split():
        importlib.import_module(f"{client}.{part}")
    namespace = {name: getattr(module, name) for name in {*dir(module), *vars(module)} if not name.startswith("_")}
    with dispatching():
        expected = eval(call, {**namespace, **names(call, converter("numpy arrays"))})
        convert = converter(column)
        start = time.perf_counter()
        try:
            got = eval(call, {**namespace, **names(call, convert)})
            text = difference(got, expected, type(convert(np.zeros(1))))
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
    return Outcome(client, call, not text, text, round(time.perf_counter() - start, 3))


def difference(got: Any, expected: Any, kind: type, path: str = "result") -> str:
    """How a result differs from that of NumPy's arrays; an empty string if it does not."""
    if isinstance(expected, np.ndarray) and expected.ndim and not isinstance(got, kind):
        return f"{path} is a {type(got).__name__}, not a {kind.__name__}"
    if isinstance(expected, (np.ndarray, np.generic, bool, int, float, complex)):
        return _numbers(np.asarray(got), np.asarray(expected), path)
    if isinstance(expected, Mapping):
        pairs = {key: (got[key], value) for key, value in expected.items()}
    elif isinstance(expected, (tuple, list)):
        if len(got) != len(expected):
            return f"{path} has {len(got)} parts, not {len(expected)}"
        pairs = dict(enumerate(zip(got, expected)))
    elif hasattr(expected, "__dict__") and vars(expected):
        pairs = {name: (getattr(got, name), value) for name, value in vars(expected).items() if not name.startswith("_")}
    else:
        return "" if got == expected else f"{path} is {got!r}, not {expected!r}"
    return next(filter(None, (difference(g, e, kind, f"{path}[{key!r}]") for key, (g, e) in pairs.items())), "")


def _numbers(got: Any, expected: Any, path: str) -> str:
    if got.shape != expected.shape:
        return f"{path} has shape {got.shape}, not {expected.shape}"
    if expected.dtype.kind in "biu":
        return "" if np.array_equal(got, expected) else f"{path} is {got}, not {expected}"
    narrow = got.dtype in (np.float32, np.complex64)
    if np.allclose(got, expected, rtol=1e-4 if narrow else 1e-7, atol=1e-5 if narrow else 1e-9, equal_nan=True):
        return ""
    return f"{path} differs from NumPy's by {np.nanmax(np.abs(got - expected)):.1e}"
