"""tl.Container as a mapping, as a nest, under ops and operators, and in the pytree libraries."""

from __future__ import annotations

import collections
import collections.abc
import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from helpers import check, compiled, make

import trellis as tl
from trellis.core import tree
from trellis.core.dispatch import interpreters

Point = collections.namedtuple("Point", "x y")


def sample(backend: str = "numpy") -> tl.Container:
    return tl.Container(
        encoder={"weight": make(backend, np.ones((2, 3), np.float32)), "bias": make(backend, np.zeros(3, np.float32))},
        layers=[make(backend, np.float32([1.0])), make(backend, np.float32([2.0, 3.0]))],
    )


# ---- a mapping -----------------------------------------------------------------------------------------------------------------
def test_reading_by_attribute_and_path():
    c = tl.Container({"a": {"b": 1, "c": [2, (3, {"d": 4})]}}, e=5)
    assert c.a.b == c["a/b"] == c["a"]["b"] == 1
    assert (c["a/c/0"], c["a/c/1/0"], c["a/c/1/1/d"]) == (2, 3, 4)
    assert isinstance(c["a/c"], list)
    assert isinstance(c["a/c/1"], tuple)
    assert isinstance(c["a/c/1/1"], tl.Container)
    assert "a/b" in c
    assert "a/c/1/1/d" in c
    assert "a/c/2" not in c
    assert "a/b/x" not in c
    assert 1 not in c
    assert list(c) == list(c.keys()) == ["a", "e"]
    assert len(c) == 2
    assert dict(c.items())["e"] == 5
    assert list(c.values())[1] == 5
    assert c.get("a/b") == 1
    assert c.get("a/z", "none") == "none"
    assert "e" in dir(c)
    assert isinstance(c, collections.abc.MutableMapping)


def test_writing_by_attribute_and_path():
    c = tl.Container(a=1)
    c.b = {"x": 1}
    c.b.y = 2
    c["c/d/e"] = 3
    c["t"] = (1, [2, 3])
    c["t/1/0"] = 20
    c["t/0"] = 10
    c["p"] = Point(1, 2)
    c["p/y"] = 5
    assert c.to_dict() == {"a": 1, "b": {"x": 1, "y": 2}, "c": {"d": {"e": 3}}, "t": (10, [20, 3]), "p": Point(1, 5)}
    del c.a, c["b/x"], c["t/1/0"]
    assert c.to_dict() == {"b": {"y": 2}, "c": {"d": {"e": 3}}, "t": (10, [3]), "p": Point(1, 5)}
    assert c.pop("c/d/e") == 3
    c.update({"b/y": 4})
    assert c["b/y"] == 4


def test_lists_put_in_are_not_shared():
    given = [1, 2]
    c = tl.Container(a=given)
    c["a/0"] = 5
    assert given == [1, 2]


def test_keys_with_the_name_of_a_method():
    c = tl.Container({"map": 1, "keys": 2})
    assert c["map"] == 1
    assert c["keys"] == 2
    assert callable(c.map)
    assert callable(c.keys)
    with pytest.raises(AttributeError, match=r"Container\.map is a method.*c\['map'\] = value"):
        c.map = 3
    c["map"] = 3
    assert c["map"] == 3
    assert c.map(lambda x: x + 1).to_dict() == {"map": 4, "keys": 3}


ERRORS = [
    (lambda c: c["a/z"], KeyError, "no 'a/z': 'a' has no 'z'; its keys are b"),
    (lambda c: c["a/b/z"], KeyError, r"'a/b' has no 'z'; it is a leaf \(int\)"),
    (lambda c: c.z, AttributeError, "no key 'z'; its keys are a, e"),
    (lambda c: c.__delitem__("a/z"), KeyError, "no 'a/z'"),
    (lambda c: c.__delattr__("z"), AttributeError, "no key 'z'"),
    (lambda c: c[0], TypeError, "expected a string"),
    (lambda c: tl.Container({"a/b": 1}), ValueError, "key 'a/b' is a path; keys are names without"),
    (lambda c: tl.Container({"x": [{"a/b": 1}]}), ValueError, "key 'a/b' is a path"),
    (lambda c: tl.Container({"": 1}), ValueError, "key '' is empty"),
    (lambda c: tl.Container({1: 1}), TypeError, "key 1 is a int; keys must be strings"),
    (lambda c: c.__setitem__("a//b", 1), ValueError, "key '' is empty"),
    (lambda c: c.__setitem__("a/b/c", 1), ValueError, "there is no 'c' in the int above it"),
    (lambda c: bool(c), TypeError, "neither true nor false"),
    (lambda c: hash(c), TypeError, "unhashable"),
    (lambda c: c.unflatten([1]), ValueError, "2 leaves, got 1"),
    (lambda c: c.prune("q"), KeyError, "no 'q'"),
    (lambda c: c.restructure({"a/b": "e"}), ValueError, "'e' is taken"),
    (lambda c: c.restructure({"q": "e"}), KeyError, "no 'q'"),
    (lambda c: tl.Container.combine(), ValueError, "at least one"),
    (lambda c: tl.Container.combine(c, c), ValueError, "more than one part has a value at 'a/b'"),
    (lambda c: tl.Container.from_flat_dict({"a/b": 1}, like=c), ValueError, "'e' is only in like"),
]


