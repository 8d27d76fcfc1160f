"""Every layer beside torch's: how each is made, and what they are called with. Channels are first, as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import trellis as tl

Make = Callable[..., Any]


class Case(NamedTuple):
    """`ours` takes the options of every Module; `run` calls torch's where the arguments differ."""

    ours: Make
    theirs: Make
    inputs: tuple[Any, ...]
    call: Callable[..., Any] = lambda layer, *xs: layer(*xs)
    run: Callable[..., Any] = lambda layer, *xs: layer(*xs)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def _layer(make: Make, *args: Any, **given: Any) -> Make:
    return lambda **options: make(*args, **(given | options))


def _case(ours: Make, theirs: Make, *inputs: Any, **calls: Any) -> Case:
    return Case(ours, theirs, inputs, **calls)


FIRST = {"data_format": "channel_first"}
LINE, IMAGE, VOLUME = normal(3, 4, 11), normal(2, 4, 9, 7), normal(2, 4, 5, 6, 4)
SEQUENCE, MEMORY = normal(3, 6, 8), normal(3, 5, 8)
MASK = np.tril(np.ones((6, 6), bool))
PADDING = np.array([[True] * 5, [True, True, True, False, False], [True, False, True, True, True]])
GROUPED: Any = {"groups": 2, "dilations": 2}


def _masked_encoder(layer: Any, x: Any) -> Any:
    return layer(x, mask=torch.from_numpy(~MASK)) if isinstance(layer, nn.Module) else layer(x, is_causal=True)


def _transformer(kind: Make, **given: Any) -> Make:
    return _layer(kind, 8, 2, 16, dropout=0.0, **given)


def _their_transformer(kind: Make, **given: Any) -> Make:
    return lambda: kind(8, 2, 16, dropout=0.0, batch_first=True, **given)


def _stack(kind: Make, **given: Any) -> Make:
    return lambda: (nn.TransformerEncoder if kind is nn.TransformerEncoderLayer else nn.TransformerDecoder)(
        _their_transformer(kind, norm_first=True)(), 2, norm=nn.LayerNorm(8), **given
    )


def _attention_weights(layer: Any, q: Any, k: Any, v: Any) -> Any:
    if isinstance(layer, nn.Module):
        return layer(q, k, v, key_padding_mask=torch.from_numpy(~PADDING), average_attn_weights=False)
    padding = tl.asarray(PADDING, backend=q.backend)
    return layer(q, k, v, key_padding_mask=padding, return_attention_weights=True, average_attention_weights=False)


