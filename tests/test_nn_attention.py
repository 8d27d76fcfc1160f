"""Linear maps, dropout, attention, embeddings and masks beyond the rows of the matrix: drawn shapes, dtypes, nests, mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from against_torch import agree
from helpers import bfloat16, check, compiled, make, to_numpy
from hypothesis import given, settings, strategies as st

import trellis as tl

_rng = np.random.default_rng(8)
attend = tl.scaled_dot_product_attention


def _normal(*shape: int, dtype: Any = np.float64) -> Any:
    return _rng.normal(size=shape).astype(dtype)


def _tensors(*arrays: Any) -> list[Any]:
    return [torch.tensor(a) for a in arrays]


# ---- drawn shapes and options --------------------------------------------------------------------------------------------------
@settings(max_examples=8)
@given(st.data())
def test_attention_of_any_shape(backend: str, data: st.DataObject) -> None:
    """Batches that broadcast, lengths from 1, any mask, causal or not, against the formula."""
    draw = data.draw
    lead = draw(st.lists(st.integers(1, 3), max_size=2))
    q, k, d, dv = (draw(st.integers(1, 5)) for _ in range(4))
    causal, masked = draw(st.booleans()), draw(st.booleans())
    arrays = [_normal(*draw(_narrowed(lead)), *s) for s in ((q, d), (k, d), (k, dv))]
    batch = np.broadcast_shapes(*(a.shape[:-2] for a in arrays))
    mask = _rng.random((*draw(_narrowed(batch)), *draw(_narrowed((q, k), whole=True)))) > 0.4 if masked else None
    given_mask = None if mask is None else make(backend, mask)

    def formula(query: Any, key: Any, value: Any) -> Any:
        scores = (query @ key.mT / math.sqrt(d)).expand(*batch, q, k)
        seen = torch.ones(scores.shape, dtype=torch.bool) if mask is None else torch.tensor(mask).expand(scores.shape)
        seen = seen.tril() if causal else seen
        return torch.where(seen, torch.softmax(scores.masked_fill(~seen, -1e30), -1), 0.0) @ value

    agree(backend, lambda *a: attend(*a, mask=given_mask, is_causal=causal), formula, *arrays)


def _narrowed(shape: Any, whole: bool = False) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes that broadcast to this one, with fewer axes too."""
    sizes = st.tuples(*(st.sampled_from((1, n)) for n in shape))
    return sizes if whole else st.tuples(sizes, st.integers(0, len(tuple(shape)))).map(lambda pair: pair[0][pair[1] :])


@settings(max_examples=8)
@given(st.data())
def test_linear_of_any_shape(backend: str, data: st.DataObject) -> None:
    lead = data.draw(st.lists(st.integers(0, 3), max_size=3))
    inside, out = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    x, weight, bias = _normal(*lead, inside), _normal(out, inside), _normal(out)
    agree(backend, lambda x, w, b: tl.linear(x, w, bias=b), F.linear, x, weight, bias)


@settings(max_examples=8)
@given(st.data())
def test_embedding_of_any_shape(backend: str, data: st.DataObject) -> None:
    padding = data.draw(st.none() | st.integers(0, 4))
    _check_embedding(backend, _rng.integers(0, 5, data.draw(st.lists(st.integers(0, 3), max_size=3))), padding)


@pytest.mark.parametrize("padding", [None, 0, 4, -1])
def test_embedding_with_a_row_of_padding(backend: str, padding: int | None) -> None:
    _check_embedding(backend, np.array([[4, 0, 4], [0, 2, 2]]), padding)


def _check_embedding(backend: str, indices: Any, padding: int | None) -> None:
    ids = make(backend, indices)
    agree(
        backend, lambda w: tl.embedding(ids, w, padding_idx=padding),
        lambda w: F.embedding(torch.tensor(indices), w, padding_idx=padding), _normal(5, 3),
    )  # fmt: skip


def test_embedding_norms(backend: str) -> None:
    """max_norm: torch's values; the gradient is that of the scaling, as TensorFlow has it, and finite at rows of zeros."""
    weight, indices = np.concatenate([_normal(4, 3), np.zeros((1, 3))]), np.array([[0, 1], [4, 1]])
    ids = make(backend, indices)

    def formula(w: Any) -> Any:
        rows = w[torch.tensor(indices)]
        norms = (rows**2).sum(-1, keepdim=True)
        return rows * torch.where(norms > 0.25, 0.5 / torch.where(norms > 0.25, norms, 1.0).sqrt(), 1.0)

    agree(backend, lambda w: tl.embedding(ids, w, max_norm=0.5), formula, weight)
    theirs = F.embedding(torch.tensor(indices), torch.tensor(weight), max_norm=0.5)
    check(tl.embedding(ids, make(backend, weight), max_norm=0.5), theirs.numpy(), tolerance=1e-6)
    negative = make(backend, np.array([-1, -5]))
    check(tl.embedding(negative, make(backend, weight)), weight[[-1, -5]])


