"""Initial values of parameters, drawn from the portable generator on the host: the same seed, the same weights on every backend.

An initializer is called with the shape and with the axes that are the input and the output of the layer (a `Linear` weight is
(out, in), a filter (*window, in, out)); the rest of the axes are its window. Layers take one,
its name, or any function of a shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from trellis.core import dtypes
from trellis.core.array import Array
from trellis.core.dispatch import target
from trellis.ops.arguments import choice, shape as shape_argument
from trellis.ops.conversion import astype
from trellis.random.distributions import truncated_normal
from trellis.random.keys import Key, make_key
from trellis.random.samplers import random_normal, random_uniform
from trellis.random.state import next_key

__all__ = [
    "Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "IdentityMatrix", "Initializer", "LecunNormal",
    "LecunUniform", "Normal", "Ones", "Orthogonal", "Siren", "TruncatedNormal", "Uniform", "VarianceScaling", "Zeros",
]  # fmt: skip

Shape = tuple[int, ...]


class Initializer:
    """Makes the first value of a parameter; a subclass defines `values(shape, key, ...)` in float64 or float32 NumPy numbers.

    >>> import trellis as tl
    >>> tl.GlorotUniform()((2, 3), seed=0).shape
    (2, 3)
    """

    def __call__(
        self, shape: int | Sequence[int], /, *, in_axis: int = -1, out_axis: int = -2, dtype: Any = None, device: Any = None,
        backend: str | None = None, seed: int | Key | None = None,
    ) -> Array:  # fmt: skip
        """An Array of this shape, on the default backend unless another is given."""
        name = type(self).__name__
        sizes = shape_argument(name, shape)
        wanted = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
        key = make_key(next_key(name, target(backend))) if seed is None else Key(seed)
        drawn = self.values(sizes, key, dtypes.float64 if wanted.bits == 64 else dtypes.float32, in_axis, out_axis)
        return Array(target(backend).from_numpy(astype(drawn, wanted, copy=False)._data, dtype=None, device=device, copy=True))

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        """A NumPy-backed Array of `dtype`."""
        raise NotImplementedError(f"{type(self).__name__} has no method values")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Constant(Initializer):
    """One value everywhere.

    >>> import trellis as tl
    >>> tl.Constant(0.5)((2, 2)).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    def __init__(self, value: float) -> None:
        self.value = value

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        return Array(np.full(shape, self.value, dtype.name))


class Zeros(Constant):
    """Zeros.

    >>> import trellis as tl
    >>> tl.Zeros()((3,)).tolist()
    [0.0, 0.0, 0.0]
    """

    def __init__(self) -> None:
        super().__init__(0.0)


