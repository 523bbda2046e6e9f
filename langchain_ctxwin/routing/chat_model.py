"""Routed chat model: a chat model in front of several, of which the router chooses one for each request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from langchain_core.language_models import (
    BaseChatModel,
    LanguageModelInput,
    ModelProfile,
)
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
)
from langchain_core.runnables import Runnable
from pydantic import Field

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.errors import expect
from langchain_ctxwin.routing.candidates import RouteRequest, conversation_key
from langchain_ctxwin.routing.fallbacks import Fallbacks
from langchain_ctxwin.routing.router import ModelRouter
from langchain_ctxwin.util.work import Wait, Work, arun, run


class RoutedChatModel(BaseChatModel):
    """A chat model in front of several: each request goes to the candidate that the router chooses for it.

    Setup:
        Nothing beyond the integrations of the candidates.

    Key init args:
        router: chooses the candidate.

    Instantiate:
        ```python
        model = RoutedChatModel(ModelRouter([small_model, large_model]))
        ```

    Use:
        ```python
        answer = model.bind_tools(tools).invoke("How many orders are open?")
        answer.response_metadata["route"]["reason"]
        model.invoke(
            "And yesterday?", route="large"
        )  # begin with this candidate, whatever the request's size
        model.invoke(
            "Prove it.", complexity="high"
        )  # what the request asks of a model, where you know better
        ```

    A candidate that refuses a request as too large, is busy, down, unknown or without credentials is followed by the
    next that fits. When every candidate failed, the last one's own exception is raised with a note on each attempt. A
    stream that breaks after its first chunk is not started again.

    The call argument `conversation` names what stays with its candidate, by default the thread of the run, else its
    first message.

    Callbacks see this model's run alone, under the name of the model that answered. Rate limiters, caches and callbacks
    that were set on a candidate apply.

    Raises:
        ConfigError: `router` is no `ModelRouter`.
    """

    router: ModelRouter = Field(exclude=True)
    cache: Any = Field(default=False, exclude=True)
    """Off, because the candidates' own caches apply: they know which model answered."""

    def __init__(self, router: ModelRouter | None = None, **values: Any) -> None:
        router = expect(
            router,
            ModelRouter,
            "router",
            "a ModelRouter, e.g. RoutedChatModel(ModelRouter([model]))",
        )
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
    def _llm_type(self) -> str:
        return "routed"

    def bind_tools(
        self, tools: Sequence[Any], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as they are; each candidate formats them in its own way when it is called."""
        return self.bind(tools=list(tools), **kwargs)

    def _generate(
        self,
        messages: Any,
        stop: Any = None,
        run_manager: Any = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return run(self._answered(messages, stop, kwargs))

    async def _agenerate(
        self,
        messages: Any,
        stop: Any = None,
        run_manager: Any = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return await arun(self._answered(messages, stop, kwargs))

    def _answered(
        self,
        messages: list[AnyMessage],
        stop: list[str] | None,
        call_arguments: dict[str, Any],
    ) -> Work[ChatResult]:
        fallbacks = self._fallbacks(messages, stop, call_arguments)
        for model, arguments in fallbacks.calls():
            with fallbacks.watched():
                answer: AIMessage = yield Wait(
                    partial(model.invoke, **arguments),
                    partial(model.ainvoke, **arguments),
                )
        fallbacks.note(answer)
        fallbacks.answered()
        return ChatResult(
            generations=[ChatGeneration(message=_with_route(answer, fallbacks))]
        )

    def _stream(
        self,
        messages: Any,
        stop: Any = None,
        run_manager: Any = None,  # noqa: ARG002  # of a run that is no candidate's
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        fallbacks = self._fallbacks(messages, stop, kwargs)
        for model, arguments in fallbacks.calls():
            chunks = model.stream(**arguments)
            with fallbacks.watched():
                first = next(chunks)
        following: AIMessage | None = _with_route(first, fallbacks)
        while following is not None:
            fallbacks.note(following)
            yield ChatGenerationChunk(message=_as_chunk(following))
            with fallbacks.watched(final=True):
                following = next(chunks, None)
        fallbacks.answered()

    async def _astream(
        self,
        messages: Any,
        stop: Any = None,
        run_manager: Any = None,  # noqa: ARG002  # of a run that is no candidate's
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        fallbacks = self._fallbacks(messages, stop, kwargs)
        for model, arguments in fallbacks.calls():
            chunks = model.astream(**arguments)
            with fallbacks.watched():
                first = await anext(chunks)
        following: AIMessage | None = _with_route(first, fallbacks)
        while following is not None:
            fallbacks.note(following)
            yield ChatGenerationChunk(message=_as_chunk(following))
            with fallbacks.watched(final=True):
                following = await anext(chunks, None)
        fallbacks.answered()

    def _fallbacks(
        self,
        messages: list[AnyMessage],
        stop: list[str] | None,
        arguments: dict[str, Any],
    ) -> Fallbacks:
        prefer, reason = _wish(arguments.get("route"))
        request = RouteRequest(
            messages=messages,
            tools=arguments.get("tools") or (),
            conversation=arguments.get("conversation") or conversation_key(messages),
            requires=("structured_output",) if arguments.get("response_format") else (),
            output_tokens=output_tokens_of(arguments),
            prefer=prefer,
            prefer_reason=reason,
            complexity=arguments.get("complexity"),
        )
        return Fallbacks(self.router, request, {"stop": stop, **arguments})

    def _resolve_model_profile(self) -> ModelProfile:
        """The smallest limits; a capability is each candidate's own."""
        limits = self.router.limits
        inputs = filter(None, (limits.context_window, limits.max_input_tokens))
        profile = {"max_input_tokens": min(inputs)}
        if limits.max_output_tokens:
            profile["max_output_tokens"] = limits.max_output_tokens
        return cast("ModelProfile", profile)


def _wish(route: Any) -> tuple[str, str]:
    """The candidate that a call asks for, and why: a name, or a decision as the metadata of an answer hold it."""
    about = route if isinstance(route, Mapping) else {"model": route}
    return about.get("model") or "", about.get("reason") or ""


def _as_chunk(message: AIMessage) -> AIMessageChunk:
    """A chunk as it is; the whole answer of a model that does not stream as the only one."""
    if isinstance(message, AIMessageChunk):
        return message
    # as they are: a dump would turn the objects in them into dicts
    values = {key: value for key, value in message if key != "type"}
    return AIMessageChunk(**values, chunk_position="last")


def _with_route(message: AIMessage, fallbacks: Fallbacks) -> AIMessage:
    """A copy with the route, because caches keep what they return."""
    metadata = {**message.response_metadata, "route": fallbacks.metadata()}
    return message.model_copy(update={"response_metadata": metadata})
