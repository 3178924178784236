"""What a model makes of text and messages, without computing anything: the endpoints of llama.cpp's server
(tools/server/README.md in its repository), which other local servers have taken over."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from headstart.api.chat_prompt import chat_prompt, chat_text
from headstart.api.offload import offload
from headstart.api.openai_errors import OpenAIRoute
from headstart.api.openai_parse import asked_of, check_tokens, parse
from headstart.api.openai_types import DetokenizeRequest, TokenizeRequest
from headstart.errors import RequestError
from headstart.serving.models import ServedModel

__all__ = ["router"]


def router(model: ServedModel) -> APIRouter:
    """Tokens of texts and messages, texts of tokens, and messages as the model's template writes them."""
    routes = APIRouter(route_class=OpenAIRoute)

    @routes.post("/tokenize")
    async def tokenize(http: Request) -> JSONResponse:
        body = await http.body()
        return JSONResponse(await offload(body, lambda: _tokenize(model, parse(TokenizeRequest, body))))

    @routes.post("/detokenize")
    async def detokenize(http: Request) -> JSONResponse:
        asked = parse(DetokenizeRequest, await http.body())
        text = model.text_of(check_tokens(asked.tokens, model.layout.vocab_size, "tokens"))
        return JSONResponse({"content": text, "prompt": text})

    @routes.post("/apply-template")
    async def apply_template(http: Request) -> JSONResponse:
        body = await http.body()
        return JSONResponse(await offload(body, lambda: _apply_template(model, parse(TokenizeRequest, body))))

    return routes


def _apply_template(model: ServedModel, asked: TokenizeRequest) -> dict[str, Any]:
    if asked.messages is None:
        raise RequestError("send the conversation as messages", param="messages")
    return {"prompt": chat_text(model, asked_of(asked))}


def _tokenize(model: ServedModel, asked: TokenizeRequest) -> dict[str, Any]:
    """Token ids of a text (plain unless `add_special`) or of rendered messages."""
    text = asked.content if asked.content is not None else asked.prompt
    if asked.messages is not None and text is None:
        tokens = chat_prompt(model, asked_of(asked)).tokens
    elif text is not None:
        special = asked.parse_special is not False
        add = bool(asked.add_special or asked.add_special_tokens)
        tokens = (
            model.tokenize_prompt(text)
            if add and special
            else model.tokenize(text, special=special, add_bos=add and model.vocabulary.adds_bos)
        )
    else:
        raise RequestError(
            "send the text as content or prompt, or a conversation as messages", param="content"
        )
    ids = tokens.tolist()
    answer: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": model.layout.context_tokens}
    if asked.with_pieces:
        pieces = model.vocabulary.pieces
        answer["tokens"] = [{"id": token, "piece": pieces[token].decode("utf-8", "replace")} for token in ids]
    return answer
