"""A small GPT learns a text letter by letter, and then writes by sampling."""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl

TEXT = """the trellis carries the vine, the vine carries the grape, the grape carries the sun.
the sun carries the day, the day carries the work, and the work carries the trellis. """
LETTERS = sorted(set(TEXT))
CONTEXT = 32


class Block(tl.Module):
    def __init__(self, width: int, heads: int) -> None:
        self.norms = [tl.LayerNorm(width), tl.LayerNorm(width)]
        self.attention = tl.MultiHeadAttention(width, heads)
        self.widen, self.narrow = tl.Linear(width, 4 * width), tl.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norms[0](x), is_causal=True)
        return x + self.narrow(tl.gelu(self.widen(self.norms[1](x))))


class GPT(tl.Module):
    def __init__(self, width: int = 48, heads: int = 4, depth: int = 2, **options: Any) -> None:
        self.letters, self.places = tl.Embedding(len(LETTERS), width), tl.Embedding(CONTEXT, width)
        self.blocks = [Block(width, heads) for _ in range(depth)]
        self.norm, self.out = tl.LayerNorm(width), tl.Linear(width, len(LETTERS))
        super().__init__(**options)

    def forward(self, tokens: Any) -> Any:
        x = self.letters(tokens) + self.places(tl.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


def loss(logits: Any, targets: Any) -> Any:
    return tl.cross_entropy(tl.reshape(logits, (-1, len(LETTERS))), tl.reshape(targets, (-1,)))


def write(model: tl.Module, start: str, count: int, seed: int = 0) -> str:
    """`start` and `count` more letters, each drawn from what the model expects."""
    key, text = tl.Key(seed), start
    for step in range(count):
        tokens = np.array([[LETTERS.index(letter) for letter in text[-CONTEXT:].rjust(CONTEXT)]])
        logits = tl.to_numpy(model(tl.asarray(tokens)))[0, -1]
        chances = np.exp((logits - logits.max()) / 0.5)
        drawn = tl.random_uniform(shape=(), seed=tl.fold_in(key, step), dtype="float32")
        text += LETTERS[min(int(np.searchsorted(np.cumsum(chances / chances.sum()), float(drawn))), len(LETTERS) - 1)]
    return text


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    tokens = np.array([LETTERS.index(letter) for letter in TEXT * 2])
    windows = np.stack([tokens[i : i + CONTEXT + 1] for i in range(len(TEXT))])
    tl.seed(0)
    model = GPT()
    data = (windows[:, :-1], windows[:, 1:])
    trainer = tl.Trainer(seed=0, progress=False)
    history = trainer.fit(model, data, loss, tl.AdamW(3e-3), epochs=2 if short else 15, batch_size=32)
    written = write(model.eval(), "the ", 10 if short else 120)
    print(written)
    losses = history.losses

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(losses)
        axes.set(xlabel="step", ylabel="cross-entropy", title=f"“{written[:60]}…”")

    return {"loss before": losses[0], "loss after": losses[-1], "letters written": len(written)}, draw


if __name__ == "__main__":
    gallery.run(main)