CASES: dict[str, Case] = {
    "Linear": _case(_layer(tl.Linear, 4, 5), lambda: nn.Linear(4, 5), normal(3, 2, 4)),
    "Bilinear": _case(_layer(tl.Bilinear, 4, 3, 5), lambda: nn.Bilinear(4, 3, 5), normal(6, 4), normal(6, 3)),
    "Embedding": _case(_layer(tl.Embedding, 7, 3, padding_idx=2), lambda: nn.Embedding(7, 3, padding_idx=2), np.array([[1, 2], [6, 1]])),
    "Conv1D": _case(_layer(tl.Conv1D, 4, 6, 3, 2, 1, **FIRST), lambda: nn.Conv1d(4, 6, 3, 2, 1), LINE),
    "Conv2D": _case(_layer(tl.Conv2D, 4, 6, (3, 2), 2, 1, **FIRST), lambda: nn.Conv2d(4, 6, (3, 2), 2, 1), IMAGE),
    "Conv2D grouped": _case(
        _layer(tl.Conv2D, 4, 6, 3, padding="SAME", with_bias=False, **FIRST, **GROUPED),
        lambda: nn.Conv2d(4, 6, 3, padding="same", bias=False, groups=2, dilation=2),
        IMAGE,
    ),
    "Conv3D": _case(_layer(tl.Conv3D, 4, 3, 2, **FIRST), lambda: nn.Conv3d(4, 3, 2), VOLUME),
    "Conv1DTranspose": _case(_layer(tl.Conv1DTranspose, 4, 6, 3, 2, **FIRST), lambda: nn.ConvTranspose1d(4, 6, 3, 2), LINE),
    "Conv2DTranspose": _case(
        _layer(tl.Conv2DTranspose, 4, 6, (3, 2), 2, 1, groups=2, **FIRST),
        lambda: nn.ConvTranspose2d(4, 6, (3, 2), 2, 1, groups=2),
        IMAGE,
    ),
    "Conv3DTranspose": _case(_layer(tl.Conv3DTranspose, 4, 3, 2, 2, **FIRST), lambda: nn.ConvTranspose3d(4, 3, 2, 2), VOLUME),
    "DepthwiseConv1D": _case(_layer(tl.DepthwiseConv1D, 4, 3, **FIRST), lambda: nn.Conv1d(4, 4, 3, groups=4), LINE),
    "DepthwiseConv2D": _case(
        _layer(tl.DepthwiseConv2D, 4, 3, 2, 1, multiplier=2, **FIRST), lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=4), IMAGE
    ),
    "BatchNorm1D": _case(_layer(tl.BatchNorm1D, 4), lambda: nn.BatchNorm1d(4), normal(6, 4)),
    "BatchNorm1D of lines": _case(_layer(tl.BatchNorm1D, 4, momentum=None, **FIRST), lambda: nn.BatchNorm1d(4, momentum=None), LINE),
    "BatchNorm2D": _case(_layer(tl.BatchNorm2D, 4, momentum=0.3, **FIRST), lambda: nn.BatchNorm2d(4, momentum=0.3), IMAGE),
    "BatchNorm3D": _case(_layer(tl.BatchNorm3D, 4, affine=False, **FIRST), lambda: nn.BatchNorm3d(4, affine=False), VOLUME),
    "LayerNorm": _case(_layer(tl.LayerNorm, (6, 8), eps=1e-3), lambda: nn.LayerNorm((6, 8), eps=1e-3), SEQUENCE),
    "GroupNorm": _case(_layer(tl.GroupNorm, 2, 4, **FIRST), lambda: nn.GroupNorm(2, 4), IMAGE),
    "InstanceNorm": _case(_layer(tl.InstanceNorm, 4, **FIRST), lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "RMSNorm": _case(_layer(tl.RMSNorm, 8), lambda: nn.RMSNorm(8), SEQUENCE),
    "PReLU": _case(_layer(tl.PReLU, 4, **FIRST), lambda: nn.PReLU(4), IMAGE),
    "MultiHeadAttention": _case(
        _layer(tl.MultiHeadAttention, 8, 2), lambda: nn.MultiheadAttention(8, 2, batch_first=True), SEQUENCE,
        run=lambda layer, x: layer(x, x, x, need_weights=False)[0],
    ),
    "MultiHeadAttention to others": _case(
        _layer(tl.MultiHeadAttention, 8, 2, key_dim=5, value_dim=3, with_bias=False),
        lambda: nn.MultiheadAttention(8, 2, kdim=5, vdim=3, bias=False, batch_first=True),
        SEQUENCE, normal(3, 5, 5), normal(3, 5, 3),
        call=_attention_weights, run=_attention_weights,
    ),
    "TransformerEncoderLayer": _case(
        _transformer(tl.TransformerEncoderLayer), _their_transformer(nn.TransformerEncoderLayer), SEQUENCE
    ),
    "TransformerDecoderLayer": _case(
        _transformer(tl.TransformerDecoderLayer, activation="gelu"),
        _their_transformer(nn.TransformerDecoderLayer, activation="gelu"),
        SEQUENCE, MEMORY,
    ),
    "TransformerEncoder": _case(
        _layer(tl.TransformerEncoder, 2, 8, 2, 16, dropout=0.0, norm_first=True),
        _stack(nn.TransformerEncoderLayer, enable_nested_tensor=False), SEQUENCE, call=_masked_encoder, run=_masked_encoder,
    ),
    "TransformerDecoder": _case(
        _layer(tl.TransformerDecoder, 2, 8, 2, 16, dropout=0.0, norm_first=True), _stack(nn.TransformerDecoderLayer),
        SEQUENCE, MEMORY,
    ),
    "LSTM": _case(
        _layer(tl.LSTM, 8, 5, bidirectional=True), lambda: nn.LSTM(8, 5, bidirectional=True, batch_first=True), SEQUENCE
    ),
    "LSTM with a state": _case(
        _layer(tl.LSTM, 8, 5, 2, with_bias=False, time_major=True), lambda: nn.LSTM(8, 5, 2, bias=False), SEQUENCE,
        normal(2, 6, 5), normal(2, 6, 5),
        call=lambda layer, x, h, c: layer(x, (h, c)), run=lambda layer, x, h, c: layer(x, (h, c)),
    ),
    "GRU": _case(_layer(tl.GRU, 8, 5), lambda: nn.GRU(8, 5, batch_first=True), SEQUENCE, normal(1, 3, 5)),
    "RNN": _case(
        _layer(tl.RNN, 8, 5, activation="relu", bidirectional=True),
        lambda: nn.RNN(8, 5, nonlinearity="relu", bidirectional=True, batch_first=True),
        SEQUENCE,
    ),
    "LSTMCell": _case(
        _layer(tl.LSTMCell, 8, 5), lambda: nn.LSTMCell(8, 5), normal(3, 8), normal(3, 5), normal(3, 5),
        call=lambda layer, x, h, c: layer(x, (h, c)), run=lambda layer, x, h, c: layer(x, (h, c)),
    ),
    "GRUCell": _case(_layer(tl.GRUCell, 8, 5), lambda: nn.GRUCell(8, 5), normal(3, 8)),
    "RNNCell": _case(_layer(tl.RNNCell, 8, 5), lambda: nn.RNNCell(8, 5), normal(3, 8), normal(3, 5)),
    "MaxPool1D": _case(_layer(tl.MaxPool1D, 3, 2, **FIRST), lambda: nn.MaxPool1d(3, 2), LINE),
    "MaxPool2D": _case(
        _layer(tl.MaxPool2D, 3, padding=1, ceil_mode=True, **FIRST), lambda: nn.MaxPool2d(3, padding=1, ceil_mode=True), IMAGE
    ),
    "MaxPool3D": _case(_layer(tl.MaxPool3D, 2, **FIRST), lambda: nn.MaxPool3d(2), VOLUME),
    "AvgPool1D": _case(_layer(tl.AvgPool1D, 3, 2, **FIRST), lambda: nn.AvgPool1d(3, 2), LINE),
    "AvgPool2D": _case(_layer(tl.AvgPool2D, 3, 2, 1, count_include_pad=True, **FIRST), lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    "AvgPool3D": _case(_layer(tl.AvgPool3D, 2, **FIRST), lambda: nn.AvgPool3d(2), VOLUME),
    "AdaptiveAvgPool1D": _case(_layer(tl.AdaptiveAvgPool1D, 3, **FIRST), lambda: nn.AdaptiveAvgPool1d(3), LINE),
    "AdaptiveAvgPool2D": _case(
        _layer(tl.AdaptiveAvgPool2D, (4, None), **FIRST), lambda: nn.AdaptiveAvgPool2d((4, None)), IMAGE
    ),
    "AdaptiveAvgPool3D": _case(_layer(tl.AdaptiveAvgPool3D, 2, **FIRST), lambda: nn.AdaptiveAvgPool3d(2), VOLUME),
    "AdaptiveMaxPool1D": _case(_layer(tl.AdaptiveMaxPool1D, 3, **FIRST), lambda: nn.AdaptiveMaxPool1d(3), LINE),
    "AdaptiveMaxPool2D": _case(_layer(tl.AdaptiveMaxPool2D, (4, 3), **FIRST), lambda: nn.AdaptiveMaxPool2d((4, 3)), IMAGE),
    "AdaptiveMaxPool3D": _case(_layer(tl.AdaptiveMaxPool3D, 2, **FIRST), lambda: nn.AdaptiveMaxPool3d(2), VOLUME),
    "Flatten": _case(_layer(tl.Flatten, 1, 2), lambda: nn.Flatten(1, 2), IMAGE),
    "Identity": _case(_layer(tl.Identity), nn.Identity, LINE),
}  # fmt: skip

ACTIVATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # the options of ours, and of torch's
    "CELU": ({"alpha": 0.5}, {"alpha": 0.5}), "ELU": ({"alpha": 0.5}, {"alpha": 0.5}), "GLU": ({"axis": 1}, {"dim": 1}),
    "GELU": ({"approximate": "tanh"}, {"approximate": "tanh"}), "Hardsigmoid": ({}, {}), "Hardswish": ({}, {}),
    "Hardtanh": ({"min": -0.5}, {"min_val": -0.5}), "LeakyReLU": ({"negative_slope": 0.2}, {"negative_slope": 0.2}),
    "LogSigmoid": ({}, {}), "LogSoftmax": ({"axis": 1}, {"dim": 1}), "Mish": ({}, {}), "ReLU": ({}, {}), "ReLU6": ({}, {}),
    "SELU": ({}, {}), "SiLU": ({}, {}), "Sigmoid": ({}, {}), "Softmax": ({"axis": 1}, {"dim": 1}),
    "Softplus": ({"beta": 2.0}, {"beta": 2.0}), "Softsign": ({}, {}), "Tanh": ({}, {}),
}  # fmt: skip
CASES |= {
    name: _case(_layer(getattr(tl, name), **ours), _layer(getattr(nn, name), **theirs), LINE)
    for name, (ours, theirs) in ACTIVATIONS.items()
}
