"""Speeds and memory of PyTorch on an NVIDIA GPU, for the tables of `tests/economics/published`: one JSON document.

`python tests/gpu/measure.py OUT.json` needs PyTorch alone, no network and no other file; it takes at most 330 seconds
(`--seconds`), changes no setting of the GPU, and prints the document, too. Weights are random. What fails is a row with
an ``error``. `--small`: tiny shapes, on a processor as well, to see that it runs.

Times are milliseconds, the median of several runs after one to warm up; memory is GiB (2**30 bytes).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
GIB = 2**30


@dataclass(frozen=True)
class Shape:
    """Of a decoder as Llama's: a gated MLP, grouped keys and values."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocabulary: int = 128256
    tied: bool = True


@dataclass(frozen=True)
class Blocks:
    """A transformer on patches or tokens: norms, attention of all to all, a plain MLP. ``conditioned``: each block is
    modulated by a vector, as in DiT."""

    name: str
    layers: int
    hidden: int
    heads: int
    width: int
    tokens: int
    patch: int
    conditioned: bool = False


DECODERS = (
    Shape("Llama 3.2 1B", 16, 2048, 32, 8, 64, 8192),
    Shape("Llama 3.2 3B", 28, 3072, 24, 8, 128, 8192),
    Shape("Llama 3.1 8B", 32, 4096, 32, 8, 128, 14336, tied=False),
)
VIT_L = Blocks("ViT-L/16", 24, 1024, 16, 4096, 197, 3 * 16 * 16)
VIT_H = Blocks("ViT-H/14", 32, 1280, 16, 5120, 257, 3 * 14 * 14)
DIT_XL = Blocks("DiT-XL/2", 28, 1152, 16, 4608, 256, 4 * 2 * 2, conditioned=True)
BERT = Blocks("BERT-large", 24, 1024, 16, 4096, 256, 1024)


class Notes:
    """Rows of the document, and the time that is left."""

    def __init__(self, out: Path | None, seconds: float) -> None:
        self.rows: list[dict[str, Any]] = []
        self.clocks: list[tuple[float, str]] = []
        self._out, self._began, self._seconds = out, time.monotonic(), seconds

    @property
    def left(self) -> float:
        return self._began + self._seconds - time.monotonic()

    def take(self, kind: str, measure: Callable[[], dict[str, Any]], **what: Any) -> None:
        """One row; none once the time is over."""
        if self.left < 0:
            return
        row: dict[str, Any] = {"kind": kind, **what}
        try:
            row |= measure()
        except Exception as error:  # noqa: BLE001  # the other rows are of use without this one
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        row["at"] = round(self._seconds - self.left, 1)
        self.rows.append(row)
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()

    def document(self) -> str:
        said = {
            "device": torch.cuda.get_device_name() if CUDA else "cpu",
            "torch": torch.__version__,
            "seconds": round(self._seconds - self.left, 1),
            "clocks_mhz_w": self.clocks,
            "rows": self.rows,
        }
        return json.dumps(said)

    def keep(self) -> None:
        if self._out is not None:
            self._out.write_text(self.document(), "utf-8")

    def watch(self) -> subprocess.Popen[str] | None:
        """Clock (MHz) and power (W) each second, as the driver tells them."""
        words = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-l", "1"]
        try:
            told = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        except OSError:
            return None

        def read() -> None:
            for line in told.stdout or ():
                self.clocks.append((round(self._seconds - self.left, 1), line.strip()))

        threading.Thread(target=read, daemon=True).start()
        return told


def wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def timed(call: Callable[[], Any], least: int = 3, seconds: float = 0.3) -> dict[str, Any]:
    """The median time of a call."""
    call()
    wait()
    took: list[float] = []
    while len(took) < least or (sum(took) < seconds and len(took) < 50):
        began = time.perf_counter()
        call()
        wait()
        took.append(time.perf_counter() - began)
    return {"ms": round(1000 * statistics.median(took), 4), "runs": len(took)}


def weight(*size: int, kind: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*size, device=DEVICE, dtype=kind) / math.sqrt(size[-1])


# Decoders


@dataclass
class Layer:
    """Matrices of one layer of a decoder."""

    norm: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    mlp_norm: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor

    def all(self) -> list[torch.Tensor]:
        return [self.norm, self.qkv, self.out, self.mlp_norm, self.up, self.down]


@dataclass
class Decoder:
    shape: Shape
    embedding: torch.Tensor
    layers: list[Layer]
    norm: torch.Tensor
    output: torch.Tensor

    def all(self) -> list[torch.Tensor]:
        last = [] if self.shape.tied else [self.output]
        return [self.embedding, self.norm, *last, *(one for layer in self.layers for one in layer.all())]


