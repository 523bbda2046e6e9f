"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
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

from langchain_ctxwin.core.edits import Call, Piece, compact_json, pieces
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.priced_view import last_user
from langchain_ctxwin.core.session import read_session
from langchain_ctxwin.core.tokens import TokenEstimator, WholePrice, text_price
from langchain_ctxwin.core.turns import NOTE_KEY
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.text.sentences import piece_spans
from langchain_ctxwin.text.terms import TermIndex, query_terms, terms

__all__ = ["Found", "asearch_messages", "create_recall_tool", "search_messages"]

MAX_TOKENS = 2_000
"""What one search may return, in tokens: about fifty chat messages."""

MIN_TOKENS = 200
"""Least room of the tool: one chat message with its label, or a few lines of a long one."""

BLOCK_TOKENS = 8
"""Least that a message with its label costs: what is ranked behind so many as could fill the room is not priced."""

EXCERPTS = 4
"""A message that would take more than half of the room is shown in part, so that this many different ones fit."""

QUOTED_CHARS = 80
"""How much of a query or an id is repeated in an answer that finds nothing."""

STEP_CHARS = 100
"""An excerpt ends at the end of such a piece, after a space where there is one: about a line of text."""

NAME_CHARS = 64
"""Longest name in a label, the longest that providers accept; anybody's message may have a longer one."""

LONG_ID_CHARS = 16
"""Ids up to this length are short enough."""

SHORTEST_HANDLE_CHARS = 8
"""Least that is shown of a longer id, so that it is unlikely that a later id begins like it."""

TERM_SATURATION = 0.9
LENGTH_NORMALIZATION = 0.4
"""BM25's k1 and b: the values that Anserini uses for passages (Yang et al., 2017)."""

MAX_PASSAGES = 16_384
"""Passages whose terms are remembered: a very long conversation, about 20 MB when they are chat messages."""

PASSAGE_CHARS = 1_200
"""Longest passage: a few paragraphs, about one subject; nearly every chat message is one passage."""

NEIGHBOR_SHARES = (0.5, 0.25)
"""What a passage gets of the score of those one and two places away: an answer stands beside its question, a result
beside its call. Halving is as good as any other decline that was tried."""

SEPARATOR = "\n\n"

_ROLES = {"human": "user", "ai": "assistant"}
_REASONING = frozenset({"reasoning", "reasoning_content", "thinking", "redacted_thinking"})

DESCRIPTION = (
    "Look up earlier messages of this conversation that you no longer see: what was said, tool calls, and tool results "
    "that were cleared or shortened. Give `query` to search by words; names, numbers and file names work best. Give "
    "`message_id` to read one message, as named in notes like 'still in the history as message ...'; add `query` to "
    "read it from the best match on, or `offset_chars` to read on from there."
)

Query = Annotated[str, "Words to search for."]
MessageId = Annotated[str, "Id of one message to read, or its beginning as shown by this tool."]
OffsetChars = Annotated[int, "Where to begin reading the message, in characters."]


