"""One run of `headstart accept`: from the flags to a results directory."""

from __future__ import annotations

import argparse
import secrets
import time
from pathlib import Path

from headstart.accept import gates, servers, wires
from headstart.accept.artifacts import Folder, Redaction
from headstart.accept.calibrate import CannotJudge, calibrate
from headstart.accept.endpoint import Endpoint
from headstart.accept.fixtures import Texts, parse_tiers
from headstart.accept.http import SmallRequests, server_root
from headstart.accept.live import LiveSession
from headstart.accept.opening import open_target
from headstart.accept.process import CacheOff, RestartCommand, Spawned
from headstart.accept.report import files
from headstart.accept.report.build import Run
from headstart.accept.report.results import Results
from headstart.accept.runner import Means, Runner, chosen
from headstart.accept.session import Options
from headstart.accept.verdict import Outcome, Verdict, exit_status
from headstart.cli.accept_table import Show, sigterm_as_ctrl_c
from headstart.errors import ConfigError
from headstart.options import suggestion


def _names(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _options(flags: argparse.Namespace) -> Options:
    try:
        tiers = parse_tiers(flags.tiers)
    except ValueError as error:
        raise ConfigError(f"--tiers: {error}") from None
    if flags.server != "auto" and flags.server not in servers.available():
        raise ConfigError(f"--server: there is no {flags.server!r}{suggestion(flags.server, servers.NAMES)}")
    if flags.wire is not None and flags.wire not in wires.NAMES:
        raise ConfigError(f"--wire: there is no {flags.wire!r}{suggestion(flags.wire, wires.NAMES)}")
    return Options(
        tiers=tiers,
        model=flags.model,
        samples=max(1, flags.samples),
        patience_s=flags.patience,
        tolerance=flags.tolerance,
        churn_prompts=max(1, flags.churn_prompts),
        sweep_points=max(1, flags.sweep_points),
        other_model=flags.other_model,
        model_dir=flags.model_dir,
    )


def judge(flags: argparse.Namespace) -> int:
    """Exit status 0: nothing failed and something was judged. Raises CannotJudge where no server was
    reached and there is nothing to keep."""
    options = _options(flags)
    try:
        wanted = chosen(_names(flags.only), _names(flags.skip))
    except KeyError as error:
        name = str(error.args[0])
        raise ConfigError(f"there is no gate {name!r}{suggestion(name, gates.NAMES)}") from None
    try:
        root = server_root(flags.words[0])
    except ValueError as error:
        raise ConfigError(str(error)) from None
    redaction = Redaction([flags.api_key])
    folder = Folder(Path(flags.out or time.strftime("accept-%Y%m%d-%H%M%S")), redaction)
    show = Show(quiet=flags.json)
    salt = flags.salt or secrets.token_hex(4)
    judged = Run(url=root, salt=salt, started=time.time())
    runner = Runner(
        judged,
        wanted,
        Means(control=bool(flags.control_cmd or flags.control_url)),
        show=show.verdict,
        begin=show.gate,
        save=folder.results,
    )
    with sigterm_as_ctrl_c():
        results = _with_server(flags, options, runner=runner, judged=judged, folder=folder, show=show)
    for name, text in files.reports(results).items():
        folder.file(name, text)
    if flags.json:
        print(files.as_json(results), end="")
    else:
        show.table(results)
        show.line(f"results: {folder.path}")
    return exit_status(judged.verdicts) if results.complete else 1


def _with_server(
    flags: argparse.Namespace,
    options: Options,
    *,
    runner: Runner,
    judged: Run,
    folder: Folder,
    show: Show,
) -> Results:
    endpoint = Endpoint(judged.url, flags.api_key, options.patience_s)
    http = SmallRequests(judged.url, flags.api_key)

    def ready() -> bool:
        return any(0 < http.get(path).status < 500 for path in ("/v1/models", "/health"))

    control: Spawned | RestartCommand | None = None
    if flags.spawn:
        control = Spawned(flags.spawn, ready, folder.path / "server.log")
    elif flags.restart_cmd:
        control = RestartCommand(flags.restart_cmd, ready)
    baseline = _cache_off(flags, control, folder)
    try:
        if isinstance(control, Spawned):
            show.line("starting the server")
            folder.make()
            failed = control.start()
            if failed is not None:
                raise CannotJudge(failed)
        target = open_target(
            endpoint, http, server=flags.server, wire=flags.wire, model=flags.model, say=show.line
        )
        session = LiveSession(
            target,
            options,
            Texts(judged.salt),
            control=control,
            baseline=baseline,
            keep=folder.case,
            progress=show.line,
        )
        judged.session = session
        calibrate(session)
        return runner.run(session)
    except CannotJudge as error:
        if not folder.made:
            raise
        judged.verdicts.append(Verdict("preflight", Outcome.FAIL, str(error)))
        return runner.results(False)
    except KeyboardInterrupt:
        if not folder.made:
            raise
        judged.notes.append("stopped by the person who ran it, before the first gate")
        return runner.results(False)
    finally:
        if baseline is not None:
            baseline.stop()
        if isinstance(control, Spawned):
            control.stop()
        endpoint.close()
        http.close()


def _cache_off(
    flags: argparse.Namespace, control: Spawned | RestartCommand | None, folder: Folder
) -> CacheOff | None:
    """The control server, None where none was given. Raises ConfigError where it has no address."""
    if not flags.control_cmd and not flags.control_url:
        return None
    try:
        url = server_root(flags.control_url or flags.words[0])
    except ValueError as error:
        raise ConfigError(f"--control-url: {error}") from None
    if not flags.control_cmd:
        return CacheOff(url, None)
    instead_of = None
    if not flags.control_url:
        if not isinstance(control, Spawned):
            raise ConfigError("--control-cmd needs --control-url, or --spawn to take the place of")
        instead_of = control
    http = SmallRequests(url, flags.api_key)

    def ready() -> bool:
        return any(0 < http.get(path).status < 500 for path in ("/v1/models", "/health"))

    return CacheOff(url, Spawned(flags.control_cmd, ready, folder.path / "control.log"), instead_of)
