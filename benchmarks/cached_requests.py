"""How does a request look to a prompt cache? Its blocks, the ends of its regions, its breakpoints, and when it starts.

Nothing says when the requests of recorded agents were sent: the times below are assumed, and the same for everybody.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

import exact
from arena_parts.sizes import content_blocks
from langchain_ctxwin.core.assembly import RECORD_ID
from prompt_caches import GEMINI_EXPLICIT, HOUR_SECONDS, OPENAI_WRITES, Block, CacheRules, Mark, Request

BREAKPOINT = "cache_control"  # Anthropic's word

FIRST_TOKEN_SECONDS = 2.0  # assumed, as all times: a large model behind an API ...
OUTPUT_TOKENS_PER_SECOND = 60.0
TOOL_SECONDS = 5.0  # ... and an API call or a shell command
PAUSES = ((0.55, 20.0), (0.25, 120.0), (0.17, 900.0), (0.03, 7_200.0))
"""Shares and seconds of what a user takes to go on: a fifth are slow enough for a cache of five minutes to expire."""

SLOW_TOOLS = ((0.97, 0.0), (0.03, 420.0))
"""The same for what a tool takes on top: a test suite, an approval."""

Placement = tuple[tuple[str, int], ...]
"""Regions whose ends are marked, each with a lifetime: 0 the short one, 1 the long one."""


MIDDLEWARE: Placement = (("tools", 0), ("system", 0), ("tail", 0))  # AnthropicPromptCachingMiddleware
MARKED: Placement = (
    ("system", 0),
    ("pins", 0),
    ("tail", 0),
)  # ours: the best that leaves one free
FIXED: Placement = (("system", 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A request with the ends of its regions, in blocks; a region that it does not have is left out."""

    request: Request
    ends: Mapping[str, int]
    marks: Sequence[Mark]
    """Breakpoints that the request itself has."""


def breakpoints(laid: Laid, placement: Placement) -> list[Mark]:
    """Return the breakpoints of a request: its own, else one per place, the longer-lived where two fall together."""
    if laid.marks:
        return list(laid.marks)
    marks: dict[int, int] = {}
    for region, life in placement:
        if position := laid.ends.get(region, 0):
            marks[position] = max(life, marks.get(position, 0))
    return [Mark(position=position, life=life) for position, life in sorted(marks.items())]


def usual(rules: CacheRules, *, ours: bool) -> Placement:
    """Who marks what: Anthropic's middleware for everybody but us, nothing of one's own at OpenAI but by us."""
    if rules.entries != "marks":
        return ()
    if rules in GEMINI_EXPLICIT:
        return FIXED
    if rules == OPENAI_WRITES:
        return MARKED[:-1] if ours else ()  # it marks the tail itself
    return MARKED if ours else MIDDLEWARE


def laid_out(
    messages: Sequence[BaseMessage],
    tools: Sequence[Mapping[str, Any]],
    answer: AIMessage,
    seconds: float,
    *,
    tail: object = None,
) -> Laid:
    """Return a request as providers read it: tools, system prompt, messages in blocks.

    Args:
        messages: the request; `cache_control` in a block of content is a breakpoint.
        tools: definitions; `cache_control` in one is a breakpoint too.
        answer: what comes back.
        seconds: when it starts.
        tail: the argument of the call that marks the end.
    """
    pieces, ends = list(map(_tool, tools)), {"tools": len(tools)}
    for message in messages:
        if is_record(message):
            ends["pins"] = len(pieces)
        if isinstance(message, AIMessage):
            ends["before"] = len(pieces)  # the newest answer: the request that it answered ended here
        pieces += _pieces(message)
        if isinstance(message, SystemMessage):
            ends["system"] = len(pieces)
        if is_record(message):
            ends["record"] = len(pieces)
        elif isinstance(message, HumanMessage):
            ends.setdefault("pins", len(pieces))  # the first question, which stays in front of what comes
    ends.setdefault("system", ends["tools"])
    ends["tail"] = len(pieces)
    marked = [mark for _, mark in pieces]
    if tail and marked:
        marked[-1] = tail
    marks = [Mark(position=at, life=_life(mark)) for at, mark in enumerate(marked, 1) if mark]
    request = Request([block for block, _ in pieces], seconds=seconds, answer=[block for block, _ in _pieces(answer)])
    return Laid(request=request, ends=ends, marks=marks)


def is_record(message: BaseMessage) -> bool:
    """Say whether a message stands for what left: our record, or langchain's summary."""
    return message.id == RECORD_ID or message.additional_kwargs.get("lc_source") == "summarization"


Piece = tuple[Block, object]
"""A block, and the breakpoint behind it."""


def _tool(tool: Mapping[str, Any]) -> Piece:
    plain = {key: value for key, value in tool.items() if key != BREAKPOINT}
    return Block(kind="tool", text=json.dumps(plain), tokens=exact.tools_tokens([plain])), tool.get(BREAKPOINT)


def _pieces(message: BaseMessage) -> list[Piece]:
    """The blocks of a message; the first one carries the framing."""
    kind = "system" if message.type == "system" else "result" if isinstance(message, ToolMessage) else "text"
    pieces: list[Piece] = [
        (Block(kind=kind, text=text, tokens=exact.text_tokens(text) + media), mark)
        for text, media, mark in _content(message.content)
    ]
    for call in getattr(message, "tool_calls", ()):
        text = json.dumps([call["name"], call["args"]], ensure_ascii=False)
        pieces.append((Block(kind="call", text=text, tokens=exact.text_tokens(text)), None))
    if not pieces:
        pieces = [(Block(kind=kind, text="", tokens=0), None)]
    (first, mark), rest = pieces[0], pieces[1:]
    framed = Block(kind=first.kind, text=first.text, tokens=first.tokens + exact.MESSAGE_TOKENS)
    return [(framed, mark), *rest]


def _content(content: Any) -> Iterator[tuple[str, int, object]]:
    """Text, media tokens and breakpoint of each block; a breakpoint that moves changes nothing that is cached."""
    for item in content if isinstance(content, list) else [content]:
        plain = {k: v for k, v in item.items() if k != BREAKPOINT} if isinstance(item, dict) else item
        mark = item.get(BREAKPOINT) if isinstance(item, dict) else None
        for text, media in content_blocks([plain]):
            if text or media:
                yield text, media, mark


def _life(mark: object) -> int:
    return int(isinstance(mark, Mapping) and mark.get("ttl") == "1h")


class Clock:
    """When each request of a conversation starts: the same for every arm."""

    def __init__(self, name: str) -> None:
        seed = hashlib.sha256(name.encode()).digest()
        self._random = random.Random(seed)  # noqa: S311  # reproducible times, not secrets
        self.seconds = 0.0
        self.gaps: Counter[str] = Counter()

    def answered(self, output_tokens: int, *, is_turn: bool) -> None:
        """Go on to the next request: after the user's pause when the answer ends a turn, else after the tools."""
        waited = self._drawn(PAUSES) if is_turn else TOOL_SECONDS + self._drawn(SLOW_TOOLS)
        gap = FIRST_TOKEN_SECONDS + output_tokens / OUTPUT_TOKENS_PER_SECOND + waited
        self.seconds += gap
        slow = {f"over {limit:,} s": gap > limit for limit in (300, HOUR_SECONDS)}
        self.gaps.update({"gaps": 1, "turns": is_turn, **slow})

    def _drawn(self, shares: tuple[tuple[float, float], ...]) -> float:
        weights, values = zip(*shares, strict=True)
        return self._random.choices(values, weights)[0]