def decoder(shape: Shape, kind: torch.dtype = torch.bfloat16) -> Decoder:
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def ones() -> torch.Tensor:
        return torch.ones(shape.hidden, device=DEVICE, dtype=kind)

    layers = [
        Layer(
            ones(),
            weight(queries + 2 * keys, shape.hidden, kind=kind),
            weight(shape.hidden, queries, kind=kind),
            ones(),
            weight(2 * shape.width, shape.hidden, kind=kind),
            weight(shape.hidden, shape.width, kind=kind),
        )
        for _ in range(shape.layers)
    ]
    embedding = weight(shape.vocabulary, shape.hidden, kind=kind)
    output = embedding if shape.tied else weight(shape.vocabulary, shape.hidden, kind=kind)
    return Decoder(shape, embedding, layers, ones(), output)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def angles(shape: Shape, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    steps = torch.arange(0, shape.head_dim, 2, device=DEVICE) / shape.head_dim
    turned = positions[:, None].float() * (500000.0**-steps)[None]
    turned = torch.cat((turned, turned), -1)
    return turned.cos().bfloat16(), turned.sin().bfloat16()


def layer_forward(
    x: torch.Tensor, layer: Layer, shape: Shape, turn: tuple[torch.Tensor, torch.Tensor], cache: Any = None
) -> torch.Tensor:
    """Over whole sequences; ``cache``: where keys and values are kept; their last place, if only one token is read."""
    batch, tokens, _ = x.shape
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    h = F.linear(F.rms_norm(x, (shape.hidden,), layer.norm), layer.qkv)
    q, k, v = (
        one.view(batch, tokens, -1, shape.head_dim).transpose(1, 2) for one in h.split((queries, keys, keys), -1)
    )
    q, k = rotate(q, *turn), rotate(k, *turn)
    if cache is not None:
        cache[0][:, :, -tokens:] = k
        cache[1][:, :, -tokens:] = v
    if cache is not None and tokens == 1:  # the queries of a group as one sequence: all see all that is kept
        q = q.view(batch, shape.kv_heads, -1, shape.head_dim)
        seen = F.scaled_dot_product_attention(q, cache[0], cache[1]).reshape(batch, 1, queries)
    else:
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        seen = seen.transpose(1, 2).reshape(batch, tokens, queries)
    x = x + F.linear(seen, layer.out)
    gate, up = F.linear(F.rms_norm(x, (shape.hidden,), layer.mlp_norm), layer.up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, layer.down)


def caches(shape: Shape, batch: int, context: int) -> list[torch.Tensor]:
    size = (2, batch, shape.kv_heads, context, shape.head_dim)
    return [torch.zeros(size, device=DEVICE, dtype=torch.bfloat16) for _ in range(shape.layers)]


def last(model: Decoder, x: torch.Tensor) -> torch.Tensor:
    return F.linear(F.rms_norm(x[:, -1], (model.shape.hidden,), model.norm), model.output).argmax(-1)


def prefill(model: Decoder, batch: int, tokens: int, forward: Any = layer_forward) -> dict[str, Any]:
    shape = model.shape
    ids = torch.randint(shape.vocabulary, (batch, tokens), device=DEVICE)
    kept = caches(shape, batch, tokens)
    turn = angles(shape, torch.arange(tokens, device=DEVICE))

    def read() -> None:
        x = model.embedding[ids]
        for layer, cache in zip(model.layers, kept, strict=True):
            x = forward(x, layer, shape, turn, cache)
        last(model, x)

    return timed(read)


def decode(model: Decoder, batch: int, context: int) -> dict[str, Any]:
    """A step of generation in a CUDA graph, at a full cache."""
    shape = model.shape
    ids = torch.zeros(batch, dtype=torch.long, device=DEVICE)
    kept = caches(shape, batch, context)
    turn = angles(shape, torch.tensor([context - 1], device=DEVICE))

    def step() -> None:
        x = model.embedding[ids][:, None]
        for layer, cache in zip(model.layers, kept, strict=True):
            x = layer_forward(x, layer, shape, turn, cache)
        ids.copy_(last(model, x))

    if not CUDA:
        return timed(step)
    step()
    wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return timed(graph.replay)


def serving(notes: Notes, shapes: tuple[Shape, ...], small: bool) -> None:
    prompts = [(1, 512 * 2**n) for n in range(7)] + [(4, 512), (4, 2048), (4, 8192), (16, 512), (16, 2048), (64, 512)]
    steps = [(n, 1024) for n in (1, 4, 16, 32, 64, 128, 256)] + [(1, 8192), (16, 4096), (64, 4096)]
    if small:
        prompts, steps = [(1, 8), (2, 16)], [(1, 8), (3, 8)]
    for shape in shapes:
        model = decoder(shape)
        for batch, tokens in prompts:
            read = partial(prefill, model, batch, tokens)
            notes.take("prefill", read, model=shape.name, batch=batch, prompt=tokens)
        for batch, context in steps:
            step = partial(decode, model, batch, context)
            notes.take("decode", step, model=shape.name, batch=batch, context=context)
        notes.keep()
        del model, read, step
        gc.collect()


def compiled(notes: Notes, shape: Shape, small: bool) -> None:
    """The same prompts with each layer compiled: what an engine's joined kernels gain."""
    model = decoder(shape)
    for batch, tokens in ((2, 16),) if small else ((1, 512), (1, 2048), (4, 2048)):
        if notes.left < 30 and not small:
            break
        read = partial(prefill, model, batch, tokens, torch.compile(layer_forward, dynamic=False))
        notes.take("prefill compiled", read, model=shape.name, batch=batch, prompt=tokens)


# Single operations


def matrices(notes: Notes, small: bool) -> None:
    """Products of m tokens with a k × n matrix, the matrices of 1B, 3B, 8B and 70B; copies of it fill the caches."""
    sizes = [(2048, 16384), (3072, 16384), (4096, 6144), (4096, 28672), (14336, 4096), (8192, 57344), (28672, 8192)]
    for k, n in [(64, 128)] if small else sizes:
        for kind in ("bf16", "fp8"):
            copies = min(4, math.ceil(2.5e8 / (k * n * (2 if kind == "bf16" else 1))))
            with suppress(Exception):
                many = [weight(n, k) for _ in range(copies)]
                many = [one.to(torch.float8_e4m3fn) for one in many] if kind == "fp8" else many
                for m in (16,) if small else (1, 16, 64, 256, 1024, 4096, 16384):
                    notes.take("matrix", partial(product, m, many, kind), precision=kind, m=m, k=k, n=n)


def product(m: int, many: list[torch.Tensor], kind: str) -> dict[str, Any]:
    one = torch.tensor(1.0, device=DEVICE)
    x = weight(m, many[0].shape[1])
    given = x.to(torch.float8_e4m3fn) if kind == "fp8" else x
    rounds = max(4, 16 // len(many)) if m < 4096 else 1

    def run() -> None:
        for matrix in many * rounds:
            if kind == "fp8":
                torch._scaled_mm(given, matrix.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            else:
                F.linear(given, matrix)

    took = timed(run, seconds=0.03)
    return {"ms": took["ms"] / (len(many) * rounds), "runs": took["runs"]}


def attention(notes: Notes, small: bool) -> None:
    backends = (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION))
    sizes = [(32, 128, 1, n) for n in (512, 1024, 4096, 16384, 32768)] + [(32, 64, 1, 4096), (32, 128, 16, 1024)]
    for heads, dim, batch, tokens in [(2, 16, 1, 8)] if small else sizes:
        for name, backend in backends:
            size = {"heads": heads, "head_dim": dim, "batch": batch, "tokens": tokens}
            notes.take("attention", partial(seen, backend, **size), backend=name, **size)


def seen(backend: Any, heads: int, head_dim: int, batch: int, tokens: int) -> dict[str, Any]:
    q, k, v = (weight(batch, heads, tokens, head_dim) for _ in range(3))
    with sdpa_kernel(backend):
        return timed(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), seconds=0.05)


def movement(notes: Notes, small: bool) -> None:
    """Reading and writing GB/s, and the launch of a small operation."""
    a = torch.zeros(10**5 if small else 2 * 10**9, device=DEVICE, dtype=torch.bfloat16)
    b = torch.empty_like(a)
    notes.take("copy", partial(timed, partial(b.copy_, a)), bytes=4 * a.numel())
    tiny = torch.zeros(1024, device=DEVICE)

    def hundred() -> None:
        for _ in range(100):
            tiny.add_(1)

    notes.take("100 launches", partial(timed, hundred))


# Training


@dataclass
class BlockWeights:
    """Blocks with their weights, FP32 where they are trained."""

    shape: Blocks
    first: torch.Tensor
    places: torch.Tensor
    blocks: list[list[torch.Tensor]]
    head: torch.Tensor

    def all(self) -> list[torch.Tensor]:
        return [self.first, self.places, self.head, *(one for block in self.blocks for one in block)]


def network(shape: Blocks, kind: torch.dtype) -> BlockWeights:
    h, w = shape.hidden, shape.width

    def flat(n: int) -> torch.Tensor:
        return torch.zeros(n, device=DEVICE, dtype=kind)

    def block() -> list[torch.Tensor]:
        matrices = [weight(3 * h, h, kind=kind), flat(3 * h), weight(h, h, kind=kind), flat(h)]
        matrices += [weight(w, h, kind=kind), flat(w), weight(h, w, kind=kind), flat(h)]
        return matrices + (
            [weight(6 * h, h, kind=kind), flat(6 * h)] if shape.conditioned else [flat(h) for _ in "1234"]
        )

    ends = 2 * shape.patch if shape.conditioned else 1000
    places = flat(shape.tokens * h).view(shape.tokens, h)
    return BlockWeights(shape, weight(h, shape.patch, kind=kind), places, [block() for _ in range(shape.layers)],
                   weight(ends, h, kind=kind))  # fmt: skip


def block_forward(x: torch.Tensor, by: torch.Tensor | None, shape: Blocks, *block: torch.Tensor) -> torch.Tensor:
    qkv, qkv_b, out, out_b, up, up_b, down, down_b, *norms = block
    batch, tokens, h = x.shape
    if by is None:
        y, shift = F.layer_norm(x, (h,), norms[0], norms[1]), None
        gates: list[Any] = [1.0, 1.0]
    else:
        parts = F.linear(F.silu(by), norms[0], norms[1])[:, None].chunk(6, -1)
        y, shift = F.layer_norm(x, (h,)) * (1 + parts[1]) + parts[0], parts
        gates = [parts[2], parts[5]]
    q, k, v = F.linear(y, qkv, qkv_b).view(batch, tokens, 3, shape.heads, -1).permute(2, 0, 3, 1, 4)
    y = F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, h), out, out_b)
    x = x + gates[0] * y if by is not None else x + y
    if shift is None:
        y = F.layer_norm(x, (h,), norms[2], norms[3])
    else:
        y = F.layer_norm(x, (h,)) * (1 + shift[4]) + shift[3]
    y = F.linear(F.gelu(F.linear(y, up, up_b), approximate="tanh" if shift else "none"), down, down_b)
    return x + gates[1] * y if by is not None else x + y


