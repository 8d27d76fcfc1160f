"""tl.Array in the functions of NumPy, JAX, torch and TensorFlow, and in Python's protocols: type and values of what comes out."""

from __future__ import annotations

import copy
import operator
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from helpers import BACKENDS, bfloat16, check, make

import trellis as tl
from trellis.core.interop import UFUNCS

VALUES = np.float32([[1.0, 2.0], [3.0, 4.0]])


def array(backend: str, value: Any = VALUES) -> tl.Array:
    return tl.Array(make(backend, value))


def is_array_on(x: Any, backend: str) -> bool:
    return isinstance(x, tl.Array) and x.backend == backend


# ---- operators with native arrays ----------------------------------------------------------------------------------------------
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
             operator.matmul, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]  # fmt: skip
INTEGER_OPERATORS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
# JAX and TensorFlow ask an Array on the right for its data and answer with their own array; NumPy and torch leave it to us.
NATIVE_FIRST_GIVES_ARRAY = {"numpy": True, "torch": True, "jax": False, "tensorflow": False}


@pytest.mark.parametrize("function", OPERATORS, ids=lambda f: f.__name__)
def test_operators_with_native_arrays(backend: str, function: Any):
    x, y = VALUES, np.float32([[2.0, 1.0], [3.0, 5.0]])
    out = function(array(backend, x), make(backend, y))
    assert is_array_on(out, backend)
    check(out, function(x, y))
    out = function(make(backend, x), array(backend, y))
    assert isinstance(out, tl.Array) is NATIVE_FIRST_GIVES_ARRAY[backend]
    check(out, function(x, y))


@pytest.mark.parametrize("function", INTEGER_OPERATORS, ids=lambda f: f.__name__)
def test_integer_operators_with_native_arrays(backend: str, function: Any):
    x, y = np.int32([4, 5, 6]), np.int32([1, 2, 3])
    for out in (function(array(backend, x), make(backend, y)), function(make(backend, x), array(backend, y))):
        check(out, function(x, y))


@pytest.mark.xdist_group("torch")
def test_promotion_with_a_native_array_first():
    pytest.importorskip("torch")
    ints = make("torch", np.int64([1, 2]))
    out = ints + array("torch", np.float64(0.5))  # torch alone would give float32: it takes a 0-d tensor for a number
    assert out.dtype is tl.float64
    with pytest.raises(TypeError, match="no common dtype"):
        make("torch", np.uint64([1])) + array("torch", np.int64([1]))


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")  # torch takes the Array for a list, then asks it
def test_indexing_a_native_array_with_an_array(backend: str):
    native, index = make(backend, VALUES), array(backend, np.int64([1, 0]))
    if backend in ("jax", "tensorflow"):  # JAX does not ask an index for its data, and a tf.Tensor takes no arrays as indices
        with pytest.raises((TypeError, ValueError)):
            native[index]
    else:
        assert isinstance(native[index], tl.Array) is (backend == "torch")
        check(native[index], VALUES[[1, 0]])
        check(native[:, index], VALUES[:, [1, 0]])
        check(native[array(backend, np.array([False, True]))], VALUES[[False, True]])
    out = tl.Array(native)[index]
    assert is_array_on(out, backend)
    check(out, VALUES[[1, 0]])


def test_other_frameworks_are_refused():
    if not {"torch", "jax"} <= set(BACKENDS):
        pytest.skip("needs torch and jax")
    with pytest.raises(TypeError, match="two frameworks"):
        array("torch") + array("jax")
    with pytest.raises(TypeError, match="two frameworks"):
        make("torch", VALUES) + array("jax")
    with pytest.raises(TypeError, match="two frameworks"):
        VALUES + array("torch")
    with pytest.raises(TypeError, match=r'torch\.exp: the Array is on jax; .*tl\.to_backend\(x, "torch"\)'):
        sys.modules["torch"].exp(array("jax"))
    with pytest.raises(TypeError, match=r'the Array is on torch; bring it to jax first: tl\.to_backend\(x, "jax"\)'):
        array("torch").__jax_array__()
    with pytest.raises(TypeError, match="the Array is on torch; bring it to tensorflow first"):
        array("torch").__tf_tensor__()


