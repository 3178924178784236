"""A chat template that ends prompts otherwise than it writes them into the history, seen by `headstart watch
--model upstream`, which asks the server for its own template and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest

from headstart.cli import main
from tests.cli.watching import watching
from tests.e2e.test_serve import serving

THINKS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
EMBEDDED = ("--engine", "llamacpp", "--model", "embedded", "--ctx-size", "1024", "--threads", "1")
STORY = "The lighthouse keeper counted the ships that passed in the night. " * 8


def test_the_template_is_named_at_the_token_where_the_server_resumed(
    smollm2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template, record = tmp_path / "thinks.jinja", tmp_path / "r.jsonl"
    template.write_text(THINKS)
    with (
        serving(tmp_path / "log", *EMBEDDED, "--chat-template", str(template)) as server,
        watching(server.url, "--record", str(record), "--json", "--model", "upstream") as program,
    ):
        client = openai.OpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0, timeout=60)
        model = client.models.list().data[0].id
        messages: list[Any] = [{"role": "system", "content": STORY}]
        live = []
        for question in ("Who counted?", "What passed?", "When?"):
            messages.append({"role": "user", "content": question})
            reply = client.chat.completions.create(
                model=model, messages=messages, max_tokens=24, extra_body={"ignore_eos": True}
            )
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
            live.append(json.loads(program.line()))
        assert main(["explain", str(record), "--model", server.url, "--json"]) == 0
        explained = json.loads(capsys.readouterr().out)
    causes = [one["finding"] and one["finding"]["cause"] for one in live]
    assert causes == [None, "TEMPLATE_SUFFIX", "TEMPLATE_SUFFIX"]
    for one in live[1:]:
        found = one["finding"]
        assert (found["culprit"], found["step"]) == ("template", "rendered")
        assert found["token"] == one["reused_tokens"]
        assert found["tokens_behind"] == one["prompt_tokens"] - one["reused_tokens"]
        assert found["before"].startswith("<think>")
    told = explained["conversations"][0]["findings"]
    assert [(one["finding"]["cause"], one["turns"]) for one in told] == [("TEMPLATE_SUFFIX", [2, 3])]
    assert main(["explain", str(record), "--json"]) == 0
    blind = json.loads(capsys.readouterr().out)
    assert {one["cause"] for one in blind["totals"]} <= {"SERVER_GAP"}, "without it only the server is seen"