@pytest.mark.parametrize(("mistake", "error", "text"), ERRORS)
def test_errors(mistake: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        mistake(tl.Container(a={"b": 1}, e=2))


def test_a_failed_assignment_changes_nothing():
    c = tl.Container(a=1)
    with pytest.raises(ValueError):
        c["x/y/"] = 1
    assert c.to_dict() == {"a": 1}


def test_repr():
    c = tl.Container(a={"w": np.zeros((2, 3), np.float32), "x": tl.ones(2)}, b=[1, None], s="text", e={})
    assert repr(c).splitlines() == [
        "Container(",
        "  a:",
        "    w: float32 (2, 3) numpy",
        "    x: float32 (2,) numpy Array",
        "  b: list",
        "    0: 1",
        "    1: None",
        "  s: 'text'",
        "  e: Container()",
        ")",
    ]
    assert repr(tl.Container()) == "Container()"


# ---- a nest --------------------------------------------------------------------------------------------------------------------
def test_map_and_paths():
    c = tl.Container(b={"x": 1, "y": None}, a=[2, 3])
    assert c.map(lambda x: x * 10).to_dict() == {"b": {"x": 10, "y": None}, "a": [20, 30]}
    assert c.map(lambda x, y: x + y, c).to_dict() == {"b": {"x": 2, "y": None}, "a": [4, 6]}
    assert c.map_with_paths(lambda path, x: f"{path}={x}").to_dict() == {"b": {"x": "b/x=1", "y": None}, "a": ["a/0=2", "a/1=3"]}


def test_flatten_sorts_and_keeps_the_order():
    c = tl.Container(b=1, a={"z": 2, "y": 3})
    paths, leaves = c.flatten()
    assert (paths, leaves) == (["a/y", "a/z", "b"], [3, 2, 1])
    back = c.unflatten([30, 20, 10])
    assert back.to_dict() == {"b": 10, "a": {"z": 20, "y": 30}}
    assert list(back) == ["b", "a"]
    assert list(back.a) == ["z", "y"]


def test_flat_dict():
    c = tl.Container(b={"x": 1}, a=[2, (3, None)])
    flat = c.to_flat_dict()
    assert flat == {"b/x": 1, "a/0": 2, "a/1/0": 3, "a/1/1": None}
    assert next(iter(flat)) == "b/x"
    assert tl.Container.from_flat_dict(flat, like=c).all_equal(c)
    assert tl.Container.from_flat_dict(flat).to_dict() == {"b": {"x": 1}, "a": {"0": 2, "1": {"0": 3, "1": None}}}


def test_partition_and_combine():
    c = tl.Container(a={"x": 1, "y": "text"}, b=[2.0, 3], p=Point(1, "q"))
    numbers, rest = c.partition(lambda path, leaf: isinstance(leaf, int))
    assert numbers.to_dict() == {"a": {"x": 1, "y": None}, "b": [None, 3], "p": Point(1, None)}
    assert rest.to_dict() == {"a": {"x": None, "y": "text"}, "b": [2.0, None], "p": Point(None, "q")}
    assert tl.Container.combine(numbers, rest).to_dict() == c.to_dict()
    by_path, _ = c.partition(lambda path, leaf: path.startswith("a/"))
    assert by_path.flatten()[0] == ["a/x", "a/y"]
    assert tl.Container.combine(tl.Container(a={"x": 1}), tl.Container(a={"y": 2}, b=3)).to_dict() == {
        "a": {"x": 1, "y": 2},
        "b": 3,
    }


def test_prune():
    c = tl.Container(a={"x": 1, "y": 2}, b=[1, 2, 3], h=None, e={"f": {}}, t=(None, 1))
    assert c.prune().to_dict() == {"a": {"x": 1, "y": 2}, "b": [1, 2, 3], "t": (None, 1)}
    assert c.prune("a/x", "a/y", "b/0", "b/1").to_dict() == {"b": [3], "t": (None, 1)}
    assert c.prune("a", "b", "t").to_dict() == {}
    assert "a/x" in c


def test_restructure():
    c = tl.Container(a={"x": 1, "y": 2}, b=[10, 20, 30])
    assert c.restructure({"a/x": "n/m", "b/0": "first", "b/1": "second"}).to_dict() == {
        "a": {"y": 2}, "b": [30], "n": {"m": 1}, "first": 10, "second": 20,
    }  # fmt: skip
    assert c.restructure({"a/x": "a/y", "a/y": "a/x"}).to_dict()["a"] == {"y": 1, "x": 2}
    assert c.restructure({"a/x": "x", "a/y": "y", "b": "a"}).to_dict() == {"x": 1, "y": 2, "a": [10, 20, 30]}


def test_set_and_copies(backend: str):
    c = sample(backend)
    d = c.set("encoder/bias", 1).set("new/place", 2)
    assert d["encoder/bias"] == 1
    assert d["new/place"] == 2
    assert "new" not in c
    assert tuple(c["encoder/bias"].shape) == (3,)
    same = c.copy()
    assert same["encoder/bias"] is c["encoder/bias"]
    assert same.encoder is not c.encoder
    assert same.layers is not c.layers
    for other in (c.deep_copy(), copy.deepcopy(c)):
        assert other["encoder/bias"] is not c["encoder/bias"]
        assert other.all_equal(c)
    assert copy.copy(c).all_equal(c)
    if backend == "numpy":
        c["encoder/bias"][0] = 7
        assert other["encoder/bias"][0] == 0


def test_pickle():
    c = tl.Container(a={"x": np.arange(3)}, b=tl.ones(2), n=None)
    assert pickle.loads(pickle.dumps(c)).all_equal(c)


# ---- comparison ----------------------------------------------------------------------------------------------------------------
def test_diff():
    left = tl.Container(a=np.float32([1, 2, 3]), b=np.zeros((2, 3)), d=np.int32([1]), l=1, s="x", n=np.float32([np.nan]))
    right = tl.Container(a=np.float32([1, 2.5, 7]), b=np.zeros((3, 2)), d=np.int64([1]), r=1, s="y", n=np.float32([np.nan]))
    found = left.diff(right)
    assert found
    assert found.only_first == ["l"]
    assert found.only_second == ["r"]
    assert found.different == {
        "a": "2 of 3 elements, largest difference 4 at [2]",
        "b": "shape (2, 3) and (3, 2)",
        "d": "dtype int32 and int64",
        "s": "'x' and 'y'",
    }
    assert str(found).splitlines()[:3] == [
        "only in the first: l", "only in the second: r", "different: a: 2 of 3 elements, largest difference 4 at [2]",
    ]  # fmt: skip
    assert left.diff(right, values=False).different == {}
    assert not left.diff(left)
    assert str(left.diff(left)) == "no differences"
    assert left.diff(left, equal_nan=False).different == {"n": "1 of 1 elements, largest difference inf at [0]"}
    assert not tl.Container(a=1.0).diff(tl.Container(a=1.05), atol=0.1)
    assert str(tl.Container(a=np.uint8([1])).diff(tl.Container(a=np.uint8([3])))).endswith("largest difference 2 at [0]")


def test_comparison_of_wholes(backend: str):
    c = sample(backend)
    assert c.identical_structure(c + 1)
    assert not c.identical_structure(c.prune("layers/0"))
    assert c.identical_structure(c.to_dict())
    assert c.identical_structure(tl.Container(layers=[1, 2], encoder={"bias": 1, "weight": 1}))
    assert c.all_equal(c.deep_copy())
    assert c.all_equal(tl.to_backend(c, "numpy"))
    assert not c.all_equal(c + 1e-6)
    assert c.all_close(c + 1e-6, atol=1e-5)
    assert not c.all_close(c + 1)
    assert not c.all_equal(c.map(lambda x: tl.astype(x, tl.float64)))
    assert c.all_close(c.map(lambda x: tl.astype(x, tl.float64)))
    assert not c.all_equal(c.prune("layers/0"))


# ---- ops and operators ---------------------------------------------------------------------------------------------------------
def test_ops_map_over_leaves(backend: str):
    c = sample(backend)
    native = type(c.encoder.weight)
    out = tl.exp(c)
    assert isinstance(out, tl.Container)
    assert isinstance(out.encoder.weight, native)
    assert list(out) == list(c)
    check(out["layers/1"], np.exp(np.float32([2, 3])))
    check(tl.sum(c, axis=0)["encoder/weight"], np.float32([2, 2, 2]))
    check(tl.concat([c, c])["layers/0"], np.float32([1, 1]))
    check(tl.astype(c, tl.int32)["layers/0"], np.int32([1]))
    check(tl.where(c > 1, c, 0)["layers/1"], np.float32([2, 3]))
    wrapped = tl.exp(c.map(tl.asarray))
    assert isinstance(wrapped.encoder.weight, tl.Array)


def test_operators(backend: str):
    c = sample(backend)
    row = make(backend, np.float32([[10.0]]))
    check((c + 1)["layers/1"], np.float32([3, 4]))
    check((1 - c)["layers/1"], np.float32([-1, -2]))
    check((c * c)["layers/1"], np.float32([4, 9]))
    check((-c)["layers/1"], np.float32([-2, -3]))
    check(abs(-c)["layers/1"], np.float32([2, 3]))
    check((c == c)["layers/1"], np.array([True, True]))
    check((c > 2)["layers/1"], np.array([False, True]))
    check((c**2 / 2)["layers/1"], np.float32([2, 4.5]))
    check((c + row)["encoder/bias"], np.float32([[10, 10, 10]]))
    check((row + c)["encoder/bias"], np.float32([[10, 10, 10]]))
    check((row - c)["layers/0"], np.float32([[9]]))
    check((c + tl.asarray(row))["layers/0"], np.float32([[11]]))
    check((tl.asarray(row) + c)["layers/0"], np.float32([[11]]))
    check((c + c.to_dict())["layers/0"], np.float32([2]))
    check((c.to_dict() + c)["layers/0"], np.float32([2]))
    check(tl.Container(m=make(backend, np.eye(2, dtype=np.float32))).map(lambda m: m @ m).m, np.eye(2, dtype=np.float32))
    before = c
    c += 1
    assert c is not before
    check(before["layers/0"], np.float32([1]))


def test_order_of_keys_does_not_matter():
    assert (tl.Container(a=1, b=2) + tl.Container(b=20, a=10)).all_equal(tl.Container(a=11, b=22))


def test_numpy_ufuncs():
    c = tl.Container(a=np.float32([0.0]), b=tl.zeros(1))
    out = np.exp(c)
    assert type(out.a) is np.ndarray
    assert isinstance(out.b, tl.Array)
    assert (np.float32([1.0]) + c).all_equal(tl.Container(a=np.float32([1]), b=tl.ones(1)))


def test_results_that_are_tuples(backend: str):
    c = tl.Container(a=make(backend, np.eye(2, dtype=np.float32)), b=make(backend, 2 * np.eye(3, dtype=np.float32)))
    result = tl.linalg.slogdet(c)
    assert isinstance(result.sign, tl.Container)
    check(result.sign.b, np.float32(1))
    check(result.logabsdet.b, np.float32(3 * np.log(2)))
    with pytest.raises(ValueError, match="unstack: the leaf at 'b' gives 3 arrays, the first leaf 2"):
        tl.unstack(c)


def test_holes_and_strings():
    c = tl.Container(a=np.float32([1.0]), hole=None, deep={"name": "text"})
    for run in (lambda: tl.exp(c), lambda: c + 1, lambda: tl.ones(1) + c, lambda: -c):
        with pytest.raises(TypeError, match=r"the leaf at 'deep/name' is not an array .*str.*c\.partition"):
            run()
    out = c.prune("deep").set("hole", None) + 1
    assert out["hole"] is None
    assert tl.exp(tl.Container(hole=None)).to_dict() == {"hole": None}
    with pytest.raises(TypeError):
        tl.Container(a=1) + object()
    with pytest.raises(ValueError, match="add: the structures differ at 'a': a leaf in the first, None in the second"):
        tl.Container(a=1) + tl.Container(a=None)


STRUCTURES = [
    ({"a": 1, "b": {"c": 1}}, {"a": 1, "b": {}}, "'b/c': only in the first"),
    ({"a": 1}, {"a": 1, "z": 1}, "'z': only in the second"),
    ({"a": [1, 2]}, {"a": [1]}, "'a/1': only in the first"),
    ({"a": [1]}, {"a": (1,)}, "'a': a list of 1 in the first, a tuple of 1 in the second"),
    ({"a": {"b": 1}}, {"a": 1}, "'a': a Container of 1 in the first, a leaf in the second"),
]


@pytest.mark.parametrize(("left", "right", "text"), STRUCTURES)
def test_different_structures(left: Any, right: Any, text: str):
    with pytest.raises(ValueError, match=f"multiply: the structures differ at {text}"):
        tl.Container(left) * tl.Container(right)
    with pytest.raises(ValueError, match=f"map: the structures differ at {text}"):
        tl.Container(left).map(lambda x, y: x, tl.Container(right))


def test_errors_name_the_leaf(backend: str):
    c = tl.Container(a=make(backend, np.ones(3, np.float32)), b={"c": make(backend, np.ones(2, np.float32))})
    with pytest.raises(ValueError) as caught:
        c + make(backend, np.ones(3, np.float32))
    assert any("in leaf 'b/c'" in note for note in caught.value.__notes__)
    with pytest.raises(ValueError) as caught:
        tl.sum(c, axis=1)
    assert any("in leaf 'a'" in note for note in caught.value.__notes__)


def test_shape_of_a_container_is_unknown():
    c = tl.Container(a=1)
    interpreter = interpreters[tl.Container]
    assert interpreter.level == 4
    assert interpreter.name == "container"
    assert interpreter.shape_of(c) is interpreter.rank_of(c) is interpreter.dtype_of(c) is None


def test_python_numbers_become_arrays():
    assert isinstance((tl.Container(a=1) + 1).a, tl.Array)


def test_subclasses_are_containers():
    class Parameters(tl.Container):
        pass

    out = tl.exp(Parameters(a=np.float32([0.0])))
    assert type(out) is Parameters
    assert out.a[0] == 1


def test_bringing_a_container_to_another_backend(backend: str):
    moved = tl.to_backend(sample("numpy"), backend)
    assert isinstance(moved, tl.Container)
    assert tl.asarray(moved["encoder/weight"]).backend == backend
    assert moved.all_equal(sample("numpy"))


# ---- pytrees -------------------------------------------------------------------------------------------------------------------
@pytest.mark.xdist_group("jax")
def test_jax_pytree():
    jax = pytest.importorskip("jax")
    c = sample("jax")
    assert [np.shape(x) for x in jax.tree.leaves(c)] == [(3,), (2, 3), (1,), (2,)]
    doubled = jax.tree.map(lambda x: 2 * x, c)
    assert isinstance(doubled, tl.Container)
    assert list(doubled) == list(c)
    assert list(doubled.encoder) == ["weight", "bias"]
    assert "bias" in jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(c)[0][0])
    assert jax.tree.structure(tl.Container(a=1, b=2)) == jax.tree.structure(tl.Container(b=1, a=2))
    assert jax.tree.structure(tl.Container(a=1, b=2)) != jax.tree.structure(tl.Container(a=1, c=2))
    assert jax.jit(lambda c: c * 2)(c).all_equal(c * 2)
    grads = jax.grad(lambda c: tl.sum(c.encoder.weight**2))(c)
    check(grads.encoder.weight, 2 * np.ones((2, 3), np.float32))
    assert jax.tree.map(lambda x: x, tl.Container(a=None)).to_dict() == {"a": None}


