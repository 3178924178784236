"""`headstart cache gc`, `rm`, `export` and `import`: tidying and moving what is on disk."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from headstart.cli.cache_action import Action, add_store_flags, answer, chosen, counted, settings_of
from headstart.cli.storage import every_second
from headstart.cli.terminal import Terminal, format_bytes
from headstart.errors import ConfigError, HeadstartError
from headstart.options import parse_size
from headstart.prefix.archive import Exported, read_archive, write_archive
from headstart.prefix.catalog import Listed
from headstart.prefix.conversations import Conversation, conversations, forest
from headstart.prefix.inventory import Inventory, read_store, short_name
from headstart.prefix.ssd import SsdFiles
from headstart.prefix.upkeep import Added, OwnedStore, Removed, owned
from headstart.prefix.verify import verify

_MOST_LINES = 20


def gc(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).ssd_directory
    say = every_second(Terminal().step)
    with owned(directory, progress=lambda what, done, total: say(f"{what}: {done:,} of {total:,}")) as store:
        bad = []
        if arguments.verify:
            report = verify(directory, lambda done, total: say(f"checked {done:,} of {total:,} files"))
            bad = [problem.path for problem in report.problems]
        swept = store.swept + store.remove_unusable(bad)
    evicted = Removed()
    with owned(directory) as store:  # what hangs on a removed file goes now
        swept += store.swept
        if arguments.to is not None:
            evicted = store.evict_to(arguments.to)
        left, used = len(store), store.used_bytes
    if arguments.json:
        answer({"swept": asdict(swept), "evicted": asdict(evicted), "entries": left, "disk_bytes": used})
        return 0
    print(f"unusable  {_removed(swept)}")
    if arguments.to is not None:
        print(f"evicted   {_removed(evicted)}")
    print(f"left      {left:,} entries, {format_bytes(used)} on the disk")
    return 0


def _removed(removed: Removed) -> str:
    return f"{removed.entries:,} removed, {format_bytes(removed.nbytes)}"


def rm(arguments: argparse.Namespace) -> int:
    if sum((bool(arguments.keys), arguments.namespace is not None, arguments.all)) != 1:
        raise ConfigError("rm needs one of: the ids of conversations, --namespace NAME, or --all")
    directory = settings_of(arguments).ssd_directory
    with owned(directory) as store:
        inventory = store.before
        if arguments.keys:
            picked = chosen(_conversations(inventory), arguments.keys)
            size = format_bytes(sum(one.own_nbytes for one in picked))
            _confirm(
                arguments, f"Remove {counted(len(picked), 'conversation')} ({size} that no other needs)?"
            )
            removed = sum((store.remove_conversation(one.key) for one in picked), Removed())
        else:
            removed = _remove_namespaces(arguments, store)
    if arguments.json:
        answer({"removed": asdict(removed)})
    else:
        print(f"{removed.entries:,} entries removed, {format_bytes(removed.nbytes)}")
    return 0


def _remove_namespaces(arguments: argparse.Namespace, store: OwnedStore) -> Removed:
    inventory = store.before
    spaces = {entry.head.namespace for entry in inventory.entries.values()}
    if not arguments.all:
        spaces = {_namespace(spaces, arguments.namespace)}
    going = [entry for entry in inventory.entries.values() if entry.head.namespace in spaces]
    size = format_bytes(sum(entry.nbytes for entry in going))
    what = "everything" if arguments.all else f"namespace {arguments.namespace}"
    _confirm(arguments, f"Remove {what}: {len(going):,} entries, {size}?")
    return sum((store.remove_namespace(space) for space in sorted(spaces)), Removed())


def _namespace(spaces: set[bytes], name: str) -> bytes:
    """The namespace whose name in `ls`, or whose full name, begins as `name` does."""
    found = [space for space in spaces if name and name.lower() in (space.hex(), short_name(space))] or [
        space for space in spaces if name and space.hex().startswith(name.lower())
    ]
    if len(found) != 1:
        fault = (
            f"{len(found)} namespaces have it; give more digits" if found else "there is none of that name"
        )
        raise ConfigError(f"--namespace {name!r}: {fault}; `headstart cache stat` shows them")
    return found[0]


def _confirm(arguments: argparse.Namespace, question: str) -> None:
    """Raises HeadstartError unless it was answered with yes, ConfigError where nobody can be asked."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Nobody can be asked here: give --yes")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise HeadstartError("nothing was removed")


def _conversations(inventory: Inventory) -> Sequence[Conversation]:
    return list(conversations(forest(inventory.entries.values())))


