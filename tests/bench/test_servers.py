"""The benchmark's client against a real headstart, on the toy engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers import Ask, Setup, headstart, stream


def test_a_forced_reply_and_what_it_cost() -> None:
    setup = Setup(Path("unused"), context_tokens=512, threads=1)
    with headstart(setup, "--engine", "toy") as server:
        prompt = [5 + i * 7 % 50 for i in range(100)]
        first = server.complete(Ask(prompt, 4, force=40, logprobs=True))
        again = server.complete(Ask(prompt, 4, force=40, logprobs=True))
        server.complete(Ask(prompt[:60] + [9] * 40, 2, force=40))
        edited = server.complete(Ask(prompt[:60] + [8] * 40, 2, force=40))
        uncached = server.complete(Ask(prompt, 1, force=40, use_cache=False))
        assert (first.prompt_tokens, first.read_tokens, first.completion_tokens) == (100, 100, 4)
        assert len(set(first.text)) == 1
        assert len(first.logprobs) == 4
        assert (again.read_tokens, again.text, again.logprobs) == (0, first.text, first.logprobs)
        assert again.facts["tier"] == "live"
        assert edited.read_tokens == 40
        assert uncached.read_tokens == 100
        assert 0 < first.first_token_s <= first.wall_s
        with pytest.raises(RuntimeError, match="answered 400"):
            stream(server.url, "/v1/completions", {"prompt": []})


def test_a_server_that_cannot_start_says_why() -> None:
    setup = Setup(Path("/nowhere/m.gguf"), context_tokens=512, threads=1)
    with pytest.raises(RuntimeError, match="there is no model at /nowhere/m"), headstart(setup):
        pass
