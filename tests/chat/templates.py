"""Chat templates for tests: SmolLM2's own, and short ones with features that others have."""

from __future__ import annotations

from functools import cache

import gguf

from tests.fixtures.gguf_models import smollm2_path

CHATML = """\
{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}
<think>

</think>

{% endif %}
{% endif %}
"""

ALTERNATING = """\
{{ bos_token }}
{%- if messages[0].role == 'system' -%}
    {%- set first = messages[0].content | trim + '\n\n' -%}
    {%- set talk = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}
    {%- set talk = messages -%}
{%- endif -%}
{%- for message in talk -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {{- first if loop.first else '' }}{{ message.content | trim }}{{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""
"""As Gemma's: a system text inside the first user turn, alternation enforced, content trimmed."""

REASONING = """\
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- if ns.last < 0 -%}{{ raise_exception('No user query found in messages.') }}{%- endif -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\n' -}}
    {%- if message.role == 'assistant' and loop.index0 > ns.last -%}
        {{- '<think>\n' + (message.reasoning_content or '') + '\n</think>\n\n' -}}
    {%- endif -%}
    {{- message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n<think>\n' -}}{%- endif -%}
"""
"""As Qwen's: refuses a conversation without a user, drops the reasoning of earlier turns."""

PARTS_ONLY = """\
{%- for message in messages -%}{{ '<|' + message.role + '|>' }}
{%- for part in message.content -%}{%- if part.type == 'text' -%}{{ part.text }}{%- endif -%}{%- endfor -%}
{%- endfor -%}
"""


@cache
def smollm2_template() -> str:
    return str(gguf.GGUFReader(smollm2_path()).fields["tokenizer.chat_template"].contents())
