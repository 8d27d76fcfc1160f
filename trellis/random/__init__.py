"""Random numbers: keys, the state of a context, streams of numbers, and distributions. Functions of arrays take Containers."""

from typing import TYPE_CHECKING

from trellis.core.discovery import op_modules
from trellis.core.hints import hooks as _hooks
from trellis.core.lifting import lift_module, name_arguments

modules = op_modules(__name__, __path__, ("sources",))
for _module in modules:
    lift_module(_module)
    name_arguments(_module)

from trellis.random.distributions import *
from trellis.random.keys import *
from trellis.random.samplers import *
from trellis.random.state import *

if not TYPE_CHECKING:
    __all__ = [name for module in modules for name in module.__all__]
    __getattr__, __dir__ = _hooks(__name__, "tl", __all__)
