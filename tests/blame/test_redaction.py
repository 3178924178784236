"""What is secret is masked, in place, and nothing else is touched."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.blame.redaction import Redactor

KEYS = [
    "sk-proj-abcDEF123456ghiJKL789",
    "sk-ant-api03-AAAA1111bbbb2222",
    "Bearer abc.def-123456789xyz",
    "bearer 0123456789abcdef",
    "Basic dXNlcjpwYXNzd29yZDE=",
    "ghp_" + "a1" * 15,
    "github_pat_" + "b2" * 15,
    "hf_" + "Cc3" * 10,
    "AKIA0123456789ABCDEF",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", KEYS)
def test_keys_are_masked_with_their_length_kept(key: str) -> None:
    redactor = Redactor()
    text = f'before "{key}" after'
    masked = redactor.text(text)
    assert key not in masked
    assert len(masked) == len(text)
    assert masked.startswith('before "[redacted ')
    assert masked.endswith('" after')
    assert redactor.text(text) == masked
    assert Redactor().text(text) != masked


@pytest.mark.parametrize(
    "text",
    [
        "a task-oriented-programming-style of disk-usage-by-directory1 and sk-short1",
        "sk-circle-fade-animation-dots are words; bearer of bad news; basic understanding of things",
        "eyJust text; hf_short; the bearer instrument",
        "",
    ],
)
def test_words_are_left_alone(text: str) -> None:
    assert Redactor().text(text) is text


def test_headers_query_and_users() -> None:
    redactor = Redactor()
    headers = {
        "authorization": "Bearer x", "x-api-key": "short", "cookie": "a=b", "set-cookie": "c", "api-key": "k",
        "x-goog-api-key": "k", "x-auth-token": "t", "proxy-authorization": "p", "user-agent": "agent/1",
        "session_id": "s1", "monkey": "banana", "content-type": "application/json",
    }  # fmt: skip
    kept = {name for name, value in redactor.headers(headers).items() if value == headers[name]}
    assert kept == {"user-agent", "session_id", "monkey", "content-type"}
    assert redactor.query("beta=true&x=%20") == "beta=true&x=%20"
    assert "secret1" not in redactor.query("api-version=2&key=secret1&access_token=secret1")
    body = {
        "metadata": {"user_id": "device_7", "k": "v"},
        "user": "me",
        "tools": [{"headers": {"Authorization": "x y"}}],
    }
    masked = redactor.body(body)
    assert masked["metadata"]["k"] == "v"
    for secret in ("device_7", "'me'", "x y"):
        assert secret not in str(masked)
    assert body["user"] == "me"


@given(st.text(max_size=80), st.sampled_from(KEYS), st.text(max_size=80))
def test_masks_keep_every_place(before: str, key: str, after: str) -> None:
    text = f"{before} {key} {after}"
    masked = Redactor().text(text)
    assert len(masked) == len(text)
    assert key not in masked


def test_a_long_prompt_takes_little_time() -> None:
    text = "the bearer of a basic task-list and a disk-usage report, hf_x and xoxo. " * 14_000
    began = time.perf_counter()
    Redactor().text(text)
    assert time.perf_counter() - began < 0.5


def test_a_document_nested_too_deep_is_no_fault() -> None:
    deep: object = "x"
    for _ in range(900):
        deep = [deep]
    assert "too deep" in str(Redactor().body(deep))
