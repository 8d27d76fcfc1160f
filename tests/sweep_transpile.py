"""Convert many architectures to a target and write the table: python sweep_transpile.py [--others] [--only NAMES].

Each target's cells are kept in a file, so that the targets may run one after the other and a run may be continued:
`--results DIRECTORY` says where, `--missing` runs only cells that are not there or not ok, `--report` only writes the page.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import transformers
from transpile_models import BEYOND, MODELS, others

import trellis as tl

PAGE = Path(__file__).resolve().parent.parent / "docs" / "transpile-models.md"
TARGETS = ("numpy", "jax", "tensorflow")
OUTPUTS, GRADIENTS = 1e-5, 1e-4
HEAD = """# Models that `tl.transpile` was run on

Small configurations with random weights, of transformers {transformers} and diffusers {diffusers}. `ok`: outputs in
evaluation and training and with another batch size equal the original's to 1e-5 of their largest number, gradients to 1e-4.
Then the largest difference of an output, that of a gradient, and seconds of CPU time for conversion and comparison.
`ok in float64`: the model amplifies rounding, so that float32 differs by more, and float64 is within these limits. torch in
float32 differs from torch in float64 by as much: mobilenet-v2 by 5e-04 in outputs and 2e-01 in gradients, levit by 8e-05, 2e-03.
`make sweep-transpile` writes this page.

"""


class TooSlow(BaseException):
    pass


def convert(make: Callable[[], Any], target: str, seconds: int) -> str:
    """One cell of the table."""

    def stop(*args: Any) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of CPU time: other work on the machine decides nothing
    start = time.process_time()
    try:
        source, inputs = make()
        found = tl.transpile(source, target, example_kwargs=inputs).difference
    except TooSlow:
        return f"not finished in {seconds} s of CPU time"
    except Exception as error:
        text = re.sub(r"\S*/site-packages/", "", str(error))
        return f"{type(error).__name__}: {text[:300]}".replace("\n", " ").replace("|", "/")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    outputs = max(d for d in (found.outputs, found.training, found.batch, 0.0) if d is not None)
    gradients = found.gradients or 0.0
    verdict = "ok" if outputs <= OUTPUTS and gradients <= GRADIENTS else "ok in float64"
    batch = "" if found.batch is not None else ", one batch size"
    return f"{verdict}, {outputs:.0e}, {gradients:.0e}, {time.process_time() - start:.0f} s{batch}"


def kept(path: Path) -> dict[str, str]:
    return json.loads(path.read_text()) if path.exists() else {}


def run(target: str, models: dict[str, Any], directory: Path, seconds: int, missing: bool) -> None:
    path = directory / f"{target}.json"
    for name, make in models.items():
        cells = kept(path)
        if missing and cells.get(name, "").startswith("ok"):
            continue
        cells[name] = convert(make, target, seconds)
        path.write_text(json.dumps(cells, indent=1))
        print(f"{target:10} {name:20} {cells[name]}", flush=True)
        gc.collect()


def report(directory: Path) -> str:
    """The page, of the cells that the results have."""
    columns = {target: kept(directory / f"{target}.json") for target in TARGETS}
    names = [n for n in {**MODELS, **BEYOND} if any(n in c for c in columns.values())]
    names += sorted({n for c in columns.values() for n in c} - set(names))
    rows = [f"| {n} | {' | '.join(columns[t].get(n, 'not run') for t in TARGETS)} |" for n in names]
    good = sum(row.count("| ok") for row in rows)
    head = HEAD.format(transformers=transformers.__version__, diffusers=diffusers.__version__)
    table = [f"| model | {' | '.join(TARGETS)} |", "|---" * (len(TARGETS) + 1) + "|", *rows]
    return head + "\n".join(table) + f"\n\n{good} of {len(rows) * len(TARGETS)} cells are ok.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--others", action="store_true", help="every other architecture of transformers, too")
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent.parent / ".venv" / "transpile")
    parser.add_argument("--missing", action="store_true", help="only cells that are not there, or not ok")
    parser.add_argument("--report", action="store_true", help="write the page of the cells that are there")
    chosen = parser.parse_args()
    chosen.results.mkdir(parents=True, exist_ok=True)
    models = {**MODELS, **BEYOND, **(others() if chosen.others else {})}
    names = chosen.only.split(",") if chosen.only else list(models)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    for target in () if chosen.report else chosen.targets.split(","):
        run(target, {name: models[name] for name in names}, chosen.results, chosen.seconds, chosen.missing)
    page = report(chosen.results)
    print(page.splitlines()[-1])
    if chosen.report or not chosen.only:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
