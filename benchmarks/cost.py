"""What does each provider bill for the same recorded agents: ours, langchain's summarizer, plain tails, nothing?

By the providers' published rules about their prompt caches, in uncached input tokens per model call, answers and
summaries included. A cache is that of one conversation: nothing is in it at the start. Nothing says when the requests
of recorded agents were sent: the times are assumed, and the same for everybody. Breakpoints are those that are sent:
ours are set by the package, langchain's and the others' as `AnthropicPromptCachingMiddleware` does. `--idle` compares
the package with itself: with `compact_when_idle`, and without.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import inf
from typing import Any

from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
)

import exact
from common import head, parser_of, pooled, row
from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ExtractiveSummarizer,
    ModelInfo,
)
from langchain_ctxwin.core.provider_call import (
    EXPLICIT,
    MINUTES,
    OPENAI_BREAKPOINT,
    with_breakpoints,
)
from langchain_ctxwin.replay.playing import Show, keep_last
from sufficiency import (
    ANSWER_TOKENS,
    CACHED_PRICE,
    LISTED,
    OURS,
    TO_HALF,
    Job,
    Ours,
    Talk,
    Tally,
    conversations,
)

# in a block: Anthropic's word, and OpenAI's
BREAKPOINTS = ("cache_control", "prompt_cache_breakpoint")
FIRST_TOKEN_SECONDS = 2.0  # assumed, as all times: a large model behind an API ...
OUTPUT_TOKENS_PER_SECOND = 60.0
TOOL_SECONDS = 5.0  # ... and an API call or a shell command
PAUSES = ((0.55, 20.0), (0.25, 120.0), (0.17, 900.0), (0.03, 7_200.0))
"""Shares and seconds of what a user takes to go on: a fifth are slow enough for a cache of five minutes to expire."""

SLOW_TOOLS = ((0.97, 0.0), (0.03, 420.0))
"""The same for what a tool takes on top: a test suite, an approval."""


LEAST_TOKENS = 1_024  # shorter prefixes are not kept
WRITE_PRICE = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """What a provider publishes about its prompt cache: what ends at a mark can be read again."""

    name: str
    life_seconds: float
    """From the last use on."""

    output: float
    window_positions: int | None = None
    """How far back from each mark an entry is looked for, the mark counted; None is to the start.

    Consecutive calls, and consecutive results, are one position.
    """

    marks_end: bool = False
    """The end of each request is marked by the provider, not by an argument of the call."""


RULES = (
    # platform.claude.com/docs/en/build-with-claude/prompt-caching and about-claude/pricing
    CacheRules(
        name="Anthropic, least prefix 1,024",
        life_seconds=300,
        output=5.0,
        window_positions=20,
    ),
    # developers.openai.com/api/docs/guides/prompt-caching and pricing, since the middle of 2026
    CacheRules(
        name="OpenAI, writes billed", life_seconds=1_800, output=6.0, marks_end=True
    ),
)


# ---- a request as a cache reads it -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a provider reads as one piece: a tool, a system prompt, a text, a tool call, a result."""

    kind: str
    """The type of the message, "call" or "definition"."""

    text: str
    tokens: int
    is_marked: bool = False
    """Whether a breakpoint stands behind it."""


class Request:
    """One request: its blocks, when it starts, and the blocks of the answer."""

    def __init__(
        self, blocks: Sequence[Block], *, seconds: float, answer: Sequence[Block] = ()
    ) -> None:
        self.blocks, self.answer, self.seconds = tuple(blocks), tuple(answer), seconds
        self.keys = [0]
        """One number per prefix, from the empty one on."""

        for block in (*blocks, *answer):
            self.keys.append(hash((self.keys[-1], block.kind, block.text)))
        self.ends = [0, *accumulate(block.tokens for block in blocks)]
        self.marks = [
            position for position, block in enumerate(blocks, 1) if block.is_marked
        ]


def marked_by_us(
    rules: CacheRules, messages: list[Any], tools: Sequence[Any]
) -> list[Any]:
    """The breakpoints that this package sends to the provider."""
    if rules.marks_end:
        return with_breakpoints(messages, (), EXPLICIT, OPENAI_BREAKPOINT)
    return with_breakpoints(messages, tools, MINUTES)


def marked_by_middleware(
    rules: CacheRules, messages: list[Any], tools: Sequence[Any]
) -> list[Any]:
    """Those of `AnthropicPromptCachingMiddleware`: behind the system prompt and the newest message; none elsewhere."""
    if rules.marks_end:
        return messages
    is_prompted = messages and messages[0].type == "system"
    first = with_breakpoints(messages[:1], tools, MINUTES)[:1] if is_prompted else []
    return [*first, *messages[len(first) :]]


