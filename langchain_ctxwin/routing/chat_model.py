"""Routed chat model: a chat model in front of several, of which the router chooses one for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput, ModelProfile
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import Field

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import UNKNOWN_FAMILY
from langchain_ctxwin.core.provider_call import shown_to
from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.core.tool_schemas import tool_definition
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.models.sources import CAPABILITIES
from langchain_ctxwin.routing.candidates import Instance, Request, conversation_key, thread_key
from langchain_ctxwin.routing.fallbacks import EMPTY_STREAM, Fallbacks
from langchain_ctxwin.routing.router import ModelRouter, settings_for
from langchain_ctxwin.util.work import Wait, Work, arun, run

_Generation = TypeVar("_Generation", ChatGeneration, ChatGenerationChunk)


class RoutedChatModel(BaseChatModel):
    """A chat model in front of several: each request goes to the candidate that the router chooses for it.

    Setup:
        Nothing beyond the integrations of the candidates.

    Key init args:
        router: chooses the candidate.
        temperature, max_tokens, stop: defaults of every call, as with any chat model.

    Instantiate:
        ```python
        model = RoutedChatModel(ModelRouter([small_model, large_model]))
        ```

    Use:
        ```python
        answer = model.bind_tools(tools).invoke("How many orders are open?")
        answer.response_metadata["route"]["reason"]
        model.invoke("And yesterday?", route="large")  # begin with this candidate, whatever the request's size
        model.invoke("Prove it.", routing={"cost": 0})  # weigh this request by quality alone
        ```

    A candidate that refuses a request as too large is followed by a larger window; one that is busy, down, unknown or
    without credentials by the next that fits. When every candidate failed, the last one's own exception is raised with
    a note on each attempt; when those that remain are too small, a `RemainingTooSmallError` (a `ContextOverflowError`)
    that states their limit and names the largest. A stream that breaks after its first chunk is not started again.

    The call argument `conversation` names what stays with its candidate, by default the thread of the run, else its
    first message; `estimated_tokens` is the size of the request, as an upper bound, where it was measured already.

    Callbacks see this model's run alone, under the name of the model that answered. Rate limiters and caches of the
    candidates apply (a cache only to calls that do not stream); callbacks that were set on a candidate do not.

    Raises:
        ConfigError: `router` is no `ModelRouter`.
    """

    router: ModelRouter = Field(exclude=True)
    temperature: float | None = None
    max_tokens: int | None = None
    """What every call asks for at most, under the name by which each candidate knows it."""

    stop: list[str] | None = None
    cache: Any = Field(default=False, exclude=True)
    """Off, because the candidates' own caches apply: they know which model answered."""

    def __init__(self, router: ModelRouter | None = None, **values: Any) -> None:
        router = expect(router, ModelRouter, "router", "a ModelRouter, e.g. RoutedChatModel(ModelRouter([model]))")
        super().__init__(router=router, **values)

    @property
    def model_name(self) -> str:
        """The names of all candidates."""
        return "|".join(one.name for one in self.router.candidates)

    @property
    def limits(self) -> ModelLimits:
        """Limits under which a request fits every candidate."""
        return self.router.limits

    @property
    def tokenizer_family(self) -> str:
        """The tokenizer family of all candidates; the generic one when they differ."""
        families = {one.family for one in self.router.candidates}
        return families.pop() if len(families) == 1 else UNKNOWN_FAMILY

    @property
    def _llm_type(self) -> str:
        return "routed"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"candidates": [one.name for one in self.router.candidates]}

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as they are; each candidate formats them in its own way when it is called."""
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        return self.bind(tools=list(tools), **choice, **kwargs)

    # The config does not reach the call, so the run's thread is handed on as an argument.

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:  # noqa: A002  # the base's name
        """Call the candidate that fits."""
        return super().invoke(input, config, **_in_thread(config, kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:  # noqa: A002
        """Call the candidate that fits."""
        return await super().ainvoke(input, config, **_in_thread(config, kwargs))

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[AIMessageChunk]:  # noqa: A002
        """Stream from the candidate that fits."""
        return super().stream(input, config, **_in_thread(config, kwargs))

    def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[AIMessageChunk]:  # noqa: A002
        """Stream from the candidate that fits."""
        return super().astream(input, config, **_in_thread(config, kwargs))

    # A run manager would stream what cannot be taken back, so that it is handed on where the stream is the answer.

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        return run(self._answered(messages, stop, kwargs))

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:  # noqa: ARG002
        return await arun(self._answered(messages, stop, kwargs))

    def _answered(
        self, messages: list[AnyMessage], stop: list[str] | None, arguments: dict[str, Any]
    ) -> Work[ChatResult]:
        fallbacks = self._fallbacks(messages, arguments)
        while not fallbacks.is_well:
            call = yield from fallbacks.next()
            request = (call, messages, stop or self.stop)
            with fallbacks.watched():
                result: ChatResult = yield Wait(partial(_answer_of, *request), partial(_aanswer_of, *request))
        fallbacks.note(result.generations[0].message)
        fallbacks.answered()
        # A copy, because caches keep what they return.
        generations = [_with_route(one, fallbacks.metadata()) for one in result.generations]
        return result.model_copy(update={"generations": generations})

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        fallbacks = self._fallbacks(messages, kwargs)
        while not fallbacks.is_well:
            chunks = _chunks_of(run(fallbacks.next()), messages, stop or self.stop, run_manager)
            with fallbacks.watched():
                chunk = _begun(next(chunks, None))
        following: ChatGenerationChunk | None = _with_route(chunk, fallbacks.metadata())
        while following is not None:
            fallbacks.note(following.message)
            yield following
            with fallbacks.watched(final=True):
                following = next(chunks, None)
        fallbacks.answered()

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        fallbacks = self._fallbacks(messages, kwargs)
        while not fallbacks.is_well:
            chunks = _achunks_of(await arun(fallbacks.next()), messages, stop or self.stop, run_manager)
            with fallbacks.watched():
                chunk = _begun(await anext(chunks, None))
        following: ChatGenerationChunk | None = _with_route(chunk, fallbacks.metadata())
        while following is not None:
            fallbacks.note(following.message)
            yield following
            with fallbacks.watched(final=True):
                following = await anext(chunks, None)
        fallbacks.answered()

    def _fallbacks(self, messages: list[AnyMessage], arguments: dict[str, Any]) -> Fallbacks:
        defaults = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        given = {**{name: value for name, value in defaults.items() if value is not None}, **arguments}
        prefer, reason = _wish(given.get("route"))
        request = Request(
            messages=messages,
            tools=given.get("tools") or (),
            conversation=given.get("conversation") or conversation_key(messages),
            requires=("structured_output",) if given.get("response_format") else (),
            estimated_tokens=given.get("estimated_tokens"),
            output_tokens=output_tokens_of(given),
            prefer=prefer,
            prefer_reason=reason,
            config=settings_for(self.router.config, given.get("routing")),
        )
        return Fallbacks(self.router, request, given)

    def _resolve_model_profile(self) -> ModelProfile:
        """The smallest limits, and each capability that all candidates have or one is known to lack."""
        limits, candidates = self.router.limits, self.router.candidates
        inputs = [tokens for tokens in (limits.context_window, limits.max_input_tokens) if tokens is not None]
        profile: dict[str, Any] = {"max_input_tokens": min(inputs), "max_output_tokens": limits.max_output_tokens}
        for capability, key in CAPABILITIES.items():
            stated = [one.states(capability) for one in candidates]
            profile[key] = None if None in stated and False not in stated else all(stated)
        return cast("ModelProfile", {key: value for key, value in profile.items() if value is not None})

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        """What traces show: tools as definitions, because the bound objects are no JSON."""
        if tools := kwargs.get("tools"):
            kwargs["tools"] = [tool_definition(tool) for tool in tools]
        return super()._get_invocation_params(stop=stop, **kwargs)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        name = _wish(kwargs.get("route"))[0] or self.model_name
        return {"ls_model_name": name, **params, "ls_provider": self._llm_type}


def _in_thread(config: RunnableConfig | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the run's thread as conversation, unless they name one."""
    thread = thread_key(config)
    return {"conversation": thread, **arguments} if thread else arguments


