"""Layers that hold or wrap others: lists and dicts of Modules, `Residual`; and layers without parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Unpack

from trellis.core.typing import AnyArray
from trellis.nn.building import Options
from trellis.nn.layer import Layer, probability
from trellis.nn.module import Module
from trellis.nn.torch_names import SAME, Row
from trellis.ops.arguments import check_axis
from trellis.ops.attention import dropout
from trellis.ops.elementwise import add
from trellis.ops.manipulation import reshape

__all__ = ["Dropout", "Flatten", "Identity", "Lambda", "ModuleDict", "ModuleList", "Residual", "Sequential"]


class Numbered(Module):
    """Modules in a row: `v0`, `v1`, ..., and 0, 1, ... in torch."""

    length = 0

    def _add(self, module: Any) -> None:
        setattr(self, f"v{self.length}", module)
        self.length += 1

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, f"v{i}") for i in range(self.length)])

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def _torch_row(self, path: str, default: str) -> Row:
        return (path[1:] if path[1:].isdigit() else default), SAME


class Sequential(Numbered):
    """Modules or functions, one after the other; the first takes the arguments. Their parameters are at `v0`, `v1`, ...

    >>> import trellis as tl
    >>> model = tl.Sequential(tl.Linear(3, 4), tl.tanh, tl.Linear(4, 1))
    >>> model.v["v2/w"].shape, model(tl.ones((2, 3))).shape
    ((1, 4), (2, 1))
    """

    def __init__(self, *modules: Callable[..., Any], **options: Unpack[Options]) -> None:
        for i, module in enumerate(modules):
            if not callable(module):
                raise TypeError(f"Sequential: argument {i} is a {type(module).__name__}; expected a Module or a function")
            self._add(module)
        super().__init__(**options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        for i, module in enumerate(self):
            args = (module(*args, **kwargs) if i == 0 else module(args[0]),)
        return args[0] if len(args) == 1 else args


class ModuleList(Numbered):
    """A list of Modules, with their parameters at `v0`, `v1`, ...; a plain list as an attribute works too.

    >>> import trellis as tl
    >>> layers = tl.ModuleList([tl.Linear(3, 4)]).append(tl.Linear(4, 1))
    >>> len(layers), layers[-1].w.shape, list(layers.v)
    (2, (1, 4), ['v0', 'v1'])
    """

    def __init__(self, modules: Iterable[Module] = (), **options: Unpack[Options]) -> None:
        self.extend(modules)
        super().__init__(**options)

    def append(self, module: Module) -> ModuleList:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleList: expected a Module, got {type(module).__name__}; wrap a function in tl.Lambda")
        self._add(module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        for module in modules:
            self.append(module)
        return self

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, f"v{range(self.length)[index]}", module)


class ModuleDict(Module):
    """A dict of Modules, with their parameters at their keys; a plain dict as an attribute works too.

    >>> import trellis as tl
    >>> heads = tl.ModuleDict({"mean": tl.Linear(3, 1), "scale": tl.Linear(3, 1)})
    >>> heads["mean"](tl.ones((2, 3))).shape, list(heads)
    ((2, 1), ['mean', 'scale'])
    """

    def __init__(self, modules: Mapping[str, Module] = {}, **options: Unpack[Options]) -> None:
        for key, module in modules.items():
            self[key] = module
        super().__init__(**options)

    def _modules(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if isinstance(value, Module)}

    def __setitem__(self, key: str, module: Module) -> None:
        if not isinstance(module, Module):
            raise TypeError(f"ModuleDict: {key!r} is a {type(module).__name__}; expected a Module, e.g. tl.Lambda of a function")
        if hasattr(type(self), key) or key.startswith("_"):
            raise ValueError(f"ModuleDict: {key!r} is a name of Module's own; choose another, or use a plain dict")
        setattr(self, key, module)

    def __getitem__(self, key: str) -> Any:
        return self._modules()[key]

    def __delitem__(self, key: str) -> None:
        self[key]  # raises a KeyError for a key that is missing
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._modules())

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules())

    def keys(self) -> KeysView[str]:
        return self._modules().keys()

    def values(self) -> ValuesView[Any]:
        return self._modules().values()

    def items(self) -> ItemsView[str, Any]:
        return self._modules().items()


class Residual(Sequential):
    """shortcut(x) + f(x), where f runs the modules or functions one after the other; without `shortcut`, x + f(x).

    >>> import trellis as tl
    >>> tl.Residual(lambda x: 2 * x, tl.square)(tl.asarray([1.0, 3.0]))
    Array([ 5., 39.], dtype=float32, backend='numpy', device='cpu')
    """

    def __init__(
        self, *modules: Callable[..., Any], shortcut: Callable[..., Any] | None = None, **options: Unpack[Options]
    ) -> None:
        self.shortcut = shortcut
        super().__init__(*modules, **options)

    def forward(self, x: AnyArray) -> AnyArray:
        return add(x if self.shortcut is None else self.shortcut(x), super().forward(x))


class Flatten(Layer):
    """The axes from `start_axis` to `end_axis` as one.

    >>> import trellis as tl
    >>> tl.Flatten()(tl.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1, **options: Unpack[Options]) -> None:
        self.start_axis, self.end_axis = start_axis, end_axis
        super().__init__(**options)

    def forward(self, x: AnyArray) -> AnyArray:
        first = check_axis("Flatten", self.start_axis, x.ndim, "start_axis")
        last = check_axis("Flatten", self.end_axis, x.ndim, "end_axis")
        if first > last:
            raise ValueError(f"Flatten: start_axis={self.start_axis} is behind end_axis={self.end_axis} of x of shape {x.shape}")
        inner = x.shape[first : last + 1]
        sizes = *x.shape[:first], None if None in inner else math.prod(inner), *x.shape[last + 1 :]
        return reshape(x, tuple(-1 if n is None else n for n in sizes))  # one size may be unknown while tracing


class Identity(Layer):
    """x, unchanged.

    >>> import trellis as tl
    >>> tl.Identity()(tl.ones(2))
    Array([1., 1.], dtype=float32, backend='numpy', device='cpu')
    """

    def forward(self, x: Any) -> Any:
        return x


class Lambda(Layer):
    """A function as a Module.

    >>> import trellis as tl
    >>> tl.Lambda(lambda x: 2 * x)(tl.ones(2))
    Array([2., 2.], dtype=float32, backend='numpy', device='cpu')
    """

    def __init__(self, function: Callable[..., Any], **options: Unpack[Options]) -> None:
        self.function = function
        super().__init__(**options)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


class Dropout(Layer):
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
        self.prob, self.scale, self.noise_shape = probability("Dropout", "prob", prob), scale, noise_shape
        super().__init__(**options)
        self._keep_random_state()

    def forward(self, x: AnyArray) -> AnyArray:
        if not self.training or self.prob == 0:
            return x
        return dropout(x, self.prob, scale=self.scale, seed=self.next_seed(), noise_shape=self.noise_shape)
