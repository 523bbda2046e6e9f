"""What does each provider bill for the same recorded agents: ours, langchain's summarizer, plain tails, nothing?

By the providers' published rules about their prompt caches (prompt_caches.py), in uncached input tokens per model call,
answers and summaries included. The times of the requests are assumed. Breakpoints are those that are sent: ours are set
by the package, langchain's and the others' as `AnthropicPromptCachingMiddleware` does. `--idle` compares the package
with itself: with `compact_when_idle`, and without.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Sequence

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)

import exact
from langchain_ctxwin import (
    BudgetExceededError,
    ContextConfig,
    ContextEngine,
    ExtractiveSummarizer,
    ModelInfo,
)
from plain_tails import Dropped
from prompt_caches import (
    FIRST_TOKEN_SECONDS,
    RULES,
    Bill,
    CacheLedger,
    Clock,
    laid_out,
    marked_by_middleware,
    marked_by_us,
)
from sufficiency import (
    ANSWER_TOKENS,
    HALVES,
    LEAST_ROOM,
    LISTED,
    OURS,
    TO_HALF,
    Job,
    Ours,
    Policy,
    conversations,
)
from transcripts import parser_of, quiet

MACHINE_TURNS = frozenset({"sweagent_claude_text"})
"""Here the user messages are results of commands: nobody thinks between them."""

# of the model's input, SummarizationMiddleware's documented example
TRIGGER_SHARE, KEEP_SHARE = (0.8, 0.3)
SUMMARY_SHARE = 1 / 16  # longest summary, of the window, as in the arena
SUMMARY_PROMPT_TOKENS = 200  # instructions of a summarizer call
SUMMARIZED, NEVER = "`SummarizationMiddleware`", "never compacted"
WINDOWS = (8_192, 32_768)
ARMS = (OURS, SUMMARIZED, TO_HALF, LISTED, NEVER)
PER_FILE = 20
IDLE, NOT_IDLE = "`compact_when_idle`", "without it"

Books = dict[tuple[str, str], Bill]
"""Bills by arm and rules."""


class Whole:
    """All of it, as if it always fitted."""

    def view(
        self,
        history: Sequence[AnyMessage],
        sizes: Sequence[int],  # noqa: ARG002
    ) -> list[AnyMessage]:
        return list(history)


class Timed(Ours):
    """The package with an Anthropic model and the time of the requests, which `compact_when_idle` needs."""

    def __init__(self, job: Job, system: str, clock: Clock, *, when_idle: bool) -> None:
        super().__init__(job, system)
        model = ModelInfo(
            name="claude",
            provider="anthropic",
            max_input_tokens=job.limit,
            max_output_tokens=ANSWER_TOKENS,
        )
        config = ContextConfig(compact_when_idle=when_idle)
        self.engine = ContextEngine(model, config=config, clock=lambda: clock.seconds)
        self.clock = clock

    def view(
        self,
        history: Sequence[AnyMessage],
        sizes: Sequence[int],  # noqa: ARG002
    ) -> list[AnyMessage]:
        fitted = self.engine.fit(history, session=self.session, **self.about)
        counts = dict(fitted.session.get("context_counts") or {})
        counts["answered_seconds"] = self.clock.seconds + FIRST_TOKEN_SECONDS
        self.session = {**fitted.session, "context_counts": counts}
        return [m for m in fitted.request if not isinstance(m, SystemMessage)]


class Summarized:
    """langchain's middleware, triggered by a share of the whole request as it documents, on an exact count.

    Its summaries are billed as if a model had written them.
    """

    def __init__(self, job: Job, fixed_tokens: int) -> None:
        self.calls: list[tuple[int, int]] = []
        """Input and output tokens of each summary."""

        self.messages: list[AnyMessage] = []
        self.taken = 0
        self._extract, self._most = (
            ExtractiveSummarizer(),
            int(SUMMARY_SHARE * job.window),
        )
        self._middleware = SummarizationMiddleware(
            FakeListChatModel(responses=[""]),
            trigger=("tokens", max(1, int(TRIGGER_SHARE * job.limit) - fixed_tokens)),
            keep=("tokens", int(KEEP_SHARE * job.limit)),
            token_counter=lambda messages: sum(map(exact.message_tokens, messages)),
            trim_tokens_to_summarize=None,
            summarizer=self._summary,
        )

    def view(
        self,
        history: Sequence[AnyMessage],
        sizes: Sequence[int],  # noqa: ARG002
    ) -> list[AnyMessage]:
        self.messages += history[self.taken :]
        self.taken = len(history)
        update = self._middleware.before_model({"messages": self.messages}, None) or {}  # type: ignore[arg-type]
        if "messages" in update:
            self.messages = [
                m for m in update["messages"] if not isinstance(m, RemoveMessage)
            ]
        return list(self.messages)

    def _summary(self, messages: Sequence[AnyMessage]) -> str:
        text = self._extract.summarize(
            list(messages), previous="", max_tokens=self._most
        )
        read = sum(map(exact.message_tokens, messages)) + SUMMARY_PROMPT_TOKENS
        self.calls.append((read, exact.text_tokens(text)))
        return text


class Session:
    """One conversation at one window: the requests of every arm in everybody's books."""

    def __init__(self, job: Job) -> None:
        self.job, self.tally = job, Counter[str]()
        messages = job.transcript.messages
        prompt = "\n\n".join(
            exact.payload(m) for m in messages if isinstance(m, SystemMessage)
        )
        self.head: list[AnyMessage] = [SystemMessage(prompt)] if prompt else []
        self.rest = [m for m in messages if not isinstance(m, SystemMessage)]
        self.sizes = list(map(exact.message_tokens, self.rest))
        self.fixed_tokens = exact.request_tokens(self.head, job.transcript.tools)
        self.room = job.limit - self.fixed_tokens
        self.clock = Clock(job.transcript.name)
        self.prompt = prompt

    def run(self) -> tuple[Books, Counter[str]]:
        if self.room < LEAST_ROOM or sum(self.sizes) <= self.room:
            return {}, self.tally
        summarized = Summarized(self.job, self.fixed_tokens)
        policies: dict[str, Policy] = {
            OURS: Ours(self.job, self.prompt),
            SUMMARIZED: summarized,
            TO_HALF: Dropped(self.room, keep=0.5),
            LISTED: Dropped(self.room, keep=0.3, list_share=0.1),
            NEVER: Whole(),
        }
        if IDLE in self.job.arms:
            policies = {
                arm: Timed(self.job, self.prompt, self.clock, when_idle=arm == IDLE)
                for arm in self.job.arms
            }
        ledgers = {
            (arm, rules.name): CacheLedger(rules)
            for arm in self.job.arms
            for rules in RULES
        }
        for at, message in enumerate(self.rest):
            if not isinstance(message, AIMessage):
                continue
            history, sizes = self.rest[:at], self.sizes[:at]
            try:
                requests = {
                    arm: [*self.head, *policy.view(history, sizes)]
                    for arm, policy in policies.items()
                }
            except BudgetExceededError:  # the conversation ends for everybody
                self.tally["refused"] += 1
                break
            self._bill(requests, message, ledgers)
            self.rest[at] = self._reported(message, requests[self.job.arms[0]])
            self._wait(message, self.rest[at + 1 : at + 2])
        for (arm, _), ledger in ledgers.items():
            for read, written in summarized.calls if arm == SUMMARIZED else ():
                ledger.record_summary(input_tokens=read, output_tokens=written)
        self.tally.update(
            {"conversations": 1, "summaries": len(summarized.calls), **self.clock.gaps}
        )
        return {key: ledger.bill for key, ledger in ledgers.items()}, self.tally

    def _bill(
        self,
        requests: dict[str, list[AnyMessage]],
        answer: AIMessage,
        ledgers: dict[tuple[str, str], CacheLedger],
    ) -> None:
        tools = self.job.transcript.tools
        for arm, messages in requests.items():
            self.tally[f"over, {arm}"] += (
                exact.request_tokens(messages, tools) > self.job.limit
            )
            marked_by = (
                marked_by_us if arm in {OURS, IDLE, NOT_IDLE} else marked_by_middleware
            )
            for rules in RULES:
                marked, end = marked_by(rules, messages, tools)
                ledgers[arm, rules.name].record(
                    laid_out(marked, tools, answer, seconds=self.clock.seconds, end=end)
                )

    def _wait(self, answer: AIMessage, following: list[AnyMessage]) -> None:
        has_users = self.job.transcript.source not in MACHINE_TURNS
        is_turn = has_users and any(isinstance(m, HumanMessage) for m in following)
        self.clock.answered(exact.message_tokens(answer), is_turn=is_turn)

    def _reported(self, reply: AIMessage, request: list[AnyMessage]) -> AIMessage:
        """The reply with the size of our request, as a provider reports it."""
        tokens = exact.request_tokens(request, self.job.transcript.tools)
        usage = {
            "input_tokens": tokens,
            "output_tokens": 10,
            "total_tokens": tokens + 10,
        }
        return reply.model_copy(update={"usage_metadata": usage})


