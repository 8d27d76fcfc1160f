"""Random programs of 5 to 30 ops on two float64 matrices, with gradients of order 1 and 2, as Python source."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from helpers import compiled, make

import trellis as tl
from fuzz.drawing import Rng, pick
from fuzz.forms import value_difference

# Formulas that keep (3, 3) and stay bounded. The first group is smooth everywhere; the second has kinks and jumps.
SMOOTH = [
    "tl.sin({a})", "tl.tanh({a})", "tl.exp(-{a} * {a})", "tl.log({a} * {a} + 1.0)", "tl.sqrt({a} * {a} + 0.5)", "{a} + {b}",
    "{a} - 0.5 * {b}", "tl.tanh({a}) * {b}", "{a} / ({b} * {b} + 1.0)", "tl.matmul({a}, {b}) / 3.0", "tl.softmax({a}, axis=-1)",
    "tl.matrix_transpose({a})", "tl.cumulative_sum({a}, axis=0) / 3.0", "tl.mean({a}, axis=0, keepdims=True) + {b}",
    "tl.concat([{a}[:1], {b}[1:]], axis=0)", "tl.roll({a}, 1, axis=1)", "tl.stack([{a}[0], {b}[1], {a}[2]])", "tl.erf({a})",
    "tl.expit({a}) * {b}", "tl.flip({a}, axis=0)", "tl.logsumexp({a}, axis=1, keepdims=True) - {b}",
    "tl.atan2({a}, {b} * {b} + 1.0)", "tl.pad({a}, 1)[1:4, 1:4]", "tl.einsum('ij,kj->ik', {a}, {b}) / 3.0",
    "tl.var({a}, axis=1, keepdims=True) * {b}", "tl.linear({a}, {b}) / 3.0", "tl.gelu({a})",
    "tl.diff({a}, axis=0, append={b}[:1])", "tl.tril({a}) + tl.triu({b}, k=1)", "tl.permute_dims({a}, (1, 0))",
    "tl.reshape(tl.reshape({a}, (9,)), (3, 3))", "tl.layer_norm({a}, eps=0.1)", "tl.rms_norm({a}, eps=0.1) + {b}",
    "tl.log_softmax({a}, axis=0) / 3.0", "tl.softplus({a}) - {b}", "tl.mish({a})", "tl.silu({a})", "tl.expm1(-tl.square({a}))",
    "tl.log1p(tl.square({a})) * {b}", "tl.hypot({a}, {b} * {b} + 1.0)", "tl.logaddexp({a}, {b})", "tl.i0(tl.tanh({a}))",
    "tl.digamma({a} * {a} + 1.0)", "tl.gammaln({a} * {a} + 1.0)", "tl.erfinv(0.5 * tl.tanh({a}))", "tl.asinh({a}) + {b}",
    "tl.xlogy({b}, {a} * {a} + 1.0)", "tl.atan({a})", "tl.cumulative_prod(tl.tanh({a}), axis=1)",
    "tl.prod(tl.tanh({a}), axis=0, keepdims=True) + {b}", "tl.tensordot({a}, {b}, axes=1) / 3.0", "tl.mse_loss({a}, {b}) + {a}",
    "tl.linalg.solve(0.2 * tl.tanh({a}) + 2.0 * {one}, {b})", "tl.linalg.det(0.2 * tl.tanh({a}) + {one}) * {b}",
    "tl.linalg.inv(0.2 * tl.sin({a}) + 2.0 * {one})", "tl.linalg.expm(0.3 * tl.tanh({a}))",
    "tl.linalg.cholesky(tl.matmul(tl.tanh({a}), tl.matrix_transpose(tl.tanh({a}))) + 2.0 * {one})",
    "tl.conv1d(tl.expand_dims({a}, axis=0), tl.expand_dims({b}, axis=0), 1, 'SAME')[0] / 3.0",
    "tl.conv2d(tl.reshape({a}, (1, 3, 3, 1)), tl.reshape({b}, (3, 3, 1, 1)), 1, 'SAME')[0, :, :, 0] / 3.0",
    "tl.avg_pool2d(tl.reshape({a}, (1, 3, 3, 1)), 2, 1, 'SAME')[0, :, :, 0]", "tl.scaled_dot_product_attention({a}, {b}, {a})",
    "tl.vmap(lambda r, s: r * tl.sum(s))({a}, {b}) / 3.0", "tl.at({a})[0].set({b}[1])", "tl.at({a})[1:, 0].add({b}[1:, 2])",
    "tl.scan(lambda c, r: (0.5 * c + tl.tanh(r), c * r), {a}[0], {b})[1]", "tl.real(tl.fft.fft({a})) / 3.0",
    "tl.fori_loop(0, 3, lambda i, x: 0.5 * x + tl.sin(x), {a})", "tl.fft.irfft(tl.fft.rfft({a}), n=3) + {b}",
]  # fmt: skip
KINKED = [
    "tl.abs({a})", "tl.maximum({a}, {b})", "tl.minimum({a}, 0.3)", "tl.where({a} > 0, {a}, {b})", "tl.clip({a}, -0.5, 0.5)",
    "tl.relu({a})", "tl.sort({a}, axis=1)", "tl.max({a}, axis=0, keepdims=True) + {b}",
    "tl.take({a}, tl.argsort({b}[0]), axis=1)", "tl.floor({a}) + {b}", "tl.sign({a}) * {b}", "tl.stop_gradient({a}) * {b}",
    "tl.cond(tl.sum({a}) > 0, lambda x, y: x * y, lambda x, y: x - y, {a}, {b})", "tl.huber_loss({a}, {b}) * {a}", "tl.elu({a})",
    "tl.linalg.vector_norm({a}, axis=1, keepdims=True) + {b}", "tl.quantile({a}, 0.3, axis=0, keepdims=True) - {b}",
    "tl.max_pool2d(tl.reshape({a}, (1, 3, 3, 1)), 2, 1, 'SAME')[0, :, :, 0]", "tl.top_k({a}, 3)[0] + {b}", "tl.hardswish({a})",
]  # fmt: skip

_ONE = "tl.tril(tl.triu(tl.ones_like({a})))"


class Program(NamedTuple):
    lines: tuple[str, ...]

    def __str__(self) -> str:
        body = "; ".join(self.lines)
        return f"def f(v0, v1): {body}; return tl.sum(v{len(self.lines) + 1})"

    @property
    def is_smooth(self) -> bool:
        return not any(part.split("(")[0] in line for line in self.lines for part in KINKED)

    def function(self) -> Any:
        names: dict[str, Any] = {"tl": tl, "np": np}
        exec(str(self), names)
        return names["f"]


def draw(rng: Rng) -> Program:
    lines = []
    for i in range(int(rng.integers(5, 31))):
        a, b = (f"v{int(n)}" for n in (i + 1 - min(i + 1, rng.integers(0, 3)), rng.integers(0, i + 2)))
        formula = pick(rng, KINKED if rng.random() < 0.2 else SMOOTH)
        lines.append(f"v{i + 2} = {formula.format(a=a, b=b, one=_ONE.format(a=a))}")
    return Program(tuple(lines))


def results(program: Program, backend: str, operands: tuple[Any, ...], as_arrays: bool, compile_it: bool) -> list[Any]:
    """Value, gradient, and the gradient of the gradient's squared norm."""
    f = program.function()
    native = [make(backend, x) for x in operands]
    given = [tl.asarray(x) for x in native] if as_arrays else native

    def second(v0: Any, v1: Any) -> Any:
        return tl.sum(tl.square(tl.grad(f)(v0, v1)))

    with tl.using(backend):
        run = compiled(backend, tl.value_and_grad(f)) if compile_it else tl.value_and_grad(f)
        value, gradient = run(*given)
        return [tl.to_numpy(x) for x in (value, gradient, tl.grad(second)(*given))]


