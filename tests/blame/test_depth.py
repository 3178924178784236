"""The steps below the bodies over whole recordings, with the template and tokenizer of a real model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headstart.blame.bodies import prompt_of
from headstart.blame.depth import Depth
from headstart.blame.exchange import Exchange, Reply, Usage
from headstart.blame.finding import Culprit, Finding, Step
from headstart.blame.rendering import Reader, with_reply
from headstart.blame.verdict import TurnVerdict, judge, totals
from headstart.chat.template import ChatTemplate
from headstart.cli.readers import reader_of
from headstart.errors import HeadstartError
from tests.blame.corpus import front_cases, history_cases
from tests.blame.corpus.case import Case
from tests.blame.corpus.clean import CLEAN
from tests.blame.corpus.history import CHAT
from tests.blame.test_rendered import EMPTY_THINKING, FORGETS_THINKING, HOISTS, PLAIN, words

WITH_TOOLS = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Reader:
    """SmolLM2's tokenizer, with a template that renders tools and calls too."""
    return Reader(ChatTemplate(WITH_TOOLS, bos="", eos=""), reader_of("embedded").tokenize)


def alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How many letters or tokens both begin with."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def counted(
    reader: Reader, sent: Sequence[Exchange], resumed: dict[int, int] | None = None
) -> list[Exchange]:
    """The exchanges with the counts of a server of this template that resumes at the very token, or where
    `resumed` says by number."""
    found: list[Exchange] = []
    held: list[list[int]] = []
    for exchange in sent:
        text = reader.text(prompt_of(exchange.dialect, exchange.body))
        tokens = list(reader.tokens(text) or ())
        cached = max((alike(tokens, one) for one in held), default=0)
        cached = (resumed or {}).get(exchange.number, min(cached, len(tokens) - 1))
        said = with_reply(prompt_of(exchange.dialect, exchange.body), exchange.reply)
        whole = list(reader.tokens(reader.text(said, to_generate=False).rstrip()) or ())
        held += [tokens, whole]
        found.append(replace(exchange, usage=Usage(len(tokens), cached, len(whole) - len(tokens))))
    return found


def finding_at(verdicts: Sequence[TurnVerdict], number: int) -> Finding:
    found = next(one.finding for one in verdicts if one.turn.exchange.number == number)
    assert found is not None
    return found


BODY_CASES = [case for case in (*front_cases.CASES, *history_cases.CASES) if case.path is not None]


@pytest.mark.parametrize("case", BODY_CASES, ids=lambda case: f"{case.cause}: {case.name}")
def test_the_place_is_exact_to_the_character_and_token_of_the_rendered_prompt(
    case: Case, tokenizer: Reader
) -> None:
    sent = counted(tokenizer, case.sent())
    depth = Depth(tokenizer)
    verdict = next(
        one for one in judge(sent, depth) if one.turn.exchange.number == case.number and one.turn.before
    )
    assert not depth.problems
    found = verdict.finding
    if found is None or found.step is not Step.BODY or found.tokens_behind is None:
        return
    assert verdict.turn.before is not None and verdict.turn.before.prompt and verdict.turn.prompt
    before = tokenizer.text(verdict.turn.before.prompt, to_generate=False)
    after = tokenizer.text(verdict.turn.prompt)
    assert found.char == alike(before, after)
    then, now = tokenizer.tokens(before), tokenizer.tokens(after)
    assert then is not None and now is not None
    assert found.token == alike(list(then), list(now))
    assert found.tokens_behind == len(now) - found.token


def test_most_cases_have_a_place_in_tokens(tokenizer: Reader) -> None:
    """So that the test above does not pass by looking at nothing."""
    placed = 0
    for case in BODY_CASES:
        verdicts = judge(counted(tokenizer, case.sent()), Depth(tokenizer))
        placed += any(one.finding and one.finding.token is not None for one in verdicts)
    assert placed >= 0.8 * len(BODY_CASES)


