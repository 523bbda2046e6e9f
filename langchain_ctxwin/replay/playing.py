"""Replays: what the requests of recorded conversations would have been under a policy. No model is called.

recorded answer  --history before it-->  policy  --request-->  counted, billed, searched for what the answer needed
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import structlog
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from langchain_ctxwin.agent.nodes import ContextNodes
from langchain_ctxwin.core.edits import text_of
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.counting import VocabularyCounter
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import BudgetExceededError, ConfigError
from langchain_ctxwin.replay.needed import needed_values
from langchain_ctxwin.replay.policies import Policy
from langchain_ctxwin.replay.reading import Conversation

CACHED_PRICE = 0.1
"""What a token costs that the provider has in its cache, beside one that it has not (Anthropic, OpenAI, Gemini)."""

RESERVE_SHARE = 0.25
"""Part of the window that is kept for the answer where nothing else is said, as everywhere in this package."""

MILLION = 1_000_000
"""Tokens that providers state their prices for."""

WAITING, POLL_SECONDS = 4, 0.1
"""Conversations that are read ahead for each process, and how soon reading ends when nobody wants more."""

VOCABULARY, FAMILY = "o200k_base", "openai"
"""What requests are counted with: exactly with the extra `exact`, else by the estimator of the same family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What became of the requests of some conversations under one policy; sums, so that results can be added."""

    policy: str
    window: int
    conversations: int = 0
    requests: int = 0
    over_limit: int = 0
    """Requests that would have been refused as too large, and by ours were sent again smaller."""

    refused: int = 0
    """Requests for which there is nothing that may leave: a typed error."""

    compactions: int = 0
    """Requests that did not extend the one before, and cost the cached prefix behind the first change."""

    needed: int = 0
    shown: int = 0
    """Values in the arguments of calls that had been seen before, once something has to leave; and those of them that
    the request still shows."""

    sent_tokens: int = 0
    billed_tokens: float = 0.0
    """Input, and what it costs in uncached tokens when the prefix shared with the request before is cached."""

    shared_tokens: int = 0
    limit_tokens: int = 0

    def __add__(self, other: ReplayResult) -> ReplayResult:
        """Return the sums of both."""
        added = [one.name for one in fields(self) if one.name not in {"policy", "window"}]
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in added})

    @property
    def sufficiency(self) -> float | None:
        """Share of what the next call needed that its request shows; None when nothing ever had to leave."""
        return self.shown / self.needed if self.needed else None

    @property
    def billed_per_request(self) -> float:
        """Input tokens that a request costs on average."""
        return self.billed_tokens / max(1, self.requests)

    def cost(self, input_price: float, cached_price: float | None = None) -> float:
        """Return what the input of all requests costs, in the currency of the prices.

        Args:
            input_price: of a million tokens.
            cached_price: of a million tokens that the provider has in its cache; by default a tenth of the other.
        """
        cached = CACHED_PRICE * input_price if cached_price is None else cached_price
        return ((self.sent_tokens - self.shared_tokens) * input_price + self.shared_tokens * cached) / MILLION

    @property
    def utilization(self) -> float:
        """Size of the requests over their limit."""
        return self.sent_tokens / max(1, self.limit_tokens)

    @property
    def prefix_stability(self) -> float:
        """Part of the requests that a prompt cache has from the one before."""
        return self.shared_tokens / max(1, self.sent_tokens)

    def to_dict(self) -> dict[str, Any]:
        """Return every figure as plain values."""
        figures = {one.name: getattr(self, one.name) for one in fields(self)}
        derived = ("sufficiency", "billed_per_request", "utilization", "prefix_stability")
        rounded = {name: None if (x := getattr(self, name)) is None else round(x, 4) for name in derived}
        return {**figures, "billed_tokens": round(self.billed_tokens), **rounded}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request of a replay, as it is sent."""

    request: list[AnyMessage]
    history: int
    """Messages of the conversation, after its leading system messages, that there were."""

    tokens: int
    cached_tokens: int
    """Its size, and the part at its beginning that the request before had too."""

    missing: tuple[str, ...]
    """What the recorded answer needed, had been seen before, and is not in the request."""

    report: Mapping[str, Any]
    guard: Mapping[str, Any]
    """The `context_report` and `context_guard` of ours; empty for a plain policy."""


