"""From settings to a server that answers: socket, engine, scheduler, application, event loop."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from fastapi import FastAPI

from headstart import __version__
from headstart.api.app import create_app
from headstart.api.metrics import Observed, ServerMetrics
from headstart.chat.choices import ChatChoices
from headstart.chat.replies.syntax import syntax_of
from headstart.chat.template import ChatTemplate
from headstart.cli.describe import (
    describe_adapters,
    describe_cache,
    describe_model,
    describe_probe,
    describe_ssd,
    served_name,
)
from headstart.cli.engines import follows_another_rank, load_draft_engine, load_engine
from headstart.cli.http_server import HttpServer
from headstart.cli.listen import open_socket, url_of
from headstart.cli.stopping import stoppable
from headstart.cli.storage import close_tier, open_tier, take_files
from headstart.cli.terminal import Terminal
from headstart.config import Settings
from headstart.engines.base import Engine
from headstart.engines.spelling import spelled
from headstart.errors import ConfigError, ModelError
from headstart.prefix.ssd_tier import SsdTier
from headstart.serving.constraint import ConstraintCompiler
from headstart.serving.models import ServedModel
from headstart.serving.scheduler import Scheduler
from headstart.serving.settings import SchedulerSettings
from headstart.serving.speculation import Speculate


def serve(settings: Settings, terminal: Terminal, scheduling: type[Scheduler] = Scheduler) -> int:
    """Serves until SIGINT or SIGTERM; answers with the exit status. Raises HeadstartError.

    `scheduling`: the scheduler to serve with, the usual one unless replies are to be given.
    """
    if follows_another_rank(settings, terminal.progress):
        return 0
    with stoppable(), open_socket(settings.host, settings.port) as listener, ExitStack() as leaving:
        files = take_files(settings)
        terminal.step(f"headstart {__version__}: loading {settings.model}")
        started_s = time.perf_counter()
        engine = load_engine(settings, terminal.progress)
        leaving.callback(engine.shutdown)
        load_s = time.perf_counter() - started_s
        drafts = load_draft_engine(settings, terminal)
        if drafts is not None:
            leaving.callback(drafts.shutdown)
        ssd = None if files is None else open_tier(settings, engine.layout, files, terminal)
        scheduler, app = assemble(settings, engine, load_s, ssd, drafts, scheduling=scheduling)
        scheduler.start()
        leaving.callback(_stop, scheduler, ssd, terminal)
        server = HttpServer(
            app, scheduler, access_log=settings.log_level == "debug", grace_s=settings.grace_s
        )
        try:
            _announce(settings, engine, ssd, listener, load_s=load_s, terminal=terminal)
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn raises the signal again once it has stopped
            pass
    terminal.step("stopped")
    return 0


def _stop(scheduler: Scheduler, ssd: SsdTier | None, terminal: Terminal) -> None:
    """Ends the engine thread, then writes what it has left for the disk."""
    before = None if ssd is None else ssd.statistics()
    scheduler.stop()
    if ssd is not None and before is not None:
        close_tier(ssd, before, terminal)


def assemble(
    settings: Settings,
    engine: Engine,
    load_s: float,
    ssd: SsdTier | None = None,
    draft_engine: Engine | None = None,
    *,
    scheduling: type[Scheduler] = Scheduler,
) -> tuple[Scheduler, FastAPI]:
    """Scheduler, not started yet, and application over a loaded engine."""
    compiler = ConstraintCompiler(
        engine.vocabulary,
        engine.layout.vocab_size,
        lambda text: engine.tokenize(text, special=False, add_bos=False).tolist(),
    )
    scheduler = scheduling(engine, scheduler_settings(settings), compiler, ssd, draft_engine)
    metrics = ServerMetrics(scheduler.snapshot)
    served = ServedModel(
        name=served_name(settings, engine.facts),
        engine_facts=engine.facts,
        layout=engine.layout,
        vocabulary=engine.vocabulary,
        tokenize=engine.tokenize,
        chat=_choices(settings),
        template=chat_template(settings, engine),
        scheduler=Observed(scheduler, metrics.observe),
        constraints=compiler,
        created=int(time.time()),
        speculate=settings.speculate,
    )
    return scheduler, create_app(served, settings, scheduler=scheduler, metrics=metrics)


def scheduler_settings(settings: Settings) -> SchedulerSettings:
    """The part of `settings` that the scheduler works by."""
    return SchedulerSettings(
        max_concurrent_requests=settings.max_concurrent_requests,
        queue_limit=settings.queue_limit,
        prefill_chunk_tokens=settings.prefill_chunk,
        cache_enabled=settings.cache,
        ram_cache_bytes=settings.ram_cache_bytes,
        block_tokens=settings.block_size,
        checkpoint_interval_tokens=settings.checkpoint_interval,
        reproducible=settings.reproducible,
        speculate=Speculate(settings.speculate),
        draft_tokens=settings.draft_tokens,
    )


def _choices(settings: Settings) -> ChatChoices:
    """What was decided about chats. Raises ConfigError for formats there are none of."""
    syntax_of("", tools=settings.tool_parser, reasoning=settings.reasoning_parser)
    return ChatChoices(
        settings.tool_parser,
        settings.reasoning_parser,
        {"on": True, "off": False}.get(settings.preserve_thinking),
        tools_as_sent=settings.tool_order == "as-sent",
        literal=settings.history == "literal",
    )


def chat_template(settings: Settings, engine: Engine) -> ChatTemplate | None:
    """The template to render chats with: the one given, else the model's own, else None.

    Raises ConfigError where the given one cannot be read or compiled, ModelError for the model's.
    """
    given = settings.chat_template
    source = engine.facts.chat_template if given is None else _template_source(given)
    if source is None:
        return None
    vocabulary = engine.vocabulary
    try:
        return ChatTemplate(
            source, bos=spelled(vocabulary, vocabulary.bos), eos=spelled(vocabulary, vocabulary.eos)
        )
    except ModelError as problem:
        if given is not None:
            raise ConfigError(f"--chat-template: {problem}") from None
        raise ModelError(f"{problem}; give another with --chat-template FILE") from None


def _template_source(given: str) -> str:
    if "{{" in given or "{%" in given:
        return given
    try:
        return Path(given).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"--chat-template {given}: cannot be read: {problem}") from None


def _announce(
    settings: Settings,
    engine: Engine,
    ssd: SsdTier | None,
    listener: socket.socket,
    *,
    load_s: float,
    terminal: Terminal,
) -> None:
    terminal.fact("model", describe_model(settings, engine, load_s))
    if engine.facts.adapters:
        terminal.fact("lora", describe_adapters(engine.facts))
    terminal.fact("cache", describe_cache(settings, engine))
    if settings.cache:
        terminal.fact("ssd", describe_ssd(ssd))
    terminal.fact("probe", describe_probe(engine.facts))
    for note in engine.facts.notes:
        terminal.fact("note", note)
    terminal.ready(f"ready   {url_of(listener)}/v1")
