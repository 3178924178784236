"""Imports point down, and files stay small: the rules of the layout, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "headstart"
PACKAGE = "headstart"
MAX_LINES = 400

# What each part may import of this package, besides itself. A part is the first name below
# `headstart`; an entry with a dot allows that one module only.
ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "options": frozenset({"errors"}),
    "chat_options": frozenset({"options"}),
    "config": frozenset({"chat_options", "errors", "options"}),
    "prefix": frozenset({"errors"}),
    # `prefix.tokens` comes with `prefix.block`: it names the token runs that blocks are made of.
    "engines": frozenset({"errors", "prefix.block", "prefix.tokens"}),
    "chat": frozenset({"errors", "prefix.plan", "prefix.tokens", "engines.base"}),
    "serving": frozenset({"errors", "chat", "prefix", "engines"}),
    "api": frozenset({"errors", "config", "options", "serving", "chat", "prefix", "engines"}),
    "accept": frozenset({"errors", "config", "options"}),
    "blame": frozenset({"errors", "config", "options", "chat.template", "chat.messages"}),
    "__main__": frozenset({"cli"}),
    # The self-test judges its servers with the harness, as a user would.
    "lab": frozenset(
        {"errors", "config", "options", "accept", "api", "serving", "chat", "prefix", "engines"}
    ),
    "cli": frozenset(
        {
            "errors",
            "config",
            "options",
            "api",
            "accept",
            "blame",
            "lab",
            "serving",
            "chat",
            "prefix",
            "engines",
        }
    ),
}

# An engine knows the port and what engines share, never another engine.
ENGINE = frozenset(
    {
        "errors",
        "prefix.block",
        "prefix.tokens",
        "engines.base",
        "engines.checks",
        "engines.digests",
        "engines.fact_sheet",
        "engines.spelling",
    }
)
ALLOWED_ENGINES = {"engines.llamacpp": ENGINE, "engines.mlx": ENGINE}
# A program of its own that runs the command line's server with another scheduler. Nothing imports it.
PROGRAM = "lab.scripted"
# Packages that may be missing: only their engine imports them, and its options and `packages` do not.
ENGINE_PACKAGES = {"mlx": "engines.mlx", "mlx_lm": "engines.mlx", "llama_cpp": "engines.llamacpp"}
WITHOUT_PACKAGES = ("engines.mlx", "engines.mlx.options", "engines.mlx.packages")


def modules() -> dict[str, Path]:
    """Every module of the package by its name below `headstart` ("prefix.tree"; "" is the package)."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str, text: str, is_package: bool) -> Iterator[str]:
    """Modules of this package that module `name` imports anywhere, function bodies included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head, _, rest = alias.name.partition(".")
                if head == PACKAGE:
                    yield rest
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                own = name.split(".") if name else []
                up = node.level - 1 if is_package else node.level
                base = ".".join([PACKAGE, *own[: len(own) - up], *([base] if base else [])])
            head, _, rest = base.partition(".")
            if head == PACKAGE:
                for alias in node.names:
                    below = f"{rest}.{alias.name}" if rest else alias.name
                    yield below if below in MODULES else rest


def breaches(name: str, text: str, is_package: bool = False) -> list[str]:
    """Imports of module `name` that its part may not make."""
    part = name.partition(".")[0]
    if part not in ALLOWED:
        return [f"{PACKAGE}.{name} belongs to no part with import rules"] if part else []
    allowed = ALLOWED[part] | {part}
    if name == PROGRAM:
        allowed |= {"cli"}
    for engine, own in ALLOWED_ENGINES.items():
        if name.startswith(engine):
            allowed = own | {engine}
    return [
        f"{PACKAGE}.{name} imports {PACKAGE}.{target}"
        for target in imported(name, text, is_package)
        if target and not any(target == entry or target.startswith(entry + ".") for entry in allowed)
    ]


def foreign(name: str, text: str) -> list[str]:
    """Packages of an engine that module `name` imports and may not."""
    found = []
    for node in ast.walk(ast.parse(text)):
        targets = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            targets = [node.module or ""]
        found += [target for target in targets if target.partition(".")[0] in ENGINE_PACKAGES]
    owner = "" if name in WITHOUT_PACKAGES else name
    return [target for target in found if not owner.startswith(ENGINE_PACKAGES[target.partition(".")[0]])]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_only_its_engine_imports_a_package(name: str) -> None:
    assert foreign(name, MODULES[name].read_text()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cli.engines", "def f() -> None:\n    import mlx.core as mx"),
        ("engines.mlx.options", "from mlx_lm.utils import load_model"),
        ("engines.llamacpp.engine", "import mlx_lm"),
        ("engines.mlx.engine", "import llama_cpp"),
    ],
)
def test_a_foreign_package_is_found(name: str, text: str) -> None:
    assert len(foreign(name, text)) == 1


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name: str) -> None:
    path = MODULES[name]
    assert breaches(name, path.read_text(), path.name == "__init__.py") == []


def test_given_replies_are_out_of_reach_of_every_command() -> None:
    importers = [
        name
        for name, path in MODULES.items()
        if PROGRAM in imported(name, path.read_text(), path.name == "__init__.py")
    ]
    assert importers == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lab.server", "from headstart.cli.server import serve"),
        ("prefix.tree", "from headstart.engines import base"),
        ("prefix.tree", "import headstart.serving.request"),
        ("engines.toy", "from headstart.prefix.tree import Tree"),
        ("engines.mlx.source", "from headstart.engines.llamacpp.source import resolve"),
        ("engines.llamacpp.source", "from headstart.engines.mlx.weights import read_json"),
        ("engines.mlx.source", "from headstart.prefix.keys import chain"),
        ("engines.toy", "def f() -> None:\n    from headstart.serving import scheduler"),
        ("chat.template", "from headstart.api.app import create_app"),
        ("serving.scheduler", "from ..api import app"),
        ("accept.probe", "from headstart.prefix.report import Tier"),
        ("blame.diff", "from headstart.engines.base import Engine"),
        ("misplaced", "import json"),
    ],
)
def test_a_breach_is_found(name: str, text: str) -> None:
    assert len(breaches(name, text)) == 1


def test_files_stay_small() -> None:
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in MODULES.values()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}
