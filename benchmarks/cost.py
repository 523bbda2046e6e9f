"""What does each provider bill for the same recorded agents: ours, langchain's summarizer, plain tails, nothing?

By the providers' published rules about their prompt caches (prompt_caches.py), in uncached input tokens per model call,
answers and summaries included. The times of the requests are assumed. Breakpoints are those that are sent: ours are set
by the package, langchain's and the others' as `AnthropicPromptCachingMiddleware` does. `--idle` compares the package
with itself: with `compact_when_idle`, and without.
"""

from __future__ import annotations

import itertools
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
from common import head, parser_of, pooled, quiet, row
from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ExtractiveSummarizer,
    ModelInfo,
)
from langchain_ctxwin.replay.policies import KeepLast, Plain
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
    LISTED,
    OURS,
    TO_HALF,
    Job,
    Ours,
    Talk,
    conversations,
)

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

    def view(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
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
        self._extract = ExtractiveSummarizer()
        self._most = int(SUMMARY_SHARE * job.window)
        self._middleware = SummarizationMiddleware(
            FakeListChatModel(responses=[""]),
            trigger=("tokens", max(1, int(TRIGGER_SHARE * job.limit) - fixed_tokens)),
            keep=("tokens", int(KEEP_SHARE * job.limit)),
            token_counter=lambda messages: sum(map(exact.message_tokens, messages)),
            trim_tokens_to_summarize=None,
            summarizer=self._summary,
        )

    def view(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
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


class Session(Talk):
    """The requests of every arm in everybody's books."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.tally = Counter[str]()
        self.clock = Clock(job.transcript.name)

    def run(self) -> tuple[Books, Counter[str]]:
        if self.is_small:
            return {}, self.tally
        summarized = Summarized(self.job, self.tokens(self.head))
        policies: dict[str, Plain] = {
            **self.policies(Ours(self.job, self.prompt)),
            SUMMARIZED: summarized,
            NEVER: KeepLast(1, lambda _: 0),
            IDLE: Timed(self.job, self.prompt, self.clock, when_idle=True),
            NOT_IDLE: Timed(self.job, self.prompt, self.clock, when_idle=False),
        }
        ledgers = {
            (arm, rules.name): CacheLedger(rules)
            for arm in self.job.arms
            for rules in RULES
        }
        arms = {arm: policies[arm] for arm in self.job.arms}
        for at, reply, requests in self.requests(arms):
            self._bill(requests, reply, ledgers)
            self._wait(reply, self.rest[at + 1 : at + 2])
        for (arm, _), ledger in ledgers.items():
            for read, written in summarized.calls if arm == SUMMARIZED else ():
                ledger.record_summary(read, written)
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
        for arm, messages in requests.items():
            self.tally[f"over, {arm}"] += self.tokens(messages) > self.job.limit
            is_ours = arm in {OURS, IDLE, NOT_IDLE}
            marked_by = marked_by_us if is_ours else marked_by_middleware
            for rules in RULES:
                marked, end = marked_by(rules, messages, self.tools)
                ledgers[arm, rules.name].record(
                    laid_out(marked, self.tools, answer, self.clock.seconds, end=end)
                )

    def _wait(self, answer: AIMessage, following: list[AnyMessage]) -> None:
        has_users = self.job.transcript.source not in MACHINE_TURNS
        is_turn = has_users and any(isinstance(m, HumanMessage) for m in following)
        self.clock.answered(exact.message_tokens(answer), is_turn=is_turn)


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
    head(f"{window:,} tokens", *arms)
    for rules in RULES:
        bills = [books.get((arm, rules.name), Bill()) for arm in arms]
        row(
            rules.name,
            *(f"{one['cost'] / max(1, one['requests']):,.0f}" for one in bills),
        )
    for rules, rival in itertools.product(RULES, arms[1:]):
        if rival == NEVER:
            continue
        ours, theirs = (
            books.get((arm, rules.name), Bill())["cost"] for arm in (arms[0], rival)
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
    chosen = list(conversations(options.data, (), options.per_file, options.half))
    books: dict[int, Books] = {window: {} for window in options.windows}
    tallies = {window: Counter[str]() for window in options.windows}
    jobs = [
        Job(transcript=t, window=w, arms=arms) for t in chosen for w in options.windows
    ]
    for window, found, tally in pooled(play, jobs):
        tallies[window].update(tally)
        for key, bill in found.items():
            books[window].setdefault(key, Bill()).update(bill)
    print(
        f"half {options.half}, {'recorded' if options.data else 'generated'} conversations, {exact.ENCODING}"
    )
    for window in options.windows:
        report(window, books[window], tallies[window], arms)


if __name__ == "__main__":
    main()
