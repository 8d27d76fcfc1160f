"""The conformance matrix: rows are tests, columns are backends, and every cell has its evidence.

Rules this package obeys:
- A cell is green only when its test ran to the end there and compared something: comparisons are counted.
- Five statuses, never blurred: passed, failed, crashed (or timed out), not run (with a reason), known failure (with a reason).
- One process a backend. A crash or a hang is a result of one cell, and the rest goes on in a new process.
- One JSON file a cell, written whole or not at all. What is shown comes from these files and from nothing else.
"""

from __future__ import annotations

from trellis.matrix.comparisons import compared

__all__ = ["compared"]
