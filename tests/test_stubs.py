"""The stubs are those of the sources, and `inspect` shows what they say. `make types` checks what type checkers make of them."""

from __future__ import annotations

import ast
import inspect

import pytest
import stubs

import trellis as tl


def test_the_stubs_are_current() -> None:
    made = stubs.stubs()
    assert set((stubs.ROOT / "trellis").rglob("*.pyi")) == set(made)
    old = [str(path.relative_to(stubs.ROOT)) for path, text in made.items() if path.read_text() != text]
    assert old == [], "run make stubs"


def test_the_stub_of_the_package_has_every_public_name_and_no_other() -> None:
    tree = ast.parse((stubs.ROOT / "trellis/__init__.pyi").read_text())
    names = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert {name for name in names if name and not name.startswith("_")} == set(tl.__all__)


@pytest.mark.parametrize(
    ("annotation", "wanted"),
    [
        ("x: AnyArray, /, *, axis: Axis = None", ["Array", "NumPyArray", "ArrayT"]),
        ("x: Operand, /", ["Array", "NumPyArray", "ArrayT", "Array"]),
        ("shape: Shape, *, backend: str | None = None", ["Array"]),
        ("shape: Shape, *, backend: str | None = None, like: AnyArray | None = None", ["NumPyArray", "ArrayT", "Array"]),
        ("probs: Operand, /, *, backend: str | None = None", ["Array", "Any"]),
        ("x1: AnyArray, x2: AnyArray, /", ["Container", "Container", "Array", "Array", "NumPyArray", "ArrayT"]),
    ],
)
def test_the_overloads_of_a_signature(annotation: str, wanted: list[str]) -> None:
    node = ast.parse(f"def f({annotation}) -> AnyArray: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert [ast.unparse(made.returns) for made in stubs.Overloads(node, []).all() if made.returns] == wanted


def test_a_class_of_modules_has_the_signature_of_its_constructor() -> None:
    assert list(inspect.signature(tl.Linear).parameters)[:3] == ["input_channels", "output_channels", "with_bias"]
    assert list(inspect.signature(tl.Softmax).parameters) == ["axis"]
    assert str(inspect.signature(tl.ReLU)) == "()"

    class Net(tl.Module):
        def __init__(self, width: int, depth: int = 2) -> None:
            self.hidden = tl.Linear(width, depth)

    assert str(inspect.signature(Net)).replace("'", "").startswith("(width: int, depth: int = 2)")
    assert Net(3).hidden.output_channels == 2
