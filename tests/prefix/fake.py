"""State whose every byte tells which tokens, in which order and namespace, it was made of.

A row at position p is a digest of namespace, plane and tokens 0..p; so is a checkpoint and so are
end logits. Anything off by one, out of order or from a sibling shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from headstart.prefix.block import Checkpoint, Plane, RowBytes, StateLayout
from headstart.prefix.cache import PrefixCache, Restored
from headstart.prefix.holdings import Holdings
from headstart.prefix.plan import LiveView, Plan, PromptHints, StopKind
from headstart.prefix.record import Recorder
from headstart.prefix.tokens import TokenRun, common_prefix, token_run
from headstart.prefix.tree import Mark, Node

BLOCK = 4
VOCAB = 5
MY = b"namespace"
PLANES = (Plane("k", 8), Plane("v", 12))
DENSE = StateLayout(PLANES, checkpoint_bytes=0, context_tokens=4096, vocab_size=VOCAB)
WINDOW = StateLayout(
    (Plane("k", 8), Plane("w", 12, window_tokens=5)),
    checkpoint_bytes=0,
    context_tokens=4096,
    vocab_size=VOCAB,
)
RECURRENT = StateLayout(PLANES, checkpoint_bytes=24, context_tokens=4096, vocab_size=VOCAB)
LAYOUTS = {"dense": DENSE, "window": WINDOW, "recurrent": RECURRENT}
PLENTY = 10_000_000
NO_HINTS = PromptHints()


def run(*ids: int) -> TokenRun:
    return token_run(ids)


def counting(start: int, stop: int) -> TokenRun:
    return np.arange(start, stop, dtype=np.int32)


def glue(*runs: TokenRun) -> TokenRun:
    return np.concatenate(runs).astype(np.int32)


@lru_cache(maxsize=100_000)
def _state(namespace: bytes, tokens: bytes) -> bytes:
    """A digest of `tokens` (int32) and of all before them, in `namespace`."""
    before = _state(namespace, tokens[:-4]) if tokens else b""
    return blake3(before + tokens[-4:] if tokens else namespace).digest()


def _digests(namespace: bytes, tokens: TokenRun, purpose: str) -> list[bytes]:
    data = tokens.tobytes()
    states = (_state(namespace, data[: 4 * (i + 1)]) for i in range(len(tokens)))
    return [blake3(state + purpose.encode()).digest() for state in states]


def rows_of(layout: StateLayout, namespace: bytes, tokens: TokenRun, start: int, stop: int) -> RowBytes:
    """The rows start..stop that a model in `namespace` leaves behind when it reads `tokens`."""
    planes = []
    for plane in layout.planes:
        digests = _digests(namespace, tokens[:stop], plane.name)[start:]
        flat = np.frombuffer(b"".join(d[: plane.row_bytes] for d in digests), np.uint8)
        planes.append(flat.reshape(stop - start, plane.row_bytes).copy())
    return RowBytes(tuple(planes))


def checkpoint_of(namespace: bytes, tokens: TokenRun, position: int) -> Checkpoint:
    return Checkpoint(position, _digests(namespace, tokens[:position], "recurrent")[-1][:24])


def logits_of(namespace: bytes, tokens: TokenRun) -> npt.NDArray[np.float32]:
    digest = _digests(namespace, tokens, "logits")[-1]
    return np.frombuffer(digest[: 4 * VOCAB], np.uint32).astype(np.float32)


def make_cache(layout: StateLayout = DENSE, *, ram_bytes: int = PLENTY, **options: int) -> PrefixCache:
    settings: dict[str, int] = {"block_tokens": BLOCK, "checkpoint_interval": 0, **options}
    return PrefixCache(layout, ram_bytes=ram_bytes, **settings)  # type: ignore[arg-type]


def store(
    cache: PrefixCache,
    tokens: TokenRun,
    *,
    layout: StateLayout = DENSE,
    namespace: bytes = MY,
    chunks: Sequence[int] = (),
    checkpoints: Iterable[int] = (),
    kind: StopKind = StopKind.MESSAGE,
    logits: bool = False,
    canonical: bool = False,
    close: bool = True,
) -> Recorder:
    """Reads `tokens` from zero as a server would: pauses at `checkpoints`, stores, closes."""
    recorder = cache.recorder(namespace, tokens)
    stops = sorted({c for c in checkpoints if recorder.position <= c <= len(tokens)} | {len(tokens)})
    sizes = list(chunks)
    for stop in stops:
        while recorder.position < stop and recorder.active:
            at = recorder.position
            end = min(stop, at + (max(1, sizes.pop(0)) if sizes else stop - at))
            recorder.record(tokens[at:end], rows_of(layout, namespace, tokens, at, end), canonical=canonical)
        if stop in set(checkpoints) and recorder.active:
            recorder.put_checkpoint(checkpoint_of(namespace, tokens, stop), kind)
    if logits and recorder.active:
        recorder.put_logits(logits_of(namespace, tokens))
    if close:
        recorder.close()
    return recorder


def view(
    seq: int, tokens: TokenRun, *, namespace: bytes = MY, window_start: int = 0, busy: bool = False
) -> LiveView:
    return LiveView(seq, namespace, tokens, window_start, busy)


def plan_of(
    cache: PrefixCache,
    prompt: TokenRun,
    *,
    live: Sequence[LiveView] = (),
    namespace: bytes = MY,
    hints: PromptHints = NO_HINTS,
) -> Plan:
    return cache.plan(namespace, prompt, live, hints)


def same_rows(a: RowBytes, b: RowBytes) -> bool:
    return len(a.planes) == len(b.planes) and all(
        x.shape == y.shape and bool((x == y).all()) for x, y in zip(a.planes, b.planes, strict=True)
    )


def check_restored(layout: StateLayout, plan: Plan, answer: object) -> None:
    """Raises AssertionError unless `answer` is exactly the state of the prompt's first tokens."""
    assert isinstance(answer, Restored), f"expected state to resume at {plan.restore_at}, got {answer}"
    prompt, at = plan.prompt, plan.restore_at
    assert answer.position == at <= len(prompt), "resumes at another position than planned"
    assert answer.tier is plan.tier
    if answer.rows and not layout.planes:
        assert not RowBytes.join(answer.rows).planes
    elif answer.rows:
        want = rows_of(layout, plan.namespace, prompt, 0, at)
        assert sum(len(part) for part in answer.rows) == at, "wrong number of rows"
        assert same_rows(RowBytes.join(answer.rows), want), "rows of other tokens"
    else:
        assert plan.live is not None, "no rows"
    if answer.window_rows is not None:
        first = max(0, at - layout.window_tokens)
        want = rows_of(layout, plan.namespace, prompt, first, at)
        assert same_rows(answer.window_rows, want), "window rows of other tokens"
    assert (answer.window_rows is not None) == plan.window_rows_needed
    wants_checkpoint = layout.recurrent and (plan.live is None or plan.checkpoint_needed)
    assert (answer.checkpoint is not None) == wants_checkpoint
    if answer.checkpoint is not None:
        want_state = checkpoint_of(plan.namespace, prompt, at).data
        assert answer.checkpoint == want_state, "checkpoint of other tokens"
    assert (answer.logits is not None) == plan.exact
    if answer.logits is not None:
        assert at == len(prompt)
        assert (answer.logits == logits_of(plan.namespace, prompt)).all(), "logits of another prompt"


