"""Transpiled models beside the original in torch: CPU time of a forward pass, time and memory of the conversion.

Each part runs in a process of its own with one thread: `python benchmarks/transpile.py [bert resnet base]`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

LIMITS = {  # times torch eager
    "bert": {"jax": 0.9, "tensorflow": 1.3, "numpy": 1.8},
    "resnet": {"jax": 1.0, "numpy": 2.5},
}


def one_thread() -> None:
    """Before a framework is imported: they read these once."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.environ |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def bert(layers: int, size: int, heads: int) -> tuple[Any, dict[str, Any]]:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(num_hidden_layers=layers, hidden_size=size, num_attention_heads=heads, intermediate_size=4 * size)
    ids = torch.randint(0, 30000, (4, 64))
    return BertModel(config).eval(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def resnet() -> tuple[Any, dict[str, Any]]:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    return ResNetForImageClassification(config).eval(), {"pixel_values": torch.randn(2, 3, 224, 224)}


def cpu_times(functions: dict[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """The least CPU time of each function: their calls alternate, so that each has the same neighbours."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function(), function()
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - start)
    return best


def forward(name: str) -> bool:
    """Forward passes of one model on each target of `LIMITS`, as ratios to torch eager."""
    import torch

    import trellis as tl

    torch.set_num_threads(1)
    source, inputs = bert(2, 256, 4) if name == "bert" else resnet()

    def eager() -> Any:
        with torch.no_grad():
            return source(**inputs)

    good = True
    for target, limit in LIMITS[name].items():
        start = time.process_time()
        model = tl.transpile(source, target, example_kwargs=inputs).eval()
        seconds = time.process_time() - start
        given = {k: tl.asarray(v.numpy(), backend=target).native for k, v in inputs.items()}
        run = cpu_times({"torch": eager, target: compiled(model, target, given)})
        ratio = run[target] / run["torch"]
        good &= ratio <= limit
        print(
            f"{name:8} {target:10} {ratio:5.2f}x torch (limit {limit}), {run[target] * 1e3:.1f} ms; conversion {seconds:.1f} s",
            flush=True,
        )
    return good


def compiled(model: Any, target: str, given: dict[str, Any]) -> Callable[[], Any]:
    if target == "numpy":
        return lambda: model(**given)
    if target == "jax":
        import jax

        function = jax.jit(lambda arrays: dict(model(**arrays)))
        return lambda: jax.block_until_ready(function(given))
    import tensorflow as tf

    function = tf.function(lambda arrays: dict(model(**arrays)))
    return lambda: [x.numpy() for x in function(given).values()]


def base() -> bool:
    """A 12-layer BERT-base of 110 million random weights: CPU time of the conversion, and peak memory over the weights."""
    import trellis as tl

    source, inputs = bert(12, 768, 12)
    weights = sum(p.numel() * p.element_size() for p in source.parameters())
    source(**inputs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    start = time.process_time()
    tl.transpile(source, "numpy", example_kwargs=inputs)
    seconds, peak = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ratio = (peak - before + weights) / weights
    print(f"bert-base {weights / 4e6:.0f}M weights: {seconds:.0f} s of CPU time (limit 60), peak memory {ratio:.2f}x (limit 2.5)")
    return seconds < 60 and ratio < 2.5


def main() -> None:
    warnings.simplefilter("ignore")
    one_thread()
    parts = sys.argv[1:] or ["bert", "resnet", "base"]
    if len(parts) == 1:
        sys.exit(not (base() if parts[0] == "base" else forward(parts[0])))
    codes = [subprocess.run([sys.executable, __file__, part], check=False).returncode for part in parts]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
