"""Requests for embeddings are told what to run instead, each in its own dialect."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
from fastapi.testclient import TestClient

from headstart.serving.models import ServedModel
from tests.api.served import app_for, client_for, http_server, served_toy


@pytest.fixture(scope="module")
def model() -> Iterator[ServedModel]:
    with served_toy() as one:
        yield one


@pytest.fixture(scope="module")
def client(model: ServedModel) -> TestClient:
    return client_for(model)


@pytest.mark.parametrize("path", ["/api/embed", "/api/embeddings"])
def test_ollamas(client: TestClient, path: str) -> None:
    answer = client.post(path, json={"model": "toy", "input": "x", "prompt": "x"})
    assert (answer.status_code, list(answer.json())) == (501, ["error"])
    assert "generation only" in answer.json()["error"] and "--embeddings" in answer.json()["error"]


def test_openais_sdk_gets_its_error_at_the_first_try(model: ServedModel) -> None:
    sent: list[httpx.Request] = []
    with http_server(app_for(model)) as url:
        http = httpx.Client(event_hooks={"request": [sent.append]})
        sdk = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=2, http_client=http)
        with pytest.raises(openai.NotFoundError, match=r"generation only.*--embeddings") as caught:
            sdk.embeddings.create(model="toy", input="x")
    assert (caught.value.code, caught.value.param) == ("embeddings_not_supported", "model")
    assert len(sent) == 1