class Found(list[AnyMessage]):
    """The messages that a search found and that fit, most relevant first: a list that also says what was left out."""

    def __init__(self, kept: Iterable[AnyMessage] = (), *, dropped: Iterable[AnyMessage] = (), tokens: int = 0) -> None:
        super().__init__(kept)
        self.dropped = tuple(dropped)
        """Messages that match but did not fit, most relevant first."""
        self.tokens = tokens
        """What the kept messages cost, each priced alone: together they cost no more."""

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
    searched, reasoning is not. A message is also found by what stands right before and after it. One that does not fit
    is left out, and smaller ones may follow. Nothing that matches is left out silently: see `Found`.

    Args:
        messages: the history to search, for example a graph state's `messages`.
        query: words, names, numbers or a question, in any language.
        max_tokens: what all returned messages may cost together.
        counter: counts tokens; by default `TokenEstimator()`.
        embeddings: rank by meaning instead of by words. Every passage is embedded in every call: wrap them in a
            `CacheBackedEmbeddings` when you search the same history often.

    Raises:
        ConfigError: the query is empty, there is no room, or `messages` are none.

    Example:
        >>> history = [("user", "My order is ORD-1234."), ("ai", "Thank you."), ("user", "Nice weather today.")]
        >>> [message.text for message in search_messages(history, "Which order?", max_tokens=20)]
        ['My order is ORD-1234.']
    """
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(f"query={query!r}: give the words to search for")
    _check(max_tokens, 1, counter)
    if isinstance(messages, str | bytes | BaseMessage) or not isinstance(messages, Iterable):
        raise ConfigError(f"messages={messages!r:.80}: give a list of messages")
    try:
        history: list[Any] = [message for message in convert_to_messages(messages) if message.type != "remove"]
    except (ValueError, NotImplementedError) as error:  # what LangChain raises for what is no message
        raise ConfigError(f"messages: {error}; give a list of messages") from error
    count = counter or TokenEstimator()
    base = count([])
    ranked = [history[hit.index] for hit in _hits(history, query, embeddings)]
    # Any message costs more than an empty one, so what is ranked behind as many as could fill the room is not priced.
    most = max(0, (max_tokens - base) // (count([HumanMessage("")]) - base + 1))
    fit: Fit[AnyMessage] = take_while_fits(
        ranked[:most], max_tokens - base, lambda message: count([message]) - base, on_overflow="skip"
    )
    tokens = base + fit.tokens if fit.kept else 0
    return Found(fit.kept, dropped=(*fit.dropped, *ranked[most:]), tokens=tokens)


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

    It reads the `messages` of the graph state, and what `context_view` says of them, so that it returns nothing that
    the model sees anyway. The model gives `query`, `message_id` or both. Messages come whole and in the order in which
    they were said; one that would take more than half of the room is shown from its best passage on, with the position
    to read on from. An answer is at most `max_tokens` long.

    Args:
        max_tokens: room of one answer, at least 200.
        counter: counts tokens; by default `TokenEstimator()`.
        embeddings: rank by meaning instead of by words. Every passage is embedded in every call: wrap them in a
            `CacheBackedEmbeddings`.
        name: how the model calls the tool.
        description: what the model is told of it.

    Raises:
        ConfigError: `max_tokens` has no room for an answer, or the tool has no name.

    Example:
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
        reader = _Reader(state.get("messages") or [], price, max_tokens, embeddings)
        query, wanted = query.strip(), message_id.strip()
        if not query and not wanted:
            raise ToolException("Nothing to look for: give `query` with words to search for, or `message_id`.")
        if wanted:
            return reader.read(reader.position_of(wanted), query if offset_chars <= 0 else "", offset_chars)
        if query in reader.ids:
            return reader.read(reader.ids.index(query), "", offset_chars)
        return reader.search(query, searchable(reader.messages, name), in_sight(reader.messages, state))

    return StructuredTool.from_function(
        recall, name=name, description=description, handle_tool_error=True, parse_docstring=False
    )


def _check(max_tokens: Any, least: int, counter: Any) -> None:
    if counter is not None and (isinstance(counter, type) or not callable(counter)):
        raise ConfigError(f"counter={counter!r}: give a callable that counts the tokens of messages, or None")
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < least:
        raise ConfigError(f"max_tokens={max_tokens!r}: give a whole number of tokens, at least {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    """A message that matches a query."""

    index: int
    """Position of the message."""

    score: float
    start_char: int
    """Where its best passage begins in its readable text."""


def _hits(messages: Sequence[AnyMessage], query: str, embeddings: Embeddings | None) -> list[_Hit]:
    """Return the messages that match, best first and newer before older; each by its best passage."""
    places, texts = list[tuple[int, int]](), list[str]()
    for index, message in enumerate(messages):
        text, name = readable_text(message), message.name or ""
        for start, stop in piece_spans(text, PASSAGE_CHARS):
            places.append((index, start))
            # The name of who said it, or of the tool, is searched with the beginning.
            texts.append(f"{name} {text[start:stop]}" if name and not start else text[start:stop])
    scores = _word_scores(texts, query) if embeddings is None else _meaning_scores(texts, query, embeddings)
    hits: dict[int, _Hit] = {}
    for (index, start), score in zip(places, scores, strict=True):
        if score > 0 and (index not in hits or score > hits[index].score):
            hits[index] = _Hit(index=index, score=score, start_char=start)
    return sorted(hits.values(), key=lambda hit: (-hit.score, -hit.index))


def _word_scores(texts: Sequence[str], query: str) -> list[float]:
    """The BM25 score of each passage, and shares of its neighbors': what a short message is about is said around it."""
    wanted = dict.fromkeys(query_terms(query), 1.0)
    # The index knows only the terms of the query; all others count as one, for the lengths.
    known = [Counter(term if term in wanted else "" for term in _passage_terms(text)) for text in texts]
    if not any(text.keys() - {""} for text in known):
        return [0.0] * len(texts)
    index = TermIndex(known, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION)
    scores: list[float] = index.scores(dict.fromkeys(index.numbers(wanted), 1.0)).tolist()
    spread = list(scores)
    for distance, share in enumerate(NEIGHBOR_SHARES, start=1):
        for position in range(distance, len(scores)):
            spread[position] += share * scores[position - distance]
            spread[position - distance] += share * scores[position]
    return spread


