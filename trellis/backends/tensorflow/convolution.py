"""Convolutions out of the kernels that TensorFlow has on every device.

On a CPU those take channel-last arrays only, and their gradients know neither dilations nor groups. So: channel-first arrays are
transposed; groups are split, but for depthwise filters; a dilated convolution is a batch of plain ones over every d-th element.
Each piece has derivatives to any order, and none asks for a size that a graph does not know. Half precision runs in float32.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_nn_ops

from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.arrangement import on_channel_last, padded, padded_with, reshaped, transposed
from trellis.backends.tensorflow.meta import cast, is_traced, shape_of, tensor
from trellis.backends.tensorflow.operands import HALF
from trellis.backends.tensorflow.shapes import at_least_zero, product, same_padding, sizes, vector


def convolution(
    x: Any, filters: Any, bias: Any, *, strides: Any, padding: Any, x_dilations: Any, dilations: Any, groups: int,
    channel_last: bool, filter_channel_last: bool,
) -> Any:  # fmt: skip
    if not filter_channel_last:
        filters = transposed(tensor(filters), (*range(2, len(strides) + 2), 1, 0))
    flat = len(strides) == 1  # a line is an image of one row
    if flat:
        pairs = padding if isinstance(padding, str) else ((0, 0), *padding)
        strides, padding, x_dilations, dilations = (1, *strides), pairs, (1, *x_dilations), (1, *dilations)

    def run(x: Any, filters: Any) -> Any:
        return _correlate(_with_zeros(x, x_dilations), filters, strides, padding, dilations, groups)

    return _in_layout(run, x, filters, bias, flat, channel_last)


def transposed_convolution(
    x: Any, filters: Any, bias: Any, *, strides: Any, padding: Any, output_shape: Any, dilations: Any, groups: int,
    channel_last: bool,
) -> Any:  # fmt: skip
    flat = len(strides) == 1
    if flat:
        strides, padding, output_shape, dilations = (1, *strides), ((0, 0), *padding), (1, *output_shape), (1, *dilations)
    options = (strides, padding, output_shape, dilations, groups)
    return _in_layout(lambda x, filters: _adjoint(x, filters, *options), x, filters, bias, flat, channel_last)


def _in_layout(run: Kernel, x: Any, filters: Any, bias: Any, flat: bool, channel_last: bool) -> Any:
    """`run` on channel-last images or spaces of a dtype that all kernels have. If they are `flat`, lines are given."""
    given, wide = x.dtype, tf.float32 if x.dtype in HALF else x.dtype

    def on_images(x: Any) -> Any:
        if shape_of(x)[0] == 0:  # oneDNN's kernels give an empty batch the shape of their input
            return on_images(padded_with(x, [(0, 1), *[(0, 0)] * (len(x.shape) - 1)]))[:0]
        if flat:
            images = run(gen_array_ops.expand_dims(x, 1), gen_array_ops.expand_dims(cast(tensor(filters), wide), 0))
            result = gen_array_ops.squeeze(images, [1])
        else:
            result = run(x, cast(tensor(filters), wide))
        return result if bias is None else gen_nn_ops.bias_add(result, cast(tensor(bias), wide))

    return cast(on_channel_last(on_images, cast(tensor(x), wide), channel_last), given)


# ---- convolution of channel-last arrays ----------------------------------------------------------------------------------------
def _correlate(x: Any, filters: Any, strides: Any, padding: Any, dilations: Any, groups: int) -> Any:
    kernel = _plain
    if groups > 1:
        steps = {s // math.gcd(s, d) for s, d in zip(strides, dilations)}  # those of the kernel, in `_dilated` too
        if filters.shape[-2] == 1 and len(steps) == 1 and len(strides) == 2:
            filters = reshaped(filters, (*filters.shape[:2], groups, filters.shape[-1] // groups))
            kernel = _depthwise
        else:
            parts = zip(tf.split(x, groups, -1), tf.split(filters, groups, -1))
            return tf.concat([_correlate(a, b, strides, padding, dilations, 1) for a, b in parts], -1)
    if max(dilations) == 1:
        return kernel(x, filters, strides, padding)
    return _dilated(kernel, x, filters, strides, padding, dilations)


def _plain(x: Any, filters: Any, strides: Any, padding: Any) -> Any:
    steps = [1, *strides, 1]
    if len(strides) == 2:
        if strides[0] != strides[1] and x.shape[-1] == 1 != x.shape[1]:
            # one channel, strides (1, s) and a result of one column: the kernel in float32 reads memory that is not its own
            x, filters = padded_with(x, [(0, 0)] * 3 + [(0, 1)]), padded_with(filters, [(0, 0)] * 2 + [(0, 1), (0, 0)])
        return gen_nn_ops.conv2d(x, filters, steps, **_padding(padding))
    name, x = (padding, x) if isinstance(padding, str) else ("VALID", padded(x, padding))
    return gen_nn_ops.conv3d(x, filters, steps, name)


def _depthwise(x: Any, filters: Any, strides: Any, padding: Any) -> Any:
    """The kernels take one stride for both axes. TensorFlow's optimizer of graphs ends the process at their explicit padding."""
    if is_traced(x) and not isinstance(padding, str):
        x, padding = padded(x, padding), ((0, 0), (0, 0))
    return gen_nn_ops.depthwise_conv2d_native(x, filters, [1, *strides, 1], **_padding(padding))


