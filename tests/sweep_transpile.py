"""Convert many architectures to the targets and write the table: python sweep_transpile.py [--others] [--only NAMES]."""

from __future__ import annotations

import argparse
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import transformers
from transpile_models import MODELS, others

import trellis as tl

PAGE = Path(__file__).resolve().parent.parent / "docs" / "transpile-models.md"
HEAD = """# Models that `tl.transpile` was run on

Small configurations with random weights, of transformers {transformers} and diffusers. `ok`: outputs in evaluation and training,
gradients and another batch size equal the original's; then the largest relative difference of an output, that of a gradient, and
seconds of CPU time.
`make sweep-transpile` writes this page.

"""


class TooSlow(BaseException):
    pass


def convert(source: Any, inputs: dict[str, Any], target: str, seconds: int) -> str:
    """One cell of the table."""

    def stop(*args: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    start = time.process_time()
    try:
        found = tl.transpile(source, target, example_kwargs=inputs).difference
    except TooSlow:
        return f"not finished in {seconds} s"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:160]}".replace("\n", " ").replace("|", "/")
    finally:
        signal.alarm(0)
    outputs = max(d for d in (found.outputs, found.training, found.batch, 0.0) if d is not None)
    return f"ok, {outputs:.0e}, {found.gradients or 0.0:.0e}, {time.process_time() - start:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--others", action="store_true", help="every other architecture of transformers, too")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--targets", default="numpy,jax,tensorflow")
    parser.add_argument("--seconds", type=int, default=600)
    chosen = parser.parse_args()
    models = {**MODELS, **(others() if chosen.others else {})}
    targets = chosen.targets.split(",")
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows = []
    for name in chosen.only.split(",") if chosen.only else models:
        try:
            source, inputs = models[name]()
        except Exception as error:
            print(f"{name}: no small model: {type(error).__name__}: {str(error)[:100]}", flush=True)
            continue
        cells = [convert(source, inputs, target, chosen.seconds) for target in targets]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    good = sum(row.count("| ok,") for row in rows)
    table = [f"| model | {' | '.join(targets)} |", "|---" * (len(targets) + 1) + "|", *rows]
    print(f"{good} of {len(rows) * len(targets)}")
    if not chosen.only:
        head = HEAD.format(transformers=transformers.__version__)
        PAGE.write_text(head + "\n".join(table) + f"\n\n{good} of {len(rows) * len(targets)}.\n")


if __name__ == "__main__":
    main()
