"""What templates do to conversations that only go on, on templates written like those of real models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headstart.blame.exchange import Dialect, Exchange, Reply, ToolCall, Usage
from headstart.blame.finding import Culprit, Finding, Step
from headstart.blame.prompt import Kind, Piece, Prompt
from headstart.blame.rendered import deeper, parting
from headstart.blame.rendering import Reader, common_chars, messages_of, tools_of
from headstart.blame.retokenised import retokenised
from headstart.chat.template import ChatTemplate

PLAIN = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
FORGETS_THINKING = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content and loop.index0 > ns.last %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
EMPTY_THINKING = PLAIN.replace("<|assistant|>{% endif %}", "<|assistant|><think>\n\n</think>\n\n{% endif %}")
HOISTS = (
    "{% for m in messages if m.role == 'system' %}<|system|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def words(text: str) -> Sequence[int]:
    """A tokenizer for tests: a token a character pair."""
    return [hash(text[at : at + 2]) for at in range(0, len(text), 2)]


def reader(source: str) -> Reader:
    return Reader(ChatTemplate(source, bos="", eos=""), words)


def prompt(*said: tuple[str, str], thinking: dict[int, str] | None = None) -> Prompt:
    """A conversation of (role, text); `thinking` by message."""
    pieces: list[Piece] = []
    for number, (role, text) in enumerate(said):
        path = f"messages[{number}].content"
        if thinking and number in thinking:
            pieces.append(Piece(Kind.THINKING, path, thinking[number], role, number))
        pieces.append(Piece(Kind.SYSTEM if role == "system" else Kind.TEXT, path, text, role, number))
    return Prompt(Dialect.OPENAI_CHAT, "m", tuple(pieces))


def asked(reply: Reply) -> Exchange:
    return Exchange(1, 0.0, Dialect.OPENAI_CHAT, "/v1/chat/completions", {}, reply)


def found(source: str, first: Prompt, reply: Reply, second: Prompt) -> Finding | None:
    return deeper(reader(source), asked(reply), first, second)


START = (("system", "Be short."), ("user", "What is two and two?"))


def test_a_template_that_only_adds_is_not_blamed() -> None:
    first = prompt(*START)
    second = prompt(*START, ("assistant", "Four."), ("user", "And three?"))
    assert found(PLAIN, first, Reply("Four."), second) is None


def test_thinking_that_is_dropped_once_a_question_follows() -> None:
    first = prompt(
        *START, ("assistant", "Four."), ("tool", "ok"), thinking={2: "Two and two make four, surely."}
    )
    second = prompt(
        *START,
        ("assistant", "Four."),
        ("tool", "ok"),
        ("assistant", "Done."),
        ("user", "And three?"),
        thinking={2: "Two and two make four, surely."},
    )
    finding = found(FORGETS_THINKING, first, Reply("Done."), second)
    assert finding is not None
    assert (finding.cause, finding.culprit, finding.step) == (
        "THINKING_STRIPPED",
        Culprit.TEMPLATE,
        Step.RENDERED,
    )
    text = reader(FORGETS_THINKING).text(second)
    assert finding.char == text.index("<|assistant|>Four.") + len("<|assistant|>")
    assert finding.before.startswith("<think>Two") and finding.after.startswith("Four.")
    assert finding.token == finding.char // 2
    assert finding.tokens_behind == len(words(text)) - finding.char // 2
    assert "preserve_thinking" in finding.fix.command


def test_what_is_written_for_the_reply_and_not_into_the_history() -> None:
    first = prompt(*START)
    second = prompt(*START, ("assistant", "Four."), ("user", "And three?"))
    finding = found(EMPTY_THINKING, first, Reply("Four."), second)
    assert finding is not None and finding.cause == "TEMPLATE_SUFFIX"
    assert finding.before == "<think>\n\n</think>\n\n" and finding.after.startswith("Four.")


def test_a_system_message_that_is_put_to_the_front() -> None:
    first = prompt(*START)
    second = prompt(*START, ("assistant", "Four."), ("system", "Ten turns left."), ("user", "And three?"))
    finding = found(HOISTS, first, Reply("Four."), second)
    assert finding is not None and finding.cause == "SYSTEM_HOISTED"
    assert "Ten turns left." in finding.said


def test_a_reply_that_comes_back_changed() -> None:
    first = prompt(*START)
    second = prompt(*START, ("assistant", "Five."), ("user", "And three?"))
    finding = found(PLAIN, first, Reply("Four."), second)
    assert finding is not None and (finding.cause, finding.step) == ("HISTORY_REWRITTEN", Step.GENERATED)
    assert (finding.before[:2], finding.after[:2]) == ("ou", "iv")


def test_calls_and_results_become_messages_of_their_own() -> None:
    pieces = (
        Piece(Kind.TOOL, "tools[0]", '{"name": "read", "input_schema": {"type": "object"}}', name="read"),
        Piece(Kind.SYSTEM, "system", "Be short.", "system"),
        Piece(Kind.TEXT, "messages[0].content", "Read it.", "user", 0),
        Piece(Kind.TEXT, "messages[1].content[0].text", "I will.", "assistant", 1),
        Piece(Kind.CALL, "messages[1].content[1]", '{"path": "a"}', "assistant", 1, "read", "c1"),
        Piece(Kind.RESULT, "messages[2].content[0]", "text of a", "user", 2, id="c1"),
        Piece(Kind.TEXT, "messages[2].content[1].text", "Go on.", "user", 2),
    )
    given = Prompt(Dialect.ANTHROPIC, "m", pieces)
    messages: list[dict[str, Any]] = messages_of(given)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "user"]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"path": "a"}'}
    assert messages[3] == {"role": "tool", "tool_call_id": "c1", "content": "text of a"}
    assert tools_of(given)[0]["function"]["parameters"] == {"type": "object"}
    assert "c1" not in reader(PLAIN).text(given)


def test_a_call_that_comes_back_as_it_was_generated_is_no_finding() -> None:
    first = prompt(*START)
    call = ToolCall("c1", "read", '{"path": "a"}')
    said = Piece(Kind.CALL, "messages[2]", '{"path": "a"}', "assistant", 2, "read", "c1")
    result = Piece(Kind.RESULT, "messages[3].content", "text", "tool", 3, id="c1")
    second = Prompt(Dialect.OPENAI_CHAT, "m", (*first.pieces, said, result))
    assert found(PLAIN, first, Reply("", "", (call,)), second) is None


@pytest.mark.parametrize("at", [0, 1, 7, 500, 999])
def test_common_characters_are_exact(at: int) -> None:
    left = "abcdefghij" * 100
    right = left[:at] + "#" + left[at + 1 :]
    assert common_chars(left, right) == at == common_chars(right, left)
    assert common_chars(left, left) == 1000
    assert common_chars(left, left[:at]) == at


def test_the_place_of_a_change_is_counted_in_tokens() -> None:
    place = parting(reader(PLAIN), "abcdef", "abcdXf")
    assert place is not None and (place.char, place.token, place.tokens, place.behind) == (4, 2, 3, 1)
    assert parting(reader(PLAIN), "abc", "abcdef") is None


def counted(prompt_tokens: int, cached: int, completion: int, reply: str = "") -> Exchange:
    usage = Usage(prompt_tokens, cached, completion)
    return Exchange(1, 0.0, Dialect.OPENAI_CHAT, "/v1/chat/completions", {}, Reply(reply), usage)


def test_a_reply_whose_text_is_encoded_otherwise() -> None:
    """Texts agree; the server stops inside the reply. Had it stopped before the reply or gone on to its end,
    the tokenizer would not be to blame."""
    read = reader(PLAIN)
    first = prompt(*START)
    second = prompt(*START, ("assistant", "Four, I should think."), ("user", "And three?"))
    length = len(words(read.text(first)))
    before = counted(length, 0, 11, "Four, I should think.")
    for cached, blamed in ((length - 1, False), (length + 3, True), (length + 12, False)):
        after = counted(len(words(read.text(second))), cached, 5)
        finding = retokenised(read, before, after, first, second)
        assert (finding is not None) is blamed, cached
        if finding is not None:
            assert (finding.cause, finding.token) == ("RETOKENISED", cached)
            assert finding.tokens_behind is not None and finding.tokens_behind > 1
    changed = prompt(*START, ("assistant", "Four, I should hope."), ("user", "And three?"))
    assert retokenised(read, before, counted(90, length + 3, 5), first, changed) is None
    assert retokenised(Reader(read.template), before, counted(90, length + 3, 5), first, second) is None
