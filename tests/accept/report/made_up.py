"""Results as runs leave them, made up: sound, failing, stopped, empty, hostile."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from headstart.accept.report.results import (
    FORMAT,
    CalibrationEntry,
    CaseEntry,
    GateEntry,
    MachineEntry,
    Results,
    SweepEntry,
    TargetEntry,
    TierEntry,
    VerdictEntry,
)
from headstart.accept.verdict import Figure, Outcome

STARTED = 1_790_000_000.0
SIZES = {"8k": 7_936, "32k": 32_500}
READ_S = 0.0015

GATES = (
    ("preflight", "preflight", "The server, its model and its options are known.", 0.4),
    ("cold", "cold", "A prompt never seen before is read whole, and the server says so.", 60.0),
    (
        "exact_repeat",
        "exact repeat",
        "The same prompt again is not read again and gets the same answer.",
        22.0,
    ),
    ("append", "append", "A longer prompt resumes at the end of the shorter one.", 48.0),
    (
        "middle_edit",
        "middle edit",
        "An edit in the middle keeps what stands before it, and the new text counts.",
        90.0,
    ),
    ("gap_sweep", "gap sweep", "However deep the edit, all before it is kept.", 240.0),
    ("honesty", "honesty", "What the server says it reused is what the clock and its counters say.", 12.0),
    ("truncation", "truncation", "A prompt longer than the context is refused or flagged.", 3.0),
    ("restart", "restart", "After a graceful restart nothing is read again.", 31.0),
    ("crash", "crash", "After SIGKILL what was committed is served.", None),
)


def target(**changes: object) -> TargetEntry:
    made = TargetEntry(
        url="http://127.0.0.1:8080/v1",
        server="llama_server",
        version="b6812",
        model="gemma-3-270m",
        wire="openai_chat",
        context_tokens=40_960,
        slots=1,
        block_tokens=None,
        digest="9f2c41d0" * 8,
        facts={"cache-ram": "8192 MiB", "sliding window": "512 tokens", "checkpoints": "32"},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def machine(**changes: object) -> MachineEntry:
    made = MachineEntry("Linux 6.1", "AMD EPYC", 2, 25_200_000_000, "3.11.9", ("LLAMA_ARG_CTX_SIZE",))
    return replace(made, **changes)  # type: ignore[arg-type]


def calibration() -> CalibrationEntry:
    return CalibrationEntry(0.03, READ_S, 0.045, 0.021, 4.2, 14, "copy", 0.00021, True)


def case(
    number: int,
    gate: str,
    tier: str | None,
    label: str,
    at_s: float,
    *,
    prompt: int | None = 7_936,
    reused: int | None = 0,
    answer: str = "EARLY=4187-QX",
    failure: str | None = None,
    streamed: bool = True,
) -> CaseEntry:
    read = (prompt or 0) - (reused or 0)
    first = 0.03 + max(read, 4) * READ_S
    return CaseEntry(
        id=f"{number:04d}",
        gate=gate,
        tier=tier,
        label=label,
        wire="openai_chat",
        at_s=at_s,
        total_s=first + 0.35,
        first_token_s=first if streamed and failure is None else None,
        prompt_tokens=None if failure else prompt,
        completion_tokens=None if failure else 16,
        reused=None if failure else reused,
        read_by_server=None if failure else float(read),
        reused_by_server=None,
        answer="" if failure else answer,
        answer_sha256=hashlib.sha256(b"" if failure else answer.encode()).hexdigest(),
        finish=None if failure else "length",
        failure=failure,
    )


def cases() -> tuple[CaseEntry, ...]:
    made: list[CaseEntry] = []
    at = 0.5

    def add(gate: str, tier: str | None, label: str, **more: object) -> None:
        nonlocal at
        made.append(case(len(made) + 1, gate, tier, label, at, **more))  # type: ignore[arg-type]
        at += made[-1].total_s + 0.05

    for tier, size in SIZES.items():
        for time in range(3):
            add("cold", tier, f"family {time + 1}, first sight", prompt=size)
        for time in range(3):
            add("exact_repeat", tier, f"time {time + 2}", prompt=size, reused=size - 1)
        add("exact_repeat", tier, "not streamed", prompt=size, reused=size - 1, streamed=False)
        add("middle_edit", tier, "EARLY edited", prompt=size, reused=0)
        add("middle_edit", tier, "the original again", prompt=size, reused=size // 2)
    add("append", "8k", "8k of the family", prompt=7_936)
    add("append", "32k", "32k after 8k", prompt=32_500, reused=7_410)
    for depth in range(1, 13):
        add("gap_sweep", "8k", f"edit at {depth * 620}", reused=(depth * 620) // 1024 * 1024)
    add("honesty", "8k", "no usage field", reused=None)
    add("truncation", None, "context + 1 token", failure="refused: 400: the request exceeds the context size")
    add("restart", "8k", "after the restart", failure="dropped: the connection ended after 0 bytes")
    concurrent = [replace(made[-1], id=f"{900 + n}", gate="honesty", failure=None) for n in range(3)]
    return (*made, *concurrent)


def verdict(
    gate: str,
    outcome: Outcome,
    reason: str,
    tier: str | None = None,
    part: str = "",
    *,
    figures: Mapping[str, Figure] | None = None,
    evidence: tuple[str, ...] = (),
) -> VerdictEntry:
    title = next((title for name, title, _, _ in GATES if name == gate), gate)
    return VerdictEntry(gate, title, tier, part, outcome, reason, figures or {}, evidence)


def verdicts() -> tuple[VerdictEntry, ...]:
    passed, failed = Outcome.PASS, Outcome.FAIL
    made = [verdict("preflight", passed, "llama_server b6812, context 40,960, 1 slot, 512-token window")]
    for tier, size in SIZES.items():
        made += [
            verdict(
                "cold",
                passed,
                f"0 of {size:,} tokens reused at first sight",
                tier,
                figures={"prompt_tokens": size, "reused_tokens": 0, "cold_s": size * READ_S},
                evidence=("0001", "0002", "0003"),
            ),
            verdict(
                "exact_repeat",
                passed,
                f"1 of {size:,} tokens read, same answer (log-probabilities 0.0002 apart)",
                tier,
                "streamed",
                figures={"gap_tokens": 0, "uncached_tokens": 1, "warm_s": 0.084, "score_difference": 0.0002},
                evidence=("0004", "0005", "0006"),
            ),
            verdict(
                "exact_repeat",
                passed,
                "the same without streaming",
                tier,
                "not streamed",
                figures={"gap_tokens": 0, "uncached_tokens": 1},
                evidence=("0007",),
            ),
            verdict(
                "middle_edit",
                failed,
                f"the prompts part at {size // 2:,}, 0 tokens were restored: all before the edit "
                "were read again",
                tier,
                "edited",
                figures={
                    "divergence_tokens": size // 2,
                    "gap_tokens": size // 2,
                    "lost_s": size / 2 * READ_S,
                },
                evidence=("0008",),
            ),
        ]
    return (
        *made,
        verdict(
            "append",
            passed,
            "32k resumed at 7,410 of 7,936 shared tokens, 526 read again, 512 + 14 allowed",
            "32k",
            "",
            figures={"gap_tokens": 526, "allowance_tokens": 526},
            evidence=("0020",),
        ),
        verdict(
            "gap_sweep",
            failed,
            "restores to multiples of 1024: up to 1,004 tokens and 1.5 s lost a turn",
            "8k",
            "",
            figures={"step_tokens": 1024, "largest_gap_tokens": 1004, "allowance_tokens": 512, "lost_s": 1.5},
            evidence=("0021",),
        ),
        verdict(
            "honesty",
            Outcome.INCONCLUSIVE,
            "one of 3 replies had no cached_tokens: unknown is neither 0 nor a number",
            None,
            "streamed",
            figures={"replies": 3, "without_field": 1},
            evidence=("0033",),
        ),
        verdict(
            "truncation",
            passed,
            "refused with 400 that names both numbers",
            None,
            "",
            figures={"status": 400},
            evidence=("0034",),
        ),
        verdict("restart", failed, "no reply after the restart: the connection ended after 0 bytes", "8k"),
        verdict("crash", Outcome.UNSUPPORTED, "needs a server of its own to kill: --spawn 'COMMAND'"),
    )


def sweep() -> tuple[SweepEntry, ...]:
    made = []
    for depth in (
        511,
        512,
        513,
        1023,
        1024,
        1025,
        2047,
        2048,
        2049,
        3000,
        4095,
        4096,
        4097,
        5200,
        6143,
        6144,
        7000,
        7500,
    ):
        restored = depth // 1024 * 1024
        made.append(SweepEntry(depth, depth, restored, depth - restored, (7_936 - restored) * READ_S, "0021"))
    return (*made, SweepEntry(7600, 7640, None, None, 0.4, "0022"))


def failing() -> Results:
    """llama-server with three kinds of failure, everything else known."""
    started = 0.5
    gates = []
    for name, title, shows, took in GATES:
        gates.append(GateEntry(name, title, shows, took, None if took is None else started))
        started += took or 0.0
    tiers = [
        TierEntry(
            name,
            8192 if name == "8k" else 32_768,
            size,
            None,
            tuple(size * READ_S * factor for factor in (0.97, 1.0, 1.08)),
            (0.081, 0.084, 0.133),
            (size - 1, size - 1, None),
            (size * READ_S * 1.02,) if name == "8k" else (),
        )
        for name, size in SIZES.items()
    ]
    tiers.append(TierEntry("128k", 131_072, None, "131,072 tokens do not fit into a context of 40,960"))
    return Results(
        format=FORMAT,
        tool_version="0.1.0",
        started=STARTED,
        took_s=507.4,
        complete=True,
        salt="k3v9-2f7a",
        target=target(),
        machine=machine(),
        calibration=calibration(),
        tiers=tuple(tiers),
        gates=tuple(gates),
        verdicts=verdicts(),
        cases=cases(),
        sweep=sweep(),
        sweep_words="restores to multiples of 1024",
        notes=("--model-dir was given: 3 files hashed",),
    )


def sound() -> Results:
    """headstart, nothing failed, gap 0 everywhere."""
    whole = failing()
    kept = [v for v in whole.verdicts if v.outcome is not Outcome.FAIL]
    kept.append(
        verdict(
            "gap_sweep",
            Outcome.PASS,
            "gap 0 at 18 depths",
            "8k",
            "",
            figures={"step_tokens": 1, "largest_gap_tokens": 0, "allowance_tokens": 1, "lost_s": 0.0},
            evidence=("0021",),
        )
    )
    exact = tuple(
        replace(point, restored=point.divergence_low, gap=0)
        for point in whole.sweep
        if point.restored is not None
    )
    return replace(
        whole,
        target=target(server="headstart", version="0.1.0", block_tokens=1),
        verdicts=tuple(kept),
        cases=tuple(c for c in whole.cases if c.failure is None),
        sweep=exact,
        sweep_words="restores to any token",
    )


def stopped() -> Results:
    """Ctrl-C during the fourth gate."""
    whole = failing()
    gates = [g if at < 4 else replace(g, took_s=None, started_s=None) for at, g in enumerate(whole.gates)]
    reached = {gate.name for gate in gates[:3]}
    return replace(
        whole,
        complete=False,
        took_s=71.0,
        gates=tuple(gates),
        sweep=(),
        sweep_words=None,
        verdicts=tuple(v for v in whole.verdicts if v.gate in reached),
        cases=whole.cases[:11],
    )


def empty() -> Results:
    """A server that never answered: no gate, no exchange, nothing measured."""
    return Results(
        format=FORMAT,
        tool_version="0.1.0",
        started=STARTED,
        took_s=0.0,
        complete=False,
        salt="",
        target=TargetEntry(
            "http://127.0.0.1:1/v1", "generic", None, None, "openai_chat", None, None, None, None, {}
        ),
        machine=machine(memory_bytes=None, variables=()),
        calibration=None,
    )


def untimed() -> Results:
    """Replies that are not streamed from a server that tells nothing: no times, no counts."""
    whole = failing()
    blind = [
        replace(c, first_token_s=None, reused=None, read_by_server=None, prompt_tokens=None)
        for c in whole.cases
    ]
    return replace(
        whole,
        cases=tuple(blind),
        calibration=None,
        tiers=tuple(
            replace(t, cold_s=(), warm_s=(), warm_reused=(), off_s=(), prompt_tokens=None)
            for t in whole.tiers
        ),
        sweep=tuple(replace(p, restored=None, gap=None) for p in whole.sweep),
    )


NASTY = "<script>alert(1)</script>\x1b[31m\u202egnp.exe\n</svg>]]>&amp;\x00\ud800{{7*7}}'\"日本語 🧑‍🚀 é"


def hostile() -> Results:
    """Every text that can come from a server is an attack, in several scripts, and very long."""
    whole = failing()
    long = NASTY + "wörterohneende" * 400
    return replace(
        whole,
        salt=NASTY,
        sweep_words=NASTY,
        notes=(long,),
        target=target(server=NASTY, version=NASTY, model=NASTY, url="http://x/" + NASTY, facts={NASTY: long}),
        tiers=tuple(replace(t, skipped=NASTY) if t.skipped else t for t in whole.tiers),
        cases=tuple(
            replace(c, label=NASTY, answer=NASTY, failure=NASTY if c.failure else None, wire=NASTY)
            for c in whole.cases
        ),
        verdicts=(
            *whole.verdicts,
            *(
                verdict(
                    "cold",
                    outcome,
                    long,
                    "8k",
                    NASTY,
                    figures={NASTY: NASTY, "x_tokens": None},
                    evidence=(NASTY,),
                )
                for outcome in Outcome
            ),
        ),
        calibration=replace(calibration(), question=NASTY),
        machine=machine(processor=NASTY, variables=(NASTY,)),
    )


ALL = {
    "failing": failing,
    "sound": sound,
    "stopped": stopped,
    "empty": empty,
    "untimed": untimed,
    "hostile": hostile,
}