# ---- torch ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("torch")
def test_torch_functions():
    torch = pytest.importorskip("torch")
    x = array("torch")
    for out, expected in [
        (torch.exp(x), np.exp(VALUES)),
        (torch.cat([x, make("torch", VALUES)]), np.concatenate([VALUES, VALUES])),
        (torch.add(x, x, alpha=2), VALUES * 3),
        (torch.nn.functional.relu(x - 2), np.maximum(VALUES - 2, 0)),
        (torch.nn.functional.linear(make("torch", VALUES), weight=x), VALUES @ VALUES.T),
        (torch.where(x > 2, x, 0.0), np.where(VALUES > 2, VALUES, 0)),
        (torch.sum(x, dim=0), VALUES.sum(0)),
    ]:
        assert is_array_on(out, "torch")
        check(out, expected)
    values, indices = torch.max(x, 0)
    assert is_array_on(values, "torch")
    assert is_array_on(indices, "torch")
    assert all(is_array_on(part, "torch") for part in torch.split(x, 1))
    assert torch.numel(x) == 4
    assert torch.is_floating_point(x) is True


@pytest.mark.xdist_group("torch")
def test_torch_functions_that_change_their_arguments():
    torch = pytest.importorskip("torch")
    x = array("torch")
    out = array("torch", np.zeros((2, 2), np.float32))
    assert torch.exp(x, out=out) is out
    check(out, np.exp(VALUES))
    tensor = make("torch", VALUES)
    same = tensor
    tensor += x
    assert tensor is same
    check(tensor, 2 * VALUES)
    tensor[0] = array("torch", np.float32([9.0, 9.0]))
    check(tensor[0], np.float32([9, 9]))


@pytest.mark.xdist_group("torch")
def test_torch_gradients_flow():
    torch = pytest.importorskip("torch")
    data = torch.ones(3, requires_grad=True)
    torch.sum(torch.exp(tl.Array(data))).native.backward()
    check(data.grad, np.exp(np.ones(3, np.float32)))


# ---- NumPy ---------------------------------------------------------------------------------------------------------------------
def test_numpy_ufuncs(backend: str):
    x = array(backend)
    for out, expected in [
        (np.exp(x), np.exp(VALUES)),
        (np.absolute(-x), VALUES),
        (np.add(x, x), VALUES + VALUES),
        (np.power(x, 2), VALUES**2),
        (np.multiply(2.0, x), 2 * VALUES),
        (np.matmul(x, x), VALUES @ VALUES),
        (np.rint(x / 2), np.rint(VALUES / 2)),
        (np.float32(2) * x, 2 * VALUES),
    ]:
        assert is_array_on(out, backend)
        check(out, expected)


def test_every_ufunc_in_the_table_is_an_op():
    assert all(hasattr(tl, op) for op in UFUNCS.values())
    missing = {name for name in dir(np) if isinstance(getattr(np, name), np.ufunc) and getattr(np, name).__name__ not in UFUNCS}
    assert missing == {
        "bitwise_count", "cbrt", "deg2rad", "degrees", "divmod", "exp2", "fabs", "float_power", "fmax", "fmin", "fmod", "frexp",
        "gcd", "heaviside", "isnat", "lcm", "ldexp", "logaddexp2", "matvec", "modf", "rad2deg", "radians", "spacing", "vecdot",
        "vecmat",
    }  # fmt: skip


UFUNC_ERRORS = [
    (lambda x: np.exp(x, out=np.zeros((2, 2))), "out= and in-place operators"),
    (lambda x: operator.iadd(np.zeros((2, 2)), x), "write x = x"),
    (lambda x: np.subtract.reduce(x), r"np\.subtract\.reduce\(\) does not work"),
    (lambda x: np.exp(x, dtype="float64"), "dtype does not work"),
    (lambda x: np.spacing(x), r"np\.spacing has no op"),
    (lambda x: np.add(x, {1, 2}), "got builtins.set"),
]


@pytest.mark.parametrize(("mistake", "message"), UFUNC_ERRORS)
def test_ufunc_errors(backend: str, mistake: Any, message: str):
    with pytest.raises(TypeError, match=message):
        mistake(array(backend))


