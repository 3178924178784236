"""A small client of a lab server, and texts to ask it about."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import httpx


def text(salt: str, length: int = 900, *, early: str = "48213", at: int = 460) -> str:
    """`length` characters that no other salt shares, with EARLY planted around `at`; ends with `EARLY=`."""
    dice = random.Random(salt)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ""
    while len(words) < length:
        words += "".join(dice.choice(letters) for _ in range(dice.randint(2, 9))) + " "
    planted = f"{salt}. {words[:at]}EARLY={early}. {words[at:]}"
    return planted[: length - 7] + "\nEARLY="


@dataclass(frozen=True)
class Reply:
    """`cached` None: the reply does not say. `scores`: the likeliest tokens' log-probabilities, token by
    token. `status` 0: the connection broke."""

    status: int
    text: str = ""
    cached: int | None = None
    prompt_tokens: int = 0
    scores: tuple[dict[str, float], ...] = ()
    took_s: float = 0.0
    body: Any = None

    def differs(self, other: Reply) -> float:
        """Largest difference of a log-probability among the tokens both name, up to the first that is not
        the same; large where the first tokens have no likely one in common."""
        found = [0.0]
        for mine, theirs in zip(self.scores, other.scores, strict=False):
            both = mine.keys() & theirs.keys()
            found += [abs(mine[token] - theirs[token]) for token in both] or [99.0]
            if max(mine, key=mine.__getitem__) != max(theirs, key=theirs.__getitem__):
                break
        return max(found)


class Asker:
    """Asks one server, in completions."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30.0, trust_env=False)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, prompt: str, **fields: Any) -> Reply:
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 5, **fields}
        begun_s = time.perf_counter()
        try:
            answer = self._http.post("/v1/completions", json=body)
        except httpx.HTTPError:
            return Reply(0)
        took_s = time.perf_counter() - begun_s
        if answer.status_code != httpx.codes.OK:
            return Reply(answer.status_code, took_s=took_s, body=answer.json())
        got = answer.json()
        choice = got["choices"][0]
        return Reply(
            200,
            choice["text"],
            got["usage"].get("prompt_tokens_details", {}).get("cached_tokens"),
            got["usage"]["prompt_tokens"],
            tuple((choice["logprobs"] or {}).get("top_logprobs") or ()),
            took_s,
            got,
        )

    def cold(self, prompt: str, **fields: Any) -> Reply:
        """The same without the cache."""
        return self.ask(prompt, cache_prompt=False, **fields)

    def stream(self, prompt: str, **fields: Any) -> list[tuple[float, str]]:
        """Every line of a stream that says something, with its arrival in seconds."""
        body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "stream": True, **fields}
        body |= {"stream_options": {"include_usage": True}}
        begun_s = time.perf_counter()
        with self._http.stream("POST", "/v1/completions", json=body) as answer:
            return [(time.perf_counter() - begun_s, line) for line in answer.iter_lines() if line]

    def leave(self, prompt: str, after_s: float) -> None:
        """Asks, and closes the connection after `after_s`."""
        try:
            self._http.post(
                "/v1/completions", json={"prompt": prompt, "max_tokens": 8}, timeout=httpx.Timeout(after_s)
            )
        except httpx.TimeoutException:
            return

    def read_tokens(self) -> float:
        """Prompt tokens read so far, by the server's metrics."""
        lines = self._http.get("/metrics").text.splitlines()
        ours = [line for line in lines if line.startswith("headstart_prompt_tokens_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in ours if 'kind="restored"' not in line)
