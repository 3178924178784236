"""Reading a store from outside: what is there, what is not in order, and that nothing is changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headstart.errors import ConfigError
from headstart.prefix.inventory import CatalogState, owner, read_store, short_name
from headstart.prefix.report import Reason
from headstart.prefix.ssd import CATALOG
from tests.prefix.disk import Disk
from tests.prefix.fake import counting
from tests.prefix.stores import Storing, files_of, make_store
from tests.serving.harness import prompt_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store", prompt_of(70), prompt_of(40, seed=1))


def test_everything_is_found_and_nothing_changed(store: Path) -> None:
    before = files_of(store)
    inventory = read_store(store)
    assert len(inventory.entries) == len(before)
    assert inventory.nbytes == sum(map(len, before.values()))
    assert inventory.catalog is CatalogState.OK
    assert (inventory.missing, inventory.unlisted, inventory.unusable) == ((), (), ())
    assert files_of(store) == before


def test_a_lost_or_damaged_catalog_is_told_and_made_up_for(store: Path) -> None:
    entries = read_store(store).entries
    (store / CATALOG).write_bytes(b"no catalog at all" * 100)
    damaged = read_store(store)
    assert damaged.catalog is CatalogState.DAMAGED
    assert damaged.entries.keys() == entries.keys()
    (store / CATALOG).unlink()
    missing = read_store(store)
    assert missing.catalog is CatalogState.MISSING
    assert {key: entry.head for key, entry in missing.entries.items()} == {
        key: entry.head for key, entry in entries.items()
    }


def test_files_and_rows_that_differ_are_told(store: Path) -> None:
    first, second, *_ = sorted(store.rglob("*.safetensors"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:100])
    (second.parent / ".tmp-77-x").write_bytes(b"left")
    (second.parent / ".aside-77-x").mkdir()
    inventory = read_store(store)
    assert inventory.catalog is CatalogState.BEHIND
    assert {key.hex() for key in inventory.missing} == {first.stem, second.stem}
    assert [(one.path, one.reason) for one in inventory.unusable] == [(second, Reason.CORRUPT)]
    assert list(inventory.temporary.values()) == [4]
    assert len(inventory.aside) == 1


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no cache at"):
        read_store(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not a headstart cache"):
        read_store(tmp_path)


def test_the_owner_is_known_while_there_is_one(tmp_path: Path) -> None:
    import os

    with Storing(tmp_path) as server:
        server.ask(prompt_of(20), 1)
        assert owner(tmp_path) == os.getpid()
        read_store(tmp_path)
    assert owner(tmp_path) is None
    assert owner(tmp_path / "nowhere") is None


def test_short_names_tell_namespaces_of_one_tenant_apart() -> None:
    tenant = b"t" * 16
    assert short_name(tenant + b"a" * 32) != short_name(tenant + b"b" * 32)
    assert short_name(b"abcd") == b"abcd".hex()


def test_a_copied_namespace_hides_nothing(tmp_path: Path) -> None:
    """The copies bear the right keys under a wrong namespace: they are of no use, the originals are."""
    with Disk(tmp_path) as disk:
        disk.put(counting(0, 18))
    (space,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    for name in ("00" * 48, "ff" * 48):
        shutil.copytree(space, tmp_path / name)
    inventory = read_store(tmp_path)
    assert (len(inventory.entries), inventory.missing, len(inventory.unusable)) == (5, (), 10)
