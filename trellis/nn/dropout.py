"""`Dropout`."""

from __future__ import annotations

from typing import Any, Unpack

from trellis.nn.building import Options
from trellis.nn.module import Module
from trellis.ops.attention import dropout
from trellis.typing import AnyArray

__all__ = ["Dropout"]


class Dropout(Module):
    """In training, zeros with probability `prob`, and the rest scaled up; in evaluation nothing.

    Draws from `functional_call(..., seed=)`, else, made with `seed=`, from its own random state, else from the framework.

    >>> import trellis as tl
    >>> layer = tl.Dropout(0.5, seed=0)
    >>> layer(tl.ones(6))
    Array([2., 0., 0., 0., 0., 2.], dtype=float32, backend='numpy', device='cpu')
    >>> layer.eval()(tl.ones(3))
    Array([1., 1., 1.], dtype=float32, backend='numpy', device='cpu')
    """

    def __init__(self, prob: float, *, scale: bool = True, noise_shape: Any = None, **options: Unpack[Options]) -> None:
        if not 0 <= prob <= 1:
            raise ValueError(f"Dropout: prob={prob!r}; a probability is between 0 and 1")
        self.prob, self.scale, self.noise_shape = prob, scale, noise_shape
        super().__init__(**options)
        self._keep_random_state()

    def forward(self, x: AnyArray) -> AnyArray:
        if not self.training or self.prob == 0:
            return x
        return dropout(x, self.prob, scale=self.scale, seed=self.next_seed(), noise_shape=self.noise_shape)

    def _repr_arguments(self) -> str:
        return f"{self.prob}"