@pytest.mark.xdist_group("torch")
def test_torch_pytree():
    torch = pytest.importorskip("torch")
    import torch.utils._pytree as pytree

    c = sample("torch")
    leaves, spec = pytree.tree_flatten(c)
    assert [tuple(x.shape) for x in leaves] == [(3,), (2, 3), (1,), (2,)]
    back = pytree.tree_unflatten(leaves, spec)
    assert isinstance(back, tl.Container)
    assert list(back) == list(c)
    assert back.all_equal(c)
    assert torch.func.grad(lambda c: tl.sum(c.encoder.weight**2))(c).encoder.weight.shape == (2, 3)
    assert torch.vmap(lambda c: c * 2)(tl.Container(a=torch.ones(3))).all_equal(tl.Container(a=2 * torch.ones(3)))


@pytest.mark.xdist_group("tensorflow")
def test_tensorflow_nest():
    tf = pytest.importorskip("tensorflow")
    c = sample("tensorflow")
    assert [tuple(x.shape) for x in tf.nest.flatten(c)] == [(3,), (2, 3), (1,), (2,)]
    doubled = tf.nest.map_structure(lambda x: 2 * x, c)
    assert isinstance(doubled, tl.Container)
    assert list(doubled) == list(c)
    assert doubled.all_equal(c * 2)
    assert tf.nest.pack_sequence_as(c, tf.nest.flatten(c)).all_equal(c)
    tf.nest.assert_same_structure(c, doubled)


