"""Network functions on the samples of torch's own operator database: shapes and options that its authors thought of.

Each row says how a sample of torch's becomes a call of ours. A sample that we refuse on purpose, or that has no counterpart,
gives None; each row must have samples left.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from against_torch import agree

import trellis as tl

Call = Callable[..., Any]
SAMPLES, OF_JAX = 6, 3  # of each function, spread over all that torch has; JAX compiles each op for each shape


@functools.cache
def database() -> list[Any]:
    """torch's list of operators. Its module wants `expecttest` for a base class of torch's own tests, which nothing here uses."""
    if importlib.util.find_spec("expecttest") is None:
        sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
    return importlib.import_module("torch.testing._internal.common_methods_invocations").op_db  # takes seconds


@functools.cache
def samples(name: str) -> list[Any]:
    (info,) = [op for op in database() if op.name == f"nn.functional.{name}" and not op.variant_test_name]
    torch.manual_seed(0)
    return list(info.sample_inputs("cpu", torch.float64, requires_grad=False))


# ---- from torch's arguments to ours: positions -> (our call on arrays, the arrays), or None ------------------------------------
def plain(name: str, *parameters: str, **renamed: str) -> Call:
    """One array and numbers: torch's parameters in order, some under another name of ours."""

    def convert(x: Any, *args: Any, **kwargs: Any) -> Any:
        options = {renamed.get(k, k): v for k, v in {**dict(zip(parameters, args)), **kwargs}.items() if k != "inplace"}
        return lambda x: getattr(tl, name)(x, **options), [x]

    return convert


def loss(name: str, arrays: int = 2, *others: str) -> Call:
    """Several arrays of one shape, keyword arrays, and options by torch's names."""

    def convert(*args: Any, **kwargs: Any) -> Any:
        given, extra = list(args[:arrays]), [k for k in others if isinstance(kwargs.get(k), torch.Tensor)]
        options = {k: v for k, v in kwargs.items() if k not in others and k not in ("size_average", "reduce")}
        if len({a.shape for a in given}) > 1 or len(args) > arrays:
            return None  # we refuse to broadcast a target
        call = lambda *xs: getattr(tl, name)(*xs[:arrays], **dict(zip(extra, xs[arrays:])), **options)  # noqa: E731
        return call, [*given, *(kwargs[k] for k in extra)]

    return convert


def of_classes(name: str) -> Call:
    def convert(x: Any, target: Any, weight: Any = None, **kwargs: Any) -> Any:
        axis = 1 if x.dim() > 1 else 0
        options = {k: v for k, v in kwargs.items() if k in ("ignore_index", "reduction", "label_smoothing")}
        weights = [] if weight is None else [weight]
        return lambda x, t, *w: getattr(tl, name)(x, t, weight=w[0] if w else None, axis=axis, **options), [x, target, *weights]

    return convert


def normalized(name: str) -> Call:
    def convert(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: Any = None) -> Any:
        if eps is not None and eps < 0:
            return None
        axes = tuple(range(-len(shape), 0))
        names = [n for n, v in (("scale", weight), ("offset", bias)) if v is not None]
        options = {} if eps is None else {"eps": eps}
        call = lambda x, *rest: getattr(tl, name)(x, axes, **dict(zip(names, rest)), **options)  # noqa: E731
        return call, [x, *(v for v in (weight, bias) if v is not None)]

    return convert


def groups(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    if eps < 0:
        return None
    names = [n for n, v in (("scale", weight), ("offset", bias)) if v is not None]
    call = lambda x, *rest: tl.group_norm(x, num_groups, eps=eps, data_format="channel_first", **dict(zip(names, rest)))  # noqa: E731
    return call, [x, *(v for v in (weight, bias) if v is not None)]


def response(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    if x.dim() < 3:
        return None
    return lambda x: tl.local_response_norm(x, size, alpha=alpha, beta=beta, k=k, data_format="channel_first"), [x]


def slopes(x: Any, weight: Any) -> Any:
    return lambda x, w: tl.prelu(x, w, data_format="channel_first"), [x, weight]


def similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    if not x1.dim():
        return None  # a number is no vector
    return lambda a, b: tl.cosine_similarity(a, b, axis=dim, eps=eps), [x1, x2]


def embedding(x1: Any, x2: Any, target: Any, **options: Any) -> Any:
    return lambda a, b, t: tl.cosine_embedding_loss(a, b, t, **options), [x1, x2, target]


def pairs(x: Any, target: Any, **options: Any) -> Any:
    return lambda x, t: tl.hinge_embedding_loss(x, t, **options), [x, target]


ROWS: dict[str, Call] = {
    "relu": plain("relu"), "relu6": plain("relu6"), "leaky_relu": plain("leaky_relu", "negative_slope"),
    "elu": plain("elu", "alpha"), "selu": plain("selu"), "gelu": plain("gelu"), "silu": plain("silu"), "mish": plain("mish"),
    "softplus": plain("softplus", "beta", "threshold"), "softsign": plain("softsign"), "hardswish": plain("hardswish"),
    "hardtanh": plain("hardtanh", "min_val", "max_val", min_val="min", max_val="max"), "logsigmoid": plain("logsigmoid"),
    "glu": plain("glu", "dim", dim="axis"), "prelu": slopes,
    "mse_loss": loss("mse_loss"), "l1_loss": loss("l1_loss"), "smooth_l1_loss": loss("smooth_l1_loss"),
    "huber_loss": loss("huber_loss"),
    "kl_div": loss("kl_div"), "poisson_nll_loss": loss("poisson_nll_loss"), "hinge_embedding_loss": pairs,
    "binary_cross_entropy": loss("binary_cross_entropy", 2, "weight"),
    "binary_cross_entropy_with_logits": loss("binary_cross_entropy_with_logits", 2, "weight", "pos_weight"),
    "triplet_margin_loss": loss("triplet_margin_loss", 3), "cosine_similarity": similarity, "cosine_embedding_loss": embedding,
    "cross_entropy": of_classes("cross_entropy"), "nll_loss": of_classes("nll_loss"),
    "layer_norm": normalized("layer_norm"), "rms_norm": normalized("rms_norm"), "group_norm": groups,
    "local_response_norm": response,
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # torch, of kl_div
def test_samples(backend: str, name: str) -> None:
    ran = 0
    given = samples(name)
    count = OF_JAX if backend == "jax" else SAMPLES
    for sample in given[:: max(len(given) // count, 1)]:
        arguments = (sample.input, *sample.args)
        converted = ROWS[name](*arguments, **sample.kwargs)
        if converted is None:
            continue
        ours, tensors = converted
        moved = {id(t): i for i, t in enumerate(tensors)}

        def theirs(*xs: Any, s: Any = sample, a: Any = arguments, m: Any = moved) -> Any:
            put = lambda v: xs[m[id(v)]] if id(v) in m else v  # noqa: E731
            return getattr(torch.nn.functional, name)(*map(put, a), **{k: put(v) for k, v in s.kwargs.items()})

        agree(backend, ours, theirs, *(t.detach().numpy() for t in tensors), by=[0], tolerance=1e-9)
        ran += 1
    assert ran >= min(2, len(given))


def test_a_difference_is_found() -> None:
    with pytest.raises(AssertionError, match="value"):
        agree("numpy", tl.silu, torch.nn.functional.gelu, np.ones(3))
