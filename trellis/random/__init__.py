"""Random numbers: keys, the state of a context, streams of numbers, and distributions. Functions of arrays take Containers."""

from trellis.core.discovery import op_modules, public_names
from trellis.core.hints import hooks as _hooks
from trellis.core.lifting import lift_module, name_arguments

modules = op_modules(__name__, __path__, ("sources", "initializers"))  # initializers load with the layers
for _module in modules:
    lift_module(_module)
    name_arguments(_module)

globals().update(public_names(modules))
__all__ = [*public_names(modules)]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = _hooks(__name__, "tl")
