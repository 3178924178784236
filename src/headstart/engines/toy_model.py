"""A numpy language model of some thousand parameters, bit-exact however its input is cut up.

Every token is computed alone, by the same operations on arrays of the same shapes, over exactly
the rows it may see: so the bits of its rows and logits depend on the tokens before it and on
nothing else. Sums go through `numpy.add.reduce` only: BLAS may add in another order for another
shape or memory alignment.

Three kinds of layer, each followed by a small feed-forward layer:

- `full`: two-head attention over all tokens so far, rotary positions (Su et al., 2021).
- `window`: the same, but a token sees itself and the `window` tokens before it.
- `recurrent`: a gated linear recurrence, S <- a * S + k v^T with a decay `a` computed from the
  token, and a short convolution over the last two inputs in front (as GatedDeltaNet has).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from headstart.engines.toy_vocabulary import output_bias

Floats = npt.NDArray[np.float32]
LayerKind = Literal["full", "window", "recurrent"]

WIDTH = 16
HEADS = 2
HEAD_WIDTH = WIDTH // HEADS
ROW_BYTES = WIDTH * 4
"""Bytes of one key or value row of one layer."""
STATE_FLOATS = HEADS * HEAD_WIDTH * HEAD_WIDTH + WIDTH
"""Floats of one recurrent layer's state: the matrix of each head and the last input."""


@dataclass(frozen=True)
class LayerWeights:
    """Matrices are (outputs, inputs). `mix` gives queries, keys, values (and the decay's inputs)."""

    kind: LayerKind
    mix: Floats
    decay: Floats
    convolution: Floats
    out: Floats
    up: Floats
    down: Floats


@dataclass(frozen=True)
class ToyWeights:
    """All parameters. `embedding` is (vocabulary, WIDTH), `cosine` and `sine` (context, HEAD_WIDTH / 2)."""

    embedding: Floats
    head: Floats
    bias: Floats
    layers: tuple[LayerWeights, ...]
    cosine: Floats
    sine: Floats

    @property
    def parameters(self) -> int:
        """How many numbers were drawn from the seed."""
        drawn = [self.embedding, self.head]
        for layer in self.layers:
            drawn += [layer.mix, layer.decay, layer.convolution, layer.out, layer.up, layer.down]
        return sum(array.size for array in drawn)

    def digest(self) -> str:
        """Hexadecimal digest of every drawn number and of the order of layers."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(self.embedding.tobytes() + self.head.tobytes())
        for layer in self.layers:
            digest.update(layer.kind.encode())
            for array in (layer.mix, layer.decay, layer.convolution, layer.out, layer.up, layer.down):
                digest.update(array.tobytes())
        return digest.hexdigest()


@dataclass
class ToyState:
    """What one sequence has in the engine.

    `keys` and `values` hold one (context, WIDTH) array an attention layer, in layer order;
    `recurrent` one flat array of STATE_FLOATS a recurrent layer. `window_start`: lowest token whose
    windowed rows are there; the rows below it are overwritten with NaN.
    """

    keys: list[Floats]
    values: list[Floats]
    recurrent: list[Floats]
    position: int = 0
    window_start: int = 0


def draw_weights(
    layers: Sequence[LayerKind], *, vocab_size: int, context_tokens: int, seed: int
) -> ToyWeights:
    """Weights from `seed`, scaled so that every layer moves the logits clearly."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Floats:
        values: Floats = (random.standard_normal((rows, columns)) * scale / np.sqrt(columns)).astype(
            np.float32
        )
        return values

    drawn = tuple(
        LayerWeights(
            kind=kind,
            mix=matrix(3 * WIDTH, WIDTH, 1.5),
            decay=matrix(HEADS, WIDTH),
            convolution=matrix(2, WIDTH, 3.0),
            out=matrix(WIDTH, WIDTH, 2.0),
            up=matrix(2 * WIDTH, WIDTH, 1.5),
            down=matrix(WIDTH, 2 * WIDTH, 1.5),
        )
        for kind in layers
    )
    half = HEAD_WIDTH // 2
    rates = 10_000.0 ** (-np.arange(half) / half)
    angles = np.arange(context_tokens)[:, None] * rates
    return ToyWeights(
        embedding=matrix(vocab_size, WIDTH, 4.0),
        head=matrix(vocab_size, WIDTH, 6.0),
        bias=output_bias(vocab_size),
        layers=drawn,
        cosine=np.cos(angles).astype(np.float32),
        sine=np.sin(angles).astype(np.float32),
    )


