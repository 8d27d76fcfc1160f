"""What a layer costs beside the framework's own function on the same values: `make bench`.

    python benchmarks/layers.py                                   every installed framework
    python benchmarks/layers.py --backend torch --case conv2d     one, and the cases whose name holds "conv2d"

Both run in turn, forward and with gradients by every array, eager and compiled, on one thread; a figure is the median over the
rounds of our CPU time divided by the framework's in the same round. The framework's function gets its arrays in the layout it
likes best; ours gets them as Trellis defines them. A layer is a row of CASES.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
from measuring import ratio

import trellis as tl

Function = Callable[..., Any]


@dataclass
class Case:
    shapes: tuple[tuple[int, ...], ...]
    ours: Function
    native: dict[str, Function]  # backend -> function of the arrays that `prepare` made
    prepare: dict[str, Function]  # backend -> our arrays as the framework likes them; left out: as they are
    target: float = 1.03
    size: float = 1.0  # of the numbers in the arrays


# ---- convolutions --------------------------------------------------------------------------------------------------------------
def convolution(shape: tuple[int, ...], filters: tuple[int, ...], stride: int, padding: int, first: bool = False) -> Case:
    """x with the channels last, or first; the filters as each framework has them."""
    dims = len(shape) - 2
    space = "DHW"[3 - dims :]
    data_format = f"NC{space}" if first else f"N{space}C"

    def ours(x: Any, f: Any) -> Any:
        return (tl.conv1d, tl.conv2d, tl.conv3d)[dims - 1](x, f, stride, padding, data_format=data_format)

    def with_torch(x: Any, f: Any) -> Any:
        from torch.nn import functional

        y = getattr(functional, f"conv{dims}d")(x if first else x.movedim(-1, 1), f, None, stride, padding)
        return y if first else y.movedim(1, -1)

    def with_jax(x: Any, f: Any) -> Any:
        from jax import lax

        layout = data_format, f"{space}IO", data_format
        return lax.conv_general_dilated(x, f, (stride,) * dims, [(padding, padding)] * dims, dimension_numbers=layout)

    def with_tensorflow(x: Any, f: Any) -> Any:
        tf: Any = importlib.import_module("tensorflow")
        x = tf.transpose(x, (0, *range(2, dims + 2), 1)) if first else x  # its CPU kernels have the channels last only
        pads = [[0, 0], *[[padding, padding]] * dims, [0, 0]]
        if dims == 2:
            y = tf.nn.conv2d(x, f, stride, pads)
        else:
            y = tf.nn.conv3d(tf.pad(x, pads), f, [1, *[stride] * dims, 1], "VALID")
        return tf.transpose(y, (0, dims + 1, *range(1, dims + 1))) if first else y

    prepare = {"torch": lambda x, f: (x, f.permute(dims + 1, dims, *range(dims)).contiguous())}
    target = 1.1 if first else 1.03
    return Case((shape, filters), ours, {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}, prepare, target)


def transposed(shape: tuple[int, ...], filters: tuple[int, ...], stride: int) -> Case:
    """Stride 2 and a padding of 1 on both sides: sizes become twice as large."""
    size = shape[1] * stride

    def ours(x: Any, f: Any) -> Any:
        return tl.conv2d_transpose(x, f, stride, 1, output_shape=(size, size))

    def with_torch(x: Any, f: Any) -> Any:
        from torch.nn import functional

        return functional.conv_transpose2d(x.movedim(-1, 1), f, None, stride, 1, stride - 1).movedim(1, -1)

    def with_jax(x: Any, f: Any) -> Any:
        from jax import lax

        pads = [(filters[0] - 2, filters[0] - 3 + stride)] * 2
        return lax.conv_transpose(x, f, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"), transpose_kernel=True)

    def with_tensorflow(x: Any, f: Any) -> Any:
        tf: Any = importlib.import_module("tensorflow")
        shape_of_result = (shape[0], size, size, filters[-1])
        return tf.nn.conv2d_transpose(x, f, shape_of_result, stride, [[0, 0], [1, 1], [1, 1], [0, 0]])

    prepare: dict[str, Function] = {
        "torch": lambda x, f: (x, f.permute(2, 3, 0, 1).contiguous()),
        "jax": lambda x, f: (x, f.swapaxes(-1, -2)),
        "tensorflow": lambda x, f: (x, tl.permute_dims(f, (0, 1, 3, 2))),
    }
    return Case((shape, filters), ours, {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}, prepare)


# ---- normalization -------------------------------------------------------------------------------------------------------------
def layer_norm(shape: tuple[int, ...]) -> Case:
    """Over the last axis, with scale and offset. JAX and TensorFlow have no such function: theirs is the formula in their terms.

    (jax.nn.standardize takes the difference of two squares for the variance, which a large mean leaves no digits of.)
    """

    def with_torch(x: Any, scale: Any, offset: Any) -> Any:
        from torch.nn import functional

        return functional.layer_norm(x, x.shape[-1:], scale, offset)

    def with_jax(x: Any, scale: Any, offset: Any) -> Any:
        from jax import lax, numpy as jnp

        mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + offset

    def with_tensorflow(x: Any, scale: Any, offset: Any) -> Any:
        tf: Any = importlib.import_module("tensorflow")
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-5)

    native: dict[str, Function] = {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}
    return Case((shape, shape[-1:], shape[-1:]), lambda x, s, o: tl.layer_norm(x, scale=s, offset=o), native, {})


# ---- attention and recurrence --------------------------------------------------------------------------------------------------
def attention(shape: tuple[int, ...]) -> Case:
    """[batch, heads, length, features]; jax.nn.dot_product_attention has heads after length, TensorFlow products and softmax."""

    def with_torch(q: Any, k: Any, v: Any) -> Any:
        from torch.nn import functional

        return functional.scaled_dot_product_attention(q, k, v)

    def with_jax(q: Any, k: Any, v: Any) -> Any:
        import jax

        return jax.nn.dot_product_attention(q, k, v)

    def with_tensorflow(q: Any, k: Any, v: Any) -> Any:
        tf: Any = importlib.import_module("tensorflow")
        scores = tf.matmul(q * (1 / math.sqrt(shape[-1])), k, transpose_b=True)
        return tf.matmul(tf.nn.softmax(scores), v)

    native: dict[str, Function] = {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}
    prepare: dict[str, Function] = {"jax": lambda *arrays: tuple(x.swapaxes(1, 2).copy() for x in arrays)}
    return Case((shape,) * 3, lambda q, k, v: tl.scaled_dot_product_attention(q, k, v), native, prepare)


def multi_head_attention(shape: tuple[int, ...], heads: int) -> Case:
    """Self-attention of x [batch, length, features] with all projections, beside torch.nn.MultiheadAttention's function."""
    width = shape[-1]

    def ours(x: Any, w: Any, b: Any, out: Any, c: Any) -> Any:
        weights = {"in_proj_weights": w, "in_proj_bias": b, "out_proj_weights": out, "out_proj_bias": c}
        return tl.multi_head_attention(x, num_heads=heads, **weights)

    def with_torch(x: Any, w: Any, b: Any, out: Any, c: Any) -> Any:
        from torch.nn import functional

        x = x.transpose(0, 1)  # as the module does it for a batch that comes first
        options = (width, heads, w, b, None, None, False, 0.0, out, c)
        return functional.multi_head_attention_forward(x, x, x, *options, need_weights=False)[0].transpose(0, 1)

    shapes = (shape, (3 * width, width), (3 * width,), (width, width), (width,))
    return Case(shapes, ours, {"torch": with_torch}, {}, size=0.1)


