"""TensorFlow: an array namespace on its own kernels, eager and inside tf.function."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import config

from trellis.backends.assembly import assemble
from trellis.backends.elementwise import Kernel
from trellis.backends.tensorflow.meta import short_name
from trellis.core import errors
from trellis.core.discovery import op_modules

# AutoGraph runs our functions as they are, as it does with Keras. To convert a gradient of four layers took 12 s; to trace it
# takes 0.6 s.
config.CONVERSION_RULES = (config.DoNotConvert("trellis"), *config.CONVERSION_RULES)

_CHOOSE_THEIR_DEVICE = ("control", "creation", "grad", "meta", "random")
modules = op_modules(__name__, __path__, ("arrangement", "complexes", "derivatives", "operands", "shapes"))


def _placed_module(module: Any) -> Any:
    """The ops of a module, made to run where their operands are: TensorFlow copies operands to the default device silently."""
    if module.__name__.endswith(_CHOOSE_THEIR_DEVICE):
        return module
    return SimpleNamespace(__all__=module.__all__, **{op: _placed(op, getattr(module, op)) for op in module.__all__})


def _placed(op: str, function: Kernel) -> Kernel:
    def run(*operands: Any, **params: Any) -> Any:
        found = {x.device for x in operands if isinstance(x, (tf.Tensor, tf.Variable)) and x.device}
        if len(found) > 1:
            raise errors.two_devices(op, map(short_name, found))
        with tf.device(found.pop() if found else None):
            return function(*operands, **params)

    return run


if len(tf.config.list_logical_devices()) > 1:
    modules = [_placed_module(module) for module in modules]
interpreter = assemble("tensorflow", modules)
interpreter.follows = lambda x, *_: not isinstance(x, tf.Variable)  # the only array of TensorFlow that changes
