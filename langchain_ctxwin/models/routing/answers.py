"""What comes back from a candidate: its answer or its chunks, with the route written on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langchain_ctxwin.models.routing.calling import Call
from langchain_ctxwin.models.routing.failures import EMPTY_STREAM

# `_generate_with_cache` and `_stream` belong to BaseChatModel: an `invoke` would be a run of its own inside ours, and
# every handler would then count its tokens, and show its chunks, twice.


def answer_of(call: Call, messages: list[BaseMessage], stop: list[str] | None) -> ChatResult:
    """Call a candidate under its own cache and rate limiter."""
    return call.model._generate_with_cache(messages, stop=stop, **call.arguments)  # noqa: SLF001  # see above


async def aanswer_of(call: Call, messages: list[BaseMessage], stop: list[str] | None) -> ChatResult:
    """Like `answer_of`, for async runs."""
    return await call.model._agenerate_with_cache(messages, stop=stop, **call.arguments)  # noqa: SLF001  # see above


def chunks_of(
    call: Call, messages: list[BaseMessage], stop: list[str] | None, run: dict[str, Any]
) -> Iterator[ChatGenerationChunk]:
    """Stream from a candidate under its own rate limiter; one that does not stream answers in one chunk."""
    if not _streams(call, async_api=False):
        yield _as_chunk(answer_of(call, messages, stop))
        return
    if call.model.rate_limiter:
        call.model.rate_limiter.acquire(blocking=True)
    yield from call.model._stream(messages, stop=stop, **run, **call.arguments)  # noqa: SLF001  # see above


async def achunks_of(
    call: Call, messages: list[BaseMessage], stop: list[str] | None, run: dict[str, Any]
) -> AsyncIterator[ChatGenerationChunk]:
    """Like `chunks_of`, for async runs."""
    if not _streams(call, async_api=True):
        yield _as_chunk(await aanswer_of(call, messages, stop))
        return
    if call.model.rate_limiter:
        await call.model.rate_limiter.aacquire(blocking=True)
    async for chunk in call.model._astream(messages, stop=stop, **run, **call.arguments):  # noqa: SLF001  # see above
        yield chunk


def begun(chunk: ChatGenerationChunk | None) -> ChatGenerationChunk:
    """Return the first chunk of a stream.

    Raises:
        ValueError: there is none; LangChain says the same of a model that is asked directly.
    """
    if chunk is None:
        raise ValueError(EMPTY_STREAM)
    return chunk


def labelled(result: ChatResult, route: dict[str, Any]) -> ChatResult:
    """Return the result with the route in its messages; a copy, because caches keep what they return."""
    generations = [
        generation.model_copy(update={"message": _with_route(generation.message, route)})
        for generation in result.generations
    ]
    return result.model_copy(update={"generations": generations})


def labelled_chunk(chunk: ChatGenerationChunk, route: dict[str, Any]) -> ChatGenerationChunk:
    """Return a chunk with the route; one of an answer is enough, because metadata of chunks are merged."""
    return chunk.model_copy(update={"message": _with_route(chunk.message, route)})


def _with_route(message: BaseMessage, route: dict[str, Any]) -> BaseMessage:
    return message.model_copy(update={"response_metadata": {**message.response_metadata, "route": route}})


def _streams(call: Call, *, async_api: bool) -> bool:
    model: BaseChatModel = call.model
    return model._should_stream(async_api=async_api, **{**call.arguments, "stream": True})  # noqa: SLF001  # see above


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    generation: ChatGeneration = result.generations[0]
    message = generation.message
    if not isinstance(message, AIMessage):
        return ChatGenerationChunk(message=AIMessageChunk(content=message.content, chunk_position="last"))
    whole = AIMessageChunk(
        content=message.content,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
        additional_kwargs=message.additional_kwargs,
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
        chunk_position="last",
    )
    return ChatGenerationChunk(message=whole, generation_info=generation.generation_info)
