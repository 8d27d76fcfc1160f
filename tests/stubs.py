"""Write the stubs of the package from its sources: `python tests/stubs.py`, or `make stubs`.

Rules this file obeys:
- A stub stands beside the module of its name. It has every name of the module, with the annotations of the source.
- `AnyArray` means "the same kind of array as the operands" in the result of a public function. A type checker has no word for
  this, so a stub has overloads: arrays of NumPy give arrays of NumPy, an `ArrayT` an `ArrayT`, numbers and shapes an `Array`.
- What only exists at run time (operators, methods of arrays, layers made from functions, names that load later) is read there.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Written by tests/stubs.py from the sources: change those, then run `make stubs`.
# pyright: reportIncompatibleMethodOverride=false
"""
LAYERS = ("attention", "composition", "convolution", "functions", "linear", "normalization", "recurrent")
NUMBERS = {"e", "inf", "nan", "pi"}
SUPPORT = "AnyArray, ArrayT, Axis, DeviceLike, DTypeLike, HasShape, NestT, NumPyArray, Operand, Shape"
CALL_OPTIONS = ("v", "track_submod_rets", "submod_depth", "submods_to_track", "expected_submod_rets")
# Methods of arrays that are no functions of the same form: their text in the stub.
FORMS = {
    "__divmod__": "def __divmod__(self, other: Any, /) -> tuple[Array, Array]: ...",
    "__rdivmod__": "def __rdivmod__(self, other: Any, /) -> tuple[Array, Array]: ...",
    "__round__": "def __round__(self, digits: int | None = None) -> Array: ...",
    "_repr_html_": "def _repr_html_(self) -> str: ...",
    "copy": "def copy(self) -> Array: ...",
    "flatten": "def flatten(self) -> Array: ...",
    "imag": "@property\ndef imag(self) -> Array: ...",
    "numpy": "def numpy(self) -> NumPyArray: ...",
    "ravel": "def ravel(self) -> Array: ...",
    "real": "@property\ndef real(self) -> Array: ...",
    "reshape": "def reshape(self, *shape: Any, copy: bool | None = None) -> Array: ...",
    "transpose": "def transpose(self, *axes: Any) -> Array: ...",
}
# Functions whose result depends on their argument in a way of their own.
OVERLOADS = {
    "to_numpy": [("x", "Container", "Container"), ("x", "HasShape | complex", "NumPyArray")],
    "to_native": [
        ("x", "Container", "Container"),
        ("x", "NumPyArray", "NumPyArray"),
        ("x", "Array", "Any"),
        ("x", "NestT", "NestT"),
    ],
}

Function = ast.FunctionDef


# ---- annotations ---------------------------------------------------------------------------------------------------------------
def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def parameters(node: Function) -> list[ast.arg]:
    a = node.args
    return [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs, *([a.kwarg] if a.kwarg else [])]


def text_of(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)


def is_array(annotation: str) -> bool:
    return bool(re.search(r"\b(AnyArray|Operand)\b", annotation))


def bare(node: Function) -> Function:
    """A copy without body and decorators that matter only at run time; defaults that are no constants become `...`."""
    made = copy.deepcopy(node)
    made.body = [ast.Expr(ast.Constant(...))]
    kept = ("property", "staticmethod", "classmethod", "overload")
    made.decorator_list = [d for d in made.decorator_list if text_of(d) in kept or text_of(d).endswith(".setter")]
    if made.args.kwarg and text_of(made.args.kwarg.annotation) == "Never":
        made.args.kwarg = None
    made.args.defaults = [constant(x) for x in made.args.defaults]
    made.args.kw_defaults = [x and constant(x) for x in made.args.kw_defaults]
    return made


def constant(node: ast.expr) -> ast.expr:
    return node if isinstance(node, ast.Constant) or text_of(node) in ("()", "-1") else ast.Constant(...)


