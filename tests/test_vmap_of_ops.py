"""`vmap` of every function in the tables of cases against a loop over the elements, on every backend.

TensorFlow's converters and NumPy's batching rules are written op by op, and one converter pads with 0 whatever the constant: only
values tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cases
import gradient_cases
import numpy as np
import pytest
from helpers import check, make, to_numpy

import trellis as tl
from trellis.core.tree import leaves

Run = Callable[..., Any]
Arrays = tuple[np.ndarray[Any, Any], ...]

# JAX and torch raise where a result depends on values; these also look at values.
_OF_VALUES = ("histogram", "searchsorted")
_rng = np.random.default_rng(3)
_IMAGE = -np.abs(_rng.normal(size=(2, 7, 6, 3))).astype(np.float32)  # below the zeros of a wrong padding
_WORDS = _rng.integers(1, 5, size=(2, 3))


def _ctc(logits: Any, words: Any) -> Any:
    return tl.ctc_loss(tl.log_softmax(logits, axis=-1), words, [6, 5], [3, 2])


def _solve(a: Any, b: Any) -> Any:
    return tl.linalg.solve(a, b)


def _solve_triangular(a: Any, b: Any) -> Any:
    return tl.linalg.solve_triangular(a, b, lower=True)


FURTHER: dict[str, tuple[Run, Arrays]] = {
    "pad of -inf": (lambda x: tl.pad(x, 1, constant_values=-np.inf), (_IMAGE[0, 0],)),
    "pad of an array": (lambda x, v: tl.pad(x, ((1, 0), (0, 2)), constant_values=v), (_IMAGE[0, 0], np.array(3, "float32"))),
    "max_pool2d padded": (lambda x: tl.max_pool2d(x, 3, 2, ((1, 1), (1, 1))), (_IMAGE,)),
    "max_pool2d dilated": (lambda x: tl.max_pool2d(x, 2, 1, ((1, 1), (1, 1)), dilations=2), (_IMAGE,)),
    "ctc_loss": (_ctc, (_rng.normal(size=(6, 2, 5)), _WORDS)),
    **{
        f"{solver.__name__[1:]} of {a} and {b}": (solver, (np.tril(_rng.normal(size=a)) + 4 * np.eye(3), _rng.normal(size=b)))
        for solver in (_solve, _solve_triangular)
        for a in ((3, 3), (2, 3, 3), (2, 1, 3, 3))
        for b in ((3,), (3, 2), (2, 3, 2), (1, 2, 3, 2))
    },
}
CASES: dict[str, tuple[Run, Arrays]] = {
    **{c.name: (lambda *a, c=c: c.run(tl, *a), c.arrays) for c in cases.CASES if not c.dynamic and c.op not in _OF_VALUES},
    **{f"differentiable {c.name}": (c.run, c.arrays) for c in gradient_cases.CASES if not c.dynamic},
    **FURTHER,
}


def stacked(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Two elements: `x`, and another in the domain of every function that takes it."""
    return np.stack([x, x * 0.875 if x.dtype.kind in "fc" else x])


def _compare(backend: str, run: Run, arrays: Arrays) -> None:
    def flat(*operands: Any) -> tuple[Any, ...]:
        return tuple(leaves(run(*operands)))

    batches = [stacked(np.asarray(a)) for a in arrays]
    found = tl.vmap(flat)(*(make(backend, batch) for batch in batches))
    rows = [flat(*(make(backend, batch[i]) for batch in batches)) for i in range(2)]
    assert len(found) == len(rows[0])
    for y, *elements in zip(found, *rows):
        check(y, np.stack([to_numpy(e) for e in elements]), tolerance=1e-6)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch names ops that it runs in a loop
@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(backend: str, name: str) -> None:
    _compare(backend, *CASES[name])