def _wish(route: Any) -> tuple[str, str]:
    """The candidate that a call asks for, and why: a name, or a decision as the metadata of an answer hold it."""
    if isinstance(route, Mapping):
        return str(route.get("model") or ""), str(route.get("reason") or "")
    if route is None or isinstance(route, str):
        return route or "", ""
    raise ConfigError(f"route={route!r}: give the name of a candidate")


# Both helpers below call what belongs to BaseChatModel: an `invoke` or `stream` would be a run of its own inside ours,
# and every handler would then count its tokens, and show its chunks, twice.


def _answer_of(call: Instance, messages: list[AnyMessage], stop: list[str] | None) -> ChatResult:
    """Call a candidate under its own cache and rate limiter."""
    model, arguments = call
    try:
        return model._generate_with_cache(shown_to(model, messages), stop=stop, **arguments)  # noqa: SLF001  # see above
    except StopIteration as error:  # would end the work around this call
        raise RuntimeError(f"{type(model).__name__} raised StopIteration") from error


async def _aanswer_of(call: Instance, messages: list[AnyMessage], stop: list[str] | None) -> ChatResult:
    model, arguments = call
    shown = shown_to(model, messages)
    return await model._agenerate_with_cache(shown, stop=stop, **arguments)  # noqa: SLF001  # see above


