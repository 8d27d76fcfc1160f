"""The whole backend of `plain_arrays`: this folder becomes `trellis/backends/plain` in a copy of the package."""

from __future__ import annotations

from trellis.backends.assembly import assemble
from trellis.core.discovery import op_modules

modules = op_modules(__name__, __path__)
interpreter = assemble("plain", modules)
