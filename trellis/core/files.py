"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def atomic(path: Any) -> Iterator[Any]:
    """A file that appears at `path`, whole, when the block is done; if it fails, what was there stays."""
    path = os.path.abspath(os.fspath(path))
    folder, name = os.path.split(path)
    aside = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")  # `parts_left_by` knows the form
    try:
        file = open(aside, "xb")  # noqa: SIM115 (the block below closes it)
    except OSError as error:
        raise type(error)(error.errno, f"save: cannot write in {folder}: {error.strerror}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            with contextlib.suppress(OSError):  # the new file keeps the rights of the old one
                os.chmod(aside, os.stat(path).st_mode)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    _sync_folder(folder)


def parts_left_by(path: Any) -> list[str]:
    """The unfinished files of processes that were killed while they wrote `path`."""
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{16}}\.part")
    return [os.path.join(folder, entry) for entry in os.listdir(folder) if ours.fullmatch(entry)] if os.path.isdir(folder) else []


def _sync_folder(folder: str) -> None:
    with contextlib.suppress(OSError):  # the name too must reach the disk; not every system opens folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