def export(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).ssd_directory
    inventory = read_store(directory)
    found = _conversations(inventory)
    picked = chosen(found, arguments.keys) if arguments.keys else found
    if not picked:
        raise ConfigError(f"the cache at {directory} is empty: there is nothing to export")
    entries: dict[bytes, Listed] = {entry.key: entry for one in picked for entry in one.entries}
    say = every_second(Terminal().step)
    exported = write_archive(
        arguments.file,
        SsdFiles(directory, read_only=True),
        entries.values(),
        lambda done, total: say(f"wrote {format_bytes(done)} of {format_bytes(total)}"),
    )
    _tell_export(arguments, exported, len(picked))
    return 1 if exported.left_out else 0


def _tell_export(arguments: argparse.Namespace, exported: Exported, count: int) -> None:
    if arguments.json:
        answer({"file": str(arguments.file), "conversations": count, **asdict(exported)})
        return
    for line in exported.left_out[:_MOST_LINES]:
        print(f"left out: {line}")
    if len(exported.left_out) > _MOST_LINES:
        print(f"left out: {len(exported.left_out) - _MOST_LINES:,} more, see --json")
    size = format_bytes(exported.nbytes)
    print(f"{arguments.file}: {counted(count, 'conversation')}, {exported.entries:,} entries, {size}")


def take_in(arguments: argparse.Namespace) -> int:
    directory = settings_of(arguments).ssd_directory
    say = every_second(Terminal().step)
    spaces: set[bytes] = set()
    for member in read_archive(  # all of it is looked at before anything is written
        arguments.file, lambda done, total: say(f"checked {format_bytes(done)} of {format_bytes(total)}")
    ):
        spaces.add(member.head.namespace)
    with owned(directory, create=True) as store:
        if arguments.file.stat().st_size > store.files.free_bytes():
            raise ConfigError(f"the disk of {directory} has too little room for {arguments.file}")
        progress = read_archive(
            arguments.file, lambda done, total: say(f"took in {format_bytes(done)} of {format_bytes(total)}")
        )
        try:
            added = store.add(progress)
        except OSError as error:
            raise HeadstartError(f"{directory} cannot be written: {error.strerror}") from error
    _tell_import(arguments, added, sorted(short_name(space) for space in spaces))
    return 0


def _tell_import(arguments: argparse.Namespace, added: Added, spaces: list[str]) -> None:
    if arguments.json:
        answer({"file": str(arguments.file), "namespaces": spaces, **asdict(added)})
        return
    size = format_bytes(added.nbytes)
    print(f"{added.entries:,} entries taken in, {size}; {added.present:,} were here already")
    names = ", ".join(spaces)
    print(f"namespace {names}: for a server with the same model, options, --block-size and API key")


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"{text!r}: {problem}") from None


def _gc_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", type=_size, metavar="SIZE", help="Drop what was used longest ago until this much is left."
    )
    parser.add_argument(
        "--verify", action="store_true", help="Read everything first, and remove what is damaged inside too."
    )
    add_store_flags(parser)


def _rm_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("keys", nargs="*", metavar="ID", help="A conversation as `ls` names it.")
    parser.add_argument("--namespace", metavar="NAME", help="Everything in this namespace.")
    parser.add_argument("--all", action="store_true", help="Everything.")
    parser.add_argument("--yes", action="store_true", help="Do not ask.")
    add_store_flags(parser)


def _export_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="The archive to write; must not exist yet.")
    parser.add_argument(
        "keys", nargs="*", metavar="ID", help="Conversations as `ls` names them; all, where none is given."
    )
    add_store_flags(parser)


def _import_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="An archive of `headstart cache export`.")
    add_store_flags(parser)


ACTIONS = (
    Action(
        "gc",
        "gc [--to SIZE] [--verify] [flags]",
        "remove what is of no use, and the oldest down to a size",
        "Removes temporary and unusable files and entries that hang on nothing, and with --to what was used\n"
        "longest ago. Refuses while a server uses the cache.",
        _gc_flags,
        gc,
    ),
    Action(
        "rm",
        "rm ID... | --namespace NAME | --all [--yes] [flags]",
        "remove conversations",
        "Removes conversations: what no other conversation needs of them. Asks first, on a terminal.\n"
        "Refuses while a server uses the cache.",
        _rm_flags,
        rm,
    ),
    Action(
        "export",
        "export FILE [ID...] [flags]",
        "put conversations into one archive",
        "Writes conversations, with everything it takes to resume them, into one tar archive for another\n"
        "machine with the same model. It holds their text: keep it as you would keep that. Works beside a\n"
        "running server.",
        _export_flags,
        export,
    ),
    Action(
        "import",
        "import FILE [flags]",
        "take in an archive of `export`",
        "Checks all of an archive, then takes in what is not here yet. Overwrites nothing. Refuses while a\n"
        "server uses the cache.",
        _import_flags,
        take_in,
    ),
)
