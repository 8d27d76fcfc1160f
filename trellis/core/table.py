"""The table of ops: one row per op that has facts beyond its signature. Everything that needs such a fact derives it from here.

These follow from the rows: the operators of `Array`, of `Container` and of a value on NumPy's tape; the short path of `Array` for
ops of one and of two arrays; NumPy's and SciPy's ufuncs on Arrays; the functions of a bound namespace that are the backend's own;
which ops the tape does not record; the dtype that an op computes in; the checks that `diagnosis` makes after an op has failed.

A new elementwise op is a row here, a public function in `ops/`, and a kernel in each backend; its gradient on NumPy is a row in
`backends/numpy/tape`. CONTRIBUTING.md shows each edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trellis.core import shape_checks as checks
from trellis.core.dtypes import DType, bool as bool_, float32, int64, integer_range
from trellis.core.errors import common_dtype_of


class Domain(NamedTuple):
    """The dtypes that an op computes in."""

    kinds: str  # of `DType.kind`
    words: str  # for an error
    to_float: bool = False  # whether integers and bools move to the default float


FLOATING = Domain("fc", "a floating-point dtype", True)
REAL_FLOATING = Domain("f", "a real floating-point dtype", True)
NUMERIC = Domain("iufc", "a numeric dtype")
REAL = Domain("iuf", "a real numeric dtype")
INTEGER = Domain("iu", "an integer dtype")
INTEGER_OR_BOOL = Domain("biu", "an integer or bool dtype")
ANY = Domain("biufc", "any dtype")


ORDERED, PRODUCT, JOINED = "ordered", "product", "joined"  # no complex numbers; no bools; a common dtype must exist


class Op(NamedTuple):
    """The facts about one op."""

    name: str
    arity: int = 0  # how many arrays it takes, if that is fixed
    domain: Domain | None = None  # of the dtypes of its operands, which promote; None if the op has rules of its own
    operator: str = ""  # "add" for __add__, __radd__ and __iadd__
    ufunc: str = ""  # the name of the NumPy or SciPy ufunc of the same meaning, if it is not `name`
    elementwise: bool = False  # takes arrays and nothing else, element by element
    constant: bool = False  # has no derivative: its result is an integer, a bool, or a step function
    takes_numbers: bool = False  # a kernel that takes a Python number for x2 gives what an array of that number gives
    dtypes: str = ""  # the rule of dtypes that `diagnosis` checks where there is no domain
    shapes: checks.Check | None = None  # what its shapes and static arguments must satisfy
    first_index: int = 0  # the place of its first index array
    shares: bool = False  # its result may share memory with its operand, on a framework whose arrays change
    views: bool = False  # its result is a view of its operand


def _unary(name: str, domain: Domain, operator: str = "", **facts: str | bool) -> Op:
    return Op(name, 1, domain, operator, elementwise=True, shapes=checks.broadcast, **facts)  # type: ignore[arg-type]


def _binary(name: str, domain: Domain, operator: str = "", **facts: str | bool) -> Op:
    return Op(name, 2, domain, operator, elementwise=True, shapes=checks.broadcast, **facts)  # type: ignore[arg-type]


_ROWS = (
    _unary("abs", NUMERIC, "abs", ufunc="absolute"),
    _unary("acos", FLOATING, ufunc="arccos"),
    _unary("acosh", FLOATING, ufunc="arccosh"),
    _unary("asin", FLOATING, ufunc="arcsin"),
    _unary("asinh", FLOATING, ufunc="arcsinh"),
    _unary("atan", FLOATING, ufunc="arctan"),
    _unary("atanh", FLOATING, ufunc="arctanh"),
    _unary("bitwise_invert", INTEGER_OR_BOOL, "invert", ufunc="invert", constant=True),
    _unary("ceil", REAL, constant=True),
    _unary("conj", NUMERIC, ufunc="conjugate", shares=True),
    _unary("cos", FLOATING),
    _unary("cosh", FLOATING),
    _unary("digamma", REAL_FLOATING, ufunc="psi"),
    _unary("erf", REAL_FLOATING),
    _unary("erfc", REAL_FLOATING),
    _unary("erfinv", REAL_FLOATING),
    _unary("exp", FLOATING),
    _unary("expit", FLOATING),
    _unary("expm1", FLOATING),
    _unary("floor", REAL, constant=True),
    _unary("gammaln", REAL_FLOATING),
    _unary("i0", REAL_FLOATING),
    _unary("imag", NUMERIC, shares=True),
    _unary("isfinite", ANY, constant=True),
    _unary("isinf", ANY, constant=True),
    _unary("isnan", ANY, constant=True),
    _unary("log", FLOATING),
    _unary("log10", FLOATING),
    _unary("log1p", FLOATING),
    _unary("log2", FLOATING),
    _unary("logical_not", ANY, constant=True),
    _unary("logit", REAL_FLOATING),
    _unary("negative", NUMERIC, "neg"),
    _unary("positive", NUMERIC, "pos", shares=True),
    _unary("real", NUMERIC, shares=True),
    _unary("reciprocal", FLOATING),
    _unary("round", NUMERIC, ufunc="rint", constant=True),
    _unary("sign", NUMERIC),
    _unary("signbit", REAL_FLOATING, constant=True),
    _unary("sin", FLOATING),
    _unary("sinh", FLOATING),
    _unary("sqrt", FLOATING),
    _unary("square", NUMERIC),
    _unary("tan", FLOATING),
    _unary("tanh", FLOATING),
    _unary("trunc", REAL, constant=True),
    _binary("add", NUMERIC, "add", takes_numbers=True),
    _binary("atan2", REAL_FLOATING, ufunc="arctan2"),
    _binary("bitwise_and", INTEGER_OR_BOOL, "and", constant=True, takes_numbers=True),
    _binary("bitwise_left_shift", INTEGER, "lshift", ufunc="left_shift", constant=True),
    _binary("bitwise_or", INTEGER_OR_BOOL, "or", constant=True, takes_numbers=True),
    _binary("bitwise_right_shift", INTEGER, "rshift", ufunc="right_shift", constant=True),
    _binary("bitwise_xor", INTEGER_OR_BOOL, "xor", constant=True, takes_numbers=True),
    _binary("copysign", REAL_FLOATING),
    _binary("divide", FLOATING, "truediv", ufunc="true_divide", takes_numbers=True),
    _binary("equal", ANY, "eq", constant=True, takes_numbers=True),
    _binary("floor_divide", REAL, "floordiv", constant=True),
    _binary("greater", REAL, "gt", constant=True, takes_numbers=True),
    _binary("greater_equal", REAL, "ge", constant=True, takes_numbers=True),
    _binary("hypot", REAL_FLOATING),
    _binary("less", REAL, "lt", constant=True, takes_numbers=True),
    _binary("less_equal", REAL, "le", constant=True, takes_numbers=True),
    _binary("logaddexp", REAL_FLOATING),
    _binary("logical_and", ANY, constant=True),
    _binary("logical_or", ANY, constant=True),
    _binary("logical_xor", ANY, constant=True),
    _binary("maximum", REAL),
    _binary("minimum", REAL),
    _binary("multiply", NUMERIC, "mul", takes_numbers=True),
    _binary("nextafter", REAL_FLOATING),
    _binary("not_equal", ANY, "ne", constant=True, takes_numbers=True),
    _binary("pow", NUMERIC, "pow", ufunc="power", takes_numbers=True),
    _binary("remainder", REAL, "mod"),
    _binary("subtract", NUMERIC, "sub", takes_numbers=True),
    _binary("xlogy", REAL_FLOATING),
    # ---- elementwise, with rules or parameters of their own ----
    Op("clip", 3, REAL, shapes=checks.broadcast),
    Op("isclose", 2, ANY, constant=True, shapes=checks.broadcast),
    Op("where", 3, ANY, shapes=checks.broadcast),
    # ---- along axes ----
    Op("all", 1, constant=True),
    Op("any", 1, constant=True),
    Op("argmax", 1, constant=True, shapes=checks.not_empty, dtypes=ORDERED),
    Op("argmin", 1, constant=True, shapes=checks.not_empty, dtypes=ORDERED),
    Op("argsort", 1, constant=True, dtypes=ORDERED),
    Op("count_nonzero", 1, constant=True),
    Op("cumulative_prod", 1, shapes=checks.flat_or_axis),
    Op("cumulative_sum", 1, shapes=checks.flat_or_axis),
    Op("log_softmax", 1, FLOATING),
    Op("logsumexp", 1, FLOATING),
    Op("max", 1, shapes=checks.not_empty, dtypes=ORDERED),
    Op("min", 1, shapes=checks.not_empty, dtypes=ORDERED),
    Op("softmax", 1, FLOATING),
    Op("sort", 1, dtypes=ORDERED),
    Op("top_k", 1, dtypes=ORDERED, shapes=checks.top_k),
    # ---- searching ----
    Op("allclose", 2, constant=True),
    Op("array_equal", 2, constant=True),
    Op("bincount", shapes=checks.first_vector),
    Op("histogram", shares=True),  # the edges that it is given
    Op("isin", 2, constant=True, dtypes=JOINED),
    Op("nonzero", 1, constant=True),
    Op("searchsorted", 2, constant=True, shapes=checks.first_vector, dtypes=ORDERED),
    # ---- indexing ----
    Op("gather", 2, first_index=1),
    Op("getitem", first_index=1),
    Op("index_update", first_index=2),
    Op("setitem", first_index=2),
    Op("take_along_axis", 2, shapes=checks.equal_ranks, first_index=1),
    # ---- shapes ----
    Op("broadcast_arrays", shapes=checks.broadcast, shares=True),
    Op("broadcast_to", 1, shapes=checks.broadcast_to, views=True),
    Op("concat", shapes=checks.joined, dtypes=JOINED),
    Op("empty_like", 1, constant=True),
    Op("diag", 1, shares=True),
    Op("expand_dims", 1, views=True),
    Op("flip", 1, views=True),
    Op("meshgrid", shares=True),
    Op("moveaxis", 1, shapes=checks.moveaxis, views=True),
    Op("pad", shapes=checks.pad),
    Op("permute_dims", 1, shapes=checks.permutation, views=True),
    Op("repeat", 2, shapes=checks.repeat),
    Op("reshape", 1, shapes=checks.reshape),
    Op("split", 1),
    Op("squeeze", 1, shapes=checks.squeeze, views=True),
    Op("stack", shapes=checks.joined, dtypes=JOINED),
    Op("take", 2, shapes=checks.flat_or_axis, first_index=1),
    Op("stop_gradient", 1, shares=True),
    Op("unstack", 1),
    # ---- matrices ----
    Op("cholesky", 1, shapes=checks.square),
    Op("cross", 2, shapes=checks.vecdot, dtypes=PRODUCT),
    Op("det", 1, shapes=checks.square),
    Op("diagonal", 1, shapes=checks.matrix, views=True),
    Op("eig", 1, shapes=checks.square),
    Op("eigh", 1, shapes=checks.square),
    Op("eigvals", 1, shapes=checks.square),
    Op("eigvalsh", 1, shapes=checks.square),
    Op("einsum", shapes=checks.einsum, dtypes=PRODUCT, shares=True),
    Op("expm", 1, shapes=checks.square),
    Op("inv", 1, shapes=checks.square),
    Op("kron", 2, dtypes=PRODUCT),
    Op("logm", 1, shapes=checks.square),
    Op("matmul", 2, operator="matmul", shapes=checks.matmul, dtypes=PRODUCT),
    Op("matrix_norm", 1, shapes=checks.matrix),
    Op("matrix_power", 1, shapes=checks.square),
    Op("matrix_rank", 1, constant=True, shapes=checks.matrix),
    Op("matrix_transpose", 1, shapes=checks.matrix, views=True),
    Op("outer", 2, shapes=checks.vectors, dtypes=PRODUCT),
    Op("pinv", 1, shapes=checks.matrix),
    Op("qr", 1, shapes=checks.matrix),
    Op("slogdet", 1, shapes=checks.square),
    Op("cholesky_solve", 2, shapes=checks.solve),
    Op("solve", 2, shapes=checks.solve),
    Op("solve_triangular", 2, shapes=checks.solve),
    Op("sqrtm", 1, shapes=checks.square),
    Op("svd", 1, shapes=checks.matrix),
    Op("svdvals", 1, shapes=checks.matrix),
    Op("tensordot", 2, shapes=checks.tensordot, dtypes=PRODUCT),
    Op("trace", 1, shapes=checks.matrix),
    Op("tril", 1, shapes=checks.matrix),
    Op("triu", 1, shapes=checks.matrix),
    Op("vecdot", 2, shapes=checks.vecdot, dtypes=PRODUCT),
)

TABLE: dict[str, Op] = {row.name: row for row in _ROWS}
ELEMENTWISE = frozenset(row.name for row in _ROWS if row.elementwise)
SHARING = frozenset(row.name for row in _ROWS if row.shares)
VIEWING = frozenset(row.name for row in _ROWS if row.views)
CONSTANT = frozenset(row.name for row in _ROWS if row.constant)
# Ops of one and of two arrays and nothing else: there is nothing to pack and unpack on the way to the backend.
OF_ONE_ARRAY = frozenset(row.name for row in _ROWS if row.elementwise and row.arity == 1)
OF_TWO_ARRAYS = frozenset(row.name for row in _ROWS if row.elementwise and row.arity == 2) | {"matmul"}
UFUNCS: dict[str, str] = {
    name: row.name for row in _ROWS if row.elementwise or row.operator for name in (row.name, row.ufunc) if name
}

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")  # Python swaps these itself; they have no form that works in place


def operators(arity: int) -> Iterable[tuple[str, str]]:
    """(operator, op) of the ops of one array ("neg"), or of two ("add", comparisons too)."""
    return [(row.operator, row.name) for row in _ROWS if row.operator and row.arity == arity]


def kinds(op: str) -> str:
    """The dtype kinds, as in `DType.kind`, that `op` computes in directly."""
    domain = TABLE[op].domain
    assert domain is not None
    return domain.kinds


def compute_dtype(op: str, items: Sequence[DType | complex], default_int: DType = int64) -> DType:
    """The dtype that `op` computes in, given the DType or the Python number of each operand. TypeError if there is none.

    A backend's fast path does not come here. Its slow path (mixed dtypes, Python numbers, an integer given to `exp`) does.
    """
    domain = TABLE[op].domain
    assert domain is not None
    dtype = common_dtype_of(op, items, default_int)
    if domain.to_float and dtype.kind in "biu":
        dtype = float32
    if dtype.kind not in domain.kinds:
        given = " and ".join(str(x) if type(x) is DType else f"Python {type(x).__name__}" for x in items)
        fix = "cast it with tl.astype" if dtype is not bool_ else "cast it with tl.astype(x, tl.int64), or use a logical op"
        raise TypeError(f"{op}: expected {domain.words}, got {given}; {fix}")
    if dtype.kind in "iu":
        low, high = integer_range(dtype)
        for x in items:
            if type(x) is not DType and not low <= x <= high:  # type: ignore[operator]
                raise OverflowError(
                    f"{op}: the Python integer {x} does not fit in {dtype} ({low} to {high}); cast the array first"
                )
    return dtype
