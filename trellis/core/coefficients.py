"""The numbers in `coefficients.txt`, which has a row for each polynomial or series: its name -> its coefficients."""

from __future__ import annotations

import pkgutil

_LINES = (pkgutil.get_data("trellis.core", "coefficients.txt") or b"").decode().splitlines()
COEFFICIENTS = {name: tuple(map(float, numbers)) for name, *numbers in map(str.split, _LINES) if name != "#"}