# ---- functions -----------------------------------------------------------------------------------------------------------------
class Overloads:
    """The overloads of one public function."""

    def __init__(self, node: Function, tuples: Iterable[str]) -> None:
        self.node, self.tuples = bare(node), tuples
        self.kinds = {p.arg: text_of(p.annotation) for p in parameters(self.node)}
        self.arrays = [name for name, kind in self.kinds.items() if is_array(kind)]
        self.result = text_of(node.returns)

    def with_types(self, types: Mapping[str, str], result: str) -> Function:
        """The function with these annotations of some parameters, and this kind of array as its result."""
        made = copy.deepcopy(self.node)
        for parameter in parameters(made):
            if parameter.arg in types:
                parameter.annotation = expression(types[parameter.arg])
        made.returns = expression(self.result_of(result))
        return made

    def result_of(self, kind: str) -> str:
        text = re.sub(r"\bAnyArray\b", kind, self.result)
        return re.sub(rf"\b({'|'.join(self.tuples)})\b", rf"\1[{kind}]", text) if self.tuples else text

    def all(self) -> list[Function]:
        name, result = self.node.name, self.result
        if name in OVERLOADS:
            return [self.replaced(argument, kind, given) for argument, kind, given in OVERLOADS[name]]
        if not re.search(rf"\b({'|'.join(['AnyArray', *self.tuples])})\b", result):
            nests = [argument for argument, kind in self.kinds.items() if kind == "Nest"]
            return [self.replaced(nests[0], "NestT", "NestT")] if result == "Nest" and nests else [self.node]
        if "like" in self.kinds:
            like = [self.required("like", kind) for kind in ("NumPyArray", "ArrayT")]
            return [*like, *self.made({"like": "None"})]
        if "backend" in self.kinds:
            return self.made({})
        return self.of_two() if {"x1", "x2"} <= set(self.arrays) else self.of_one()

    def replaced(self, argument: str, kind: str, result: str) -> Function:
        made = self.with_types({argument: kind}, "")
        made.returns = expression(result)
        return made

    def required(self, argument: str, kind: str) -> Function:
        """With an argument by keyword that has no default."""
        made = self.with_types({argument: kind}, kind)
        place = [p.arg for p in made.args.kwonlyargs].index(argument)
        made.args.kw_defaults[place] = None
        return made

    def made(self, types: dict[str, str]) -> list[Function]:
        """Creation and draws: an Array, except for parameters that are native arrays."""
        if not [name for name in self.arrays if name not in types]:
            return [self.with_types(types, "Array")]
        ours = {n: re.sub(r"\bOperand\b", "Array | complex", self.kinds[n].replace("AnyArray", "Array")) for n in self.arrays}
        return [self.with_types(ours | types, "Array"), self.with_types(types, "Any")]

    def of_one(self) -> list[Function]:
        if not self.arrays:
            return [self.with_types({}, "Array")]
        first = self.arrays[0]
        kinds = [(kind, kind) for kind in ("Array", "NumPyArray", "ArrayT")]  # with Array, what is Any gives Any
        if self.kinds[first] == "Operand":
            kinds.append(("complex", "Array"))
        return [
            self.with_types({first: re.sub(r"\b(AnyArray|Operand)\b", kind, self.kinds[first])}, result) for kind, result in kinds
        ]

    def of_two(self) -> list[Function]:
        rows = [
            ("Container", "Any", "Container"),
            ("Any", "Container", "Container"),
            ("Array", "Any", "Array"),
            ("Any", "Array", "Array"),
        ]
        number = " | complex" if "Operand" in self.kinds["x2"] else ""
        for kind in ("NumPyArray", "ArrayT"):
            rows.append((kind, kind + number, kind))
            if number and "Operand" in self.kinds["x1"]:
                rows.append(("complex", kind, kind))
        if number:
            rows.append(("complex", "complex", "Array"))
        made = [self.with_types({"x1": a, "x2": b}, result) for a, b, result in rows]
        if "None" not in self.kinds["x1"]:
            return made
        alone = self.with_types({}, "tuple[Any, ...]")  # `where` of a condition
        alone.args.posonlyargs, alone.args.defaults = alone.args.posonlyargs[:1], []
        for function in made:
            function.args.defaults = []
        return [*made, alone]


def overloaded(functions: list[Function]) -> list[Function]:
    for function in functions if len(functions) > 1 else []:
        function.decorator_list.insert(0, ast.Name("overload"))
    return functions


