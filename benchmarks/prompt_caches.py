"""What do providers' prompt caches bill for a sequence of requests? Their published rules as data, and one ledger.

Costs are in units of one uncached input token. A cache is that of one conversation: nothing is in it at the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Literal

HOUR_SECONDS = 3_600

ANTHROPIC = "platform.claude.com/docs/en/build-with-claude/prompt-caching"
ANTHROPIC_PRICES = "platform.claude.com/docs/en/about-claude/pricing"
OPENAI = "developers.openai.com/api/docs/guides/prompt-caching"
OPENAI_PRICES = "developers.openai.com/api/docs/pricing"
GEMINI = "ai.google.dev/gemini-api/docs/caching"
GEMINI_PRICES = "ai.google.dev/gemini-api/docs/pricing"
DEEPSEEK = "api-docs.deepseek.com/guides/kv_cache"
DEEPSEEK_PRICES = "api-docs.deepseek.com/quick_start/pricing"
LLAMA_SERVER = "llama.cpp, tools/server/README: cache_prompt"
ASSUMED = "assumed: the provider states no number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a provider reads as one piece: a tool, a system prompt, a text, a tool call, a result."""

    kind: Literal["tool", "system", "text", "call", "result"]
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A breakpoint behind so many blocks."""

    position: int
    life: int = 0
    """Which of the lifetimes of the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How long an entry is kept, and what a token costs that is written for that long."""

    seconds: float
    write: float = 1.0


class Request:
    """One request: its blocks, when it starts, and the blocks of the answer."""

    __slots__ = ("_chain", "answer", "blocks", "ends", "keys", "seconds")

    def __init__(self, blocks: Sequence[Block], *, seconds: float, answer: Sequence[Block] = ()) -> None:
        self.blocks, self.answer, self.seconds = tuple(blocks), tuple(answer), seconds
        self._chain = list(_keys([*blocks, *answer]))
        self.keys = self._chain[: len(self.blocks) + 1]
        self.ends = [0, *accumulate(block.tokens for block in blocks)]

    @property
    def tokens(self) -> int:
        return self.ends[-1]

    @property
    def output_tokens(self) -> int:
        return sum(block.tokens for block in self.answer)

    @property
    def key_with_answer(self) -> int:
        return self._chain[-1]

    def chain(self, *, with_answer: bool) -> Iterator[tuple[int, str]]:
        """Yield every prefix with the text of the block that follows it."""
        blocks, keys = ((*self.blocks, *self.answer), self._chain) if with_answer else (self.blocks, self.keys)
        yield from zip(keys, [*(block.text for block in blocks), ""], strict=True)


def _keys(blocks: Iterable[Block]) -> Iterator[int]:
    """One number per prefix, from the empty one on."""
    return accumulate(blocks, lambda key, block: hash((key, block.kind, block.text)), initial=0)  # type: ignore[misc,arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """What one class of models of a provider publishes about its prompt cache."""

    name: str
    entries: Literal["marks", "prefixes", "units"]
    """What can be read again: what ends at a mark, any prefix, or whole requests and what they had in common."""

    least_tokens: int
    """Shorter prefixes are not kept."""

    read: float
    output: float
    lives: tuple[Life, ...]
    step_tokens: int = 1
    most_marks: int = 0
    window_positions: int | None = None
    """How far back from each mark an entry is looked for, the mark counted; None is to the start."""

    joins_runs: bool = False
    """Consecutive calls, and consecutive results, count as one position."""

    marks_end: bool = False
    """The end of each request is marked by the provider; that counts as one of `most_marks`."""

    is_renewed: bool = True
    """An entry that is read lives for its lifetime again."""

    holds_answer: bool = False
    most_requests: int | None = None
    """Only so many of the newest requests are kept."""

    storage_hour: float = 0.0
    """Price of a token that is kept for an hour, for the whole lifetime of its entry."""

    sources: Mapping[str, str]
    """Where each number is from, by field."""

    def positions(self, request: Request) -> list[int]:
        """Return the position of the end of each prefix."""
        places, before = [0], ""
        for block in request.blocks:
            same = self.joins_runs and block.kind == before and block.kind in ("call", "result")
            places.append(places[-1] + (not same))
            before = block.kind
        return places

    def check(self, marks: Sequence[Mark]) -> None:
        """Raise for breakpoints that the provider would refuse, as it would."""
        count = len(marks) + self.marks_end
        if count > self.most_marks:
            raise ValueError(f"{count} breakpoints, at most {self.most_marks} at {self.name}: mark fewer")
        lives = [self.lives[mark.life].seconds for mark in marks]
        if lives != sorted(lives, reverse=True):
            raise ValueError(f"lifetimes {lives} seconds in the order of the request: the longest have to come first")


@dataclass(slots=True, kw_only=True)
class Bill:
    """Sums over requests."""

    requests: int = 0
    tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    input: float = 0.0
    """Cost of what was neither read from the cache nor written to it; below, that of the other parts."""

    read: float = 0.0
    write: float = 0.0
    storage: float = 0.0
    output: float = 0.0
    summaries: float = 0.0
    """Input and output of model calls for summaries."""

    most_marks: int = 0

    @property
    def total(self) -> float:
        return self.input + self.read + self.write + self.storage + self.output + self.summaries

    def add(self, other: Bill) -> None:
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, max(mine, its) if one.name == "most_marks" else mine + its)


@dataclass(slots=True)
class Entry:
    """A prefix that is kept."""

    seconds: float
    """When it was written or read last."""

    life_seconds: float
    follows: str = ""
    """Text of the block that followed it."""

    def is_alive(self, now: float) -> bool:
        return now - self.seconds <= self.life_seconds


@dataclass(slots=True)
class CacheLedger:
    """The bill of one conversation by the rules of one provider."""

    rules: CacheRules
    bill: Bill = field(default_factory=Bill)
    _entries: dict[int, Entry] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    """Prefixes of all requests, for what they had in common."""

    def record(self, request: Request, marks: Sequence[Mark] = ()) -> None:
        """Bill one request; those of a conversation come in the order of their times.

        Args:
            request: what is sent, and when.
            marks: breakpoints; they count only where the rules know any.

        Raises:
            ValueError: more marks than the provider takes, or short lifetimes before long ones.
        """
        read, written, price, stored = self._read(request, marks)
        bill, rules = self.bill, self.rules
        bill.requests += 1
        bill.tokens += request.tokens
        bill.read_tokens += read
        bill.written_tokens += written
        bill.input += request.tokens - read - written
        bill.read += rules.read * read
        bill.write += price
        bill.storage += rules.storage_hour * stored
        bill.output += rules.output * request.output_tokens

    def record_summary(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
        """Bill a model call for a summary; it is under a prompt of its own where no cache has any of it."""
        fresh = input_tokens - cached_tokens
        self.bill.summaries += fresh + self.rules.read * cached_tokens + self.rules.output * output_tokens

    def _read(self, request: Request, marks: Sequence[Mark]) -> tuple[int, int, float, float]:
        """Tokens read, tokens written, the price of these, and token-hours that are stored."""
        if self.rules.entries == "prefixes":
            return self._prefix(request), 0, 0.0, 0.0
        if self.rules.entries == "units":
            return self._unit(request), 0, 0.0, 0.0
        return self._marked(request, sorted(set(marks), key=lambda mark: mark.position))

    def _prefix(self, request: Request) -> int:
        """Read the longest common prefix with a request that is kept, in whole steps."""
        now, rules = request.seconds, self.rules
        last = self._longest(request)
        entry = self._entries.get(request.keys[last])
        shared = request.ends[last]
        if entry and last < len(request.blocks):
            block = request.blocks[last]
            same = len(os.path.commonprefix([entry.follows, block.text]))  # noqa: RUF071  # by character is meant
            shared += block.tokens * same // max(1, len(block.text))
        if rules.most_requests == 1:
            self._entries.clear()
        for key, follows in request.chain(with_answer=rules.holds_answer):
            self._entries[key] = Entry(now, rules.lives[0].seconds, follows)
        return shared // rules.step_tokens * rules.step_tokens if shared >= rules.least_tokens else 0

    def _unit(self, request: Request) -> int:
        """Read the longest unit; the request becomes one, and so does what it shares with any before it."""
        now, life = request.seconds, self.rules.lives[0].seconds
        hit = self._longest(request)
        common = max((at for at, key in enumerate(request.keys) if key in self._seen), default=0)
        kept = {request.keys[hit], request.keys[common], request.keys[-1], request.key_with_answer}
        self._entries.update({key: Entry(now, life) for key in kept})
        self._seen.update(key for key, _ in request.chain(with_answer=True))
        return request.ends[hit] if request.ends[hit] >= self.rules.least_tokens else 0

    def _longest(self, request: Request) -> int:
        for at in range(len(request.keys) - 1, 0, -1):
            entry = self._entries.get(request.keys[at])
            if entry and entry.is_alive(request.seconds):
                return at
        return 0

    def _marked(self, request: Request, marks: list[Mark]) -> tuple[int, int, float, float]:
        """Read the longest entry that a mark finds, and write from there to each mark behind it."""
        rules, now = self.rules, request.seconds
        rules.check(marks)
        self.bill.most_marks = max(self.bill.most_marks, len(marks) + rules.marks_end)
        if rules.marks_end:
            marks = [*marks, Mark(position=len(request.blocks))]
        places = rules.positions(request)
        hit = max((self._found(request, places, mark) for mark in marks), default=0)
        at, price, stored = hit, 0.0, 0.0
        for mark in marks:
            size, life = request.ends[mark.position], rules.lives[mark.life]
            if size < rules.least_tokens:
                continue
            key = request.keys[mark.position]
            if mark.position > at:
                price += life.write * (size - request.ends[at])
                stored += size * life.seconds / HOUR_SECONDS
                self._entries[key], at = Entry(now, life.seconds), mark.position
            elif not self._alive(key, now):  # inside what was read: nothing is billed, and it lives no longer than that
                self._entries[key] = Entry(now, self._entries[request.keys[hit]].life_seconds)
        return request.ends[hit], request.ends[at] - request.ends[hit], price, stored

    def _found(self, request: Request, places: list[int], mark: Mark) -> int:
        """Walk back from a mark to an entry; reading it lets it live on."""
        window = self.rules.window_positions
        for at in range(mark.position, 0, -1):
            if window is not None and places[mark.position] - places[at] >= window:
                return 0
            if self._alive(request.keys[at], request.seconds):
                if self.rules.is_renewed:
                    self._entries[request.keys[at]].seconds = request.seconds
                return at
        return 0

    def _alive(self, key: int, now: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.is_alive(now)


def anthropic(name: str, least_tokens: int) -> CacheRules:
    return CacheRules(
        name=name,
        entries="marks",
        least_tokens=least_tokens,
        read=0.1,
        output=5.0,
        lives=(Life(seconds=300, write=1.25), Life(seconds=HOUR_SECONDS, write=2.0)),
        most_marks=4,
        window_positions=20,
        joins_runs=True,
        sources={
            "least_tokens": ANTHROPIC, "read": ANTHROPIC_PRICES, "output": ANTHROPIC_PRICES, "lives": ANTHROPIC,
            "most_marks": ANTHROPIC, "window_positions": ANTHROPIC,
        },
    )  # fmt: skip


def openai(name: str, *, read: float, output: float) -> CacheRules:
    """Before the family that bills writes: 5 to 10 minutes without use, at most an hour; the upper end of the first."""
    return CacheRules(
        name=name,
        entries="prefixes",
        least_tokens=1_024,
        step_tokens=128,
        read=read,
        output=output,
        lives=(Life(seconds=600),),
        sources={
            "least_tokens": OPENAI, "step_tokens": OPENAI, "lives": OPENAI,
            "read": OPENAI_PRICES, "output": OPENAI_PRICES,
        },
    )  # fmt: skip


def gemini(name: str, *, least_tokens: int, output: float) -> CacheRules:
    return CacheRules(
        name=name,
        entries="prefixes",
        least_tokens=least_tokens,
        read=0.1,
        output=output,
        lives=(Life(seconds=300),),
        sources={"least_tokens": GEMINI, "read": GEMINI_PRICES, "output": GEMINI_PRICES, "lives": ASSUMED},
    )


def gemini_explicit(name: str, *, least_tokens: int, output: float, storage_hour: float) -> CacheRules:
    """A cache that is made of the fixed part, lives for its hour whatever is read, and is made anew after it."""
    return CacheRules(
        name=name,
        entries="marks",
        least_tokens=least_tokens,
        read=0.1,
        output=output,
        lives=(Life(seconds=HOUR_SECONDS),),
        most_marks=1,
        is_renewed=False,
        storage_hour=storage_hour,
        sources={
            "least_tokens": GEMINI, "lives": GEMINI, "most_marks": GEMINI,
            "read": GEMINI_PRICES, "output": GEMINI_PRICES, "storage_hour": GEMINI_PRICES,
        },
    )  # fmt: skip


ANTHROPIC_RULES = (
    anthropic("Anthropic, least 512", 512),  # its newest large models
    anthropic("Anthropic, least 1,024", 1_024),  # most
    anthropic("Anthropic, least 4,096", 4_096),  # its small ones, and some large ones
)
OPENAI_WRITES = CacheRules(
    name="OpenAI, writes billed",  # the families since the middle of 2026
    entries="marks",
    least_tokens=1_024,
    read=0.1,
    output=6.0,
    lives=(Life(seconds=1_800, write=1.25),),
    most_marks=4,
    marks_end=True,
    sources={
        "least_tokens": OPENAI, "lives": OPENAI, "most_marks": OPENAI, "read": OPENAI_PRICES, "output": OPENAI_PRICES,
    },
)  # fmt: skip
GEMINI_EXPLICIT = (
    gemini_explicit("Gemini explicit, small", least_tokens=1_024, output=8.33, storage_hour=3.33),  # 1.00 at input 0.30
    gemini_explicit("Gemini explicit, large", least_tokens=4_096, output=8.0, storage_hour=3.6),  # 4.50 at input 1.25
)
RULES = (
    *ANTHROPIC_RULES,
    OPENAI_WRITES,
    openai("OpenAI, read .1", read=0.1, output=8.0),
    openai("OpenAI, read .25", read=0.25, output=4.0),
    openai("OpenAI, read .5", read=0.5, output=4.0),
    gemini("Gemini implicit, small", least_tokens=1_024, output=8.33),
    gemini("Gemini implicit, large", least_tokens=4_096, output=8.0),
    *GEMINI_EXPLICIT,
    CacheRules(
        name="DeepSeek",
        entries="units",
        least_tokens=64,
        read=0.02,
        output=4.0,
        lives=(Life(seconds=3 * HOUR_SECONDS),),  # "a few hours to a few days"
        sources={"least_tokens": DEEPSEEK, "lives": DEEPSEEK, "read": DEEPSEEK_PRICES, "output": DEEPSEEK_PRICES},
    ),
    CacheRules(
        name="llama.cpp, tokens read",  # nobody bills: what its one slot does not hold has to be evaluated
        entries="prefixes",
        least_tokens=1,
        read=0.0,
        output=0.0,
        lives=(Life(seconds=float("inf")),),
        holds_answer=True,
        most_requests=1,
        sources=dict.fromkeys(("least_tokens", "read", "output", "lives", "most_requests"), LLAMA_SERVER),
    ),
)
