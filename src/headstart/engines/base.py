"""The engine port: all that headstart asks of whatever runs the model.

An engine knows nothing of keys, tiers or policies. All calls come from one thread.
Positions are counts: a sequence at position p holds the state of tokens 0..p-1, and the next
token it reads is token p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

from headstart.prefix.block import RowBytes, StateLayout, TokenRun

SeqId = NewType("SeqId", int)
"""A live sequence in an engine. Never reused within one engine."""

Logits = npt.NDArray[np.float32]
"""Next-token scores, shape (vocab_size,) or, for several tokens of a step, (tokens, vocab_size); owned
by the receiver."""


@dataclass(frozen=True)
class Step:
    """Some tokens for one sequence to read in one `forward` call.

    `tokens` continue the sequence at its present position. `wants_logits`: after how many
    of the last of them scores are asked for. True is 1: the answer is one row, without an axis for it.
    Most engines give one only; `EngineFacts.step_scores` says how many. `greedy`: unless the reply ends,
    the token with the highest score comes next, so an engine may begin to read it.
    """

    seq: SeqId
    tokens: TokenRun
    wants_logits: int
    greedy: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """What text work needs to know of a model's tokens.

    `pieces[t]` are the bytes token t stands for in text; control tokens have their spelled form,
    such as b"<|im_end|>", and are listed in `control`. `end_of_generation` stops a reply.
    """

    pieces: Sequence[bytes]
    control: frozenset[int]
    end_of_generation: frozenset[int]
    bos: int | None
    eos: int | None
    adds_bos: bool


@dataclass(frozen=True)
class AdapterFacts:
    """An adapter applied to the model: its file's name, the digest of its content, its scale."""

    name: str
    digest: str
    scale: float


@dataclass(frozen=True)
class EngineFacts:
    """What was found out about this model on this machine when it was loaded, and is stated in
    `/v1/models`.

    `state_proved`: a probe cut rows, put them back and compared logits. False means the engine
    fell back to whole-sequence snapshots. `exact_repeat` and `restore_equals_cold`: the probe's
    logits were bit-equal (DESIGN invariant 16). `notes` say what to expect where they were not.
    `step_scores`: the most scores a Step may ask for.
    `parts` names what makes state reusable (for the cache namespace): weights digest,
    architecture, adapters, KV types, rope and context options, engine and state version.
    """

    engine: str
    model_name: str
    architecture: str
    parameters: int
    state_proved: bool
    exact_repeat: bool
    restore_equals_cold: bool
    parts: Mapping[str, str]
    chat_template: str | None
    notes: tuple[str, ...] = field(default=())
    adapters: tuple[AdapterFacts, ...] = ()
    step_scores: int = 1


class Engine(Protocol):
    """A loaded model with room for `max_sequences` live sequences."""

    layout: StateLayout
    vocabulary: Vocabulary
    facts: EngineFacts
    max_sequences: int
    batches_sequences: bool
    """Whether sequences of one forward may change each other's last bits."""
    shares_rows: bool
    """Whether `fork` shares rows without copying; where not, forks are restores from RAM."""

    @property
    def max_step_tokens(self) -> int:
        """Most tokens one Step may carry: larger ones would lose window rows before they are copied. May
        become fewer while memory is short; what was asked for before that is still read."""
        ...

    def tokenize(self, text: str, *, special: bool, add_bos: bool) -> TokenRun:
        """Token ids of `text`. `special`: spelled control tokens become control tokens."""
        ...

    def open(self) -> SeqId:
        """A new empty sequence. Raises EngineFull when `max_sequences` are open."""
        ...

    def fork(
        self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None
    ) -> SeqId:
        """A new sequence that stands at `position` of `seq`, which goes on unchanged.

        Arguments as for `cut`. Only where `shares_rows`. Raises EngineFull.
        """
        ...

    def cut(self, seq: SeqId, position: int, window_rows: RowBytes | None, checkpoint: bytes | None) -> None:
        """Takes `seq` back to `position`, which is at most where it stands.

        `window_rows`: rows max(0, position - window_tokens) .. position, needed where the layout
        has windowed planes and `window_start(seq)` lies above the first of them.
        `checkpoint`: the recurrent state at `position`, needed where the layout is recurrent
        and position is not where the sequence stands.
        Raises EngineError: `seq` is then unchanged, or closed (see `is_open`), never half cut.
        """
        ...

    def forward(self, steps: Sequence[Step]) -> list[Logits | None]:
        """Reads the tokens of every step; the answer has one entry a step.

        Raises EngineFull (no state has changed for any step) when rows run out of room.
        """
        ...

    def is_open(self, seq: SeqId) -> bool:
        """Whether `seq` is a live sequence."""
        ...

    def position(self, seq: SeqId) -> int:
        """How many tokens `seq` has read."""
        ...

    def window_start(self, seq: SeqId) -> int:
        """Lowest token whose windowed rows are still in the engine; 0 without windowed planes."""
        ...

    def rows(self, seq: SeqId, start: int, stop: int) -> RowBytes:
        """Copies out rows start..stop. With windowed planes start must be >= window_start(seq)."""
        ...

    def checkpoint(self, seq: SeqId) -> bytes:
        """Copies out the recurrent state at the present position (recurrent layouts only)."""
        ...

    def restore(self, rows: Sequence[RowBytes], checkpoint: bytes | None, position: int) -> SeqId:
        """A new sequence at `position` from the rows of tokens 0..position.

        Rows of windowed planes before the last window are not looked at. Raises EngineFull, or
        EngineError when the state was refused, in which case no sequence is left open.
        """
        ...

    def close(self, seq: SeqId) -> None:
        """Frees what `seq` holds."""
        ...

    def shutdown(self) -> None:
        """Frees the model. No call may follow."""
        ...