def test_optree():
    optree = pytest.importorskip("optree")
    c = sample()
    assert [x.shape for x in optree.tree_leaves(c)] == [(3,), (2, 3), (1,), (2,)]
    doubled = optree.tree_map(lambda x: 2 * x, c)
    assert isinstance(doubled, tl.Container)
    assert list(doubled) == list(c)
    assert doubled.all_equal(c * 2)
    assert optree.tree_paths(c)[0] == ("encoder", "bias")


def test_compiled_functions_of_containers(backend: str):
    c = sample(backend)
    out = compiled(backend, lambda c: tl.exp(c) + 1)(c)
    assert isinstance(out, tl.Container)
    assert out.all_close(tl.exp(c) + 1, rtol=1e-6)


# ---- tree.py -------------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Layer:
    weight: Any
    name: str = dataclasses.field(default="layer", metadata={"static": True})
    bias: Any = None


NESTS: list[tuple[Any, list[str]]] = [
    (1, [""]),
    (None, []),
    ([], []),
    ({}, []),
    ({"b": (1, 2), "a": [3, {"c": 4}]}, ["a/0", "a/1/c", "b/0", "b/1"]),
    (Point(1, [2]), ["x", "y/0"]),
    (Layer(1, "first", {"b": 2}), ["weight", "bias/b"]),
    (collections.OrderedDict(z=1, a=2), ["a", "z"]),
    (collections.defaultdict(list, z=1, a=2), ["a", "z"]),
    ({1: 1, "a": 2, (0, 1): 3}, ["1", "a", "(0, 1)"]),
    ([None, (1, None)], ["1/0"]),
]