class Ones(Constant):
    """Ones.

    >>> import trellis as tl
    >>> tl.Ones()((3,)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__(1.0)


class Uniform(Initializer):
    """Uniform numbers in [low, high).

    >>> import trellis as tl
    >>> x = tl.Uniform(-1.0, 1.0)((1000,), seed=0)
    >>> bool(tl.all((x >= -1) & (x < 1)))
    True
    """

    def __init__(self, low: float = -0.05, high: float = 0.05) -> None:
        if not low <= high:
            raise ValueError(f"Uniform: low={low}, high={high}; low must not be above high")
        self.low, self.high = low, high

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        return random_uniform(low=self.low, high=self.high, shape=shape, dtype=dtype, backend="numpy", seed=key)


class Normal(Initializer):
    """Normal numbers of mean `mean` and standard deviation `std`.

    >>> import trellis as tl
    >>> x = tl.Normal(std=0.1)((1000,), seed=0)
    >>> round(float(tl.std(x)), 2)
    0.1
    """

    def __init__(self, mean: float = 0.0, std: float = 0.05) -> None:
        self.mean, self.std = mean, _not_negative(type(self).__name__, "std", std)

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        return random_normal(mean=self.mean, std=self.std, shape=shape, dtype=dtype, backend="numpy", seed=key)


class TruncatedNormal(Normal):
    """Normal numbers within two standard deviations; `std` is that of the numbers before they are cut off.

    >>> import trellis as tl
    >>> x = tl.TruncatedNormal(std=0.1)((1000,), seed=0)
    >>> bool(tl.max(tl.abs(x)) <= 0.2)
    True
    """

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        return truncated_normal(shape=shape, dtype=dtype, backend="numpy", seed=key) * self.std + self.mean


def _not_negative(name: str, argument: str, value: float) -> float:
    if not value >= 0:
        raise ValueError(f"{name}: {argument}={value!r} must not be negative")
    return value


class VarianceScaling(Initializer):
    """Numbers of variance scale / n, where n counts inputs ("fan_in") or outputs ("fan_out"), or is their mean ("fan_avg").

    >>> import trellis as tl
    >>> x = tl.VarianceScaling(2.0, "fan_in")((100, 50), seed=0)  # 100 outputs, 50 inputs
    >>> round(float(tl.var(x)), 3)
    0.041
    """

    def __init__(self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal") -> None:
        self.scale = _not_negative("VarianceScaling", "scale", scale)
        self.mode = choice("VarianceScaling", "mode", mode, ("fan_in", "fan_out", "fan_avg"))
        self.distribution = choice("VarianceScaling", "distribution", distribution, ("truncated_normal", "normal", "uniform"))

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        fan_in, fan_out = fans(shape, in_axis, out_axis)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        deviation = math.sqrt(self.scale / max(fan, 1))
        drawn = {
            "uniform": Uniform(-deviation * math.sqrt(3), deviation * math.sqrt(3)),
            "normal": Normal(0.0, deviation),
            "truncated_normal": TruncatedNormal(0.0, deviation / 0.87962566103423978),  # the deviation of a normal cut off at 2
        }[self.distribution]
        return drawn.values(shape, key, dtype, in_axis, out_axis)


def fans(shape: Shape, in_axis: int, out_axis: int) -> tuple[int, int]:
    """How many numbers each output is computed of, and how many outputs each input goes into."""
    if len(shape) < 2:
        size = math.prod(shape)
        return size, size
    window = math.prod(shape) // max(shape[in_axis] * shape[out_axis], 1)
    return shape[in_axis] * window, shape[out_axis] * window


class Preset(VarianceScaling):
    """Variance scaling whose settings the class fixes."""

    _settings: ClassVar[tuple[float, str, str]]

    def __init_subclass__(cls, scale: float, mode: str, distribution: str) -> None:
        cls._settings = scale, mode, distribution

    def __init__(self) -> None:
        super().__init__(*self._settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class GlorotUniform(Preset, scale=1.0, mode="fan_avg", distribution="uniform"):
    """Uniform numbers of variance 2 / (inputs + outputs) (Glorot and Bengio, 2010).

    >>> import trellis as tl
    >>> x = tl.GlorotUniform()((100, 50), seed=0)
    >>> round(float(tl.var(x)) * (100 + 50) / 2, 1)
    1.0
    """


class GlorotNormal(Preset, scale=1.0, mode="fan_avg", distribution="truncated_normal"):
    """Normal numbers, cut off at two deviations, of variance 2 / (inputs + outputs).

    >>> import trellis as tl
    >>> x = tl.GlorotNormal()((100, 50), seed=0)
    >>> round(float(tl.var(x)) * (100 + 50) / 2, 1)
    1.0
    """


class HeUniform(Preset, scale=2.0, mode="fan_in", distribution="uniform"):
    """Uniform numbers of variance 2 / inputs, for layers before relu (He and others, 2015).

    >>> import trellis as tl
    >>> x = tl.HeUniform()((100, 50), seed=0)
    >>> round(float(tl.var(x)) * 50 / 2, 1)
    1.0
    """


class HeNormal(Preset, scale=2.0, mode="fan_in", distribution="truncated_normal"):
    """Normal numbers, cut off at two deviations, of variance 2 / inputs.

    >>> import trellis as tl
    >>> x = tl.HeNormal()((100, 50), seed=0)
    >>> round(float(tl.var(x)) * 50 / 2, 1)
    1.0
    """


class LecunUniform(Preset, scale=1.0, mode="fan_in", distribution="uniform"):
    """Uniform numbers of variance 1 / inputs (LeCun and others, 1998).

    >>> import trellis as tl
    >>> x = tl.LecunUniform()((100, 50), seed=0)
    >>> round(float(tl.var(x)) * 50, 1)
    1.0
    """


class LecunNormal(Preset, scale=1.0, mode="fan_in", distribution="truncated_normal"):
    """Normal numbers, cut off at two deviations, of variance 1 / inputs.

    >>> import trellis as tl
    >>> x = tl.LecunNormal()((100, 50), seed=0)
    >>> round(float(tl.var(x)) * 50, 1)
    1.0
    """


def _check_is_matrix(name: str, shape: Shape) -> None:
    if len(shape) < 2:
        raise ValueError(f"{name}: the shape {shape} has {len(shape)} axes; at least 2 are needed")


class Orthogonal(Initializer):
    """A matrix (outputs, the rest) whose rows or columns, whichever are fewer, are orthonormal, times `gain` (Saxe, 2013).

    >>> import trellis as tl
    >>> w = tl.Orthogonal()((2, 3), dtype="float64", seed=0)
    >>> bool(tl.allclose(w @ w.T, tl.eye(2)))
    True
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        _check_is_matrix("Orthogonal", shape)
        outputs = shape[out_axis]
        rest = math.prod(shape) // max(outputs, 1)
        drawn = random_normal(shape=(max(outputs, rest), min(outputs, rest)), dtype=dtypes.float64, backend="numpy", seed=key)
        q, r = np.linalg.qr(np.asarray(drawn))
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # else it is not uniform among the orthogonal matrices
        matrix = q if outputs >= rest else q.T
        others = [n for axis, n in enumerate(shape) if axis != out_axis % len(shape)]
        return Array(np.moveaxis(self.gain * matrix.reshape(outputs, *others), 0, out_axis).astype(dtype.name))


