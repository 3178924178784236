"""Templates render as Hugging Face's do, say their own words when they refuse, and cannot run away."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from headstart.chat.template import ChatTemplate
from headstart.errors import ModelError, RequestError
from tests.chat.templates import ALTERNATING, CHATML, PARTS_ONLY, REASONING, smollm2_template

USER = {"role": "user", "content": "Hi"}


def template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(source, bos="<bos>", eos="<eos>", **options)


def one(expression: str, **values: Any) -> str:
    """What `expression` renders to with `values` as template variables."""
    return template("{{ " + expression + " }}").render([USER], **values)


def test_smollm2_template_gives_the_prompt_the_model_was_trained_on() -> None:
    text = template(smollm2_template()).render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Grüße?"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Again"},
        ]
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nGrüße?<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nAgain<|im_end|>\n<|im_start|>assistant\n"
    )


def test_gemma_like_template_puts_bos_and_system_first() -> None:
    text = template(ALTERNATING).render([{"role": "system", "content": "S"}, USER])
    assert text == "<bos><start_of_turn>user\nS\n\nHi<end_of_turn>\n<start_of_turn>model\n"


def test_blocks_leave_no_blank_lines_behind() -> None:
    assert template("{% if true %}\na\n  {% endif %}\nb").render([USER]) == "a\nb"


def test_loop_controls() -> None:
    source = "{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}"
    assert template(source + "{% endif %}{{ x }}{% endfor %}").render([USER]) == "13"


def test_tojson_is_hugging_faces() -> None:
    assert one("v | tojson", v={"ä": "<b>'&"}) == '{"ä": "<b>\'&"}'
    assert one("v | tojson(separators=(',', ':'))", v={"a": [1, 2]}) == '{"a":[1,2]}'
    assert one("v | tojson(indent=1)", v=[1]) == "[\n 1\n]"
    assert (
        one("v | tojson(sort_keys=true, ensure_ascii=true)", v={"b": 1, "a": "ä"})
        == '{"a": "\\u00e4", "b": 1}'
    )


def test_generation_tag_shows_its_body() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    assert template(source).render([USER]) == "Hi"


def test_eos_tools_and_own_arguments_reach_the_template() -> None:
    assert one("eos_token") == "<eos>"
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert template("{{ tools[0].function.name }}").render([USER], tools=tools) == "f"
    assert template("{{ tools is none }}").render([USER], tools=[]) == "True"
    assert "</think>" in template(CHATML).render([USER], enable_thinking=False)
    assert "</think>" not in template(CHATML).render([USER], enable_thinking=True)


def test_without_generation_prompt() -> None:
    assert template(CHATML).render([USER], add_generation_prompt=False).endswith("<|im_end|>\n")


def test_clock_stands_still_for_a_day() -> None:
    times = [datetime(2026, 11, 30, 8, tzinfo=UTC), datetime(2026, 11, 30, 8, tzinfo=UTC)]
    clocked = template("{{ strftime_now('%d %B %Y') }}", now=lambda: times[0])
    assert clocked.render([USER]) == "30 November 2026"
    real = template("{{ strftime_now('%H:%M:%S') }}")
    assert real.render([USER]) == "00:00:00"


def test_same_messages_give_the_same_text_and_stay_unchanged() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    before = repr(messages)
    chatml = template(CHATML)
    assert chatml.render(messages) == chatml.render(messages)
    assert repr(messages) == before


def test_text_parts_become_one_text_where_the_template_takes_strings() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]
    assert "user\na\nb<|im_end|>" in template(CHATML).render([{"role": "user", "content": parts}])


def test_strings_become_parts_where_the_template_takes_only_parts() -> None:
    assert template(PARTS_ONLY).render([USER]) == "<|user|>Hi"


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "no such"])
def test_parts_that_are_not_text_are_named(kind: str) -> None:
    content = [{"type": "text", "text": "look"}, {"type": kind, kind: {"url": "secret"}}]
    with pytest.raises(RequestError, match=r"messages\[1\]\.content\[1\]") as caught:
        template(CHATML).render([USER, {"role": "user", "content": content}])
    assert caught.value.status == 400
    assert caught.value.param == "messages[1].content[1]"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [3, {"type": "text"}, [1], [{"type": "text", "text": 1}], [{"text": "a"}]]
)
def test_content_of_a_wrong_type_is_a_bad_request(content: object) -> None:
    with pytest.raises(RequestError, match=r"messages\[0\]\.content"):
        template(CHATML).render([{"role": "user", "content": content}])


def test_null_content_beside_tool_calls_is_not_the_word_none() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    text = template(CHATML).render([USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert "None" not in text


def test_tool_arguments_arrive_as_an_object_where_the_template_writes_json() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
        "{% endfor %}{% endfor %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert template(source).render([message]) == 'f{"x": 1}'


def test_tool_arguments_stay_text_where_the_template_appends_them() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}"
        "{% endfor %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    assert template(source).render([{"role": "assistant", "content": "", "tool_calls": [call]}]) == 'f{"x":1}'


def test_developer_is_system_unless_the_template_knows_it() -> None:
    message = {"role": "developer", "content": "D"}
    assert "<|im_start|>system\nD" in template(CHATML).render([message])
    assert template("{{ messages[0].role }}{# developer #}").render([message]) == "developer"


def test_refusal_is_told_in_the_templates_own_words() -> None:
    with pytest.raises(RequestError, match="roles must alternate user/assistant") as caught:
        template(ALTERNATING).render([USER, USER])
    assert caught.value.status == 400
    with pytest.raises(RequestError, match=r"No user query found in messages\."):
        template(REASONING).render([{"role": "system", "content": "S"}])


@pytest.mark.parametrize(
    "source", ["{{ messages[7].role + 1 }}", "{{ 1 / 0 }}", "{{ messages[0]['content'] + 1 }}"]
)
def test_failing_template_is_a_bad_request(source: str) -> None:
    with pytest.raises(RequestError, match="chat template failed on these messages"):
        template(source).render([USER])


@pytest.mark.parametrize(
    "source", ["{% for x in %}", "{{ a b }}", "{% endfor %}", "{{ x | no_such_filter }}"]
)
def test_template_that_cannot_be_compiled_is_a_model_error(source: str) -> None:
    with pytest.raises(ModelError, match="cannot be compiled"):
        template(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ (''|attr('__class__')) }}{{ ''.__class__.__base__.__subclasses__() }}",
    ],
)
def test_sandbox_holds(source: str) -> None:
    with pytest.raises(RequestError):
        template(source).render([USER])


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
        "{% endmacro %}{{ m() }}",
        "{{ 'x' * 999999999 }}",
        "{{ [0] * 999999999 }}",
        "{{ 999999999 * 'xx' }}",
        "{{ 9 ** 999999999 }}",
        "{{ range(999999999) | list }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_runaway_template_is_stopped(source: str) -> None:
    started_s = time.perf_counter()
    with pytest.raises(RequestError):
        template(source).render([USER])
    assert time.perf_counter() - started_s < 10


def test_arithmetic_still_works() -> None:
    assert one("2 * 3 ~ 'ab' * 2 ~ 2 ** 5") == "6abab32"


def test_long_conversations_stay_within_the_loop_budget() -> None:
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": "word " * 50} for i in range(3001)]
    assert template(CHATML).render(messages).count("<|im_start|>") == 3002


def test_lone_surrogate_is_a_bad_request() -> None:
    with pytest.raises(RequestError):
        template(CHATML).render([{"role": "user", "content": "\ud800"}])


def test_fingerprint_tells_templates_and_days_apart() -> None:
    days = [datetime(2026, 11, day, tzinfo=UTC) for day in (29, 30)]
    prints = {template(CHATML, now=lambda day=day: day).fingerprint for day in days}
    prints |= {template(ALTERNATING, now=lambda: days[0]).fingerprint}
    assert len(prints) == 3
    assert template(CHATML, now=lambda: days[0]).fingerprint in prints
