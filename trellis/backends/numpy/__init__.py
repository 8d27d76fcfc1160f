"""NumPy as an interpreter. Results are arrays or NumPy scalars (0-d), as NumPy itself gives them; both are operands."""

from __future__ import annotations

from trellis.backends.assembly import assemble
from trellis.backends.numpy.indexing import as_int, follows
from trellis.core.discovery import op_modules

modules = op_modules(__name__, __path__, ("batch", "complexes", "operands", "quiet", "special"))
interpreter = assemble("numpy", modules)
interpreter.changes_in_place = True
interpreter.as_int, interpreter.follows = as_int, follows
interpreter.lies_in_order = lambda x: x.flags.c_contiguous
