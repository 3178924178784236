"""How options are read: sizes, numbers, words, and the four places they come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.errors import ConfigError
from headstart.options import (
    SIZE_UNITS,
    ScaledFile,
    merge,
    one_of,
    option,
    options_of,
    parse_boolean,
    parse_scaled_file,
    parse_size,
    suggestion,
    whole_number,
)


@dataclass(frozen=True)
class Small:
    size_bytes: int = option(1, parse_size, "g", "A size.", name="size", metavar="SIZE")
    many: tuple[str, ...] = option((), str, "g", "Several.", repeatable=True, metavar="X")
    fast: bool = option(False, parse_boolean, "g", "A switch.")
    secret: str = option("", whole_number(0), "g", "Hidden.", secret=True, metavar="S")


OPTIONS = options_of(Small)


@given(st.integers(0, 10**6), st.sampled_from(sorted(SIZE_UNITS)), st.sampled_from(["", " "]))
def test_sizes_are_1024_based_in_any_case(count: int, unit: str, gap: str) -> None:
    assert parse_size(f"{count}{gap}{unit}") == count * SIZE_UNITS[unit]
    assert parse_size(f"{count}{gap}{unit.lower()}") == count * SIZE_UNITS[unit]


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("1024", 1024), ("1.5KB", 1536), ("4GB", 4 * 2**30)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "4GiB", "-1GB", "1.5", "4 G B", "4G", "1e9", "12 parsecs", "٤GB", "nan"]
)
def test_other_sizes_are_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ValueError, match="4GB, 512MB or 1073741824"):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "11", "1.0", "", "ten", "9" * 5000])
def test_whole_numbers_outside_their_range_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="from 1 to 10"):
        whole_number(1, 10)(text)


@pytest.mark.parametrize(
    ("text", "path", "scale"),
    [
        ("/a/b.gguf", "/a/b.gguf", 1.0),
        ("/a/b.gguf=0.5", "/a/b.gguf", 0.5),
        ("/a/b.gguf=0", "/a/b.gguf", 0.0),
        ("/a/b.gguf= -1.25 ", "/a/b.gguf", -1.25),
        ("/a/b.gguf=.5", "/a/b.gguf", 0.5),
        ("/a/x=y.gguf=2", "/a/x=y.gguf", 2.0),
        ("/a/0.5=1", "/a/0.5", 1.0),
        ("/a/b,c d.gguf", "/a/b,c d.gguf", 1.0),
    ],
)
def test_a_file_with_a_scale(text: str, path: str, scale: float) -> None:
    assert parse_scaled_file(text) == ScaledFile(path, scale)


def test_a_scaled_file_is_absolute() -> None:
    assert parse_scaled_file("~/a.gguf=2") == ScaledFile(str(Path.home() / "a.gguf"), 2.0)
    assert parse_scaled_file("a.gguf") == ScaledFile(str(Path.cwd() / "a.gguf"), 1.0)


@pytest.mark.parametrize("text", ["a=b.gguf", "a.gguf=", "a.gguf=nan", "a.gguf=1e3", "a.gguf=1001", "a=1=x"])
def test_a_scale_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"scale such as 1 or 0\.5 after the last '='.*a=b\.gguf=1"):
        parse_scaled_file(text)


@pytest.mark.parametrize("text", ["", " ", "=1"])
def test_a_scaled_file_has_a_path(text: str) -> None:
    with pytest.raises(ValueError, match="expected text"):
        parse_scaled_file(text)


def test_words_and_switches() -> None:
    assert one_of("exact", "shared")("exact") == "exact"
    with pytest.raises(ValueError, match="did you mean exact"):
        one_of("exact", "shared")("exat")
    assert parse_boolean("Yes") is True
    with pytest.raises(ValueError, match="true or false"):
        parse_boolean("perhaps")
    assert suggestion("zzz", ["exact"]) == ""


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "headstart.toml"
    file.write_text('size = "1KB"\nmany = ["a"]\nfast = true\n')
    environment = {"HEADSTART_SIZE": "2KB", "HEADSTART_MANY": "b, c", "OTHER": "x", "HEADSTART_FAST": ""}
    assert merge(OPTIONS, {}, {}, file) == {"size_bytes": 1024, "many": ("a",), "fast": True}
    assert merge(OPTIONS, {}, environment, file) == {"size_bytes": 2048, "many": ("b", "c"), "fast": True}
    flags = {"size_bytes": "3KB", "many": ["d"], "fast": False}
    assert merge(OPTIONS, flags, environment, file) == {"size_bytes": 3072, "many": ("d",), "fast": False}
    assert merge(OPTIONS, {}, {"HEADSTART_CONFIG": str(file)}, None)["size_bytes"] == 1024


def test_the_file_may_hold_plain_numbers(tmp_path: Path) -> None:
    file = tmp_path / "headstart.toml"
    file.write_text("size = 77\n")
    assert merge(OPTIONS, {}, {}, file) == {"size_bytes": 77}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sise = 1", "unknown key 'sise'; did you mean size?"),
        ("[table]\nx = 1", "unknown key 'table'"),
        ("size = true", "expected SIZE"),
        ("size = 1.5", "expected SIZE"),
        ("many = [['a']]", "expected X"),
        ("fast = 'maybe'", "expected true or false"),
        ("size = ", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "headstart.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")) as caught:
        merge(OPTIONS, {}, {}, file)
    assert str(file) in str(caught.value)


def test_a_missing_or_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        merge(OPTIONS, {}, {}, tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        merge(OPTIONS, {}, {}, tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        merge(OPTIONS, {}, {}, binary)


def test_an_unknown_variable_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="HEADSTART_SISE; did you mean HEADSTART_SIZE"):
        merge(OPTIONS, {}, {"HEADSTART_SISE": "1"}, None)


def test_an_error_names_its_source_and_value() -> None:
    with pytest.raises(ConfigError, match=r"^--size '4 apples': expected a size"):
        merge(OPTIONS, {"size_bytes": "4 apples"}, {}, None)
    with pytest.raises(ConfigError, match=r"^HEADSTART_SIZE '4 apples': expected a size"):
        merge(OPTIONS, {}, {"HEADSTART_SIZE": "4 apples"}, None)


def test_a_secret_is_never_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        merge(OPTIONS, {"secret": "hunter2"}, {}, None)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(Small(secret="hunter2"))
