"""How is a summary written by a model, and when is it refused?"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, run_in_executor
from langchain_core.runnables.utils import is_async_callable
from langgraph.constants import TAG_NOSTREAM

from langchain_ctxwin.core.echo import request_texts
from langchain_ctxwin.core.learned_limits import Known, stated_limit
from langchain_ctxwin.core.limits import ModelLimits, require_tokens
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.errors import ConfigError, SummarizationError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.summarize.folding import LENGTH_TOLERANCE, Fold, accepted_tokens, plan_folds
from langchain_ctxwin.summarize.pricing import text_tokens

Replier = Callable[[Sequence[AnyMessage]], Any]
"""Takes the messages of one call and returns a text or a message, or an awaitable of one."""

CALL_CONFIG: RunnableConfig = {"tags": [TAG_NOSTREAM], "metadata": {"lc_source": "summarization"}}
"""Config of every call: the tag keeps the tokens of a summary out of a user's stream, the metadata names the caller."""


class ModelSummarizer:
    """Writes summaries with a chat model, incrementally: the previous summary and the new messages become one summary.

    The transcript is handed over as fenced data. A conversation larger than the summarizer's own window is folded into
    the summary part by part. What is empty, not text, longer than what it replaces or much longer than asked for is
    refused; a refusal, like a failure of the model, is a `SummarizationError`, and nothing is lost by it.

    Key init args:
        model: a chat model, another Runnable, or a callable (sync or async) from messages to a text or a message.
        counter: any token counter.
        max_input_tokens: the summarizer's own window; by default what the model states, and no limit where it
            states none.

    Raises:
        ConfigError: `model` cannot be called, or `max_input_tokens` is not positive.

    Example:
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

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return a summary of `previous` and `messages`, about `max_tokens` long; `previous` itself if nothing is new.

        Raises:
            SummarizationError: the model failed, its summary is unusable, its window is too small, or there is
                nothing to summarize.
        """
        limit = self._input_limit(max_tokens)
        while True:
            try:
                summary = previous
                for fold in self._folds(messages, previous, max_tokens, limit):
                    with _failures_are_soft():
                        reply = self._model.invoke(fold.prompt(summary), CALL_CONFIG)
                    summary = self._accepted(reply, fold)
            except SummarizationError as error:
                limit = self._smaller(limit, error, messages, previous)
            else:
                return summary

    async def asummarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Like `summarize`; cancellation passes through."""
        limit = self._input_limit(max_tokens)
        while True:
            try:
                summary = previous
                for fold in self._folds(messages, previous, max_tokens, limit):
                    with _failures_are_soft():
                        reply = await self._model.ainvoke(fold.prompt(summary), CALL_CONFIG)
                    summary = self._accepted(reply, fold)
            except SummarizationError as error:
                limit = self._smaller(limit, error, messages, previous)
            else:
                return summary

    def _smaller(
        self, limit: int | None, error: SummarizationError, messages: Sequence[AnyMessage], previous: str
    ) -> int:
        """A smaller input limit after the model refused its input as too large; any other failure is raised again."""
        texts = (previous, *request_texts(messages))
        overflow = classify_overflow(error.__cause__, request=texts) if error.__cause__ else None
        if overflow is None:
            raise error
        tried = limit or sum(self._counter([message]) for message in messages)
        return min([tried // 2, *stated_limit(overflow, Known()).values()])

    def _folds(
        self, messages: Sequence[AnyMessage], previous: str, max_tokens: int, limit: int | None
    ) -> tuple[Fold, ...]:
        if max_tokens < 1:
            raise SummarizationError(f"max_tokens={max_tokens} leaves no room for a summary: ask for at least 1 token")
        folds = plan_folds(
            messages,
            previous=previous,
            max_tokens=max_tokens,
            input_limit=limit,
            counter=self._counter,
        )
        if not folds and not previous.strip():
            raise SummarizationError(
                f"none of {len(messages)} messages has anything to show: there is nothing to summarize"
            )
        return folds

    def _input_limit(self, max_tokens: int) -> int | None:
        if self._max_input_tokens is not None:
            return self._max_input_tokens
        if not self._limits.known:
            return None
        try:
            return self._limits.input_limit(max(self._limits.output_reserve(), max_tokens))
        except ConfigError as error:
            raise SummarizationError(f"a summary of {max_tokens:,} tokens does not fit its model: {error}") from error

    def _accepted(self, reply: Any, fold: Fold) -> str:
        """The text of `reply`, or `SummarizationError` if it is unusable."""
        text = _reply_text(reply)
        tokens = text_tokens(self._counter, text)
        allowed_tokens = accepted_tokens(fold.max_tokens)
        if tokens > allowed_tokens:
            raise SummarizationError(
                f"the summary has {tokens:,} tokens, at most {allowed_tokens:,} are accepted ({LENGTH_TOLERANCE:g} x "
                f"the {fold.max_tokens:,} asked for): raise summary_max_tokens or lower the model's own max_tokens"
            )
        if tokens > fold.replaced_tokens:
            raise SummarizationError(
                f"the summary has {tokens:,} tokens, more than the {fold.replaced_tokens:,} it replaces: "
                "summarize more messages at once or use a model that follows the instructions"
            )
        return text


def _reply_text(reply: Any) -> str:
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
    return text


@contextmanager
def _failures_are_soft() -> Iterator[None]:
    """Turn whatever a model raises into a `SummarizationError`: a turn that fits goes on without a summary."""
    try:
        yield
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
        reply = model(messages)
        return _wait_for(reply) if inspect.isawaitable(reply) else reply

    async def acall(messages: list[AnyMessage]) -> Any:
        reply = model(messages) if is_async_callable(model) else await run_in_executor(None, model, messages)
        return await reply if inspect.isawaitable(reply) else reply

    return RunnableLambda(call, afunc=acall, name="summarizer")


def _wait_for(reply: Awaitable[Any]) -> Any:
    """Await `reply` from sync code; in a thread of its own where the calling thread already runs an event loop."""

    async def settle() -> Any:
        return await reply

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # the usual case: nothing else runs here
        return asyncio.run(settle())
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(copy_context().run, asyncio.run, settle()).result()