@pytest.mark.parametrize(("nest", "paths"), NESTS, ids=lambda x: str(x)[:40])
def test_nests(nest: Any, paths: list[str]):
    leaves, treedef = tree.flatten(nest)
    assert tree.paths(treedef) == [path for path, _ in tree.leaves_with_paths(nest)] == paths
    back = tree.unflatten(treedef, leaves)
    assert back == nest
    assert type(back) is type(nest)
    assert repr(back) == repr(nest)
    assert treedef == tree.structure(back)
    assert hash(treedef) == hash(tree.structure(back))
    assert tree.leaves(tree.map(lambda x: (x,), nest)) == leaves


def test_leaves_of_a_nest():
    arrays = [np.ones(2), tl.ones(2), np.float32(1), 1, "text", object, {1, 2}]
    assert all(a is b for a, b in zip(tree.leaves(arrays), arrays, strict=True))


def test_static_fields_are_structure():
    assert tree.structure(Layer(1, "a")) != tree.structure(Layer(1, "b"))
    with pytest.raises(ValueError, match=r"differ at 'x': static fields \('a',\) in the first, \('b',\) in the second"):
        tree.map(lambda a, b: a, {"x": Layer(1, "a")}, {"x": Layer(1, "b")})


def test_errors_of_map():
    with pytest.raises(
        ValueError, match="map: the structures differ at the top: a dict of 1 in the first, a list of 1 in the second"
    ):
        tree.map(lambda a, b: a, {"x": 1}, [1])
    assert tree.map(lambda a, b: a + b, {"a": 1, "b": 2}, {"b": 20, "a": 10}) == {"a": 11, "b": 22}


def test_register_a_kind_of_node():
    class Box:
        def __init__(self, content: Any) -> None:
            self.content = content

    tree.register(Box, lambda box: (("content",), (box.content,), None), lambda type, keys, extra, members: type(*members))
    assert tree.leaves_with_paths([Box((1, 2))]) == [("0/content/0", 1), ("0/content/1", 2)]
    assert tree.map(lambda x: x + 1, Box(1)).content == 2


@pytest.mark.xdist_group("torch")
def test_torch_results_are_nodes():
    torch = pytest.importorskip("torch")
    result = torch.max(torch.ones(2, 3), 0)
    assert type(tree.map(lambda x: x, result)) is type(result)
    assert tree.leaves(torch.ones(2).shape) == [torch.Size([2])]
