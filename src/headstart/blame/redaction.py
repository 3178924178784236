"""Keys and tokens out of what is kept.

A secret is replaced by a mask of the same length that is equal wherever the secret was equal, within one
recording: places in the text and differences between turns stay what they were.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

_SECRET_NAME = re.compile(
    r"(?:^|[-_. ])(?:authorization|authentication|auth|cookie2?|password|passwd|secret|credentials?|signature"
    r"|token|apikey|key|sig|jwt)\Z",
    re.IGNORECASE,
)
_SECRET_FIELDS = frozenset(
    {"authorization", "authorization_token", "api_key", "apikey", "x-api-key", "password", "secret"}
    | {"access_token", "auth_token", "client_secret", "cookie"}
)
_OF_USER = ("user", "safety_identifier")
_DEEPEST = 200

# By what a key begins with, which is quickly looked for, its pattern. A digit somewhere keeps words out.
_KEYS = {
    sign: re.compile(rest, re.DOTALL)
    for sign, rest in {
        "sk-": r"sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}",
        "earer ": r"earer +(?=[A-Za-z_./+~-]*\d)[A-Za-z0-9._~+/-]{12,}=*",
        "asic ": r"asic +(?=[A-Za-z/+]*\d)[A-Za-z0-9+/]{12,}=*",
        "ghp_": r"ghp_[A-Za-z0-9]{20,}",
        "gho_": r"gho_[A-Za-z0-9]{20,}",
        "ghs_": r"ghs_[A-Za-z0-9]{20,}",
        "github_pat_": r"github_pat_[A-Za-z0-9_]{20,}",
        "glpat-": r"glpat-[A-Za-z0-9_-]{20,}",
        "hf_": r"hf_[A-Za-z0-9]{20,}",
        "gsk_": r"gsk_[A-Za-z0-9]{20,}",
        "xox": r"xox[abeprs]-[A-Za-z0-9-]{10,}",
        "AKIA": r"AKIA[0-9A-Z]{16}",
        "AIza": r"AIza[A-Za-z0-9_-]{30,}",
        "eyJ": r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+",
        "-----BEGIN ": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    }.items()
}
# These are looked for without their first letter, which may be a capital.
_WORDS = {"earer ": "Bb", "asic ": "Bb"}


def _spans(text: str) -> list[tuple[int, int]]:
    """Where keys are in `text`, in order and apart from each other."""
    found = []
    for sign, pattern in _KEYS.items():
        at = text.find(sign)
        while at >= 0:
            begin = at - 1 if sign in _WORDS else at
            match = pattern.match(text, at)
            known = begin >= 0 and (sign not in _WORDS or text[begin] in _WORDS[sign])
            if match is not None and known and not (begin and text[begin - 1].isalnum()):
                found.append((begin, match.end()))
            at = text.find(sign, match.end() if match else at + len(sign))
    found.sort()
    apart: list[tuple[int, int]] = []
    for begin, end in found:
        if apart and begin < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((begin, end))
    return apart


class Redactor:
    """Masks secrets; the masks of two redactors have nothing in common."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)

    def mask(self, secret: str) -> str:
        """What stands in place of `secret`, as long as it where it is not very short."""
        mark = hmac.digest(self._salt, secret.encode("utf-8", "surrogatepass"), "sha256").hex()[:8]
        return f"[redacted {mark}]".ljust(len(secret), "*")

    def text(self, text: str) -> str:
        """`text` without what looks like a key."""
        spans = _spans(text)
        if not spans:
            return text
        pieces, after = [], 0
        for begin, end in spans:
            pieces += [text[after:begin], self.mask(text[begin:end])]
            after = end
        return "".join([*pieces, text[after:]])

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {
            name: self.mask(value) if _SECRET_NAME.search(name) else self.text(value)
            for name, value in headers.items()
        }

    def query(self, query: str) -> str:
        """A query string without its keys; as it was where there are none."""
        pairs = parse_qsl(query, keep_blank_values=True)
        kept = [(name, self.mask(v) if _SECRET_NAME.search(name) else self.text(v)) for name, v in pairs]
        if kept == pairs:
            return query
        return "&".join(f"{quote(name)}={quote(value)}" for name, value in kept)

    def body(self, body: Any) -> Any:
        """A request body without secrets: what looks like a key, who the user is, what keys are named by."""
        if isinstance(body, dict):
            body = dict(body)
            metadata = body.get("metadata")
            if isinstance(metadata, dict) and isinstance(metadata.get("user_id"), str):
                body["metadata"] = {**metadata, "user_id": self.mask(metadata["user_id"])}
            body |= {name: self.mask(body[name]) for name in _OF_USER if isinstance(body.get(name), str)}
        return self._parts(body, 0)

    def _parts(self, part: Any, depth: int) -> Any:
        if isinstance(part, str):
            return self.text(part)
        if depth > _DEEPEST:
            return "[redacted: nested too deep]" if isinstance(part, dict | list) else part
        if isinstance(part, dict):
            return {self.text(key): self._field(key, one, depth) for key, one in part.items()}
        if isinstance(part, list):
            return [self._parts(one, depth + 1) for one in part]
        return part

    def _field(self, key: str, value: Any, depth: int) -> Any:
        if isinstance(value, str) and key.lower() in _SECRET_FIELDS:
            return self.mask(value)
        return self._parts(value, depth + 1)
