"""The conformance matrix: rows are tests, columns are backends, and every cell has its evidence.

Rules this package obeys:
- A cell is green only when its test ran to the end there and compared something: comparisons are counted.
- Five statuses, never blurred: passed, failed, crashed (or timed out), not run (with a reason), known failure (with a reason).
- One process per backend. A crash or a hang is the result of one cell, and the others go on in a new process.
- One JSON file per cell, written whole or not at all. The report shows these files and nothing else.
- A report deletes only files that a report wrote.
"""

from __future__ import annotations

from trellis.matrix.comparisons import compared

__all__ = ["compared"]