def replay(
    conversation: Conversation, policy: Policy, window: int, *, heard: Callable[[Sent], None] | None = None
) -> ReplayResult:
    """Return what the requests of one conversation would have been.

    Args:
        conversation: the recording.
        policy: what decides about each request.
        window: context window in tokens; a quarter of it is kept for the answer.
        heard: is told of each request that is sent.

    Raises:
        ConfigError: the window leaves no room for input.
    """
    return _Play(conversation, policy, window, heard).run()


def compare(
    conversations: Iterable[Conversation], policies: Sequence[Policy], window: int, *, jobs: int | None = None
) -> Iterator[list[ReplayResult]]:
    """Yield the results so far, one per policy, after each conversation; all cores work.

    Args:
        conversations: the recordings; they are read as they are needed.
        policies: what is compared.
        window: context window in tokens.
        jobs: processes; None is one per core, 1 works in this one.

    Raises:
        ConfigError: the window leaves no room for input, or there are no policies.
    """
    if not policies:
        raise ConfigError("0 policies to compare: name at least one")
    ModelLimits(context_window=window).input_limit(_reserve(window))
    totals = [ReplayResult(policy=policy.name, window=window) for policy in policies]
    workers = jobs or os.cpu_count() or 1
    for played in _each(conversations, policies, window, workers):
        totals = [total + one for total, one in zip(totals, played, strict=True)]
        yield totals


def _each(
    conversations: Iterable[Conversation], policies: Sequence[Policy], window: int, workers: int
) -> Iterator[list[ReplayResult]]:
    """The results of each conversation; no more of them are read than are worked on."""
    if workers == 1:
        yield from map(_played, ((conversation, policies, window) for conversation in conversations))
        return
    free, ended = threading.Semaphore(WAITING * workers), threading.Event()

    def work() -> Iterator[tuple[Conversation, Sequence[Policy], int]]:
        for conversation in conversations:
            while not free.acquire(timeout=POLL_SECONDS):
                if ended.is_set():
                    return
            yield conversation, policies, window

    with multiprocessing.get_context("spawn").Pool(workers, initializer=quiet) as pool:
        try:
            for played in pool.imap_unordered(_played, work()):
                free.release()
                yield played
        finally:
            ended.set()


