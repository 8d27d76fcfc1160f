"""Modules of other frameworks, both ways, and weights under their names.

The converters themselves are methods: `model.to_torch_module()`, `tl.Module.from_torch_module(native)`, and the like for Keras,
Haiku and Flax. Each framework is imported when it is asked for.
"""

from trellis.convert.common import ConversionError
from trellis.convert.weights import Report, export_weights, load_weights

__all__ = ["ConversionError", "Report", "export_weights", "load_weights"]
