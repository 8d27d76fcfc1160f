"""Optimizers over nests of arrays, single update steps, and learning-rate schedules."""

from trellis.core.hints import hooks as _hooks
from trellis.optim import gradients, rules, schedules, updates, wrappers
from trellis.optim.gradients import *
from trellis.optim.rules import *
from trellis.optim.schedules import *
from trellis.optim.updates import *
from trellis.optim.wrappers import *

__all__: list[str] = []
__all__ += gradients.__all__
__all__ += rules.__all__
__all__ += schedules.__all__
__all__ += updates.__all__
__all__ += wrappers.__all__

__getattr__, __dir__ = _hooks(__name__, "tl")