def quiet() -> None:
    """Log nothing below errors in this process: a replay of a year would tell of each compaction."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def _played(work: tuple[Conversation, Sequence[Policy], int]) -> list[ReplayResult]:
    conversation, policies, window = work
    return [replay(conversation, policy, window) for policy in policies]


def input_limit(window: int) -> int:
    """Return the tokens that a request may have in a window."""
    return window - _reserve(window)


def _reserve(window: int) -> int:
    return max(1, int(RESERVE_SHARE * window))


class _RefusedError(ContextOverflowError):
    """What the provider of a replay says to a request that is too large."""


class _Play:
    """One conversation under one policy."""

    def __init__(
        self, conversation: Conversation, policy: Policy, window: int, heard: Callable[[Sent], None] | None
    ) -> None:
        self.conversation, self.heard = conversation, heard
        self.count = _counter()
        self.limit = input_limit(window)
        self.result = ReplayResult(policy=policy.name, window=window, conversations=1)
        messages = conversation.messages
        first = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))
        self.system, self.rest = list(messages[:first]), list(messages[first:])
        self.sizes: dict[tuple[str | None, str], int] = {}
        self.room = self.limit - self.count(self.system, tools=list(conversation.tools) or None)
        self.plain = policy.make(max(0, self.room), self.size) if policy.make else None
        self.state: dict[str, Any] = {"messages": []}
        self.reply = AIMessage("")
        self.before: list[AnyMessage] = []
        self.needs: list[str] = []
        self.moment: Mapping[str, Any] = {}
        """The state of ours when its request was built."""
        if policy.make is None:
            limits = ModelLimits(context_window=window, requested_output_tokens=_reserve(window))
            engine = ContextEngine(limits, counter=TokenEstimator(FAMILY), config=policy.config)
            self.nodes = ContextNodes(engine, system_prompt=_joined(self.system), tools=list(conversation.tools))
            self.model = self.nodes.model_node(self._answer)

    def size(self, message: AnyMessage) -> int:
        """Tokens of a message, counted once."""
        key = (message.id, message.text)
        if key not in self.sizes:
            self.sizes[key] = self.count([message]) - self.count([])
        return self.sizes[key]

    def run(self) -> ReplayResult:
        """Take the conversation answer by answer."""
        history, texts, is_asked = list[AnyMessage](), list[str](), False
        for message in self.rest:
            is_answer = isinstance(message, AIMessage) and is_asked
            if isinstance(message, AIMessage) and is_answer:
                self.needs = self._needs(message, history, texts)
                self._ask(message, history)
            is_asked = is_asked or isinstance(message, HumanMessage)
            history.append(message)
            texts.append(_text(message))
            self.state["messages"] = list(history)
            if is_answer and self.plain is None and not getattr(message, "tool_calls", None):
                self.state |= self.nodes.maybe_summarize.invoke(self.state)
        guard = self.state.get("context_guard") or {}
        return self._with(compactions=int(guard.get("compactions", 0))) if self.plain is None else self.result

    def _ask(self, reply: AIMessage, history: Sequence[AnyMessage]) -> None:
        """Make the request for one recorded answer, and send it."""
        self.result = self._with(requests=1)
        if self.plain is not None:
            request = [*self.system, *self.plain.view(history)]
            self._sent(request)
            return
        self.reply = reply
        state = dict(self.state)
        try:
            for node in ("budget_check", "maybe_summarize", "force_compress"):
                if node == "budget_check" or self.nodes.route_on_budget(state) == node:
                    state |= getattr(self.nodes, node).invoke(state)
            state |= self.nodes.build_messages.invoke(state)
            self.moment = state
            state |= {key: value for key, value in self.model.invoke(state).items() if key != "messages"}
        except BudgetExceededError:
            self.result = self._with(refused=1)
        except _RefusedError:
            pass  # counted when it was said; nothing smaller was possible
        self.state = {key: value for key, value in state.items() if key != "llm_input_messages"}

    def _answer(self, request: list[AnyMessage]) -> AIMessage:
        """Answer as recorded; refuse what is too large, as a provider does."""
        tokens = self._sent(request)
        if tokens > self.limit:
            raise _RefusedError(f"prompt is too long: {tokens} tokens > {self.limit} maximum")
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        return self.reply.model_copy(update={"usage_metadata": usage})

    def _sent(self, request: list[AnyMessage]) -> int:
        """Count, bill and search a request; return its size. One that is too large is billed nowhere."""
        tools = list(self.conversation.tools) or None
        tokens = self.count(request, tools=tools)
        if tokens > self.limit:
            self.result = self._with(over_limit=1)
            return tokens
        shared = _shared(self.before, request)
        if self.plain is not None and shared < len(self.before):
            self.result = self._with(compactions=1)
        cached = self.count(request[:shared], tools=tools) if shared else 0
        text = "\n".join(map(_text, request))
        missing = tuple(value for value in self.needs if value not in text)
        if self.heard:
            sent = Sent(
                request=request,
                history=len(self.state["messages"]),
                tokens=tokens,
                cached_tokens=cached,
                missing=missing,
                report=self.moment.get("context_report") or {},
                guard=self.moment.get("context_guard") or {},
            )
            self.heard(sent)
        self.result = self._with(
            sent_tokens=tokens,
            shared_tokens=cached,
            billed_tokens=tokens - (1 - CACHED_PRICE) * cached,
            limit_tokens=self.limit,
            needed=len(self.needs),
            shown=len(self.needs) - len(missing),
        )
        self.before = request
        return tokens

    def _needs(self, reply: AIMessage, history: Sequence[AnyMessage], texts: Sequence[str]) -> list[str]:
        """What the recorded answer names that was seen before, once something has to leave."""
        if sum(map(self.size, history)) <= self.room:
            return []
        return [needed.value for needed in needed_values(reply, texts)]

    def _with(self, **added: float) -> ReplayResult:
        sums = {name: getattr(self.result, name) + amount for name, amount in added.items()}
        return replace(self.result, **sums)


def _counter() -> Callable[..., int]:
    try:
        return VocabularyCounter(VOCABULARY)
    except ConfigError:  # the extra is not installed
        return TokenEstimator(FAMILY)


def _joined(system: Sequence[AnyMessage]) -> str:
    return "\n\n".join(text_of(message.content) for message in system)


def _text(message: AnyMessage) -> str:
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    return " ".join([text_of(message.content), *(f"{call['name']} {call['args']}" for call in calls)])


def _shared(before: Sequence[AnyMessage], now: Sequence[AnyMessage]) -> int:
    """How many messages at the beginning two requests share."""
    pairs = zip(before, now, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if _told(a) != _told(b)), min(len(before), len(now)))


def _told(message: AnyMessage) -> tuple[Any, ...]:
    return message.type, message.content, getattr(message, "tool_calls", None)
