"""A server's own chat template and tokenizer, asked for: /apply-template and /tokenize, as llama.cpp's server
has them (tools/server/README.md in its repository) and headstart too. Neither computes anything of the model.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from headstart.blame.rendering import Reader
from headstart.errors import ConfigError, HeadstartError, RequestError

__all__ = ["ServerTemplate", "server_reader"]

TIMEOUT_S = 20.0
REFUSALS = (400, 422, 500)
"""llama-server answers 500 where its template raises an error."""


class ServerTemplate:
    """Asks the server at `url` (http or https, a path before its own is fine)."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url} is no address of a server; expected one like http://127.0.0.1:8080")
        self.url = url.rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The prompt text. Raises RequestError in the server's words where its template refuses the messages,
        HeadstartError where the server cannot be asked."""
        asked = {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
        given = {"tools": list(tools or ()), "chat_template_kwargs": kwargs}
        answer = self._ask("/apply-template", asked | {name: value for name, value in given.items() if value})
        return str(answer["prompt"])

    def tokenize(self, text: str) -> Sequence[int]:
        """Raises HeadstartError."""
        asked = {"content": text, "add_special": True, "parse_special": True}
        return [int(token) for token in self._ask("/tokenize", asked)["tokens"]]

    def _ask(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        wanted = "prompt" if path == "/apply-template" else "tokens"
        try:
            status, answer = self._post(path, json.dumps(body))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HeadstartError(f"{self.url}{path} cannot be asked: {error}") from None
        if status in REFUSALS:
            raise RequestError(_words(answer))
        if status != 200 or not isinstance(answer, dict) or wanted not in answer:
            raise HeadstartError(
                f"{self.url} does not tell what its template makes of messages (POST {path}: {status}); "
                "give the model's file or folder in its place"
            )
        return answer

    def _post(self, path: str, body: str) -> tuple[int, Any]:
        make = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=self._timeout_s)
        try:
            connection.request(
                "POST", self._base + path, body.encode("utf-8"), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text


def server_reader(url: str) -> Reader:
    """How the model behind `url` reads. Raises ConfigError where that is no address."""
    template = ServerTemplate(url)
    return Reader(template, template.tokenize)


def _words(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return str(error or answer)[:500]