def test_numpy_converts(backend: str):
    x = array(backend)
    assert type(np.asarray(x)) is np.ndarray
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert type(np.concatenate([x, x])) is tl.Array  # by our op of that name, on the backend of x
    assert np.array(x, copy=True).flags.writeable
    check(np.asarray(x), VALUES)
    np.testing.assert_allclose(x, VALUES)


def test_numpy_writes_to_the_array_or_not_at_all(backend: str):
    x = array(backend)
    assert np.clip(x, 2, None, out=x) is x
    check(x, np.clip(VALUES, 2, None))
    with pytest.raises(ValueError, match="read-only"):
        np.copyto(x, 5.0)


def test_numpy_shares_memory():
    data = np.zeros(3)
    assert np.asarray(tl.Array(data)) is data or np.shares_memory(np.asarray(tl.Array(data)), data)
    with pytest.raises(ValueError):
        np.asarray(tl.Array(data), dtype=np.int8, copy=False)


# ---- JAX -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("jax")
def test_jax_functions():
    jax = pytest.importorskip("jax")
    x = array("jax")
    out = jax.numpy.exp(x)
    assert isinstance(out, jax.Array)
    check(out, np.exp(VALUES))
    check(jax.nn.relu(x), VALUES)


@pytest.mark.xdist_group("jax")
def test_jax_transformations_take_arrays():
    jax = pytest.importorskip("jax")
    x = array("jax")
    out = jax.jit(lambda x, y: {"sum": x + y, "native": y})(x, make("jax", VALUES))
    assert is_array_on(out["sum"], "jax")
    assert isinstance(out["native"], jax.Array)
    grad = jax.grad(lambda x: tl.sum(x * x).native)(x)
    assert is_array_on(grad, "jax")
    check(grad, 2 * VALUES)
    assert is_array_on(jax.vmap(lambda row: row * 2)(x), "jax")
    assert [leaf.shape for leaf in jax.tree.leaves({"a": x})] == [(2, 2)]
    assert is_array_on(jax.tree.map(lambda leaf: leaf + 1, x), "jax")


# ---- TensorFlow ----------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("tensorflow")
def test_tensorflow_functions():
    tf = pytest.importorskip("tensorflow")
    x = array("tensorflow")
    out = tf.exp(x)
    assert tf.is_tensor(out)
    check(out, np.exp(VALUES))
    check(tf.concat([x, make("tensorflow", VALUES)], 0), np.concatenate([VALUES, VALUES]))
    check(tf.convert_to_tensor(x), VALUES)
    check(tf.reduce_sum(x), VALUES.sum())
    with pytest.raises((TypeError, ValueError)):
        tf.convert_to_tensor(x, dtype=tf.int32)


# ---- pytrees -------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("torch")
def test_torch_pytree():
    torch = pytest.importorskip("torch")
    import torch.utils._pytree as pytree

    x = array("torch")
    leaves, spec = pytree.tree_flatten({"a": x})
    assert leaves[0] is x.native
    assert is_array_on(pytree.tree_unflatten(leaves, spec)["a"], "torch")
    grad = torch.func.grad(lambda x: tl.sum(x * x).native)(x)
    assert is_array_on(grad, "torch")
    check(grad, 2 * VALUES)


@pytest.mark.xdist_group("torch")
def test_torch_compile_takes_arrays():
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    out = torch.compile(lambda x: tl.exp(x) + 1, fullgraph=True, backend="eager")(array("torch"))
    assert is_array_on(out, "torch")
    check(out, np.exp(VALUES) + 1)


def test_optree(backend: str):
    optree = pytest.importorskip("optree")
    x = array(backend)
    assert optree.tree_leaves({"a": x})[0] is x.native
    assert is_array_on(optree.tree_map(lambda leaf: leaf * 2, x), backend)


@pytest.mark.parametrize("lines", ["import optree, trellis as tl", "import trellis as tl, optree; tl.Container()"])
def test_optree_knows_arrays_without_being_told(lines: str):
    pytest.importorskip("optree")
    code = f"{lines}; x = tl.ones(2); print([type(leaf).__name__ for leaf in optree.tree_leaves([x, tl.Container(a=x)])])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "['ndarray', 'ndarray']\n", done.stderr


def test_trellis_trees_take_arrays_for_leaves(backend: str):
    x = array(backend)
    assert tl.tree.leaves({"a": [x]})[0] is x