class IdentityMatrix(Initializer):
    """Ones where input and output have the same number, in the middle of the window of a filter, times `gain`; else zeros.

    >>> import trellis as tl
    >>> tl.IdentityMatrix()((2, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        _check_is_matrix("IdentityMatrix", shape)
        value = np.zeros(shape, dtype.name)
        moved = np.moveaxis(value, (in_axis, out_axis), (-2, -1))
        middle = tuple(n // 2 for n in moved.shape[:-2])
        np.fill_diagonal(moved[middle], self.gain)
        return Array(value)


class Siren(Initializer):
    """For sine activations: uniform within sqrt(6 / inputs) / w0, in the first layer 1 / inputs (Sitzmann and others, 2020).

    >>> import trellis as tl
    >>> x = tl.Siren(w0=1.0)((100, 6), seed=0)
    >>> bool(tl.max(tl.abs(x)) <= 1.0)
    True
    """

    def __init__(self, w0: float = 30.0, first: bool = False) -> None:
        if not w0 > 0:
            raise ValueError(f"Siren: w0={w0!r} must be above 0")
        self.w0, self.first = w0, first

    def values(self, shape: Shape, key: Key, dtype: dtypes.DType, in_axis: int, out_axis: int) -> Any:
        inputs = max(fans(shape, in_axis, out_axis)[0], 1)
        limit = 1 / inputs if self.first else math.sqrt(6 / inputs) / self.w0
        return Uniform(-limit, limit).values(shape, key, dtype, in_axis, out_axis)


_BY_NAME: dict[str, Callable[[], Initializer]] = {
    "zeros": Zeros, "ones": Ones, "uniform": Uniform, "normal": Normal, "truncated_normal": TruncatedNormal,
    "glorot_uniform": GlorotUniform, "glorot_normal": GlorotNormal, "he_uniform": HeUniform, "he_normal": HeNormal,
    "lecun_uniform": LecunUniform, "lecun_normal": LecunNormal, "orthogonal": Orthogonal,
    "identity": IdentityMatrix, "siren": Siren,
}  # fmt: skip


def as_initializer(name: str, argument: str, value: Any) -> Any:
    """An initializer of what a layer was given: one, its name, a number, or a function of a shape."""
    if isinstance(value, str):
        return _BY_NAME[choice(name, argument, value, tuple(_BY_NAME))]()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Constant(value)
    if not callable(value):
        raise TypeError(f"{name}: {argument} is a {type(value).__name__}; expected an initializer, its name, or a function")
    return value
