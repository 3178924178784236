"""`headstart cache ls`, `stat` and `verify`: looking at the cache on disk, beside a server or without."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headstart.cli.cache_action import (
    ID_DIGITS,
    Action,
    add_server_flags,
    add_store_flags,
    ago,
    answer,
    client_of,
    counted,
    printable,
    settings_of,
    table,
)
from headstart.cli.cache_client import ServerUnreachableError
from headstart.cli.storage import every_second
from headstart.cli.terminal import Terminal, format_bytes
from headstart.errors import HeadstartError
from headstart.options import whole_number
from headstart.prefix.catalog import Listed
from headstart.prefix.conversations import Conversation, conversations, forest
from headstart.prefix.inventory import Inventory, owner, read_store, require_store, short_name
from headstart.prefix.ssd import disk_bytes
from headstart.prefix.verify import verify

DEFAULT_LIMIT = 20
_WIDE_OUTPUT_COLUMNS = 160
_LEAST_TEXT_COLUMNS = 24

Decode = Callable[[Sequence[int]], str]


def ls(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    inventory = read_store(settings.ssd_directory)
    found = list(conversations(forest(inventory.entries.values())))
    shown = found[: _limit(arguments)]
    decode = _decoder(arguments, {one.namespace for one in shown})
    if arguments.json:
        listed = [_conversation_json(one, decode.get(one.namespace)) for one in shown]
        answer({"directory": str(inventory.directory), "total": len(found), "conversations": listed})
        return 0
    if not found:
        print(f"no conversations in {inventory.directory}")
        return 0
    for line in _lines(shown, decode):
        print(line)
    if len(shown) < len(found):
        print(f"{len(found) - len(shown):,} more; --limit 0 shows all")
    return 0


def _limit(arguments: argparse.Namespace) -> int | None:
    return int(arguments.limit) or None


def _decoder(arguments: argparse.Namespace, namespaces: Iterable[bytes]) -> dict[bytes, Decode]:
    """How to read the tokens of a namespace: by asking the server that uses it, where one runs.

    Only that server's own namespace is decoded: another's token ids may mean other words.
    """
    client = client_of(arguments)
    try:
        served = bytes.fromhex(client.get("/v1/headstart/cache")["namespace"])
    except (HeadstartError, KeyError, ValueError, TypeError) as problem:
        if arguments.url is not None:
            raise (
                problem
                if isinstance(problem, HeadstartError)
                else ServerUnreachableError(
                    f"{client.url} does not say what it stores: is it a headstart server of this version?"
                )
            ) from None
        return {}
    if served not in namespaces:
        return {}
    return {served: lambda tokens: str(client.post("/detokenize", {"tokens": list(tokens)})["content"])}


def _conversation_json(one: Conversation, decode: Decode | None) -> dict[str, Any]:
    return {
        "id": one.key.hex(),
        "namespace": one.namespace.hex(),
        "tokens": one.tokens,
        "shared_tokens": one.shared_tokens,
        "bytes": one.nbytes,
        "own_bytes": one.own_nbytes,
        "blocks": len(one.path),
        "marks": len(one.marks),
        "tier": "ssd",
        "last_use": one.used_s,
        "hits": one.hits,
        "text": None if decode is None else decode(one.head),
        "own_text": None if decode is None else decode(one.own),
        "first_token_ids": list(one.head),
        "own_token_ids": list(one.own),
    }


def _lines(shown: Sequence[Conversation], decode: dict[bytes, Decode]) -> list[str]:
    now_s = time.time()
    heads = ("ID", "TOKENS", "SHARED", "SIZE", "TIER", "LAST USE", "HITS", "NAMESPACE")
    rows = [heads] + [
        (
            one.key.hex()[:ID_DIGITS],
            f"{one.tokens:,}",
            f"{one.shared_tokens:,}",
            format_bytes(one.nbytes),
            "ssd",
            ago(now_s - one.used_s),
            str(one.hits),
            short_name(one.namespace),
        )
        for one in shown
    ]
    columns = table(rows, right=(1, 2, 3, 6))
    width = max(len(line) for line in columns)
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDE_OUTPUT_COLUMNS
    room = max(_LEAST_TEXT_COLUMNS, terminal - width - 2)
    texts = ["TEXT", *(_text(one, decode.get(one.namespace), room) for one in shown)]
    return [f"{line.ljust(width)}  {text}".rstrip() for line, text in zip(columns, texts, strict=True)]


def _text(one: Conversation, decode: Decode | None, room: int) -> str:
    """How a conversation begins and, where others begin so too, how it goes on by itself."""
    if decode is None:
        return _cut("tokens " + " ".join(map(str, one.head)), room)
    if not 0 < one.shared_tokens < one.tokens:
        return _cut(printable(decode(one.head)), room)
    start = _cut(printable(decode(one.head)), room // 3)
    return f"{start} {_cut(printable(decode(one.own)), room - len(start) - 1)}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def stat(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    inventory = read_store(settings.ssd_directory)
    facts = _facts(inventory, settings.ssd_cache_bytes)
    if arguments.json:
        answer(facts)
        return 0
    for label, text in _stat_lines(facts):
        print(f"{label:<14}{text}")
    return 0


def _facts(inventory: Inventory, budget_bytes: int) -> dict[str, Any]:
    entries = inventory.entries.values()
    trees = forest(entries)
    leaves = Counter(one.namespace for one in conversations(trees))
    spaces: dict[bytes, list[Listed]] = {}
    kinds: dict[str, list[Listed]] = {}
    for entry in entries:
        spaces.setdefault(entry.head.namespace, []).append(entry)
        kinds.setdefault(entry.head.kind.value, []).append(entry)
    return {
        "directory": str(inventory.directory),
        "in_use_by": owner(inventory.directory),
        **_sizes(entries),
        "budget_bytes": budget_bytes,
        "free_bytes": shutil.disk_usage(inventory.directory).free,
        "kinds": {kind: _sizes(kinds[kind]) for kind in sorted(kinds)},
        "namespaces": [
            {"namespace": space.hex(), "conversations": leaves[space], **_sizes(spaces[space])}
            for space in sorted(spaces, key=lambda space: -max(one.used_s for one in spaces[space]))
        ],
        "catalog": {
            "state": inventory.catalog.value,
            "missing": len(inventory.missing),
            "unlisted": len(inventory.unlisted),
        },
        "unusable": [
            {"path": str(file.path), "reason": file.reason.value, "detail": file.detail}
            for file in inventory.unusable
        ],
        "stray": len(trees.stray),
        "temporary": len(inventory.temporary),
        "aside": len(inventory.aside),
    }


def _sizes(entries: Iterable[Listed]) -> dict[str, Any]:
    listed = list(entries)
    uses = [entry.used_s for entry in listed]
    return {
        "entries": len(listed),
        "bytes": sum(entry.nbytes for entry in listed),
        "disk_bytes": sum(disk_bytes(entry.nbytes, len(entry.head.tokens)) for entry in listed),
        "oldest_use": min(uses, default=None),
        "newest_use": max(uses, default=None),
    }


_CATALOG = {
    "ok": "lists what there is",
    "behind": "not quite up to date; the next start puts that right",
    "missing": "missing; the next start makes it from the files",
    "damaged": "damaged; the next start makes it from the files",
}


def _stat_lines(facts: dict[str, Any]) -> Iterable[tuple[str, str]]:
    pid = facts["in_use_by"]
    yield "directory", facts["directory"] + (f" (in use by process {pid})" if pid else "")
    yield "entries", _size_text(facts)
    for kind, sizes in facts["kinds"].items():
        yield f"  {kind}", _size_text(sizes, uses=False)
    yield "on the disk", f"{format_bytes(facts['disk_bytes'])} in whole units, with the catalog"
    for space in facts["namespaces"]:
        count = space["conversations"]
        name = short_name(bytes.fromhex(space["namespace"]))
        yield "namespace", f"{name}: {counted(count, 'conversation')}, {_size_text(space)}"
    yield (
        "budget",
        f"{format_bytes(facts['budget_bytes'])} (--ssd-cache); the disk has "
        + (f"{format_bytes(facts['free_bytes'])} free"),
    )
    yield "catalog", _CATALOG[facts["catalog"]["state"]]
    for file in facts["unusable"]:
        yield "unusable", f"{file['reason']}: {file['detail']}"
    rest = [f"{facts[kind]:,} {kind}" for kind in ("stray", "temporary", "aside") if facts[kind]]
    if rest or facts["unusable"]:
        yield "to tidy", ", ".join([*rest, "see `headstart cache gc --help`"])


def _size_text(sizes: dict[str, Any], *, uses: bool = True) -> str:
    text = f"{sizes['entries']:,} ({format_bytes(sizes['bytes'])})"
    if uses and sizes["entries"]:
        now_s = time.time()
        text += f", used from {ago(now_s - sizes['oldest_use'])} to {ago(now_s - sizes['newest_use'])}"
    return text


def check(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).ssd_directory
    require_store(directory)
    say = every_second(Terminal().step)
    report = verify(directory, lambda done, total: say(f"checked {done:,} of {total:,} files"))
    if arguments.json:
        problems = [
            {"path": str(one.path), "reason": one.reason.value, "detail": one.detail}
            for one in report.problems
        ]
        answer({"files": report.files, "bytes": report.bytes, "problems": problems})
    else:
        for one in report.problems:
            print(f"{one.reason.value}: {one.detail}")
        bad = f"{len(report.problems):,} bad" if report.problems else "all good"
        print(f"{counted(report.files, 'file')}, {format_bytes(report.bytes)}: {bad}")
        if report.problems:
            print("`headstart cache gc --verify` removes them; a server that meets one does without it")
    return 1 if report.problems else 0


def _ls_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=_count,
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"Conversations to show; 0 shows all. (default: {DEFAULT_LIMIT})",
    )
    add_store_flags(parser)
    add_server_flags(parser)


def _count(text: str) -> int:
    try:
        return int(whole_number(0)(text))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


ACTIONS = (
    Action(
        "ls",
        "ls [--limit N] [flags]",
        "conversations, the one used last first",
        "Lists conversations: how long they are, how much of that others share, their size on disk, when\n"
        "they were used last and how often. Their text is shown where a server runs that can read it;\n"
        "else the token ids of their beginning.",
        _ls_flags,
        ls,
    ),
    Action(
        "stat",
        "stat [flags]",
        "sizes and counts",
        "Entries and bytes by kind and namespace, the budget, what was used first and last, and whether\n"
        "the catalog is in order. A namespace is one model with one set of options for one API key.",
        add_store_flags,
        stat,
    ),
    Action(
        "verify",
        "verify [flags]",
        "read everything and check every checksum",
        "Reads every file and checks all of it. Changes nothing. Exit status 1 if anything is bad.",
        add_store_flags,
        check,
    ),
)