# In "trimmed but reused" the counts are the point, and they are made anew here.
@pytest.mark.parametrize("name", [name for name in CLEAN if name != "trimmed but reused"])
def test_nobody_is_blamed_by_the_rendered_prompts_either(name: str, tokenizer: Reader) -> None:
    try:
        sent = counted(tokenizer, CLEAN[name]())
    except (ValueError, HeadstartError):
        return  # a session with a body that is none
    assert [one.finding and one.finding.cause for one in judge(sent, Depth(tokenizer)) if one.finding] == []


def test_a_late_change_is_the_clients_and_what_was_read_before_it_the_servers(tokenizer: Reader) -> None:
    case = next(case for case in BODY_CASES if case.cause == "HISTORY_REWRITTEN")
    right = counted(tokenizer, case.sent())
    place = finding_at(judge(right, Depth(tokenizer)), case.number).token
    assert place is not None and place > 300
    sent = counted(tokenizer, case.sent(), {case.number: 100})
    verdicts = judge(sent, Depth(tokenizer))
    verdict = next(one for one in verdicts if one.turn.exchange.number == case.number)
    assert verdict.finding is not None and verdict.finding.cause == "HISTORY_REWRITTEN"
    assert [(one.cause, one.culprit, one.tokens_lost) for one in verdict.also] == [
        ("SERVER_GAP", Culprit.SERVER, place - 100)
    ]
    assert verdict.tokens_lost == (verdict.finding.tokens_lost or 0) + place - 100
    assert {one.cause for one in totals(verdicts)} == {"HISTORY_REWRITTEN", "SERVER_GAP"}


def chat(*said: tuple[str, str], number: int = 1, reply: str = "", **more: object) -> Exchange:
    messages = [{"role": role, "content": text} for role, text in said]
    return Exchange(number, 0.0, CHAT, "/v1/chat/completions", {"messages": messages} | more, Reply(reply))


START = (("system", "Be short."), ("user", "What is two and two? " + "Think about it. " * 20))
NEXT = (*START, ("assistant", "Four."), ("user", "And three?"))


@pytest.mark.parametrize(
    ("source", "cause", "culprit"),
    [(PLAIN, None, None), (EMPTY_THINKING, "TEMPLATE_SUFFIX", Culprit.TEMPLATE)],
)
def test_a_template_that_ends_prompts_otherwise_is_named_before_the_server(
    source: str, cause: str | None, culprit: Culprit | None
) -> None:
    reader = Reader(ChatTemplate(source, bos="", eos=""), words)
    one, other = chat(*START, reply="Four."), chat(*NEXT, number=2)
    verdict = judge([one, other], Depth(reader))[1]
    found = verdict.finding
    assert (found and found.cause, found and found.culprit) == (cause, culprit)


def test_a_template_that_hoists_is_named_and_the_server_is_not() -> None:
    reader = Reader(ChatTemplate(HOISTS, bos="", eos=""), words)
    more = (*NEXT[:3], ("system", "Ten turns left. " * 10), ("user", "And three?"))
    sent = counted(reader, [chat(*START, reply="Four."), chat(*more, number=2)])
    found = finding_at(judge(sent, Depth(reader)), 2)
    assert (found.cause, found.culprit, found.step) == ("SYSTEM_HOISTED", Culprit.TEMPLATE, Step.RENDERED)
    assert found.token is not None


def test_where_the_server_lost_nothing_the_template_is_not_named() -> None:
    """headstart and others build the next prompt from what was generated."""
    reader = Reader(ChatTemplate(EMPTY_THINKING, bos="", eos=""), words)
    sent = counted(reader, [chat(*START, reply="Four."), chat(*NEXT, number=2)])
    kept = (sent[0].usage.prompt or 0) + 20
    sent[1] = replace(
        sent[1], usage=replace(sent[1].usage, cached=min(kept, (sent[1].usage.prompt or 0) - 1))
    )
    assert judge(sent, Depth(reader))[1].finding is None


