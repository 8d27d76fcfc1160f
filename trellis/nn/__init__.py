"""Modules: layers and models that run and train on whichever framework their parameters are on."""

from trellis.core.hints import hooks as _hooks
from trellis.nn import attention, composition, convolution, functions, linear, normalization, recurrent
from trellis.nn.attention import *
from trellis.nn.composition import *
from trellis.nn.convolution import *
from trellis.nn.functional import functional_call
from trellis.nn.functions import *
from trellis.nn.linear import *
from trellis.nn.module import Module
from trellis.nn.normalization import *
from trellis.nn.printing import summary
from trellis.nn.recurrent import *
from trellis.nn.saving import load, save
from trellis.random import initializers
from trellis.random.initializers import *

__all__ = ["Module", "functional_call", "initializers", "load", "save", "summary"]
__all__ += initializers.__all__
__all__ += attention.__all__
__all__ += composition.__all__
__all__ += convolution.__all__
__all__ += functions.__all__
__all__ += linear.__all__
__all__ += normalization.__all__
__all__ += recurrent.__all__

__getattr__, __dir__ = _hooks(__name__, "tl")
