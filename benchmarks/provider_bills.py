"""What each provider bills for the same recorded agents: ours, langchain's summarizer, a plain tail, nothing.

The times of the requests are assumed, see cached_requests.py.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage

import exact
from cached_requests import MARKED, MIDDLEWARE, Clock, Placement, breakpoints, laid_out, usual
from langchain_ctxwin import BudgetExceededError, ExtractiveSummarizer
from langchain_ctxwin.config import PRESETS
from plain_tails import Dropped
from prompt_caches import (
    ANTHROPIC_RULES,
    RULES,
    Bill,
    CacheLedger,
    CacheRules,
)
from spending import SUMMARY_PROMPT_TOKENS
from sufficiency import LEAST_ROOM, OURS, TO_HALF, Job, Ours, Policy, conversations

MACHINE_TURNS = frozenset({"sweagent_claude_text"})
"""Here the user messages are results of commands: nobody thinks between them."""

TRIGGER_SHARE, KEEP_SHARE = 0.8, 0.3  # SummarizationMiddleware's documented example
SUMMARY_SHARE = 1 / 16  # longest summary, of the window, as in the arena
SUMMARIZED, NEVER = "langchain", "never"
WINDOWS = (8_192, 32_768)
ARMS = (OURS, SUMMARIZED, TO_HALF, NEVER)

PLACEMENTS: dict[str, Placement] = {
    "tail": (("tail", 0),),
    "system, tail": (("system", 0), ("tail", 0)),
    "tools, system, tail": MIDDLEWARE,
    "system, record, tail": (("system", 0), ("record", 0), ("tail", 0)),
    "pins, tail": (("pins", 0), ("tail", 0)),
    "system, pins, tail": MARKED,
    "system, pins, record, tail": (("system", 0), ("pins", 0), ("record", 0), ("tail", 0)),
    "system, pins, before, tail": (("system", 0), ("pins", 0), ("before", 0), ("tail", 0)),
    "tail 1h": (("tail", 1),),
    "system, tail 1h": (("system", 1), ("tail", 1)),
    "system, record, tail 1h": (("system", 1), ("record", 1), ("tail", 1)),
    "system, pins, tail 1h": (("system", 1), ("pins", 1), ("tail", 1)),
    "system, pins, record, tail 1h": (("system", 1), ("pins", 1), ("record", 1), ("tail", 1)),
    "system 1h, tail": (("system", 1), ("tail", 0)),
    "system, pins 1h, tail": (("system", 1), ("pins", 1), ("tail", 0)),
    "system, record 1h, tail": (("system", 1), ("record", 1), ("tail", 0)),
}

Books = dict[tuple[str, str, str], Bill]
"""Bills by arm, rules and placement."""


class Whole:
    """All of it, as if it always fitted."""

    def view(self, history: Sequence[AnyMessage], sizes: Sequence[int]) -> list[AnyMessage]:  # noqa: ARG002
        return list(history)


class Summarized:
    """langchain's `SummarizationMiddleware` on an exact count, its summaries billed as if a model had written them."""

    def __init__(self, room_tokens: int, window: int) -> None:
        from langchain.agents.middleware import SummarizationMiddleware

        self.calls: list[tuple[int, int]] = []
        """Input and output tokens of each summary."""

        self.messages: list[AnyMessage] = []
        self.taken = 0
        self._extract, self._most = ExtractiveSummarizer(), int(SUMMARY_SHARE * window)
        self._middleware = SummarizationMiddleware(
            FakeListChatModel(responses=[""]),
            trigger=("tokens", int(TRIGGER_SHARE * room_tokens)),
            keep=("tokens", int(KEEP_SHARE * room_tokens)),
            token_counter=lambda messages: sum(map(exact.message_tokens, messages)),
            trim_tokens_to_summarize=None,
            summarizer=self._summary,
        )

    def view(self, history: Sequence[AnyMessage], sizes: Sequence[int]) -> list[AnyMessage]:  # noqa: ARG002
        self.messages += history[self.taken :]
        self.taken = len(history)
        update = self._middleware.before_model({"messages": self.messages}, None) or {}  # type: ignore[arg-type]
        if "messages" in update:
            self.messages = [m for m in update["messages"] if not isinstance(m, RemoveMessage)]
        return list(self.messages)

    def _summary(self, messages: Sequence[AnyMessage]) -> str:
        text = self._extract.summarize(list(messages), previous="", max_tokens=self._most)
        read = sum(map(exact.message_tokens, messages)) + SUMMARY_PROMPT_TOKENS
        self.calls.append((read, exact.text_tokens(text)))
        return text


