"""Summarizers: a model, asked with a transcript or after the agent's last request, and the record without one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from copy import copy
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, run_in_executor
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.utils import is_async_callable
from langgraph.constants import TAG_NOSTREAM

from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.compaction import accepted_tokens
from langchain_ctxwin.core.limits import Known, ModelLimits, require_tokens, stated_limit
from langchain_ctxwin.core.model_families import model_name
from langchain_ctxwin.core.notes import record_lines
from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow, request_texts
from langchain_ctxwin.core.record import Record, extended, parse_record, render_record
from langchain_ctxwin.core.summary_input import LastRequest
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.errors import ConfigError, SummarizationError
from langchain_ctxwin.protocols import Summarizer, TokenCounter
from langchain_ctxwin.summarize.prompts import affordable_tokens, extension, plan_parts, prompt, text_tokens
from langchain_ctxwin.util.work import Wait, Work, arun, run

Replier = Callable[[Sequence[AnyMessage]], Any]
"""Takes the messages of one call and returns a text or a message, or an awaitable of one."""

CALL_CONFIG: RunnableConfig = {
    "tags": [TAG_NOSTREAM],
    "metadata": {"lc_source": "summarization", "ctxwin_call": "summary"},
}
"""Config of every call: the tag keeps the tokens of a summary out of a user's stream, the metadata names the caller.
The callbacks of the run that wants it come from the context."""
# The event loop of who wants the summary, when a thread writes it: clients and semaphores may belong to it.
caller_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("ctxwin_caller_loop", default=None)
LEAST_WINDOW_TOKENS = 4096  # of a summarizer that states none: chat models with a smaller window are no longer served
TAKES_NONE = frozenset({"openai", "azure"})
"""Providers that take `tool_choice="none"` and keep the cached prefix. Anthropic reads the messages anew after a change
of it; others do not say, so they are only told not to call a tool."""


class ModelSummarizer:
    """Writes summaries with a chat model, incrementally: the previous summary and the new messages become one summary.

    The transcript is handed over as fenced data. A conversation larger than the summarizer's own window is folded into
    the summary part by part. A summary that is much longer than asked for is cut; one that is empty or no text is
    refused. A refusal, like a failure of the model, is a `SummarizationError`, and nothing is lost by it.

    An engine whose agent calls the very same model object does not send it a transcript: it is asked by one message
    after the last request, whose prefix the provider has in its cache.

    Key init args:
        model: a chat model, another Runnable, or a callable (sync or async) from messages to a text or a message.
        counter: any token counter.
        max_input_tokens: the summarizer's own window; by default what the model states, and no limit where it
            states none.

    Raises:
        ConfigError: `model` cannot be called, or `max_input_tokens` is not positive.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> summarizer = ModelSummarizer(lambda messages: "The user wants tea.")
        >>> summarizer.summarize([HumanMessage("I would like some green tea, please.")], previous="", max_tokens=50)
        'The user wants tea.'
    """

    def __init__(
        self,
        model: Runnable[Any, Any] | Replier,
        *,
        counter: TokenCounter | None = None,
        max_input_tokens: int | None = None,
    ) -> None:
        require_tokens("max_input_tokens", max_input_tokens, minimum=1, optional=True)
        self._model = _as_runnable(model)
        self._counter: TokenCounter = TokenEstimator() if counter is None else counter
        self._max_input_tokens = max_input_tokens
        self._limits = ModelLimits.of(model)
        self._sent: tuple[Runnable[Any, Any], LastRequest] | None = None
        """The call that a request was sent by, and the request, to be asked after it."""

    @property
    def model_name(self) -> str:
        """Name of the model that writes; empty when it has none."""
        return model_name(self._model)

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return a summary of `previous` and `messages`, about `max_tokens` long; `previous` itself if nothing is new.

        Raises:
            SummarizationError: the model failed, its summary is unusable, its window is too small, or there is
                nothing to summarize.
        """
        return run(self._written(messages, previous, max_tokens))

    async def asummarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Like `summarize`; cancellation passes through."""
        return await arun(self._written(messages, previous, max_tokens))

    def extending(self, call: Any, request: LastRequest | None) -> Summarizer:
        """Return a summarizer that asks after a request that was sent; this one where that is not the same model.

        Args:
            call: what the request was sent to: a chat model, tools and settings bound.
            request: the request; None when there is none that can be extended.
        """
        inner: Any = call
        arguments = dict[str, Any]()
        while inner is not self._model and isinstance(inner, RunnableBindingBase):
            inner, arguments = inner.bound, {**inner.kwargs, **arguments}
        if request is None or inner is not self._model or not isinstance(inner, BaseChatModel | RunnableBindingBase):
            return self
        while isinstance(inner, RunnableBindingBase):
            inner, arguments = inner.bound, {**inner.kwargs, **arguments}
        params = inner._get_ls_params() if isinstance(inner, BaseChatModel) else {}  # noqa: SLF001  # LangChain's own way
        takes_none = arguments.get("tools") and params.get("ls_provider") in TAKES_NONE
        extending = copy(self)
        extending._sent = (call.bind(tool_choice="none") if takes_none else call), request  # noqa: SLF001  # our own
        return extending

    def _written(self, messages: Sequence[AnyMessage], previous: str, max_tokens: int) -> Work[str]:
        if self._sent is not None and (summary := (yield from self._extended(*self._sent, messages, max_tokens))):
            return summary
        limit = self._input_limit(max_tokens)
        if max_tokens < 1:
            raise SummarizationError(f"max_tokens={max_tokens} leaves no room for a summary: ask for at least 1 token")
        while True:
            summary = previous
            parts, size = plan_parts(messages, max_tokens=max_tokens, input_limit=limit, counter=self._counter)
            if not parts and not previous.strip():
                raise SummarizationError(
                    f"none of {len(messages)} messages has anything to show: there is nothing to summarize"
                )
            if parts and limit is not None:  # the previous one may be of a summarizer with more room
                summary = first_part(summary, accepted_tokens(size), self._price)
            try:
                for number, part in enumerate(parts, 1):
                    request = prompt(summary, part, number=number, of=len(parts), max_tokens=size)
                    reply = yield from _replied(self._model, request)
                    summary = self._accepted(reply, size)
            except SummarizationError as error:
                overflow = _overflow_of(error, (previous, *request_texts(messages)))
                if overflow is None:
                    raise
                tried = limit or sum(self._counter([message]) for message in messages)
                limit = min([tried // 2, *stated_limit(overflow, Known()).values()])
            else:
                return summary

    def _extended(
        self, call: Runnable[Any, Any], request: LastRequest, messages: Sequence[AnyMessage], max_tokens: int
    ) -> Work[str]:
        """Ask after the request that was sent, in which `previous` stands; an empty text where that does not fit."""
        question = extension(messages[: request.unseen], messages[request.unseen :], max_tokens)
        if self._price(question) > request.room_tokens:
            return ""
        try:
            reply = yield from _replied(call, [*request.messages, HumanMessage(question)])
        except SummarizationError as error:
            if _overflow_of(error, (question, *request_texts(request.messages))) is None:
                raise
            return ""
        if isinstance(reply, AIMessage) and reply.tool_calls:
            raise SummarizationError(
                f"the model called {reply.tool_calls[0]['name']} instead of writing a summary: pass another model as "
                "summarizer, which is not shown the tools"
            )
        return self._accepted(reply, max_tokens)

    def _input_limit(self, max_tokens: int) -> int | None:
        """Largest input, beside the room for what the model may write."""
        if self._max_input_tokens is not None or not self._limits.known:
            return self._max_input_tokens
        try:
            reserve = self._limits.output_reserve()
            asked = affordable_tokens(max_tokens, self._limits.input_limit(reserve))
            return self._limits.input_limit(max(reserve, asked))
        except ConfigError as error:
            raise SummarizationError(f"a summary of {max_tokens:,} tokens does not fit its model: {error}") from error

    def _price(self, text: str) -> int:
        return text_tokens(self._counter, text)

    def _accepted(self, reply: Any, max_tokens: int) -> str:
        """The text of a reply, cut where it is much longer than asked for."""
        if not isinstance(reply, str | BaseMessage):
            raise SummarizationError(
                f"the summarizer returned {type(reply).__name__}, expected a str or a message: "
                "add an output parser or return the text"
            )
        text = str(reply.text if isinstance(reply, BaseMessage) else reply).strip()
        if not text:
            raise SummarizationError(
                "the summarizer returned 0 characters of text, at least 1 is needed: check the model's output limit, "
                "reasoning budget and safety filters"
            )
        allowed_tokens = accepted_tokens(max_tokens)
        kept = first_part(text, allowed_tokens, self._price)
        if not kept:
            raise SummarizationError(
                f"not a line of the summary ({self._price(text):,} tokens) fits in {allowed_tokens:,}: raise "
                "summary_max_tokens or use a model that follows the instructions"
            )
        return kept


def _overflow_of(error: SummarizationError, texts: Sequence[str]) -> ContextOverflow | None:
    return classify_overflow(error.__cause__, request=texts) if error.__cause__ else None


class ExtractiveSummarizer:
    """Writes the record of the messages as a text; deterministic, and no model is called.

    Its lines are what people said, the calls that were made with what came of them, and the names and numbers that
    results brought: see `langchain_ctxwin.core.record`. An engine without a summarizer keeps the same lines by itself.

    Key init args:
        counter: any token counter.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> chat = [HumanMessage("Never touch main.py. Have a nice day.")]
        >>> ExtractiveSummarizer().summarize(chat, previous="", max_tokens=9)
        'user: Never touch main.py.'
    """

    is_local = True  # no model is asked, so it is run in place

    def __init__(self, *, counter: TokenCounter | None = None) -> None:
        self._counter: TokenCounter = TokenEstimator() if counter is None else counter

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return the lines of `previous` and of the messages that fit in `max_tokens`, by worth.

        Raises:
            SummarizationError: there is no text at all, or `max_tokens` does not hold a single line.
        """
        before = Record(lines=parse_record(previous))
        added = list(record_lines(messages, [message_id(messages, index) for index in range(len(messages))]))
        if not before.lines and not added:
            raise SummarizationError(
                f"0 of {len(messages)} messages have text to keep, at least 1 is needed: there is nothing to summarize"
            )
        price = partial(text_tokens, self._counter)
        record = extended(before, added, shown="", room_tokens=max_tokens, free_tokens=max_tokens, price=price)
        if not record.lines:
            raise SummarizationError(f"max_tokens={max_tokens} does not hold one line: raise summary_max_tokens")
        return render_record(record)


