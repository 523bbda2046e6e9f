"""Replays conversations through the nodes at several windows and checks every request with an exact tokenizer."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import structlog
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

import exact
from langchain_ctxwin import (
    BudgetExceededError,
    ContextConfig,
    ContextEngine,
    ContextNodes,
    ModelLimits,
    TokenEstimator,
)
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.core.turns import split_steps
from langchain_ctxwin.observe import AlertEvent, Alerts, MemorySink, StepEvent
from transcripts import Transcript, load

State = dict[str, Any]


class RefusedError(ContextOverflowError):
    """What the measured provider raises for a request over its input limit."""


class Replay:
    """One conversation at one window: the recorded answers, our requests."""

    def __init__(
        self,
        transcript: Transcript,
        window: int,
        settings: dict[str, Any],
        family: str,
        reserve: float,
        *,
        summarizer: Any = None,
    ) -> None:
        self.transcript, self.found, self.shares = transcript, Counter(), {"sent": [], "before": [], "stable": []}
        limits = ModelLimits(context_window=window, requested_output_tokens=int(window * reserve))
        self.limit = window - int(window * reserve)
        config = ContextConfig(**settings)
        engine = ContextEngine(limits, counter=TokenEstimator(family), config=config, summarizer=summarizer)
        messages = transcript.messages
        self.first = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))
        self.nodes = ContextNodes(engine, tools=transcript.tools)
        self.model = self.nodes.model_node(self.answer)
        self.reply: AIMessage | None = None
        self.sent: list[AnyMessage] | None = None
        self.sent_tokens = 0
        self.refused = 0

    def answer(self, request: list[AnyMessage]) -> AIMessage:
        """Answer as recorded; refuse what is too large, as a provider does."""
        tokens = exact.request_tokens(request, self.transcript.tools)
        self.found["orphans"] += len(find_faults(request))
        if tokens > self.limit:
            self.refused += 1
            raise RefusedError(
                f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({self.limit})."
            )
        self.shares["sent"].append(tokens / self.limit)
        common = 0 if self.sent is None else common_tokens(self.sent, request, self.transcript.tools)
        if self.sent is not None:
            self.shares["stable"].append(common / self.sent_tokens)
        self.note(request, tokens, common)
        self.sent, self.sent_tokens = request, tokens
        usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
        assert self.reply is not None
        return self.reply.model_copy(update={"usage_metadata": usage})

    def note(self, request: list[AnyMessage], tokens: int, common: int) -> None:
        """Called with each accepted request, its size and what it shares with the one before."""

    def run(self) -> State:
        state: State = {"messages": []}
        for message in self.transcript.messages:
            if not isinstance(message, AIMessage):
                state["messages"] = [*state["messages"], message]
                continue
            self.refused, first = 0, self.sent is None
            try:
                state = self.step(state, message)
                self.found["over_first" if first else "over_later"] += self.refused
            except (BudgetExceededError, RefusedError) as error:
                self.found["gave_up" if isinstance(error, RefusedError) else "refusals"] += 1
                state["messages"] = [*state["messages"], message]
        return state

    def step(self, state: State, reply: AIMessage) -> State:
        if not any(isinstance(m, HumanMessage) for m in state["messages"]):
            return {**state, "messages": [*state["messages"], reply]}
        self.reply = reply
        self.found["requests"] += 1
        before = self.sent_tokens / self.limit
        state |= self.nodes.budget_check.invoke(state)
        for _ in range(2):
            if (node := self.nodes.route_on_budget(state)) == "build_messages":
                break
            self.shares["before"].append(before)
            self.found[node] += 1
            state |= getattr(self.nodes, node).invoke(state)
            state["context_pending"] = {}
        state |= self.nodes.build_messages.invoke(state)
        self.check_question(state)
        update = self.model.invoke(state)
        state |= {**update, "messages": [*state["messages"], *update["messages"]]}
        if not reply.tool_calls:
            state |= self.nodes.maybe_summarize.invoke(state)
        return state

    def check_question(self, state: State) -> None:
        question = next(m for m in reversed(state["messages"]) if isinstance(m, HumanMessage))
        shown = next((m for m in state["llm_input_messages"] if m.id == question.id), None)
        if shown is None:
            self.found["lost"] += 1
        elif shown.content != question.content and question.content.strip():
            self.found["clamped"] += 1


def common_tokens(old: Sequence[AnyMessage], new: Sequence[AnyMessage], tools: list[dict[str, Any]]) -> int:
    """Tokens of the common prefix of two requests, tools included: what a provider's prompt cache can reuse."""
    tokens = exact.tools_tokens(tools) + exact.REPLY_TOKENS
    for before, after in zip(old, new, strict=False):
        a, b = exact.payload(before), exact.payload(after)
        if before.type != after.type:
            return tokens
        if a != b:
            return tokens + exact.text_tokens(os.path.commonprefix([a, b]))  # noqa: RUF071  # by character is meant
        tokens += exact.message_tokens(before)
    return tokens