class Session:
    """One conversation at one window: the requests of every arm in everybody's books."""

    def __init__(self, job: Job) -> None:
        self.job, self.books, self.tally = job, Books(), Counter[str]()
        messages = job.transcript.messages
        prompt = "\n\n".join(exact.payload(m) for m in messages if isinstance(m, SystemMessage))
        self.head: list[AnyMessage] = [SystemMessage(prompt)] if prompt else []
        self.rest = [m for m in messages if not isinstance(m, SystemMessage)]
        self.sizes = list(map(exact.message_tokens, self.rest))
        self.room = job.limit - exact.request_tokens(self.head, job.transcript.tools)
        self.clock = Clock(job.transcript.name)
        self.has_users = job.transcript.source not in MACHINE_TURNS
        self.policies: dict[str, Policy] = {}
        self.ledgers: dict[tuple[str, str, str], CacheLedger] = {}
        if self.room >= LEAST_ROOM and sum(self.sizes) > self.room:
            self.policies = {
                OURS: Ours(job, prompt),
                SUMMARIZED: Summarized(self.room, job.window),
                TO_HALF: Dropped(self.room, keep=0.5),
                NEVER: Whole(),
            }
            self.ledgers = {(arm, rules.name, name): CacheLedger(rules) for arm, rules, name in self._entries()}

    @staticmethod
    def _entries() -> list[tuple[str, CacheRules, str]]:
        main = [(arm, rules, "") for arm in ARMS for rules in RULES]
        return main + [(OURS, rules, name) for rules in ANTHROPIC_RULES for name in PLACEMENTS]

    def run(self) -> tuple[Books, Counter[str]]:
        for at, message in enumerate(self.rest if self.policies else ()):
            if not isinstance(message, AIMessage):
                continue
            try:
                requests = {
                    arm: [*self.head, *p.view(self.rest[:at], self.sizes[:at])] for arm, p in self.policies.items()
                }
            except BudgetExceededError:  # the conversation ends for everybody
                self.tally["refused"] += 1
                break
            self._bill(requests, message)
            self.rest[at] = self._reported(message, requests[OURS])
            self._wait(message, self.rest[at + 1 : at + 2])
        self._bill_summaries()
        self.books = {key: ledger.bill for key, ledger in self.ledgers.items()}
        self.tally.update({"conversations": bool(self.policies), **self.clock.gaps})
        return self.books, self.tally

    def _requests(self, at: int) -> dict[str, list[AnyMessage]]:
        history, sizes = self.rest[:at], self.sizes[:at]
        return {arm: [*self.head, *policy.view(history, sizes)] for arm, policy in self.policies.items()}

    def _bill(self, requests: dict[str, list[AnyMessage]], answer: AIMessage) -> None:
        tools = self.job.transcript.tools
        for arm, messages in requests.items():
            laid = laid_out(messages, tools, answer, self.clock.seconds)
            self.tally[f"over, {arm}"] += exact.request_tokens(messages, tools) > self.job.limit
            for (of, _, name), ledger in self.ledgers.items():
                if of == arm:
                    placement = PLACEMENTS[name] if name else usual(ledger.rules, ours=arm == OURS)
                    ledger.record(laid.request, breakpoints(laid, placement))

    def _wait(self, answer: AIMessage, following: list[AnyMessage]) -> None:
        is_turn = self.has_users and any(isinstance(m, HumanMessage) for m in following)
        self.clock.answered(exact.message_tokens(answer), is_turn=is_turn)

    def _bill_summaries(self) -> None:
        policy = self.policies.get(SUMMARIZED)
        for (arm, _, _), ledger in self.ledgers.items():
            if arm == SUMMARIZED and isinstance(policy, Summarized):
                for read, written in policy.calls:
                    ledger.record_summary(input_tokens=read, output_tokens=written)

    def _reported(self, reply: AIMessage, request: list[AnyMessage]) -> AIMessage:
        """The reply with the size of our request, as a provider reports it."""
        tokens = exact.request_tokens(request, self.job.transcript.tools)
        usage = {"input_tokens": tokens, "output_tokens": 10, "total_tokens": tokens + 10}
        return reply.model_copy(update={"usage_metadata": usage})


