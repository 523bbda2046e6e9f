"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice, pairwise
from math import hypot
from operator import mul
from os.path import commonprefix
from typing import Annotated, Any

from langchain_core.embeddings import Embeddings
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime

from langchain_ctxwin.core.blocks import REASONING_TYPES, compact_json
from langchain_ctxwin.core.calls import calls_of, is_user
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.priced_view import last_user
from langchain_ctxwin.core.session import read_session
from langchain_ctxwin.core.tokens import REASONING_KEYS, Call, Piece, TokenEstimator, WholePrice, pieces, text_price
from langchain_ctxwin.core.tool_schemas import RECALL_KEY
from langchain_ctxwin.core.turns import NOTE_KEY
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.text import Span, TermIndex, piece_spans, query_terms, statement_spans, terms
from langchain_ctxwin.util.memo import memo_of_texts

__all__ = ["Excerpt", "Found", "asearch_messages", "create_recall_tool", "search_messages"]

MAX_TOKENS = 2_000  # of one search: about fifty chat messages
MIN_TOKENS = 200  # of the tool: one chat message with its label, or a few lines of a long one
BLOCK_TOKENS = 8  # least for a message with its label: what is ranked behind as many as fill the room is not priced
EXCERPTS = 4  # a part that would take more than half of the room is cut, so that this many different ones fit
QUOTED_CHARS = 80  # of a query or an id, in an answer that finds nothing
STEP_CHARS = 100  # an excerpt ends at the end of such a piece, after a space where there is one: about a line of text
NAME_CHARS = 64  # of a name in a label, the longest that providers accept; anybody's message may have a longer one
LONG_ID_CHARS = 16  # ids up to this length are short enough
SHORTEST_HANDLE_CHARS = 8  # of a longer id, so that it is unlikely that a later id begins like it
MAX_PASSAGES = 16_384  # whose terms are remembered: a very long conversation, about 20 MB of chat messages
MAX_SPLIT_TEXTS, SPLIT_TEXT_CHARS = 1_024, 16_384  # whose passages are remembered, up to this length: about 20 MB

# BM25's k1 and b: the values that Anserini uses for passages (Yang et al., 2017).
TERM_SATURATION, LENGTH_NORMALIZATION = 0.9, 0.4
# Longest message that is one passage: a few paragraphs, about one subject; nearly everything that people write.
WHOLE_CHARS = 1_200
# Longest passage of a longer message: two or three sentences. From 250 to 500 characters find as much, within 2 %, of
# the evidence in BEAM, a public benchmark of chats with long answers (Tavakoli et al., 2025).
PASSAGE_CHARS = 300
# What a passage gets of the score of those one and two places away: an answer stands beside its question, a result
# beside its call. Halving is as good as any other decline that was tried.
NEIGHBOR_SHARES = (0.5, 0.25)
# What a part counts beside a whole message: the parts of long answers would outdo short messages that say the same.
# 0.5 and 0.7 find 1 to 3 % less of the evidence in BEAM, 1 a tenth less.
PART_SHARE = 0.6
# How much length counts against a text: the one of a tenth of the length is worth twice as much. From 0.2 to 0.5 finds
# as much, within 1 %, in BEAM and in chats of short messages (LoCoMo: Maharana et al., 2024), 0 finds less in BEAM.
LENGTH_EXPONENT = 0.3
LABEL_CHARS = 50  # added to each length: about what a label takes, so that a word is not worth a sentence
SEPARATOR = "\n\n"

DESCRIPTION = (
    "Look up earlier messages of this conversation that you no longer see: what was said, tool calls, and tool results "
    "that were cleared or shortened. Give `query` to search by words; names, numbers and file names work best. Give "
    "`message_id` to read one message, as named in notes like 'still in the history as message ...'; add `query` to "
    "read it from the best match on, or `offset_chars` to read on from there."
)

