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
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage
from langchain_core.outputs import (
    ChatGeneration,
    ChatGenerationChunk,
    ChatResult,
)
from langchain_core.runnables import Runnable
from pydantic import Field

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import UNKNOWN_FAMILY
from langchain_ctxwin.core.provider_call import readable_by
from langchain_ctxwin.core.recovery import output_tokens_of
from langchain_ctxwin.core.tool_schemas import tool_definition
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.models.sources import CAPABILITIES
from langchain_ctxwin.routing.candidates import (
    Instance,
    RouteRequest,
    conversation_key,
)
from langchain_ctxwin.routing.fallbacks import EMPTY_STREAM, Fallbacks
from langchain_ctxwin.routing.router import ModelRouter
from langchain_ctxwin.util.work import Wait, Work, arun, run


class RoutedChatModel(BaseChatModel):
    """A chat model in front of several: each request goes to the candidate that the router chooses for it.

    Setup:
        Nothing beyond the integrations of the candidates.

    Key init args:
        router: chooses the candidate.
        values: `temperature`, `max_tokens` and `stop` as defaults of every call, as with any chat model.

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

    A candidate that refuses a request as too large is followed by a larger window; one that is busy, down, unknown or
    without credentials by the next that fits. When every candidate failed, the last one's own exception is raised with
    a note on each attempt; when those that remain are too small, a `RemainingTooSmallError` (a `ContextOverflowError`)
    that states their limit and names the largest. A stream that breaks after its first chunk is not started again.

    The call argument `conversation` names what stays with its candidate, by default the thread of the run, else its
    first message; `estimated_tokens` is the size of the request, as an upper bound, where it was measured already.

    Callbacks see this model's run alone, under the name of the model that answered. Rate limiters, caches and callbacks
    that were set on a candidate apply.

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
        self,
        tools: Sequence[Any],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as they are; each candidate formats them in its own way when it is called."""
        choice = {} if tool_choice is None else {"tool_choice": tool_choice}
        return self.bind(tools=list(tools), **choice, **kwargs)

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
        fallbacks = self._fallbacks(messages, call_arguments)
        while not fallbacks.is_well:
            call = yield from fallbacks.next()
            model, provider_messages, arguments = self._candidate_call(
                call, messages, stop
            )
            with fallbacks.watched():
                answer: AIMessage = yield Wait(
                    partial(model.invoke, provider_messages, **arguments),
                    partial(model.ainvoke, provider_messages, **arguments),
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
        fallbacks = self._fallbacks(messages, kwargs)
        while not fallbacks.is_well:
            call = run(fallbacks.next())
            model, provider_messages, arguments = self._candidate_call(
                call, messages, stop
            )
            chunks = model.stream(provider_messages, **arguments)
            with fallbacks.watched():
                chunk = _first_chunk(next(chunks, None))
        following: AIMessage | None = _with_route(chunk, fallbacks)
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
        fallbacks = self._fallbacks(messages, kwargs)
        while not fallbacks.is_well:
            call = await arun(fallbacks.next())
            model, provider_messages, arguments = self._candidate_call(
                call, messages, stop
            )
            chunks = model.astream(provider_messages, **arguments)
            with fallbacks.watched():
                chunk = _first_chunk(await anext(chunks, None))
        following: AIMessage | None = _with_route(chunk, fallbacks)
        while following is not None:
            fallbacks.note(following)
            yield ChatGenerationChunk(message=_as_chunk(following))
            with fallbacks.watched(final=True):
                following = await anext(chunks, None)
        fallbacks.answered()

    def _candidate_call(
        self, call: Instance, messages: list[AnyMessage], stop: list[str] | None
    ) -> tuple[BaseChatModel, Any, dict[str, Any]]:
        """The candidate, its messages and its arguments, without the callbacks of this run: they would count twice."""
        model, bound = call
        alone: dict[str, Any] = {"config": {"callbacks": []}, "stop": stop or self.stop}
        return model, readable_by(model, messages), {**alone, **bound}

    def _fallbacks(
        self, messages: list[AnyMessage], arguments: dict[str, Any]
    ) -> Fallbacks:
        defaults = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        call_arguments = {
            **{name: value for name, value in defaults.items() if value is not None},
            **arguments,
        }
        prefer, reason = _wish(call_arguments.get("route"))
        request = RouteRequest(
            messages=messages,
            tools=call_arguments.get("tools") or (),
            conversation=call_arguments.get("conversation")
            or conversation_key(messages),
            requires=("structured_output",)
            if call_arguments.get("response_format")
            else (),
            estimated_tokens=call_arguments.get("estimated_tokens"),
            output_tokens=output_tokens_of(call_arguments),
            prefer=prefer,
            prefer_reason=reason,
            complexity=call_arguments.get("complexity"),
        )
        return Fallbacks(self.router, request, call_arguments)

    def _resolve_model_profile(self) -> ModelProfile:
        """The smallest limits, and each capability that all candidates have or one is known to lack."""
        limits, candidates = self.router.limits, self.router.candidates
        inputs = [
            tokens
            for tokens in (limits.context_window, limits.max_input_tokens)
            if tokens is not None
        ]
        profile: dict[str, Any] = {
            "max_input_tokens": min(inputs),
            "max_output_tokens": limits.max_output_tokens,
        }
        for capability, key in CAPABILITIES.items():
            states = [one.states(capability) for one in candidates]
            profile[key] = (
                None if None in states and False not in states else all(states)
            )
        return cast(
            "ModelProfile",
            {key: value for key, value in profile.items() if value is not None},
        )

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """What traces show: tools as definitions, because the bound objects are no JSON."""
        if tools := kwargs.get("tools"):
            kwargs["tools"] = [tool_definition(tool) for tool in tools]
        return super()._get_invocation_params(stop=stop, **kwargs)

    def _get_ls_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        name = _wish(kwargs.get("route"))[0] or self.model_name
        return {"ls_model_name": name, **params, "ls_provider": self._llm_type}


def _wish(route: Any) -> tuple[str, str]:
    """The candidate that a call asks for, and why: a name, or a decision as the metadata of an answer hold it."""
    if isinstance(route, Mapping):
        return str(route.get("model") or ""), str(route.get("reason") or "")
    if route is None or isinstance(route, str):
        return route or "", ""
    raise ConfigError(f"route={route!r}: give the name of a candidate")


def _first_chunk(chunk: AIMessage | None) -> AIMessage:
    """The first chunk of a stream; without one an error in the words that LangChain has for it."""
    if chunk is None:
        raise ValueError(EMPTY_STREAM)
    return chunk


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
