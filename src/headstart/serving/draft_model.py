"""Drafts from a second, smaller model with the same vocabulary."""

from __future__ import annotations

import logging

import numpy as np

from headstart.engines.base import Engine, Logits, SeqId, Step
from headstart.errors import ConfigError, EngineError
from headstart.prefix.tokens import TokenRun, common_prefix
from headstart.serving.anchor import Anchor

log = logging.getLogger(__name__)


def check_vocabulary(target: Engine, draft: Engine) -> None:
    """Raises ConfigError, naming the first difference, unless both models mean the same by every token."""
    ours, theirs = target.vocabulary.pieces, draft.vocabulary.pieces
    for token, (piece, other) in enumerate(zip(ours, theirs, strict=False)):
        if piece != other:
            raise ConfigError(
                f"--draft-model {draft.facts.model_name}: its token {token} is {other!r}, that of "
                f"{target.facts.model_name} is {piece!r}; a draft model needs the same vocabulary"
            )
    if len(ours) != len(theirs):
        raise ConfigError(
            f"--draft-model {draft.facts.model_name}: it has {len(theirs)} tokens, "
            f"{target.facts.model_name} has {len(ours)}; a draft model needs the same vocabulary"
        )


class ModelDrafter:
    """One request's sequence in the draft model, kept in step with the reply. Its state is never stored.

    The prompt is read one chunk a call, so that other requests never wait for all of it; until then
    nothing is proposed. A draft model that fails costs the drafts, never the reply.
    """

    def __init__(self, engine: Engine, vocab_size: int) -> None:
        self._engine = engine
        self._known = min(vocab_size, len(engine.vocabulary.pieces))
        self._seq: SeqId | None = None
        self._read = np.empty(0, dtype=np.int32)
        self._anchor: Anchor | None = None
        self._last: tuple[int, TokenRun] | None = None
        self._failed = False

    def propose(self, tokens: TokenRun, most: int) -> TokenRun:
        """Up to `most` tokens the draft model would write after `tokens`."""
        empty = tokens[:0].copy()
        if self._last is not None and self._last[0] == len(tokens):  # the step was not made
            return self._last[1][:most]
        if self._failed or len(tokens) + most > self._engine.layout.context_tokens:
            return empty
        try:
            draft = self._propose(tokens, most)
            self._last = (len(tokens), draft) if len(draft) else None
            return draft
        except EngineError as error:
            log.warning("no more drafts for this request: %s", error)
            self._failed = True
            self.close()
            return empty

    def _propose(self, tokens: TokenRun, most: int) -> TokenRun:
        if self._seq is None:
            self._seq = self._engine.open()
        seq = self._seq
        same = common_prefix(self._read, tokens)
        if same < len(self._read):
            assert self._anchor is not None
            self._anchor.back(self._engine, seq, same, tokens)
            self._read = tokens[:same].copy()
        logits = self._catch_up(seq, tokens)
        if logits is None:
            return tokens[:0].copy()
        self._anchor = Anchor.take(self._engine, seq)
        draft = [self._likeliest(logits)]
        while len(draft) < most:
            (logits,) = self._engine.forward([Step(seq, np.array(draft[-1:], np.int32), wants_logits=True)])
            assert logits is not None
            draft.append(self._likeliest(logits))
        self._read = np.concatenate([tokens, np.array(draft[:-1], np.int32)]).astype(np.int32)
        return np.array(draft, np.int32)

    def _catch_up(self, seq: SeqId, tokens: TokenRun) -> Logits | None:
        """Reads one chunk; the scores after `tokens` once all of them are read."""
        chunk = tokens[len(self._read) :][: self._engine.max_step_tokens]
        whole = len(self._read) + len(chunk) == len(tokens)
        (logits,) = self._engine.forward([Step(seq, chunk, wants_logits=whole)])
        self._read = tokens[: len(self._read) + len(chunk)].copy()
        return logits

    def _likeliest(self, logits: Logits) -> int:
        return int(logits[: self._known].argmax())

    def close(self) -> None:
        """Frees the sequence."""
        if self._seq is not None and self._engine.is_open(self._seq):
            self._engine.close(self._seq)
        self._seq = None
