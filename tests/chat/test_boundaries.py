"""Places found in a prompt are where messages really start, in characters and in tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.chat.boundaries import (
    MIN_POSITION_TOKENS,
    BoundaryMemo,
    Rendered,
    prompt_hints,
    render_with_boundaries,
)
from headstart.chat.template import ChatTemplate
from headstart.engines.base import Vocabulary
from headstart.engines.toy_vocabulary import toy_tokenize, toy_vocabulary
from headstart.errors import RequestError
from headstart.prefix.plan import PromptHints
from tests.chat.templates import ALTERNATING, CHATML, REASONING, smollm2_template


class CountingTemplate(ChatTemplate):
    renders = 0

    def render(self, *args: Any, **kwargs: Any) -> str:
        self.renders += 1
        return super().render(*args, **kwargs)


def make(source: str) -> CountingTemplate:
    return CountingTemplate(source, bos="<bos>", eos="<eos>")


def rendered(source: str, messages: list[dict[str, Any]], **options: Any) -> Rendered:
    return render_with_boundaries(make(source), messages, memo=BoundaryMemo(), **options)


def turns(*contents: str, system: str | None = None) -> list[dict[str, Any]]:
    head = [{"role": "system", "content": system}] if system is not None else []
    return head + [
        {"role": "user" if i % 2 == 0 else "assistant", "content": content}
        for i, content in enumerate(contents)
    ]


@pytest.mark.parametrize("source", [CHATML, smollm2_template()])
def test_every_message_of_a_plain_template_is_found(source: str) -> None:
    found = rendered(source, turns("one", "zwei ü", "three", system="Sys"))
    starts = [found.text[start:] for start in found.message_starts if start is not None]
    assert [text.split("\n")[0] for text in starts] == [
        f"<|im_start|>{role}" for role in ("system", "user", "assistant", "user")
    ]
    assert found.head_end == found.message_starts[1]
    assert found.body_end is not None
    assert found.text[found.body_end :] == "<|im_start|>assistant\n"


def test_head_holds_the_default_system_text_where_none_was_sent() -> None:
    found = rendered(smollm2_template(), turns("Hi"))
    assert found.head_end is not None
    assert found.text[: found.head_end].endswith("<|im_end|>\n<|im_start|>user\n")
    assert "helpful AI assistant" in found.text[: found.head_end]


def test_head_holds_the_tools() -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    found = rendered(CHATML, turns("Hi", system="S"), tools=tools)
    assert found.head_end is not None
    assert '"look"' in found.text[: found.head_end]
    assert "Hi" not in found.text[: found.head_end]


def test_system_text_inside_the_first_turn() -> None:
    found = rendered(ALTERNATING, turns("one", "two", "three", system="Sys"))
    assert found.head_end is not None
    assert found.text[: found.head_end] == "<bos><start_of_turn>user\nSys\n\n"
    places = [found.text[start:][:16] for start in found.message_starts[2:] if start is not None]
    assert places == ["<start_of_turn>m", "<start_of_turn>u"]


def test_template_that_drops_old_reasoning_and_needs_a_user() -> None:
    messages = turns("one", "two", "three", system="Sys")
    messages[2]["reasoning_content"] = "hmm"
    found = rendered(REASONING, messages)
    assert "hmm" not in found.text
    assert found.head_end is not None
    assert found.text[: found.head_end] == "<|im_start|>system\nSys<|im_end|>\n<|im_start|>user\n"
    starts = [None if start is None else found.text[start:][:12] for start in found.message_starts]
    assert starts == ["<|im_start|>", "one<|im_end|", "<|im_start|>", "three<|im_en"]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.text(max_size=8), min_size=1, max_size=6), st.booleans(), st.sampled_from([CHATML, REASONING])
)
def test_places_are_prefixes_shared_with_every_conversation_that_begins_alike(
    contents: list[str], system: bool, source: str
) -> None:
    messages = turns(*contents, system="S" if system else None)
    found = rendered(source, messages)
    for index, start in enumerate(found.message_starts):
        if start is None or index == 0:
            continue
        other = [*messages[:index], {**messages[index], "content": "\u2042 something else"}]
        assert rendered(source, other).text.startswith(found.text[:start])


def test_growing_conversation_renders_only_new_beginnings() -> None:
    template, memo = make(CHATML), BoundaryMemo()
    messages = turns(*(f"message {i}" for i in range(40)), system="S")
    render_with_boundaries(template, messages, memo=memo)
    first = template.renders
    grown = [*messages, {"role": "user", "content": "new"}]
    template.renders = 0
    again = render_with_boundaries(template, grown, memo=memo)
    assert first >= 41
    assert template.renders <= 3
    assert again == render_with_boundaries(make(CHATML), grown, memo=BoundaryMemo())


def test_memo_does_not_mix_tools_arguments_or_templates() -> None:
    memo = BoundaryMemo()
    messages = turns("Hi", system="S")
    tools = [{"type": "function", "function": {"name": "f"}}]
    plain = render_with_boundaries(make(CHATML), messages, memo=memo)
    tooled = render_with_boundaries(make(CHATML), messages, tools=tools, memo=memo)
    other = render_with_boundaries(make(REASONING), messages, memo=memo)
    assert tooled == render_with_boundaries(make(CHATML), messages, tools=tools, memo=BoundaryMemo())
    assert other == render_with_boundaries(make(REASONING), messages, memo=BoundaryMemo())
    assert plain.head_end != tooled.head_end


def test_memo_is_bounded() -> None:
    memo = BoundaryMemo(entries=10)
    render_with_boundaries(make(CHATML), turns(*"abcdefghijklmnop"), memo=memo)
    assert len(memo) == 10


def test_refused_messages_are_told_even_so() -> None:
    with pytest.raises(RequestError, match="alternate"):
        rendered(ALTERNATING, [*turns("a"), *turns("b")])


WORDS = toy_vocabulary(260, adds_bos=True)


def test_places_become_token_positions() -> None:
    found = rendered(CHATML, turns("grüße", "b", "c", system="A system text"))
    tokens = toy_tokenize(WORDS, found.text, special=True, add_bos=False)
    hints = prompt_hints(found, tokens, WORDS)
    prefixes = [found.text[:start] for start in found.message_starts if start]
    expected = [len(toy_tokenize(WORDS, text, special=True, add_bos=False)) for text in prefixes]
    assert list(hints.message_starts) == expected
    assert hints.head_end == expected[0]
    assert hints.body_end == len(tokens) - len("assistant\n") - 1


def test_bos_that_is_not_in_the_text_is_counted() -> None:
    found = rendered(CHATML, turns("grüße", "b", system="A system text"))
    with_bos = prompt_hints(found, toy_tokenize(WORDS, found.text, special=True, add_bos=True), WORDS)
    without = prompt_hints(found, toy_tokenize(WORDS, found.text, special=True, add_bos=False), WORDS)
    assert without.head_end is not None
    assert with_bos.head_end == without.head_end + 1


def test_place_inside_a_token_is_the_tokens_start() -> None:
    words = Vocabulary([b"0123456789abcdef", b"xyz", b"!"], frozenset(), frozenset(), None, None, False)
    text = "0123456789abcdef" * 20 + "xyz!"
    tokens = np.array([0] * 20 + [1, 2], dtype=np.int32)
    for place, position in ((320, 20), (321, 20), (322, 20), (323, 21), (324, 22)):
        assert prompt_hints(Rendered(text, body_end=place), tokens, words).body_end == position


def test_no_hints_where_tokens_are_not_the_text() -> None:
    found = rendered(CHATML, turns("Hi", "b", system="A system text"))
    tokens = toy_tokenize(WORDS, found.text.replace("Hi", "hi"), special=True, add_bos=False)
    assert prompt_hints(found, tokens, WORDS) == PromptHints()


def test_places_near_the_start_are_not_worth_a_checkpoint() -> None:
    found = rendered(CHATML, turns("Hi"))
    hints = prompt_hints(found, toy_tokenize(WORDS, found.text, special=True, add_bos=False), WORDS)
    assert found.head_end is not None
    assert hints.head_end is None
    assert all(start >= MIN_POSITION_TOKENS for start in hints.message_starts)


def test_a_long_conversation_is_not_rendered_once_a_message() -> None:
    """That would be quadratic: 10,000 messages took four minutes. Their last ones are all looked at, and a
    conversation that grows renders only what is new."""
    template, memo = make(CHATML), BoundaryMemo()
    messages = turns(*(f"message {i}" for i in range(1500)), system="S")
    found = render_with_boundaries(template, messages, memo=memo)
    assert template.renders < 250
    assert None not in found.message_starts[-128:]
    assert sum(start is not None for start in found.message_starts) > 128 + 32
    template.renders = 0
    render_with_boundaries(template, [*messages, {"role": "user", "content": "new"}], memo=memo)
    assert template.renders <= 4
