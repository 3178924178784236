"""Settings of `headstart serve`: defaults, refusals, and that every option is spelled everywhere."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from headstart.config import OPTIONS, Settings, is_loopback, resolve
from headstart.errors import ConfigError
from headstart.options import ScaledFile


def test_defaults_are_safe() -> None:
    settings = resolve({}, {})
    assert settings == Settings()
    assert (settings.host, settings.api_keys, settings.ram_cache_bytes) == ("127.0.0.1", (), 4 * 2**30)
    with pytest.raises(FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]


def test_every_option_reads_from_flag_variable_and_file(tmp_path: Path) -> None:
    file = tmp_path / "headstart.toml"
    for option in OPTIONS:
        default = getattr(Settings(), option.field_name)
        text = {"True": "false", "False": "true", "127.0.0.1": "127.0.0.2"}.get(str(default), "16")
        if option.metavar and "|" in option.metavar and "FILE" not in option.metavar:
            text = next(word for word in option.metavar.split("|") if word != default)
        expected = option.parse(text)
        expected = (expected,) if option.repeatable else expected
        file.write_text(f'{option.name} = "{text}"\n')
        for settings in (
            resolve({option.field_name: [text] if option.repeatable else text}, {}),
            resolve({}, {option.variable: text}),
            resolve({}, {}, file),
        ):
            assert getattr(settings, option.field_name) == expected != default, option.name


def test_options_are_complete_and_explained() -> None:
    assert {option.field_name for option in OPTIONS} == {field.name for field in fields(Settings)}
    for option in OPTIONS:
        assert option.help.endswith("."), option.name
        assert option.default_text, option.name


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert resolve({"host": host}, {}).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com", "localhost.example.com", ""])
def test_any_other_host_needs_a_key(host: str) -> None:
    assert not is_loopback(host)
    if host:
        with pytest.raises(ConfigError, match="needs an API key: give --api-key or set HEADSTART_API_KEY"):
            resolve({"host": host}, {})
        assert resolve({"host": host}, {"HEADSTART_API_KEY": "k"}).api_keys == ("k",)


def test_keys_are_not_shown() -> None:
    settings = resolve({"api_keys": ["sesame-1"]}, {"HEADSTART_API_KEY": "sesame-2"})
    assert settings.api_keys == ("sesame-1",)
    assert "sesame" not in repr(settings)


def test_quantized_kv_needs_flash_attention() -> None:
    with pytest.raises(ConfigError, match="needs flash attention"):
        resolve({"kv_type": "q8_0", "flash_attention": False}, {})


def test_adapters_come_from_every_place(tmp_path: Path) -> None:
    expected = (ScaledFile("/a.gguf", 1.0), ScaledFile("/b.gguf", 0.5))
    file = tmp_path / "headstart.toml"
    file.write_text('lora = ["/a.gguf", "/b.gguf=0.5"]\n')
    assert resolve({"lora": ["/a.gguf", "/b.gguf=0.5"]}, {}).lora == expected
    assert resolve({}, {"HEADSTART_LORA": "/a.gguf, /b.gguf=0.5"}).lora == expected
    assert resolve({}, {}, file).lora == expected
    with pytest.raises(ConfigError, match=r"HEADSTART_LORA '/a=b\.gguf': expected a scale"):
        resolve({}, {"HEADSTART_LORA": "/a=b.gguf"})


def test_adapters_need_an_engine_that_takes_them() -> None:
    with pytest.raises(ConfigError, match="--lora needs --engine llamacpp or mlx"):
        resolve({"lora": ["/a.gguf"], "engine": "toy"}, {})