def ceiling(transcript: Transcript, limit: int, keep: float) -> list[float]:
    """Prefix stability when only the start moves, to the low-water mark, when the next request would not fit."""
    messages = transcript.messages
    first = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))
    fixed = exact.tools_tokens(transcript.tools) + exact.REPLY_TOKENS + sum(map(exact.message_tokens, messages[:first]))
    steps: list[int] = []
    previous, shares = 0, []
    for step in split_steps(messages, first):
        if previous and isinstance(step.messages[0], AIMessage):
            total, moved = fixed + sum(steps), False
            while (total > limit and steps) or (moved and total > fixed + keep * (limit - fixed) and len(steps) > 1):
                total, moved = total - steps.pop(0), True
            shares.append(min(1.0, fixed / previous) if moved else 1.0)
        if isinstance(step.messages[0], AIMessage):
            previous = fixed + sum(steps)
        steps.append(sum(map(exact.message_tokens, step.messages)))
    return shares


def measure(
    job: tuple[Transcript, int, dict[str, Any], str, float],
) -> tuple[int, Counter[str], dict[str, list[float]]]:
    transcript, window, settings, family, reserve = job
    replay = Replay(transcript, window, settings, family, reserve)
    replay.run()
    keep = float(settings.get("keep", ContextConfig().keep))
    replay.shares["ceiling"] = ceiling(transcript, replay.limit, keep)
    replay.found["transcripts"] += 1
    replay.found["alerts"] += is_alert(replay.shares["sent"])
    replay.found["compacted"] += bool(replay.found["force_compress"] + replay.found["maybe_summarize"])
    return window, replay.found, replay.shares


def is_alert(shares: Sequence[float]) -> bool:
    """Say whether the default thresholds would tell of requests of these sizes."""
    sink = MemorySink()
    alerts = Alerts(then=sink)
    for share in shares:
        alerts.emit(StepEvent(thread="1", input_limit=1_000_000, reported_tokens=round(1_000_000 * share)))
    return bool(sink.of(AlertEvent))


def report(rows: Iterator[tuple[int, Counter[str], dict[str, list[float]]]], windows: Sequence[int]) -> None:
    found = {window: Counter() for window in windows}
    shares: dict[int, dict[str, list[float]]] = {w: {} for w in windows}
    for window, counts, lists in rows:
        found[window].update(counts)
        for name, values in lists.items():
            shares[window].setdefault(name, []).extend(values)
    lines = (
        ("requests", "requests"),
        ("over the limit and recovered, first request", "over_first"),
        ("over the limit and recovered, later", "over_later"),
        ("pairing faults", "orphans"),
        ("lost user messages", "lost"),
        ("typed refusals", "refusals"),
        ("smallest request refused by the provider too", "gave_up"),
        ("requests with a clamped user message", "clamped"),
        ("inline summaries", "maybe_summarize"),
        ("forced compactions", "force_compress"),
        ("conversations with an alert on utilization", "alerts"),
    )
    print(f"{'':44}" + "".join(f"{w:>12,}" for w in windows))
    for label, key in lines:
        print(f"{label:44}" + "".join(f"{found[w][key]:>12,}" for w in windows))
    for label, key in (
        ("utilization when compaction starts (goal 0.80)", "before"),
        ("utilization, mean", "sent"),
        ("prefix stability, mean", "stable"),
        ("  ceiling when only the start moves", "ceiling"),
    ):
        values = [mean(shares[w].get(key) or [0.0]) for w in windows]
        print(f"{label:44}" + "".join(f"{value:>12.3f}" for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with transcripts/*.jsonl.gz; generated ones without it")
    parser.add_argument("--windows", type=int, nargs="+", default=[4096, 8192, 32768])
    parser.add_argument("--family", default="openai")
    parser.add_argument("--reserve", type=float, default=0.25, help="share of the window reserved for the answer")
    parser.add_argument("--limit", type=int, help="conversations per file")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of ContextConfig")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    settings = {name: value for name, _, value in (item.partition("=") for item in options.set)}
    began = time.perf_counter()
    jobs = [
        (transcript, window, settings, options.family, options.reserve)
        for transcript in load(options.data, limit=options.limit)
        for window in options.windows
    ]
    print(
        f"{len(jobs) // len(options.windows)} conversations ({'recorded' if options.data else 'generated'}), "
        f"tokenizer {exact.ENCODING}, estimator family {options.family}, settings {settings or 'default'}"
    )
    with multiprocessing.Pool(os.cpu_count()) as pool:
        report(pool.imap_unordered(measure, jobs, chunksize=8), options.windows)
    print(f"{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
