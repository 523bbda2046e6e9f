"""What does a call of the recall tool ask for, and what is it told?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.tools import ToolException

from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.tokens import WholePrice
from langchain_ctxwin.core.view import message_id
from langchain_ctxwin.recall.excerpts import SEPARATOR, Block, Showcase
from langchain_ctxwin.recall.handles import positions_called
from langchain_ctxwin.recall.relevance import Hit
from langchain_ctxwin.recall.sight import in_sight, searchable

BLOCK_TOKENS = 8
"""Least that a message with its label costs: what is ranked behind so many as could fill the room is not priced."""

EXCERPTS = 4
"""A message that would take more than half of the room is shown in part, so that this many different ones fit."""

QUOTED_CHARS = 80
"""How much of a query or an id is repeated in an answer that finds nothing."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one call of the tool asks for."""

    messages: Sequence[AnyMessage]
    """The full history."""

    _: KW_ONLY
    positions: Sequence[int]
    """Positions of the messages to search."""

    seen: frozenset[int] = frozenset()
    """Positions of the messages that the model sees in full."""

    query: str
    """What to search for; empty when the place to read is known."""

    target: int | None = None
    """Position of the one message to read."""

    start_char: int = 0
    """Where to begin reading it."""

    @property
    def pool(self) -> list[AnyMessage]:
        """The messages to search."""
        return [self.messages[index] for index in self.positions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many messages match a query."""

    found: int
    """Those that the model does not see in full."""

    seen: int
    """Those that it sees anyway."""


def read_call(state: Any, query: str, wanted_id: str, offset_chars: int, tool_name: str) -> Task:
    """Understand a call; raise what the model is told about a wrong one."""
    values = state if isinstance(state, Mapping) else {"messages": state} if isinstance(state, list) else vars(state)
    messages: Sequence[AnyMessage] = values.get("messages") or []
    query, wanted_id = query.strip(), wanted_id.strip()
    if not query and not wanted_id:
        raise ToolException("Nothing to look for: give `query` with words to search for, or `message_id`.")
    target = _target(messages, wanted_id) if wanted_id else _exact(messages, query)
    if target is not None:
        # A place that is given, and a query that is only an id, leave nothing to search for.
        place = offset_chars > 0 or not wanted_id
        return Task(messages, positions=[target], query="" if place else query, target=target, start_char=offset_chars)
    positions, seen = searchable(messages, tool_name), in_sight(messages, values)
    return Task(messages, positions=positions, seen=seen, query=query)


def _target(messages: Sequence[AnyMessage], wanted_id: str) -> int:
    found = positions_called(messages, wanted_id)
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} messages have an id that begins like" if found else "No message has the id"
    raise ToolException(
        f"{problem} {wanted_id[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier answer of this "
        "tool, or search by words with `query`."
    )


def _exact(messages: Sequence[AnyMessage], query: str) -> int | None:
    """The position of the message whose id was given as the query."""
    return next((i for i in range(len(messages)) if message_id(messages, i) == query), None)


def answer(task: Task, hits: Sequence[Hit], price: WholePrice, max_tokens: int) -> str:
    """Return what the model is told; `hits` are what a search of `task.pool` for `task.query` found."""
    showcase = Showcase(task.messages, price)
    if task.target is not None:
        start_char = hits[0].start_char if hits else task.start_char
        return _read(showcase, task.target, start_char, max_tokens)
    return _found(task, hits, showcase, price, max_tokens)


def _read(showcase: Showcase, index: int, start_char: int, max_tokens: int) -> str:
    chars = len(showcase.text(index))
    if not 0 <= start_char < max(1, chars):
        raise ToolException(f"offset_chars={start_char} is outside of the message, which has {chars} characters.")
    return showcase.excerpt(index, start_char, max_tokens).text


def _found(task: Task, hits: Sequence[Hit], showcase: Showcase, price: WholePrice, max_tokens: int) -> str:
    """The best messages that fit, in the order in which they were said."""
    unseen = [hit for hit in hits if task.positions[hit.index] not in task.seen]
    counts = Counts(found=len(unseen), seen=len(hits) - len(unseen))
    if not unseen:
        return _nothing(task.query, counts)
    room = max_tokens - price(_intro(len(unseen), counts) + SEPARATOR)
    share = room // min(EXCERPTS, len(unseen))
    blocks = (_block(showcase, task.positions[hit.index], hit, room, share) for hit in unseen[: room // BLOCK_TOKENS])
    fit: Fit[Block] = take_while_fits(blocks, room, lambda block: block.tokens, on_overflow="skip")
    return _page(fit.kept, counts, price, max_tokens)


def _block(showcase: Showcase, index: int, hit: Hit, room: int, share: int) -> Block:
    whole = showcase.whole(index)
    return whole if whole.tokens <= max(share, room // 2) else showcase.excerpt(index, hit.start_char, share)


def _page(ranked: Sequence[Block], counts: Counts, price: WholePrice, max_tokens: int) -> str:
    """The blocks under one line; prices of parts need not add up, so the least relevant go until the whole fits."""
    for shown in range(len(ranked), 0, -1):
        blocks = sorted(ranked[:shown], key=lambda block: block.index)
        page = SEPARATOR.join([_intro(shown, counts), *(block.text for block in blocks)])
        if price(page) <= max_tokens:
            return page
    return f"{counts.found} earlier messages match, but none fits: search with fewer or rarer words."


def _intro(shown: int, counts: Counts) -> str:
    seen = f" (not counting {counts.seen} in your view)" if counts.seen else ""
    return f"{shown} of {counts.found} matching messages{seen}, the most relevant that fit, oldest first:"


def _nothing(query: str, counts: Counts) -> str:
    seen = f" (in your view: {counts.seen})" if counts.seen else ""
    return (
        f"No message that left your view matches {query[:QUOTED_CHARS]!r}{seen}. Try other words for the same thing, "
        "names, numbers or parts of file names."
    )
