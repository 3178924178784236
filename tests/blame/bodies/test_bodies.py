"""Bodies as seven clients send them, taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.blame.bodies import dialect_of, prompt_of
from headstart.blame.exchange import Dialect
from headstart.blame.prompt import Kind, Piece

CHAT, CLAUDE, ITEMS = Dialect.OPENAI_CHAT, Dialect.ANTHROPIC, Dialect.OPENAI_RESPONSES


def pieces(dialect: Dialect, body: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [(one.kind.value, one.role, one.path, one.text) for one in prompt_of(dialect, body).pieces]


def of_message(dialect: Dialect, message: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return pieces(dialect, {"messages": [message]})


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", CHAT),
        ("/api/v0/chat/completions?x=1", CHAT),
        ("/v1/completions", Dialect.OPENAI_COMPLETIONS),
        ("/completion", Dialect.OPENAI_COMPLETIONS),
        ("/v1/responses/", ITEMS),
        ("/v1/messages?beta=true", CLAUDE),
        ("/v1/messages/count_tokens", CLAUDE),
        ("/api/chat", Dialect.OLLAMA_CHAT),
        ("/api/generate", Dialect.OLLAMA_GENERATE),
        ("/v1/models", None),
        ("/api/hello", None),
    ],
)
def test_the_path_tells_the_dialect(path: str, dialect: Dialect | None) -> None:
    assert dialect_of(path, {"messages": []}) is dialect


@pytest.mark.parametrize(
    ("body", "dialect"),
    [
        ({"input": "hi"}, ITEMS),
        ({"messages": [], "system": "x"}, CLAUDE),
        ({"messages": [], "tools": [{"name": "a", "input_schema": {}}]}, CLAUDE),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, CLAUDE),
        ({"messages": [], "keep_alive": 1}, Dialect.OLLAMA_CHAT),
        ({"messages": [{"role": "user", "content": "hi"}]}, CHAT),
        ({"prompt": "a", "raw": True}, Dialect.OLLAMA_GENERATE),
        ({"prompt": "a"}, Dialect.OPENAI_COMPLETIONS),
        ({}, None),
        ([], None),
    ],
)
def test_without_a_path_the_body_tells_it(body: Any, dialect: Dialect | None) -> None:
    assert dialect_of("", body) is dialect


def test_tools_stand_first_then_the_system_prompt_then_messages() -> None:
    body = {
        "messages": [{"role": "user", "content": "u"}],
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "t", "input_schema": {}, "cache_control": {}, "eager_input_streaming": True}],
    }
    assert pieces(CLAUDE, body) == [
        ("tool", "", "tools[0]", '{"name": "t", "input_schema": {}}'),
        ("system", "system", "system[0].text", "s"),
        ("text", "user", "messages[0].content", "u"),
    ]


def test_a_string_and_one_block_say_the_same() -> None:
    string = of_message(CHAT, {"role": "user", "content": "a"})
    block = of_message(CHAT, {"role": "user", "content": [{"type": "text", "text": "a"}]})
    assert string == [("text", "user", "messages[0].content", "a")]
    assert block == [("text", "user", "messages[0].content[0].text", "a")]


def test_shapes_are_kept() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": []},
    ]
    assert prompt_of(CHAT, {"messages": messages}).shape == ("string", "null", "blocks")


def test_an_assistant_turn_of_a_chat() -> None:
    message = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{ "a" : 1}'}}],
    }
    assert of_message(CHAT, message) == [
        ("thinking", "assistant", "messages[0].reasoning_content", "hm"),
        ("call", "assistant", "messages[0].tool_calls[0].function.arguments", '{ "a" : 1}'),
    ]
    call = prompt_of(CHAT, {"messages": [message]}).pieces[1]
    assert (call.name, call.id) == ("f", "c")


@pytest.mark.parametrize("content", ["out", [{"type": "text", "text": "out"}]])
def test_a_tool_result_of_a_chat_is_a_string_or_blocks(content: Any) -> None:
    (found,) = of_message(CHAT, {"role": "tool", "tool_call_id": "c", "content": content})
    assert (found[0], found[1], found[3]) == ("result", "tool", "out")


def test_a_developer_is_the_systems_voice_and_keeps_its_role() -> None:
    assert of_message(CHAT, {"role": "developer", "content": "d"}) == [
        ("system", "developer", "messages[0].content", "d")
    ]


def test_a_message_that_says_nothing_is_still_one() -> None:
    assert of_message(CHAT, {"role": "user", "content": ""}) == [("text", "user", "messages[0].content", "")]


def test_claude_sends_system_messages_among_the_others() -> None:
    message = {
        "role": "system",
        "content": [{"type": "text", "text": "e"}],
        "output_config": {"effort": "medium"},
    }
    assert of_message(CLAUDE, message) == [("system", "system", "messages[0].content[0].text", "e")]


def test_an_assistant_turn_of_anthropic() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "thinking", "thinking": "", "signature": "y"},
        {"type": "redacted_thinking", "data": "z"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": "é"}},
    ]
    assert of_message(CLAUDE, {"role": "assistant", "content": blocks}) == [
        ("thinking", "assistant", "messages[0].content[0].thinking", "hm"),
        ("text", "assistant", "messages[0].content[3].text", "a"),
        ("call", "assistant", "messages[0].content[4].input", '{"b": 1, "a": "é"}'),
    ]


def test_results_of_anthropic_are_strings_or_blocks() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "t", "content": "one"},
        {"type": "tool_result", "tool_use_id": "u", "content": [{"type": "text", "text": "two"}]},
        {"type": "tool_result", "tool_use_id": "v"},
        {"type": "text", "text": "go on"},
    ]
    found = prompt_of(CLAUDE, {"messages": [{"role": "user", "content": blocks}]}).pieces
    assert [(one.kind, one.role, one.text, one.id) for one in found] == [
        (Kind.RESULT, "tool", "one", "t"),
        (Kind.RESULT, "tool", "two", "u"),
        (Kind.RESULT, "tool", "", ""),
        (Kind.TEXT, "user", "go on", ""),
    ]


def test_items_of_a_response() -> None:
    items = [
        {
            "type": "message",
            "id": "m1",
            "role": "developer",
            "content": [{"type": "input_text", "text": "d"}],
        },
        {"role": "user", "content": "u"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "id": "f1", "call_id": "c", "name": "f", "arguments": "{}"},
        {
            "type": "function_call_output",
            "id": "o1",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "o"}],
        },
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "*** begin"},
    ]
    assert pieces(ITEMS, {"input": items, "instructions": "i"}) == [
        ("system", "system", "instructions", "i"),
        ("system", "developer", "input[0].content[0].text", "d"),
        ("text", "user", "input[1].content", "u"),
        ("thinking", "assistant", "input[2].summary[0].text", "hm"),
        ("text", "assistant", "input[3].content[0].text", "a"),
        ("call", "assistant", "input[4].arguments", "{}"),
        ("result", "tool", "input[5].output[0].text", "o"),
        ("call", "assistant", "input[6].input", "*** begin"),
    ]


def test_namespaces_and_nameless_tools() -> None:
    tools = [{"type": "namespace", "name": "n", "tools": [{"name": "a"}]}, {"type": "web_search"}]
    found = prompt_of(ITEMS, {"input": "x", "tools": tools}).pieces
    assert [one.name for one in found if one.kind is Kind.TOOL] == ["n", "web_search"]


def test_ollama_messages() -> None:
    messages = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"b": 1}}}],
        },
        {"role": "tool", "tool_name": "f", "tool_call_id": "ollama_call_1", "content": "o"},
        {"role": "user", "content": "see", "images": ["QUJD"]},
    ]
    found = prompt_of(Dialect.OLLAMA_CHAT, {"messages": messages, "options": {"num_ctx": 8192}})
    assert [(one.kind.value, one.name) for one in found.pieces] == [
        ("call", "f"),
        ("result", "f"),
        ("text", ""),
        ("media", "image"),
    ]
    assert found.pieces[0].text == '{"b": 1}'
    assert found.options == {"num_ctx": 8192}


def test_raw_prompts() -> None:
    assert pieces(Dialect.OPENAI_COMPLETIONS, {"prompt": "a", "suffix": "z"}) == [
        ("text", "", "prompt", "a"),
        ("text", "suffix", "suffix", "z"),
    ]
    assert pieces(Dialect.OPENAI_COMPLETIONS, {"prompt": [1, 22]}) == [("text", "", "prompt", "1 22 ")]
    assert [one[2] for one in pieces(Dialect.OPENAI_COMPLETIONS, {"prompt": ["a", [1]]})] == [
        "prompt[0]",
        "prompt[1]",
    ]
    native = {"system": "s", "prompt": "p", "images": ["QQ=="], "context": [1, 2]}
    assert [one[2] for one in pieces(Dialect.OLLAMA_GENERATE, native)] == [
        "system",
        "context",
        "images[0]",
        "prompt",
    ]


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("body", [None, [], "x", 3, True])
def test_what_is_no_object_gets_a_sentence(dialect: Dialect, body: Any) -> None:
    with pytest.raises(ValueError, match="expected a JSON object"):
        prompt_of(dialect, body)


@pytest.mark.parametrize(
    ("dialect", "body", "words"),
    [
        (CHAT, {"messages": 7}, "`messages` is int; expected a list"),
        (CHAT, {"messages": ["x"]}, r"`messages\[0\]` is str; expected an object"),
        (CLAUDE, {"messages": [], "tools": {}}, "`tools` is dict; expected a list"),
        (ITEMS, {"input": [4]}, r"`input\[0\]` is int"),
        (Dialect.OLLAMA_CHAT, {"messages": [{"images": 3}]}, "`images` is int"),
    ],
)
def test_what_is_no_body_of_the_api_gets_a_sentence(dialect: Dialect, body: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        prompt_of(dialect, body)


STRANGE: list[Any] = [
    None,
    0,
    True,
    "x",
    [],
    {},
    [[]],
    [None],
    [{}],
    [{"type": None}],
    {"type": "text"},
    1e400,
]


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize(
    "field", ["messages", "input", "system", "tools", "prompt", "options", "context", "images"]
)
def test_strange_values_are_taken_apart_or_named(dialect: Dialect, field: str) -> None:
    names = (
        "role",
        "content",
        "tool_calls",
        "type",
        "input",
        "output",
        "arguments",
        "function",
        "images",
        "summary",
    )
    nested = [[{name: value}] for name in names for value in STRANGE]
    blocks = [
        [{"role": "user", "content": [{"type": kind, "content": value, "input": value, "text": value}]}]
        for kind in ("text", "tool_use", "tool_result", "thinking", "image", "x")
        for value in STRANGE
    ]
    for value in (*STRANGE, *nested, *blocks):
        try:
            found = prompt_of(dialect, {field: value}).pieces
        except ValueError as error:
            assert "expected" in str(error)
        else:
            assert all(isinstance(piece, Piece) and isinstance(piece.text, str) for piece in found)