# ---- rotary embeddings, one_hot, masks -----------------------------------------------------------------------------------------
def _rotated(x: Any, positions: Any, interleaved: bool, base: float = 10000.0) -> Any:
    """As complex numbers: each pair times exp(i * angle)."""
    half = x.shape[-1] // 2
    angles = positions[..., None] * base ** (-np.arange(half) / half)
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = (first + 1j * second) * np.exp(1j * angles)
    if interleaved:
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape)
    return np.concatenate([turned.real, turned.imag], -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding(backend: str, interleaved: bool) -> None:
    x, positions = _normal(2, 3, 7, 8), np.arange(7)
    given_x = make(backend, x)
    check(tl.rotary_embedding(given_x, interleaved=interleaved), _rotated(x, positions, interleaved), tolerance=1e-12)
    own = _rng.integers(0, 50, (2, 1, 7))
    found = tl.rotary_embedding(given_x, make(backend, own), interleaved=interleaved, base=500.0)
    check(found, _rotated(x, own, interleaved, 500.0), tolerance=1e-12)
    part = tl.rotary_embedding(given_x, interleaved=interleaved, dim=4, scale=0.5)
    check(part, np.concatenate([_rotated(x[..., :4], positions / 2, interleaved), x[..., 4:]], -1), tolerance=1e-12)
    same = compiled(backend, lambda x: tl.rotary_embedding(x, interleaved=interleaved))(given_x)
    check(same, _rotated(x, positions, interleaved), tolerance=1e-12)
    upstream = make(backend, _normal(2, 3, 7, 8))
    gradient = tl.grad(lambda x: tl.sum(tl.rotary_embedding(x, interleaved=interleaved) * upstream))(given_x)
    check(gradient, _rotated(to_numpy(upstream), -positions, interleaved), tolerance=1e-12)  # the inverse is the transpose
    # What attention sees is the distance of the positions alone.
    q, k = (tl.rotary_embedding(given_x, make(backend, np.arange(7) + n), interleaved=interleaved) for n in (5, 8))
    apart = _rotated(x, positions, interleaved) * _rotated(x, positions + 3, interleaved)
    check(tl.sum(q * k, axis=-1), apart.sum(-1), tolerance=1e-10)
    half = tl.rotary_embedding(make(backend, x.astype(np.float16)), interleaved=interleaved)
    check(half, _rotated(x, positions, interleaved), dtype=np.float16)


def test_one_hot(backend: str) -> None:
    indices = np.array([[2, 0, 5], [1, -1, 3]])  # 5 and -1 are out of range
    expected = (indices[..., None] == np.arange(4)).astype(np.float32)
    given_indices = make(backend, indices)
    check(tl.one_hot(given_indices, 4), expected)
    check(tl.one_hot(given_indices, 4, axis=0, dtype=tl.int32), np.moveaxis(expected, -1, 0).astype(np.int32))
    check(tl.one_hot(given_indices, 4, axis=-2, dtype=tl.bool), np.moveaxis(expected, -1, -2) != 0)
    check(compiled(backend, lambda i: tl.one_hot(i, 4, axis=1))(given_indices), np.moveaxis(expected, -1, 1))
    check(tl.one_hot(make(backend, np.array(2, np.uint8)), 300), np.eye(300, dtype=np.float32)[2])
    valid = np.array([2, 0, 1])
    assert (to_numpy(tl.one_hot(make(backend, valid), 3)) == F.one_hot(torch.tensor(valid), 3).numpy()).all()


def test_masks(default_backend: str) -> None:
    backend = default_backend
    check(tl.causal_mask(3, 5), np.tri(3, 5, dtype=bool))
    check(tl.causal_mask(2, 5, offset=3), np.tri(2, 5, 3, dtype=bool))
    check(tl.causal_mask(5, window=2), np.tri(5, 5, dtype=bool) & ~np.tri(5, 5, -2, dtype=bool))
    assert isinstance(tl.causal_mask(2), tl.Array)
    assert not isinstance(tl.namespace(backend).causal_mask(2), tl.Array)
    lengths = make(backend, np.array([[2, 0], [4, 1]]))
    expected = np.arange(4) < to_numpy(lengths)[..., None]
    check(tl.padding_mask(lengths), expected)
    check(compiled(backend, lambda n: tl.padding_mask(n, 6))(lengths), np.arange(6) < to_numpy(lengths)[..., None])
    segments = np.array([[0, 0, 1], [2, 1, 2]])
    check(tl.segment_mask(make(backend, segments)), segments[..., None] == segments[..., None, :])
    x = make(backend, _normal(2, 3, 4))
    by_mask = attend(x, x, x, mask=tl.causal_mask(3).native)
    check(attend(x, x, x, is_causal=True), to_numpy(by_mask), tolerance=1e-12)


# ---- derivatives of derivatives ------------------------------------------------------------------------------------------------
def test_attention_has_second_derivatives(backend: str) -> None:
    """By the gradient of the gradient and by forward mode, against finite differences of the gradient."""
    arrays = [make(backend, _normal(1, 2, 4, 3)) for _ in range(3)]
    mask = make(backend, np.array([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1]]))
    direction = make(backend, _normal(1, 2, 4, 3))

    def slope(q: Any) -> Any:
        return tl.grad(lambda q: tl.sum(attend(q, *arrays[1:], mask=mask) ** 2))(q)

    second = tl.grad(lambda q: tl.sum(slope(q) * direction))(arrays[0])
    step = 1e-5
    ahead, behind = (to_numpy(slope(arrays[0] + sign * step * direction)) for sign in (1, -1))
    check(second, (ahead - behind) / (2 * step), tolerance=1e-7)
    _, forward = tl.jvp(slope, (arrays[0],), (direction,))
    check(forward, to_numpy(second), tolerance=1e-9)


