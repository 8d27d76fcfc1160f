"""Builders: the arguments of functions whose shapes hang together, one function per family."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz import drawing
from fuzz.drawing import Rng, array, axis as _axis, broadcastable, chance, pick, shape

Arguments = tuple[list[Any], dict[str, Any]]
Builder = Callable[[Rng], Arguments]

BUILDERS: dict[str, Builder] = {}


def _builds(*names: str) -> Callable[[Callable[..., Arguments]], Callable[..., Arguments]]:
    """A builder of one family; it may take the name of the function."""

    def register(build: Callable[..., Arguments]) -> Callable[..., Arguments]:
        takes_name = len(inspect.signature(build).parameters) == 2
        for name in names:
            BUILDERS[name] = (lambda rng, build=build, name=name: build(rng, name)) if takes_name else build
        return build

    return register


def _floats(rng: Rng, sizes: tuple[int, ...], name: str | None = None) -> Any:
    return array(rng, sizes, name or drawing.dtype(rng, floats=0.85), special=0.03)


class _Dtypes:
    """One dtype for all arrays of a call, or one for each."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.mixed, self.first = rng, chance(rng, 0.35), drawing.dtype(rng, floats=0.85)

    def __call__(self, *sizes: int) -> Any:
        return array(self.rng, sizes, drawing.dtype(self.rng, floats=0.7) if self.mixed else self.first, special=0.03)


def _square(rng: Rng, definite: bool) -> Any:
    n = int(rng.integers(0 if chance(rng, 0.1) else 1, 4))
    batch = pick(rng, [(), (), (2,), (2, 1), (0,)])
    name = pick(rng, ["float32", "float64", "complex64", "complex128", "int32", "float16"])
    x = array(rng, (*batch, n, n), "complex128" if name.startswith("c") else "float64", special=0.0)
    if definite:
        x = x @ np.conj(np.swapaxes(x, -1, -2)) + 2 * np.eye(n)
    else:
        x = x + 6 * np.eye(n)  # far from singular: the four agree to rounding
    return x.astype(name)


@_builds("det", "inv", "slogdet", "expm", "matrix_power", "eig", "eigvals")
def _of_square(rng: Rng, name: str) -> Arguments:
    return [_square(rng, False), *([int(rng.integers(-2, 4))] if name == "matrix_power" else [])], {}


@_builds("cholesky", "eigh", "eigvalsh", "logm", "sqrtm")
def _of_definite(rng: Rng) -> Arguments:
    return [_square(rng, True)], {}


@_builds("cholesky_solve")
def _of_factor(rng: Rng) -> Arguments:
    factor = np.linalg.cholesky(np.asarray(_square(rng, True), "complex128")).real  # its diagonal is far from 0
    right = factor.shape[-1:] if chance(rng, 0.4) else (*factor.shape[:-1], 2)
    return [factor.astype(pick(rng, ["float32", "float64"])), array(rng, right, drawing.dtype(rng), special=0.0)], {}


@_builds("cov", "corrcoef")
def _of_observations(rng: Rng, name: str) -> Arguments:
    """More observations than variables: where a variance is 0, a quotient of rounding errors is left."""
    x = array(rng, (2, 5), drawing.dtype(rng), special=0.0) + np.arange(5, dtype="uint8") * np.array([[1], [2]], "uint8")
    weights = {"weights": array(rng, (5,), pick(rng, ["float32", "int32"]), low=1, high=4, special=0.0)}
    return [x], weights if name == "cov" and chance(rng, 0.4) else {}


@_builds("solve", "solve_triangular", "lstsq")
def _systems(rng: Rng, name: str) -> Arguments:
    a = _square(rng, False)
    right = a.shape[:-1] if a.ndim == 2 and chance(rng, 0.4) else (*a.shape[:-1], 2)
    return [a, array(rng, right, a.dtype.name if chance(rng, 0.7) else "float64", special=0.0)], {}