class NativeSummarizer(ExtractiveSummarizer):
    """Lets the provider of the agent's own model compact, in the call that is made anyway; the record stands beside it.

    Pass `summarizer="native"`. Anthropic compacts from 50,000 tokens of input on, OpenAI with its Responses API; where
    the trigger is below that, or a provider cannot, the record alone tells of what leaves.
    """

    is_native = True


def as_summarizer(
    value: Any, *, counter: TokenCounter | None = None, max_input_tokens: int | None = None
) -> Summarizer:
    """Return a summarizer for `value`.

    None is the extractive one, "native" lets the provider compact where it can, an object with a `summarize` method is
    itself, and a chat model, a Runnable or a callable (sync or async) writes through `ModelSummarizer`.
    `max_input_tokens` bounds a model that states no limits, from `LEAST_WINDOW_TOKENS` on.

    Raises:
        ConfigError: `value` is none of these, e.g. a model's name or a class.
    """
    if value is None or value == "native":
        return NativeSummarizer(counter=counter) if value else ExtractiveSummarizer(counter=counter)
    if isinstance(value, type) or not (isinstance(value, Summarizer | Runnable) or callable(value)):
        raise ConfigError(
            f"summarizer={value!r} cannot summarize: pass a chat model, a Runnable, a callable that takes messages, "
            'an object with a summarize method, "native", or None'
        )
    if isinstance(value, Summarizer):
        return value
    if max_input_tokens is None or ModelLimits.of(value).known:
        return ModelSummarizer(value, counter=counter)
    return ModelSummarizer(value, counter=counter, max_input_tokens=max(max_input_tokens, LEAST_WINDOW_TOKENS))


