"""Differential fuzzing: draw calls, programs and layers, run them in every way we offer, and report each difference as one line.

- `drawing.py` draws operands: dtypes, shapes, special values, Python and NumPy numbers, enums, None.
- `calls.py` draws the arguments of every public function from its signature, with builders for families of functions.
- `forms.py` runs a case on a backend, native, as Array, as Container or compiled, and compares outcomes with NumPy's.
- `programs.py` composes 5 to 30 ops and differentiates the result twice; `layers.py` feeds every layer every dtype.
- `reduction.py` makes a failing case smaller and prints it as Python.
- `known.txt` lists the differences that are allowed, each with a reason.

`python -m fuzz --seconds 60` in `tests/` runs it. A child process does the work, so that an abort or a hang is a finding too.
"""
