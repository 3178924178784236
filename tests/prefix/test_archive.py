"""Archives: what comes out is what went in, and nothing that is wrong in one is ever taken in."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headstart.engines.toy_model import LayerKind
from headstart.errors import ConfigError
from headstart.prefix.archive import read_archive, write_archive
from headstart.prefix.conversations import conversations, forest
from headstart.prefix.inventory import read_store
from headstart.prefix.report import Tier
from headstart.prefix.ssd import SsdFiles
from headstart.prefix.upkeep import owned
from tests.prefix.stores import Storing, files_of, make_store
from tests.serving.harness import CountingToy, cold_reply, prompt_of


def export(store: Path, target: Path) -> Path:
    exported = write_archive(target, SsdFiles(store, read_only=True), read_store(store).entries.values())
    assert exported.left_out == ()
    return target


def take_in(archive: Path, store: Path) -> tuple[int, int]:
    with owned(store, create=True) as other:
        added = other.add(read_archive(archive))
    return added.entries, added.present


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return export(make_store(tmp_path / "store", prompt_of(100), prompt_of(50, seed=1)), tmp_path / "a.tar")


@pytest.mark.parametrize(
    "layers", [("full", "full"), ("full", "window", "recurrent")], ids=["dense", "recurrent"]
)
def test_taken_in_elsewhere_it_restores_everything(layers: tuple[LayerKind, ...], tmp_path: Path) -> None:
    prompt = prompt_of(100)
    make_store(tmp_path / "here", prompt, engine=CountingToy(layers))
    archive = export(tmp_path / "here", tmp_path / "a.tar")
    take_in(archive, tmp_path / "there")
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")
    with Storing(tmp_path / "there", CountingToy(layers)) as server:
        reply, done = server.ask(prompt, 5)
    assert (done.report.tier, done.report.restored) == (Tier.SSD, 100)
    assert reply.tokens == cold_reply(CountingToy(layers), prompt, 5)


def test_the_same_entries_make_the_same_archive_parents_first(archive: Path, tmp_path: Path) -> None:
    again = export(tmp_path / "store", tmp_path / "b.tar")
    assert again.read_bytes() == archive.read_bytes()
    with tarfile.open(archive) as tar:
        infos = tar.getmembers()
    assert {info.name for info in infos} == set(_flat(files_of(tmp_path / "store")))
    assert {(info.uid, info.gid, info.uname, info.mode) for info in infos} == {(0, 0, "", 0o600)}
    assert archive.stat().st_mode & 0o777 == 0o600


def _flat(files: dict[str, bytes]) -> list[str]:
    return [f"{name.split('/')[0]}/{name.split('/')[2]}" for name in files]


def test_an_archive_of_one_conversation_has_its_path_alone(tmp_path: Path) -> None:
    first = prompt_of(90)
    second = np.concatenate([first[:41], prompt_of(30, seed=1)])
    second[41] = first[41] ^ 1
    make_store(tmp_path / "here", first, second)
    found = conversations(forest(read_store(tmp_path / "here").entries.values()))
    one = next(one for one in found if one.tokens == 71)
    write_archive(tmp_path / "a.tar", SsdFiles(tmp_path / "here", read_only=True), one.entries)
    assert take_in(tmp_path / "a.tar", tmp_path / "there") == (len(one.entries), 0)
    with Storing(tmp_path / "there") as server:
        assert server.ask(second, 1)[1].report.restored == 71
        assert server.ask(first, 1)[1].report.restored == 41


def test_an_export_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", prompt_of(100))

    def stop(done: int, total: int) -> None:
        assert 0 < done < total
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_archive(
            tmp_path / "a.tar", SsdFiles(store, read_only=True), read_store(store).entries.values(), stop
        )
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_nothing_is_overwritten(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists already"):
        export(tmp_path / "store", archive)
    before = files_of(tmp_path / "store")
    stamps = {name: (tmp_path / "store" / name).stat().st_mtime_ns for name in before}
    assert take_in(archive, tmp_path / "store") == (0, len(before))
    assert files_of(tmp_path / "store") == before
    assert stamps == {name: (tmp_path / "store" / name).stat().st_mtime_ns for name in before}


def test_order_of_use_comes_with_it(archive: Path, tmp_path: Path) -> None:
    take_in(archive, tmp_path / "there")
    here, there = read_store(tmp_path / "store").entries, read_store(tmp_path / "there").entries
    assert {key: int(entry.used_s) for key, entry in here.items()} == {
        key: entry.used_s for key, entry in there.items()
    }


def test_a_damaged_entry_is_left_out_with_what_needs_it(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", prompt_of(100))
    (one,) = conversations(forest(read_store(store).entries.values()))
    path = SsdFiles(store, read_only=True).path(one.namespace, one.path[3].key)
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    exported = write_archive(tmp_path / "a.tar", SsdFiles(store, read_only=True), one.entries)
    assert exported.entries == 3
    assert len(exported.left_out) == len(one.entries) - 3
    assert "checksum" in exported.left_out[0]
    take_in(tmp_path / "a.tar", tmp_path / "there")
    with Storing(tmp_path / "there") as server:
        assert server.ask(prompt_of(100), 1)[1].report.restored == 48


def rewritten(
    archive: Path, change: Callable[[tarfile.TarInfo, bytes], list[tuple[tarfile.TarInfo, bytes]]]
) -> Path:
    """The archive with every member replaced by what `change` makes of it."""
    target = archive.with_name("changed.tar")
    with tarfile.open(archive) as old, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as new:
        for info in old:
            stream = old.extractfile(info)
            assert stream is not None
            for changed, data in change(info, stream.read()):
                new.addfile(changed, io.BytesIO(data) if changed.isreg() else None)
    return target


def renamed(name: Callable[[str], str]) -> Callable[[Path], Path]:
    def change(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        info.name = name(info.name)
        info.pax_headers = {}
        return [(info, data)]

    return lambda archive: rewritten(archive, change)


def replaced_by(kind: bytes, target: str) -> Callable[[Path], Path]:
    def change(info: tarfile.TarInfo, _: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        info.type, info.linkname, info.size = kind, target, 0
        return [(info, b"")]

    return lambda archive: rewritten(archive, change)


def flipped(archive: Path) -> Path:
    def change(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        return [(info, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])]

    return rewritten(archive, change)


def without_first(archive: Path) -> Path:
    seen: list[str] = []

    def change(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        seen.append(info.name)
        return [(info, data)] if len(seen) > 1 else []

    return rewritten(archive, change)


def swapped(archive: Path) -> Path:
    """Each member holds the entry of the one before it."""
    last: list[bytes] = []

    def change(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        last.append(data)
        info.size = len(last[max(0, len(last) - 2)])
        return [(info, last[max(0, len(last) - 2)])]

    return rewritten(archive, change)


def cut(share: float) -> Callable[[Path], Path]:
    def change(archive: Path) -> Path:
        target = archive.with_name("cut.tar")
        target.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
        return target

    return change


def between_members(archive: Path) -> Path:
    """Cut off exactly where a member ends, so that what is left is well formed but for its end."""
    with tarfile.open(archive) as tar:
        end = tar.getmembers()[2].offset
    target = archive.with_name("cut.tar")
    target.write_bytes(archive.read_bytes()[:end])
    return target


def header_flipped(archive: Path) -> Path:
    """A bit flipped in the header of a later member, which then reads as the end."""
    with tarfile.open(archive) as tar:
        at = tar.getmembers()[5].offset
    data = bytearray(archive.read_bytes())
    data[at + 20] ^= 1
    target = archive.with_name("header.tar")
    target.write_bytes(data)
    return target


def no_tar(archive: Path) -> Path:
    target = archive.with_name("text.tar")
    target.write_text("not an archive\n" * 100)
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed(lambda name: f"../{name}"), "has no place"),
        (renamed(lambda name: f"/tmp/{name}"), "has no place"),
        (renamed(lambda name: name.replace("/", "/../")), "has no place"),
        (renamed(lambda name: name.upper()), "has no place"),
        (renamed(lambda name: name.split("/")[1]), "has no place"),
        (renamed(lambda name: name.replace(".safetensors", ".safetensors\n")), "has no place"),
        (renamed(lambda name: "00" * 48 + name[96:]), "another entry than its name says"),
        (replaced_by(tarfile.SYMTYPE, "/etc/passwd"), "has no place"),
        (replaced_by(tarfile.LNKTYPE, "/etc/passwd"), "has no place"),
        (replaced_by(tarfile.DIRTYPE, ""), "has no place"),
        (replaced_by(tarfile.FIFOTYPE, ""), "has no place"),
        (flipped, "checksum"),
        (swapped, "another entry than its name says"),
        (without_first, "comes without what it needs"),
        (cut(0.5), "not complete|unexpected end"),
        (between_members, "its end is missing"),
        (header_flipped, "is damaged: what follows byte"),
        (no_tar, "is not an archive"),
    ],
)
def test_what_is_wrong_in_an_archive_is_refused(
    change: Callable[[Path], Path], message: str, archive: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        list(read_archive(change(archive)))


def test_an_archive_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        list(read_archive(tmp_path / "nowhere.tar"))
