"""Make a failing case smaller: fewer keywords, fewer axes and elements, plainer values, as long as it still differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fuzz.calls import Case


def reduced(case: Case, fails: Callable[[Case], bool], attempts: int = 40) -> Case:
    """The smallest case found; each attempt runs the case again."""
    found = True
    while found and attempts > 0:
        found = False
        for smaller in _smaller(case):
            attempts -= 1
            if attempts <= 0:
                break
            if fails(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for key in case.kwargs:
        yield case._replace(kwargs={k: v for k, v in case.kwargs.items() if k != key})
    for i, value in enumerate(case.args):
        for plainer in _plainer(value):
            yield case._replace(args=(*case.args[:i], plainer, *case.args[i + 1 :]))
    for key, value in case.kwargs.items():
        for plainer in _plainer(value):
            yield case._replace(kwargs=case.kwargs | {key: plainer})


def _plainer(value: Any) -> Iterator[Any]:
    if isinstance(value, list) and len(value) > 1:
        yield value[:1]
    if not isinstance(value, np.ndarray):
        return
    if value.ndim and value.shape[0]:
        yield np.asarray(value[0])
    for axis, size in enumerate(value.shape):
        if size > 1:
            yield np.take(value, [0], axis=axis)
    ones = np.ones_like(value)
    if value.size and not np.array_equal(value, ones):
        yield ones
