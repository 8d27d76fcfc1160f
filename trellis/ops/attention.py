"""Linear maps, attention, dropout, embeddings and masks. In every mask, True or any number but 0 means: attend.

Sizes are checked here, in the same way on every backend; sizes that a graph does not know are not checked. Dropout draws as all
random functions do: with `seed=` the same numbers on every backend, without it numbers of the framework's own generator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trellis.core.array import Array, marked
from trellis.core.dispatch import call, interpreters
from trellis.core.dtypes import as_dtype
from trellis.core.leaves import unwrap
from trellis.core.shapes import broadcast_shapes
from trellis.core.typing import AnyArray, DeviceLike, DTypeLike, Like, SeedLike
from trellis.ops.arguments import check_axis, integer, one_axis
from trellis.ops.comparison import equal
from trellis.ops.conversion import astype, placed
from trellis.ops.manipulation import expand_dims
from trellis.ops.reduction import max as max_
from trellis.ops.shapes import Sizes, broadcasts, check_linear, differ, fits, listed, optional_shape, shape_of


# ---- linear --------------------------------------------------------------------------------------------------------------------
def linear(x: AnyArray, weight: AnyArray, /, *, bias: AnyArray | None = None) -> AnyArray:
    """x @ weight.T + bias: x [..., in], weight [out, in], bias [out]; the result is [..., out].

    With outer axes, x [*outer, ..., in], weight [*outer, out, in] and bias [*outer, out], each outer element has its own weight.

    >>> import trellis as tl
    >>> tl.linear(tl.asarray([1.0, 2.0]), tl.asarray([[1.0, 1.0], [0.0, 3.0]]), bias=tl.asarray([0.5, 0.0]))
    Array([3.5, 6. ], dtype=float32, backend='numpy', device='cpu')
    """
    given, matrix = interpreters[type(x)].shape_of(x), interpreters[type(weight)].shape_of(weight)
    added = None if bias is None else interpreters[type(bias)].shape_of(bias)
    if len(matrix) != 2 or given[-1:] != matrix[1:] or added not in (None, matrix[:1]):  # it may be wrong
        check_linear("linear", given, matrix, added)
    return call("linear", x, weight, bias)


# ---- dropout -------------------------------------------------------------------------------------------------------------------
def dropout(
    x: AnyArray, prob: float, /, *, scale: bool = True, training: bool = True, seed: SeedLike = None, noise_shape: Any = None,
    dtype: DTypeLike = None,
) -> AnyArray:  # fmt: skip
    """0 with probability `prob`, else x / (1 - prob), for each element; `scale=False` leaves x as it is.

    `noise_shape` broadcasts to the shape of `x`: elements along its axes of size 1 are kept or dropped together.
    The result has `dtype`, or that of `x`.

    >>> import trellis as tl
    >>> tl.dropout(tl.ones(6), 0.5, seed=0)
    Array([2., 2., 0., 0., 2., 0.], dtype=float32, backend='numpy', device='cpu')
    """
    prob = _probability("dropout", "prob", prob)
    x = x if dtype is None else astype(x, dtype, copy=False)
    if not training or prob == 0:
        return marked((x,), x._kind(x._data)) if isinstance(x, Array) else x
    if noise_shape is not None:
        shape, given = shape_of(x), noise_shape
        noise_shape = tuple(n if m is None else m for n, m in zip(shape, given))
        if len(given) != len(shape) or not broadcasts(noise_shape, shape):
            raise ValueError(f"dropout: noise_shape={given!r} does not fit x of shape {shape}; its sizes must be equal or 1")
    return call("dropout", x, prob=prob, scale=bool(scale), noise_shape=noise_shape, seed=seed)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _probability(op: str, name: str, value: Any) -> float:
    if not _is_number(value):
        raise TypeError(f"{op}: {name} must be a number between 0 and 1, got {type(value).__name__}")
    if not 0 <= value <= 1:
        raise ValueError(f"{op}: {name}={value!r}; a probability is between 0 and 1")
    return float(value)


# ---- attention -----------------------------------------------------------------------------------------------------------------
def scaled_dot_product_attention(
    query: AnyArray, key: AnyArray, value: AnyArray, scale: float | None = None, /, *, mask: AnyArray | None = None,
    is_causal: bool = False, dropout_p: float = 0.0, training: bool = False, seed: SeedLike = None,
) -> AnyArray:  # fmt: skip
    """softmax(query @ key.mT * scale) @ value: query [..., q, d], key [..., k, d], value [..., k, dv] give [..., q, dv].

    `scale` defaults to 1 / sqrt(d). `mask` broadcasts to [..., q, k]. With `is_causal` a query attends to the keys up to its own
    position. A query that may attend to no key gives 0. With `training`, weights are dropped with probability `dropout_p`.

    >>> import trellis as tl
    >>> x = tl.asarray([[1.0, 0.0], [0.0, 1.0]])
    >>> tl.scaled_dot_product_attention(x, x, x, is_causal=True)
    Array([[1.        , 0.        ],
           [0.33023846, 0.66976154]], dtype=float32, backend='numpy', device='cpu')
    """
    op = "scaled_dot_product_attention"
    dropout_p = _probability(op, "dropout_p", dropout_p) if training else 0.0
    shape = shape_of(query)
    scores = _check_attention(op, shape, shape_of(key), shape_of(value))
    if mask is not None and not broadcasts(shape_of(mask), scores):
        raise ValueError(f"{op}: mask has shape {shape_of(mask)}; it must broadcast to the scores' shape {scores}, [..., q, k]")
    noise = call("attention_noise", query, key, function=op, sizes=scores, seed=seed) if dropout_p else None
    return call(
        "scaled_dot_product_attention", query, key, value, mask, noise, scale=_scale(op, scale, shape[-1]),
        is_causal=bool(is_causal), dropout_p=dropout_p,
    )  # fmt: skip


def _check_attention(op: str, query: Sizes, key: Sizes, value: Sizes) -> Sizes:
    """The shape of the scores."""
    if len(query) == len(key) > 1 and query[:-2] == key[:-2] and query[-1] == key[-1] and key[:-1] == value[:-1]:
        return (*query[:-1], key[-2])
    given = f"query {query}, key {key}, value {value}"
    if min(len(query), len(key), len(value)) < 2:
        raise ValueError(f"{op}: {given}: each needs two axes or more, [..., length, features]")
    if differ(query[-1], key[-1]):
        raise ValueError(f"{op}: {given}: query has {query[-1]} features and key {key[-1]}; the last axes must be equal")
    if differ(key[-2], value[-2]):
        raise ValueError(f"{op}: {given}: there are {key[-2]} keys and {value[-2]} values; there must be one value for each key")
    try:
        batch = broadcast_shapes(query[:-2], key[:-2], value[:-2])
    except ValueError:
        raise ValueError(f"{op}: {given}: the axes before the last two do not broadcast together") from None
    return (*batch, query[-2], key[-2])


def _scale(op: str, scale: Any, features: Any) -> float:
    if scale is None:
        if features is None:
            raise ValueError(f"{op}: the number of features is unknown in this graph, so scale must be given")
        return 1 / math.sqrt(max(features, 1))
    if not _is_number(scale):
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
    """Attention in `num_heads` parts of the features: query [batch, q, e], key and value [batch, k, e] give [batch, q, e].

    The batch axis may be missing from all three. `key` defaults to `query`, and `value` to `key`.

    Projections: `in_proj_weights` [3 * e, e] for the three at once, or `q_proj_weights` [e, query's features], `k_proj_weights`
    [e, key's features] and `v_proj_weights` [e, value's features]; `in_proj_bias` [3 * e]; `out_proj_weights` [out, e]. Without
    weights there is no projection. Masks: `mask` [q, k], [batch, q, k], [batch * heads, q, k] or [batch, heads, q, k];
    `key_padding_mask` [batch, k]. `return_attention_weights` gives (result, weights): the weights are [batch, q, k], averaged
    over the heads, or [batch, heads, q, k] with `average_attention_weights=False`.

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
    shapes = [optional_shape(x) for x in operands]
    heads = integer(op, "num_heads", num_heads)
    width = _check_projections(op, shapes, heads)
    scores = (*shapes[0][:-2], heads, shapes[0][-2], shapes[1][-2])  # type: ignore[index]
    _check_masks(op, shapes[3], shapes[4], scores)
    noise = call("attention_noise", query, key, function=op, sizes=scores, seed=seed) if dropout_p else None
    return call(
        "multi_head_attention", *operands, noise, scale=_scale(op, scale, None if width is None else width // heads),
        num_heads=heads, dropout_p=dropout_p, is_causal=bool(is_causal),
        return_attention_weights=bool(return_attention_weights), average_attention_weights=bool(average_attention_weights),
    )  # fmt: skip


def _check_projections(op: str, shapes: list[Any], num_heads: int) -> Any:
    """How many features the projected queries have."""
    query, key, value, _, _, packed, *separate, out, in_bias, out_bias = shapes
    inputs = f"query {query}, key {key}, value {value}"
    if not len(query) == len(key) == len(value) or len(query) not in (2, 3):
        raise ValueError(f"{op}: {inputs} must all be [batch, length, features], or [length, features]")
    if any(map(differ, query[:-2], key[:-2])) or any(map(differ, key[:-1], value[:-1])):
        raise ValueError(f"{op}: {inputs}: the batch sizes must be equal, and key and value must have one length")
    given = [s for s in separate if s is not None]
    if given and (packed is not None or len(given) < 3):
        raise ValueError(f"{op}: give in_proj_weights, or all of q_proj_weights, k_proj_weights, v_proj_weights")
    rows = None if query[-1] is None else 3 * query[-1]
    if packed is not None and (len(packed) != 2 or differ(packed[0], rows)):
        raise ValueError(f"{op}: in_proj_weights has shape {packed}; for query {query} it must be [3 * e, e] with e={query[-1]}")
    for name, x, weight in zip(("query", "key", "value"), (query, key, value), separate):
        if weight is not None:
            check_linear(op, x, weight, None, f"{name[0]}_proj_weights", name)
        elif packed is not None:
            check_linear(op, x, packed, None, "in_proj_weights", name)
    widths = [w[0] for w in separate] if given else [s[-1] if packed is None else query[-1] for s in (query, key, value)]
    if differ(widths[0], widths[1]):
        raise ValueError(f"{op}: queries of {widths[0]} and keys of {widths[1]} features do not fit; they must be equal")
    for width in (widths[0], widths[2]):
        if num_heads < 1 or (width is not None and width % num_heads):
            raise ValueError(f"{op}: num_heads={num_heads} does not divide {width} features")
    if in_bias is not None and None not in widths and not fits(in_bias, (sum(widths),)):
        raise ValueError(f"{op}: in_proj_bias has shape {in_bias}; it must be [{sum(widths)}]: query, key and value in turn")
    if out is not None:
        check_linear(op, (widths[2],), out, out_bias, "out_proj_weights", "the attended values")
    return widths[0]


def _check_masks(op: str, mask: Any, padding: Any, scores: Sizes) -> None:
    """`scores` is [batch, heads, q, k], or without batch."""
    *batch, heads, queries, keys = scores
    if padding is not None and not fits(padding, (*batch, keys)):
        raise ValueError(f"{op}: key_padding_mask has shape {padding}; it must be {listed(*batch, keys)}, one element per key")
    if mask is None:
        return
    together = heads if not batch else None if batch[0] is None else batch[0] * heads
    fitting = [(queries, keys), (*batch, queries, keys), (together, queries, keys), tuple(scores)]
    if not any(len(mask) == len(fit) and broadcasts(mask, fit) for fit in fitting):
        shown = ", ".join(dict.fromkeys(listed(*fit) for fit in fitting))
        raise ValueError(f"{op}: a mask of shape {mask} does not broadcast to any of {shown}")


def _check_integers(op: str, name: str, x: AnyArray, fix: str = "cast them with tl.astype") -> None:
    dtype = interpreters[type(x)].dtype_of(x)
    if dtype.kind not in "iu":
        raise TypeError(f"{op}: {name} must be integers, got {dtype}; {fix}")


# ---- embeddings ----------------------------------------------------------------------------------------------------------------
def embedding(
    indices: AnyArray, weight: AnyArray, /, *, padding_idx: int | None = None, max_norm: float | None = None
) -> AnyArray:
    """The rows of `weight` [n, d] at `indices` [...]: [..., d].

    The row `padding_idx` gets no gradient. The result scales rows with a norm above `max_norm` down to it; `weight` does not
    change.

    >>> import trellis as tl
    >>> tl.embedding(tl.asarray([2, 0]), tl.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    Array([[5., 6.],
           [1., 2.]], dtype=float32, backend='numpy', device='cpu')
    """
    _check_integers("embedding", "indices", indices, "the order is embedding(indices, weight)")
    shape = shape_of(weight)
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
    """A new axis of size `num_classes`: 1 at the index, 0 elsewhere. An index that is out of range gives zeros only.

    `dtype` is the default float if none is given.

    >>> import trellis as tl
    >>> tl.one_hot(tl.asarray([2, 0]), 3)
    Array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32, backend='numpy', device='cpu')
    """
    _check_integers("one_hot", "indices", indices)
    classes = integer("one_hot", "num_classes", num_classes, 0)
    position = check_axis("one_hot", one_axis("one_hot", axis), len(shape_of(indices)) + 1)
    return call("one_hot", indices, num_classes=classes, axis=position, dtype=as_dtype(float if dtype is None else dtype))


def rotary_embedding(
    x: AnyArray, /, positions: AnyArray | None = None, *, base: float = 10000.0, interleaved: bool = False,
    dim: int | None = None, scale: float = 1.0,
) -> AnyArray:  # fmt: skip
    """Rotary position embedding of x [..., length, features]: pairs of features turn by angles that grow with the position.

    Pair i turns by position * scale * base**(-2 * i / dim). A pair is a feature of the first half and one of the second half, or
    with `interleaved` two neighbours. `positions` [..., length] defaults to 0, 1, 2, ... and broadcasts over the axes before it.
    `dim` is the number of features that turn; by default all do.

    >>> import trellis as tl
    >>> tl.round(tl.rotary_embedding(tl.ones((2, 2))) * 100)
    Array([[100., 100.],
           [-30., 138.]], dtype=float32, backend='numpy', device='cpu')
    """
    shape = shape_of(x)
    if len(shape) < 2 or shape[-1] is None:
        raise ValueError(f"rotary_embedding: x has shape {shape}; it must be [..., length, features]")
    turned = shape[-1] if dim is None else integer("rotary_embedding", "dim", dim)
    if turned % 2 or not 0 <= turned <= shape[-1]:
        raise ValueError(f"rotary_embedding: dim={turned} must be even, and at most the {shape[-1]} features of x")
    given = optional_shape(positions)
    if given is not None and not broadcasts(given, shape[:-1]):
        raise ValueError(f"rotary_embedding: positions has shape {given}; it must broadcast to {listed(*shape[:-1])}")
    return call("rotary_embedding", x, positions, base=float(base), interleaved=bool(interleaved), dim=turned, scale=float(scale))


# ---- masks ---------------------------------------------------------------------------------------------------------------------
def causal_mask(
    queries: int, keys: int | None = None, /, *, offset: int = 0, window: int | None = None,
    device: DeviceLike = None, backend: str | None = None, like: Like = None,
) -> AnyArray:  # fmt: skip
    """True where query i may attend to key j: j <= i + offset, and with `window` also j > i + offset - window.

    If the first keys are those of earlier steps, `offset` is keys - queries.

    >>> import trellis as tl
    >>> tl.causal_mask(3)
    Array([[ True, False, False],
           [ True,  True, False],
           [ True,  True,  True]], dtype=bool, backend='numpy', device='cpu')
    """
    op = "causal_mask"
    interpreter, device, kind, _ = placed(op, backend, device, like)
    shape = integer(op, "queries", queries, 0), integer(op, "keys", queries if keys is None else keys, 0)
    ones = interpreter.full(shape=shape, fill_value=True, dtype=as_dtype(bool), device=device)
    seen = interpreter.tril(ones, k=integer(op, "offset", offset))
    return kind(seen if window is None else interpreter.triu(seen, k=offset - integer(op, "window", window, 1) + 1))


def padding_mask(lengths: AnyArray, size: int | None = None, /) -> AnyArray:
    """True at the first `lengths` [...] of `size` places: [..., size]. `size` defaults to the largest length; a compiled function
    has to give it.

    >>> import trellis as tl
    >>> tl.padding_mask(tl.asarray([1, 3]))
    Array([[ True, False, False],
           [ True,  True,  True]], dtype=bool, backend='numpy', device='cpu')
    """
    _check_integers("padding_mask", "lengths", lengths)
    if size is None:
        native = unwrap(lengths)
        interpreter = interpreters[type(native)]
        if interpreter.is_traced(native):
            raise ValueError("padding_mask: inside a compiled function the shape must be known; give size")
        size = 0 if 0 in shape_of(lengths) else int(interpreter.item(max_(native)))
    return call("padding_mask", lengths, size=integer("padding_mask", "size", size, 0))


def segment_mask(queries: AnyArray, keys: AnyArray | None = None, /) -> AnyArray:
    """queries == keys for segment numbers: queries [..., q] and keys [..., k] give [..., q, k]. `keys` defaults to `queries`.

    The mask separates sequences that are packed into one.

    >>> import trellis as tl
    >>> tl.segment_mask(tl.asarray([0, 0, 1]))
    Array([[ True,  True, False],
           [ True,  True, False],
           [False, False,  True]], dtype=bool, backend='numpy', device='cpu')
    """
    return equal(expand_dims(queries, -1), expand_dims(queries if keys is None else keys, -2))