def lstm(shape: tuple[int, ...], size: int) -> Case:
    """x [batch, time, in]. Beside torch.lstm with its weights [4 * out, in], lax.scan written by hand, and Keras's layer."""
    batch, _, features = shape

    def ours(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        return tl.lstm_update(x, h, c, kernel, recurrent, bias=bias)[0]

    def with_torch(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        import torch

        weights = kernel, recurrent, bias, torch.zeros_like(bias)
        return torch.lstm(x, (h[None], c[None]), weights, True, 1, 0.0, False, False, True)[0]

    def with_jax(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        import jax
        from jax import numpy as jnp

        def step(state: Any, inputs: Any) -> Any:
            i, f, g, o = jnp.split(inputs + state[0] @ recurrent, 4, -1)
            new_c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
            return (new_h, new_c), new_h

        return jnp.swapaxes(jax.lax.scan(step, (h, c), jnp.swapaxes(x @ kernel + bias, 0, 1))[1], 0, 1)

    keras: list[Any] = []

    def with_tensorflow(x: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        tf: Any = importlib.import_module("tensorflow")
        if not keras:
            with tf.init_scope():
                keras.append(tf.keras.layers.LSTM(size, return_sequences=True))
                keras[0].build(shape)
        frozen = [v.value for v in keras[0].non_trainable_variables]
        return keras[0].stateless_call([kernel, recurrent, bias], frozen, x, initial_state=[h, c])[0]

    native: dict[str, Function] = {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}
    prepare = {"torch": lambda x, h, c, k, r, b: (x, h, c, k.T.contiguous(), r.T.contiguous(), b)}
    shapes = (shape, (batch, size), (batch, size), (features, 4 * size), (size, 4 * size), (4 * size,))
    return Case(shapes, ours, native, prepare, 1.1, 0.1)  # torch has no kernels of this layout; large gates make it chaotic


CASES: dict[str, Case] = {
    "conv2d 8x32x32x32 -> 64, 3x3": convolution((8, 32, 32, 32), (3, 3, 32, 64), 1, 1),
    "conv2d 1x224x224x3 -> 64, 7x7, stride 2": convolution((1, 224, 224, 3), (7, 7, 3, 64), 2, 3),
    "conv2d 8x32x32x32 -> 64, channels first": convolution((8, 32, 32, 32), (3, 3, 32, 64), 1, 1, first=True),
    "conv3d 2x16x16x16x8 -> 16, 3x3x3": convolution((2, 16, 16, 16, 8), (3, 3, 3, 8, 16), 1, 1),
    "conv2d_transpose 8x16x16x64 -> 32, 3x3, stride 2": transposed((8, 16, 16, 64), (3, 3, 64, 32), 2),
    "layer_norm 8x128x256": layer_norm((8, 128, 256)),
    "attention 8 heads, 8x128x256": attention((8, 8, 128, 32)),
    "multi_head_attention 8 heads, 8x128x256": multi_head_attention((8, 128, 256), 8),
    "lstm 8x128x256 -> 256": lstm((8, 128, 256), 256),
}


# ---- one framework: how a function is run, with gradients or without -----------------------------------------------------------
def modes(backend: str, function: Function, arrays: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """The ways that this framework runs a function: name -> call."""
    return {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow}[backend](function, arrays)


def _torch(function: Function, arrays: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    import torch

    torch.set_num_threads(1)
    leaves = [a.clone().requires_grad_() for a in arrays]

    def forward() -> Any:
        with torch.no_grad():
            return function(*arrays)

    return {"eager": forward, "eager, gradients": lambda: torch.autograd.grad(function(*leaves).sum(), leaves)}


def _jax(function: Function, arrays: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    import jax

    wait = jax.block_until_ready
    compiled = jax.jit(function)
    gradients = jax.jit(jax.grad(lambda *arrays: function(*arrays).sum(), argnums=tuple(range(len(arrays)))))
    return {
        "eager": lambda: wait(function(*arrays)),
        "jit": lambda: wait(compiled(*arrays)),
        "jit, gradients": lambda: wait(gradients(*arrays)),
    }


def _tensorflow(function: Function, arrays: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    import tensorflow as tf

    def both(*arrays: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(arrays)
            total = tf.reduce_sum(function(*arrays))
        return tape.gradient(total, arrays)

    compiled, gradients = tf.function(function, autograph=False), tf.function(both, autograph=False)
    return {
        "eager": lambda: function(*arrays),
        "function": lambda: compiled(*arrays),
        "function, gradients": lambda: gradients(*arrays),
    }


# ---- measuring -----------------------------------------------------------------------------------------------------------------
def check(name: str, ours: Any, native: Any) -> None:
    """Both compute the same numbers; their axes may have another order."""
    found, expected = (np.sort(tl.to_numpy(x), axis=None) for x in (ours, native))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3, err_msg=f"{name}: the two compute different things")


def run(backend: str, part: str, rounds: int) -> None:
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    rng = np.random.default_rng(0)
    print(f"{backend:<70}{'native ms':>10}{'ratio':>8}{'target':>8}")
    for name, case in CASES.items():
        if part not in name or backend not in case.native:
            continue
        arrays = tuple(
            tl.asarray((case.size * rng.normal(size=s)).astype("float32"), backend=backend).native for s in case.shapes
        )
        prepared = case.prepare.get(backend, lambda *arrays: arrays)(*arrays)
        check(name, case.ours(*arrays), case.native[backend](*prepared))
        ours, native = modes(backend, case.ours, arrays), modes(backend, case.native[backend], prepared)
        for mode in ours:
            found, milliseconds = ratio(ours[mode], native[mode], rounds)
            print(f"  {name + ': ' + mode:<68}{milliseconds:>10.3f}{found:>8.3f}{case.target:>8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["torch", "jax", "tensorflow"])
    parser.add_argument("--case", default="", help="only cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    if args.backend:
        run(args.backend, args.case, args.rounds)
        return
    for backend in ("torch", "jax", "tensorflow"):  # a process each: they share no threads and no memory
        if importlib.util.find_spec(backend) is not None:
            options = ["--case", args.case, "--rounds", str(args.rounds)]
            subprocess.run([sys.executable, __file__, "--backend", backend, *options], check=True)


if __name__ == "__main__":
    main()
