"""The nests that functions hand from one step to the next, and those that they return again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trellis.core import dispatch, dtypes, tree
from trellis.core.array import Array
from trellis.core.dispatch import interpreters
from trellis.core.free import Free, anchor, as_it_is
from trellis.core.leaves import ARRAY, NUMBER, OTHER, MixedNest, Nest, backend_of, device_of, kind_of, unwrap
from trellis.core.moving import Met, is_tied
from trellis.core.typing import AnyArray
from trellis.transforms.arguments import staying_free

Spec = tuple[tuple[int | None, ...], dtypes.DType]  # shape and dtype


def number_as_array(backend: Any, number: Any, device: Any = None, dtype: dtypes.DType | None = None) -> AnyArray:
    """A 0-d array of a Python number, of the default dtype of its kind unless `dtype` is given."""
    dtype = dtypes.common_dtype([number], backend.default_int()) if dtype is None else dtype
    return backend.full(shape=(), fill_value=number, dtype=dtype, device=device)


def spec_of(x: AnyArray) -> Spec:
    interpreter = interpreters[type(x)]
    return interpreter.shape_of(x), interpreter.dtype_of(x)


def zeros(like: AnyArray, shape: Sequence[int | None]) -> AnyArray:
    """Zeros of the framework, the device and the dtype of an array."""
    found = interpreters[type(like)]
    return found.full(shape=tuple(shape), fill_value=0, dtype=found.dtype_of(like), device=found.device_of(like))


def same_shape(left: tuple[int | None, ...], right: tuple[int | None, ...]) -> bool:
    """Whether two shapes may be equal: a size that TensorFlow does not know yet is equal to any."""
    return len(left) == len(right) and all(m is None or n is None or m == n for m, n in zip(left, right))


def _fits(number: Any, dtype: dtypes.DType) -> bool:
    """Whether a Python number is of the kind of `dtype` or of a narrower one."""
    return dtypes.KIND_ORDER[dtypes.common_dtype([number]).kind] <= dtypes.KIND_ORDER[dtype.kind]


def _describe(spec: Spec) -> str:
    return f"{spec[1].name} of shape {spec[0]}"


class Results(Nest):
    """The nests that a function returns, as native arrays. The first one fixes the structure, the shapes and the dtypes.

    `subject` and `rule` stand in the errors for a nest that is not like the first. Python numbers become 0-d arrays, which
    are of the class `wraps`, or native if it is None. Free arrays go to the framework unless `wraps` is Free.
    """

    __slots__ = ("after", "backend", "device", "form", "kind", "name", "native", "natives", "rule", "specs", "subject", "wraps")

    def __init__(
        self, name: str, subject: str, backend: Any, device: Any, wraps: Any, rule: str = "it must stay the same"
    ) -> None:
        self.name, self.subject, self.rule = name, subject, rule
        self.backend, self.device, self.wraps = backend, device, wraps
        self.form: Any = None  # the signature of a nest that was looked at leaf by leaf, and type, shape and dtype of its leaves
        self.natives: list[Any] = []
        self.kind: Any = None  # the type of the array, of a nest that is one; `native` is its shape and dtype
        self.treedef: Any = None
        self.wrapped: list[Any] = []
        self.after: list[Any] = []  # like `wrapped`, of the last nest: a free array may meet another in the function
        self.specs: list[Spec] = []

    def take(self, result: Any) -> list[AnyArray]:
        """The native arrays of a nest."""
        data = result if type(result) is self.kind else unwrap(result)
        if type(data) is self.kind and [data.shape, data.dtype] == self.native:  # one array, as in most loops
            return [data]
        if self.form is not None:  # this runs in every step: what looks like the last nest is not looked at leaf by leaf
            leaves: list[Any] = []
            if tree.signature(result, leaves) == self.form:
                leaves = list(map(unwrap, leaves))
                if [(type(x), x.shape, x.dtype) for x in leaves] == self.natives:
                    return leaves
        nest = Nest(result)
        if self.wraps is not Free and Free in nest.wrapped:
            nest = Nest(result, (self.wraps or as_it_is)(anchor(self.backend, self.device)))
        first = self.treedef is None
        if first:
            self.treedef, self.wrapped, self.after = nest.treedef, nest.wrapped, nest.wrapped
        elif nest.treedef != self.treedef:
            path, why = tree.first_difference(self.treedef, nest.treedef) or ((), "static fields differ")
            where = f" at {tree.join_path(path)!r}" if path else ""
            raise ValueError(f"{self.name}: the structure of {self.subject} changed{where}: {why}; {self.rule}")
        kinds = [kind_of(leaf) for leaf in nest.leaves]
        for i, (leaf, kind) in enumerate(zip(list(nest.leaves), kinds)):
            if kind == OTHER:
                raise TypeError(f"{self.name}: {self.subject}{self.place(i)} is a {type(leaf).__name__}, not an array")
            if kind == NUMBER:
                if first:
                    self.wrapped[i] = self.wraps
                nest.leaves[i] = number_as_array(self.backend, leaf, self.device, None if first else self._dtype_for(leaf, i))
            if first:
                self.specs.append(spec_of(nest.leaves[i]))
            else:
                self._compare(nest.leaves[i], i, nest.wrapped[i])
        if NUMBER not in kinds and Free not in self.after and not dispatch.is_compiling():
            self.natives = [(type(x), x.shape, x.dtype) for x in nest.leaves]
            self.form = tree.signature(result, [])
            if nest.treedef is tree.LEAF:
                self.kind, *self.native = self.natives[0]
        return nest.leaves

    def finish(self, arrays: Sequence[Any], *beside: Results) -> Any:
        """The nest of the results. Where one of them, or of those beside them, met the array of a framework, all are like it."""
        found = {kind for results in (self, *beside) for kind in results.after} - {Free}
        kind = Array if Array in found else None if found else Free
        self.wrapped = [kind if own is Free else own for own in self.after]
        return self.rebuild(arrays)

    def _dtype_for(self, number: Any, i: int) -> dtypes.DType:
        if not _fits(number, self.specs[i][1]):
            raise self._changed(TypeError, i, f"the Python number {number!r}")
        return self.specs[i][1]

    def _compare(self, x: AnyArray, i: int, kind: Any) -> None:
        expected, found = self.specs[i], spec_of(x)
        if found[1] is not expected[1]:
            raise self._changed(TypeError, i, _describe(found))
        if not same_shape(expected[0], found[0]):
            raise self._changed(ValueError, i, _describe(found))

    def _changed(self, error: type[Exception], i: int, found: str) -> Exception:
        before = _describe(self.specs[i])
        return error(f"{self.name}: {self.subject}{self.place(i)} changed from {before} to {found}; {self.rule}")


class Carry(Results):
    """What a loop hands from one step to the next: a nest of arrays of fixed structure, shapes and dtypes.

    A Python number in `init` becomes a 0-d array of the dtype that one step gives it, as a number beside an array does. `trial`
    is such a step, on the numbers themselves. If there is no array at all, its result also tells the framework.
    """

    __slots__ = ()

    def __init__(
        self, name: str, init: Any, others: Sequence[AnyArray], beside: Sequence[Any], trial: Callable[[Any], Any], like: Any
    ) -> None:
        free = [x for x in tree.leaves(init) if isinstance(x, Free)]
        if like is not None and all(x.dtype.kind in "fcu" for x in free):  # an integer may be an index, native on JAX
            like = staying_free(like)
        nest = MixedNest(init, like)
        if OTHER in nest.kinds:
            i = nest.kinds.index(OTHER)
            kind = type(nest.leaves[i]).__name__
            raise TypeError(f"{name}: init holds a {kind}{nest.place(i)}, not an array; close over it instead")
        after = _after_trial(trial, init, nest) if NUMBER in nest.kinds else nest
        arrays = [*nest.arrays, *others]
        found = arrays or after.arrays
        wraps = (nest if arrays else after).wrapper(*beside)
        super().__init__(name, "the carry", backend_of(found), device_of(found), wraps)
        self.treedef = nest.treedef
        self.wrapped = [wraps if kind == NUMBER else wrapped for wrapped, kind in zip(nest.wrapped, nest.kinds)]
        self.after = list(self.wrapped)
        self.leaves = [
            self._first(x, follower) if kind == NUMBER else x for x, kind, follower in zip(nest.leaves, nest.kinds, after.leaves)
        ]
        self.specs = [spec_of(x) for x in self.leaves]

    def _first(self, number: Any, follower: Any) -> AnyArray:
        """A number of `init` as an array, of the dtype of the leaf that follows it if the number fits."""
        dtype = None
        if kind_of(follower) == ARRAY and interpreters[type(follower)].name == self.backend.name:
            dtype = spec_of(follower)[1]
        return number_as_array(self.backend, number, self.device, dtype if dtype is not None and _fits(number, dtype) else None)

    def _compare(self, x: AnyArray, i: int, kind: Any) -> None:
        name = interpreters[type(x)].name
        if name != self.backend.name:
            if self.wraps is Free:
                raise Met(self.backend.name, name, (kind or as_it_is)(x))
            if kind is Free and is_tied(x):
                raise Met(name, self.backend.name, anchor(self.backend, self.device))
            raise TypeError(
                f"{self.name}: the carry{self.place(i)} went from {self.backend.name} to {name}; keep it on one framework"
            )
        if self.after[i] is Free:
            self.after[i] = kind  # it met an array of its own framework
        super()._compare(x, i, kind)


def _after_trial(trial: Callable[[Any], Any], init: Any, nest: MixedNest) -> MixedNest:
    try:
        after = MixedNest(trial(init))
    except Exception:  # it may need an array where the number is; if something else is wrong, the first real step raises it again
        return nest
    return after if after.treedef == nest.treedef else nest