# ---- classes -------------------------------------------------------------------------------------------------------------------
def tuples_of(tree: ast.Module) -> list[str]:
    """The classes of a module that are named tuples of arrays."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and [text_of(b) for b in node.bases] == ["NamedTuple"]
        and "AnyArray" in ast.unparse(node)
    ]


def generic(node: ast.ClassDef) -> ast.ClassDef:
    made = ast.parse(ast.unparse(node).replace("AnyArray", "ArrayT")).body[0]
    assert isinstance(made, ast.ClassDef)
    made.bases.append(expression("Generic[ArrayT]"))
    made.body = [part for part in made.body if isinstance(part, ast.AnnAssign)]
    return made


def attributes(node: ast.ClassDef, kind: type) -> Iterator[str]:
    """Names that `__init__` sets and the class does not annotate, with the types of the arguments of the same names."""
    known = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)}
    known |= {part.name for part in node.body if isinstance(part, Function)}
    known |= {name for base in kind.__mro__[1:] for name in inspect.get_annotations(base)}
    start = next((part for part in node.body if isinstance(part, Function) and part.name == "__init__"), None)
    if start is None:
        return
    types = {p.arg: text_of(p.annotation) for p in parameters(start)}
    for part in ast.walk(start):
        is_set = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and text_of(part.value) == "self"
        if isinstance(part, ast.Attribute) and is_set and part.attr not in known and not part.attr.startswith("_"):
            known.add(part.attr)
            yield f"{part.attr}: {types.get(part.attr, 'Any')}"


def class_stub(node: ast.ClassDef, kind: type) -> ast.ClassDef:
    body: list[ast.stmt] = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    for part in body:
        assert isinstance(part, ast.AnnAssign)
        part.value = None
    body += ast.parse("\n".join(attributes(node, kind))).body
    for part in node.body:
        if isinstance(part, Function):
            merges = part.name == "__init__" and part.args.kwarg and text_of(part.args.kwarg.annotation) == "Any"
            body += [constructor(kind)] if merges else [bare(part)]
            if part.name == "forward":
                body += calls(part)
        elif isinstance(part, ast.Assign):
            names = (
                [text_of(target) for target in part.targets[0].elts]
                if isinstance(part.targets[0], ast.Tuple)
                else [text_of(part.targets[0])]
            )
            body += [declared(name) for name in names if not name.startswith("_")]
    return ast.ClassDef(node.name, node.bases, node.keywords, body or [ast.Expr(ast.Constant(...))], [])


def declared(name: str) -> ast.stmt:
    return ast.parse(f"{name}: Any").body[0]


def constructor(kind: type) -> ast.stmt:
    """The `__init__` of a layer that hands on the keywords of the class above."""
    own = getattr(kind, "signature", None)  # of a layer made from a function
    found = own.parameters.values() if own else importlib.import_module("trellis.nn.layer")._parameters(kind).values()
    shown, star = [], False
    for p in found:
        if p.kind is p.KEYWORD_ONLY and not star:
            shown, star = [*shown, "*"], True
        default = (
            ""
            if p.default is p.empty
            else f" = {p.default!r}"
            if type(p.default) in (int, float, str, bool, type(None))
            else " = ..."
        )
        shown.append(f"{p.name}: {p.annotation}{default}")
    return ast.parse(f"def __init__(self, {', '.join([*shown, '**options: Unpack[Options]'])}) -> None: ...").body[0]


def calls(forward: Function) -> list[Function]:
    """The call of a layer: `forward`, and the options of every Module."""
    if forward.args.vararg:
        return []
    node = copy.deepcopy(forward)
    node.name, node.decorator_list = "__call__", []
    node.args.kwonlyargs += [ast.arg(name, expression("Any")) for name in CALL_OPTIONS]
    node.args.kw_defaults += [ast.Constant(None)] * len(CALL_OPTIONS)
    return overloaded(Overloads(node, []).all())


# ---- modules -------------------------------------------------------------------------------------------------------------------
def source(name: str) -> ast.Module:
    return _source(importlib.import_module(name).__file__ or "")


@functools.cache
def _source(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text())


def module_stub(name: str) -> str:
    module, tree = importlib.import_module(name), source(name)
    tuples = tuples_of(tree)
    body: list[ast.stmt] = []
    for node in tree.body:
        body += statement(node, module, tuples)
    defined = {n for node in body for n in names_of(node)}
    if "__all__" not in defined:
        body.insert(0, ast.Assign([ast.Name("__all__")], ast.List([ast.Constant(public) for public in module.__all__]), lineno=0))
    for public in module.__all__:
        if public not in defined and inspect.isclass(made := getattr(module, public)):
            body.append(ast.ClassDef(public, [ast.Name(made.__bases__[0].__name__)], [], [constructor(made)], []))
    imports = "from typing import Any, Generic, NamedTuple, Unpack, overload\n\n"
    if not name.startswith("trellis.core"):
        imports += "from trellis.core.array import Array\nfrom trellis.core.container import Container\n"
        imports += f"from trellis.core.typing import {SUPPORT}\n"
    if name.startswith("trellis.nn"):
        imports += "from trellis.nn.building import Options\n"
    if name == "trellis.nn.functions":
        imports += "from trellis.ops.pooling import AdaptiveSize\nfrom trellis.ops.windows import Ints, Padding\n"
    return HEADER + imports + written(body)


def written(body: list[ast.stmt]) -> str:
    text = ast.unparse(ast.fix_missing_locations(ast.Module(body, []))) + "\n"
    return re.sub(r"\n{2,}(?!class )", "\n", re.sub(r":\n +\.\.\.\n", ": ...\n", text))


def names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [text_of(node.targets[0])]
    return [text_of(node.target)] if isinstance(node, ast.AnnAssign) else []


def statement(node: ast.stmt, module: ModuleType, tuples: list[str]) -> list[ast.stmt]:
    """What a stub has of a statement of the source."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [] if isinstance(node, ast.ImportFrom) and node.module == "__future__" else [node]
    if isinstance(node, Function):
        public = node.name in module.__all__
        return list(overloaded(Overloads(node, tuples).all())) if public else [bare(node)]
    if isinstance(node, ast.ClassDef):
        return [generic(node) if node.name in tuples else class_stub(node, getattr(module, node.name))]
    if isinstance(node, ast.AnnAssign):
        return [node if text_of(node.annotation) == "TypeAlias" else ast.AnnAssign(node.target, node.annotation, None, 1)]
    if isinstance(node, ast.Assign):
        return assignment(node, module)
    return []


