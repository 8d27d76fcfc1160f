"""Functions of functions: gradients, control flow, `vmap` and `compile`.

Each of them takes nests of arrays apart and checks the arguments once. A backend gets functions of flat lists of its own arrays
(`backends/<name>/grad.py` and `backends/<name>/control.py`).
"""

from typing import TYPE_CHECKING

from trellis.core.discovery import op_modules
from trellis.core.lifting import name_arguments

modules = op_modules(__name__, __path__, ("arguments", "carry"))
for _module in modules:
    name_arguments(_module)

from trellis.transforms.compile import *
from trellis.transforms.control import *
from trellis.transforms.gradients import *
from trellis.transforms.recurrence import *
from trellis.transforms.vmap import *

if not TYPE_CHECKING:  # a type checker sees the names above
    __all__ = [name for module in modules for name in module.__all__]