# ---- DLPack --------------------------------------------------------------------------------------------------------------------
def test_dlpack_into_numpy(backend: str):
    out = np.from_dlpack(array(backend))
    assert type(out) is np.ndarray
    check(out, VALUES)
    assert tuple(array(backend).__dlpack_device__()) == (1, 0)


def test_dlpack_into_torch(backend: str):
    torch = pytest.importorskip("torch")
    out = torch.from_dlpack(array(backend))
    assert isinstance(out, torch.Tensor)
    check(out, VALUES)


def test_dlpack_into_jax(backend: str):
    jax = pytest.importorskip("jax")
    out = jax.dlpack.from_dlpack(array(backend))
    assert isinstance(out, jax.Array)
    check(out, VALUES)


def test_dlpack_into_trellis(backend: str):
    for source in BACKENDS:
        native = make(source, VALUES)
        assert is_array_on(tl.from_dlpack(native), source)
        assert is_array_on(tl.from_dlpack(tl.Array(native)), source)
        out = tl.from_dlpack(native, backend=backend)
        assert is_array_on(out, backend)
        check(out, VALUES)


@pytest.mark.xdist_group("torch")
def test_dlpack_shares_memory():
    torch = pytest.importorskip("torch")
    x = array("torch")
    np.from_dlpack(x)[0, 0] = 9
    assert float(x[0, 0]) == 9
    tensor = torch.ones(2)
    shared = tl.from_dlpack(tensor, backend="numpy")
    shared[0] = 5
    assert float(tensor[0]) == 5


# ---- Python's protocols --------------------------------------------------------------------------------------------------------
DTYPES = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64", "complex128", bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pickle(backend: str, dtype: Any):
    x = array(backend, np.array([[0, 1, 2]]).astype(dtype))
    back = pickle.loads(pickle.dumps(x))
    assert is_array_on(back, backend)
    assert back.dtype is x.dtype
    check(back, np.asarray(x))


def test_copies(backend: str):
    x = array(backend)
    for duplicate in (copy.copy(x), copy.deepcopy(x), copy.deepcopy({"a": [x]})["a"][0]):
        assert is_array_on(duplicate, backend)
        duplicate[0, 0] = 7
        assert float(x[0, 0]) == 1
        assert float(duplicate[0, 0]) == 7


def test_python_numbers(backend: str):
    assert float(array(backend, np.float32(1.5))) == 1.5
    assert type(float(array(backend, np.float32(1.5)))) is float
    assert int(array(backend, np.int32(3))) == 3
    assert bool(array(backend, np.array(True))) is True
    assert complex(array(backend, np.complex64(1 + 2j))) == 1 + 2j
    assert [10, 20, 30][array(backend, np.int64(1))] == 20
    assert list(range(array(backend, np.int64(2)))) == [0, 1]
    assert type(array(backend, np.int8(3)).item()) is int
    for convert in (float, int, bool, complex):
        with pytest.raises(TypeError, match=r"only an array with no dimensions is a number, got shape \(2, 2\)"):
            convert(array(backend))
    with pytest.raises(TypeError, match="only an integer array is an index"):
        operator.index(array(backend, np.float32(1)))


def test_iteration_and_containment(backend: str):
    x = array(backend)
    assert len(x) == 2
    assert [float(tl.sum(row)) for row in x] == [3.0, 7.0]
    assert all(is_array_on(row, backend) for row in x)
    assert 3.0 in x
    assert 9 not in x
    assert array(backend, np.float32(4)) in x
    scalar = array(backend, np.float32(1))
    with pytest.raises(TypeError, match="has no length"):
        len(scalar)
    with pytest.raises(TypeError, match="cannot be iterated"):
        iter(scalar)
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_operators_with_strangers(backend: str):
    with pytest.raises(TypeError, match="unsupported operand"):
        array(backend) + "text"
    with pytest.raises(TypeError, match="unsupported operand"):
        object() + array(backend)
    assert (array(backend) == "text") is False


class Reading(tl.Array):
    """An array of someone's own."""


