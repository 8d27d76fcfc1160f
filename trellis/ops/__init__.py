"""The public functions: signature, docstring and argument checks, once. The type of their arrays decides which code runs.

The package finds its own modules. Every function of arrays takes Containers in the place of arrays. Most functions pass all of
their arrays to `call`, which finds the interpreter of Containers. The other functions are lifted here.
"""

from trellis.core.array import Array as _Array
from trellis.core.discovery import op_modules, public_names
from trellis.core.hints import install as _install_hints
from trellis.core.lifting import lift_module, name_arguments
from trellis.core.shapes import broadcast_shapes

# The functions of the other modules pass every array on as an operand: a wrapper would only cost time. Some read an array first.
_LIFTED = {
    "attention", "convolution", "creation", "data_types", "fft", "images", "losses", "normalization", "patterns", "pooling",
    "recurrent",
}  # fmt: skip
_READING = (
    "array_split", "chunk", "diag", "dot", "glu", "histogram", "pad", "prelu", "split", "squeeze", "swapaxes", "swiglu",
    "transpose",
)  # fmt: skip

_OF_LINALG = ("cholesky_solve", "diagonal", "matmul", "matrix_transpose", "outer", "tensordot", "trace", "vecdot")

modules = op_modules(__name__, __path__, ("arguments", "methods", "shapes", "windows"))
for _module in modules:
    _all = _module.__name__.rpartition(".")[2] in _LIFTED
    lift_module(_module, only=(lambda name: True) if _all else _READING.__contains__)
    name_arguments(_module)

# The lifted functions, under one name for the rooms above: `from trellis import ops as tl`.
from trellis.ops import fft, linalg
from trellis.ops.methods import install_methods as _install_methods

extensions = (fft, linalg)  # own namespaces; the standard has some names of linalg in the main namespace, too
_flat = [module for module in modules if module not in extensions]
globals().update({name: getattr(linalg, name) for name in _OF_LINALG}, **public_names(_flat))
__all__ = ["broadcast_shapes", "fft", "linalg", *_OF_LINALG, *public_names(_flat)]  # pyright: ignore[reportUnsupportedDunderAll]

_install_methods(_flat)
_install_hints(_Array, "Array", {name: f"tl.linalg.{name}" for name in linalg.__all__} | {name: f"tl.{name}" for name in __all__})