def _replied(call: Runnable[Any, Any], messages: list[AnyMessage]) -> Work[Any]:
    """The reply to one call; whatever a model raises is a `SummarizationError`: a turn that fits goes on without."""

    def invoke() -> Any:
        try:
            return call.invoke(messages, CALL_CONFIG)
        except NotImplementedError:  # a model that is only async
            return _wait_for(lambda: call.ainvoke(messages, CALL_CONFIG))

    try:
        return (yield Wait(invoke, lambda: call.ainvoke(messages, CALL_CONFIG)))
    except Exception as error:
        raise SummarizationError(
            f"the summarizer failed with {type(error).__name__}: {error}: check the summarizer model, or pass "
            "summarizer=None to extract summaries without one"
        ) from error


def _as_runnable(model: Runnable[Any, Any] | Replier) -> Runnable[Any, Any]:
    """A Runnable around a plain callable, so that calls made inside it inherit the tags of `CALL_CONFIG`."""
    if isinstance(model, Runnable):
        return model
    if not callable(model) or isinstance(model, type):
        raise ConfigError(
            f"model={model!r} cannot write summaries: pass a chat model, a Runnable or a callable that takes messages"
        )

    def call(messages: list[AnyMessage]) -> Any:
        if is_async_callable(model):
            return _wait_for(lambda: model(messages))  # called again where the caller's loop came to its end
        reply = model(messages)
        return _wait_for(lambda: reply) if inspect.isawaitable(reply) else reply

    async def acall(messages: list[AnyMessage]) -> Any:
        try:
            reply = model(messages) if is_async_callable(model) else await run_in_executor(None, model, messages)
            return await reply if inspect.isawaitable(reply) else reply
        except SystemExit as error:  # would end the event loop, not the task
            raise SummarizationError(f"the summarizer tried to end the program: {error!r}") from error

    return RunnableLambda(call, afunc=acall, name="summarizer")


def _wait_for(make: Callable[[], Awaitable[Any]]) -> Any:
    """Await what `make` returns from a thread: on the caller's event loop while it runs, else on one of its own."""

    async def settle() -> Any:
        return await make()

    loop = caller_loop.get()
    if loop is not None and loop.is_running():
        with suppress(CancelledError):  # the loop came to its end
            return asyncio.run_coroutine_threadsafe(settle(), loop).result()
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, asyncio.run, settle()).result()
