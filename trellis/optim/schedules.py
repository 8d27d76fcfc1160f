"""Learning rates as functions of the number of steps taken: a Python number, or an array if the step is compiled.

Each function here returns a schedule: `schedule(0)` is the rate of the first step. A Python number gives a Python number. An
array gives an array, so that one compiled step has every rate of the schedule. A schedule that takes other rates takes numbers
or schedules.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from trellis import ops as tl
from trellis.core import dtypes
from trellis.core.array import Array

__all__ = [
    "constant_schedule", "cosine_schedule", "exponential_schedule", "linear_schedule", "one_cycle_schedule", "piecewise_schedule",
    "polynomial_schedule", "sequential_schedule", "step_schedule", "warmup_schedule",
]  # fmt: skip

Schedule = Callable[[Any], Any]
Rate = float | Schedule


def constant_schedule(value: float, /) -> Schedule:
    """The same rate at every step.

    >>> import trellis as tl
    >>> tl.constant_schedule(0.1)(7)
    0.1
    """
    value = _rate("constant_schedule", "value", value)
    return _of_steps(lambda step: value + 0.0 * step)


def linear_schedule(initial: float, final: float, steps: int, /) -> Schedule:
    """initial + (final - initial) * step / steps, and `final` after `steps`.

    >>> import trellis as tl
    >>> [tl.linear_schedule(1.0, 0.0, 4)(step) for step in (0, 1, 4, 9)]
    [1.0, 0.75, 0.0, 0.0]
    """
    return polynomial_schedule(initial, steps, final=final)


def polynomial_schedule(initial: float, steps: int, /, *, power: float = 1.0, final: float = 0.0) -> Schedule:
    """final + (initial - final) * (1 - step / steps) ** power, and `final` after `steps`.

    >>> import trellis as tl
    >>> [tl.polynomial_schedule(1.0, 4, power=2)(step) for step in (0, 2, 4)]
    [1.0, 0.25, 0.0]
    """
    initial, final = _rate("polynomial_schedule", "initial", initial), _rate("polynomial_schedule", "final", final)
    whole_number("polynomial_schedule", "steps", steps)
    return _of_steps(lambda step: final + (initial - final) * (1.0 - _minimum(step, steps) / steps) ** power)


def step_schedule(initial: float, step_size: int, /, *, factor: float = 0.1) -> Schedule:
    """initial * factor ** floor(step / step_size).

    >>> import trellis as tl
    >>> [tl.step_schedule(1.0, 10, factor=0.5)(step) for step in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    initial, factor = _rate("step_schedule", "initial", initial), _rate("step_schedule", "factor", factor)
    whole_number("step_schedule", "step_size", step_size)
    return _of_steps(lambda step: initial * _power(factor, _floor(step / step_size)))


def exponential_schedule(initial: float, factor: float, /, *, steps: int = 1) -> Schedule:
    """initial * factor ** (step / steps).

    >>> import trellis as tl
    >>> tl.exponential_schedule(1.0, 0.5)(3)
    0.125
    """
    initial, factor = _rate("exponential_schedule", "initial", initial), _rate("exponential_schedule", "factor", factor)
    whole_number("exponential_schedule", "steps", steps)
    return _of_steps(lambda step: initial * _power(factor, step / steps))


def cosine_schedule(initial: float, steps: int, /, *, final: float = 0.0) -> Schedule:
    """final + (initial - final) * (1 + cos(pi * step / steps)) / 2, and `final` after `steps`.

    >>> import trellis as tl
    >>> [round(tl.cosine_schedule(1.0, 4)(step), 3) for step in (0, 1, 2, 3, 4)]
    [1.0, 0.854, 0.5, 0.146, 0.0]
    >>> tl.Adam(tl.cosine_schedule(1.0, 4, final=0.1))
    Adam(lr=cosine_schedule(1.0, 4, final=0.1))
    """
    initial, final = _rate("cosine_schedule", "initial", initial), _rate("cosine_schedule", "final", final)
    whole_number("cosine_schedule", "steps", steps)
    return _of_steps(lambda step: _along_cosine(initial, final, _minimum(step, steps) / steps))


def warmup_schedule(after: Rate, steps: int, /, *, initial: float = 0.0) -> Schedule:
    """initial + (after(0) - initial) * step / steps for `steps` steps, then after(step - steps).

    >>> import trellis as tl
    >>> schedule = tl.warmup_schedule(tl.cosine_schedule(1.0, 100), 10)
    >>> schedule(0), schedule(5), schedule(10), round(schedule(60), 6)
    (0.0, 0.5, 1.0, 0.5)
    """
    following = as_schedule("warmup_schedule", "after", after)
    return sequential_schedule([linear_schedule(initial, following(0), steps), following], [steps])


def one_cycle_schedule(
    peak: float, steps: int, /, *, warmup: float = 0.3, initial_divisor: float = 25.0, final_divisor: float = 1e4,
    linear: bool = False,
) -> Schedule:  # fmt: skip
    """From peak / initial_divisor up to `peak`, then down to peak / (initial_divisor * final_divisor).

    The rate rises for the share `warmup` of the `steps`. It follows half a wave of the cosine, or straight lines if `linear`.

    >>> import trellis as tl
    >>> schedule = tl.one_cycle_schedule(1.0, 11, warmup=0.4)
    >>> round(schedule(0), 3), round(schedule(3.4), 3), round(schedule(10), 6)
    (0.04, 1.0, 4e-06)
    """
    peak = _rate("one_cycle_schedule", "peak", peak)
    whole_number("one_cycle_schedule", "steps", steps)
    if not 0 < warmup < 1:
        raise ValueError(f"one_cycle_schedule: warmup={warmup} must lie between 0 and 1: it is a share of the steps")
    if warmup * steps <= 1:
        raise ValueError(f"one_cycle_schedule: warmup={warmup} of {steps} steps is no step; give more of either")
    top, end, start = warmup * steps - 1, steps - 1, peak / initial_divisor
    along = _along_line if linear else _along_cosine

    def schedule(step: Any) -> Any:
        step = _minimum(step, end)
        up, down = along(start, peak, step / top), along(peak, start / final_divisor, (step - top) / (end - top))
        return _choose(step <= top, up, down)

    return _of_steps(schedule)


def piecewise_schedule(values: Sequence[float], boundaries: Sequence[int], /) -> Schedule:
    """values[0] until step boundaries[0], then values[1], and so on; there is one more value than there are boundaries.

    >>> import trellis as tl
    >>> [tl.piecewise_schedule([1.0, 0.1, 0.01], [10, 20])(step) for step in (0, 9, 10, 20)]
    [1.0, 1.0, 0.1, 0.01]
    """
    return sequential_schedule([constant_schedule(value) for value in values], boundaries)


def sequential_schedule(parts: Sequence[Rate], boundaries: Sequence[int], /) -> Schedule:
    """One schedule after the other: each counts its steps from its boundary.

    >>> import trellis as tl
    >>> schedule = tl.sequential_schedule([0.1, tl.linear_schedule(1.0, 0.0, 10)], [5])
    >>> schedule(4), schedule(5), schedule(10)
    (0.1, 1.0, 0.5)
    """
    schedules = [as_schedule("sequential_schedule", "parts", part) for part in parts]
    if len(schedules) != len(boundaries) + 1 or list(boundaries) != sorted(set(boundaries)):
        raise ValueError(
            f"sequential_schedule: {len(schedules)} parts and the boundaries {list(boundaries)}; give growing boundaries, "
            "one less than there are parts"
        )

    def schedule(step: Any) -> Any:
        found = schedules[0](step)
        for boundary, part in zip(boundaries, schedules[1:]):
            found = _choose(step < boundary, found, part(_maximum(step - boundary, 0.0)))
        return found

    return _of_steps(schedule)


def as_schedule(name: str, argument: str, rate: Any) -> Schedule:
    return rate if callable(rate) else constant_schedule(_rate(name, argument, rate))


# ---- numbers and arrays alike --------------------------------------------------------------------------------------------------
def _rate(name: str, argument: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"{name}: {argument}={value!r} must be a number, 0 or more")
    return float(value)


def whole_number(name: str, argument: str, value: Any, least: int = 1) -> None:
    """Raise if a value is no int, or below `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: {argument}={value!r} must be a whole number, {least} or more")


class _of_steps:
    """A schedule from a function of a Python number or a `tl.Array` of floats. A native array gives a native one."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.text = function, ""

    def __call__(self, step: Any) -> Any:
        if isinstance(step, (int, float)):
            return self.function(step)
        x = step if isinstance(step, Array) else Array(step)
        found = self.function(x if x.dtype.kind == "f" else tl.astype(x, dtypes.float32))
        return found if isinstance(step, Array) or not isinstance(found, Array) else found._data

    def __repr__(self) -> str:
        return self.text


def _printed(make: Callable[..., Any]) -> Callable[..., Any]:
    """A maker of schedules that print as the call which made them."""

    @functools.wraps(make)
    def made(*args: Any, **options: Any) -> Any:
        schedule = make(*args, **options)
        schedule.text = f"{make.__name__}({', '.join([*map(repr, args), *(f'{n}={x!r}' for n, x in options.items())])})"
        return schedule

    return made


def _either(of_array: Callable[..., Any], of_number: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is `of_array` if an argument is an Array, else `of_number`."""
    return lambda *args: (of_array if any(isinstance(x, Array) for x in args) else of_number)(*args)


_minimum, _maximum = _either(tl.minimum, min), _either(tl.maximum, max)
_floor, _power, _cos = _either(tl.floor, math.floor), _either(tl.pow, pow), _either(tl.cos, math.cos)
_choose = _either(tl.where, lambda condition, first, second: first if condition else second)


def _along_line(start: float, end: float, share: Any) -> Any:
    return start + (end - start) * share


def _along_cosine(start: float, end: float, share: Any) -> Any:
    return end + (start - end) * (1.0 + _cos(share * math.pi)) / 2.0


for _name in __all__:
    globals()[_name] = _printed(globals()[_name])
