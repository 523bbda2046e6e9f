"""A callback handler that reports every call of a chat model, for those who take neither the nodes nor the middleware.

Also the metadata that our own calls of models carry, for LangSmith and other tracers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables.config import RunnableConfig, ensure_config, merge_configs, var_child_runnable_config

from langchain_ctxwin.core.calibration import answered_by
from langchain_ctxwin.core.events import RefusalEvent, RouteEvent, StepEvent, SummaryEvent
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import UNKNOWN_FAMILY, ModelInfo
from langchain_ctxwin.core.native import provider_named
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.spending import Usage
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.core.tool_schemas import name_of
from langchain_ctxwin.core.turns import SOURCE
from langchain_ctxwin.core.window import Window
from langchain_ctxwin.protocols import MetricsSink, TokenCounter, takes_tools
from langchain_ctxwin.reporting import Prices, Reporter
from langchain_ctxwin.util.memo import Lru

MAX_RUNNING = 1_000  # calls at once that are told apart; of more, the oldest end without an event
SUMMARIZING = "summarization"  # what `lc_source` says of a call that writes a summary, as LangChain spells it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A call that has begun."""

    at: float
    thread: str
    model: str  # its name as it states it
    metadata: Mapping[str, Any]
    messages: Sequence[BaseMessage]
    tools: Sequence[Any]


class ContextCallbackHandler(BaseCallbackHandler):
    """Reports every call of a chat model to sinks, as `StepEvent`s; for agents without the nodes or the middleware.

    Routed answers are also reported as `RouteEvent`s, calls that write a summary as `SummaryEvent`s, and requests that
    a provider refuses as too large as `RefusalEvent`s. An agent that has the sinks itself needs no handler: it would
    report each step twice.

    Args:
        sinks: take the events.
        limits: of the models, where `prices` does not state them: anything `ModelLimits.of` reads.
        prices: of models, and their limits: a `ModelInfo`, a `ModelRegistry`, or a function that returns the
            `ModelInfo` for a name.
        counter: counts requests, to be compared with what is reported; by default the estimator of the provider's
            family.

    Raises:
        ConfigError: an argument is of the wrong type.

    Examples:
        ```python
        sink = MemorySink()
        model.invoke("hi", {"callbacks": [ContextCallbackHandler([sink])]})
        sink.events[0].reported_tokens
        ```
    """

    run_inline = True

    def __init__(
        self,
        sinks: Iterable[MetricsSink] | Reporter,
        *,
        limits: Any = None,
        prices: Any = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._reporter = Reporter.of(sinks)
        self._limits = ModelLimits() if limits is None else ModelLimits.of(limits)
        self._prices = Prices.made(prices)
        self._counter = counter
        self._running: Lru[_Begun] = Lru(MAX_RUNNING)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002  # the base class's signature
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take up that a call begins."""
        known = metadata or {}
        begun = _Begun(
            at=perf_counter(),
            thread=str(known.get("thread_id") or ""),
            model=str(known.get("ls_model_name") or ""),
            metadata=known,
            messages=messages[0],
            tools=(kwargs.get("invocation_params") or {}).get("tools") or (),
        )
        self._prices.of(begun.model)  # it is looked up while the model answers
        self._running.put(run_id, begun)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Report the call."""
        begun = self._ended(run_id)
        generation = next((one for batch in response.generations for one in batch), None)
        answer = generation.message if isinstance(generation, ChatGeneration) else None
        if begun is None or not isinstance(answer, AIMessage):
            return
        seconds = round(perf_counter() - begun.at, 6)
        route = answer.response_metadata.get("route")
        routed = str(route.get("model") or "") if isinstance(route, Mapping) else ""
        model = routed or begun.model or answered_by(answer)
        info = self._prices.of(model)
        if begun.metadata.get("lc_source") == SUMMARIZING:
            usage = Usage.of_answer(answer)
            event = SummaryEvent(
                status="ready",
                thread=begun.thread,
                model=model,
                seconds=seconds,
                calls=1,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost=usage.cost(info),
            )
            self._reporter.emit(event)
            return
        if isinstance(route, Mapping):
            self._reporter.emit(replace(RouteEvent.of_answer(route), thread=begun.thread))
        self._reporter.emit(
            StepEvent.of_answer(answer, info=info, model=model, duration_seconds=seconds, **self._request(begun, info))
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Report a request that its provider refused as too large."""
        begun = self._ended(run_id)
        overflow = classify_overflow(error) if isinstance(error, Exception) else None
        if begun is None or overflow is None:
            return
        self._reporter.emit(
            RefusalEvent(
                thread=begun.thread,
                model=begun.model,
                reason=type(error).__name__,
                total_tokens=overflow.actual or self._count(begun),
                input_limit=overflow.limit,
            )
        )

    def _ended(self, run_id: UUID) -> _Begun | None:
        begun = self._running.get(run_id)
        self._running.drop(run_id)
        return begun

    def _request(self, begun: _Begun, info: ModelInfo | None) -> dict[str, Any]:
        """What is known of the request, as fields of its event."""
        limits = info.limits if info is not None and info.limits.known else self._limits
        reserve, counted = limits.output_reserve() if limits.known else None, self._count(begun)
        offered = tuple(map(name_of, begun.tools))
        return {
            "thread": begun.thread,
            "input_limit": limits.input_limit(reserve or 0) if limits.known else None,
            "context_window": limits.context_window,
            "reserved_tokens": reserve,
            "estimated_tokens": counted,
            "plain_tokens": counted,
            "counted_by": "estimate",
            "tools_available": len(offered),
            "tools_offered": offered,
        }

    def _count(self, begun: _Begun) -> int:
        family = provider_named(begun.metadata.get("ls_provider")) or UNKNOWN_FAMILY
        counter: TokenCounter = TokenEstimator(family) if self._counter is None else self._counter
        messages = cast("list[AnyMessage]", list(begun.messages))
        return counter(messages, tools=list(begun.tools) or None) if takes_tools(counter) else counter(messages)


def metadata_of(window: Window, provider: str | None = None) -> dict[str, Any]:
    """Return the metadata of a call of the agent's model, for LangSmith and other tracers; without any message's text.

    A chat model states its own provider, where nobody else does.
    """
    report = window.report
    known = {"ls_provider": provider, "ls_model_name": window.about.model}
    return {
        **{name: value for name, value in known.items() if value},
        "lc_source": SOURCE,
        "ctxwin_total_tokens": report["total_tokens"],
        "ctxwin_input_limit": report["input_limit"],
        "ctxwin_utilization": report["utilization"],
        "ctxwin_compactions": report["compactions"],
        "ctxwin_counted_by": report["counted_by"],
    }


def with_metadata(config: RunnableConfig | None, metadata: Mapping[str, Any]) -> RunnableConfig:
    """Return the config of a call with metadata beside those of the run; what the caller says counts."""
    known = ensure_config(config).get("metadata") or {}
    return merge_configs(config, {"metadata": {**metadata, **known}})


@contextmanager
def calls_carry(metadata: Mapping[str, Any]) -> Iterator[None]:
    """Let the calls that are made meanwhile, by this thread or task, carry metadata."""
    token = var_child_runnable_config.set(with_metadata(ensure_config(), metadata))
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)