def network_forward(net: BlockWeights, items: torch.Tensor, by: torch.Tensor | None, recompute: bool) -> torch.Tensor:
    x = F.linear(items, net.first) + net.places
    for block in net.blocks:
        if recompute:
            x = checkpoint(block_forward, x, by, net.shape, *block, use_reentrant=False)
        else:
            x = block_forward(x, by, net.shape, *block)
    x = F.layer_norm(x, (net.shape.hidden,))
    return F.linear(x if by is not None else x[:, 0], net.head)


def training(notes: Notes, small: bool) -> None:
    double = replace(DIT_XL, tokens=1024)
    runs = [
        (VIT_L, 32, False), (VIT_L, 128, False), (VIT_L, 64, True), (VIT_L, 256, True),
        (VIT_H, 16, False), (VIT_H, 64, False), (VIT_H, 64, True), (VIT_H, 128, True),
        (DIT_XL, 16, False), (DIT_XL, 64, False), (DIT_XL, 64, True), (double, 16, False), (double, 32, True),
    ]  # fmt: skip
    if small:
        tiny = replace(VIT_L, layers=2, hidden=32, width=64, tokens=5, heads=2)
        runs = [(tiny, 2, False), (tiny, 2, True), (replace(tiny, conditioned=True, patch=16), 2, True)]
    for shape, batch, recompute in runs:
        run = partial(train_images, shape, batch, recompute)
        notes.take("train image", run, network=shape.name, tokens=shape.tokens, batch=batch, recompute=recompute)
    notes.keep()


