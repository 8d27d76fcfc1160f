"""The command `trellis transpile module:Class --to jax --check`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from trellis.core.dispatch import BACKENDS


def configure_transpile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="module:name of a torch.nn.Module class, an instance, or a function that makes one")
    parser.add_argument("--to", default="numpy", choices=list(BACKENDS), help="the backend to bring it to")
    shape = "an input, as dtype[sizes], such as float32[2,3,32,32] or int64[2,8]; once for each argument"
    parser.add_argument("--input", action="append", default=[], metavar="INPUT", help=shape)
    parser.add_argument(
        "--check", action="store_true", help="compare outputs, gradients and another batch size with the original"
    )
    parser.add_argument("--save", metavar="FILE", help="write the weights to this file, in the safetensors format")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Transpile; exit status 1 if it cannot be done, with a report that names the lines of the source."""
    transpiling = import_module("trellis.trace.transpile")
    source = load_source(arguments.source)
    example = [example_input(text) for text in arguments.input]
    if not example:
        print("trellis transpile: give the inputs of a call, such as --input float32[2,3]", file=sys.stderr)
        return 2
    try:
        made = transpiling.transpile(source, arguments.to, example=example, check=arguments.check, progress=show)
    except transpiling.TranspileError as error:
        print(error, file=sys.stderr)
        print(transpiling.can_transpile(source, arguments.to, example=example), file=sys.stderr)
        return 1
    print(f"{arguments.source} on {arguments.to}: {sum(made.graph.ops().values())} ops")
    if arguments.check:
        names = zip(made.difference._fields, made.difference)
        print("largest differences: " + ", ".join(f"{name} {'-' if d is None else format(d, '.1e')}" for name, d in names))
    if arguments.save:
        made.save(arguments.save)
    return 0


def show(line: str) -> None:
    print(f"  {line} ...", file=sys.stderr, flush=True)


def load_source(text: str) -> Any:
    """The object that "module:name" names; a class, or a function without parameters, is called."""
    module, _, name = text.partition(":")
    sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise SystemExit(f"trellis transpile: {text!r} names nothing: {error}; write module:Class") from error
    return found() if isinstance(found, type) or not hasattr(found, "forward") else found


def example_input(text: str) -> Any:
    """Random numbers of "dtype[sizes]"; integers are small."""
    torch = import_module("torch")
    dtype, _, sizes = text.partition("[")
    try:
        kind, shape = getattr(torch, dtype), [int(n) for n in sizes.rstrip("]").split(",") if n]
    except (AttributeError, ValueError):
        raise SystemExit(f"trellis transpile: --input {text!r} is not dtype[sizes], such as float32[2,3]") from None
    return torch.randn(shape, dtype=kind) if kind.is_floating_point else torch.randint(0, 2, shape, dtype=kind)
