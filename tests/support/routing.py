"""What routers are tested with: a registry from a table, candidates that are liked, and models that fail as told."""

import asyncio
from decimal import Decimal

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool

from langchain_ctxwin import ModelInfo, ModelRegistry, RoutingConfig
from langchain_ctxwin.core.model_info import model_name
from langchain_ctxwin.models.sources import ExplicitSource, ProfileSource
from langchain_ctxwin.routing import ModelRouter
from support.fakes import ScriptedChatModel, SdkError, exact_count

ANSWER_SHARE = 0.25  # of a window, kept for the answer where nobody says otherwise


def likely(chances=None, config=None):
    """Return what has a router take the candidate that is given the most, by default the dearest."""
    settings = {
        "complexity": "high",
        **(config.model_dump(exclude_defaults=True) if config else {}),
    }
    return {"strengths": chances, "config": RoutingConfig(**settings)}


def table_registry(infos):
    """Return a registry that knows these models, and no others."""
    return ModelRegistry([ExplicitSource(infos)])


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class BreakingChatModel(ScriptedChatModel):
    """Streams two chunks, then its connection breaks."""

    def _stream(self, messages, *args, **kwargs):
        self._answered(messages, {})
        yield ChatGenerationChunk(message=AIMessageChunk("half an "))
        yield ChatGenerationChunk(message=AIMessageChunk("ans"))
        raise ConnectionError("the connection was reset")


def exact(messages, tools=None):
    """Count as the scripted models do; a plain function, so the router adds its headroom."""
    return exact_count(list(messages), tools=tools)


def info(name, window, price=None, **values):
    """Return facts with an output price of four times the input price and cached input at a tenth."""
    prices = {}
    if price is not None:
        prices = {
            "input_price": Decimal(price),
            "output_price": 4 * Decimal(price),
            "cache_read_price": Decimal(price) / 10,
        }
    return ModelInfo(name=name, context_window=window, **{**prices, **values})


def scripted(
    name,
    window,
    kind=ScriptedChatModel,
    **values,
):
    """Return a scripted model of a window that it states and enforces."""
    limit = values.pop("input_limit", int(window * (1 - ANSWER_SHARE)))
    return kind(
        model_name=name,
        input_limit=limit,
        profile={"max_input_tokens": window},
        **values,
    )


def answered(model, text, how):
    """Call a model in one of the four ways."""

    async def astreamed():
        return add_ai_message_chunks(*[chunk async for chunk in model.astream(text)])

    if how == "invoke":
        return model.invoke(text)
    if how == "ainvoke":
        return asyncio.run(model.ainvoke(text))
    return (
        add_ai_message_chunks(*model.stream(text))
        if how == "stream"
        else asyncio.run(astreamed())
    )


every_way = pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])


def router(*models, prices=None, **options):
    """Return a router over models whose windows are those they state; later models are dearer unless told."""
    known = {}
    for rank, model in enumerate(models):
        name, window = model_name(model), (model.profile or {}).get("max_input_tokens")
        price = (prices or {}).get(name, str(rank + 1))
        states = [one.capabilities for one in ProfileSource([model]).fetch(None)]
        can = {"capabilities": states[0]} if states else {}
        known[name] = info(name, window, price, **can)
    chances, config = options.pop("chances", None), options.pop("config", None)
    return ModelRouter(
        list(models), table_registry(known), **likely(chances, config), **options
    )


def failing(status, text, **values):
    """Return what makes an error of a provider, anew for each call."""
    return lambda: SdkError(
        f"Error code: {status} - {text}", status_code=status, **values
    )


busy = failing(429, "rate limit reached for requests per minute")
unavailable = failing(503, "the server is overloaded")
invalid = failing(400, "messages[3].role is missing", code="invalid_request_error")
FAILURES = {
    "429": busy,
    "503": unavailable,
    "401": failing(401, "invalid api key", code="invalid_api_key"),
    "404": failing(404, "model not found", code="model_not_found"),
    "timeout": lambda: TimeoutError("no answer within 60 s"),
    "connection": lambda: ConnectionError("connection refused"),
}