def play(job: Job) -> tuple[int, Books, Counter[str]]:
    quiet()
    return (job.window, *Session(job).run())


def report(
    window: int, books: Books, tally: Counter[str], arms: tuple[str, ...] = ARMS
) -> None:
    over = ", ".join(f"{arm} {tally[f'over, {arm}']}" for arm in arms if arm != NEVER)
    print(
        f"\nwindow {window:,}: {tally['conversations']} conversations that outgrow it, {tally['calls']:,} calls, "
        f"{tally['over five minutes']:,} pauses over five minutes, {tally['summaries']} summaries of "
        f"langchain's\nrequests over the limit: {over}\n"
    )
    print(f"| {window:,} tokens | " + " | ".join(arms) + " |")
    print("|---|" + "---:|" * len(arms))
    for rules in RULES:
        bills = [books.get((arm, rules.name), Bill()) for arm in arms]
        print(
            f"| {rules.name} | "
            + " | ".join(f"{one.total / max(1, one.requests):,.0f}" for one in bills)
            + " |"
        )
    for rules, rival in itertools.product(RULES, arms[1:]):
        if rival == NEVER:
            continue
        ours, theirs = (
            books.get((arm, rules.name), Bill()).total for arm in (arms[0], rival)
        )
        if ours > theirs:
            print(f"- MISSED {rules.name}: {ours / theirs - 1:.1%} dearer than {rival}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument(
        "--per-file", type=int, default=PER_FILE, help="conversations per file"
    )
    parser.add_argument(
        "--half",
        choices=HALVES,
        default="b",
        help="no setting was chosen by those of half b",
    )
    parser.add_argument("--idle", action="store_true", help="compact_when_idle alone")
    options = parser.parse_args()
    arms = (IDLE, NOT_IDLE) if options.idle else ARMS
    began = time.perf_counter()
    chosen = list(conversations(options.data, (), options.per_file, options.half))
    books: dict[int, Books] = {window: {} for window in options.windows}
    tallies = {window: Counter[str]() for window in options.windows}
    jobs = [
        Job(transcript=t, window=w, arms=arms) for t in chosen for w in options.windows
    ]
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for window, found, tally in pool.imap_unordered(play, jobs, chunksize=1):
            tallies[window].update(tally)
            for key, bill in found.items():
                books[window].setdefault(key, Bill()).add(bill)
    print(
        f"half {options.half}, {'recorded' if options.data else 'generated'} conversations, {exact.ENCODING}"
    )
    for window in options.windows:
        report(window, books[window], tallies[window], arms)
    print(f"\n{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
