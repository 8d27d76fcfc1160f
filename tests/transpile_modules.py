"""Modules of torch as users write them by hand, each with the arguments of a call: what `tl.transpile` meets beside libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...]]
MODULES: dict[str, Callable[[], Made]] = {}


def case(*inputs: Any) -> Callable[[type], type]:
    """The class is a case: it is made after a fixed seed. An input that is a tuple is the shape of random numbers."""

    def keep(kind: type) -> type:
        def make() -> Made:
            torch.manual_seed(0)
            made = kind()
            return made, tuple(torch.randn(x) if isinstance(x, tuple) else x() if callable(x) else x for x in inputs)

        MODULES[kind.__name__] = make
        return kind

    return keep


def ids(*shape: int, high: int = 20) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(0, high, shape)


# ---- sequences -----------------------------------------------------------------------------------------------------------------
@case(ids(3, 7))
class Tagger(nn.Module):
    """Embedding, a bidirectional LSTM of two layers, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embed(tokens))
        return F.log_softmax(self.out(hidden), dim=-1)


@case((3, 7, 4))
class Forecaster(nn.Module):
    """A GRU whose last state is decoded step by step by a GRUCell and an LSTMCell."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(4, 6, batch_first=True)
        self.cell = nn.GRUCell(4, 6)
        self.second = nn.LSTMCell(6, 5)
        self.out = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, h = self.encoder(x)
        h, step, made = h[-1], x[:, -1], []
        a, b = torch.zeros(x.size(0), 5), torch.zeros(x.size(0), 5)
        for _ in range(3):
            h = self.cell(step, h)
            a, b = self.second(h, (a, b))
            step = self.out(a)
            made.append(step)
        return torch.stack(made, dim=1)


@case((2, 6, 8))
class AttentionByHand(nn.Module):
    """Causal attention with a mask in a buffer, split heads by view and einsum, and rotary positions."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))
        self.register_buffer("frequencies", 1.0 / 100 ** (torch.arange(0, 4, 2).float() / 4), persistent=False)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float32), self.frequencies)
        even, odd = x[..., ::2], x[..., 1::2]
        turned = torch.stack([even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()], -1)
        return turned.flatten(-2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.size()
        q, k, v = (y.view(b, t, 2, c // 2).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        scores = torch.einsum("bhqd,bhkd->bhqk", self.rotate(q), self.rotate(k)) / math.sqrt(c // 2)
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(b, t, c))


@case(ids(2, 6), ids(2, 5))
class Translator(nn.Module):
    """nn.Transformer with sinusoidal positions and torch's own masks; the output weight is that of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        places = torch.arange(16).unsqueeze(1) * torch.exp(torch.arange(0, 8, 2) * (-math.log(10000.0) / 8))
        table = torch.zeros(16, 8)
        table[:, 0::2], table[:, 1::2] = torch.sin(places), torch.cos(places)
        self.register_buffer("table", table)
        self.transformer = nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        embedded = [self.embed(x) * math.sqrt(8) + self.table[: x.size(1)] for x in (source, target)]
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        padding = source == 0
        return self.out(self.transformer(*embedded, tgt_mask=causal, src_key_padding_mask=padding))


@case((2, 3, 12))
class CausalConvolutions(nn.Module):
    """A WaveNet: dilated convolutions padded on the left, gates, weight normalization, residual sums in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, 4, 1)
        self.layers = nn.ModuleList(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 8, 2, dilation=2**i)) for i in range(3))
        self.out = nn.Conv1d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, skipped = self.first(x), 0
        for i, layer in enumerate(self.layers):
            a, b = layer(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            gated = torch.tanh(a) * torch.sigmoid(b)
            x, skipped = x + gated, skipped + gated
        return self.out(F.relu(skipped))


@case((2, 6, 4))
class StateSpace(nn.Module):
    """A linear recurrence in a Python loop over time, and a sum of powers by cumsum."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(4))
        self.b = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h, made = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = torch.sigmoid(self.a) * h + x[:, t] @ self.b
            made.append(h)
        return torch.stack(made, 1), torch.cumsum(x * self.a, dim=1).logsumexp(-1)


# ---- images --------------------------------------------------------------------------------------------------------------------
@case((2, 3, 16, 16))
class UNet(nn.Module):
    """Down and up with convolutions, transposed convolutions, group normalization and joined skips."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [3, 4, 8]
        self.down = nn.ModuleList(self.block(a, b) for a, b in pairwise(sizes))
        self.middle = self.block(8, 8)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, b, 2, stride=2) for b in sizes[:0:-1])
        self.after = nn.ModuleList([self.block(16, 4), self.block(8, 4)])
        self.out = nn.Conv2d(4, 1, 1)

    def block(self, a: int, b: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b), nn.SiLU(inplace=True),
            nn.Conv2d(b, b, 3, padding="same"), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, block, skip in zip(self.up, self.after, reversed(kept)):
            x = up(x) if up.in_channels == x.shape[1] else F.interpolate(x, scale_factor=2.0, mode="bilinear")
            x = block(torch.cat([F.interpolate(x, size=skip.shape[-2:], mode="nearest"), skip], dim=1))
        return self.out(x)


