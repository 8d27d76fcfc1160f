"""PyTorch as a namespace of ops: eager, under autograd, torch.func, FakeTensors and torch.compile alike."""

from __future__ import annotations

from trellis.backends.assembly import assemble
from trellis.backends.torch.indexing import as_int, follows, lies_in_order
from trellis.core.discovery import op_modules

modules = op_modules(__name__, __path__, ("complexes", "dynamo", "operands", "unsigned"))
interpreter = assemble("torch", modules)
interpreter.changes_in_place = True
interpreter.as_int, interpreter.follows = as_int, follows
interpreter.lies_in_order = lies_in_order