def test_vmap(backend: str) -> None:
    arrays = [make(backend, _normal(3, 2, 5, 4)) for _ in range(3)]
    check(tl.vmap(attend)(*arrays), to_numpy(attend(*arrays)), tolerance=1e-10)


# ---- dtypes, kinds of arrays, nests --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float16, bfloat16], ids=str)
def test_halves(backend: str, dtype: Any) -> None:
    arrays = [_normal(2, 3, 5, 4).astype(dtype) for _ in range(3)]
    wide = [a.astype(np.float32) for a in arrays]
    expected = F.scaled_dot_product_attention(*_tensors(*wide), is_causal=True).numpy()
    check(attend(*(make(backend, a) for a in arrays), is_causal=True), expected, dtype=dtype)
    weight = _normal(7, 4).astype(dtype)
    check(tl.linear(make(backend, arrays[0]), make(backend, weight)), wide[0] @ weight.astype(np.float32).T, dtype=dtype)
    check(tl.dropout(make(backend, arrays[0]), 0.5, seed=0) * 0, np.zeros(arrays[0].shape), dtype=dtype)


def test_mixed_dtypes(backend: str) -> None:
    """By the promotion table; integers go to float32."""
    x, weight = _normal(2, 3), _normal(4, 3, dtype=np.float32)
    check(tl.linear(make(backend, x), make(backend, weight)), x @ weight.T, tolerance=1e-12)
    whole = _rng.integers(-3, 3, (2, 3))
    check(tl.linear(make(backend, whole), make(backend, whole)), (whole @ whole.T).astype(np.float32))
    q, k = _normal(2, 3, dtype=np.float32), _normal(4, 3)
    found = attend(make(backend, q), make(backend, k), make(backend, k))
    check(found, F.scaled_dot_product_attention(*_tensors(q.astype(np.float64), k, k)).numpy(), tolerance=1e-12)
    ints = make(backend, whole)
    check(attend(ints, ints, ints), F.scaled_dot_product_attention(*_tensors(*(whole.astype(np.float32),) * 3)).numpy())
    with pytest.raises(TypeError, match="expected a real dtype, got complex"):
        tl.linear(make(backend, x + 1j), make(backend, weight))


