"""Graphs: recording, text, verifier, evaluation on every backend, passes, control flow, symbolic sizes, and the errors."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

import trellis as tl
from trellis.core.array import unwrap
from trellis.trace.errors import TraceError, is_users
from trellis.trace.graph import Graph, Node, Value
from trellis.trace.passes import common_subexpressions, dead_code, fold_constants, simplify

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(1, -2, 8, dtype=np.float32).reshape(4, 2)


def on(backend: str, *arrays: Any) -> list[Any]:
    return [tl.asarray(x, backend=backend) for x in arrays]


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(tl.to_numpy(a)), np.asarray(tl.to_numpy(b)), rtol=2e-5, atol=2e-6)


def layers(x: Any, w: Any) -> dict[str, Any]:
    hidden = tl.gelu(tl.matmul(x, w)) + 0.5
    top, places = tl.top_k(hidden, 1)
    return {"norm": tl.layer_norm(hidden), "top": (top, places), "part": hidden[1:, 0]}


def test_a_graph_gives_what_the_function_gives_on_other_numbers(backend: str) -> None:
    graph = tl.trace(layers, *on("numpy", X, W)).verify()
    given = on(backend, X[::-1].copy() * 3, W * 2)
    found, expected = graph.eval(*given), layers(*given)
    assert found["norm"].backend == backend
    for a, b in zip(tl.tree.leaves(found), tl.tree.leaves(expected), strict=True):
        assert a.dtype is b.dtype
        close(a, b)


def test_native_arrays_stay_native(backend: str) -> None:
    x, w = (a.native for a in on(backend, X, W))
    graph = tl.trace(lambda a, b: (a @ b) * 2.0, x, w)
    assert type(graph.eval(x, w)) is type(x)
    close(graph.eval(x, w), 2 * X @ W)


def test_a_graph_differentiates_compiles_and_maps(backend: str) -> None:
    def loss(x: Any, w: Any) -> Any:
        return tl.sum(tl.tanh(tl.matmul(x, w)) ** 2)

    graph = tl.trace(loss, *on("numpy", X, W))
    x, w = on(backend, X, W)
    close(tl.grad(graph.eval, argnums=1)(x, w), tl.grad(loss, argnums=1)(x, w))
    if backend != "torch":  # inductor takes a minute; `make test-more` compiles with it
        close(tl.compile(graph.eval)(x, w), loss(x, w))
    batch = tl.stack([x, x * 2])
    close(tl.vmap(lambda a: graph.eval(a, w))(batch), tl.stack([loss(x, w), loss(x * 2, w)]))


def test_text_and_counts() -> None:
    graph = tl.trace(lambda x: tl.sum(x * 2.0) + tl.sum(x), tl.asarray(X))
    assert str(graph).splitlines()[0] == "graph(%x0: float32[3, 4]) {"
    assert "  %0: float32[3, 4] = multiply(%x0, 2.0)" in str(graph)
    assert graph.ops() == {"multiply": 1, "sum": 2, "add": 1}


def test_constants_that_a_function_closes_over_move_to_the_backend_of_the_call(backend: str) -> None:
    w = tl.asarray(W)
    graph = tl.trace(lambda x: tl.matmul(x, w), tl.asarray(X))
    assert len(graph.constants) == 1
    close(graph.eval(*on(backend, X)), X @ W)


def test_a_module_is_a_function(backend: str) -> None:
    model = tl.Sequential(tl.Linear(4, 8), tl.BatchNorm1D(8), tl.ReLU(), tl.Linear(8, 2), seed=0, backend=backend).eval()
    x = on(backend, X)[0]
    graph = tl.trace(model, x, batch_axis=0)
    longer = tl.concat([x, x * 2])
    close(graph.eval(longer), model(longer))


# ---- control flow --------------------------------------------------------------------------------------------------------------
def program(x: Any, w: Any) -> dict[str, Any]:
    chosen = tl.cond(tl.sum(x) > 0, lambda a: a * w[0, 0], lambda a: a - 1, x)
    total, running = tl.scan(lambda c, row: (c + tl.sum(row), row * c), chosen[0, 0] * 0, chosen)
    grown = tl.while_loop(lambda s: s < 100, lambda s: s * 2 + tl.abs(total) * 0, tl.sum(tl.abs(x)) + 1)
    nested = tl.cond(total > 0, lambda a: tl.cond(tl.sum(a) > 5, lambda b: b * total, lambda b: b + w[1, 1], a), lambda a: a, x)
    return {
        "chosen": chosen,
        "total": total,
        "running": running,
        "grown": grown,
        "mapped": tl.map(lambda r: r + w[0, 1], x),
        "nested": nested,
    }


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_control_flow_records_its_branches(backend: str, sign: float) -> None:
    graph = tl.trace(program, *on("numpy", X, W)).verify()
    assert {"cond", "scan", "while_loop"} <= set(graph.ops())
    assert re.search(r"\n    true\(.*\n", str(graph))
    given = on(backend, X * sign, W)
    found, expected = graph.eval(*given), program(*given)
    for name in expected:
        close(found[name], expected[name])


def test_a_branch_on_a_traced_value_names_the_line() -> None:
    def branching(x: Any) -> Any:
        if tl.sum(x) > 0:
            return x
        return -x

    line = branching.__code__.co_firstlineno + 1
    for x in (tl.asarray(X), X):
        with pytest.raises(TraceError, match=rf"test_trace\.py:{line}: a Python branch.*tl\.cond"):
            tl.trace(branching, x)


@pytest.mark.parametrize("use", [float, int, np.asarray, lambda x: x.item()], ids=["float", "int", "numpy", "item"])
def test_a_value_cannot_leave_a_trace(use: Any) -> None:
    with pytest.raises(TraceError, match="keep it an array"):
        tl.trace(lambda x: use(tl.sum(x)), tl.asarray(X))


def test_a_transform_inside_a_trace_says_what_to_do() -> None:
    with pytest.raises(TraceError, match=r"differentiate or map graph\.eval"):
        tl.trace(lambda x: tl.grad(lambda y: tl.sum(y * y))(x), tl.asarray(X))


def test_a_traced_array_that_escapes_says_so() -> None:
    kept: list[Any] = []
    tl.trace(lambda x: kept.append(x) or x * 2, tl.asarray(X))
    with pytest.raises(TraceError, match=r"after tl\.trace has returned"):
        kept[0] + 1


def test_arguments_of_another_structure_are_errors() -> None:
    graph = tl.trace(lambda x, k: x * k, tl.asarray(X), 3)
    close(graph.eval(tl.asarray(X), 3), X * 3)
    with pytest.raises(ValueError, match="was 3 when it was traced and is 4 now"):
        graph.eval(tl.asarray(X), 4)
    with pytest.raises(ValueError, match="structures differ"):
        graph.eval(tl.asarray(X))
    with pytest.raises(TraceError, match="the example holds no array"):
        tl.trace(lambda k: k, 3)


# ---- sizes ---------------------------------------------------------------------------------------------------------------------
def test_the_batch_is_a_symbol(backend: str) -> None:
    def flatten(x: Any) -> Any:
        return tl.reshape(x, (2 * x.shape[0], -1))[: x.shape[0] + 1]

    graph = tl.trace(flatten, tl.asarray(X), batch_axis=0)
    assert "float32[batch, 4]" in str(graph)
    assert "shape=(2*batch, -1)" in str(graph)
    assert "slice(None, batch+1" in str(graph)
    longer = on(backend, np.tile(X, (2, 1)))[0]
    close(graph.eval(longer), flatten(longer))


def test_a_constant_of_the_size_of_the_batch_says_what_to_do() -> None:
    with pytest.raises(TraceError, match="make it from the arguments"):
        tl.trace(lambda x: x + tl.zeros((x.shape[0], 1)), tl.asarray(X), batch_axis=0)
    with pytest.raises(TraceError, match="they must be one size"):
        tl.trace(lambda x, w: x, tl.asarray(X), tl.asarray(W), batch_axis=0)


def test_free_arrays_of_an_example_go_where_the_others_are(backend: str) -> None:
    x = on(backend, X)[0]
    graph = tl.trace(lambda x, y: x * y + tl.ones(4), x, tl.full(4, 3.0))
    close(graph.eval(x, tl.full(4, 2.0)), X * 2 + 1)
    graph.verify()


# ---- verifier and passes -------------------------------------------------------------------------------------------------------
def test_the_verifier_names_the_first_bad_node() -> None:
    good = tl.trace(lambda x: tl.exp(x) + tl.exp(x), tl.asarray(X))
    x, ghost = good.inputs[0], Value("ghost", (3, 4), tl.float32)
    made = Value("made", (3, 4), tl.float32)
    cases = {
        r"%made = exp\(%ghost\) reads %ghost": [Node("exp", [ghost], {}, [made])],
        "which no backend has": [Node("no_such_op", [x], {}, [made])],
        "which exists already": [Node("exp", [x], {}, [x])],
        "has 0 results": [Node("exp", [x], {}, [])],
        "the output %made is made by no node": [],
        r"%made = exp\(%.*\) says float32\[3, 4\], but its op makes float32\[3, 1\]": [
            Node("sum", [x], {"axis": 1, "dtype": None, "keepdims": True}, [ghost := Value("sum", (3, 1), tl.float32)]),
            Node("exp", [ghost], {}, [made]),
        ],
        "fails on arrays of its types": [Node("matmul", [x, x], {}, [made])],
    }
    for message, nodes in cases.items():
        with pytest.raises(TraceError, match=message):
            Graph([x], nodes, [made]).verify()


def test_passes_keep_the_meaning() -> None:
    def wasteful(x: Any, w: Any) -> Any:
        tl.sin(x)
        return tl.matmul(tl.exp(x), w * 2.0) + tl.matmul(tl.exp(x), w * 2.0) + tl.dropout(x, 0.5)[:, :2] * 0

    whole = tl.trace(wasteful, *on("numpy", X, W))
    graph = Graph(whole.inputs[:1], whole.nodes, whole.outputs, constants={whole.inputs[1]: tl.asarray(W)}).verify()
    assert "sin" in graph.ops()
    assert "sin" not in dead_code(graph).ops()
    assert common_subexpressions(graph).ops()["exp"] == 1
    assert fold_constants(graph).ops()["multiply"] == graph.ops()["multiply"] - 2
    small = graph.simplify().verify()
    assert small.ops()["multiply"] == 1
    assert small.ops()["dropout"] == 1
    assert small.ops()["exp"] == 1
    close(small.run([tl.asarray(X * 2)])[0], graph.run([tl.asarray(X * 2)])[0])
    joined = common_subexpressions(whole).ops()
    assert joined["matmul"] == 1
    assert joined["add"] == whole.ops()["add"]


def test_sizes_that_follow_from_values_are_unknown() -> None:
    graph = tl.trace(lambda x: (x[x > 0] * 2, tl.unique_values(x), tl.sum(x[x > 0])), X).verify()
    assert "%1: float32[?] = getitem" in str(graph)
    assert [value.type for value in graph.outputs] == ["float32[?]", "float32[?]", "float32[]"]
    close(graph.eval(X * 3)[0], (X * 3)[X > 0] * 2)


@pytest.mark.parametrize("name", ["numpy", "jax", "torch"])
def test_methods_of_native_arrays(name: str) -> None:
    x = unwrap(on(name, X)[0])
    graph = tl.trace(lambda x: x.reshape(-1).sum() + x.T.max() + x.std(), x)
    close(graph.eval(x), X.sum() + X.max() + X.std(ddof=int(name == "torch")))


def test_a_graph_does_not_keep_its_example() -> None:
    example = np.ones(3, np.float32)
    graph, gone = tl.trace(lambda x: x * 2, example), weakref.ref(example)
    del example
    gc.collect()
    assert gone() is None
    assert graph.inputs[0].shape == (3,)


def test_a_file_of_the_user_is_told_from_a_library() -> None:
    assert is_users("/home/me/torch/trellis/trace/net.py")
    assert not is_users(np.linalg.__file__)
    assert not is_users(tl.__file__)


def test_two_draws_are_not_one() -> None:
    graph = simplify(tl.trace(lambda x: (tl.dropout(x, 0.5), tl.dropout(x, 0.5)), tl.ones(64)))
    assert graph.ops()["dropout"] == 2
    a, b = graph.eval(tl.ones(64))
    assert bool(tl.any(a != b))


def test_trace_of_an_array_is_the_sum_of_its_diagonal(backend: str) -> None:
    x = on(backend, X[:, :3])[0]
    close(tl.trace(x), np.trace(X[:, :3]))
    with pytest.raises(TypeError, match="batch_axis= are for functions"):
        tl.trace(x, batch_axis=0)
    with pytest.raises(TypeError, match="f is a int, not a function"):
        tl.trace(3, x)