def _chunks_of(
    call: Instance, messages: list[AnyMessage], stop: list[str] | None, run_manager: Any
) -> Iterator[ChatGenerationChunk]:
    """Stream from a candidate under its own rate limiter; one that does not stream answers in one chunk."""
    model, arguments = call
    if not model._should_stream(async_api=False, **{**arguments, "stream": True}):  # noqa: SLF001  # see above
        yield _as_chunk(_answer_of(call, messages, stop))
        return
    if model.rate_limiter:
        model.rate_limiter.acquire(blocking=True)
    yield from model._stream(shown_to(model, messages), stop=stop, run_manager=run_manager, **arguments)  # noqa: SLF001  # see above


async def _achunks_of(
    call: Instance, messages: list[AnyMessage], stop: list[str] | None, run_manager: Any
) -> AsyncIterator[ChatGenerationChunk]:
    model, arguments = call
    if not model._should_stream(async_api=True, **{**arguments, "stream": True}):  # noqa: SLF001  # see above
        yield _as_chunk(await _aanswer_of(call, messages, stop))
        return
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    shown = shown_to(model, messages)
    async for chunk in model._astream(shown, stop=stop, run_manager=run_manager, **arguments):  # noqa: SLF001  # see above
        yield chunk


def _begun(chunk: ChatGenerationChunk | None) -> ChatGenerationChunk:
    """The first chunk of a stream; without one an error in the words that LangChain has for it."""
    if chunk is None:
        raise ValueError(EMPTY_STREAM)
    return chunk


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    generation = result.generations[0]
    message = generation.message
    shared = AIMessageChunk.model_fields.keys() & type(message).model_fields.keys()
    # As they are: a dump would turn the objects in them into dicts.
    values = {name: getattr(message, name) for name in shared - {"id", "type", "name", "chunk_position"}}
    whole = AIMessageChunk(**values, chunk_position="last")
    return ChatGenerationChunk(message=whole, generation_info=generation.generation_info)


def _with_route(generation: _Generation, route: dict[str, Any]) -> _Generation:
    message = generation.message
    metadata = {**message.response_metadata, "route": route}
    return generation.model_copy(update={"message": message.model_copy(update={"response_metadata": metadata})})