def train_images(shape: Blocks, batch: int, recompute: bool) -> dict[str, Any]:
    net = network(shape, torch.float32)
    items = torch.randn(batch, shape.tokens, shape.patch, device=DEVICE)
    by = torch.randn(batch, shape.hidden, device=DEVICE) if shape.conditioned else None

    def loss() -> torch.Tensor:
        said = network_forward(net, items, by, recompute).float()
        if by is not None:
            return said.square().mean()
        return F.cross_entropy(said, torch.zeros(batch, dtype=torch.long, device=DEVICE))

    return {**step_of(net.all(), loss), "parameters": sum(one.numel() for one in net.all())}


def train_decoders(notes: Notes, small: bool) -> None:
    one, three, _ = DECODERS
    runs = [(one, 4, 2048, False), (one, 8, 2048, True), (one, 1, 8192, False), (three, 1, 4096, True)]
    if small:
        runs = [(tiny_decoder(), 2, 8, False), (tiny_decoder(), 2, 8, True)]
    for shape, batch, tokens, recompute in runs:
        run = partial(train_decoder, shape, batch, tokens, recompute)
        notes.take("train", run, model=shape.name, batch=batch, tokens=tokens, recompute=recompute)
    notes.keep()


def train_decoder(shape: Shape, batch: int, tokens: int, recompute: bool) -> dict[str, Any]:
    model = decoder(shape, torch.float32)
    ids = torch.randint(shape.vocabulary, (batch, tokens), device=DEVICE)
    turn = angles(shape, torch.arange(tokens, device=DEVICE))

    def loss() -> torch.Tensor:
        x = F.embedding(ids, model.embedding)
        for layer in model.layers:
            if recompute:
                x = checkpoint(layer_forward, x, layer, shape, turn, use_reentrant=False)
            else:
                x = layer_forward(x, layer, shape, turn)
        said = F.linear(F.rms_norm(x, (shape.hidden,), model.norm), model.output)
        return F.cross_entropy(said.float().view(-1, shape.vocabulary), ids.view(-1))

    return step_of(model.all(), loss)