def _padding(padding: Any) -> dict[str, Any]:
    """The arguments of a kernel for images."""
    if isinstance(padding, str):
        return {"padding": padding}
    if not any(map(any, padding)):
        return {"padding": "VALID"}
    return {"padding": "EXPLICIT", "explicit_paddings": [0, 0, *(n for p in padding for n in p), 0, 0]}


def _dilated(kernel: Kernel, x: Any, filters: Any, strides: Any, padding: Any, dilations: Any) -> Any:
    """Windows that start at s * (q * phases + r) read elements d apart from s * r on: for each r, a plain convolution.

    With one element in d left, the windows of a phase are s * phases / d apart. All phases go into one batch.
    """
    batch, *spatial, _ = sizes(x)
    window = filters.shape[: len(strides)]
    if isinstance(padding, str):
        padding = [same_padding(n, (k - 1) * d + 1, s) for n, k, s, d in zip(spatial, window, strides, dilations)]
    rows_of_axes = zip(spatial, padding, window, strides, dilations)
    counts = [(n + low + high - (k - 1) * d - 1) // s + 1 for n, (low, high), k, s, d in rows_of_axes]
    phases = [d // math.gcd(s, d) for s, d in zip(strides, dilations)]
    steps = [s * p // d for s, p, d in zip(strides, phases, dilations)]
    rows = [-(-count // p) for count, p in zip(counts, phases)]
    lengths = [(row - 1) * step + k for row, step, k in zip(rows, steps, window)]
    needed = [(p - 1) * s + (length - 1) * d + 1 for p, s, length, d in zip(phases, strides, lengths, dilations)]
    ends = [(low, at_least_zero(m - n - low)) for n, (low, _), m in zip(spatial, padding, needed)]
    x = padded(x, ends)
    parts = []
    for starts in itertools.product(*(range(0, p * s, s) for p, s in zip(phases, strides))):
        axes = zip(starts, lengths, dilations)
        parts.append(x[(slice(None), *(slice(a, a + (n - 1) * d + 1, d) for a, n, d in axes))])
    result = kernel(tf.concat(parts, 0), filters, steps, ((0, 0),) * len(strides))
    dims, channels = len(strides), result.shape[-1]
    split = reshaped(result, (*phases, batch, *rows, channels))
    order = (dims, *(i for axis in range(dims) for i in (dims + 1 + axis, axis)), 2 * dims + 1)
    together = reshaped(transposed(split, order), (batch, *(r * p for r, p in zip(rows, phases)), channels))
    return together[(slice(None), *(slice(0, n) for n in counts))]


def _with_zeros(x: Any, steps: Any) -> Any:
    """`x` with step - 1 zeros between its elements along each spatial axis."""
    for axis, step in enumerate(steps, 1):
        if step > 1:
            own = list(sizes(x))
            elements = reshaped(x, (product(own[: axis + 1]), 1, product(own[axis + 1 :])))
            own[axis] = own[axis] * step
            spread = reshaped(padded_with(elements, [(0, 0), (0, step - 1), (0, 0)]), own)
            x = spread[(*(slice(None),) * axis, slice(0, own[axis] - step + 1))]
    return x


# ---- its adjoint ---------------------------------------------------------------------------------------------------------------
def _adjoint(x: Any, filters: Any, strides: Any, padding: Any, output_shape: Any, dilations: Any, groups: int) -> Any:
    batch, *spatial, _ = sizes(x)
    *window, _, outside = filters.shape
    rows = zip(spatial, window, strides, padding, dilations, output_shape)
    # an unknown size of the result is the one that follows from x
    wanted = [n * s + max((k - 1) * d + 1 - s, 0) - low - high if m is None else m for n, k, s, (low, high), d, m in rows]
    if max(dilations) > 1:
        return _adjoint_by_zeros(x, filters, strides, padding, wanted, dilations, groups)
    if groups > 1 and outside == 1 and len(set(strides)) == 1 and len(strides) == 2:
        filters = reshaped(filters, (*window, groups, filters.shape[-2] // groups))
        shape = vector((batch, *(m + low + high for m, (low, high) in zip(wanted, padding)), groups))
        steps = [1, *strides, 1]
        result = gen_nn_ops.depthwise_conv2d_native_backprop_input(shape, filters, x, steps, "VALID")
        return _cut(result, padding, wanted) if any(map(any, padding)) else result
    if groups > 1:
        parts = zip(tf.split(x, groups, -1), tf.split(filters, groups, -2))
        return tf.concat([_plain_adjoint(a, b, strides, padding, wanted) for a, b in parts], -1)
    return _plain_adjoint(x, filters, strides, padding, wanted)


def _plain_adjoint(x: Any, filters: Any, strides: Any, padding: Any, wanted: Any) -> Any:
    dims, steps = len(strides), [1, *strides, 1]
    filters = transposed(filters, (*range(dims), dims + 1, dims))
    batch, channels = sizes(x)[0], shape_of(filters)[-2]
    if dims == 2:
        shape = vector((batch, *wanted, channels))
        return gen_nn_ops.conv2d_backprop_input(shape, filters, x, steps, **_padding(padding))
    shape = vector((batch, *(m + low + high for m, (low, high) in zip(wanted, padding)), channels))
    result = gen_nn_ops.conv3d_backprop_input_v2(shape, filters, x, steps, "VALID")
    return _cut(result, padding, wanted) if any(map(any, padding)) else result


def _adjoint_by_zeros(x: Any, filters: Any, strides: Any, padding: Any, wanted: Any, dilations: Any, groups: int) -> Any:
    """Zeros between the elements of x, then a convolution with the filters flipped."""
    dims = len(strides)
    *window, inside, outside = filters.shape
    filters = tf.reverse(filters, list(range(dims)))
    if groups > 1:  # [*window, in, out / groups] -> [*window, in / groups, out]
        split = reshaped(filters, (*window, groups, inside // groups, outside))
        order = (*range(dims), dims + 1, dims, dims + 2)
        filters = reshaped(transposed(split, order), (*window, inside // groups, groups * outside))
    x = _with_zeros(x, strides)
    reach = [(k - 1) * d for k, d in zip(window, dilations)]
    ends = [at_least_zero(low + m - n) for (low, _), m, n in zip(padding, wanted, sizes(x)[1:-1])]
    full = _correlate(x, filters, (1,) * dims, [*zip(reach, ends)], dilations, groups)
    return _cut(full, padding, wanted)


def _cut(x: Any, padding: Any, wanted: Any) -> Any:
    return x[(slice(None), *(slice(low, low + m) for (low, _), m in zip(padding, wanted)))]
