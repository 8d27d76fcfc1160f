"""Tables of torch's ops: one file per family, one row per op. A new op is one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trellis.trace.rows import draws, elementwise, nn, python, recurrent, reduction, shapes
from trellis.trace.rows.support import Row, expanded

FAMILIES = (elementwise, shapes, reduction, nn, recurrent, draws, python)
ROWS: dict[str, Row] = {name: row for family in FAMILIES for name, row in expanded(family.TABLE).items()}
RANDOM = frozenset(expanded(draws.TABLE))  # ops whose results differ from torch's, and from call to call


def run_row(op: str, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """One op of torch on `tl.Array`s: the dialect of the graphs that `capture.torch` makes."""
    return ROWS[op](*operands, **params)
