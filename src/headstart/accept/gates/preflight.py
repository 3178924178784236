"""Preflight: what is judged, and whether it is what was meant."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from headstart.accept.gates import Need
from headstart.accept.hits import joined
from headstart.accept.process import variable_names
from headstart.accept.servers import Facts
from headstart.accept.session import Session
from headstart.accept.verdict import Figure, Outcome, Verdict

_WEIGHTS = (".gguf", ".safetensors", ".bin", ".npz")
_PIECE = 8 << 20


@dataclass(frozen=True)
class Preflight:
    name: str = "preflight"
    title: str = "preflight"
    shows: str = (
        "The server is the one that was meant: version, model, context, slots and options are on record."
    )
    needs: frozenset[Need] = frozenset()

    def run(self, session: Session) -> list[Verdict]:
        facts, calibration = session.facts, session.calibration
        verdicts = [stated(facts, session.options.model, variable_names())]
        for tier in session.options.tiers:
            if tier not in session.tiers:
                words = f"needs {tier.tokens} tokens; the server's context holds {facts.context_tokens}"
                verdicts.append(Verdict(self.name, Outcome.UNSUPPORTED, words, tier.name))
        if session.options.model_dir is not None:
            session.say("hashing the model's files")
            digest = directory_digest(Path(session.options.model_dir))
            verdicts.append(binding(digest, session.options.model_dir, facts))
        kind = calibration.question
        words = "answers are judged by " + joined(
            [
                f"log-probabilities (floor {calibration.floor.score:.2g})"
                if calibration.floor.score is not None
                else "text",
                f"planted facts ({kind.value})" if kind else "no facts: the model answers none cold",
            ]
        ).replace("; ", " and ")
        outcome = Outcome.PASS if kind or calibration.floor.score is not None else Outcome.INCONCLUSIVE
        verdicts.append(Verdict(self.name, outcome, words, part="judges"))
        if calibration.problems:
            words = f"what could not be measured before the gates: {joined(calibration.problems)}"
            verdicts.append(Verdict(self.name, Outcome.INCONCLUSIVE, words, part="calibration"))
        return verdicts


def stated(facts: Facts, asked: str | None, variables: tuple[str, ...]) -> Verdict:
    """What the server says it is, against the model that was asked for."""
    figures: dict[str, Figure] = {
        "context_tokens": facts.context_tokens,
        "slots": facts.slots,
        "block_tokens": facts.block_tokens,
        "variables": " ".join(variables),
    }
    if asked is not None and facts.models and asked not in facts.models:
        words = f"the server does not list the model {asked!r}; it lists {', '.join(facts.models[:5])}"
        return Verdict("preflight", Outcome.FAIL, words, figures=figures)
    words = joined(
        [
            f"{facts.server} {facts.version or ''}".strip(),
            f"model {facts.model or asked or 'not named'}",
            f"context {facts.context_tokens or 'not stated'}",
            f"slots {facts.slots}" if facts.slots else "",
            f"restores to any token of a block of {facts.block_tokens}" if facts.block_tokens else "",
            f"set here: {', '.join(variables)}" if variables else "",
        ]
    )
    return Verdict("preflight", Outcome.PASS, words, figures=figures)


def directory_digest(path: Path) -> str | None:
    """SHA-256 over the names and contents of the weights in `path` (a folder or one file); None where
    there are none."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in _WEIGHTS)
    if not files:
        return None
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.name.encode() + b"\0")
        with file.open("rb") as data:
            while piece := data.read(_PIECE):
                whole.update(piece)
    return whole.hexdigest()


def binding(digest: str | None, given: str, facts: Facts) -> Verdict:
    """Whether the server runs the files that were given."""
    if digest is None:
        return Verdict("preflight", Outcome.FAIL, f"no weights found in {given}", part="model files")
    figures: dict[str, Figure] = {"sha256": digest}
    if facts.model_path is None:
        words = f"files hashed ({digest[:12]}); the server does not say which file it loaded"
        return Verdict("preflight", Outcome.PASS, words, part="model files", figures=figures)
    own, theirs = Path(given).resolve(), Path(facts.model_path).resolve()
    if theirs == own or own in theirs.parents:
        words = f"the server loaded these files ({digest[:12]})"
        return Verdict("preflight", Outcome.PASS, words, part="model files", figures=figures)
    words = f"the server says it loaded {facts.model_path}, not {given}"
    return Verdict("preflight", Outcome.FAIL, words, part="model files", figures=figures)


GATE = Preflight()