def assignment(node: ast.Assign, module: ModuleType) -> list[ast.stmt]:
    target = node.targets[0]
    if not isinstance(target, (ast.Name, ast.Tuple)):
        return []
    names = [text_of(x) for x in target.elts] if isinstance(target, ast.Tuple) else [text_of(target)]
    value = getattr(module, names[0], None)
    if inspect.isclass(value) and isinstance(node.value, ast.Call):
        return []  # a layer, made from a function
    if names == ["__all__"] and any(isinstance(x, ast.Starred) for x in ast.walk(node.value)):
        return []  # type checkers read names that are written out
    keeps = (
        names == ["__all__"]
        or isinstance(node.value, ast.Name)
        or type(value).__module__ in ("types", "typing", "collections.abc")
    )
    if (keeps and not inspect.isfunction(value)) or isinstance(node.value, ast.Name):
        return [node]
    return [declared(name) for name in names if name not in ("__getattr__", "__dir__")]


# ---- the array and the package -------------------------------------------------------------------------------------------------
def function_node(function: Any) -> Function:
    plain = inspect.unwrap(function)
    found = [n for n in source(plain.__module__).body if isinstance(n, Function) and n.name == plain.__name__]
    return found[0]


def array_methods() -> str:
    """`trellis/core/array_methods.pyi`: the operators and methods of `tl.Array` that are set at run time."""
    array = importlib.import_module("trellis").Array
    written_out = {
        n.name
        for c in source("trellis.core.array").body
        if isinstance(c, ast.ClassDef) and c.name == "Array"
        for n in c.body
        if isinstance(n, Function)
    }
    hint = importlib.import_module("trellis.core.hints").Hint
    lines = []
    for name, value in sorted(vars(array).items()):
        if (
            name in written_out
            or isinstance(value, hint)
            or (name.startswith("_") and not name.startswith("__") and name not in FORMS)
        ):
            continue
        if name in FORMS:
            lines.append(FORMS[name])
        elif inspect.isfunction(value) and value.__name__ in ("operator", "<lambda>") and name.startswith("__"):
            lines.append(operator_text(name, value))
        elif inspect.isfunction(value) and not name.startswith("__"):
            lines.append(method_text(name, value))
    body = "\n".join("    " + line for text in lines for line in text.split("\n"))
    tuples = "from collections.abc import Sequence\nfrom typing import Any\n\nfrom trellis.core.array import Array\n"
    support = f"from trellis.core.operators import Operators\nfrom trellis.core.typing import {SUPPORT}\n"
    return f"{HEADER}{tuples}{support}\nclass ArrayMethods(Operators):\n{body}\n"


