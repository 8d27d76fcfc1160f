"""What all distributions share: their parameters, the border to the user's arrays, the support, and location and scale.

A distribution is a dataclass of its parameters, so it is a node of nests: an argument or a result of `tl.compile`, `tl.vmap` and
`tl.grad`. A class statement holds its formulas as keywords, which become methods with a leading underscore. They are those of
the standard distribution, and see all numbers as `tl.Array`s of one floating dtype on one framework. `bordered` makes them so.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

import numpy as np

from trellis import ops as tl
from trellis.core import tree
from trellis.core.array import Array
from trellis.core.dtypes import common_dtype, default_float, float32
from trellis.core.free import Free, kind_of as kind_of_array, settled
from trellis.core.hints import install, naming
from trellis.core.leaves import OTHER, backend_of, device_of, kind_of, unwrap
from trellis.core.typing import AnyArray, Operand, SeedLike, Shape
from trellis.ops.arguments import shape as shape_argument
from trellis.random.keys import Key, fold_in, holder
from trellis.random.sources import Draw, inside, is_concrete, is_number

Size = tuple[int, ...]

# What each parameter must be, by its name; others may be any number.
_POSITIVE = (lambda value: value > 0, "above 0")
_EXPECTED: dict[str, Any] = dict.fromkeys(("scale", "rate", "df", "concentration", "concentration0", "concentration1"), _POSITIVE)
_EXPECTED["probs"] = (lambda value: (value >= 0) & (value <= 1), "between 0 and 1")


def bordered(op: str, formula: Callable[..., Any], *nest: Any, backend: Any = None) -> Any:
    """`formula(*nest)` with all numbers and arrays as `tl.Array`s of one floating dtype; native if all arrays were native.

    Without arrays the result is on `backend`, else on the default one.
    """
    leaves, structure = tree.flatten(nest)
    leaves = settled(leaves)
    for path, x in zip(tree.paths(structure), leaves):
        if kind_of(unwrap(x)) == OTHER:
            raise TypeError(f"{op}: {path.rpartition('/')[2]} holds a {type(x).__name__}; expected a number or an array")
    kinds = [kind_of_array(x) for x in leaves if not is_number(x) and not isinstance(x, np.generic)]
    kind = Array if Array in kinds else kinds[0] if kinds else Free if backend is None else Array
    alone = all(is_number(x) or isinstance(x, np.generic) for x in leaves)
    leaves = [x.item() if isinstance(x, np.generic) and not alone else x for x in leaves]
    leaves = [x if is_number(x) or isinstance(x, Array) else Array(np.asarray(x) if alone else x) for x in leaves]
    arrays = [x for x in leaves if isinstance(x, Array)]
    floats = [x.dtype for x in arrays if x.dtype.kind not in "biu"]
    dtype = common_dtype(floats) if floats else default_float()
    if dtype.kind != "f":
        raise TypeError(f"{op}: expected real numbers, got {dtype}")
    compute, natives = float32 if dtype.bits < 32 else dtype, [x._data for x in arrays]
    backend, device = backend if backend and not arrays else backend_of(natives), device_of(natives)

    def made(x: Any) -> Array:
        if isinstance(x, Array):
            return tl.astype(x, compute, copy=False)
        return Array(backend.full(shape=(), fill_value=x, dtype=compute, device=device))

    result = formula(*tree.unflatten(structure, map(made, leaves)))
    result = tl.astype(result, dtype, copy=False) if result.dtype.kind == "f" else result
    return kind(result._data)


def parts(seed: SeedLike, count: int) -> list[Any]:
    """Seeds for several draws of one call."""
    return [None if seed is None else fold_in(seed, i) for i in range(count)]


def uniform(like: Array, shape: Size, seed: SeedLike) -> Array:
    """Uniform numbers in (0, 1), on the framework of `like`."""
    return inside(Draw("sample", {"like": like}, seed=seed, event=None).source.unit(shape, like.dtype), like.dtype)


class Formulas:
    """A class whose statement holds formulas as keywords: `mean=f` becomes the method `_mean`. It is a dataclass."""

    def __init_subclass__(cls, **formulas: Any) -> None:
        for name, value in formulas.items():
            setattr(cls, f"_{name}", value)
        dataclasses.dataclass(eq=False)(cls)
        cls.__init__ = naming(cls.__init__)  # type: ignore[misc]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # the formulas


@dataclass_transform(eq_default=False, field_specifiers=(dataclasses.field,))
class Distribution(Formulas):
    """A distribution: draws, their density, and moments in closed form. Parameters broadcast.

    `sample(shape, seed=)` draws [*shape, *batch_shape, *event_shape]. If `has_rsample`, gradients flow through a draw to the
    parameters; else a draw is a constant. A formula that does not exist is a NotImplementedError.

    >>> import trellis as tl
    >>> normal = tl.distributions.Normal(0.0, 2.0)
    >>> normal.sample(3, seed=0)
    Array([ 3.245284 ,  4.0505314, -0.8671886],
          dtype=float32, backend='numpy', device='cpu')
    >>> normal.log_prob(1.0), normal.cdf(0.0)
    (Array(-1.7370857, dtype=float32, ...), Array(0.5, dtype=float32, ...))
    """

    has_rsample: ClassVar[bool] = True
    _discrete: ClassVar[bool] = False
    _ranks: ClassVar[dict[str, int]] = {}  # how many of the last axes of a parameter belong to one distribution
    event_rank: ClassVar[int] = 0  # how many of the last axes are one draw

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, (list, tuple)):
                value = tl.asarray(value)
                setattr(self, name, value)
            known = name in _EXPECTED and (is_number(value) or is_concrete(value if isinstance(value, Array) else Array(value)))
            values = np.asarray(value if is_number(value) else tl.to_numpy(value)) if known and value is not None else np.ones(0)
            for wrong in values[~_EXPECTED[name][0](values)] if values.size else ():
                held = f"={value!r}" if is_number(value) else f" holds {wrong.item()!r}"
                raise ValueError(f"{type(self).__name__}: {name}{held}; it must be {_EXPECTED[name][1]}")

    @property
    def batch_shape(self) -> Any:
        """The shape of the parameters, broadcast: one distribution per element."""
        shapes = [(self._ranks.get(name, 0), x.shape) for name, x in vars(self).items() if hasattr(x, "shape")]
        return np.broadcast_shapes(*(tuple(shape[: len(shape) - rank]) for rank, shape in shapes))

    @property
    def event_shape(self) -> Any:
        """The shape of one draw."""
        return tuple(getattr(self, next(iter(self._ranks))).shape[-1:]) if self.event_rank else ()

    # ---- what users call -------------------------------------------------------------------------------------------------------
    @naming
    def sample(self, shape: Shape = (), *, seed: SeedLike = None) -> AnyArray:
        """Draws of shape [*shape, *batch_shape, *event_shape]; with a seed they are the same on every backend."""

        def formula(me: Distribution) -> Array:
            drawn = me._sample((*shape_argument("sample", shape), *me.batch_shape), seed)
            return drawn if me.has_rsample else tl.stop_gradient(drawn)

        return bordered(f"{type(self).__name__}.sample", formula, self, backend=holder(seed._data) if type(seed) is Key else None)

    def log_prob(self, value: Operand, /) -> AnyArray:
        """The logarithm of the density, or of the probability of a discrete value; -inf outside of the support."""
        return self._run("log_prob", value)

    def cdf(self, value: Operand, /) -> AnyArray:
        """P(x <= value) for a draw x."""
        return self._run("cdf", value)

    def icdf(self, q: Operand, /) -> AnyArray:
        """The value below which a draw is with probability `q`; NaN if q is not between 0 and 1."""
        return self._run("icdf", q)

    def entropy(self) -> AnyArray:
        """-E[log_prob(x)], in nats."""
        return self._run("entropy")

    mean = property(lambda self: self._run("mean"))
    variance = property(lambda self: self._run("variance"))
    stddev = property(lambda self: tl.sqrt(self.variance))

    def _run(self, name: str, *values: Any) -> Any:
        def formula(me: Distribution, *x: Array) -> Any:
            result = getattr(me, f"_{name}")(*x)
            return result if x else tl.broadcast_to(result, me.batch_shape + (me.event_shape if name != "entropy" else ()))

        values = tuple([tl.asarray(x) if isinstance(x, (list, tuple)) else x for x in values])
        return bordered(f"{type(self).__name__}.{name}", formula, self, *values)

    # ---- formulas of the standard distribution, which a class gives, as functions or numbers -----------------------------------
    def _missing(self, *values: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no closed form for this; estimate it by an average over draws")

    _log_density: ClassVar[Any] = _missing
    _below = _quantile = _centre = _spread = _information = _kl = _log_density

    def _draw(self, shape: Size, seed: SeedLike) -> Any:
        return self._quantile(uniform(tree.leaves(self)[0], shape, seed))

    def _place(self) -> tuple[Any, Any]:
        """The location and the scale: a draw is loc + scale * a draw of the standard distribution."""
        return getattr(self, "loc", 0.0), getattr(self, "scale", 1.0)

    def _support(self) -> Any:
        """The smallest and the largest value of the standard distribution; None if all numbers are possible."""

    # ---- formulas of the distribution itself -----------------------------------------------------------------------------------
    def _sample(self, shape: Size, seed: SeedLike) -> Any:
        loc, scale = self._place()
        return loc + scale * self._draw(shape, seed) if isinstance(scale, Array) else self._draw(shape, seed)

    def _log_prob(self, x: Array, /) -> Array:
        loc, scale = self._place()
        z, support = (x - loc) / scale, _value(self._support)
        if support is None:
            return self._log_density(z) - _log(scale)
        low, high = support
        outside = (z < low) | (z > high) | (tl.floor(z) < z if self._discrete else False)  # NaN is not, and stays NaN
        inner = low + 1.0 if high == math.inf else (low + high) / 2.0  # a value where gradients are finite
        return tl.where(outside, -math.inf, self._log_density(tl.where(outside, inner, z)) - _log(scale))

    def _cdf(self, x: Array, /) -> Array:
        loc, scale = self._place()
        z, support = (x - loc) / scale, _value(self._support)
        if support is None:
            return self._below(z)
        z, (low, high) = tl.floor(z) if self._discrete else z, support
        found = self._below(tl.maximum(tl.minimum(z, high - 1.0 if self._discrete else high), low))
        return tl.where(z < low, 0.0, tl.where(z >= high, 1.0, found))

    def _icdf(self, q: Array) -> Array:
        loc, scale = self._place()
        return tl.where((q >= 0) & (q <= 1), loc + scale * self._quantile(q), math.nan)

    def _entropy(self) -> Array:
        return _log(self._place()[1]) + _value(self._information)

    def _mean(self) -> Array:
        return self._place()[0] + self._place()[1] * _value(self._centre)

    def _variance(self) -> Array:
        return self._place()[1] ** 2 * _value(self._spread)


install(Distribution, "Distribution")


def _value(formula: Any) -> Any:
    return formula() if callable(formula) else formula


def _log(scale: Any) -> Any:
    return tl.log(scale) if isinstance(scale, Array) else 0.0


def kl(p: Distribution, q: Distribution, /) -> AnyArray:
    """E[p.log_prob(x) - q.log_prob(x)] for draws x of p, in nats: 0 if the two are equal.

    >>> import trellis as tl
    >>> from trellis.distributions import Normal, kl
    >>> kl(Normal(1.0, 1.0), Normal(0.0, 1.0))
    Array(0.5, dtype=float32, backend='numpy', device='cpu')
    """
    if type(p) is not type(q) or not isinstance(p, Distribution) or type(p)._kl is Distribution._kl:
        names = f"{type(p).__name__} and {type(q).__name__}"
        raise NotImplementedError(f"kl: there is no closed form for {names}; average p.log_prob(x) - q.log_prob(x) over x of p")
    return bordered("kl", type(p)._kl, p, q)
