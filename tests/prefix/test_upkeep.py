"""Tidying a store: what goes, what stays usable, and that a server's store is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from headstart.errors import ConfigError
from headstart.prefix.blockfile import FORMAT
from headstart.prefix.conversations import Conversation, conversations, forest
from headstart.prefix.inventory import CatalogState, read_store
from headstart.prefix.report import Tier
from headstart.prefix.ssd import CATALOG, SsdFiles
from headstart.prefix.tokens import TokenRun
from headstart.prefix.upkeep import owned
from headstart.prefix.verify import verify
from tests.prefix.stores import Storing, files_of, make_store
from tests.serving.harness import prompt_of


def pair() -> tuple[TokenRun, TokenRun]:
    """Two prompts of 90 and 71 tokens that share their first 41."""
    first = prompt_of(90)
    second = np.concatenate([first[:41], prompt_of(30, seed=1)])
    second[41] = first[41] ^ 1
    return first, second


def found(store: Path) -> dict[int, Conversation]:
    """Conversations by length."""
    trees = forest(read_store(store).entries.values())
    return {one.tokens: one for one in conversations(trees)}


def restored(store: Path, prompt: TokenRun) -> tuple[int, Tier]:
    with Storing(store) as server:
        report = server.ask(prompt, 1)[1].report
        return report.restored, report.tier


def in_order(store: Path) -> None:
    inventory = read_store(store)
    assert inventory.catalog is CatalogState.OK
    assert not inventory.temporary
    assert not forest(inventory.entries.values()).stray
    assert verify(store).problems == ()
    assert len(inventory.entries) == len(files_of(store))


def test_a_removed_conversation_leaves_the_other_whole(tmp_path: Path) -> None:
    first, second = pair()
    make_store(tmp_path, first, second)
    before = found(tmp_path)
    with owned(tmp_path) as store:
        removed = store.remove_conversation(before[71].key)
    assert removed.nbytes == before[71].own_nbytes > 0
    in_order(tmp_path)
    assert found(tmp_path).keys() == {90}
    assert restored(tmp_path, first) == (90, Tier.SSD)


def test_a_removed_conversation_is_gone(tmp_path: Path) -> None:
    first, second = pair()
    make_store(tmp_path, first, second)
    with owned(tmp_path) as store:
        store.remove_conversation(found(tmp_path)[71].key)
    assert restored(tmp_path, second)[0] == 41


def test_the_last_conversation_takes_everything_with_it(tmp_path: Path) -> None:
    make_store(tmp_path, prompt_of(50))
    with owned(tmp_path) as store:
        store.remove_conversation(found(tmp_path)[50].key)
    assert files_of(tmp_path) == {}
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()


def test_a_namespace_goes_alone(tmp_path: Path) -> None:
    with Storing(tmp_path) as server:
        server.ask(prompt_of(50), 1, tenant="a")
        server.ask(prompt_of(60), 1, tenant="b")
    by_length = found(tmp_path)
    with owned(tmp_path) as store:
        store.remove_namespace(by_length[50].namespace)
    in_order(tmp_path)
    assert found(tmp_path).keys() == {60}


def test_eviction_keeps_what_was_used_last_and_the_size(tmp_path: Path) -> None:
    make_store(tmp_path, prompt_of(80), prompt_of(90, seed=1))
    assert restored(tmp_path, prompt_of(80)) == (80, Tier.SSD)
    with owned(tmp_path) as store:
        used = store.used_bytes
        store.evict_to(used // 2)
        assert 0 < store.used_bytes <= used // 2
    in_order(tmp_path)
    assert restored(tmp_path, prompt_of(90, seed=1))[0] < restored(tmp_path, prompt_of(80))[0]


def test_what_is_of_no_use_goes(tmp_path: Path) -> None:
    make_store(tmp_path, prompt_of(100))
    one = found(tmp_path)[100]
    files = SsdFiles(tmp_path, read_only=True)
    folder = files.path(one.namespace, one.path[0].key).parent
    (folder / ".tmp-1-x").write_bytes(b"left by a kill")
    (folder / ".aside-1-x").mkdir()
    (folder / ".aside-1-x" / "deep").write_bytes(b"moved out of the way")
    files.path(one.namespace, one.path[4].key).write_bytes(b"torn")
    older = files.path(one.namespace, one.path[2].key).with_name(f"{folder.name}{'0' * 62}.safetensors")
    older = folder / older.name
    older.write_bytes(files.path(one.namespace, one.path[0].key).read_bytes())
    with owned(tmp_path) as store:
        assert store.swept.entries >= 2
        store.remove_unusable()
    in_order(tmp_path)
    assert not list(tmp_path.glob("*/*/.*"))
    assert not older.exists()
    assert restored(tmp_path, prompt_of(100))[0] == 64


def test_entries_of_another_format_version_go_only_when_asked(tmp_path: Path) -> None:
    from blake3 import blake3

    make_store(tmp_path, prompt_of(20))
    one = found(tmp_path)[20]
    path = SsdFiles(tmp_path, read_only=True).path(one.namespace, one.path[1].key)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(FORMAT.encode(), b"headstart-state-9")
    at = header.index(b'"header":"') + 10
    zeroed = header[:at] + b"0" * 32 + header[at + 32 :]
    digest = blake3(zeroed).digest(16).hex().encode()
    path.write_bytes(data[:8] + zeroed[:at] + digest + zeroed[at + 32 :] + data[8 + length :] + b"more")
    with owned(tmp_path):
        pass
    assert path.exists()
    with owned(tmp_path) as store:
        assert store.remove_unusable().entries == 1
    assert not path.exists()


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_catalog_is_made_anew_where_it_has_to_be(damage: str, tmp_path: Path) -> None:
    make_store(tmp_path, prompt_of(50))
    (tmp_path / CATALOG).unlink()
    if damage == "damaged":
        (tmp_path / CATALOG).write_bytes(b"x" * 5000)
    with owned(tmp_path) as store:
        assert store.swept.entries == 0
    in_order(tmp_path)
    assert restored(tmp_path, prompt_of(50)) == (50, Tier.SSD)


def test_a_store_in_use_is_refused_by_the_name_of_its_owner(tmp_path: Path) -> None:
    with Storing(tmp_path) as server:
        server.ask(prompt_of(20), 1)
        refused = pytest.raises(ConfigError, match=f"in use by process {os.getpid()}; stop that server")
        with refused, owned(tmp_path):
            pass


def test_where_there_is_no_store_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no cache"), owned(tmp_path / "nowhere"):
        pass
    assert not (tmp_path / "nowhere").exists()
