"""The arguments of every public function: from its signature, or by the builder of its family where shapes hang together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fuzz import builders, drawing
from fuzz.builders import Arguments
from fuzz.drawing import Rng, array, broadcastable, chance, pick, shape


class Case(NamedTuple):
    """A call of `tl.<function>` on plain data: NumPy arrays stand for the arrays of every backend."""

    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __str__(self) -> str:
        given = [drawing.text(v) for v in self.args] + [f"{k}={drawing.text(v)}" for k, v in self.kwargs.items()]
        return f"tl.{self.function}({', '.join(given)})"


# Functions that set or move something, take functions, or read a pattern: other tests run these.
LEFT_OUT = {
    "accumulate", "backends", "from_dlpack", "rearrange", "reduce", "repeat_axes", "seed", "sequential_schedule", "to_backend",
    "to_device", "warmup_schedule",
}  # fmt: skip


def functions() -> dict[str, Callable[..., Any]]:
    """Name -> public function, those of linalg and fft with their prefix."""
    from trellis import ops, optim, random
    from trellis.ops import fft, linalg

    found = {}
    for prefix, module in (("", ops), ("", random), ("", optim), ("linalg.", linalg), ("fft.", fft)):
        for name in module.__all__:
            made = getattr(module, name)
            if inspect.isfunction(made) and name not in LEFT_OUT:
                found[prefix + name] = made
    return found


def draw(rng: Rng, name: str, function: Callable[..., Any]) -> Case:
    short = name.rpartition(".")[2]
    build = builders.BUILDERS.get(short)
    args, kwargs = _from_signature(rng, function) if build is None else build(rng)
    if build is not None:
        _add_options(rng, function, kwargs, len(args))
        _name_some(rng, function, args, kwargs)
    place = int(rng.integers(len(args))) if args else 0
    if chance(rng, 0.02) and args:
        args[place] = None
    elif chance(rng, 0.02) and args and isinstance(args[place], np.ndarray):
        args[place] = args[place].tolist()
    return Case(name, tuple(args), kwargs)


def _name_some(rng: Rng, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """The last positional arguments by keyword, where the signature allows it."""
    names = list(inspect.signature(function).parameters.values())
    if not any(p.kind is p.VAR_POSITIONAL for p in names):
        while args and chance(rng, 0.15) and names[len(args) - 1].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            kwargs[names[len(args) - 1].name] = args.pop()


# ---- from a signature ----------------------------------------------------------------------------------------------------------
_CHOICES: dict[str, list[Any]] = {
    "approximate": ["none", "tanh", True, "erf"],
    "constant_values": [0, 1, 2.5, np.array(1.5, "float32"), np.array(2)],
    "copy": [None, True],
    "correction": [0, 1, 0.5, 3.0],
    "data_format": ["channel_last", "channel_first"],
    "descending": [False, True],
    "dtype": [None, "float32", "float64", "int64", "int32", "float16", "bfloat16", "bool", "complex64", "uint8"],
    "indexing": ["xy", "ij"],
    "method": ["linear", "lower", "higher", "nearest", "midpoint"],
    "nan": [0.0, 7.0],
    "norm": ["backward", "ortho", "forward"],
    "ord": [2, 1, np.inf, 0, 3],
    "q": [0.5, 0.25, [0.1, 0.9], np.array([0.0, 1.0])],
    "reduction": ["mean", "sum", "none", "average"],
    "side": ["left", "right"],
    "stable": [True],  # an unstable order is not defined
    "uplo": ["L", "U"],
}
_FLOATS = [0.0, 0.5, 1.0, 2.0]
_LEAVE_OUT = {"device", "backend", "seed", "copy"}


def _from_signature(rng: Rng, function: Callable[..., Any]) -> Arguments:
    main = shape(rng)
    mixed = chance(rng, 0.4)
    first = drawing.dtype(rng)
    arrays = 0
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        required = p.default is p.empty and p.kind is not p.VAR_POSITIONAL
        if p.name in _LEAVE_OUT and p.name != "seed":
            continue
        if p.name == "seed":
            kwargs["seed"] = int(rng.integers(100))
            continue
        if not required and p.kind is not p.VAR_POSITIONAL and chance(rng, 0.6):
            if p.kind is p.POSITIONAL_ONLY:
                break
            continue
        for _ in range(int(rng.integers(1, 4)) if p.kind is p.VAR_POSITIONAL else 1):
            kind = str(p.annotation)
            if "AnyArray" in kind or "Operand" in kind:
                name = drawing.dtype(rng) if mixed else first
                value: Any = array(rng, main if not arrays else broadcastable(rng, main), name)
                if "Operand" in kind and chance(rng, 0.25):
                    value = drawing.number(rng)
                elif chance(rng, 0.02):
                    value = value.tolist()
                elif value.ndim == 0 and chance(rng, 0.2):
                    value = value[()]
                arrays += 1
            else:
                value = _static(rng, p, len(main))
            if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) or (required and chance(rng, 0.7) and not kwargs):
                args.append(value)
            else:
                kwargs[p.name] = value
    return args, kwargs


def _add_options(rng: Rng, function: Callable[..., Any], kwargs: dict[str, Any], given: int) -> None:
    """Static keywords that a builder did not set."""
    for i, p in enumerate(inspect.signature(function).parameters.values()):
        if p.name == "seed":
            kwargs.setdefault("seed", int(rng.integers(100)))
        elif i < given or p.kind is not p.KEYWORD_ONLY or p.name in kwargs or p.name in _LEAVE_OUT or chance(rng, 0.6):
            continue
        elif "Array" not in str(p.annotation) and "Operand" not in str(p.annotation) and p.name not in _STRUCTURAL:
            kwargs[p.name] = _static(rng, p, 2)


_STRUCTURAL = {
    "dims", "groups", "feature_group_count", "dilations", "x_dilations", "filter_format", "data_format", "output_shape", "axis",
    "num_heads", "n", "s", "axes", "num_segments", "length", "range", "divisor_override", "noise_shape", "size", "dim", "window",
    "is_causal", "dropout_p", "max_norm", "return_attention_weights", "dtype", "scale_factor", "align_corners", "antialias",
    "mode", "ceil_mode", "training", "batch_dims", "blank", "shape",
}  # fmt: skip


def _static(rng: Rng, p: inspect.Parameter, rank: int) -> Any:
    kind = str(p.annotation)
    if p.name in ("axis", "axes") and ("Axis" in kind or "int" in kind or "Ints" in kind):
        return drawing.axis(rng, kind, rank)
    if p.name in _CHOICES:
        return pick(rng, _CHOICES[p.name])
    if "bool" in kind:
        return chance(rng, 0.5)
    if p.name == "shape" or "Shape" in kind:
        return pick(rng, [(), (2,), 3, (2, 3), (0, 2)])
    if "int" in kind and "float" not in kind:
        return int(rng.integers(-1, 4)) if chance(rng, 0.9) else pick(rng, [np.int64(1), drawing.Small.TWO, np.uint8(2), True])
    if "float" in kind:
        return pick(rng, _FLOATS) if chance(rng, 0.9) else pick(rng, [1, np.float32(0.5), np.float64(1.5), drawing.Small.TWO])
    return p.default if p.default is not p.empty else 1
