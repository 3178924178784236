"""The OpenAPI document of the server, served as `/openapi.json`.

Paths and their parameters come from the routes, bodies from the types that parse them, so the document
cannot say what the server does not do. What no route tells is written down here: what an endpoint is for,
in which shape it refuses, and whether it streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from headstart import __version__
from headstart.api.anthropic_types import MessageCountRequest, MessageRequest
from headstart.api.metrics import CONTENT_TYPE
from headstart.api.ollama_stream import NDJSON
from headstart.api.ollama_types import ChatAsk, GenerateAsk, ShowAsk
from headstart.api.openai_types import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from headstart.api.responses_types import ResponseRequest
from headstart.api.sse import EVENTS

__all__ = ["ENDPOINTS", "Endpoint", "document"]

_JSON = "application/json"
_SCHEMAS = "#/components/schemas/"


@dataclass(frozen=True)
class Endpoint:
    """`bodies`: the types one of which a request has. `refuses`: the schema of its errors. `kinds`: media
    types of what it answers. `also`: statuses that are answered as 200 is."""

    summary: str
    bodies: tuple[type[BaseModel], ...] = ()
    refuses: str = "OpenAIError"
    kinds: tuple[str, ...] = (_JSON,)
    also: tuple[str, ...] = ()


ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("get", "/health"): Endpoint("Whether the server works; 503 where it does not", also=("503",)),
    ("get", "/metrics"): Endpoint("Counts and times for Prometheus", kinds=(CONTENT_TYPE,)),
    ("post", "/v1/chat/completions"): Endpoint("A reply to messages", (ChatRequest,), kinds=(_JSON, EVENTS)),
    ("post", "/v1/completions"): Endpoint(
        "A continuation of text or token ids", (CompletionRequest,), kinds=(_JSON, EVENTS)
    ),
    ("post", "/v1/embeddings"): Endpoint("Refused: this server makes no embeddings"),
    ("get", "/v1/models"): Endpoint("The model, and what was found out about it when it was loaded"),
    ("get", "/v1/models/{name}"): Endpoint("One model"),
    ("get", "/v1/headstart/requests"): Endpoint("The cache reports of the last requests"),
    ("get", "/v1/headstart/requests/{request_id}"): Endpoint("The cache report of one of the last requests"),
    ("post", "/v1/responses"): Endpoint(
        "OpenAI's Responses: a reply to items", (ResponseRequest,), kinds=(_JSON, EVENTS)
    ),
    ("get", "/v1/responses/{response_id}"): Endpoint("A stored response"),
    ("delete", "/v1/responses/{response_id}"): Endpoint("Forgets a stored response"),
    ("post", "/v1/messages"): Endpoint(
        "Anthropic's Messages: a reply to messages", (MessageRequest,), "AnthropicError", (_JSON, EVENTS)
    ),
    ("post", "/v1/messages/count_tokens"): Endpoint(
        "How many tokens a prompt has", (MessageCountRequest,), "AnthropicError"
    ),
    ("post", "/api/chat"): Endpoint("Ollama's reply to messages", (ChatAsk,), "OllamaError", (_JSON, NDJSON)),
    ("post", "/api/generate"): Endpoint(
        "Ollama's reply to a prompt", (GenerateAsk,), "OllamaError", (_JSON, NDJSON)
    ),
    ("get", "/api/tags"): Endpoint("The models there are", refuses="OllamaError"),
    ("get", "/api/ps"): Endpoint("The models that are loaded, with their context", refuses="OllamaError"),
    ("post", "/api/show"): Endpoint("About a model", (ShowAsk,), "OllamaError"),
    ("get", "/api/version"): Endpoint("The server's version", refuses="OllamaError"),
    ("post", "/tokenize"): Endpoint("Token ids of text or messages", (TokenizeRequest,)),
    ("post", "/detokenize"): Endpoint("Text of token ids", (DetokenizeRequest,)),
    ("post", "/apply-template"): Endpoint("Messages as the chat template writes them", (TokenizeRequest,)),
    ("get", "/v1/headstart/cache"): Endpoint("What each tier of the cache holds"),
    ("post", "/v1/headstart/cache/probe"): Endpoint(
        "What of a prompt would be restored", (ChatRequest, CompletionRequest)
    ),
}

_WORDS = {"type": "string"}
_ERRORS: Mapping[str, Any] = {
    "OpenAIError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": _WORDS,
                    "type": _WORDS,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
    "AnthropicError": {
        "type": "object",
        "required": ["type", "error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": _WORDS, "message": _WORDS},
            },
        },
    },
    "OllamaError": {"type": "object", "required": ["error"], "properties": {"error": _WORDS}},
}


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of an application with these routes. Raises KeyError for one that ENDPOINTS lacks."""
    told = get_openapi(title="headstart", version=__version__, routes=routes)
    kinds = {body for endpoint in ENDPOINTS.values() for body in endpoint.bodies}
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in ordered], ref_template=_SCHEMAS + "{model}"
    )
    for path, operations in told["paths"].items():
        for method in operations:
            operations[method].update(_operation(ENDPOINTS[method, path]))
    told["components"] = {"schemas": {**schemas["$defs"], **_ERRORS}}
    return told


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    refused = {
        "description": "An error that says what was wrong and what to do",
        "content": {_JSON: {"schema": {"$ref": _SCHEMAS + endpoint.refuses}}},
    }
    answered = {
        "description": "The answer",
        "content": {kind: {"schema": {"type": "object"}} if kind == _JSON else {} for kind in endpoint.kinds},
    }
    told: dict[str, Any] = {
        "summary": endpoint.summary,
        "responses": {
            **dict.fromkeys(("200", *endpoint.also), answered),
            "4XX": refused,
            "5XX": refused,
        },
    }
    if endpoint.bodies:
        options = [{"$ref": _SCHEMAS + body.__name__} for body in endpoint.bodies]
        schema = options[0] if len(options) == 1 else {"anyOf": options}
        told["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return told
