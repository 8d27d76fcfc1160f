"""What a converted module costs beside a hand-written native one with the same weights: forward and backward, eager and compiled.

    python benchmarks/converters.py                          torch, every model
    python benchmarks/converters.py --case CNN --compiled    one, by torch.compile too

Both run in turn on one thread; a figure is the median over the rounds of our CPU time divided by the native one of the same
round. The model of Trellis gets the weights of the native module by `tl.convert.load_weights`, and both must compute the
same.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measuring import ratio
from torch import nn

import trellis as tl

EAGER, COMPILED = 1.10, 1.05
FIRST: Any = {"data_format": "channel_first"}


class Last(nn.Module):
    """A native recurrent layer that returns its outputs alone."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(*sizes, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


def _mlp(kind: Any, relu: Any, *sizes: int) -> list[Any]:
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [kind(inputs, outputs), relu()]
    return layers[:-1]


def _cnn(native: bool) -> list[Any]:
    if native:
        blocks = [(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)) for i, o in ((3, 32), (32, 64))]
        return [*sum(blocks, ()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    ours = [
        (tl.Conv2D(i, o, 3, padding=1, **FIRST), tl.BatchNorm2D(o, **FIRST), tl.ReLU(), tl.MaxPool2D(2, **FIRST))
        for i, o in ((3, 32), (32, 64))
    ]
    return [*sum(ours, ()), tl.AdaptiveAvgPool2D(1, **FIRST), tl.Flatten(), tl.Linear(64, 10)]


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]] = {
    "MLP 256x784-512-512-10": (
        lambda: nn.Sequential(*_mlp(nn.Linear, nn.ReLU, 784, 512, 512, 10)),
        lambda: tl.Sequential(*_mlp(tl.Linear, tl.ReLU, 784, 512, 512, 10)),
        (256, 784),
    ),
    "CNN 32x3x32x32, BatchNorm": (
        lambda: nn.Sequential(*_cnn(True)), lambda: tl.Sequential(*_cnn(False)), (32, 3, 32, 32),
    ),
    "LSTM 16x64x128 -> 128": (
        lambda: Last(128, 128), lambda: tl.LSTM(128, 128, return_state=False), (16, 64, 128),
    ),
    "encoder layer 16x64x256, 8 heads": (
        lambda: nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True),
        lambda: tl.TransformerEncoderLayer(256, 8, 1024, dropout=0.0),
        (16, 64, 256),
    ),
    "encoder layer 16x64x256, 8 heads, dropout": (
        lambda: nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True),
        lambda: tl.TransformerEncoderLayer(256, 8, 1024, dropout=0.1),
        (16, 64, 256),
    ),
}  # fmt: skip


def step(module: Any, x: Any) -> Callable[[], None]:
    parameters = list(module.parameters())

    def run() -> None:
        torch.autograd.grad(module(x).sum(), parameters)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="", help="only the models whose name holds this")
    parser.add_argument("--compiled", action="store_true", help="by torch.compile too")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'torch':<60}{'native ms':>10}{'ratio':>8}{'target':>8}")
    for name, (make_native, make_ours, shape) in CASES.items():
        if options.case not in name:
            continue
        native, model, x = make_native(), make_ours(), torch.randn(shape)
        tl.convert.load_weights(model, native)
        ours = model.to_torch_module(inputs=(x[:2],))
        native.eval(), ours.eval()
        torch.testing.assert_close(ours(x), native(x), rtol=1e-4, atol=1e-4)
        native.train(), ours.train()
        runs = {"eager": (ours, native, EAGER)}
        if options.compiled and "LSTM" not in name:  # torch.compile takes no recurrent modules of torch's own
            runs["compiled"] = torch.compile(ours, fullgraph=True), torch.compile(native, fullgraph=True), COMPILED
        for mode, (a, b, target) in runs.items():
            found, milliseconds = ratio(step(a, x), step(b, x), options.rounds)
            print(f"{f'{name}, {mode}':<60}{milliseconds:>10.2f}{found:>8.3f}{target:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