def test_a_template_that_is_not_the_servers_says_nothing_and_that_it_did() -> None:
    reader = Reader(ChatTemplate(EMPTY_THINKING, bos="", eos=""), words)
    sent = [chat(*START, reply="Four."), chat(*NEXT, number=2)]
    sent = [replace(one, usage=Usage(1000, 0, 20)) for one in sent]
    depth = Depth(reader)
    verdict = judge(sent, depth)[1]
    assert verdict.finding is not None and verdict.finding.culprit is Culprit.SERVER
    assert sum(depth.problems.values()) >= 1
    assert "other tokens" in next(iter(depth.problems))


def test_a_change_that_the_template_leaves_out_has_no_effect() -> None:
    """Nothing of a call's id or a message's name is rendered here; the tools are not either."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("read", "write")]
    one = chat(*START, reply="Four.", tools=tools)
    other = chat(*NEXT, number=2, tools=tools[::-1])
    reader = Reader(ChatTemplate(PLAIN, bos="", eos=""), words)
    assert finding_at(judge([one, other]), 2).cause == "TOOLS_REORDERED"
    found = finding_at(judge([one, other], Depth(reader)), 2)
    assert found.cause == "SHAPE_ONLY"
    sent = counted(reader, [one, other])
    assert judge(sent, Depth(reader))[1].finding is None
    short = counted(reader, [one, other], {2: 0})
    assert finding_at(judge(short, Depth(reader)), 2).culprit is Culprit.SERVER


def test_thinking_that_the_template_drops_is_the_templates() -> None:
    reader = Reader(ChatTemplate(FORGETS_THINKING, bos="", eos=""), words)
    thought = {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two make four. " * 9}
    first = chat(*START, reply="Done.")
    first.body["messages"] += [thought, {"role": "tool", "tool_call_id": "a", "content": "ok"}]
    second = chat(*START, number=2)
    second.body["messages"] = [
        *first.body["messages"],
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And three?"},
    ]
    found = finding_at(judge(counted(reader, [first, second]), Depth(reader)), 2)
    assert (found.cause, found.culprit) == ("THINKING_STRIPPED", Culprit.TEMPLATE)


class Gone:
    """A template whose server does not answer."""

    def render(self, *_: object, **__: object) -> str:
        raise HeadstartError("http://127.0.0.1:9 cannot be asked: refused")


def test_a_server_that_does_not_answer_is_told_of_and_the_verdict_stands() -> None:
    case = next(case for case in BODY_CASES if case.cause == "TIMESTAMP")
    depth = Depth(Reader(Gone()))
    assert finding_at(judge(case.sent(), depth), case.number).cause == "TIMESTAMP"
    assert list(depth.problems) == ["http://127.0.0.1:9 cannot be asked: refused"]


def test_a_reply_that_came_back_changed_has_its_place_in_the_reply() -> None:
    reader = Reader(ChatTemplate(PLAIN, bos="", eos=""), words)
    said = "Four. It is four because two and two are two pairs, and pairs of two add up. " * 3
    back = said.replace("pairs, and", "pairs; and", 1)
    more = (*START, ("assistant", back), ("user", "And three?"))
    sent = counted(reader, [chat(*START, reply=said), chat(*more, number=2)])
    found = finding_at(judge(sent, Depth(reader)), 2)
    assert (found.step, found.culprit) == (Step.GENERATED, Culprit.CLIENT)
    text = reader.text(prompt_of(CHAT, sent[1].body))
    assert found.char == text.index("pairs; and") + len("pairs")
    assert found.token == found.char // 2


def test_a_template_that_refuses_the_messages_is_told_of_and_blames_nobody() -> None:
    """The server answered: its own template did not refuse."""
    source = "{{ raise_exception('no tools here') }}"
    depth = Depth(Reader(ChatTemplate(source, bos="", eos=""), words))
    assert judge([chat(*START, reply="Four."), chat(*NEXT, number=2)], depth)[1].finding is None
    assert any("no tools here" in problem for problem in depth.problems)