def longest_stored(prompt: TokenRun, stored: Iterable[TokenRun]) -> int:
    """The naive answer: the longest common prefix with anything of `stored`."""
    return max((common_prefix(prompt, tokens) for tokens in stored), default=0)


def holdings(cache: PrefixCache) -> Holdings:
    return cache._held


def entries(held: Holdings) -> Iterable[Node | Mark]:
    """Every root, block and mark in the index, by walking it."""
    waiting = list(held.tree.roots.values())
    while waiting:
        node = waiting.pop()
        yield node
        if node.marks is not None:
            yield from node.marks.checkpoints
            yield from node.marks.logits
        children = node.children
        waiting += [] if children is None else [children] if isinstance(children, Node) else children


def check_books(held: Holdings) -> None:
    """Raises AssertionError unless the counted bytes are those of what is held, within the limit."""
    found = list(entries(held))
    assert held.ram.used_bytes == sum(held.ram.counted(entry) for entry in found) + held._reserved
    assert 0 <= held.ram.used_bytes <= held.ram.limit_bytes, "over the limit"
    blocks = [entry for entry in found if isinstance(entry, Node) and entry.level]
    assert held.counts.blocks == len(blocks)
    real = sum(entry.payload.nbytes for entry in blocks if isinstance(entry.payload, RowBytes))
    marks = [entry for entry in found if isinstance(entry, Mark)]
    real += sum(len(mark.payload) for mark in marks if isinstance(mark.payload, bytes))
    assert real <= held.ram.used_bytes
    assert held.counts.checkpoints + held.counts.logits == len(marks)
    for mark in marks:
        node = mark.node
        assert node is not None and not node.removed
        children = node.children
        among = [children] if isinstance(children, Node) else children or []
        assert any(child.tokens.startswith(mark.tail) for child in among), "a mark without its rows"
