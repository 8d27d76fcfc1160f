"""A GPT-2 of Hugging Face, written for torch, generates the same tokens on another framework, and trains there.

The weights are random, because this program downloads nothing; `GPT2LMHeadModel.from_pretrained("gpt2")` takes the same way.
"""

from __future__ import annotations

from typing import Any

import gallery
import numpy as np

import trellis as tl


def generate(model: Any, tokens: np.ndarray, count: int) -> np.ndarray:
    """`count` more tokens, each the likeliest."""
    for _ in range(count):
        logits = tl.to_numpy(model(tl.asarray(tokens))["logits"])
        tokens = np.concatenate([tokens, logits[:, -1].argmax(-1)[:, None]], axis=1)
    return tokens


def main(short: bool = False) -> tuple[gallery.Numbers, gallery.Draw]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    layers, width = (1, 32) if short else (4, 128)
    config = GPT2Config(n_layer=layers, n_head=4, n_embd=width, vocab_size=200, n_positions=64, use_cache=False)
    original = GPT2LMHeadModel(config).eval()
    tokens = np.random.default_rng(0).integers(0, 200, (2, 8))
    model = tl.transpile(original, to=tl.current_backend(), example=(torch.as_tensor(tokens),)).eval()
    ours = generate(model, tokens, 3 if short else 20)
    with torch.no_grad():
        theirs = torch.as_tensor(tokens)
        for _ in range(ours.shape[1] - tokens.shape[1]):
            theirs = torch.cat([theirs, original(theirs).logits[:, -1:].argmax(-1)], dim=1)

    def loss(v: Any) -> Any:
        logits = model(tl.asarray(ours[:, :-1]), v=v)["logits"]
        return tl.cross_entropy(tl.reshape(logits, (-1, 200)), tl.asarray(ours[:, 1:].reshape(-1)))

    optimizer, losses = tl.Adam(1e-3), []
    for _ in range(2 if short else 20):
        value, gradients = tl.value_and_grad(loss)(model.v)
        model.v = optimizer.step(model.v, gradients)
        losses.append(float(value))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(losses)
        axes.set(xlabel="step", ylabel="loss", title=f"GPT-2 trains on {model.v.to_flat_dict().popitem()[1].backend}")

    same = float((ours == theirs.numpy()).mean())
    return {"equal tokens": same, "loss before": losses[0], "loss after": losses[-1]}, draw


if __name__ == "__main__":
    gallery.run(main)