def test_subclasses_are_arrays(backend: str):
    x = Reading(tl.asarray([1.0, 4.0], backend=backend).native)
    for result in (tl.sqrt(x), 0.0 + x * x / x**1.5, tl.where(x > 0, tl.sqrt(x), x), tl.multiply(x, x)[:] ** 0.25):
        assert type(result) is tl.Array
        np.testing.assert_allclose(tl.to_numpy(result), [1, 2], rtol=1e-6)


# ---- the methods of NumPy's ufuncs ---------------------------------------------------------------------------------------------
UFUNC_METHODS: dict[str, Any] = {
    "add.reduce": np.add.reduce,
    "add.reduce of all": lambda x: np.add.reduce(x, axis=None),
    "add.reduce dtype": lambda x: np.add.reduce(x, dtype="float32"),
    "add.reduce of int8": lambda x: np.add.reduce(x, dtype="int8"),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1, keepdims=True),
    "maximum.reduce": lambda x: np.maximum.reduce(x, 1),
    "logical_and.reduce": lambda x: np.logical_and.reduce(x > 2, axis=0),
    "add.accumulate": lambda x: np.add.accumulate(x, 1),
    "multiply.accumulate": lambda x: np.multiply.accumulate(x),
    "subtract.outer": lambda x: np.subtract.outer(x, x[0]),
}


@pytest.mark.parametrize("name", UFUNC_METHODS)
def test_methods_of_ufuncs(backend: str, name: str) -> None:
    values = np.arange(6.0).reshape(2, 3) + 1
    got, wanted = (UFUNC_METHODS[name](x) for x in (tl.Array(make(backend, values)), values))
    assert isinstance(got, tl.Array)
    assert got.backend == backend
    check(got, wanted)


@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum], ids=lambda u: u.__name__)
def test_ufuncs_change_arrays_at_places(backend: str, ufunc: Any) -> None:
    wanted = np.ones((2, 3))
    x = tl.Array(make(backend, wanted))
    row = x[0]
    for changed in (x, wanted):
        ufunc.at(changed, (np.array([0, 0]), [1, 1]), 2.5)
    check(x, wanted)
    check(row, wanted[0])
    out = np.add(row, row, out=x[1])
    check(out, 2 * wanted[0])
    check(x[1], 2 * wanted[0])


def test_methods_of_ufuncs_without_an_op() -> None:
    with pytest.raises(TypeError, match=r"np.subtract.reduce\(\) does not work on a tl.Array; use trellis, or np.asarray"):
        np.subtract.reduce(tl.zeros(3))
    with pytest.raises(TypeError, match=r"np.add.reduce\(initial\) does not work"):
        np.add.reduce(tl.zeros(3), initial=2.0)


FRESH = """
import trellis as tl
{lines}
x, c, key = tl.ones(2), tl.Container(a=tl.ones(2)), tl.Key(0)
print([type(leaf).__name__ for leaf in {leaves}([x, c, key])])
assert not [name for name in sys.modules if name.startswith("trellis.backends.{backend}")]
"""
LIBRARIES = [
    ("import jax, sys", "jax.tree.leaves", "jax", ["ndarray", "ndarray", "ndarray"]),
    ("import torch.utils._pytree as pytree, sys", "pytree.tree_leaves", "torch", ["ndarray", "ndarray", "Tensor"]),
    ("import optree, sys", "optree.tree_leaves", "jax", ["ndarray", "ndarray", "ndarray"]),
]


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda row: row[1])
def test_pytrees_know_our_nodes_from_their_import_on(library: tuple[str, str, str, list[str]]):
    """Trellis is imported first, and its backend of the framework is not loaded."""
    lines, leaves, backend, kinds = library
    pytest.importorskip(lines.split(" ")[1].rstrip(",").partition(".")[0])
    code = FRESH.format(lines=lines, leaves=leaves, backend=backend)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{kinds}\n", done.stderr


def test_jit_takes_a_key_and_an_array_before_anything_else():
    pytest.importorskip("jax")
    code = """
import jax, trellis as tl
x, key = jax.jit(lambda x, key: (x + tl.random_uniform(shape=2, seed=key), tl.fold_in(key, 1)))(tl.ones(2), tl.Key(0))
print(x.backend, type(key).__name__, tl.random_uniform(shape=1, seed=key).backend, float(tl.sum(x * 0)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "jax Key jax 0.0\n", done.stderr
