"""Flags from command lines: known ones only."""

from __future__ import annotations

import pytest

from headstart.blame.doctor.processes import flags_of


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["llama-server", "--port", "9000", "-cram", "512"], {"--cache-ram": "512"}),
        (["/a/llama-server", "--port=9000", "--cache-ram=-1"], {"--cache-ram": "-1"}),
        (["llama-server.exe", "--port", "9000", "--swa-full"], {"--swa-full": ""}),
        (["llama-server", "--port", "9000", "-md", "/home/me/secret.gguf"], {"--model-draft": ""}),
        (["llama-server", "--port", "9000", "--api-key", "sk-1", "--cache-ram"], {"--cache-ram": ""}),
        (["llama-server", "--port", "9000", "--cache-ram", "sk_key/with=signs"], {"--cache-ram": ""}),
        (["llama-server", "--port", "9001", "--swa-full"], {}),
        (["llama-server", "--swa-full"], {}),
        (["cat", "llama.log", "--port", "9000", "--swa-full"], {}),
        (["llama-server", "--port", "9000" * 2000], {}),
        ([], {}),
    ],
)
def test_flags(words: list[str], flags: dict[str, str]) -> None:
    assert flags_of("llama-server", 9000, [words]) == flags


def test_the_default_port() -> None:
    assert flags_of("llama-server", 8080, [["llama-server", "-np", "4"]]) == {"--parallel": "4"}
    command = ["python", "-m", "mlx_lm.server", "--port", "7000", "--draft-model", "x/y"]
    assert flags_of("mlx-lm", 7000, [command]) == {"--draft-model": ""}
    assert flags_of("ollama", 11434, [command]) == {}
