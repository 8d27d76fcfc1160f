"""The public functions: signature, docstring and argument checks, once. The type of their arrays decides which code runs.

The package finds its own modules. Every function of arrays takes Containers in the place of arrays. Most functions pass all of
their arrays to `call`, which finds the interpreter of Containers. The other functions are lifted here.
"""

from typing import TYPE_CHECKING

from trellis.core.array import Array as _Array
from trellis.core.discovery import op_modules
from trellis.core.hints import install as _install_hints
from trellis.core.lifting import lift_module, name_arguments

# The functions of the other modules pass every array on as an operand: a wrapper would only cost time. Some read an array first.
_LIFTED = {
    "attention", "convolution", "creation", "data_types", "fft", "images", "losses", "normalization", "patterns", "pooling",
    "recurrent",
}  # fmt: skip
_READING = (
    "array_split", "chunk", "diag", "dot", "glu", "histogram", "pad", "prelu", "split", "squeeze", "swapaxes", "swiglu",
    "transpose",
)  # fmt: skip

modules = op_modules(__name__, __path__, ("arguments", "methods", "shapes", "windows"))
for _module in modules:
    _all = _module.__name__.rpartition(".")[2] in _LIFTED
    lift_module(_module, only=(lambda name: True) if _all else _READING.__contains__)
    name_arguments(_module)

# The lifted functions, under one name for the rooms above: `from trellis import ops as tl`.
from trellis.ops import fft, linalg
from trellis.ops.activations import *
from trellis.ops.attention import *
from trellis.ops.comparison import *
from trellis.ops.conversion import *
from trellis.ops.convolution import *
from trellis.ops.creation import *
from trellis.ops.data_types import *
from trellis.ops.elementwise import *
from trellis.ops.images import *
from trellis.ops.indexing import *
from trellis.ops.linalg import cholesky_solve, diagonal, matmul, matrix_transpose, outer, tensordot, trace, vecdot
from trellis.ops.losses import *
from trellis.ops.manipulation import *
from trellis.ops.methods import install_methods as _install_methods
from trellis.ops.normalization import *
from trellis.ops.patterns import *
from trellis.ops.pooling import *
from trellis.ops.products import *
from trellis.ops.recurrent import *
from trellis.ops.reduction import *
from trellis.ops.searching import *
from trellis.ops.special import *

if not TYPE_CHECKING:  # a type checker sees the names above
    extensions = (fft, linalg)  # own namespaces; the standard has some names of linalg in the main namespace, too
    __all__ = ["fft", "linalg", "cholesky_solve", "diagonal", "matmul", "matrix_transpose", "outer"]
    __all__ += ["tensordot", "trace", "vecdot"]
    __all__ += [name for module in modules if module not in extensions for name in module.__all__]

_install_methods([module for module in modules if module not in (fft, linalg)])
_install_hints(_Array, "Array")
