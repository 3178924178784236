"""The whole chain: OpenAI's own SDK, `headstart watch`, `headstart serve`, and the recording read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai

from headstart.blame.recording import Recording
from tests.cli.watching import watching
from tests.e2e.test_serve import serving

STORY = "The lighthouse keeper counted the ships that passed in the night. " * 8


def test_a_conversation_is_watched_and_read_back(tmp_path: Path) -> None:
    record = tmp_path / "recording.jsonl"
    with (
        serving(tmp_path / "log", "--ram-cache", "64MB") as server,
        watching(server.url, "--record", str(record), "--json") as program,
    ):
        client = openai.OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0, timeout=60)
        model = client.models.list().data[0].id
        messages: list[Any] = [{"role": "system", "content": STORY}]
        replies, told, usages = [], [], []
        for question in ("Who counted?", "What passed?", "When?"):
            messages.append({"role": "user", "content": question})
            chunks = list(
                client.chat.completions.create(
                    model=model,
                    messages=messages,
                    max_tokens=8,
                    temperature=0,
                    stream=True,
                    stream_options={"include_usage": True},
                )
            )
            replies.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))
            usages.append(chunks[-1].usage)
            messages.append({"role": "assistant", "content": replies[-1]})
            told.append(json.loads(program.line()))
        assert program.stop() == 0

    assert [(one["conversation"], one["turn"]) for one in told] == [("A", 1), ("A", 2), ("A", 3)]
    exchanges = list(Recording(record))
    assert [one.reply.text for one in exchanges] == replies
    assert [one.usage.prompt for one in exchanges] == [usage.prompt_tokens for usage in usages if usage]
    assert {one.server for one in exchanges} == {"headstart"}
    assert exchanges[2].body["messages"] == messages[:-1]
    for before, after, line in zip(exchanges, exchanges[1:], told[1:], strict=False):
        assert before.usage.prompt is not None
        assert after.usage.cached is not None
        assert after.usage.cached >= before.usage.prompt - 1
        assert line["read_again_tokens"] <= 1
        assert line["first_token_s"] > 0
