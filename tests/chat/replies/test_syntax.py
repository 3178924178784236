from __future__ import annotations

import pytest

from headstart.chat.replies.syntax import REASONING_FORMATS, TOOL_FORMATS, syntax_of
from headstart.errors import ConfigError


@pytest.mark.parametrize(
    ("template", "tools", "reasoning"),
    [
        ("<tool_call>\\n{...}\\n</tool_call> <think>\\n\\n</think>", "hermes", "think"),
        ("<tool_call>\\n<function=a>\\n<parameter=b>", "qwen-xml", "none"),
        ("<tool_call>{name}<arg_key> </think>", "glm", "think"),
        ("[TOOL_CALLS][ARGS] [THINK]", "mistral", "mistral"),
        ('<|start_header_id|> <|python_tag|> "parameters": ', "llama3-json", "none"),
        ("[func_name1(params_name1=params_value1)]", "pythonic", "none"),
        ("<｜tool▁calls▁begin｜></think>", "deepseek", "think"),
        ("<start_function_call>", "gemma-function", "none"),
        ("<|tool_call>call: <|channel>thought", "gemma4", "gemma4"),
        ("<|im_start|>", "none", "none"),
    ],
)
def test_the_template_says_the_syntax(template: str, tools: str, reasoning: str) -> None:
    found = syntax_of(template)
    assert (found.tools, found.reasoning) == (tools, reasoning)


def test_names_take_the_templates_place() -> None:
    found = syntax_of("<tool_call>", tools="mistral", reasoning="think")
    assert (found.tools, found.reasoning, found.id_chars) == ("mistral", "think", 9)
    with pytest.raises(ConfigError, match="hermes, qwen-xml"):
        syntax_of("", tools="nothing")
    assert "none" in TOOL_FORMATS and "none" in REASONING_FORMATS
