"""Modules: layers and models that run and train on whichever framework their parameters are on."""

from trellis.nn import attention, composition, convolution, embedding, functions, initializers, normalization, recurrent
from trellis.nn.attention import *  # noqa: F403
from trellis.nn.composition import *  # noqa: F403
from trellis.nn.convolution import *  # noqa: F403
from trellis.nn.dropout import Dropout
from trellis.nn.embedding import *  # noqa: F403
from trellis.nn.functional import functional_call
from trellis.nn.functions import *  # noqa: F403
from trellis.nn.initializers import *  # noqa: F403
from trellis.nn.linear import Linear, Sequential
from trellis.nn.module import Module
from trellis.nn.normalization import *  # noqa: F403
from trellis.nn.printing import summary
from trellis.nn.recurrent import *  # noqa: F403
from trellis.nn.saving import load, save

__all__ = ["Dropout", "Linear", "Module", "Sequential", "functional_call", "initializers", "load", "save", "summary"]
__all__ += initializers.__all__
__all__ += attention.__all__
__all__ += composition.__all__
__all__ += convolution.__all__
__all__ += embedding.__all__
__all__ += functions.__all__
__all__ += normalization.__all__
__all__ += recurrent.__all__