def _meaning_scores(texts: list[str], query: str, embeddings: Embeddings) -> list[float]:
    """The cosine between each passage and the query."""
    from langchain_core.vectorstores import InMemoryVectorStore  # noqa: PLC0415  # imports numpy

    store = InMemoryVectorStore.from_texts(texts, embeddings, [{"place": place} for place in range(len(texts))])
    found = store.similarity_search_with_score(query, k=len(texts))
    return [score for _, score in sorted((passage.metadata["place"], score) for passage, score in found)]


@lru_cache(maxsize=MAX_PASSAGES)
def _passage_terms(text: str) -> tuple[str, ...]:
    return tuple(terms(text))


def readable_text(message: AnyMessage) -> str:
    """Return a message as plain text: texts, tool calls as name and JSON, media as markers; reasoning is left out."""
    content: Any = message.content
    if isinstance(content, str) and not isinstance(message, AIMessage):
        return content
    if isinstance(content, list):
        content = [block for block in content if not _is_reasoning(block)]
    said = message.model_copy(update={"content": content, "name": None})
    return "\n".join(filter(None, map(_readable, pieces(said))))


def _is_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    return _is_reasoning(block.get("value")) if kind == "non_standard" else kind in _REASONING


def _readable(piece: Piece) -> str:
    """A piece as text; of a document that is attached as text, that text."""
    if isinstance(piece, Call):
        return f"{piece.name} {compact_json(piece.arguments)}".strip()
    if isinstance(piece, str):
        return piece
    source = piece.block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text":
        text = source.get("data")
    else:
        text = piece.block.get("text")
    return text if isinstance(text, str) and text else f"[{piece.kind}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """One message, or a part of it, under a line that says which it is."""

    index: int
    """Position of the message."""

    text: str
    tokens: int


class _Reader:
    """Reads messages of one history, and searches them, for one answer of the tool."""

    def __init__(
        self, messages: Sequence[AnyMessage], price: WholePrice, max_tokens: int, embeddings: Embeddings | None
    ) -> None:
        self.messages = messages
        self.ids = [message_id(messages, index) for index in range(len(messages))]
        self._price = price
        self._max_tokens = max_tokens
        self._embeddings = embeddings
        self._handles = handles(messages)
        self._turns = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, HumanMessage) and NOTE_KEY not in message.additional_kwargs
        ]

    def position_of(self, wanted: str) -> int:
        """Return the position of the message with this id, or of the only one whose id begins like it."""
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
        """Return as much of one message as fits, from the best match on when there is something to search for."""
        hits = _hits([self.messages[index]], query, self._embeddings) if query else []
        start_char, chars = hits[0].start_char if hits else start_char, len(readable_text(self.messages[index]))
        if not 0 <= start_char < max(1, chars):
            raise ToolException(f"offset_chars={start_char} is outside of the message, which has {chars} characters.")
        return self._excerpt(index, start_char, self._max_tokens).text

    def search(self, query: str, positions: Sequence[int], seen: frozenset[int]) -> str:
        """Return the best messages at these positions that are not seen, in the order in which they were said."""
        hits = _hits([self.messages[index] for index in positions], query, self._embeddings)
        unseen = [hit for hit in hits if positions[hit.index] not in seen]
        in_view = len(hits) - len(unseen)
        if not unseen:
            where = f" (in your view: {in_view})" if in_view else ""
            return (
                f"No message that left your view matches {query[:QUOTED_CHARS]!r}{where}. Try other words for the "
                "same thing, names, numbers or parts of file names."
            )
        not_counted = f" (not counting {in_view} in your view)" if in_view else ""
        matching = f"of {len(unseen)} matching messages{not_counted}"
        room = self._max_tokens - self._price(_intro(len(unseen), matching) + SEPARATOR)
        share = room // min(EXCERPTS, len(unseen))
        blocks = (self._block(positions[hit.index], hit, room, share) for hit in unseen[: room // BLOCK_TOKENS])
        fit: Fit[_Block] = take_while_fits(blocks, room, lambda block: block.tokens, on_overflow="skip")
        for shown in range(len(fit.kept), 0, -1):  # prices of parts need not add up
            kept = sorted(fit.kept[:shown], key=lambda block: block.index)
            page = SEPARATOR.join([_intro(shown, matching), *(block.text for block in kept)])
            if self._price(page) <= self._max_tokens:
                return page
        return f"{len(unseen)} earlier messages match, but none fits: search with fewer or rarer words."

    def _block(self, index: int, hit: _Hit, room: int, share: int) -> _Block:
        """Return the whole message, or an excerpt of one that would take more than half of the room."""
        text = f"[{self._label(index)}]\n{readable_text(self.messages[index]) or '(no text)'}"
        whole = self._priced(index, text)
        return whole if whole.tokens <= max(share, room // 2) else self._excerpt(index, hit.start_char, share)

    def _excerpt(self, index: int, start_char: int, room_tokens: int) -> _Block:
        """Return the message from `start_char` on, as much of it as fits."""
        text = readable_text(self.messages[index])
        longest = self._part_label(index, len(text), len(text) - 1, len(text))
        # No piece costs less than a token.
        spans = islice(piece_spans(text[start_char:], STEP_CHARS), max(0, room_tokens))
        fit: Fit[tuple[int, int]] = take_while_fits(
            spans,
            room_tokens - self._price(f"{longest}\n{SEPARATOR}"),
            lambda span: self._price(text[start_char + span[0] : start_char + span[1]]),
        )
        stop_char = start_char + (fit.kept[-1][1] if fit.kept else 0)
        return self._priced(
            index, f"{self._part_label(index, start_char, stop_char, len(text))}\n{text[start_char:stop_char]}"
        )

    def _priced(self, index: int, text: str) -> _Block:
        return _Block(index=index, text=text, tokens=self._price(f"{text}{SEPARATOR}"))

    def _label(self, index: int) -> str:
        message = self.messages[index]
        author = " ".join(filter(None, (_ROLES.get(message.type, message.type), (message.name or "")[:NAME_CHARS])))
        return f"{self._handles[index]}, {author}, turn {bisect_right(self._turns, index)}"

    def _part_label(self, index: int, start_char: int, stop_char: int, chars: int) -> str:
        more = f"; read on with offset_chars={stop_char}" if stop_char < chars else ""
        return f"[{self._label(index)}, characters {start_char} to {stop_char} of {chars}{more}]"


def _intro(shown: int, matching: str) -> str:
    return f"{shown} {matching}, the most relevant that fit, oldest first:"


def handles(messages: Sequence[AnyMessage]) -> list[str]:
    """Return for each message its id, or the beginning of a long one that no other id shares.

    Example:
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