def empty_state(weights: ToyWeights) -> ToyState:
    """The state of a sequence that has read nothing."""
    context = len(weights.cosine)
    attention = [layer for layer in weights.layers if layer.kind != "recurrent"]
    return ToyState(
        keys=[np.full((context, WIDTH), np.nan, dtype=np.float32) for _ in attention],
        values=[np.full((context, WIDTH), np.nan, dtype=np.float32) for _ in attention],
        recurrent=[
            np.zeros(STATE_FLOATS, dtype=np.float32) for _ in range(len(weights.layers) - len(attention))
        ],
    )


def read_token(weights: ToyWeights, state: ToyState, token: int, window: int) -> Floats:
    """Reads one token into `state`; returns the last layer's output, shape (WIDTH,)."""
    x: Floats = weights.embedding[token].copy()
    attention = recurrent = 0
    for layer in weights.layers:
        if layer.kind == "recurrent":
            mixed = _recur(layer, state.recurrent[recurrent], _norm(x))
            recurrent += 1
        else:
            first = max(0, state.position - window) if layer.kind == "window" else 0
            rows = (state.keys[attention], state.values[attention])
            mixed = _attend(weights, layer, rows, range(first, state.position + 1), _norm(x))
            attention += 1
        x = x + _multiply(layer.out, mixed)
        x = x + _multiply(layer.down, np.maximum(_multiply(layer.up, _norm(x)), np.float32(0)))
    state.position += 1
    return x


def next_token_logits(weights: ToyWeights, x: Floats) -> Floats:
    """Scores of the token after the one whose output `x` is, shape (vocabulary,)."""
    return _multiply(weights.head, _norm(x)) + weights.bias


def drop_old_rows(weights: ToyWeights, state: ToyState, window: int) -> None:
    """Overwrites with NaN the windowed rows that no later token may see."""
    start = max(0, state.position - window)
    attention = [layer.kind for layer in weights.layers if layer.kind != "recurrent"]
    if "window" not in attention or start <= state.window_start:
        return
    for kind, keys, values in zip(attention, state.keys, state.values, strict=True):
        if kind == "window":
            keys[state.window_start : start] = np.nan
            values[state.window_start : start] = np.nan
    state.window_start = start


def _attend(
    weights: ToyWeights, layer: LayerWeights, rows: tuple[Floats, Floats], visible: range, x: Floats
) -> Floats:
    keys, values = rows
    first, at = visible.start, visible.stop - 1
    mix = _multiply(layer.mix, x)
    turned = _rotate(mix[: 2 * WIDTH].reshape(2 * HEADS, HEAD_WIDTH), weights.cosine[at], weights.sine[at])
    query = turned[:HEADS]
    keys[at] = turned[HEADS:].reshape(WIDTH)
    values[at] = mix[2 * WIDTH :]
    seen = keys[first : at + 1].reshape(-1, HEADS, HEAD_WIDTH)
    scores = np.add.reduce(seen * query, axis=-1)
    weight = np.exp(scores - np.maximum.reduce(scores, axis=0))
    weight /= np.add.reduce(weight, axis=0)
    seen = values[first : at + 1].reshape(-1, HEADS, HEAD_WIDTH)
    mixed: Floats = np.add.reduce(weight[:, :, None] * seen, axis=0).reshape(WIDTH)
    return mixed


def _recur(layer: LayerWeights, state: Floats, x: Floats) -> Floats:
    memory = state[:-WIDTH].reshape(HEADS, HEAD_WIDTH, HEAD_WIDTH)
    last = state[-WIDTH:]
    mixed_in = x * layer.convolution[0] + last * layer.convolution[1]
    last[:] = x
    query, key, value = _multiply(layer.mix, mixed_in).reshape(3, HEADS, HEAD_WIDTH)
    decay = np.float32(1) - np.float32(0.1) / (np.float32(1) + np.exp(-_multiply(layer.decay, x)))
    memory *= decay[:, None, None]
    memory += key[:, :, None] * value[:, None, :]
    return _norm(np.add.reduce(memory * query[:, :, None], axis=1).reshape(WIDTH))


def _rotate(x: Floats, cosine: Floats, sine: Floats) -> Floats:
    half = HEAD_WIDTH // 2
    low, high = x[:, :half], x[:, half:]
    return np.concatenate((low * cosine - high * sine, low * sine + high * cosine), axis=1)


def _multiply(matrix: Floats, x: Floats) -> Floats:
    product: Floats = np.add.reduce(matrix * x, axis=-1)
    return product


def _norm(x: Floats) -> Floats:
    scaled: Floats = x / np.sqrt(np.add.reduce(x * x) / np.float32(WIDTH) + np.float32(1e-6))
    return scaled
