"""Checkpoints of divided arrays: each process writes its pieces to a file of its own, and rank 0 an index with all other arrays.

The index is a safetensors file that `tl.load` reads with its parts. It appears after all parts, and the parts of the index before
go after that: a process that is killed at any moment leaves one whole checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from trellis.core import tree
from trellis.core.container import Container
from trellis.core.leaves import Nest, unwrap
from trellis.distributed.collectives import Group
from trellis.nn.saving import save


class Piece(NamedTuple):
    """The shape of a whole array, and what this process writes of it: blocks, each with its first indices."""

    shape: tuple[int, ...]
    blocks: list[tuple[list[int], Any]]


def change_each(nest: Any, change: Callable[[str, Any], Any]) -> Any:
    """The nest with `change(path, x)` for each native array x."""
    taken = Nest(nest)
    return taken.rebuild([change(path, x) for path, x in zip(tree.paths(taken.treedef), taken.leaves)])


def save_pieces(group: Group, path: Any, run: Any, more: dict[str, Any], pieces: Callable[[str, Any], Piece | None]) -> None:
    """Write a training. `pieces` tells what this process writes of an array, by its path; None for one that rank 0 writes."""
    held = run.model.state()
    v = {name: x for name, x in run.v.to_flat_dict().items() if x is not None}
    model = {**held, "v": Container.from_flat_dict({**held["v"].to_flat_dict(), **v}), "buffers": run.buffers}
    flat = Container({"model": model, "optimizer": run.state, **more}).to_flat_dict()
    whole, mine, shapes = {}, {}, {}
    for name, x in flat.items():
        if x is not None and (piece := pieces(name, unwrap(x))) is not None:
            shapes[name] = list(piece.shape)
            mine |= {f"{name}@{','.join(map(str, first))}": block for first, block in piece.blocks}
        elif x is not None:
            whole[name] = x
    folder, stem = os.path.split(os.path.abspath(os.fspath(path)).removesuffix(".safetensors"))
    token = group.exchange("checkpoint: its name", secrets.token_hex(4) if group.rank == 0 else None)[0]
    parts = [f"{stem}-{token}-{rank:05d}-of-{group.size:05d}.safetensors" for rank in range(group.size)]
    save(os.path.join(folder, parts[group.rank]), Container.from_flat_dict(mine), metadata={"checkpoint": token})
    group.exchange("checkpoint: its parts", None)
    if group.rank == 0:
        index = json.dumps({"checkpoint": token, "files": parts, "shapes": shapes})
        save(path, Container.from_flat_dict(whole), metadata={"divided": index})
        ours = re.compile(rf"\.?{re.escape(stem)}-[0-9a-f]{{8}}-\d{{5}}-of-\d{{5}}\.safetensors(\.[0-9a-f]{{16}}\.part)?")
        for old in os.listdir(folder):
            if ours.fullmatch(old) and old not in parts:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, old))
