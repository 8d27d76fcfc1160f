"""What a namespace can do: the inspection API of the array API standard."""

from __future__ import annotations

from typing import Any

from trellis import dtypes
from trellis.dispatch import target

# TensorFlow's transposes, slices and broadcasts stop at 8 dimensions; NumPy and torch at 64.
_MAX_DIMENSIONS = {"numpy": 64, "torch": 64, "tensorflow": 8}


class NamespaceInfo:
    """Capabilities, devices and dtypes of the default backend, or of the one a namespace is bound to."""

    def __init__(self, backend: str | None = None) -> None:
        self._backend = backend

    def capabilities(self) -> dict[str, Any]:
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MAX_DIMENSIONS.get(target(self._backend).name),
        }

    def default_device(self) -> str:
        return target(self._backend).default_device()

    def devices(self) -> tuple[str, ...]:
        return tuple(target(self._backend).devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        integer = target(self._backend).default_int()
        found = {"real floating": dtypes.float32, "complex floating": dtypes.complex64, "integral": integer, "indexing": integer}
        return {kind: self._native(dtype) for kind, dtype in found.items()}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, Any]:
        kinds = (kind,) if isinstance(kind, str) else tuple(dtypes.KINDS) if kind is None else kind
        for k in kinds:
            if k not in dtypes.KINDS:
                raise ValueError(f"dtypes: kind={k!r} is unknown; use one of {', '.join(map(repr, dtypes.KINDS))}")
        chosen = {d for k in kinds for d in self._available() if d.kind in dtypes.KINDS[k]}
        return {d.name: self._native(d) for d in self._available() if d in chosen}

    def _available(self) -> list[dtypes.DType]:
        """The standard's dtypes; JAX without x64 has none of 64 bits."""
        narrow = target(self._backend).default_int() is dtypes.int32
        extra = ("float16", "bfloat16")  # not in the standard's list, though every backend has them
        return [d for d in dtypes.DTYPES.values() if d.name not in extra and not (narrow and dtypes.real_of(d).bits == 64)]

    def _native(self, dtype: dtypes.DType) -> Any:
        return dtype if self._backend is None else target(self._backend).native_dtype(dtype)


def __array_namespace_info__() -> NamespaceInfo:
    """Capabilities, devices and dtypes of the default backend.

    >>> import trellis as tl
    >>> tl.__array_namespace_info__().default_dtypes()["real floating"]
    trellis.float32
    """
    return NamespaceInfo()