def differences(program: Program, operands: tuple[Any, ...], backends: list[str], compile_it: bool) -> list[tuple[str, str]]:
    """(backend, what differs from NumPy), and from finite differences where the program is smooth."""
    found = []
    try:
        expected = results(program, "numpy", operands, False, False)
    except Exception as error:
        return [("numpy", f"{type(error).__name__}: {str(error)[:200]}")]
    if program.is_smooth and (text := _against_finite_differences(program, operands, expected[1])):
        found.append(("numpy", text))
    for backend in backends:
        for form in ("native", "array", *(["compiled"] if compile_it and backend != "numpy" else [])):
            try:
                got = results(program, backend, operands, form == "array", form == "compiled")
            except Exception as error:
                found.append((f"{backend}:{form}", f"{type(error).__name__}: {str(error)[:200]}"))
                continue
            for order, (a, b) in enumerate(zip(expected, got)):
                scale = 1e-7 * (1.0 + float(np.abs(a).max(initial=0.0)))
                if (
                    a.shape != b.shape
                    or (np.isfinite(a).all() and not np.allclose(a, b, rtol=1e-6, atol=scale))
                    or value_difference(np.isfinite(a), np.isfinite(b), 0)
                ):
                    found.append((f"{backend}:{form}", f"order {order}: {b.tolist()} instead of {a.tolist()}"[:300]))
                    break
    return found


def _against_finite_differences(program: Program, operands: tuple[Any, ...], gradient: Any) -> str:
    f = program.function()
    x, y = operands
    direction = np.cos(np.arange(x.size)).reshape(x.shape)
    step = 1e-6
    numeric = (float(f(x + step * direction, y)) - float(f(x - step * direction, y))) / (2 * step)
    exact = float(np.sum(gradient * direction))
    size = np.abs(gradient).sum() + abs(float(f(x, y))) + 1.0
    return "" if abs(numeric - exact) <= 1e-4 * size else f"gradient along a direction {exact}, by finite differences {numeric}"


def operands(rng: Rng) -> tuple[Any, ...]:
    return tuple(rng.normal(size=(3, 3)) for _ in range(2))


def reduced(program: Program, fails: Any, attempts: int = 30) -> Program:
    """The first lines, as few as still differ; then each line that need not be there as a copy of its first operand."""
    for n in range(1, len(program.lines)):
        if fails(Program(program.lines[:n])):
            program = Program(program.lines[:n])
            break
    for i in reversed(range(len(program.lines) - 1)):
        name = program.lines[i].partition(" =")[0]
        plain = Program((*program.lines[:i], f"{name} = v{int(name[1:]) - 1}", *program.lines[i + 1 :]))
        if attempts > 0 and program.lines[i] != plain.lines[i] and fails(plain):
            program = plain
        attempts -= 1
    return program