def in_sight(messages: Sequence[AnyMessage], state: Mapping[str, Any]) -> frozenset[int]:
    """Return the positions of the messages that the model sees in full.

    These are the leading system messages and what `context_view` shows unedited: cleared and clamped messages are not
    in full. Where the state does not say what is shown, because nothing left or somebody else trims the history, all
    other messages count as unseen.
    """
    first = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    view = read_session({"context_view": state.get("context_view")}, messages).view
    if view == View():
        return frozenset(range(first))
    shown = range(max(first, view.start.index) if view.start else first, len(messages))
    edited = view.cleared | view.clamped.keys()
    places = (*range(first), *(position.index for position in view.pinned), *shown)
    return frozenset(index for index in places if message_id(messages, index) not in edited)


def searchable(messages: Sequence[AnyMessage], tool_name: str) -> list[int]:
    """Return the positions of what is worth a search.

    Not the question that is being answered and the calls that are being made: a question matches itself best of all.
    For the same reason not the earlier calls of the recall tool and what it returned.
    """
    asked = last_user(messages)
    calling = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=len(messages))
    return [i for i, message in enumerate(messages[:calling]) if i != asked and not _is_own(message, tool_name)]


def _is_own(message: AnyMessage, tool_name: str) -> bool:
    if isinstance(message, ToolMessage):
        return message.name == tool_name
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return bool(calls) and all(call["name"] == tool_name for call in calls)
