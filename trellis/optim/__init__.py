"""Optimizers over nests of arrays, and what goes with them; schedules are in `trellis.schedules`."""

from trellis.optim import gradients, rules, wrappers
from trellis.optim.gradients import *  # noqa: F403
from trellis.optim.rules import *  # noqa: F403
from trellis.optim.wrappers import *  # noqa: F403

__all__: list[str] = []
__all__ += gradients.__all__
__all__ += rules.__all__
__all__ += wrappers.__all__
