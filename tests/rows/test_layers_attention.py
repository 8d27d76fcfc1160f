"""Rows of the conformance matrix: linear, dropout, scaled_dot_product_attention, multi_head_attention. The reference is torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from against_torch import agree
from helpers import check, compiled, make, to_numpy
from row_forms import every_form, exact

import trellis as tl

_rng = np.random.default_rng(3)


def _normal(*shape: int, dtype: Any = np.float64) -> Any:
    return _rng.normal(size=shape).astype(dtype)


def test_linear(backend: str) -> None:
    """A batch of any rank, with and without bias; a weight of its own for each outer element."""
    for dtype in (np.float32, np.float64):
        weight, bias = _normal(7, 13, dtype=dtype), _normal(7, dtype=dtype)
        for lead in ((), (5,), (3, 4), (2, 3, 4)):
            x = _normal(*lead, 13, dtype=dtype)
            agree(backend, lambda x, w: tl.linear(x, w), F.linear, x, weight)
            agree(backend, lambda x, w, b: tl.linear(x, w, bias=b), F.linear, x, weight, bias)
    x, weight, bias = _normal(3, 4, 5, 6), _normal(3, 7, 6), _normal(3, 7)

    def each(x: Any, w: Any, b: Any) -> Any:
        return torch.stack([F.linear(x[i], w[i], b[i]) for i in range(3)])

    agree(backend, lambda x, w, b: tl.linear(x, w, bias=b), each, x, weight, bias)
    agree(backend, lambda x, w, b: tl.linear(x, w, bias=b), each, x[:, 0], weight, bias)
    agree(backend, lambda x, w, b: tl.linear(x, w, bias=b), each, x[:, 0, 0], weight, bias)
    agree(backend, lambda x, w, b: tl.linear(x, w, bias=b), each, x, weight, bias, compile=True)
    arrays = _normal(4, 5), _normal(3, 5), _normal(3)
    every_form(backend, lambda x, w, b: tl.linear(x, w, bias=b), lambda x, w, b: np.einsum("ni,oi->no", x, w) + b, *arrays)


def test_dropout(backend: str) -> None:
    """Share and size of what is kept, masks by seed, noise shapes, probabilities 0 and 1, no training; and the gradient."""
    x = make(backend, _normal(200, 50) + 3)
    given = to_numpy(x)
    for prob in (0.1, 0.5, 0.9):
        y = to_numpy(tl.dropout(x, prob, seed=1))
        kept = y != 0
        assert abs(kept.mean() - (1 - prob)) < 4 * math.sqrt(prob * (1 - prob) / kept.size)
        np.testing.assert_allclose(y[kept], (given / (1 - prob))[kept], rtol=1e-12)
        unscaled = to_numpy(tl.dropout(x, prob, scale=False, seed=1))
        np.testing.assert_array_equal(unscaled, np.where(kept, given, 0))
        assert abs(kept.mean(0) - (1 - prob)).max() < 0.2  # all columns and all rows alike
        assert abs(kept.mean(1) - (1 - prob)).max() < 0.35
    same = to_numpy(tl.dropout(x, 0.5, seed=7))
    np.testing.assert_array_equal(same, to_numpy(tl.dropout(x, 0.5, seed=7)))
    np.testing.assert_array_equal(same, to_numpy(compiled(backend, lambda x: tl.dropout(x, 0.5, seed=7))(x)))
    on_numpy = tl.dropout(given, 0.5, seed=7)
    np.testing.assert_allclose(same, on_numpy, rtol=1e-12)
    assert (same != to_numpy(tl.dropout(x, 0.5, seed=8))).mean() > 0.4
    first, second = (to_numpy(tl.dropout(x, 0.5)) for _ in range(2))
    assert 0.4 < (first != second).mean() < 0.6  # without a seed each call draws anew
    rows = to_numpy(tl.dropout(x, 0.5, seed=1, noise_shape=(200, 1))) != 0
    assert (rows == rows[:, :1]).all()
    assert 0.3 < rows[:, 0].mean() < 0.7
    for unchanged in (tl.dropout(x, 0.5, training=False), tl.dropout(x, 0.0)):
        np.testing.assert_array_equal(to_numpy(unchanged), given)
    np.testing.assert_array_equal(to_numpy(tl.dropout(x, 1.0, seed=0)), 0 * given)
    gradient = tl.grad(lambda x: tl.sum(tl.dropout(x, 0.5, seed=7) * 3))(x)
    check(gradient, np.where(same != 0, 6.0, 0.0))
    _dropout_forms(backend)


def _dropout_forms(backend: str) -> None:
    """By its law: an element is 0, or twice what it was; so in Arrays, Containers, halves and integers, and compiled."""
    x = np.arange(1, 401).reshape(20, 20) % 7 + 1

    def lawful(found: Any, given: Any, dtype: Any) -> Any:
        assert tl.asarray(found).dtype is dtype
        kept = to_numpy(found).astype(np.float64) != 0
        assert 0.35 < kept.mean() < 0.65
        np.testing.assert_allclose(to_numpy(found).astype(np.float64), np.where(kept, 2.0 * given, 0.0), rtol=1e-6)
        return kept

    for dtype in (tl.float16, tl.bfloat16, tl.float32, tl.float64):
        given = tl.astype(make(backend, x), dtype)
        for operand in (given, tl.asarray(given)):
            found = tl.dropout(operand, 0.5, seed=3)
            assert isinstance(found, tl.Array) == isinstance(operand, tl.Array)
            kept = lawful(found, x, dtype)
        np.testing.assert_array_equal(kept, lawful(compiled(backend, lambda x: tl.dropout(x, 0.5, seed=3))(given), x, dtype))
    lawful(tl.dropout(make(backend, x), 0.5, seed=3), x, tl.float32)
    wide = make(backend, x.astype(np.float64))
    nest = tl.dropout(tl.Container(a=wide, b=tl.Container(c=wide)), 0.5, seed=3)
    assert isinstance(nest, tl.Container)
    masks = [lawful(nest[path], x, tl.float64) for path in ("a", "b/c")]
    assert (masks[0] != masks[1]).any()  # each leaf draws its own


# Masks of every pattern, for queries of length 5 and keys of length 6: bool, numbers, and shapes that broadcast.
_MASKS: list[Any] = [
    None, _rng.random((5, 6)) > 0.4, _rng.random((2, 1, 5, 6)) > 0.4, _rng.random((3, 5, 6)) > 0.4,
    _rng.random((2, 3, 1, 6)) > 0.4, np.array([1, 1, 0, 1, 0, 1]), (_rng.random((2, 1, 1, 6)) > 0.4).astype(np.float64),
    _rng.integers(0, 3, (2, 3, 5, 1)), np.zeros((5, 6), bool),
]  # fmt: skip


def _attention(query: Any, key: Any, value: Any, mask: Any = None, is_causal: bool = False, scale: float | None = None) -> Any:
    """By the formula, in torch's own operations; rows that see nothing are 0."""
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    seen = torch.ones(scores.shape, dtype=torch.bool)
    seen = seen if mask is None else seen & (torch.as_tensor(mask) != 0)
    seen = seen.tril() if is_causal else seen
    weights = torch.softmax(scores.masked_fill(~seen, -1e30), -1)
    return torch.where(seen, weights, 0.0) @ value