def operators() -> str:
    """`trellis/core/operators.pyi`: the operators that the rows of the table give to a class."""
    table = importlib.import_module("trellis.core.table")
    unary = [f"def __{name}__(self) -> Self: ..." for name, _ in table.operators(1)]
    names = [name for name, _ in table.operators(2) if name not in ("eq", "ne")]  # which every object has
    names += [f"r{name}" for name in names if name not in table.COMPARISONS]
    body = unary + [f"def __{name}__(self, other: Any, /) -> Self: ..." for name in names]
    made = ast.parse("class Operators:\n    __slots__ = ()\n" + "".join(f"    {line}\n" for line in body)).body
    kept = [node if isinstance(node, ast.Assign) else bare(node) for node in source("trellis.core.operators").body
            if isinstance(node, (ast.Assign, Function))]  # fmt: skip
    return f"{HEADER}from collections.abc import Callable\nfrom typing import Any, Self\n\n{written([*made, *kept])}"


def operator_text(name: str, function: Any) -> str:
    unary = len(inspect.signature(function).parameters) == 1 and "operands" not in inspect.signature(function).parameters
    unary = unary or name in ("__neg__", "__pos__", "__abs__", "__invert__")
    ignore = "  # type: ignore  # pyright: ignore" if name in ("__eq__", "__ne__") else ""
    return f"def {name}(self{'' if unary else ', other: Any, /'}) -> Array: ...{ignore}"


def method_text(name: str, function: Any) -> str:
    node = bare(function_node(function))
    first = (node.args.posonlyargs or node.args.args)[0]
    first.arg, first.annotation, node.name, node.decorator_list = "self", None, name, []
    node.returns = expression(re.sub(r"\bAnyArray\b", "Array", text_of(node.returns)))
    return written([node]).rstrip()


def origin(name: str, value: Any) -> str:
    """The line of the stub of the package for one public name."""
    if name in NUMBERS:
        return f"{name}: float"
    if value is None:
        return f"{name}: None"
    if inspect.ismodule(value):
        place, _, last = value.__name__.rpartition(".")
        return f"from {place} import {last} as {name}"
    place, named = getattr(value, "__module__", None), getattr(value, "__name__", name)
    if place is None or (name != named and not hasattr(sys.modules[place], name)):
        return f"from {place} import {named} as {name}"
    return f"from {'trellis.core.dtypes' if type(value).__name__ == 'DType' else place} import {name} as {name}"


def package_stub(name: str, *more: str) -> str:
    package = importlib.import_module(name)
    hidden = {"__array_namespace_info__"} & vars(package).keys()
    lines = [origin(public, getattr(package, public)) for public in sorted({*package.__all__} | hidden)]
    values = [line for line in lines if not line.startswith("from")]
    imports = sorted(line for line in lines if line.startswith("from"))
    return HEADER + "\n".join([*imports, "", *more, *values]) + "\n"


def stubs() -> dict[Path, str]:
    """The path and the text of every stub."""
    tl = importlib.import_module("trellis")
    names = [module.__name__ for room in (tl._ops, tl._random) for module in room.modules]
    names += [f"trellis.nn.{name}" for name in LAYERS]
    made = {ROOT / f"{name.replace('.', '/')}.pyi": module_stub(name) for name in names}
    made[ROOT / "trellis/core/array_methods.pyi"] = array_methods()
    made[ROOT / "trellis/core/operators.pyi"] = operators()
    made[ROOT / "trellis/__init__.pyi"] = package_stub("trellis", "__version__: str", "__array_api_version__: str")
    for room in ("ops", "random", "transforms"):
        made[ROOT / f"trellis/{room}/__init__.pyi"] = package_stub(f"trellis.{room}", "modules: list")
    return made


if __name__ == "__main__":
    for path, text in stubs().items():
        path.write_text(text)
