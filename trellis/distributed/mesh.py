"""`mesh`: how the devices share the work of a training."""

from __future__ import annotations

import copy
import fnmatch
import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from trellis.core import tree
from trellis.core.dispatch import default_backend
from trellis.core.leaves import unwrap
from trellis.distributed import collectives, environment
from trellis.distributed.parts import PartSteps
from trellis.distributed.steps import ProcessSteps, description
from trellis.training.data import Place
from trellis.training.steps import Steps, inner, named_metrics


class Rules:
    """Which axis of the mesh divides which axis of a parameter, by patterns of paths."""

    def __init__(self, rules: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        self.rules, self.sizes, self.specs = dict(rules), sizes, {}
        for pattern, axes in self.rules.items():
            wrong = [axis for axis in axes if axis is not None and axis not in sizes]
            if wrong:
                raise ValueError(f"mesh: rules[{pattern!r}] names the axis {wrong[0]!r}; the mesh has {', '.join(sizes)}")

    def spec(self, path: str, shape: tuple[int, ...]) -> tuple[str | None, ...]:
        """An axis of the mesh, or None, for each axis of the parameter; empty if it lies whole on each device."""
        axes = next((tuple(axes) for pattern, axes in self.rules.items() if fnmatch.fnmatchcase(f"/{path}", f"*{pattern}")), ())
        if len(axes) > len(shape):
            raise ValueError(f"mesh: a rule has {len(axes)} axes for {path!r} of shape {list(shape)}")
        for axis, size in zip(axes, shape):
            if axis is not None and size % self.sizes[axis]:
                raise ValueError(f"mesh: {axis}={self.sizes[axis]} does not divide {path!r} of shape {list(shape)}")
        return (*axes, *(None,) * (len(shape) - len(axes))) if any(axes) else ()

    def read(self, v: Any) -> Rules:
        """These rules, looked up for the parameters of a model."""
        made, shapes = copy.copy(self), {path: tuple(unwrap(x).shape) for path, x in tree.leaves_with_paths(v)}
        made.specs = {path: (spec, shape) for path, shape in shapes.items() if (spec := self.spec(path, shape))}
        return made

    def find(self, path: str) -> tuple[tuple[str | None, ...], tuple[int, ...]]:
        """The axes and the shape of a divided parameter, for its path or that of its slots; empty for others."""
        names = [name for name in self.specs if path == name or path.endswith(f"/{name}")]
        return self.specs[max(names, key=len)] if names else ((), ())


class Mesh:
    """The devices of all processes as named axes, made by `tl.distributed.mesh`.

    `is_first` is whether this process prints and writes; `Trainer` takes its steps from `steps`.

    >>> import trellis as tl
    >>> mesh = tl.distributed.mesh(data=-1)
    >>> mesh.sizes, mesh.is_first
    ({'data': 1, 'model': 1}, True)
    """

    def __init__(self, asked: dict[str, int], rules: Mapping[str, Any]) -> None:
        self.asked, self.given_rules = asked, dict(rules)
        self.group = collectives.group()
        self.is_first = self.group.rank == 0
        self._resolve(default_backend() if self.group.engine is None else self.group.engine.name)

    def _resolve(self, backend: str | None) -> None:
        """The sizes of the axes, once the devices are known."""
        devices = import_module("jax").device_count() if backend == "jax" else self.group.size
        known = math.prod(size for size in self.asked.values() if size > 0)
        self.sizes = {name: max(devices // known, 1) if size == -1 else size for name, size in self.asked.items()}
        if math.prod(self.sizes.values()) != devices:
            raise ValueError(f"mesh: {self!r} does not fit {devices}, the number of devices; an axis may be -1, for the rest")
        self.rules = Rules(self.given_rules, self.sizes)

    def __repr__(self) -> str:
        return f"mesh({', '.join(f'{name}={size}' for name, size in self.sizes.items())})"

    def steps(self, seed: int, model: Any, loss: Any, optimizer: Any, metrics: Any, place: Place, *rest: Any) -> Steps:
        """The steps of a training over this mesh, in place of `Steps`."""
        given = model, loss, optimizer, metrics, place, *rest
        name = place.backend.name
        if self.group.engine is not None and name != self.group.engine.name:
            raise ValueError(f"fit: the model is on {name}, but the processes joined for {self.group.engine.name}")
        self.group.compare("fit", {"the seed": str(seed), **description(*given)})
        if name == "jax":
            self._resolve(name)
            return self._kept(import_module("trellis.distributed.sharding").SpreadSteps, given)
        if name != "torch" and (self.sizes["model"] > 1 or self.given_rules):
            raise NotImplementedError(
                f"mesh: {name} holds every parameter whole on every process; mesh(data=-1) shares the rows of "
                "batches. JAX and torch divide parameters"
            )
        if self.group.size == 1:
            return PartSteps.kept(*given)
        if not self.given_rules:
            return self._kept(ProcessSteps, given)
        return import_module("trellis.distributed.divided").DividedSteps(*given[:3], named_metrics(metrics), place, *rest, self)

    def _kept(self, kind: Any, given: tuple[Any, ...]) -> Steps:
        """The steps of the last training by an optimizer, if all processes have them: they compile at the same moment."""
        made = kind.kept(*given, self)
        if len(set(self.group.exchange("fit: its steps", made.used))) > 1:
            getattr(inner(given[2]), "_compiled", {}).pop("fit", None)
            made = kind.kept(*given, self)
        made.used = True
        return made


def mesh(*, data: int = -1, model: int = 1, rules: Mapping[str, Any] | None = None) -> Mesh:
    """The devices of all processes as axes: `data` shares the rows of each batch. -1 takes all that are left.

    On JAX these are all devices of all processes; elsewhere a process is one device. On JAX and torch `rules` divides parameters
    and slots, by patterns of paths: `{"*/w": (None, "model")}` divides the second axis of each `w` over the axis `model`.

    >>> import trellis as tl
    >>> tl.distributed.mesh(data=-1)
    mesh(data=1, model=1)
    """
    found = environment.find()
    if found.size > 1 and collectives.size() == 1:
        raise RuntimeError(f"mesh: {found.starter} started {found.size} processes; call tl.distributed.initialize() first")
    asked = {"data": data, "model": model}
    for name, size in asked.items():
        if not isinstance(size, int) or (size < 1 and size != -1):
            raise ValueError(f"mesh: {name}={size!r} must be a number of devices, or -1 for all that are left")
    if list(asked.values()).count(-1) > 1:
        raise ValueError("mesh: data and model are both -1; give one of them a number")
    return Mesh(asked, rules or {})