def _masked(backend: str, arrays: Any, mask: Any, causal: bool, compile: bool = False) -> None:
    given = None if mask is None else make(backend, mask)
    agree(
        backend, lambda *a: tl.scaled_dot_product_attention(*a, mask=given, is_causal=causal),
        lambda *a: _attention(*a, mask=mask, is_causal=causal), *arrays, compile=compile,
    )  # fmt: skip


def test_scaled_dot_product_attention(backend: str) -> None:
    """Every mask, causal or not, scales, batches that broadcast; a query that sees nothing gives 0 and finite gradients."""
    q, k, v = _normal(2, 3, 5, 4), _normal(2, 3, 6, 4), _normal(2, 3, 6, 7)
    attend = tl.scaled_dot_product_attention
    for i, mask in enumerate(_MASKS):
        _masked(backend, (q, k, v), mask, bool(i % 2))
    _masked(backend, (q, k, v), None, True)
    for i, mask in enumerate(_MASKS[:3]):
        _masked(backend, (q, k, v), mask, not i % 2, compile=True)
    agree(backend, lambda *a: attend(*a, 0.3), lambda *a: _attention(*a, scale=0.3), q, k, v)
    for single in (0, (0, 0)):
        agree(backend, attend, F.scaled_dot_product_attention, q[single], k[single], v[single])
    agree(backend, attend, _attention, q, k[:1], v[:, :1])
    hidden = np.ones((2, 1, 5, 6), bool)
    hidden[0, 0, 2] = False
    result = to_numpy(attend(*(make(backend, a) for a in (q, k, v)), mask=make(backend, hidden)))
    assert (result[0, :, 2] == 0).all()
    assert np.isfinite(result).all()
    x = [_normal(2, 4, 37, 16, dtype=np.float32) for _ in range(3)]
    agree(backend, lambda *a: attend(*a, is_causal=True), lambda *a: F.scaled_dot_product_attention(*a, is_causal=True), *x)
    every_form(backend, lambda *a: attend(*a, is_causal=True), _attention_by_numpy, *(exact(_normal(2, 3, 4)) for _ in range(3)))


