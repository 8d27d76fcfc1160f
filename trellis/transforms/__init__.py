"""Functions of functions: gradients, control flow, `vmap` and `compile`.

Each of them takes nests of arrays apart and checks the arguments once. A backend gets functions of flat lists of its own arrays
(`backends/<name>/grad.py` and `backends/<name>/control.py`).
"""

from trellis.core.discovery import op_modules, public_names
from trellis.core.lifting import name_arguments

modules = op_modules(__name__, __path__, ("arguments", "carry"))
for _module in modules:
    name_arguments(_module)

globals().update(public_names(modules))
__all__ = [*public_names(modules)]  # pyright: ignore[reportUnsupportedDunderAll]