@case((4, 6))
class Generator(nn.Module):
    """DCGAN's generator: a linear layer, unflatten, transposed convolutions with batch normalization, tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, 32), nn.Unflatten(1, (8, 2, 2)), nn.BatchNorm2d(8), nn.ReLU(True),
            nn.ConvTranspose2d(8, 4, 4, 2, 1, bias=False), nn.BatchNorm2d(4), nn.LeakyReLU(0.2, inplace=True),
            nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.net(z)


@case((4, 1, 8, 8))
class Discriminator(nn.Module):
    """Spectral normalization by parametrization, leaky relus, and features that are returned beside the score."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.spectral_norm
        self.layers = nn.ModuleDict({"first": norm(nn.Conv2d(1, 4, 4, 2, 1)), "second": nn.Conv2d(4, 8, 4, 2, 1)})
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.out = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        found = {}
        for name, layer in self.layers.items():
            x = F.leaky_relu(layer(x), 0.2)
            found[name] = x
        return {"score": self.out(self.norm(x).flatten(1)).squeeze(-1), "features": found}


@case((2, 1, 12, 12))
class Capsules(nn.Module):
    """Primary capsules, squash and routing by agreement, in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, stride=2)
        self.weight = nn.Parameter(torch.randn(1, 32, 3, 4, 4) * 0.3)

    @staticmethod
    def squash(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
        size = (x**2).sum(dim, keepdim=True)
        return size / (1 + size) * x / torch.sqrt(size + 1e-8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.squash(self.conv(x).view(x.size(0), -1, 4))
        votes = torch.matmul(self.weight, u[:, :, None, :, None]).squeeze(-1)
        logits, v = torch.zeros(*votes.shape[:3], 1), votes
        for i in range(3):
            v = self.squash((F.softmax(logits, dim=2) * votes).sum(dim=1, keepdim=True))
            if i < 2:
                logits = logits + (votes * v).sum(-1, keepdim=True)
        return v.squeeze(1).norm(dim=-1)


@case((2, 3, 8, 8))
class Transformed(nn.Module):
    """A spatial transformer: a grid of a predicted affine map, and samples at it."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 6))
        self.where[-1].bias.data = torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = self.where(x).reshape(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


@case((2, 8, 4, 4))
class Squeezed(nn.Module):
    """Squeeze and excitation, depthwise convolutions, channel shuffle, pixel shuffle, ceil-mode and average pools."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.Hardswish(), nn.Conv2d(2, 8, 1), nn.Hardsigmoid()
        )
        self.drop = nn.Dropout2d(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depth(x)
        x = F.channel_shuffle(x * self.gate(x), 2)
        y = F.pixel_shuffle(self.drop(x), 2)
        return F.avg_pool2d(y, 3, 2, ceil_mode=True) + F.max_pool2d(y, 3, 2, 1)


@case((2, 2, 4, 6, 6))
class Video(nn.Module):
    """Convolutions and pools over time and space."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv3d(2, 4, (3, 3, 3), padding=1, stride=(1, 2, 2)), nn.BatchNorm3d(4)
        self.up = nn.ConvTranspose3d(4, 2, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool3d(F.elu(self.norm(self.conv(x))), (2, 1, 1))
        return F.interpolate(self.up(y), scale_factor=2, mode="trilinear", align_corners=True).mean((2, 3, 4))


@case((2, 3, 9, 9))
class Patches(nn.Module):
    """unfold, a product with each patch, fold back."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(27, 27)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = F.unfold(x, 3, stride=3)
        return F.fold(self.mix(patches.mT).mT, x.shape[-2:], 3, stride=3) + x


# ---- graphs, sets, tables ------------------------------------------------------------------------------------------------------
@case((6, 4), lambda: torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 3]]), (6, 2))
class Messages(nn.Module):
    """A graph network: messages along edges by index_add, scatter_add, scatter_reduce; an attention over neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update, self.score = nn.Linear(10, 5), nn.GRUCell(5, 4), nn.Linear(5, 1)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        source, target = edges
        m = torch.relu(self.message(torch.cat([nodes[source], nodes[target], features], dim=-1)))
        score = self.score(m).squeeze(-1).exp()
        total = torch.zeros(nodes.size(0)).scatter_add(0, target, score)
        m = m * (score / (total[target] + 1e-9)).unsqueeze(-1)
        gathered = torch.zeros(nodes.size(0), 5).index_add_(0, target, m)
        degree = torch.zeros(nodes.size(0)).index_add(0, source, torch.ones(source.size(0)))
        best = torch.full((nodes.size(0), 5), -1.0).scatter_reduce(0, target[:, None].expand(-1, 5), m, "amax")
        return self.update(gathered, nodes), degree, best


@case((2, 5, 3), lambda: torch.rand(2, 5, 5) > 0.5)
class GraphConvolution(nn.Module):
    """A dense adjacency with self loops and symmetric normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.zeros(4))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        a = edges.float() + torch.eye(x.shape[1])
        d = a.sum(-1).clamp(min=1).pow(-0.5)
        return torch.baddbmm(self.bias, d.unsqueeze(-1) * a * d.unsqueeze(-2), x @ self.weight)


@case((3, 5, 4))
class Experts(nn.Module):
    """A mixture of experts: the two best of four, each on the tokens that chose it, by index_add; a loss of balance."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 4, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = x.reshape(-1, x.shape[-1])
        weights = F.softmax(self.gate(flat), dim=1)
        best, chosen = torch.topk(weights, 2, dim=-1)
        best = best / best.sum(-1, keepdim=True)
        mask = F.one_hot(chosen, num_classes=4).permute(2, 1, 0)
        made = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            place, token = torch.where(mask[i])
            made.index_add_(0, token, expert(flat[token]) * best[token, place, None])
        return made.view_as(x), (weights.mean(0) * mask.float().mean((1, 2))).sum() * 4


@case((6, 3), ids(6, 2, high=5))
class Table(nn.Module):
    """Numbers and categories: an embedding for each column in a ModuleDict, a batch normalization, crossed features."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.ModuleDict({"shop": nn.Embedding(5, 3), "day": nn.Embedding(5, 2, max_norm=None)})
        self.norm = nn.BatchNorm1d(3)
        self.deep = nn.Sequential(nn.Linear(8, 6), nn.PReLU(6), nn.Dropout(0.3), nn.Linear(6, 1))
        self.wide = nn.Bilinear(3, 3, 1)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        numbers = self.norm(numbers)
        found = [layer(categories[:, i]) for i, layer in enumerate(self.columns.values())]
        return torch.sigmoid(self.deep(torch.cat([numbers, *found], 1)) + self.wide(numbers, found[0])).squeeze(1)


@case(lambda: torch.tensor([1, 4, 7, 2, 2, 9]), lambda: torch.tensor([0, 2, 5]))
class Bags(nn.Module):
    """Means and weighted sums of bags of embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.sum = nn.EmbeddingBag(10, 4, mode="mean"), nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=False)
        self.weights = nn.Parameter(torch.rand(6))

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.mean(words, offsets) + self.sum(words, offsets, per_sample_weights=self.weights)


@case((3, 5, 4))
class DeepSet(nn.Module):
    """Sums over a set, a softmax pool with a learned query, distances between all pairs, the nearest by argmin."""

    def __init__(self) -> None:
        super().__init__()
        self.phi, self.query = nn.Linear(4, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = F.softplus(self.phi(x))
        pooled = torch.einsum("bn,bnd->bd", torch.softmax(h @ self.query, dim=1), h)
        apart = torch.cdist(h, h) + 1e3 * torch.eye(h.size(1))
        near = torch.gather(h, 1, apart.argmin(-1, keepdim=True).expand(-1, -1, 6))
        return pooled, near, apart.topk(2, largest=False).values


@case((4, 6))
class Quantizer(nn.Module):
    """A VQ-VAE: the nearest code by argmin, a straight-through estimate by detach, a running mean of the codes in buffers."""

    codes: torch.Tensor
    counts: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 3), nn.Linear(3, 6)
        self.register_buffer("codes", torch.randn(5, 3))
        self.register_buffer("counts", torch.ones(5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.encode(x)
        nearest = (z.pow(2).sum(1, keepdim=True) - 2 * z @ self.codes.t() + self.codes.pow(2).sum(1)).argmin(1)
        q = F.embedding(nearest, self.codes)
        if self.training:
            with torch.no_grad():
                hits = F.one_hot(nearest, 5).type(z.dtype)
                self.counts.mul_(0.9).add_(hits.sum(0), alpha=0.1)
                self.codes.data.lerp_(hits.t() @ z / self.counts.unsqueeze(1), 0.1)
        loss = F.mse_loss(q.detach(), z) + 0.25 * F.mse_loss(z.detach(), q)
        return self.decode(z + (q - z).detach()), loss


# ---- forms of parameters and arguments -----------------------------------------------------------------------------------------
@case((4, 5))
class Parametrized(nn.Module):
    """A symmetric weight by a parametrization of one's own, an orthogonal one by torch's, the old weight_norm by hooks."""

    class Symmetric(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.triu() + x.triu(1).transpose(-1, -2)

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 5)
        nn.utils.parametrize.register_parametrization(self.first, "weight", self.Symmetric())
        self.second = nn.utils.parametrizations.orthogonal(nn.Linear(5, 5))
        self.third = nn.utils.weight_norm(nn.Linear(5, 3), dim=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(torch.tanh(self.second(self.first(x))))


@case(lambda: {"image": torch.randn(2, 4), "text": [torch.randn(2, 3), torch.randn(2, 3)], "scale": 2.0, "mask": None})
class Batch(nn.Module):
    """One dict of arguments with lists, numbers and None inside; a named tuple comes out."""

    class Result(NamedTuple):
        total: torch.Tensor
        parts: list[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(4, 3), nn.Linear(3, 3)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in (1, 2)])
        self.named = nn.ParameterDict({"shift": nn.Parameter(torch.randn(3))})

    def forward(self, batch: dict[str, Any]) -> Result:
        parts = [self.text(x) * s for x, s in zip(batch["text"], self.scales)]
        total = self.image(batch["image"]) * batch["scale"] + sum(parts) + self.named["shift"]
        return self.Result(total if batch.get("mask") is None else total * batch["mask"], parts)


@case((3, 16))
class Spectral(nn.Module):
    """A Fourier layer: rfft, complex weights on the low modes, irfft; the phase and the power of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.cfloat))
        self.out = nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        spectrum = torch.fft.rfft(x)
        low = torch.zeros(x.shape[0], 9, dtype=torch.cfloat)
        low[:, :4] = spectrum[:, :4] * self.weight
        turned = torch.view_as_real(spectrum * torch.polar(torch.ones(9), torch.arange(9.0)))
        return self.out(F.gelu(torch.fft.irfft(low, n=16))), spectrum.abs().pow(2).sum(-1) + turned.square().sum((1, 2))


@case((2, 4, 8, 8))
class FourierOperator(nn.Module):
    """The same in two dimensions, with a product of complex matrices for each mode by einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2 = (nn.Parameter(0.1 * torch.rand(4, 4, 3, 3, dtype=torch.cfloat)) for _ in range(2))
        self.skip = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = torch.fft.rfft2(x)
        made = torch.zeros_like(f)
        made[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", f[:, :, :3, :3], self.w1)
        made[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", f[:, :, -3:, :3], self.w2)
        return F.gelu(torch.fft.irfft2(made, s=(x.size(-2), x.size(-1))) + self.skip(x))


@case((5, 3))
class Flow(nn.Module):
    """RealNVP: coupling layers with masks in buffers, a log-determinant, triangular and LU products."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)) for _ in range(2))
        self.register_buffer("masks", torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
        self.mix = nn.Parameter(torch.eye(3) + 0.1 * torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = torch.zeros(x.shape[0])
        for net, mask in zip(self.nets, self.masks):
            scale, shift = net(x * mask).chunk(2, dim=-1)
            scale = torch.tanh(scale) * (1 - mask)
            x = x * mask + (1 - mask) * (x * scale.exp() + shift)
            total = total + scale.sum(-1)
            x = x @ self.mix
            total = total + torch.linalg.slogdet(self.mix)[1]
        prior = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
        return x, prior.log_prob(x).sum(-1) + total


@case((4, 3))
class Gaussians(nn.Module):
    """A mixture density: log-probabilities of torch.distributions, logsumexp, Cholesky factors of covariances."""

    def __init__(self) -> None:
        super().__init__()
        self.logits, self.means = nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(2, 3))
        self.roots = nn.Parameter(torch.eye(3).repeat(2, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lower = torch.tril(self.roots, -1) + torch.diag_embed(F.softplus(torch.diagonal(self.roots, dim1=-2, dim2=-1)))
        away = torch.linalg.solve_triangular(lower, (x[:, None] - self.means).unsqueeze(-1), upper=False).squeeze(-1)
        density = -0.5 * away.square().sum(-1) - lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return torch.logsumexp(density + F.log_softmax(self.logits, 0), dim=-1)


@case((3, 4, 6), lambda: torch.tensor([[1, 0, 1, 1]] * 3, dtype=torch.bool))
class Pooled(nn.Module):
    """nn.MultiheadAttention with a padding mask and a learned token, an encoder layer that normalizes first, masked means."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=False)
        layer = nn.TransformerEncoderLayer(6, 3, 12, 0.1, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor, present: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1)
        present = F.pad(present, (1, 0), value=True)
        y, weights = self.attention(x, x, x, key_padding_mask=~present)
        y = self.encoder(y, src_key_padding_mask=~present)
        mean = (y * present.unsqueeze(-1)).sum(1) / present.sum(1, keepdim=True)
        return mean, weights, y[:, 0]


@case((4, 6), lambda: torch.tensor([0, 2, 1, 1]))
class WithLosses(nn.Module):
    """A model that returns its losses: cross entropy with smoothing and ignored labels, triplets, cosines, KL, Huber."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.out = nn.Linear(6, 4), nn.Linear(4, 3)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2, weight=torch.tensor([1.0, 2.0, 0.5]))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        h = F.normalize(self.net(x), dim=-1)
        logits = self.out(h)
        other = h.roll(1, dims=0)
        return {
            "loss": self.criterion(logits, labels),
            "triplet": F.triplet_margin_loss(h, other, h.flip(0), margin=0.5),
            "contrast": F.cross_entropy(h @ other.t() / 0.1, torch.arange(h.size(0))),
            "kl": F.kl_div(logits.log_softmax(-1), logits.detach().softmax(-1).flip(-1), reduction="batchmean"),
            "huber": F.smooth_l1_loss(h, other) + F.huber_loss(h, other, delta=0.3) + F.cosine_similarity(h, other).mean(),
            "binary": F.binary_cross_entropy_with_logits(logits[:, 0], (labels == 1).float(), pos_weight=torch.tensor(2.0)),
        }


@case((4, 5))
class Teacher(nn.Module):
    """A moving average of the student's weights, kept in buffers; a gradient that detach() reverses."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(5, 3)
        self.register_buffer("weight", self.student.weight.detach().clone())
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.step += 1
            self.weight.copy_(0.99 * self.weight + 0.01 * self.student.weight.detach())
        y = self.student(x)
        reversed_y = 2 * y.detach() - y
        return (y - F.linear(x, self.weight)) ** 2 + reversed_y * torch.where(self.step > 3, 0.5, 1.0)


@case((2, 3))
class Hyper(nn.Module):
    """A network whose weights another network makes, called by torch.func.functional_call and by bmm."""

    def __init__(self) -> None:
        super().__init__()
        self.make, self.inner = nn.Linear(3, 12), nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.make(x).view(-1, 4, 3)
        shared = torch.func.functional_call(self.inner, {"weight": weights.mean(0), "bias": torch.zeros(4)}, (x,))
        return torch.bmm(weights, x.unsqueeze(-1)).squeeze(-1) + shared


@case((3, 4))
class Stacked(nn.Module):
    """Layers stacked in one parameter and applied by vmap; torch.cond on a value; a loop over named children."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 4, 4))
        self.add_module("a", nn.Linear(4, 4))
        self.add_module("b", nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _, layer in self.named_children():
            x = layer(x).relu_()
        many = torch.vmap(lambda w: x @ w)(self.w).max(0).values
        return torch.cond(many.sum() > 0, lambda y: y.sin(), lambda y: y.cos() * 2, (many,))


@case((3, 8))
class Kan(nn.Module):
    """Splines on a grid: comparisons, differences of neighbours, bucketize, searchsorted, interpolation by gather."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(-3, 3, 9))
        self.values = nn.Parameter(torch.randn(9))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bases = ((x[..., None] >= self.grid[:-1]) & (x[..., None] < self.grid[1:])).to(x.dtype)
        place = torch.bucketize(x.detach().contiguous(), self.grid).clamp(1, 8)
        left, right = self.grid[place - 1], self.grid[place]
        t = (x - left) / (right - left)
        return self.values[place - 1] * (1 - t) + self.values.take(place) * t + bases.sum(-1)


@case((2, 6, 4))
class Linformer(nn.Module):
    """Linear attention with elu + 1, cumulative sums for causality, a low-rank product, RMS normalization, GLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4)
        self.project = nn.Linear(4, 12)
        self.gate = nn.Sequential(nn.Linear(4, 16), nn.GLU(-1), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("btd,bte->btde", k, v).cumsum(1)
        y = torch.einsum("btd,btde->bte", q, kv) / (q * k.cumsum(1)).sum(-1, keepdim=True)
        return x + self.gate(y)


# ---- state that changes as the model trains ------------------------------------------------------------------------------------
@case((4, 6))
class Queue(nn.Module):
    """Contrast with a queue of earlier keys: rows set at a counted place, buffers assigned anew, `.data` set, all in no_grad."""

    queue: torch.Tensor
    place: torch.Tensor
    center: torch.Tensor
    spread: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 5)
        self.register_buffer("queue", F.normalize(torch.randn(8, 5), dim=1))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))
        self.register_buffer("center", torch.zeros(5))
        self.register_buffer("spread", torch.ones(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.net(x)
        if self.training:
            self.spread.data = 0.9 * self.spread + 0.1 * y.detach().abs().mean(0)
        logits = (y - self.center) / self.spread @ self.queue.clone().T
        if self.training:
            with torch.no_grad():
                rows = (self.place + torch.arange(x.shape[0])) % 8
                self.queue[rows] = F.normalize(y, dim=1)
                self.place[0] = (self.place[0] + x.shape[0]) % 8
                self.center = 0.9 * self.center + 0.1 * y.mean(0)
        return logits


@case((4, 3))
class Contrast(nn.Module):
    """SimCLR's loss: similarities without those of the diagonal, filled in place, and pairs at places counted from the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.temperature = nn.Linear(3, 5), nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = F.normalize(self.net(x), dim=1)
        alike = z @ z.t() / self.temperature.exp()
        alike.fill_diagonal_(-1e9)
        return F.cross_entropy(alike, (torch.arange(x.size(0)) + x.size(0) // 2) % x.size(0))


@case((4, 6))
class DropPath(nn.Module):
    """Stochastic depth as timm writes it: a random mask made in place of an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = torch.tanh(layer(x))
            if self.training:
                kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(0.8)
                y = y * kept.div_(0.8)
            x = x + y
        return x