def play(job: Job) -> tuple[int, Books, Counter[str]]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return (job.window, *Session(job).run())


def compare(data: Path | None, windows: Sequence[int], *, per_file: int, half: str = "b") -> None:
    """Print what each provider bills for each arm, and what each placement of breakpoints is worth at Anthropic."""
    chosen = list(conversations(data, (), per_file, half))
    settings = tuple(PRESETS["balanced"].items())
    jobs = [Job(transcript=t, window=w, settings=settings) for t in chosen for w in windows]
    books: dict[int, Books] = {window: {} for window in windows}
    tallies = {window: Counter[str]() for window in windows}
    began = time.perf_counter()
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for window, found, tally in pool.imap_unordered(play, jobs, chunksize=1):
            tallies[window].update(tally)
            for key, bill in found.items():
                books[window].setdefault(key, Bill()).add(bill)
    print(f"half {half}, {'recorded' if data else 'generated'} conversations, tokenizer {exact.ENCODING}; costs per")
    print("model call, in uncached input tokens; the times of the requests are assumed")
    for window in windows:
        report(window, books[window], tallies[window])
        report_placements(books[window])
    print(f"{time.perf_counter() - began:.0f} seconds")


COLUMNS: tuple[tuple[str, Callable[[Bill], float]], ...] = (
    ("total", lambda b: b.total),
    ("input", lambda b: b.input),
    ("read", lambda b: b.read),
    ("write", lambda b: b.write),
    ("storage", lambda b: b.storage),
    ("output", lambda b: b.output),
    ("summaries", lambda b: b.summaries),
)


def report(window: int, books: Books, tally: Counter[str]) -> None:
    over = ", ".join(f"{arm} {tally[f'over, {arm}']}" for arm in ARMS[:-1])
    print(
        f"\nwindow {window:,}: {tally['conversations']} conversations that outgrow it, {tally['gaps']:,} calls, "
        f"{tally['turns']:,} of them before a user goes on; {tally['over 300 s']:,} gaps over five minutes, "
        f"{tally['over 3,600 s']:,} over an hour; refused {tally['refused']}; over the limit: {over}"
    )
    heads = "".join(f"{name:>10}" for name, _ in COLUMNS)
    print(f"{'rules':24}{'arm':14}{heads}{'vs never':>10}{'from cache':>11}{'marks':>6}")
    for rules, arm in itertools.product(RULES, ARMS):
        bill, never = books[arm, rules.name, ""], books[NEVER, rules.name, ""]
        print(f"{rules.name:24}{arm:14}{cells(bill)}{bill.total / (never.total or 1.0):>10.2f}{shares(bill)}")


def report_placements(books: Books) -> None:
    """Print ours under each placement; the change is that of the total without output, which nothing here moves."""
    print(f"\n{'rules':24}{'marked':32}{''.join(f'{name:>10}' for name, _ in COLUMNS)}{'change':>10}{'from cache':>11}")
    for rules in ANTHROPIC_RULES:
        base = books[OURS, rules.name, "system, tail"]
        for name in PLACEMENTS:
            bill = books[OURS, rules.name, name]
            change = (bill.total - bill.output) / (base.total - base.output) - 1
            print(f"{rules.name:24}{name:32}{cells(bill)}{change:>+10.2%}{shares(bill)}")


def cells(bill: Bill) -> str:
    return "".join(f"{part(bill) / max(1, bill.requests):>10,.0f}" for _, part in COLUMNS)


def shares(bill: Bill) -> str:
    return f"{bill.read_tokens / max(1, bill.tokens):>11.3f}{bill.most_marks:>6}"
