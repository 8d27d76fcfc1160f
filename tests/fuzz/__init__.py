"""Differential fuzzing: draw calls, programs and layers, run them in every way we offer, and report each difference as one line.

- `drawing.py` draws operands: dtypes, shapes, special values, Python and NumPy numbers, enums, None.
- `calls.py` draws the arguments of every public function from its signature; `builders.py` has a builder for each family of
  functions whose shapes hang together; `operators.py` draws operators, indexing and assignment of Arrays.
- `forms.py` runs a case on a backend, native, as Array, as Container, compiled, differentiated or under vmap, and compares
  outcomes with NumPy's.
- `programs.py` composes 5 to 30 ops and differentiates the result twice; `layers.py` feeds every layer every dtype and layout.
- `child.py` is the process that does the work, and gives each kind of case its share of the time.
- `reduction.py` makes a failing case smaller and prints it as Python.
- `known.txt` lists the differences that are allowed, each with a reason.

`python -m fuzz --seconds 60` in `tests/` runs it. An abort or a hang of the child is a finding too.
"""