def test_arrays_and_containers(backend: str) -> None:
    """Array in, Array out; a Container is mapped, and each of its leaves drops others."""
    x = tl.asarray(make(backend, _normal(4, 6, 8)))
    for y in (tl.linear(x, x[0]), attend(x, x, x), tl.multi_head_attention(x, num_heads=2), tl.dropout(x, 0.5, seed=0)):
        assert type(y) is tl.Array
    both = tl.Container(a=x, b=x + 1)
    for function in (
        lambda x: tl.linear(x, x[0] if isinstance(x, tl.Array) else x.map(lambda a: a[0])),
        lambda x: attend(x, x, x, is_causal=True),
        lambda x: tl.multi_head_attention(x, num_heads=2, return_attention_weights=True)[1],
        tl.rotary_embedding,
    ):
        mapped = function(both)
        for name in ("a", "b"):
            check(mapped[name], to_numpy(function(both[name])))
    dropped = tl.dropout(tl.Container(a=x, b=x), 0.5, seed=0)
    assert (to_numpy(dropped.a) != to_numpy(dropped.b)).any()
    weights = attend(both, both, both, dropout_p=0.5, training=True, seed=1)
    assert weights.a.shape == x.shape


def test_dropout_of_attention(backend: str) -> None:
    """By seed the same eager, compiled and on every backend; of weights that come out as they were used."""
    x = _normal(2, 6, 8)
    given_x = make(backend, x)
    options: dict[str, Any] = {"num_heads": 2, "dropout_p": 0.4, "training": True, "return_attention_weights": True, "seed": 3}
    result, weights = tl.multi_head_attention(given_x, average_attention_weights=False, **options)
    expected, same = tl.multi_head_attention(x, average_attention_weights=False, **options)
    check(result, expected, tolerance=1e-10)
    check(weights, same, tolerance=1e-10)
    assert 0.2 < (to_numpy(weights) == 0).mean() < 0.6
    heads = tl.moveaxis(tl.reshape(given_x, (2, 6, 2, 4)), 2, 1)
    check(result, to_numpy(tl.reshape(tl.moveaxis(weights @ heads, 1, 2), (2, 6, 8))), tolerance=1e-10)
    again = compiled(backend, lambda x: tl.multi_head_attention(x, **options)[0])(given_x)
    check(again, to_numpy(result), tolerance=1e-10)
    inactive = tl.multi_head_attention(given_x, num_heads=2, dropout_p=0.4)
    check(inactive, to_numpy(tl.multi_head_attention(given_x, num_heads=2)))


def test_multi_head_attention_without_projections(backend: str) -> None:
    """Heads only; masks of each form give the same; a mask for each head; fully masked rows are 0."""
    x = make(backend, _normal(2, 5, 6))
    causal = np.tri(5, dtype=bool)
    forms = [causal, causal[None], np.broadcast_to(causal, (2, 5, 5)), np.broadcast_to(causal, (6, 5, 5))]
    forms += [np.broadcast_to(causal, (2, 3, 5, 5)), causal[None, None], causal.astype(np.float32)]
    expected = to_numpy(tl.multi_head_attention(x, num_heads=3, is_causal=True))
    for mask in forms:
        check(tl.multi_head_attention(x, num_heads=3, mask=make(backend, mask)), expected, tolerance=1e-12)
    padding = make(backend, np.array([[True] * 5, [False] * 5]))
    hidden = to_numpy(tl.multi_head_attention(x, num_heads=3, key_padding_mask=padding))
    assert (hidden[1] == 0).all()
    assert (hidden[0] != 0).all()
    gradient = tl.grad(lambda x: tl.sum(tl.multi_head_attention(x, num_heads=3, key_padding_mask=padding)))(x)
    assert np.isfinite(to_numpy(gradient)).all()


def test_compiled_together(backend: str) -> None:
    """What a model strings together, compiled; by TensorFlow without knowing batch and length."""
    x, weight = make(backend, _normal(2, 5, 8)), make(backend, _normal(24, 8))

    def run(x: Any) -> Any:
        y = tl.multi_head_attention(x, num_heads=2, in_proj_weights=weight, is_causal=True)
        y = tl.linear(tl.rotary_embedding(y, interleaved=True), weight)
        return tl.dropout(attend(y, y, y, dropout_p=0.2, training=True, seed=1), 0.5, seed=2)

    if backend == "tensorflow":
        import tensorflow as tf

        found = tf.function(run, input_signature=[tf.TensorSpec([None, None, 8], tf.float64)], autograph=False)(x)
    else:
        found = compiled(backend, run)(x)
    check(found, to_numpy(run(x)), tolerance=1e-10)