Query = Annotated[str, "Words to search for."]
MessageId = Annotated[str, "Id of one message to read, or its beginning as shown by this tool."]
OffsetChars = Annotated[int, "Where to begin reading the message, in characters."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A message that a search found, or a part of a long one, word for word."""

    message: AnyMessage
    index: int
    """Position of the message among those that were searched."""
    text: str
    start_char: int
    stop_char: int
    """Where the text is in the message as plain text."""
    is_whole: bool
    """True when it is all of the message."""


class Found(list[AnyMessage]):
    """The messages that a search found and that fit, most relevant first: a list that also says what was left out."""

    def __init__(
        self,
        kept: Iterable[AnyMessage] = (),
        *,
        dropped: Iterable[AnyMessage] = (),
        tokens: int = 0,
        excerpts: Iterable[Excerpt] = (),
    ) -> None:
        super().__init__(kept)
        self.dropped = tuple(dropped)
        """Messages that match but did not fit, most relevant first."""
        self.tokens = tokens
        """What the kept messages cost, each priced alone: together they cost no more."""
        self.excerpts = tuple(excerpts)
        """Instead of whole messages: short ones, and the best parts of long ones, that fit as messages of their own in
        the same room; most relevant first."""

    @property
    def truncated(self) -> bool:
        """True when a message that matches did not fit."""
        return bool(self.dropped)


def search_messages(
    messages: Sequence[MessageLikeRepresentation],
    query: str,
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    embeddings: Embeddings | None = None,
) -> Found:
    """Return the messages that match a query and fit in `max_tokens`, whole and most relevant first.

    Words count by how rare they are in this history (BM25); texts, tool calls with their arguments and tool results are
    searched, reasoning is not. A message is also found by what stands right before and after it. Of what matches alike
    the shorter is taken, so that the room goes to many messages; one that does not fit is left out. Nothing that
    matches is left out silently: see `Found`, which has the best parts of long messages as well.

    Args:
        messages: the history to search, for example a graph state's `messages`.
        query: words, names, numbers or a question, in any language.
        max_tokens: what all returned messages may cost together.
        counter: counts tokens; by default `TokenEstimator()`.
        embeddings: rank by meaning instead of by words. Every passage is embedded in every call: wrap them in a
            `CacheBackedEmbeddings` when you search the same history often.

    Raises:
        ConfigError: the query is empty, there is no room, or `messages` are none.

    Examples:
        >>> history = [("user", "My order is ORD-1234."), ("ai", "Thank you."), ("user", "Nice weather today.")]
        >>> found = search_messages(history, "Which order?", max_tokens=20)
        >>> [message.text for message in found]
        ['My order is ORD-1234.']
        >>> [(excerpt.index, excerpt.text) for excerpt in found.excerpts]
        [(0, 'My order is ORD-1234.')]
    """
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(f"query={query!r}: give the words to search for")
    _check(max_tokens, 1, counter)
    if isinstance(messages, str | bytes | Mapping | BaseMessage) or not isinstance(messages, Iterable):
        raise ConfigError(f"messages={messages!r:.80}: give a list of messages")
    try:
        history: list[Any] = convert_to_messages(messages)
    except (ValueError, NotImplementedError) as error:  # what LangChain raises for what is no message
        raise ConfigError(f"messages: {error}; give a list of messages") from error
    count = counter or TokenEstimator()
    base = count([])
    passages = _passages([(i, said) for i, said in enumerate(history) if said.type != "remove"], query, embeddings)
    scores = dict[int, float]()
    for passage in passages:
        scores[passage.index] = max(passage.score, scores.get(passage.index, 0.0))
    worths = {i: _worth(scores[i], len(readable_text(history[i])), embeddings) for i in scores}
    # Any message costs more than an empty one, so what is ranked behind as many as could fill the room is not priced.
    most = max(0, (max_tokens - base) // (count([HumanMessage("")]) - base + 1))
    fit: Fit[int] = take_while_fits(
        sorted(scores, key=lambda index: (-worths[index], -index))[:most],
        max_tokens - base,
        lambda index: count([history[index]]) - base,
        on_overflow="skip",
    )
    kept, ranked = set(fit.kept), sorted(scores, key=lambda index: (-scores[index], -index))
    return Found(
        (history[index] for index in ranked if index in kept),
        dropped=(history[index] for index in ranked if index not in kept),
        tokens=base + fit.tokens if kept else 0,
        excerpts=_excerpts(history, sorted(passages, key=_rank)[: 1 + max_tokens // BLOCK_TOKENS], max_tokens, count),
    )


async def asearch_messages(messages: Sequence[MessageLikeRepresentation], query: str, **options: Any) -> Found:
    """Like `search_messages`, on another thread, so that a long history holds up nobody."""
    return await run_in_executor(None, search_messages, messages, query, **options)


def create_recall_tool(
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    embeddings: Embeddings | None = None,
    name: str = "recall",
    description: str = DESCRIPTION,
) -> BaseTool:
    """Return a tool that gives an agent messages of its own history that it no longer sees in full.

    It reads the `messages` of the graph state, those that were moved to the store, and what `context_view` says of
    them, so that it returns nothing that the model sees anyway. The model gives `query`, `message_id` or both. Short
    messages come whole, of long ones the best passages, each with its message's id and the position to read on from;
    all in the order in which they were said. An answer is at most `max_tokens` long.

    Args:
        max_tokens: room of one answer, at least 200.
        counter: counts tokens; by default `TokenEstimator()`.
        embeddings: rank by meaning instead of by words. Every passage is embedded in every call: wrap them in a
            `CacheBackedEmbeddings`.
        name: how the model calls the tool.
        description: what the model is told of it.

    Raises:
        ConfigError: `max_tokens` has no room for an answer, or the tool has no name.

    Examples:
        ```python
        agent = create_context_agent(model, [search, create_recall_tool()], checkpointer=InMemorySaver())
        ```
    """
    _check(max_tokens, MIN_TOKENS, counter)
    if not name:
        raise ConfigError(f"name={name!r}: give the name by which the model calls the tool")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"description={description!r}: give the text that tells the model what the tool does")
    price = text_price(counter)

    def recall(
        runtime: ToolRuntime[Any, Any], query: Query = "", message_id: MessageId = "", offset_chars: OffsetChars = 0
    ) -> str:
        state: Any = runtime.state
        if not isinstance(state, Mapping):
            state = {"messages": state} if isinstance(state, list) else vars(state)
        reader = _Reader(list(state.get("messages") or ()), price, max_tokens, embeddings)
        query, wanted = query.strip(), message_id.strip()
        if not query and not wanted:
            raise ToolException("Nothing to look for: give `query` with words to search for, or `message_id`.")
        if wanted:
            return reader.read(reader.position_of(wanted), query if offset_chars <= 0 else "", offset_chars)
        if query in reader.ids:
            return reader.read(reader.ids.index(query), "", offset_chars)
        return reader.search(query, _searchable(reader.messages, name), _in_sight(reader, state))

    return StructuredTool.from_function(
        recall,
        name=name,
        description=description,
        handle_tool_error=True,
        parse_docstring=False,
        metadata={RECALL_KEY: True},
    )


def _check(max_tokens: Any, least: int, counter: Any) -> None:
    if counter is not None and (isinstance(counter, type) or not callable(counter)):
        raise ConfigError(f"counter={counter!r}: give a callable that counts the tokens of messages, or None")
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < least:
        raise ConfigError(f"max_tokens={max_tokens!r}: give a whole number of tokens, at least {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """A part of a message that matches a query, or all of it."""

    index: int  # of the message
    text: str
    start_char: int  # in the readable text of the message
    chars: int  # of that text
    score: float = 0.0
    worth: float = 0.0  # beside others that take as much room

    @property
    def stop_char(self) -> int:
        return self.start_char + len(self.text)

    @property
    def is_whole(self) -> bool:
        return len(self.text) == self.chars


def _passages(messages: Sequence[tuple[int, AnyMessage]], query: str, embeddings: Embeddings | None) -> list[_Passage]:
    """The passages that match, in their order; each message comes with its position."""
    passages, texts = list[_Passage](), list[str]()
    for index, message in messages:
        text, name = readable_text(message), message.name or ""
        for start, stop in _spans(text):
            part = text[start:stop]
            passages.append(_Passage(index=index, text=part, start_char=start, chars=len(text)))
            # The name of who said it, or of the tool, is searched with the beginning.
            texts.append(f"{name} {part}" if name and not start else part)
    if embeddings is None:
        scores = _word_scores(texts, [passage.index for passage in passages], query)
    else:
        scores = _meaning_scores(texts, query, embeddings)
    found = list[_Passage]()
    for passage, score in zip(passages, scores, strict=True):
        if score > 0:
            worth = _worth(score, len(passage.text), embeddings, share=1 if passage.is_whole else PART_SHARE)
            found.append(replace(passage, score=score, worth=worth))
    return found


def _worth(score: float, chars: int, embeddings: Embeddings | None, *, share: float = 1) -> float:
    """The score for its room; nearness of meaning, unlike words in common, does not grow with the length."""
    return score if embeddings is not None else score * (share / (chars + LABEL_CHARS) ** LENGTH_EXPONENT)


def _rank(passage: _Passage) -> tuple[float, int, int]:
    """Order by worth, newer before older, a message from its beginning."""
    return -passage.worth, -passage.index, passage.start_char


def _spans(text: str) -> Sequence[Span]:
    """Where the passages of a text are: all of a short one, else statements that follow each other."""
    if len(text) <= WHOLE_CHARS:
        return [(0, len(text))] if text else []
    return _split(text) if len(text) <= SPLIT_TEXT_CHARS else _split.__wrapped__(text)


@memo_of_texts(MAX_SPLIT_TEXTS)
def _split(text: str) -> Sequence[Span]:
    spans = list[Span]()
    for start, stop in statement_spans(text, 0, len(text)):
        if spans and stop - spans[-1][0] <= PASSAGE_CHARS:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((start, stop))
    return spans


def _word_scores(texts: Sequence[str], owners: Sequence[int], query: str) -> list[float]:
    """The BM25 score of each passage, and shares of its neighbors': what a short message is about is said around it.

    Beside the first and the last passage of a message stand the messages before and after it, with their best ones.
    """
    wanted = dict.fromkeys(query_terms(query), 1.0)
    # The index knows only the terms of the query; all others count as one, for the lengths.
    known = [Counter(term if term in wanted else "" for term in _passage_terms(text)) for text in texts]
    if not any(text.keys() - {""} for text in known):
        return [0.0] * len(texts)
    index = TermIndex(known, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION)
    own = index.scores(wanted)
    groups = [list(places) for _, places in groupby(range(len(own)), key=owners.__getitem__)]
    best = [max(own[place] for place in places) for places in groups]
    scores = list(own)
    for number, places in enumerate(groups):
        for distance, share in enumerate(NEIGHBOR_SHARES, start=1):
            if number >= distance:
                scores[places[0]] += share * best[number - distance]
            if number + distance < len(groups):
                scores[places[-1]] += share * best[number + distance]
            for before, after in zip(places, places[distance:], strict=False):
                scores[after] += share * own[before]
                scores[before] += share * own[after]
    return scores


def _meaning_scores(texts: list[str], query: str, embeddings: Embeddings) -> list[float]:
    """The cosine between each passage and the query."""
    wanted, vectors = embeddings.embed_query(query), embeddings.embed_documents(texts)
    lengths = [hypot(*vector) * hypot(*wanted) for vector in vectors]
    products = [sum(map(mul, vector, wanted)) for vector in vectors]
    return [product / length if length else 0.0 for product, length in zip(products, lengths, strict=True)]


def _fitting(
    passages: Iterable[_Passage],
    room: int,
    price: WholePrice,
    label_price: Callable[[_Passage], int],
    fits: Callable[[list[_Passage]], bool],
) -> list[_Passage]:
    """The passages that fit, in the order of their places; those that follow each other are one, with one label.

    `fits` is asked of all together, because prices of parts need not add up.
    """
    kept, starts, stops = list[_Passage](), set[tuple[int, int]](), set[tuple[int, int]]()
    for passage in passages:
        start, stop = (passage.index, passage.start_char), (passage.index, passage.stop_char)
        tokens = price(passage.text) + label_price(passage) * (1 - (start in stops) - (stop in starts))
        if tokens <= room:
            room -= tokens
            kept.append(passage)
            starts.add(start)
            stops.add(stop)
    while kept:
        parts = list[_Passage]()
        for passage in sorted(kept, key=lambda passage: (passage.index, passage.start_char)):
            last = parts[-1] if parts else None
            if last and (last.index, last.stop_char) == (passage.index, passage.start_char):
                parts[-1] = replace(last, text=last.text + passage.text, score=max(last.score, passage.score))
            else:
                parts.append(passage)
        if fits(parts):
            return parts
        kept.pop()
    return []


def _excerpts(
    messages: Sequence[AnyMessage], passages: Iterable[_Passage], max_tokens: int, count: TokenCounter
) -> list[Excerpt]:
    """The passages that fit, most relevant first, each priced as a message of its own."""
    base = count([])
    label_tokens = count([HumanMessage("")]) - base

    def fits(parts: list[_Passage]) -> bool:
        return count([HumanMessage(part.text) for part in parts]) <= max_tokens

    parts = _fitting(passages, max_tokens - base, text_price(count), lambda _: label_tokens, fits)
    return [
        Excerpt(
            message=messages[part.index],
            index=part.index,
            text=part.text,
            start_char=part.start_char,
            stop_char=part.stop_char,
            is_whole=part.is_whole,
        )
        for part in sorted(parts, key=lambda part: (-part.score, -part.index, part.start_char))
    ]


@memo_of_texts(MAX_PASSAGES)
def _passage_terms(text: str) -> tuple[str, ...]:
    return tuple(terms(text))


def readable_text(message: AnyMessage) -> str:
    """A message as plain text: texts, tool calls as name and JSON, media as markers; reasoning is left out."""
    content: Any = message.content
    if isinstance(content, str) and not isinstance(message, AIMessage):
        return content
    if isinstance(content, list):
        content = [block for block in content if not _is_reasoning(block)]
    beside = {key: kept for key, kept in message.additional_kwargs.items() if key not in REASONING_KEYS}
    said = message.model_copy(update={"content": content, "name": None, "additional_kwargs": beside})
    return "\n".join(filter(None, map(_readable, pieces(said))))


def _is_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    return _is_reasoning(block.get("value")) if kind == "non_standard" else kind in REASONING_TYPES


def _readable(piece: Piece) -> str:
    """A piece as text; of a document that is attached as text, that text."""
    if isinstance(piece, Call):
        return f"{piece.name} {compact_json(piece.arguments)}".strip()
    if isinstance(piece, str):
        return piece
    source: Any = piece.block.get("source")
    is_source = isinstance(source, Mapping) and source.get("type") == "text"
    text = source.get("data") if is_source else piece.block.get("text")
    return text if isinstance(text, str) and text else f"[{piece.kind}]"


class _Reader:
    """Reads messages of one history, and searches them, for one answer of the tool."""

    def __init__(
        self, messages: Sequence[AnyMessage], price: WholePrice, max_tokens: int, embeddings: Embeddings | None
    ) -> None:
        self.messages = messages
        self.ids = [message_id(messages, index) for index in range(len(messages))]
        self._price = lru_cache(maxsize=None)(price)  # for as long as one answer takes
        self._max_tokens = max_tokens
        self._embeddings = embeddings
        self._handles = handles(messages)
        said = ((i, message) for i, message in enumerate(messages) if is_user(message))
        self._turns = [index for index, message in said if NOTE_KEY not in message.additional_kwargs]

    def position_of(self, wanted: str) -> int:
        """The position of the message with this id, or of the only one whose id begins like it."""
        if wanted in self.ids:
            return self.ids.index(wanted)
        is_handle = len(wanted) >= SHORTEST_HANDLE_CHARS
        found = [index for index, key in enumerate(self.ids) if is_handle and key.startswith(wanted)]
        if len(found) == 1:
            return found[0]
        problem = f"{len(found)} messages have an id that begins like" if found else "No message has the id"
        raise ToolException(
            f"{problem} {wanted[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier answer of this "
            "tool, or search by words with `query`."
        )

    def read(self, index: int, query: str, start_char: int) -> str:
        """As much of one message as fits, from the best match on when there is something to search for."""
        hits = _passages([(index, self.messages[index])], query, self._embeddings) if query else []
        start_char = max(hits, key=lambda hit: hit.score).start_char if hits else start_char
        chars = len(readable_text(self.messages[index]))
        if not 0 <= start_char < max(1, chars):
            raise ToolException(f"offset_chars={start_char} is outside of the message, which has {chars} characters.")
        room = self._max_tokens
        while True:
            part = self._beginning(index, start_char, room)
            more = f"; read on with offset_chars={part.stop_char}" if part.stop_char < chars else ""
            page = f"[{self._author(index)}, characters {start_char} to {part.stop_char} of {chars}{more}]\n{part.text}"
            tokens = self._price(page)
            if tokens <= self._max_tokens or not part.text:
                return page
            room = min(room - 1, room * self._max_tokens // tokens)  # the pieces may cost less than the whole

    def search(self, query: str, positions: Sequence[int], seen: frozenset[int]) -> str:
        """The best passages at these positions that are not seen, in the order in which they were said."""
        passages = _passages([(index, self.messages[index]) for index in positions], query, self._embeddings)
        matching = {passage.index for passage in passages}
        unseen, in_view = len(matching - seen), len(matching & seen)
        if not unseen:
            where = f" (in your view: {in_view})" if in_view else ""
            return (
                f"No message that left your view matches {query[:QUOTED_CHARS]!r}{where}. Try other words for the "
                "same thing, names, numbers or parts of file names."
            )
        of_all = f"of {unseen} matching messages" + (f" (not counting {in_view} in your view)" if in_view else "")

        def intro(shown: int, *, has_parts: bool) -> str:
            parts = " (of long ones characters from-to: read on with message_id and offset_chars)" if has_parts else ""
            return f"{shown} {of_all}, the most relevant that fit, oldest first{parts}:"

        def page(parts: list[_Passage]) -> str:
            opening = intro(len({p.index for p in parts}), has_parts=not all(p.is_whole for p in parts))
            return SEPARATOR.join([opening, *(f"{self._label(part)}\n{part.text}" for part in parts)])

        room = self._max_tokens - self._price(intro(unseen, has_parts=True) + SEPARATOR)
        ranked = sorted((part for part in passages if part.index not in seen), key=_rank)
        cut = (self._cut(part, room, room // min(EXCERPTS, unseen)) for part in ranked[: room // BLOCK_TOKENS])
        parts = _fitting(
            cut, room, self._price, self._label_tokens, lambda parts: self._price(page(parts)) <= self._max_tokens
        )
        if not parts:
            return f"{unseen} earlier messages match, but none fits: search with fewer or rarer words."
        return page(parts)

    def _cut(self, part: _Passage, room: int, share: int) -> _Passage:
        """The passage, or as much of it as fits its share when it would take more than half of the room."""
        if self._price(part.text) + self._label_tokens(part) <= max(share, room // 2):
            return part
        shorter = self._beginning(part.index, part.start_char, share)
        return replace(part, text=part.text[: len(shorter.text)])

    def _beginning(self, index: int, start_char: int, room: int) -> _Passage:
        """A message from `start_char` on, as much of it as fits with its label."""
        text = readable_text(self.messages[index])
        rest = text[start_char:]
        longest = _Passage(index=index, text=rest[:-1], start_char=start_char, chars=len(text))
        spans = islice(piece_spans(rest, STEP_CHARS), max(0, room))  # no piece costs less than a token
        left = room - self._label_tokens(longest)
        fit: Fit[Span] = take_while_fits(spans, left, lambda span: self._price(rest[span[0] : span[1]]))
        return replace(longest, text=rest[: fit.kept[-1][1] if fit.kept else 0])

    def _label_tokens(self, part: _Passage) -> int:
        return self._price(f"{self._label(part)}\n{SEPARATOR}")

    def _label(self, part: _Passage) -> str:
        """The line before a passage; how to read on stands once, at the top of the page."""
        where = "" if part.is_whole else f", {part.start_char}-{part.stop_char} of {part.chars}"
        return f"[{self._author(part.index)}{where}]"

    def _author(self, index: int) -> str:
        message = self.messages[index]
        role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
        author = " ".join(filter(None, (role, (message.name or "")[:NAME_CHARS])))
        return f"{self._handles[index]}, {author}, turn {bisect_right(self._turns, index)}"


def handles(messages: Sequence[AnyMessage]) -> list[str]:
    """Return for each message its id, or the beginning of a long one that no other id shares.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> handles([HumanMessage("a", id="4dd9dc63-ae48-41de"), HumanMessage("b", id="m2"), HumanMessage("c")])
        ['4dd9dc63', 'm2', '#2']
    """
    ids = [message_id(messages, index) for index in range(len(messages))]
    shared = dict.fromkeys(ids, SHORTEST_HANDLE_CHARS - 1)
    for one, other in pairwise(sorted(shared)):
        same = len(commonprefix((one, other)))  # noqa: RUF071  # by character is meant
        shared[one], shared[other] = max(shared[one], same), max(shared[other], same)
    return [key if len(key) <= LONG_ID_CHARS else key[: shared[key] + 1] for key in ids]


def _in_sight(reader: _Reader, state: Mapping[str, Any]) -> frozenset[int]:
    """The positions, in the whole history, of what the model sees in full: leading system messages, unedited view.

    Where the state does not say what is shown, because nothing left or somebody else trims the history, all other
    messages count as unseen.
    """
    held: Sequence[AnyMessage] = state.get("messages") or []
    first = next((i for i, message in enumerate(held) if not isinstance(message, SystemMessage)), len(held))
    view = read_session({"context_view": state.get("context_view")}, held).view
    places = set(range(first))
    if view != View():
        places |= {position.index for position in view.pinned}
        places |= set(range(max(first, view.start.index) if view.start else first, len(held)))
    seen = {message_id(held, index) for index in places} - view.cleared - view.clamped.keys()
    return frozenset(index for index, key in enumerate(reader.ids) if key in seen)


def _searchable(messages: Sequence[AnyMessage], tool_name: str) -> list[int]:
    """The positions of what is worth a search: not the question being answered, nor calls of this tool and answers.

    A question matches itself best of all.
    """

    def is_own(message: AnyMessage) -> bool:
        if isinstance(message, ToolMessage):
            return message.name == tool_name
        calls = calls_of(message)
        return bool(calls) and all(call["name"] == tool_name for call in calls)

    asked = last_user(messages)
    calling = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=len(messages))
    return [i for i, message in enumerate(messages[:calling]) if i != asked and not is_own(message)]
