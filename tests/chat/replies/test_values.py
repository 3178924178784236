from __future__ import annotations

from typing import Any

import pytest

from headstart.chat.replies.values import value_of


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ("5", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("5.5", {"type": "integer"}, "5.5"),
        ("5", {"type": "number"}, 5),
        ("True", {"type": "boolean"}, True),
        ("null", {"type": ["string", "null"]}, None),
        ("null", {"type": "string"}, "null"),
        ("abc", {"type": ["string", "null"]}, "abc"),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("[1, 2", {"type": "array"}, "[1, 2"),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ("7", {"enum": ["7", "8"]}, "7"),
        ("7", {}, 7),
        ("seven", {}, "seven"),
        ("1e999", {}, "1e999"),
    ],
)
def test_a_text_by_its_schema(text: str, schema: Any, value: Any) -> None:
    found = value_of(text, schema)
    assert found == value and type(found) is type(value)
