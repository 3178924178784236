"""The setting that mends what a server's log shows, for each server that has one."""

from __future__ import annotations

from headstart.blame.finding import Fix
from headstart.blame.log_report import LogReport
from headstart.blame.logs.events import Truncated

AGENT_TOKENS = 65_536
"""A context in which an agent's first request (about 33,000 tokens) leaves room for work."""
MOST_POINTS = 128
LEAST_STEP = 256


def main_server(report: LogReport) -> str:
    """The server whose log it is; of a mixed log the first."""
    return report.servers[0] if report.servers else ""


def gap_fix(report: LogReport) -> Fix:
    """What puts restore points closer to where prompts part."""
    server = main_server(report)
    if server == "llama-server":
        return _llama_gap(report)
    if server == "ollama":
        return Fix(
            "no setting of Ollama moves its restore points: take the newest version, or the GGUF build of "
            "the model in place of the MLX one"
        )
    if server == "lmstudio":
        return Fix(
            "LM Studio has no setting for it: try the model with the other engine (GGUF in place of MLX)"
        )
    if server == "omlx":
        return Fix(
            "oMLX resumes at the end of whole blocks only; what the log calls unavailable was not stored"
        )
    if server == "mlx-lm":
        return Fix(
            "mlx_lm.server reuses nothing of a cache it cannot cut (sliding windows, recurrent layers)"
        )
    return Fix("this server has no setting for where it resumes")


def _llama_gap(report: LogReport) -> Fix:
    longest, step, count = report.totals.longest, LEAST_STEP, 0
    while longest > step * MOST_POINTS:
        step *= 2
    count = max(32, -(-longest // step))
    points = f"--checkpoint-min-step {step} --ctx-checkpoints {count}"
    size = report.points.mib
    memory = f", at {size:.0f} MiB a checkpoint {size * count:,.0f} MiB a slot at most" if size >= 1 else ""
    window, recurrent = report.facts.get("window_tokens", ""), "recurrent" in report.facts
    if window.isdecimal() and int(window) > 1 and not recurrent:
        return Fix("keep all cells of the sliding windows (takes more memory)", "--swa-full")
    if recurrent:
        return Fix(f"recurrent layers resume at checkpoints only: make more of them{memory}", points)
    return Fix(
        "a model with sliding windows needs all cells, one with recurrent layers more checkpoints" + memory,
        f"--swa-full, or {points}",
    )


def never_fix(report: LogReport) -> Fix:
    """What switches reuse on."""
    server = main_server(report)
    if server == "llama-server":
        return Fix(
            'requests must not say "cache_prompt": false; models with sliding windows or recurrent layers '
            "need the flags",
            "--swa-full --ctx-checkpoints 32 --cache-ram 8192",
        )
    if server == "vllm":
        if report.facts.get("prefix_caching") == "off":
            return Fix("prefix caching is off", "--enable-prefix-caching")
        block = report.facts.get("block_tokens")
        of_size = f" of {int(block):,} tokens" if block and block.isdecimal() else ""
        return Fix(
            f"only whole blocks{of_size} that were seen before are reused; a random cache_salt in requests, "
            "or a hybrid model whose blocks end in text that is new each time, gives none"
        )
    if server == "mlx-lm":
        return Fix(
            "mlx_lm.server reuses nothing of a cache it cannot cut (sliding windows, recurrent layers)"
        )
    if server == "lmstudio":
        return Fix("try another version of the engine, or the other engine (GGUF in place of MLX)")
    return Fix("see whether the client changes the beginning of its prompts: headstart watch shows it")


def two_requests_fix(report: LogReport) -> Fix:
    """How to see what changed; and how two conversations keep a slot each."""
    server = main_server(report)
    slots = ""
    if server == "llama-server":
        slots = f" If these are two conversations, give each its slot: -np {_more_slots(report)}."
    return Fix(
        "the log does not say what changed: record the requests, or compare two of them." + slots,
        "headstart watch --upstream URL",
    )


def _more_slots(report: LogReport) -> int:
    slots = report.facts.get("slots", "1")
    return int(slots) + 1 if slots.isdecimal() else 2


def side_fix(report: LogReport) -> Fix:
    """A place for short requests."""
    server = main_server(report)
    if server == "llama-server":
        return Fix(
            "give side requests a slot of their own, and keep what a slot loses in memory",
            f"-np {_more_slots(report)} --cache-ram 8192 --cache-idle-slots",
        )
    if server == "ollama":
        return Fix(
            "send titles and summaries to another model (small_model), or allow two at once",
            "OLLAMA_NUM_PARALLEL=2",
        )
    return Fix(
        "send titles and summaries to another model or server, or switch them off in the agent",
        "DISABLE_NON_ESSENTIAL_MODEL_CALLS=1",
    )


def cache_fix(report: LogReport) -> Fix:
    """More room for what is cached."""
    server = main_server(report)
    if server == "ollama":
        return Fix(
            "Ollama's cache of 8192 MiB a model has no setting: fewer or shorter conversations at a time, or "
            "llama-server itself with a larger one",
            "llama-server --cache-ram 32768",
        )
    if server == "llama-server":
        return Fix("give the cache in memory room for every conversation", f"--cache-ram {_room_mib(report)}")
    return Fix("give this server's cache more room")


def _room_mib(report: LogReport) -> int:
    limits = [float(report.facts.get("cache_limit_mib", "0") or 0), 4096.0]
    if report.fullest and report.fullest.limit_mib:
        limits.append(report.fullest.limit_mib)
    if report.too_large:
        limits.append(2 * report.too_large.mib)
    limits.append(4 * report.largest_evicted_mib)
    needed = 2 * max(limits)
    size = 4096
    while size < min(needed, 1 << 20):
        size *= 2
    return size


def context_fix(report: LogReport, cut: Truncated | None) -> Fix:
    """A context that the longest prompt fits into."""
    server = main_server(report)
    longest = max(report.totals.longest, (cut.prompt_tokens or 0) if cut else 0)
    needed = AGENT_TOKENS
    while needed < longest * 1.25 and needed < 1 << 20:
        needed *= 2
    if server == "ollama":
        return Fix(
            "give the model a context that holds the whole conversation", f"OLLAMA_CONTEXT_LENGTH={needed}"
        )
    if server == "llama-server":
        return Fix("give each slot a context that holds the whole conversation", f"-c {needed} -np 1")
    return Fix(f"give the model a context of {needed:,} tokens or more")


def reload_fix(report: LogReport, differ: bool) -> Fix:
    """One context size, and a model that stays."""
    server = main_server(report)
    if server == "ollama" and differ:
        return Fix(
            "let every program ask for the same context: leave num_ctx out of requests and set it once",
            f"OLLAMA_CONTEXT_LENGTH={max(report.contexts)}",
        )
    if server == "ollama":
        return Fix("keep the model loaded", "OLLAMA_KEEP_ALIVE=-1")
    return Fix("let the server run on with one set of flags; what is cached goes with the process")


def stored_fix(report: LogReport, why: str) -> Fix:
    """What is known about state that was not kept."""
    if "boundary_snapshot_unavailable" in why:
        return Fix("take another version of oMLX: it stored nothing of these requests")
    if "failed to restore cache" in why:
        return Fix("take the newest Ollama, or the GGUF build of the model in place of the MLX one")
    if "cannot be cut" in why:
        return Fix("mlx_lm.server reuses nothing of such a cache: another server, or another model")
    return Fix("see the server's log around that line")