def _attention_by_numpy(query: Any, key: Any, value: Any) -> Any:
    scores = np.einsum("bqd,bkd->bqk", query, key) / math.sqrt(query.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bqk,bkd->bqd", weights / weights.sum(-1, keepdims=True), value)


def _dropped_attention(backend: str) -> tuple[Any, Any]:
    q, k = (make(backend, _normal(8, 40, 16)) for _ in range(2))
    eye = make(backend, np.broadcast_to(np.eye(40), (8, 40, 40)).copy())
    full = to_numpy(tl.scaled_dot_product_attention(q, k, eye))
    return full, to_numpy(tl.scaled_dot_product_attention(q, k, eye, dropout_p=0.3, training=True, seed=5))


def test_multi_head_attention(backend: str) -> None:
    """torch.nn.MultiheadAttention, whose masks say where not to attend: batched and not, packed and separate weights."""
    full, dropped = _dropped_attention(backend)
    kept = dropped != 0
    assert abs(kept.mean() - 0.7) < 0.02
    np.testing.assert_allclose(dropped[kept], full[kept] / 0.7, rtol=1e-10)
    for dims, bias in (({}, True), ({"kdim": 10, "vdim": 6}, True), ({}, False)):
        theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True, bias=bias, dtype=torch.float64, **dims)
        if bias:
            torch.nn.init.normal_(theirs.in_proj_bias)
            torch.nn.init.normal_(theirs.out_proj.bias)
        query, key, value = _normal(2, 5, 12), _normal(2, 7, dims.get("kdim", 12)), _normal(2, 7, dims.get("vdim", 12))
        padding = np.arange(7) < np.array([[7], [4]])
        _compare(backend, theirs, (query, key, value), None, None, not dims)
        _compare(backend, theirs, (query, key, value), _some(5, 7) if bias else _some(6, 5, 7), padding, bool(dims))
        _compare(backend, theirs, (query[0], key[0], value[0]), _some(5, 7), padding[1], False)
    x = _normal(2, 5, 12)
    theirs = torch.nn.MultiheadAttention(12, 4, batch_first=True, dtype=torch.float64)
    _compare(backend, theirs, (x, None, None), np.tril(np.ones((5, 5), bool)), None, True)
    _compare(backend, theirs, (x, None, None), np.tril(np.ones((5, 5), bool)), None, True, causal=True)
    _compare(backend, theirs, (x, None, None), None, None, True, compile=True)

    def two_heads(x: Any, i: Any, o: Any, b: Any) -> Any:
        return tl.multi_head_attention(x, num_heads=2, in_proj_weights=i, out_proj_weights=o, in_proj_bias=b)

    every_form(
        backend, two_heads, _two_heads_by_numpy, _normal(2, 3, 4), _normal(12, 4), _normal(5, 4), _normal(12),
    )  # fmt: skip


def _two_heads_by_numpy(x: Any, in_weights: Any, out_weights: Any, bias: Any) -> Any:
    q, k, v = np.split(np.einsum("bli,oi->blo", x, in_weights) + bias, 3, -1)
    heads = []
    for part in (slice(0, 2), slice(2, 4)):
        scores = np.einsum("bqd,bkd->bqk", q[..., part], k[..., part]) / math.sqrt(2)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(np.einsum("bqk,bkd->bqd", weights / weights.sum(-1, keepdims=True), v[..., part]))
    return np.einsum("bli,oi->blo", np.concatenate(heads, -1), out_weights)


def _some(*shape: int) -> Any:
    mask = _rng.random(shape) > 0.4
    mask[..., 0] = True  # torch gives NaN where nothing is seen
    return mask


def _compare(
    backend: str, theirs: Any, inputs: Any, mask: Any, padding: Any, average: bool, *, causal: bool = False, compile: bool = False
) -> None:
    parameters = {n: p.detach().numpy() for n, p in theirs.named_parameters()}
    names = list(parameters)
    given = [x for x in inputs if x is not None]
    ours_named = {
        "in_proj_weight": "in_proj_weights", "q_proj_weight": "q_proj_weights", "k_proj_weight": "k_proj_weights",
        "v_proj_weight": "v_proj_weights", "in_proj_bias": "in_proj_bias", "out_proj.weight": "out_proj_weights",
        "out_proj.bias": "out_proj_bias",
    }  # fmt: skip
    ours_mask = None if mask is None or causal else make(backend, mask)
    ours_padding = None if padding is None else make(backend, padding)

    def ours(*arrays: Any) -> Any:
        xs, weights = arrays[: len(given)], arrays[len(given) :]
        options = dict(zip(("key", "value"), xs[1:])) | {ours_named[n]: w for n, w in zip(names, weights)}
        result, shares = tl.multi_head_attention(
            xs[0], num_heads=theirs.num_heads, mask=ours_mask, key_padding_mask=ours_padding, is_causal=causal,
            return_attention_weights=True, average_attention_weights=average, **options,
        )  # fmt: skip
        fused = tl.multi_head_attention(
            xs[0], num_heads=theirs.num_heads, mask=ours_mask, key_padding_mask=ours_padding, is_causal=causal, **options
        )
        return tl.concat([tl.reshape(y, (-1,)) for y in (result, shares, fused)])

    def reference(*arrays: Any) -> Any:
        xs, weights = arrays[: len(given)], arrays[len(given) :]
        xs = xs if len(xs) == 3 else xs * 3
        hidden = None if mask is None else torch.tensor(~mask)
        padded = None if padding is None else torch.tensor(~padding)
        options = {"attn_mask": hidden, "key_padding_mask": padded, "average_attn_weights": average}
        result, shares = torch.func.functional_call(theirs, dict(zip(names, weights)), xs, options)
        return torch.cat([result.reshape(-1), shares.reshape(-1), result.reshape(-1)])

    agree(backend, ours, reference, *given, *parameters.values(), compile=compile)
