"""Modules: layers and models that run and train on whichever framework their parameters are on."""

from trellis.nn import initializers
from trellis.nn.dropout import Dropout
from trellis.nn.functional import functional_call
from trellis.nn.initializers import *  # noqa: F403
from trellis.nn.linear import Linear, Sequential
from trellis.nn.module import Module
from trellis.nn.printing import summary
from trellis.nn.saving import load, save

__all__ = ["Dropout", "Linear", "Module", "Sequential", "functional_call", "initializers", "load", "save", "summary"]
__all__ += initializers.__all__
