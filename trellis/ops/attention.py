"""Linear maps, attention, dropout, embeddings and masks. In every mask True, or any number but 0, means: attend.

Sizes are checked here, the same on every backend; a size that a graph does not know is not. Dropout draws as all random functions
do: with `seed=` the same on every backend, without it from the framework's own generator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.array import Array
from trellis.container import Container, over_leaves
from trellis.dispatch import call, interpreters, target
from trellis.dtypes import as_dtype, float32
from trellis.keys import fold_in
from trellis.ops.arguments import check_axis, integer, one_axis
from trellis.ops.comparison import equal, greater_equal
from trellis.ops.elementwise import multiply
from trellis.ops.indexing import getitem
from trellis.ops.manipulation import expand_dims, moveaxis
from trellis.ops.random import SeedLike
from trellis.ops.reduction import max as max_
from trellis.ops.searching import where
from trellis.sampling import Draw, NativeKey
from trellis.typing import AnyArray, DeviceLike, DTypeLike

__all__ = [
    "causal_mask", "dropout", "embedding", "linear", "multi_head_attention", "one_hot", "padding_mask", "rotary_embedding",
    "scaled_dot_product_attention", "segment_mask",
]  # fmt: skip

Sizes = tuple[Any, ...]  # None where a graph does not know a size


# ---- linear --------------------------------------------------------------------------------------------------------------------
def linear(x: AnyArray, weight: AnyArray, /, *, bias: AnyArray | None = None) -> AnyArray:
    """x @ weight.T + bias: x [..., in], weight [out, in], bias [out]; the result is [..., out].

    With outer axes, x [*outer, ..., in] and weight [*outer, out, in], each has a weight of its own (and a bias [*outer, out]).

    >>> import trellis as tl
    >>> tl.linear(tl.asarray([1.0, 2.0]), tl.asarray([[1.0, 1.0], [0.0, 3.0]]), bias=tl.asarray([0.5, 0.0]))
    Array([3.5, 6. ], dtype=float32, backend='numpy', device='cpu')
    """
    if _has_container(x, weight, bias):
        return over_leaves("linear", lambda a, w, b: linear(a, w, bias=b), x, weight, bias)
    given, matrix, added = _shape(x), _shape(weight), None if bias is None else _shape(bias)
    if len(matrix) != 2 or given[-1:] != matrix[1:] or added not in (None, matrix[:1]):  # it may be wrong
        _check_linear("linear", given, matrix, added)
    return call("linear", x, weight, bias)


def _check_linear(op: str, x: Sizes, weight: Sizes, bias: Sizes | None, name: str = "weight", given: str = "x") -> None:
    if len(weight) < 2:
        raise ValueError(f"{op}: {name} has shape {weight}; it must be [out, in], or have outer axes before these")
    outer = len(weight) - 2
    if len(x) <= outer or _differ(x[-1], weight[-1]) or any(map(_differ, x[:outer], weight[:outer])):
        fitting = f"[{', '.join([*map(str, weight[:outer]), '...', str(weight[-1])])}]"
        raise ValueError(f"{op}: {given} of shape {x} does not fit {name} of shape {weight}; {given} must be {fitting}")
    if bias is not None and not any(_equal(bias, fit) for fit in ((weight[-2],), (*weight[:outer], weight[-2]))):
        raise ValueError(f"{op}: a bias of shape {bias} does not fit {name} of shape {weight}; it must be [{weight[-2]}]")


# ---- dropout -------------------------------------------------------------------------------------------------------------------
def dropout(
    x: AnyArray, prob: float, /, *, scale: bool = True, training: bool = True, seed: SeedLike = None,
    noise_shape: Any = None,
) -> AnyArray:  # fmt: skip
    """`x` with each element set to 0 with probability `prob`, the others divided by 1 - prob (not with scale=False).

    `noise_shape` broadcasts to the shape of `x`: along its axes of size 1 elements are kept or dropped together.

    >>> import trellis as tl
    >>> tl.dropout(tl.ones(6), 0.5, seed=0)
    Array([2., 2., 0., 0., 2., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    prob = _probability("dropout", "prob", prob)
    if not training or prob == 0:
        return x
    if _has_container(x):
        seeds = _seeds(seed)
        return over_leaves("dropout", lambda a: dropout(a, prob, scale=scale, seed=next(seeds), noise_shape=noise_shape), x)
    shape = _shape(x)
    sizes = shape if noise_shape is None else tuple(n if m is None else m for n, m in zip(shape, noise_shape))
    if noise_shape is not None and (len(noise_shape) != len(shape) or not _broadcasts(sizes, shape)):
        raise ValueError(f"dropout: noise_shape={noise_shape!r} does not fit x of shape {shape}; its sizes must be equal or 1")
    if isinstance(seed, NativeKey) and noise_shape is None and scale and isinstance(x, Array):
        return Array(seed.generator.dropout(x._data, prob))
    noise = _noise("dropout", x, sizes, lambda: (x,), seed)
    return where(greater_equal(noise, prob), multiply(x, 1 / (1 - prob)) if scale and prob < 1 else x, 0)


def _probability(op: str, name: str, value: Any) -> float:
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool):
        raise TypeError(f"{op}: {name} must be a number between 0 and 1, got {type(value).__name__}")
    if not 0 <= value <= 1:
        raise ValueError(f"{op}: {name}={value!r}; a probability is between 0 and 1")
    return float(value)


def _noise(op: str, like: Any, sizes: Sizes, shaped: Callable[[], tuple[Any, ...]], seed: SeedLike) -> Any:
    """Uniform numbers of a shape, beside `like`. Where a size is unknown it is that to which the arrays of `shaped` broadcast."""
    draw = Draw(op, {"x": like}, None, None, None, seed, event=None)
    if None in sizes:
        natives = [x._data if isinstance(x, Array) else x for x in shaped()]
        dynamic = draw.interpreter.dynamic_shape(*natives, event=0)
        sizes = tuple(m if n is None else n for n, m in zip(sizes, dynamic))
    return draw.finish(draw.source.unit(sizes, float32))


def _seeds(seed: SeedLike) -> Any:
    """A seed for each leaf of a Container."""
    return (None if seed is None else fold_in(seed, i) for i in itertools.count())


# ---- attention -----------------------------------------------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: AnyArray, key: AnyArray, value: AnyArray, scale: float | None = None, /, *, mask: AnyArray | None = None,
    is_causal: bool = False, dropout_p: float = 0.0, training: bool = False, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """softmax(query @ key.mT * scale) @ value: query [..., q, d], key [..., k, d], value [..., k, dv] give [..., q, dv].

    `scale` is 1 / sqrt(d) if it is None. `mask` broadcasts to [..., q, k]; with `is_causal` a query sees the keys up to its own
    position. A query that may attend to nothing gets 0. With `training` weights are dropped with probability `dropout_p`.

    >>> import trellis as tl
    >>> x = tl.asarray([[1.0, 0.0], [0.0, 1.0]])
    >>> tl.scaled_dot_product_attention(x, x, x, is_causal=True)
    Array([[1.        , 0.        ],
           [0.33023846, 0.66976154]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "scaled_dot_product_attention"
    dropout_p = _probability(op, "dropout_p", dropout_p) if training else 0.0
    if _has_container(query, key, value, mask):
        seeds = _seeds(seed)
        options: dict[str, Any] = {"is_causal": is_causal, "dropout_p": dropout_p, "training": training}

        def each(q: Any, k: Any, v: Any, m: Any) -> Any:
            return scaled_dot_product_attention(q, k, v, scale, mask=m, seed=next(seeds), **options)

        return over_leaves(op, each, query, key, value, mask)
    scores = _check_attention(op, _shape(query), _shape(key), _shape(value))
    if mask is not None and not _broadcasts(_shape(mask), scores):
        raise ValueError(f"{op}: a mask of shape {_shape(mask)} does not broadcast to the scores' shape {scores}, [..., q, k]")
    noise = None
    if dropout_p:

        def shaped() -> tuple[Any, ...]:
            return getitem(query, (..., slice(0, 1))), moveaxis(getitem(key, (..., slice(0, 1))), -1, -2)

        noise = _noise(op, query, scores, shaped, seed)
    scale = _scale(op, scale, _shape(query)[-1])
    return call(op, query, key, value, mask, noise, scale=scale, is_causal=bool(is_causal), dropout_p=dropout_p)


def _check_attention(op: str, query: Sizes, key: Sizes, value: Sizes) -> Sizes:
    """The shape of the scores."""
    fits = len(query) == len(key) > 1 and query[:-2] == key[:-2] and query[-1] == key[-1] and key[:-1] == value[:-1]
    if fits:
        return (*query[:-1], key[-2])
    given = f"query {query}, key {key}, value {value}"
    if min(len(query), len(key), len(value)) < 2:
        raise ValueError(f"{op}: {given}: each needs two axes or more, [..., length, features]")
    if _differ(query[-1], key[-1]):
        raise ValueError(f"{op}: {given}: query has {query[-1]} features and key {key[-1]}; the last axes must be equal")
    if _differ(key[-2], value[-2]):
        raise ValueError(f"{op}: {given}: there are {key[-2]} keys and {value[-2]} values; there must be one value for each key")
    try:
        batch = _broadcast(query[:-2], key[:-2], value[:-2])
    except ValueError:
        raise ValueError(f"{op}: {given}: the axes before the last two do not broadcast together") from None
    return (*batch, query[-2], key[-2])


def _scale(op: str, scale: Any, features: Any) -> float:
    if scale is None:
        if features is None:
            raise ValueError(f"{op}: the number of features is unknown in this graph, so scale must be given")
        return 1 / math.sqrt(max(features, 1))
    if not isinstance(scale, (int, float, np.number)) or isinstance(scale, bool):
        raise TypeError(f"{op}: scale must be a number or None, got {type(scale).__name__}; multiply query by an array instead")
    return float(scale)


def multi_head_attention(
    query: AnyArray, /, *, key: AnyArray | None = None, value: AnyArray | None = None, num_heads: int = 8,
    scale: float | None = None, mask: AnyArray | None = None, key_padding_mask: AnyArray | None = None,
    in_proj_weights: AnyArray | None = None, q_proj_weights: AnyArray | None = None, k_proj_weights: AnyArray | None = None,
    v_proj_weights: AnyArray | None = None, out_proj_weights: AnyArray | None = None, in_proj_bias: AnyArray | None = None,
    out_proj_bias: AnyArray | None = None, is_causal: bool = False, dropout_p: float = 0.0, training: bool = False,
    return_attention_weights: bool = False, average_attention_weights: bool = True, seed: SeedLike = None,
) -> Any:  # fmt: skip
    """Attention in `num_heads` parts of the features: query [batch, q, e], key [batch, k, e], value [batch, k, e], or all without
    batch. `key` is `query`, and `value` is `key`, if not given.

    Projections: `in_proj_weights` [3 * e, e] for the three at once, or `q_proj_weights` [e, query's features], `k_proj_weights`
    [e, key's features], `v_proj_weights` [e, value's features]; `in_proj_bias` [3 * e]; `out_proj_weights` [out, e]. Without
    weights there is no projection. Masks: `mask` [q, k], [batch, q, k], [batch * heads, q, k] or [batch, heads, q, k];
    `key_padding_mask` [batch, k]. `return_attention_weights` gives (result, weights): weights [batch, q, k], averaged over the
    heads, or [batch, heads, q, k].

    >>> import trellis as tl
    >>> x = tl.random_normal(shape=(2, 5, 8), seed=0)
    >>> tl.multi_head_attention(x, num_heads=4, in_proj_weights=tl.ones((24, 8)), out_proj_weights=tl.ones((8, 8))).shape
    (2, 5, 8)
    """
    op = "multi_head_attention"
    dropout_p = _probability(op, "dropout_p", dropout_p) if training else 0.0
    key = query if key is None else key
    operands = (
        query, key, key if value is None else value, mask, key_padding_mask, in_proj_weights, q_proj_weights, k_proj_weights,
        v_proj_weights, out_proj_weights, in_proj_bias, out_proj_bias,
    )  # fmt: skip
    options: dict[str, Any] = {
        "num_heads": integer(op, "num_heads", num_heads), "is_causal": bool(is_causal), "dropout_p": dropout_p,
        "return_attention_weights": bool(return_attention_weights), "average_attention_weights": bool(average_attention_weights),
    }  # fmt: skip
    if not _has_container(*operands):
        return _attend(*operands, scale=scale, seed=seed, **options)
    seeds = _seeds(seed)
    return over_leaves(op, lambda *row: _attend(*row, scale=scale, seed=next(seeds), **options), *operands)


def _attend(*operands: Any, scale: Any, seed: Any, num_heads: int, dropout_p: float, **options: bool) -> Any:
    op, (query, key) = "multi_head_attention", operands[:2]
    shapes = [None if x is None else _shape(x) for x in operands]
    width = _check_projections(op, shapes, num_heads)
    scores = (*_shape(query)[:-2], num_heads, _shape(query)[-2], _shape(key)[-2])
    _check_masks(op, shapes[3], shapes[4], scores)
    noise = None
    if dropout_p:

        def shaped() -> tuple[Any, ...]:
            first, second = getitem(query, (..., slice(0, 1))), moveaxis(getitem(key, (..., slice(0, 1))), -1, -2)
            return expand_dims(first, -3), expand_dims(second, -3)

        noise = _noise(op, query, scores, shaped, seed)
    scale = _scale(op, scale, None if width is None else width // num_heads)
    return call(
        "multi_head_attention", *operands, noise, scale=scale, num_heads=num_heads, dropout_p=dropout_p,
        is_causal=options["is_causal"], return_attention_weights=options["return_attention_weights"],
        average_attention_weights=options["average_attention_weights"],
    )  # fmt: skip


def _check_projections(op: str, shapes: list[Any], num_heads: int) -> Any:
    """How many features the projected queries have."""
    query, key, value, _, _, packed, *separate, out, in_bias, out_bias = shapes
    if not len(query) == len(key) == len(value) or len(query) not in (2, 3):
        raise ValueError(
            f"{op}: query {query}, key {key}, value {value} must all be [batch, length, features], or [length, features]"
        )
    if any(map(_differ, query[:-2], key[:-2])) or any(map(_differ, key[:-1], value[:-1])):
        raise ValueError(
            f"{op}: query {query}, key {key}, value {value}: batch sizes, and the lengths of key and value, must be equal"
        )
    names, given = ("q_proj_weights", "k_proj_weights", "v_proj_weights"), [s for s in separate if s is not None]
    if given and (packed is not None or len(given) < 3):
        raise ValueError(f"{op}: give in_proj_weights, or all of {', '.join(names)}")
    if packed is not None:
        if len(packed) != 2 or _differ(packed[0], 3 * query[-1] if query[-1] is not None else None):
            raise ValueError(
                f"{op}: in_proj_weights has shape {packed}; for query {query} it must be [3 * e, e] with e={query[-1]}"
            )
        for name, x in zip(("query", "key", "value"), (query, key, value)):
            _check_linear(op, x, packed, None, "in_proj_weights", name)
    for name, x, weight in zip(names, (query, key, value), separate):
        if weight is not None:
            _check_linear(op, x, weight, None, name, name[0] + ["uery", "key", "value"]["qkv".index(name[0])].lstrip("kv"))
    widths = [w[0] for w in separate] if given else [s[-1] if packed is None else query[-1] for s in (query, key, value)]
    if _differ(widths[0], widths[1]):
        raise ValueError(f"{op}: queries of {widths[0]} and keys of {widths[1]} features do not fit; they must be equal")
    for width in (widths[0], widths[2]):
        if num_heads < 1 or (width is not None and width % num_heads):
            raise ValueError(f"{op}: num_heads={num_heads} does not divide {width} features")
    if in_bias is not None and None not in widths and not _equal(in_bias, (sum(widths),)):
        raise ValueError(f"{op}: in_proj_bias has shape {in_bias}; it must be [{sum(widths)}]: of query, key and value in turn")
    if out is not None:
        _check_linear(op, (widths[2],), out, out_bias, "out_proj_weights", "the attended values")
    return widths[0]


def _check_masks(op: str, mask: Any, padding: Any, scores: Sizes) -> None:
    """`scores` is [batch, heads, q, k], or without batch."""
    *batch, heads, queries, keys = scores
    if padding is not None and not _equal(padding, (*batch, keys)):
        raise ValueError(f"{op}: key_padding_mask has shape {padding}; it must be {_listed(*batch, keys)}: one for each key")
    if mask is None:
        return
    together = heads if not batch else None if batch[0] is None else batch[0] * heads
    fitting = [(queries, keys), (*batch, queries, keys), (together, queries, keys), tuple(scores)]
    if not any(len(mask) == len(fit) and _broadcasts(mask, fit) for fit in fitting):
        shown = ", ".join(dict.fromkeys(_listed(*fit) for fit in fitting))
        raise ValueError(f"{op}: a mask of shape {mask} does not broadcast to any of {shown}")


# ---- embeddings ----------------------------------------------------------------------------------------------------------------
def embedding(
    indices: AnyArray, weight: AnyArray, /, *, padding_idx: int | None = None, max_norm: float | None = None
) -> AnyArray:
    """The rows of `weight` [n, d] at `indices` [...]: [..., d].

    The row `padding_idx` gets no gradient. Rows whose norm is above `max_norm` are scaled down to it in the result; `weight`
    stays as it is.

    >>> import trellis as tl
    >>> tl.embedding(tl.asarray([2, 0]), tl.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    Array([[5., 6.],
           [1., 2.]], dtype=float32, backend='numpy', device='cpu')
    """
    if _has_container(indices, weight):
        options: dict[str, Any] = {"padding_idx": padding_idx, "max_norm": max_norm}
        return over_leaves("embedding", lambda i, w: embedding(i, w, **options), indices, weight)
    shape, dtype = _shape(weight), interpreters[type(indices)].dtype_of(indices)
    if dtype.kind not in "iu":
        raise TypeError(f"embedding: indices must be integers, got {dtype}; the order is embedding(indices, weight)")
    if len(shape) != 2:
        raise ValueError(f"embedding: weight has shape {shape}; it must be [number of rows, features]")
    if padding_idx is not None:
        row = integer("embedding", "padding_idx", padding_idx)
        if shape[0] is not None and not -shape[0] <= row < shape[0]:
            raise ValueError(f"embedding: padding_idx={padding_idx} is out of range for {shape[0]} rows")
        padding_idx = row + shape[0] if row < 0 and shape[0] is not None else row
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"embedding: max_norm={max_norm!r} must be above 0")
    return call("embedding", indices, weight, padding_idx=padding_idx, max_norm=None if max_norm is None else float(max_norm))


def one_hot(indices: AnyArray, num_classes: int, /, *, axis: int = -1, dtype: DTypeLike = None) -> AnyArray:
    """A new axis of `num_classes`, 1 at the index and 0 elsewhere; nothing but 0 for an index that is out of range.

    The dtype is float32 if none is given.

    >>> import trellis as tl
    >>> tl.one_hot(tl.asarray([2, 0]), 3)
    Array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32, backend='numpy', device='cpu')
    """
    if _has_container(indices):
        return over_leaves("one_hot", lambda i: one_hot(i, num_classes, axis=axis, dtype=dtype), indices)
    given = interpreters[type(indices)].dtype_of(indices)
    if given.kind not in "iu":
        raise TypeError(f"one_hot: indices must be integers, got {given}; cast them with tl.astype")
    if integer("one_hot", "num_classes", num_classes) < 0:
        raise ValueError(f"one_hot: num_classes={num_classes} must not be negative")
    position = check_axis("one_hot", one_axis("one_hot", axis), len(_shape(indices)) + 1)
    wanted = float32 if dtype is None else as_dtype(dtype)
    return call("one_hot", indices, num_classes=int(num_classes), axis=position, dtype=wanted)


def rotary_embedding(
    x: AnyArray, /, positions: AnyArray | None = None, *, base: float = 10000.0, interleaved: bool = False,
    dim: int | None = None, scale: float = 1.0,
) -> AnyArray:  # fmt: skip
    """Rotary position embedding of x [..., length, features]: pairs of features are turned by angles that grow with the position.

    Pair i turns by position * scale * base**(-2i / dim). A pair is a feature of the first half and one of the second, or with
    `interleaved` two neighbours. `positions` [..., length] is 0, 1, 2, ... if not given; it broadcasts over the axes before it.
    Only the first `dim` features are turned, if that is given.

    >>> import trellis as tl
    >>> tl.round(tl.rotary_embedding(tl.ones((2, 2))) * 100)
    Array([[100., 100.],
           [-30., 138.]], dtype=float32, backend='numpy', device='cpu')
    """
    if _has_container(x, positions):
        options: dict[str, Any] = {"base": base, "interleaved": interleaved, "dim": dim, "scale": scale}
        return over_leaves("rotary_embedding", lambda a, p: rotary_embedding(a, p, **options), x, positions)
    shape = _shape(x)
    if len(shape) < 2 or shape[-1] is None:
        raise ValueError(f"rotary_embedding: x has shape {shape}; it must be [..., length, features]")
    turned = shape[-1] if dim is None else integer("rotary_embedding", "dim", dim)
    if turned % 2 or not 0 <= turned <= shape[-1]:
        raise ValueError(
            f"rotary_embedding: {turned} of {shape[-1]} features cannot be turned in pairs; dim must be even, at most that"
        )
    if positions is not None and not _broadcasts(_shape(positions), shape[:-1]):
        raise ValueError(
            f"rotary_embedding: positions of shape {_shape(positions)} do not broadcast to {_listed(*shape[:-1])}, as x has it"
        )
    base, scale = float(base), float(scale)
    return call("rotary_embedding", x, positions, base=base, interleaved=bool(interleaved), dim=turned, scale=scale)


# ---- masks ---------------------------------------------------------------------------------------------------------------------
def causal_mask(
    queries: int, keys: int | None = None, /, *, offset: int = 0, window: int | None = None,
    device: DeviceLike = None, backend: str | None = None,
) -> AnyArray:  # fmt: skip
    """True where query i may attend to key j: j <= i + offset; with `window`, only to the last `window` of these.

    With keys of earlier steps before those of the queries, `offset` is keys - queries.

    >>> import trellis as tl
    >>> tl.causal_mask(3)
    Array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]], dtype=bool, backend='numpy', device='cpu')
    """
    keys = queries if keys is None else keys
    for name, value in (("queries", queries), ("keys", keys)):
        if integer("causal_mask", name, value) < 0:
            raise ValueError(f"causal_mask: {name}={value} must not be negative")
    if window is not None and integer("causal_mask", "window", window) < 1:
        raise ValueError(f"causal_mask: window={window} must be 1 or more")
    interpreter = target(backend)
    ones = interpreter.full(shape=(queries, keys), fill_value=True, dtype=as_dtype(bool), device=device)
    seen = interpreter.tril(ones, k=integer("causal_mask", "offset", offset))
    return Array(seen if window is None else interpreter.triu(seen, k=offset - window + 1))


def padding_mask(lengths: AnyArray, size: int | None = None, /) -> AnyArray:
    """True at the first `lengths` [...] of `size` places: [..., size]. Without `size` the longest decides, which is not compiled.

    >>> import trellis as tl
    >>> tl.padding_mask(tl.asarray([1, 3]))
    Array([[ True, False, False],
           [ True,  True,  True]], dtype=bool, backend='numpy', device='cpu')
    """
    if _has_container(lengths):
        return over_leaves("padding_mask", lambda n: padding_mask(n, size), lengths)
    interpreter = interpreters[type(lengths)]
    if interpreter.dtype_of(lengths).kind not in "iu":
        raise TypeError(f"padding_mask: lengths must be integers, got {interpreter.dtype_of(lengths)}")
    if size is None:
        native = lengths._data if isinstance(lengths, Array) else lengths
        if interpreters[type(native)].is_traced(native):
            raise ValueError("padding_mask: inside a compiled function the shape must be known; give size")
        size = 0 if 0 in _shape(lengths) else int(interpreters[type(native)].item(max_(native)))
    if integer("padding_mask", "size", size) < 0:
        raise ValueError(f"padding_mask: size={size} must not be negative")
    return call("padding_mask", lengths, size=int(size))


def segment_mask(queries: AnyArray, keys: AnyArray | None = None, /) -> AnyArray:
    """True where query and key are of the same segment: queries [..., q] and keys [..., k] of segment numbers give [..., q, k].

    For sequences that are packed one behind the other; `keys` is `queries` if not given.

    >>> import trellis as tl
    >>> tl.segment_mask(tl.asarray([0, 0, 1]))
    Array([[ True,  True, False],
           [ True,  True, False],
           [False, False,  True]], dtype=bool, backend='numpy', device='cpu')
    """
    return equal(expand_dims(queries, -1), expand_dims(queries if keys is None else keys, -2))


# ---- sizes ---------------------------------------------------------------------------------------------------------------------
def _has_container(*operands: Any) -> bool:
    return any(isinstance(x, Container) for x in operands)


def _shape(x: Any) -> Sizes:
    return interpreters[type(x)].shape_of(x)


def _differ(a: Any, b: Any) -> bool:
    """Whether two sizes are known and not equal."""
    return a != b and a is not None and b is not None


def _equal(a: Sizes, b: Sizes) -> bool:
    return len(a) == len(b) and not any(map(_differ, a, b))


def _broadcasts(shape: Sizes, to: Sizes) -> bool:
    return len(shape) <= len(to) and not any(n != 1 and _differ(n, m) for n, m in zip(reversed(shape), reversed(to)))


def _broadcast(*shapes: Sizes) -> Sizes:
    """The shape that several broadcast to. ValueError if they do not."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    if not any(None in s for s in shapes):
        return np.broadcast_shapes(*shapes)
    ndim = max(map(len, shapes))
    columns = zip(*((1,) * (ndim - len(s)) + tuple(s) for s in shapes))
    return tuple(next(iter(np.broadcast_shapes(*((n,) for n in c if n is not None)))) if _known(c) else None for c in columns)


def _known(sizes: Sizes) -> bool:
    """Whether unknown sizes among these do not matter: another decides."""
    return None not in sizes or any(n not in (1, None) for n in sizes)


def _listed(*sizes: Any) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in sizes)}]"
