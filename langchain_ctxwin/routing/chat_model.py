"""Routed chat model: a chat model in front of several, of which the router chooses one for each request.

A candidate is called, and what its failure means for the others decides who is next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain_core.language_models import (
    BaseChatModel,
    LanguageModelInput,
    ModelProfile,
)
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langsmith.run_helpers import tracing_context
from pydantic import Field

from langchain_ctxwin.core.limits import (
    CALL_ARGUMENTS,
    ModelLimits,
    count_of,
    models_behind,
)
from langchain_ctxwin.core.overflow import (
    ContextOverflow,
    classify_overflow,
    evidence_of,
)
from langchain_ctxwin.core.provider_call import readable_by
from langchain_ctxwin.core.sizing import LARGEST_FIRST_JUMP, sent_tokens
from langchain_ctxwin.errors import (
    ConfigError,
    ContextWindowError,
    NoModelFitsError,
    expect,
)
from langchain_ctxwin.routing.candidates import Instance, RouteRequest, conversation_key
from langchain_ctxwin.routing.router import ModelRouter, Route
from langchain_ctxwin.util.work import Wait, Work, arun, run

# of a call, meant for the router
OWN_ARGUMENTS = ("route", "complexity")

TOO_SMALL = "had too small a window"  # reports look for it
NOT_CALLED = "could not be called"

# Statuses of a request that is wrong by itself, whoever is asked.
REQUEST_FAULTS = frozenset({400, 422})

# What wrong code raises: it would fail with every model.
OUR_FAULTS = (
    ContextWindowError,
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    RecursionError,
)


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

    What stays with its candidate is the thread of the run, else what begins with the same first message.

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
            generations=[ChatGeneration(message=fallbacks.marked(answer))]
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
        following: AIMessage | None = fallbacks.marked(first)
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
        following: AIMessage | None = fallbacks.marked(first)
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
        prefer, reason = wish(arguments.get("route"))
        outputs = map(count_of, map(arguments.get, CALL_ARGUMENTS))
        request = RouteRequest(
            messages=messages,
            tools=arguments.get("tools") or (),
            conversation=conversation_key(messages),
            requires=("structured_output",) if arguments.get("response_format") else (),
            output_tokens=next(filter(None, outputs), None),
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


def wish(route: Any) -> tuple[str, str]:
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


class Fallbacks:
    """The calls for one request: each failure that another model may survive leads to the next candidate."""

    def __init__(
        self,
        router: ModelRouter,
        request: RouteRequest,
        arguments: Mapping[str, Any],
    ) -> None:
        self._router, self._request = router, request
        self._arguments = arguments
        self._tried: list[tuple[str, str]] = []
        self._error: Exception | None = None
        self._is_well = False

    def calls(self) -> Iterator[Instance]:
        """Yield the model to call next and the arguments for it, until one was watched and has not failed.

        Raises:
            NoModelFitsError: no candidate can take the request, and none was tried.
            Exception: the error of the candidate that was asked last, with a note on each attempt, when none is left.
        """
        while not self._is_well:
            self._route = self._chosen()
            self._accepted_tokens = 0
            try:
                instance = self._router.instance(self._route.name)
                model, arguments = call_of(instance, self._arguments)
            # it cannot be made of its name, or its integration has no tool calling
            except (ConfigError, NotImplementedError) as error:
                self._error = self._error or error
                self._leave(NOT_CALLED)
                continue
            messages = readable_by(model, self._request.messages)
            # without the callbacks of the run around: tokens would be counted twice
            alone = {"input": messages, "config": {"callbacks": []}}
            yield model, {**alone, **arguments}

    @contextmanager
    def watched(self, *, final: bool = False) -> Iterator[None]:
        """Watch what a candidate does; a failure that another may survive is kept, any other one is raised.

        Once part of the answer was shown (`final`), no other candidate can take over.
        """
        self._is_well = False
        try:
            # a trace of ours is no parent: its tokens would be shown twice
            with tracing_context(enabled=False):
                yield
            self._is_well = True
        except Exception as error:
            failure = failure_of(error)
            if failure:
                self._leave(failure, classify_overflow(error))
            if not failure or final:
                self._annotate(error)
                raise
            self._error = error

    def note(self, reply: AIMessage) -> None:
        """Take the largest size of the request that an answer, or its chunks, report: chunks may add up."""
        tokens = sent_tokens(reply)
        most = LARGEST_FIRST_JUMP * self._route.estimated_tokens
        if tokens and tokens <= most:
            self._accepted_tokens = max(self._accepted_tokens, tokens)

    def answered(self) -> None:
        """Take up that the candidate answered, in full."""
        self._router.answered(
            self._route,
            self._request.conversation,
            tokens=self._accepted_tokens,
        )

    def marked(self, message: AIMessage) -> Any:
        """Return a copy of an answer, or of its first chunk, with the route; caches keep what they return."""
        tried = [f"{name}: {what}" for name, what in self._tried]
        metadata = {**message.response_metadata, "route": self._route.metadata(tried)}
        return message.model_copy(update={"response_metadata": metadata})

    def _chosen(self) -> Route:
        """The next candidate."""
        try:
            return self._router.decide(self._request)
        except NoModelFitsError as nothing:
            last = self._error or nothing
        self._annotate(last)
        raise last

    def _leave(self, what: str, overflow: ContextOverflow | None = None) -> None:
        """Go on without the candidate that was asked, for this request."""
        name = self._route.name
        if overflow is not None:
            self._router.refused(self._route, overflow, self._request.conversation)
        self._tried.append((name, what))
        exclude = {**self._request.exclude, name: what}
        self._request = replace(self._request, exclude=exclude, prefer="")

    def _annotate(self, error: Exception) -> None:
        """Say on the error what was tried; without the other errors' texts, which would mislead its readers."""
        for name, what in self._tried:
            error.add_note(f"routing asked {name}: it {what.partition(' (')[0]}")


def call_of(instance: Instance, arguments: Mapping[str, Any]) -> Instance:
    """Return the model and the arguments of a call.

    Tools are formatted by the candidate's own `bind_tools`, because each provider has its own form for them and for
    the choice among them; what asks for a length of output gets the name that the model knows it by.
    """
    model, bound = instance
    own_arguments = {
        _argument_name(model, key): value
        for key, value in arguments.items()
        if key not in OWN_ARGUMENTS
    }
    tools = own_arguments.pop("tools", None)
    if not tools:
        return model, {**bound, **own_arguments}
    part, formatted = next(models_behind(model.bind_tools(tools, **own_arguments)))
    return part, {**bound, **formatted}


def _argument_name(model: BaseChatModel, argument: str) -> str:
    """The name under which this model takes the requested output; every other argument keeps its name."""
    if argument not in CALL_ARGUMENTS or hasattr(model, argument):
        return argument
    return next((name for name in CALL_ARGUMENTS if hasattr(model, name)), argument)


def failure_of(error: Exception) -> str:
    """Return what a failure says for which another candidate helps; empty when the request, or our code, is wrong.

    The error's class stands in brackets: in a note on another's error it would be taken for that one's own.
    """
    if isinstance(error, OUR_FAULTS):
        return ""
    if classify_overflow(error):
        return TOO_SMALL
    statuses = (said.status for said in evidence_of(error))
    status = next(filter(None, statuses), None)
    if status in REQUEST_FAULTS:
        return ""
    return f"failed ({type(error).__name__})"
