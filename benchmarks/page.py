"""Run the benchmarks and write docs/performance.md: `make bench`. `python benchmarks/page.py overhead trainer` runs some of them.

A benchmark that is not run keeps what the page had for it.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
# Name of the script -> its title and arguments.
BENCHMARKS = {
    "overhead": ("What a small call costs", []),
    "small_programs": ("What small programs cost", []),
    "import_time": ("What the import costs", []),
    "training_step": ("A training step", []),
    "numpy_memory": ("Memory of a training step on NumPy", []),
    "step_memory": ("Memory of training steps on torch and JAX", []),
    "growth": ("How cost grows", []),
    "growth_training": ("How a training grows", []),
    "first_step": ("The first step", []),
    "trainer": ("Epochs of `Trainer.fit`", []),
    "updates": ("A step of an optimizer", []),
    "compiled_calls": ("Calls of compiled functions", []),
    "vmap": ("`tl.vmap`", []),
    "indexing": ("Indexing", []),
    "layers": ("Layers", []),
    "numpy_convolution": ("Convolutions on NumPy", []),
    "random_numbers": ("Random numbers with a seed", []),
    "converters": ("Models converted to torch", ["--compiled"]),
    "converters_jax": ("Models converted to Haiku and Flax", []),
    "transpile": ("Torch models on other frameworks", []),
    "adopters": ("TensorLy over Trellis", []),
}
TOP = """# Performance

`make bench` measures Trellis beside the frameworks' own functions and writes this page. Both run in turn in one process, on one
thread; the figures are medians of process CPU time. A ratio of 1 is the framework's own speed; differences below 10% are noise.
What is slower stands here too. Each part names the day and the machine on which it was measured.

What takes longer than the same by hand, beyond the few microseconds of a call:

- `tl.vmap` on NumPy costs about 40 microseconds, and 5 for each op: of small arrays that is several times the formula for a whole
  batch, of large ones nothing. Where a function decides in Python on a value it costs a loop over the elements.
- `tl.scan` of tiny steps on NumPy costs about twice the loop by hand: each step checks its carry.
- Seeded numbers are those of Threefry with 20 rounds on every framework: 114 operations on each number. 114 of NumPy's fastest
  operations alone take two to three times as long as the generators of NumPy and torch.
- A step of an optimizer gives new weights and does not overwrite the old ones. On torch this copy costs as much as a fused update
  of SGD that overwrites; `tl.Trainer` overwrites its own.
- `Trainer.fit` reads the parameters of a model above 8 MiB once more after each step, to see that they are finite; if not, the
  model keeps those from before the step.
"""


def measured(name: str) -> str:
    """The output of a benchmark, as a part of the page."""
    title, arguments = BENCHMARKS[name]
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments]
    one = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"), "1")
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", **one}
    print(f"== {name}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    print(done.stdout, flush=True)
    when = subprocess.run(["date", "+%Y-%m-%d"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    about = f"{when}, {os.cpu_count()} cores, Python {platform.python_version()}"
    verdict = "" if done.returncode == 0 else "\n\nNot all of its targets are reached."
    pictures = "".join(
        f"\n![{title}: {path.stem.partition('-')[2]}](_static/{path.name})\n"
        for path in sorted(PAGE.parent.glob(f"_static/{name}-*.svg"))
    )
    return f"## {title}\n\n`benchmarks/{name}.py`, {about}.{verdict}\n{pictures}\n```text\n{done.stdout.strip()}\n```\n"


def main(names: list[str]) -> None:
    page = PAGE.read_text() if PAGE.exists() else ""
    parts = {title: part for part in re.split(r"(?m)^(?=## )", page) if (title := part.partition("\n")[0].removeprefix("## "))}
    for name in names or list(BENCHMARKS):
        parts[BENCHMARKS[name][0]] = measured(name)
        kept = [parts[title] for title, _ in BENCHMARKS.values() if title in parts]
        PAGE.write_text("\n".join([TOP, *(part.strip() + "\n" for part in kept)]))


if __name__ == "__main__":
    main(sys.argv[1:])