@_builds("qr", "svd", "svdvals", "pinv", "matrix_rank", "matrix_norm", "matrix_transpose", "trace", "diagonal", "tril", "triu")
def _of_matrix(rng: Rng) -> Arguments:
    sizes = (*pick(rng, [(), (2,), (2, 2)]), int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    return [array(rng, sizes, drawing.dtype(rng), special=0.0)], {}


@_builds("matmul", "vecdot", "outer", "tensordot", "cross", "kron")
def _products(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    n = int(rng.integers(1, 4))
    if name == "outer":
        return [make(n), make(int(rng.integers(0, 3)))], {}
    if name == "cross":
        return [make(2, 3), make(*pick(rng, [(2, 3), (1, 3), (3,)]))], {}
    if name == "vecdot":
        return [make(2, n), make(*pick(rng, [(2, n), (1, n), (n,)]))], {}
    if name == "tensordot":
        return [make(2, n, 2), make(2, 2, n)], {"axes": pick(rng, [0, ((0, 1), (1, 2)), ((2,), (0,)), 1])}
    if name == "kron":
        return [make(*shape(rng, 0, 3)), make(*shape(rng, 0, 2))], {}
    left, right = pick(
        rng, [((2, n), (n, 2)), ((n,), (n,)), ((n,), (n, 2)), ((2, 2, n), (n,)), ((3, 1, 2, n), (2, n, 2)), ((2, 0), (0, 3))]
    )
    return [make(*left), make(*right)], {}


@_builds("einsum")
def _einsum(rng: Rng) -> Arguments:
    make = _Dtypes(rng)
    equation, shapes = pick(rng, [
        ("ij,jk->ik", [(2, 3), (3, 2)]), ("ii->i", [(2, 2)]), ("ij->", [(2, 3)]), ("...i,...i->...", [(2, 3), (3,)]),
        ("ij,ij", [(2, 2), (2, 2)]), ("i,j->ji", [(2,), (3,)]), ("abc->cab", [(2, 1, 3)]),
    ])  # fmt: skip
    return [equation, *(make(*s) for s in shapes)], {}


@_builds("take", "take_along_axis", "gather", "embedding", "one_hot", "segment_sum", "segment_max", "segment_min", "scatter")
def _indexed(rng: Rng, name: str) -> Arguments:
    integer = pick(rng, ["int64", "int32", "uint8", "int8"])
    x = array(rng, shape(rng, 1, 3), drawing.dtype(rng))
    low, high = (-1, max(x.shape[0], 1)) if name in ("take", "take_along_axis") else (0, max(x.shape[0], 1) + chance(rng, 0.05))
    ids = array(rng, (3,), integer, low=low, high=max(high, 1))
    if name == "take":
        return [x, ids], {"axis": 0} if x.ndim > 1 or chance(rng, 0.5) else {}
    if name == "take_along_axis":
        return [x, array(rng, (2, *x.shape[1:]), integer, low=low, high=max(high, 1))], {"axis": 0}
    if name == "gather":
        return [x, ids.reshape(3, 1) if chance(rng, 0.8) else ids], {}
    if name == "embedding":
        return [ids, array(rng, (max(x.shape[0], 1), 2), drawing.dtype(rng, floats=0.9))], {}
    if name == "one_hot":
        return [ids, 4], {}
    if name == "scatter":
        return [array(rng, (3, 1), integer, low=0, high=4), array(rng, (3, 2), drawing.dtype(rng)), (4, 2)], {
            "mode": pick(rng, ["add", "set", "max", "min"])
        }
    return [x, array(rng, x.shape[:1], integer, low=0, high=3)], {"num_segments": 3} if chance(rng, 0.7) else {}


@_builds("reshape", "permute_dims", "moveaxis", "squeeze", "expand_dims", "broadcast_to", "tile", "roll", "pad", "repeat", "flip")
def _moved(rng: Rng, name: str) -> Arguments:
    x = array(rng, shape(rng), drawing.dtype(rng, floats=0.4))
    rank = x.ndim
    if name == "reshape":
        return [x], {"shape": pick(rng, [(-1,), (x.size,), (*x.shape, 1), x.shape[::-1], (1, -1), (2, -1)])}
    if name == "permute_dims":
        return [x], {"axes": tuple(int(a) - rank * chance(rng, 0.2) for a in rng.permutation(rank))}
    if name == "moveaxis":
        axes = [int(a) for a in rng.permutation(max(rank, 1))]
        return [x, axes[0], axes[-1]] if chance(rng, 0.5) else [x, tuple(axes[:2]), tuple(axes[-2:])], {}
    if name == "squeeze":
        return [x], {"axis": int(rng.integers(-rank - 1, rank + 1))}
    if name == "expand_dims":
        return [x], {"axis": int(rng.integers(-rank - 2, rank + 2))}
    if name == "broadcast_to":
        return [x], {"shape": (2, *(3 if n == 1 else n for n in x.shape))}
    if name == "tile":
        return [x, tuple(int(n) for n in rng.integers(0, 3, size=int(rng.integers(0, rank + 2))))], {}
    if name == "roll":
        return [x], {"shift": int(rng.integers(-5, 6))} | (
            {"axis": int(rng.integers(-rank, rank))} if rank and chance(rng, 0.6) else {}
        )
    if name == "repeat":
        counts = (
            int(rng.integers(-1, 3)) if chance(rng, 0.6) else array(rng, (x.shape[0] if rank else 1,), "int64", low=0, high=3)
        )
        return [x, counts], {"axis": 0} if rank and chance(rng, 0.8) else {}
    if name == "flip":
        return [x], {"axis": _axis(rng, "Axis | None", rank)}
    mode = pick(rng, ["constant", "reflect", "edge", "symmetric", "wrap"])
    width = pick(rng, [1, 0, (1, 2), tuple((int(a), int(b)) for a, b in rng.integers(0, 3, size=(rank, 2)))])
    return [x, width], {"mode": mode} | ({"constant_values": pick(rng, [0, 2, 5.0, True])} if mode == "constant" else {})


@_builds("concat", "stack")
def _joined(rng: Rng, name: str) -> Arguments:
    make, sizes = _Dtypes(rng), shape(rng, 0 if name == "stack" else 1)
    parts: list[Any] = [make(*sizes) for _ in range(int(rng.integers(1, 4)))]
    if name == "concat" and sizes and chance(rng, 0.3):
        parts.append(make(int(rng.integers(0, 3)), *sizes[1:]))
    if name == "stack" and not sizes and chance(rng, 0.3):
        parts.append(drawing.number(rng))
    return [parts], {"axis": pick(rng, [0, -1, None] if name == "concat" else [0, -1, len(sizes)])}


@_builds("meshgrid")
def _meshgrid(rng: Rng) -> Arguments:
    make = _Dtypes(rng)
    return [make(int(rng.integers(0, 4))) for _ in range(int(rng.integers(1, 4)))], {}


@_builds("searchsorted", "interp", "histogram", "bincount", "isin")
def _searched(rng: Rng, name: str) -> Arguments:
    kind = drawing.dtype(rng)
    points = np.sort(array(rng, (5,), "float64" if kind in drawing.COMPLEX else kind, special=0.0))
    if name == "searchsorted":
        return [points, array(rng, shape(rng, 0, 2), kind, special=0.0)], {}
    if name == "interp":
        xs = np.unique(array(rng, (4,), "float64", special=0.0))
        return [array(rng, (3,), drawing.dtype(rng, floats=0.9)), xs, array(rng, xs.shape, "float64")], {}
    if name == "histogram":
        return [points, int(rng.integers(1, 4))], {}
    if name == "bincount":
        x = array(rng, (4,), pick(rng, ["int64", "int32", "uint8"]), low=0, high=4)
        return [x], {"weights": array(rng, (4,), kind, special=0.0)} if chance(rng, 0.5) else {}
    return [array(rng, shape(rng, 0, 2), kind), array(rng, (3,), kind)], {}


def _windows(rng: Rng, name: str) -> tuple[int, dict[str, Any], Any, Any, int]:
    """Dimensions, keywords with a layout, strides, padding, and the size of a window."""
    dims = int(name[-1:]) if name[-1:] in "123" else next((int(n) for n in "123" if f"{n}d" in name), 2)
    letters = {1: "W", 2: "HW", 3: "DHW"}[dims]
    last = chance(rng, 0.6)
    layout = (
        (f"N{letters}C" if last else f"NC{letters}") if "general" not in name else ("channel_last" if last else "channel_first")
    )
    strides = int(rng.integers(1, 3)) if chance(rng, 0.7) else tuple(int(n) for n in rng.integers(1, 4, size=dims))
    padding = pick(rng, ["SAME", "VALID", "same", 1, [(1, 0)] * dims])
    return dims, {"data_format": layout}, strides, padding, int(rng.integers(1, 4))


def _image(make: Callable[..., Any], dims: int, layout: str, channels: int, size: int) -> Any:
    space = [size] * dims
    return make(2, *space, channels) if layout[-1] in "Ct" and not layout.endswith("first") else make(2, channels, *space)


_CONVOLUTIONS = [f"conv{n}d{t}" for n in "123" for t in ("", "_transpose")]


@_builds(*_CONVOLUTIONS, "conv_general_dilated", "conv_general_transpose", "depthwise_conv2d")
def _convolution(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    dims, kwargs, strides, padding, window = _windows(rng, name)
    groups = pick(rng, [1, 1, 2])
    size = int(rng.integers(window, 6))
    x = _image(make, dims, kwargs["data_format"], 4, size)
    if name == "depthwise_conv2d":
        filters = make(window, window, 4) if chance(rng, 0.5) else make(window, window, 4, 2)
    elif "transpose" in name:
        filters = make(*[window] * dims, 4, 4 // groups)
    else:
        filters = make(*[window] * dims, 4 // groups, 4)
    dilations = pick(rng, [1, 1, 2, tuple(int(n) for n in rng.integers(1, 3, size=dims))])
    if dilations != 1:
        kwargs["dilations"] = dilations
    if groups > 1 and name != "depthwise_conv2d":
        kwargs["feature_group_count" if "general" in name else "groups"] = groups
    if name != "depthwise_conv2d" and chance(rng, 0.4):
        kwargs["bias"] = make(4)
    return [x, filters, strides, padding], kwargs


_POOLS = [f"{kind}_pool{n}d" for kind in ("max", "avg", "lp") for n in "123"]


@_builds(*_POOLS)
def _pooling(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    dims, kwargs, strides, padding, window = _windows(rng, name)
    x = _image(make, dims, kwargs["data_format"], 2, int(rng.integers(window, 6)))
    if chance(rng, 0.3):
        kwargs["dilations"] = 2
    if chance(rng, 0.3):
        kwargs["ceil_mode"] = True
    padding = pick(rng, ["SAME", "VALID", window // 2])
    return [x, *([2.0] if name.startswith("lp") else []), window, strides, padding], kwargs


@_builds(*(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in "123"), "global_avg_pool", "global_max_pool")
def _adaptive(rng: Rng, name: str) -> Arguments:
    dims, kwargs, _, _, _ = _windows(rng, name)
    if name.startswith("global"):
        kwargs["data_format"] = pick(rng, ["channel_last", "channel_first"])
    x = _image(_Dtypes(rng), dims, kwargs["data_format"], 2, int(rng.integers(1, 6)))
    return [x, *([] if name.startswith("global") else [int(rng.integers(1, 4))])], kwargs


@_builds("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "local_response_norm", "prelu")
def _normalized(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    last = chance(rng, 0.6)
    space = shape(rng, 0 if name in ("batch_norm", "layer_norm", "rms_norm", "prelu") else 1, 3)
    x = make(2, *space, 4) if last else make(2, 4, *space)
    kwargs: dict[str, Any] = (
        {} if name in ("layer_norm", "rms_norm") else {"data_format": "channel_last" if last else "channel_first"}
    )
    per_channel = make(4) if name not in ("layer_norm", "rms_norm") else make(x.shape[-1])
    if name not in ("local_response_norm", "prelu") and chance(rng, 0.5):
        kwargs["scale"] = per_channel
    if name == "batch_norm":
        variance = np.abs(make(4)) if chance(rng, 0.9) else make(4)
        return [x, make(4), variance], kwargs | {"training": chance(rng, 0.5)}
    extra = {"group_norm": [2], "local_response_norm": [3], "prelu": [per_channel]}.get(name, [])
    return [x, *extra], kwargs


@_builds(
    "linear",
    "scaled_dot_product_attention",
    "multi_head_attention",
    "rotary_embedding",
    "dropout",
    "glu",
    "swiglu",
    "segment_mask",
    "padding_mask",
)
def _attention(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    batch = pick(rng, [(), (2,), (2, 1)])
    if name == "linear":
        return [make(*batch, 3), make(2, 3)], {"bias": make(2)} if chance(rng, 0.5) else {}
    if name == "dropout":
        return [make(*batch, 3), pick(rng, [0.0, 0.5, 1.0])], {"training": chance(rng, 0.5)}
    if name in ("glu", "swiglu"):
        return [make(*batch, 4)], {}
    if name == "rotary_embedding":
        return [make(*batch, 3, 4)], {}
    if name == "segment_mask":
        return [array(rng, (2, 3), "int64", low=0, high=2)], {}
    if name == "padding_mask":
        return [array(rng, (3,), "int64", low=0, high=4), 4], {}
    if name == "multi_head_attention":
        return [make(2, 3, 4)], {"num_heads": 2, "in_proj_weights": make(12, 4), "is_causal": chance(rng, 0.5)}
    kwargs: dict[str, Any] = {"is_causal": True} if chance(rng, 0.3) else {}
    if chance(rng, 0.4):
        kwargs["mask"] = array(rng, pick(rng, [(3, 2), (1, 2)]), pick(rng, ["bool", "bool", "float32", "int32"]), special=0.0)
    return [make(*batch, 3, 4), make(*batch, 2, 4), make(*batch, 2, 4)], kwargs


@_builds("lstm_update", "gru_update", "rnn_update")
def _recurrent(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    gates = {"lstm_update": 4, "gru_update": 3, "rnn_update": 1}[name]
    states = [make(2, 2)] * (2 if gates == 4 else 1)
    kwargs: dict[str, Any] = {"bias": make(2 * gates)} if chance(rng, 0.5) else {}
    return [make(2, 3, 3), *states, make(3, 2 * gates), make(2, 2 * gates)], kwargs


@_builds("cross_entropy", "nll_loss")
def _classes(rng: Rng) -> Arguments:
    logits = _floats(rng, (3, 4))
    target = array(rng, (3,), pick(rng, ["int64", "int32", "uint8", "int8"]), low=0, high=4)
    return [logits, target], {"weight": _floats(rng, (4,))} if chance(rng, 0.3) else {}


@_builds("ctc_loss")
def _ctc(rng: Rng) -> Arguments:
    log_probs = np.log(rng.dirichlet(np.ones(3), size=(4, 2))).astype(pick(rng, ["float32", "float64"]))
    return [log_probs, array(rng, (2, 2), "int64", low=1, high=3), np.array([4, 3]), np.array([2, 1])], {}


@_builds("cosine_embedding_loss", "triplet_margin_loss", "cosine_similarity")
def _pairs(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    third = {"cosine_embedding_loss": [np.array([1, -1])], "triplet_margin_loss": [make(2, 3)]}.get(name, [])
    return [make(2, 3), make(2, 3), *third], {}


@_builds("interpolate", "resize", "grid_sample", "pixel_shuffle", "pixel_unshuffle", "unfold", "fold")
def _images(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    if name in ("interpolate", "resize"):
        return [make(2, 3, 4, 2), int(rng.integers(1, 6))], {"mode": pick(rng, ["nearest", "bilinear", "bicubic", "area"])}
    if name == "grid_sample":
        return [make(2, 3, 4, 2), array(rng, (2, 2, 2, 2), "float32", special=0.0) / np.float32(4)], {
            "mode": pick(rng, ["bilinear", "nearest"])
        }
    if name == "unfold":
        return [make(2, 4, 4, 2), 2], {}
    if name == "fold":
        return [make(2, 9, 8), (4, 4), 2], {}
    return [make(2, 2, 4, 4), 2], {}


@_builds("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn")
def _transformed(rng: Rng, name: str) -> Arguments:
    real = name in ("rfft", "ihfft", "rfftn")
    kind = pick(rng, drawing.FLOATS[:2] if real else [*drawing.COMPLEX, "float32"])
    x = array(rng, shape(rng, 1, 3), kind if not chance(rng, 0.2) else drawing.dtype(rng), special=0.0)
    if name.endswith("n"):
        return [x], {"norm": pick(rng, ["backward", "ortho"])}
    return [x], {"n": int(rng.integers(1, 6))} if chance(rng, 0.4) else {}


@_builds("full", "full_like", "linspace", "arange", "eye")
def _created(rng: Rng, name: str) -> Arguments:
    sizes = shape(rng, 0, 3)
    value = drawing.number(rng) if chance(rng, 0.7) else array(rng, (), drawing.dtype(rng))
    if name == "full":
        return [sizes, value], {}
    if name == "full_like":
        return [array(rng, sizes, drawing.dtype(rng)), value], {}
    if name == "linspace":
        return [pick(rng, [0, 0.5, -1]), pick(rng, [1, 3.0, 0]), int(rng.integers(0, 5))], {}
    if name == "eye":
        return [int(rng.integers(0, 4)), pick(rng, [None, 2, 3])], {}
    return [pick(rng, [0, 3, 1.5]), pick(rng, [None, 5, 4.5, -2]), pick(rng, [1, 2, 0.5, -1])], {}


@_builds("clip")
def _clip(rng: Rng) -> Arguments:
    make, sizes = _Dtypes(rng), shape(rng)
    bounds = [pick(rng, [None, -1, 0, 0.5, 2]) if chance(rng, 0.6) else make(*broadcastable(rng, sizes)) for _ in range(2)]
    return [make(*sizes), *bounds], {}


@_builds("top_k")
def _top_k(rng: Rng) -> Arguments:
    values = rng.permutation(12).reshape(3, 4)  # no ties: their order is not defined
    return [values.astype(drawing.np_dtype(drawing.dtype(rng))), int(rng.integers(0, 5))], {}


@_builds("multinomial", "choice", "randint", "gamma", "beta", "poisson", "dirichlet", "bernoulli")
def _drawn(rng: Rng, name: str) -> Arguments:
    if name == "multinomial":
        return [4, 2], {"batch_size": 2}
    if name == "choice":
        return [pick(rng, [5, array(rng, (4,), drawing.dtype(rng))])], {"shape": (3,), "replace": chance(rng, 0.5)}
    if name == "randint":
        return [pick(rng, [0, -3]), pick(rng, [5, 2**40, 200])], {"shape": (3,)}
    positive = np.abs(array(rng, (3,), pick(rng, drawing.FLOATS), special=0.0)) + 1
    if name == "bernoulli":
        return [0.3], {"shape": (4,)}
    return [positive.astype(positive.dtype), *([2.0] if name == "beta" else [])], {}


@_builds("permutation", "shuffle", "split", "fold_in")
def _shuffled(rng: Rng, name: str) -> Arguments:
    if name in ("split", "fold_in"):
        return [int(rng.integers(100)), int(rng.integers(0, 4))], {}
    x = array(rng, shape(rng, 0, 3), drawing.dtype(rng))
    axis = {"axis": int(rng.integers(-x.ndim, x.ndim))} if x.ndim and chance(rng, 0.5) else {}
    if name == "shuffle":
        return [x, *axis.values()], {}
    return [x if chance(rng, 0.8) else int(rng.integers(0, 5))], axis


@_builds("gradient_descent_update", "optimizer_update", "lars_update", "adam_update", "adam_step", "lamb_update")
def _updates(rng: Rng, name: str) -> Arguments:
    """One shape, and statistics that are not negative."""
    make, sizes = _Dtypes(rng), shape(rng)
    states = [make(*sizes), np.abs(make(*sizes)) if chance(rng, 0.9) else make(*sizes)]
    rate = pick(rng, [0.1, 1, 0.0, np.float32(0.5), array(rng, (), "float32"), make(*sizes)])
    step = pick(rng, [1, 3, np.int64(2), np.array(4), np.array(2.0, "float32")])
    if name == "adam_step":
        return [make(*sizes), *states, step], {}
    return [make(*sizes), make(*sizes), rate, *([*states, step] if name in ("adam_update", "lamb_update") else [])], {}


@_builds("clip_by_global_norm", "clip_by_value", "global_norm")
def _clipped(rng: Rng, name: str) -> Arguments:
    make = _Dtypes(rng)
    grads = make(*shape(rng)) if chance(rng, 0.3) else [make(*shape(rng, 0, 2)) for _ in range(int(rng.integers(1, 4)))]
    return [grads, *([] if name == "global_norm" else [pick(rng, [1.0, 0.5, 0, 3, -1.0])])], {}


_RATE = [0.1, 1.0, 0, 2]


@_builds(*(f"{name}_schedule" for name in ("constant", "cosine", "exponential", "linear", "polynomial", "step", "one_cycle")))
def _schedule(rng: Rng, name: str) -> Arguments:
    steps = int(rng.integers(0 if chance(rng, 0.1) else 1, 8))
    extra = {"constant_schedule": [], "exponential_schedule": [0.5], "linear_schedule": [pick(rng, _RATE), steps]}
    return [pick(rng, _RATE), *extra.get(name, [steps])], {}


@_builds("piecewise_schedule")
def _piecewise(rng: Rng) -> Arguments:
    return [[0.1, 0.2, 0.05], pick(rng, [[2, 4], [3, 3], (1, 5), [4]])], {}


@_builds("asarray", "can_cast", "isdtype", "result_type", "finfo", "iinfo", "broadcast_shapes")
def _of_dtypes(rng: Rng, name: str) -> Arguments:
    def kind() -> Any:
        return pick(rng, drawing.ALL) if chance(rng, 0.6) else array(rng, shape(rng, 0, 1), drawing.dtype(rng))

    if name == "asarray":
        x = array(rng, shape(rng), drawing.dtype(rng))
        options = {"dtype": pick(rng, drawing.ALL)} if chance(rng, 0.5) else {}
        return [pick(rng, [x, x.tolist(), drawing.number(rng), [drawing.number(rng), 2], (1, [2])])], options
    if name == "broadcast_shapes":
        sizes = shape(rng)
        return [sizes, *(broadcastable(rng, sizes) for _ in range(int(rng.integers(0, 3))))], {}
    if name == "isdtype":
        kinds = ["bool", "integral", "real floating", "numeric", "complex floating", "signed integer"]
        return [pick(rng, drawing.ALL), pick(rng, [*kinds, ("bool", "integral"), "int8", "words"])], {}
    if name == "can_cast":
        return [kind(), pick(rng, drawing.ALL)], {}
    if name == "result_type":
        return [kind() if chance(rng, 0.8) else drawing.number(rng) for _ in range(int(rng.integers(0, 4)))], {}
    return [kind()], {}