def laid_out(
    messages: Sequence[BaseMessage],
    tools: Sequence[Mapping[str, Any]],
    answer: AIMessage,
    seconds: float,
) -> Request:
    """Return a request as providers read it: tools, system prompt, messages in blocks with their breakpoints.

    Its end has one in any case.
    """
    blocks = [_tool(tool) for tool in tools]
    for message in messages:
        blocks += _blocks(message)
    if blocks:
        blocks[-1] = replace(blocks[-1], is_marked=True)
    return Request(blocks, seconds=seconds, answer=_blocks(answer))


def _tool(tool: Mapping[str, Any]) -> Block:
    plain = without_breakpoints(tool)
    return Block(
        kind="definition",
        text=json.dumps(plain),
        tokens=exact.tools_tokens([plain]),
        is_marked=plain != tool,
    )


def without_breakpoints(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in BREAKPOINTS}


def _blocks(message: BaseMessage) -> list[Block]:
    """The blocks of a message; the first one carries the framing."""
    found = list(_content(message))
    for call in getattr(message, "tool_calls", ()):
        text = json.dumps([call["name"], call["args"]], ensure_ascii=False)
        found.append(Block(kind="call", text=text, tokens=exact.text_tokens(text)))
    first, *others = found or [Block(kind=message.type, text="", tokens=0)]
    return [replace(first, tokens=first.tokens + exact.MESSAGE_TOKENS), *others]


def _content(message: BaseMessage) -> Iterator[Block]:
    """The blocks of the content; a breakpoint changes nothing that is cached."""
    content: Any = message.content
    for item in content if isinstance(content, list) else [content]:
        plain = item if isinstance(item, str) else without_breakpoints(item)
        for text, media_tokens in exact.content_blocks([plain]):
            if text or media_tokens:
                yield Block(
                    kind=message.type,
                    text=text,
                    tokens=exact.text_tokens(text) + media_tokens,
                    is_marked=plain != item,
                )


class Clock:
    """When each request of a conversation starts: the same for every arm."""

    def __init__(self, name: str) -> None:
        seed = hashlib.sha256(name.encode()).digest()
        self._random = random.Random(seed)  # noqa: S311  # reproducible times, not secrets
        self.seconds = 0.0

    def answered(self, output_tokens: int, *, is_turn: bool) -> None:
        """Go on to the next request: after the user's pause when the answer ends a turn, else after the tools."""
        waited = (
            self._drawn(PAUSES) if is_turn else TOOL_SECONDS + self._drawn(SLOW_TOOLS)
        )
        answered = FIRST_TOKEN_SECONDS + output_tokens / OUTPUT_TOKENS_PER_SECOND
        self.seconds += answered + waited

    def _drawn(self, shares: tuple[tuple[float, float], ...]) -> float:
        weights, values = zip(*shares, strict=True)
        return self._random.choices(values, weights)[0]


# ---- the bill --------------------------------------------------------------------------------------------------------


