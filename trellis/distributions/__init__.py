"""Probability distributions: `tl.distributions.Normal(0.0, 1.0).log_prob(x)`. Written once, on arrays of every framework."""

from trellis.core.hints import hooks as _hooks
from trellis.distributions import compound, continuous, discrete
from trellis.distributions.base import Distribution, kl
from trellis.distributions.compound import *
from trellis.distributions.continuous import *
from trellis.distributions.discrete import *

__all__ = ["Distribution", "kl"]
__all__ += compound.__all__
__all__ += continuous.__all__
__all__ += discrete.__all__

__getattr__, __dir__ = _hooks(__name__, "tl")