# ---- mistakes ------------------------------------------------------------------------------------------------------------------
_X = np.zeros((2, 3, 4))
_WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda x: tl.linear(x, x[0, :, :3]), ValueError,
     r"linear: x of shape \(2, 3, 4\) does not fit weight of shape \(3, 3\); x must be \[..., 3\]"),
    (lambda x: tl.linear(x, x[0, 0]), ValueError, r"linear: weight has shape \(4,\); it must be \[out, in\]"),
    (lambda x: tl.linear(x, x[0], bias=x[0, 0]), ValueError, r"a bias of shape \(4,\) does not fit weight .*; it must be \[3\]"),
    (lambda x: tl.linear(x[:1], x), ValueError, r"x must be \[2, ..., 4\]"),
    (lambda x: tl.dropout(x, 1.5), ValueError, r"dropout: prob=1.5; a probability is between 0 and 1"),
    (lambda x: tl.dropout(x, -0.1), ValueError, r"dropout: prob=-0.1; a probability is between 0 and 1"),
    (lambda x: tl.dropout(x, "a"), TypeError, r"dropout: prob must be a number between 0 and 1, got str"),
    (lambda x: tl.dropout(x, 0.5, noise_shape=(2, 3, 5)), ValueError, r"noise_shape=\(2, 3, 5\) does not fit x of shape"),
    (lambda x: attend(x, x[..., :3], x), ValueError, r"query has 4 features and key 3; the last axes must be equal"),
    (lambda x: attend(x, x, x[:, :2]), ValueError, r"there are 3 keys and 2 values"),
    (lambda x: attend(x, x[0, 0], x), ValueError, r"each needs two axes or more"),
    (lambda x: attend(x, tl.concat([x, x, x]), x), ValueError, r"the axes before the last two do not broadcast together"),
    (lambda x: attend(x, x, x, mask=x), ValueError,
     r"mask has shape \(2, 3, 4\); it must broadcast to the scores' shape \(2, 3, 3\)"),
    (lambda x: attend(x, x, x, x[0, 0]), TypeError, r"scale must be a number or None"),
    (lambda x: attend(x, x, x, dropout_p=2.0, training=True), ValueError, r"dropout_p=2.0; a probability is between 0 and 1"),
    (lambda x: tl.multi_head_attention(x, num_heads=3), ValueError, r"num_heads=3 does not divide 4 features"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, in_proj_weights=x[0]), ValueError, r"it must be \[3 \* e, e\] with e=4"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, q_proj_weights=x[0]), ValueError, r"give in_proj_weights, or all of"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, in_proj_bias=x[0, 0]), ValueError, r"in_proj_bias .* it must be \[12\]"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, mask=x[0, :, :2]), ValueError, r"a mask of shape \(3, 2\) does not"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, key_padding_mask=x[0]), ValueError, r"must be \[2, 3\], one element"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, key=x[0]), ValueError, r"must all be \[batch, length, features\]"),
    (lambda x: tl.multi_head_attention(x, num_heads=2, key=x[:1]), ValueError, r"the batch sizes must be equal"),
    (lambda x: tl.embedding(x, x[0]), TypeError, r"embedding: indices must be integers, got float64"),
    (lambda x: tl.embedding(tl.astype(x, tl.int64), x), ValueError, r"embedding: weight has shape \(2, 3, 4\)"),
    (lambda x: tl.embedding(tl.astype(x, tl.int64) + 7, x[0]), IndexError, r"index"),
    (lambda x: tl.embedding(tl.astype(x, tl.int64), x[0], padding_idx=3), ValueError, r"padding_idx=3 is out of range"),
    (lambda x: tl.one_hot(x, 3), TypeError, r"one_hot: indices must be integers, got float64"),
    (lambda x: tl.rotary_embedding(x[..., :3]), ValueError, r"dim=3 must be even, and at most the 3 features of x"),
    (lambda x: tl.rotary_embedding(x, x[0, 0]), ValueError, r"positions has shape \(4,\); it must broadcast to \[2, 3\]"),
    (lambda x: tl.padding_mask(x), TypeError, r"padding_mask: lengths must be integers, got float64"),
    (lambda x: tl.causal_mask(-1), ValueError, r"causal_mask: queries=-1 is too small; it must be 0 or more"),
]  # fmt: skip


@pytest.mark.parametrize("wrap", [False, True], ids=["native", "Array"])
def test_mistakes_are_named(backend: str, wrap: bool) -> None:
    """The same class and the same text on every backend."""
    x = make(backend, _X)
    x = tl.asarray(x) if wrap else x
    for function, error, text in _WRONG:
        with pytest.raises(error, match=text):
            function(x)
