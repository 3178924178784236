"""The OpenAPI document is true: it names what there is, and whatever fits it, or does not, gets an answer.

schemathesis makes requests from the document, some that fit it and some that do not, the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks as held

from headstart.api.openapi import ENDPOINTS, document
from headstart.cli.server import assemble
from headstart.config import Settings
from headstart.engines.toy import ToyEngine
from tests.api.served import http_server

FITTING, UNFIT, BARE = 50, 30, 10
"""Requests an endpoint: with a body that fits the document, with one that does not, and without."""
CHECKS = [
    not_a_server_error,
    held.status_code_conformance,
    held.content_type_conformance,
    held.response_schema_conformance,
]


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    """A context this small keeps every reply short."""
    scheduler, one = assemble(Settings(), ToyEngine(context_tokens=128), load_s=0.0)
    scheduler.start()
    yield one
    scheduler.stop()


@pytest.fixture(scope="module")
def url(app: FastAPI) -> Iterator[str]:
    with http_server(app) as one:
        yield one


@pytest.fixture(scope="module")
def told(url: str) -> Any:
    one = schemathesis.openapi.from_dict(short(httpx.get(f"{url}/openapi.json").json()))
    one.config.update(base_url=url)
    return one


def short(schema: Any) -> Any:
    """The same with short lists and flat free objects in bodies: longer ones take long to make."""
    if isinstance(schema, list):
        return [short(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value if name == "responses" else short(value) for name, value in schema.items()}
    if found.get("type") == "array":
        found["maxItems"] = 3
    if found.get("type") == "object" and "properties" not in found:
        found |= {"maxProperties": 2, "additionalProperties": {"type": ["string", "integer", "null"]}}
    return found


def test_it_is_served_and_names_every_endpoint(url: str) -> None:
    served = httpx.get(f"{url}/openapi.json").json()
    assert served["openapi"].startswith("3.1")
    named = {(method, path) for path, methods in served["paths"].items() for method in methods}
    assert named == set(ENDPOINTS)
    assert "messages" in served["components"]["schemas"]["ChatRequest"]["required"]
    schemathesis.openapi.from_dict(served).validate()


def test_an_endpoint_that_is_not_described_is_found() -> None:
    async def nothing() -> None: ...

    with pytest.raises(KeyError):
        document([APIRoute("/v1/new", nothing, methods=["POST"])])


@pytest.mark.parametrize(("method", "path"), sorted(ENDPOINTS), ids=lambda word: word)
def test_whatever_is_sent_is_answered_as_the_document_says(told: Any, method: str, path: str) -> None:
    if not ENDPOINTS[method, path].bodies:
        send(told[path][method], GenerationMode.POSITIVE, BARE)
        return
    send(told[path][method], GenerationMode.POSITIVE, FITTING)
    send(told[path][method], GenerationMode.NEGATIVE, UNFIT)


def send(operation: Any, mode: GenerationMode, count: int) -> None:
    with requests.Session() as session:

        @settings(
            max_examples=count,
            phases=[Phase.generate],
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def answered(case: Case) -> None:
            case.validate_response(case.call(session=session), checks=CHECKS)

        answered()
