"""The gradient tape of NumPy. Importing it makes its interpreter the one of values being differentiated.

Modules, each importing only from those before it: `numpy_functions`, `numpy_value` (what plain NumPy code does with a value),
`watching`, `recording` (nodes, forward, backward), `rules_*`, `rules` (the table and the interpreter).
"""

from trellis.backends.numpy.tape import rules

__all__ = ["rules"]