class CacheLedger:
    """The bill of one conversation by the rules of one provider."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules, self.cost = rules, 0.0
        self._used: dict[int, float] = {}
        """When each prefix that is kept was written or read last."""

    def record(self, request: Request) -> None:
        """Bill one request; those of a conversation come in the order of their times."""
        rules = self.rules
        read, written = self.taken(request)
        self.cost += request.ends[-1] - read - written
        self.cost += CACHED_PRICE * read + WRITE_PRICE * written
        self.cost += rules.output * sum(block.tokens for block in request.answer)

    def taken(self, request: Request) -> tuple[int, int]:
        """Read the longest entry that a mark finds, and write from there to each mark behind it."""
        places = self._positions(request)
        found = (self._found(request, places, mark) for mark in request.marks)
        last = hit = max(found, default=0)
        for mark in request.marks:
            if request.ends[mark] >= LEAST_TOKENS:
                self._used[request.keys[mark]] = request.seconds
                last = max(last, mark)
        return request.ends[hit], request.ends[last] - request.ends[hit]

    def _found(self, request: Request, places: list[int], mark: int) -> int:
        """Walk back from a mark to an entry; reading it lets it live on."""
        window = self.rules.window_positions
        for at in range(mark, 0, -1):
            if window is not None and places[mark] - places[at] >= window:
                return 0
            key, now = request.keys[at], request.seconds
            if now - self._used.get(key, -inf) <= self.rules.life_seconds:
                self._used[key] = now
                return at
        return 0

    def _positions(self, request: Request) -> list[int]:
        """The position of the end of each prefix."""
        kinds = ["", *(block.kind for block in request.blocks)]
        is_new = (
            before != kind or kind not in ("call", "tool")
            for before, kind in pairwise(kinds)
        )
        return [0, *accumulate(is_new)]


# ---- the arms ------------------------------------------------------------------------------------------------------

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

    def __call__(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
        shown = super().__call__(history)
        answered = {"answered_seconds": self.clock.seconds + FIRST_TOKEN_SECONDS}
        counts = {**(self.session.get("context_counts") or {}), **answered}
        self.session = {**self.session, "context_counts": counts}
        return shown


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

    def __call__(self, history: Sequence[AnyMessage]) -> list[AnyMessage]:
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
    """The requests of every arm by everybody's rules."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.clock = Clock(job.transcript.name)
        self.summarized = Summarized(job, self.tokens(self.head))

    def run(self) -> Tally:
        tally = Tally()
        if self.is_small:
            return tally
        tally["", "conversations"] = 1
        ledgers = {
            (arm, rules): CacheLedger(rules) for arm in self.job.arms for rules in RULES
        }
        for at, answer, requests in self.requests(self.everybody()):
            tally["", "calls"] += 1
            for arm, messages in requests.items():
                tally[arm, "over"] += self.tokens(messages) > self.job.limit
                is_ours = arm in {OURS, IDLE, NOT_IDLE}
                marked_by = marked_by_us if is_ours else marked_by_middleware
                for rules in RULES:
                    request = laid_out(
                        marked_by(rules, messages, self.tools),
                        self.tools,
                        answer,
                        self.clock.seconds,
                    )
                    ledgers[arm, rules].record(request)
            self._wait(answer, self.rest[at + 1 : at + 2])
        for (arm, rules), ledger in ledgers.items():
            tally[arm, rules.name] += ledger.cost
        # under a prompt of its own, where no cache has any of it
        for (read, written), rules in itertools.product(self.summarized.calls, RULES):
            tally[SUMMARIZED, rules.name] += read + rules.output * written
        return tally

    def everybody(self) -> dict[str, Show]:
        return {
            **self.policies(Ours(self.job, self.prompt)),
            SUMMARIZED: self.summarized,
            NEVER: keep_last(1, lambda _: 0),
            IDLE: Timed(self.job, self.prompt, self.clock, when_idle=True),
            NOT_IDLE: Timed(self.job, self.prompt, self.clock, when_idle=False),
        }

    def _wait(self, answer: AIMessage, following: list[AnyMessage]) -> None:
        has_users = self.job.transcript.source not in MACHINE_TURNS
        is_turn = has_users and any(isinstance(m, HumanMessage) for m in following)
        self.clock.answered(exact.message_tokens(answer), is_turn=is_turn)


def play(job: Job) -> Tally:
    return Session(job).run()


def report(window: int, tally: Tally, arms: tuple[str, ...]) -> None:
    over = ", ".join(f"{arm} {tally[arm, 'over']}" for arm in arms if arm != NEVER)
    print(
        f"\nwindow {window:,}: {tally['', 'conversations']} conversations that outgrow it, "
        f"{tally['', 'calls']:,} calls\nrequests over the limit: {over}\n"
    )
    head(f"{window:,} tokens", *arms)
    calls = max(1, tally["", "calls"])
    for rules in RULES:
        row(rules.name, *(f"{tally[arm, rules.name] / calls:,.0f}" for arm in arms))
    for rules, rival in itertools.product(RULES, arms[1:]):
        ours, theirs = (tally[arm, rules.name] for arm in (arms[0], rival))
        if rival != NEVER and ours > theirs:
            print(f"- MISSED {rules.name}: {ours / theirs - 1:.1%} dearer than {rival}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument(
        "--per-file", type=int, default=PER_FILE, help="conversations per file"
    )
    parser.add_argument("--idle", action="store_true", help="compact_when_idle alone")
    options = parser.parse_args()
    arms = (IDLE, NOT_IDLE) if options.idle else ARMS
    # no setting was chosen by those of half b
    chosen = list(conversations(options.data, options.per_file, "b"))
    for window in options.windows:
        jobs = [Job(transcript=t, window=window, arms=arms) for t in chosen]
        report(window, sum(pooled(play, jobs), Tally()), arms)


if __name__ == "__main__":
    main()
