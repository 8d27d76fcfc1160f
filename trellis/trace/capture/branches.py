"""What a capture decides and replaces while the source runs: branches on values that are known, and functions of fixed sizes.

A graph is captured from a run of the source on fake tensors, which have no values. Some branches need none: a part that drops
with probability 0, a test for numbers that are not finite, an assertion.
"""

from __future__ import annotations

import ast
import linecache
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trellis.trace.errors import TranspileError, user_line


class _Chance(float):
    """A single random number inside a capture. Nothing is dropped with probability 0; any other branch on it is an error."""

    def __lt__(self, probability: float) -> bool:
        if probability > 0:
            raise TranspileError(
                f"{user_line()}: a part of the model runs with a chance of {probability} only, which a graph cannot hold; set "
                "the probability (`layerdrop`) to 0, or pass training=False"
            )
        return False


_REFUSED = {
    "_pack_padded_sequence": "pack_padded_sequence makes sizes of the lengths, which a graph cannot hold; pad, and mask the rest",
    "register_hook": "a hook changes gradients, which a graph cannot hold; compute with detach() instead",
}
_FINITE = {"isfinite": True, "isinf": False, "isnan": False}


class Branches(TorchFunctionMode):
    """Branches of models that a capture decides, and the end of a capture whose sizes grow without measure.

    Models drop whole layers by `if torch.rand([]) < probability`: that number is a `_Chance`. Models clamp what has
    overflowed, by `if torch.isinf(x).any()`: a graph is captured for numbers that are finite. Assertions about values hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, tuple[Any, bool]] = {}  # id of a tensor -> itself, and the value of its elements

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.rand and len(args) == 1 and tuple(args[0] if isinstance(args[0], (list, tuple)) else args) == ():
            return _Chance(0.5)
        name = getattr(function, "__name__", "")
        if name in _REPLACED:
            return _REPLACED[name](*args, **(kwargs or {}))
        if name in _REFUSED:
            raise TranspileError(f"{user_line()}: {_REFUSED[name]}")
        if name == "__set__" and function.__self__ is torch.Tensor.data:  # a change in place, as torch.export sees it
            with torch.no_grad():
                return args[0].copy_(args[1])
        _, value = self.known.get(id(args[0]), (None, None)) if args else (None, None)
        if name == "__bool__" and value is None:
            value = _asserted(sys._getframe(1))
        if name in ("__bool__", "item") and value is not None:
            return value
        result = function(*args, **(kwargs or {}))
        if name in _FINITE or (name in ("all", "any") and value is not None and len(args) == 1):
            self.known[id(result)] = result, bool(_FINITE.get(name, value))
        for size in result.shape if isinstance(result, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and size.node.expr.count_ops() > _LONGEST:
                raise _TooSymbolicError
        return result


def _asserted(frame: Any) -> bool | None:
    """What a tensor has to be at a line of `assert test`, or of `if test: raise ...`; None at any other line."""
    if frame.f_code.co_name == "_detect_is_causal_mask":
        return False  # torch only looks for a faster way: the mask is applied all the same
    for node in ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))):
        is_check = isinstance(node, ast.If) and all(isinstance(part, ast.Raise) for part in node.body)
        if not isinstance(node, ast.Assert) and not is_check:
            continue
        test, value = node.test, not is_check  # type: ignore[attr-defined]
        if not test.lineno <= frame.f_lineno <= test.end_lineno:
            continue
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, value = test.operand, not value
        return None if any(isinstance(part, (ast.Not, ast.IfExp)) for part in ast.walk(test)) else value
    return None


class _TooSymbolicError(Exception):
    """The size of a tensor is a formula that torch takes minutes to reason about."""


_LONGEST = 30  # operations in the formula of a size; those of 27 architectures have up to 11, the windows of Swin 121


# ---- functions whose kernels read sizes as numbers -----------------------------------------------------------------------------
def _stft(
    x: Any, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True,
    pad_mode: str = "reflect", normalized: bool = False, onesided: Any = None, return_complex: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """torch.stft, whose own kernel reads the sizes of its argument as numbers, by ops that keep them symbols."""
    lead, window = x.shape[:-1], _padded(window, win_length or n_fft, n_fft)
    if center:
        x = torch.nn.functional.pad(x.reshape(1, -1, x.shape[-1]), (n_fft // 2, n_fft // 2), pad_mode)
        x = x.reshape(*lead, x.shape[-1])
    frames = x.unfold(-1, n_fft, hop_length or n_fft // 4) * window
    whole = onesided is False or (onesided is None and frames.is_complex())
    made = (torch.fft.fft if whole else torch.fft.rfft)(frames, norm="ortho" if normalized else None).transpose(-1, -2)
    return made if return_complex else torch.view_as_real(made)


def _istft(
    x: Any, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True,
    normalized: bool = False, onesided: Any = None, length: Any = None, return_complex: bool = False,
) -> Any:  # fmt: skip
    """torch.istft in the same way: the sum of the frames over that of the squares of the window."""
    hop, window = hop_length or n_fft // 4, _padded(window, win_length or n_fft, n_fft)
    inverse = torch.fft.ifft if onesided is False or return_complex else torch.fft.irfft
    frames = inverse(x.reshape(-1, *x.shape[-2:]), n=n_fft, dim=-2, norm="ortho" if normalized else None)
    frames = frames if return_complex else frames.real
    whole = n_fft + hop * (x.shape[-1] - 1)

    def added(frames: Any) -> Any:
        places = torch.arange(n_fft)[:, None] + hop * torch.arange(frames.shape[-1])
        return frames.new_zeros((frames.shape[0], whole)).index_add(1, places.flatten(), frames.flatten(1))

    start = n_fft // 2 if center else 0
    kept = slice(start, whole - start if length is None else start + length)
    weights = added((window**2)[None, :, None].expand(1, n_fft, x.shape[-1]))[:, kept]
    made = added(frames * window[:, None])[:, kept] / weights  # the window is 0 at the ends, which are cut off before
    return made.reshape(*x.shape[:-2], made.shape[-1])


def _padded(window: Any, length: int, n_fft: int) -> Any:
    left = (n_fft - length) // 2
    return torch.nn.functional.pad(torch.ones(length) if window is None else window, (left, n_fft - length - left))


def _fill_diagonal(x: Any, value: float, wrap: bool = False) -> Any:
    """Tensor.fill_diagonal_, which torch.export does for the sizes of the example only, without `wrap`."""
    if wrap or x.ndim != 2:
        return torch.ops.aten.fill_diagonal_(x, value, wrap)
    x.diagonal().fill_(value)
    return x


_REPLACED = {"stft": _stft, "istft": _istft, "fill_diagonal_": _fill_diagonal}