def step_of(weights: list[torch.Tensor], loss: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """Time and peak of a step: BF16 autocast, AdamW, gradients freed between steps."""
    for one in weights:
        one.requires_grad_()
    optimizer = torch.optim.AdamW(weights, lr=1e-5, fused=CUDA)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()

    step()
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    took = timed(step)
    if not CUDA:
        return took
    free, total = torch.cuda.mem_get_info()
    beyond = total - free - torch.cuda.memory_reserved()
    return {**took, "tensors_gib": torch.cuda.max_memory_allocated() / GIB, "beyond_gib": beyond / GIB}


def encoders(notes: Notes, small: bool) -> None:
    """Embedding documents: forward passes alone, in BF16."""
    shape = replace(BERT, layers=2, hidden=32, width=64, tokens=5, heads=2, patch=32) if small else BERT
    for batch, tokens in ((2, 5),) if small else ((1, 256), (8, 256), (64, 256), (256, 256), (64, 512)):
        run = partial(encode, replace(shape, tokens=tokens), batch)
        notes.take("encode", run, model=shape.name, batch=batch, tokens=tokens)
    notes.keep()


def encode(shape: Blocks, batch: int) -> dict[str, Any]:
    net = network(shape, torch.bfloat16)
    items = torch.randn(batch, shape.tokens, shape.patch, device=DEVICE, dtype=torch.bfloat16)
    return timed(lambda: network_forward(net, items, None, recompute=False))


def tiny_decoder() -> Shape:
    return Shape("tiny", 2, 32, 4, 2, 8, 64, 100)


def sections(small: bool) -> Iterator[tuple[bool, Callable[[Notes], None]]]:
    """In the order of their use; whether gradients are needed."""
    yield True, lambda notes: training(notes, small)
    yield False, lambda notes: serving(notes, (tiny_decoder(),) if small else DECODERS[::-1], small)
    yield False, lambda notes: matrices(notes, small)
    yield False, lambda notes: attention(notes, small)
    yield False, lambda notes: encoders(notes, small)
    yield True, lambda notes: train_decoders(notes, small)
    yield False, lambda notes: movement(notes, small)
    yield False, lambda notes: compiled(notes, tiny_decoder() if small else DECODERS[2], small)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="where the document is written, too")
    parser.add_argument("--seconds", type=float, default=330)
    parser.add_argument("--small", action="store_true", help="tiny shapes, to see that it runs")
    given = parser.parse_args()
    if not CUDA and not given.small:
        print("no NVIDIA GPU here; --small runs without one", file=sys.stderr)
        return 1
    torch.manual_seed(1)
    notes = Notes(given.out, given.seconds)
    watch = notes.watch()
    try:
        for gradients, section in sections(given.small):
            with torch.set_grad_enabled(gradients):
                section(notes)
            notes.keep()
            print(f"{notes.left:.0f} s left, {len(notes.rows)} rows", file=sys.stderr, flush=True)
    finally:
        if watch is not None:
            watch.terminate()
    print(notes.document())
    return 0


if __name__ == "__main__":
    sys.exit(main())
