"""Shapes: what they broadcast to. A size that a graph does not know is None."""

from __future__ import annotations


def broadcast_shapes(*shapes: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The shape that arrays of the given shapes broadcast to.

    >>> import trellis as tl
    >>> tl.broadcast_shapes((3, 1), (2,))
    (3, 2)
    """
    result: list[int | None] = [1] * max([0, *[len(shape) for shape in shapes]])
    for shape in shapes:
        for i, size in enumerate(reversed(shape), 1):
            known = result[-i]
            if size == 1 or size == known:
                continue
            if known != 1 and known is not None and size is not None:
                raise ValueError(
                    f"broadcast_shapes: {' and '.join(map(str, shapes))} do not broadcast: {known} and {size} at axis {-i}"
                )
            result[-i] = size if known == 1 else known if size is None else size
    return tuple(result)
