"""The table of ops that have facts beyond their signature: one row for all ops with the same facts.

Everything that needs such a fact derives it from here.

These follow from the rows: the operators of `Array`, of `Container` and of a value on NumPy's tape; the short path of `Array` for
ops of one and of two arrays; NumPy's and SciPy's ufuncs on Arrays; the functions of a bound namespace that are the backend's own;
which ops the tape does not record; the dtype that an op computes in; the checks that `diagnosis` makes after an op has failed.

A new elementwise op is a name in a row here, or a row of its own, a public function in `ops/`, and a kernel in each backend; its
gradient on NumPy is a row in `backends/numpy/tape`. CONTRIBUTING.md shows each edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trellis.core import shape_checks as checks
from trellis.core.dtypes import DTYPES, DType, bool as bool_, float32, int64, integer_range
from trellis.core.errors import common_dtype_of, imaginary_part_lost


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


def _each(names: str, *facts: Any, **more: Any) -> list[Op]:
    """The rows of several ops with the same facts."""
    return [Op(name, *facts, **more) for name in names.split()]


def _unary(names: str, domain: Domain, operator: str = "", **facts: Any) -> list[Op]:
    return _each(names, 1, domain, operator, elementwise=True, shapes=checks.broadcast, **facts)


def _binary(names: str, domain: Domain, operator: str = "", **facts: Any) -> list[Op]:
    return _each(names, 2, domain, operator, elementwise=True, shapes=checks.broadcast, **facts)


_ROWS = (
    *_unary("abs", NUMERIC, "abs", ufunc="absolute"),
    *(op for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh") for op in _unary(f"a{name}", FLOATING, ufunc=f"arc{name}")),
    *_unary("bitwise_invert", INTEGER_OR_BOOL, "invert", ufunc="invert", constant=True),
    *_unary("ceil floor trunc", REAL, constant=True),
    *_unary("conj", NUMERIC, ufunc="conjugate", shares=True),
    *_unary("cos cosh exp expit expm1 log log10 log1p log2 reciprocal sin sinh sqrt tan tanh", FLOATING),
    *_unary("digamma", REAL_FLOATING, ufunc="psi"),
    *_unary("erf erfc erfinv gammaln i0 logit", REAL_FLOATING),
    *_unary("imag real", NUMERIC, shares=True),
    *_unary("isfinite isinf isnan logical_not", ANY, constant=True),
    *_unary("negative", NUMERIC, "neg"),
    *_unary("positive", NUMERIC, "pos", shares=True),
    *_unary("round", NUMERIC, ufunc="rint", constant=True),
    *_unary("sign square", NUMERIC),
    *_unary("signbit", REAL_FLOATING, constant=True),
    *_binary("add", NUMERIC, "add", takes_numbers=True),
    *_binary("atan2", REAL_FLOATING, ufunc="arctan2"),
    *_binary("bitwise_and", INTEGER_OR_BOOL, "and", constant=True, takes_numbers=True),
    *_binary("bitwise_left_shift", INTEGER, "lshift", ufunc="left_shift", constant=True),
    *_binary("bitwise_or", INTEGER_OR_BOOL, "or", constant=True, takes_numbers=True),
    *_binary("bitwise_right_shift", INTEGER, "rshift", ufunc="right_shift", constant=True),
    *_binary("bitwise_xor", INTEGER_OR_BOOL, "xor", constant=True, takes_numbers=True),
    *_binary("copysign hypot logaddexp nextafter xlogy", REAL_FLOATING),
    *_binary("divide", FLOATING, "truediv", ufunc="true_divide", takes_numbers=True),
    *_binary("equal", ANY, "eq", constant=True, takes_numbers=True),
    *_binary("floor_divide", REAL, "floordiv", constant=True),
    *_binary("greater", REAL, "gt", constant=True, takes_numbers=True),
    *_binary("greater_equal", REAL, "ge", constant=True, takes_numbers=True),
    *_binary("less", REAL, "lt", constant=True, takes_numbers=True),
    *_binary("less_equal", REAL, "le", constant=True, takes_numbers=True),
    *_binary("logical_and logical_or logical_xor", ANY, constant=True),
    *_binary("maximum minimum", REAL),
    *_binary("multiply", NUMERIC, "mul", takes_numbers=True),
    *_binary("not_equal", ANY, "ne", constant=True, takes_numbers=True),
    *_binary("pow", NUMERIC, "pow", ufunc="power", takes_numbers=True),
    *_binary("remainder", REAL, "mod"),
    *_binary("subtract", NUMERIC, "sub", takes_numbers=True),
    # ---- elementwise, with rules or parameters of their own ----
    *_each("clip", 3, REAL, shapes=checks.broadcast),
    *_each("isclose", 2, ANY, constant=True, shapes=checks.broadcast),
    *_each("where", 3, ANY, shapes=checks.broadcast),
    # ---- along axes ----
    *_each("all any count_nonzero", 1, constant=True),
    *_each("argmax argmin", 1, constant=True, shapes=checks.not_empty, dtypes=ORDERED),
    *_each("argsort", 1, constant=True, dtypes=ORDERED),
    *_each("cumulative_prod cumulative_sum", 1, shapes=checks.flat_or_axis),
    *_each("log_softmax logsumexp softmax", 1, FLOATING),
    *_each("max min", 1, shapes=checks.not_empty, dtypes=ORDERED),
    *_each("sort", 1, dtypes=ORDERED),
    *_each("top_k", 1, dtypes=ORDERED, shapes=checks.top_k),
    # ---- searching ----
    *_each("allclose array_equal", 2, constant=True),
    *_each("bincount", shapes=checks.first_vector),
    *_each("histogram", shares=True),  # the edges that it is given
    *_each("isin", 2, constant=True, dtypes=JOINED),
    *_each("nonzero", 1, constant=True),
    *_each("searchsorted", 2, constant=True, shapes=checks.first_vector, dtypes=ORDERED),
    # ---- indexing ----
    *_each("gather", 2, shapes=checks.gather, first_index=1),
    *_each("getitem", first_index=1),
    *_each("index_update setitem", first_index=2),
    *_each("take", 2, shapes=checks.flat_or_axis, first_index=1),
    *_each("take_along_axis", 2, shapes=checks.equal_ranks, first_index=1),
    # ---- shapes ----
    *_each("broadcast_arrays", shapes=checks.broadcast, shares=True),
    *_each("broadcast_to", 1, shapes=checks.broadcast_to, views=True),
    *_each("concat stack", shapes=checks.joined, dtypes=JOINED),
    *_each("diag stop_gradient", 1, shares=True),
    *_each("empty_like", 1, constant=True),
    *_each("expand_dims flip", 1, views=True),
    *_each("meshgrid", shares=True),
    *_each("moveaxis", 1, shapes=checks.moveaxis, views=True),
    *_each("pad", shapes=checks.pad),
    *_each("permute_dims", 1, shapes=checks.permutation, views=True),
    *_each("repeat", 2, shapes=checks.repeat),
    *_each("reshape", 1, shapes=checks.reshape),
    *_each("split unstack", 1),
    *_each("squeeze", 1, shapes=checks.squeeze, views=True),
    # ---- matrices ----
    *_each("cholesky det eig eigh eigvals eigvalsh expm inv logm matrix_power slogdet sqrtm", 1, shapes=checks.square),
    *_each("cholesky_solve solve solve_triangular", 2, shapes=checks.solve),
    *_each("cross vecdot", 2, shapes=checks.vecdot, dtypes=PRODUCT),
    *_each("diagonal matrix_transpose", 1, shapes=checks.matrix, views=True),
    *_each("einsum", shapes=checks.einsum, dtypes=PRODUCT, shares=True),
    *_each("kron", 2, dtypes=PRODUCT),
    *_each("matmul", 2, operator="matmul", shapes=checks.matmul, dtypes=PRODUCT),
    *_each("matrix_norm pinv qr svd svdvals trace tril triu", 1, shapes=checks.matrix),
    *_each("matrix_rank", 1, constant=True, shapes=checks.matrix),
    *_each("outer", 2, shapes=checks.vectors, dtypes=PRODUCT),
    *_each("tensordot", 2, shapes=checks.tensordot, dtypes=PRODUCT),
)

TABLE: dict[str, Op] = {row.name: row for row in _ROWS}
ELEMENTWISE = frozenset(row.name for row in _ROWS if row.elementwise)
_POOLING = "adaptive_average_pool adaptive_max_pool average_pool max_pool"  # where a window is one element
SHARING = frozenset([*_POOLING.split(), *(row.name for row in _ROWS if row.shares)])
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


def sum_dtype(op: str, x: DType, wanted: DType | None, default_int: DType = int64) -> DType:
    """The dtype of a sum or product of elements of dtype `x`: that of narrow integers has the width of the default integer."""
    if wanted is not None:
        if x.kind == "c" and wanted.kind != "c":
            raise imaginary_part_lost(op, x, wanted)
        return wanted
    if x.kind not in "biu" or x.bits >= default_int.bits:
        return x
    return DTYPES[f"uint{default_int.bits}"] if x.kind == "u" else default_int


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
