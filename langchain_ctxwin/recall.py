"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

from array import array
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
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime

from langchain_ctxwin.core.edits import Call, Media, Piece, compact_json, edit, pieces
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.session import read_session
from langchain_ctxwin.core.survey import Before, last_user, show_steps
from langchain_ctxwin.core.tokens import TokenEstimator, WholePrice, text_price
from langchain_ctxwin.core.turns import NOTE_KEY
from langchain_ctxwin.core.view import View, message_id
from langchain_ctxwin.errors import ConfigError, ContextWindowError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.text.sentences import piece_spans
from langchain_ctxwin.text.terms import TermIndex, query_terms, terms
from langchain_ctxwin.util.memo import Lru

__all__ = ["Found", "asearch_messages", "create_recall_tool", "search_messages"]

MAX_TOKENS = 2_000
"""What one search may return, in tokens: about fifty chat messages."""


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
        ConfigError: an argument is empty, of the wrong type or out of range.

    Example:
        >>> history = [("user", "My order is ORD-1234."), ("ai", "Thank you."), ("user", "Nice weather today.")]
        >>> [message.text for message in search_messages(history, "Which order?", max_tokens=20)]
        ['My order is ORD-1234.']
    """
    history = checked(messages, query, max_tokens, counter, embeddings)
    return _fitting(history, find(history, query, embeddings), max_tokens, counter)


async def asearch_messages(
    messages: Sequence[MessageLikeRepresentation],
    query: str,
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    embeddings: Embeddings | None = None,
) -> Found:
    """Like `search_messages`, awaiting the embeddings."""
    history = checked(messages, query, max_tokens, counter, embeddings)
    return _fitting(history, await afind(history, query, embeddings), max_tokens, counter)


def checked(messages: Any, query: Any, max_tokens: Any, counter: Any, embeddings: Any) -> list[AnyMessage]:
    """Return the history as messages; raise `ConfigError` for arguments that cannot be used."""
    if not isinstance(query, str) or not query.strip():
        raise ConfigError(f"query={query!r}: give the words to search for")
    check_settings(max_tokens, counter, embeddings)
    if isinstance(messages, str | bytes | BaseMessage) or not isinstance(messages, Iterable):
        raise ConfigError(f"messages={messages!r:.80}: give a list of messages")
    given: list[Any] = list(messages)
    try:
        history: list[Any] = given if all(isinstance(m, BaseMessage) for m in given) else convert_to_messages(given)
    except (ValueError, NotImplementedError) as error:  # what LangChain raises for what is no message
        raise ConfigError(f"messages: {error}; give a list of messages") from error
    return [message for message in history if message.type != "remove"]


def check_settings(max_tokens: Any, counter: Any, embeddings: Any) -> None:
    """Raise `ConfigError` for settings that cannot be used."""
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens <= 0:
        raise ConfigError(f"max_tokens={max_tokens!r}: give a positive number of tokens, for example {MAX_TOKENS}")
    if counter is not None and (isinstance(counter, type) or not callable(counter)):
        raise ConfigError(f"counter={counter!r}: give a callable that counts the tokens of messages, or None")
    if embeddings is not None and not isinstance(embeddings, Embeddings):
        raise ConfigError(f"embeddings={embeddings!r:.80}: give LangChain `Embeddings`, or None to search by words")


def _fitting(
    history: Sequence[AnyMessage], hits: Sequence[Hit], max_tokens: int, counter: TokenCounter | None
) -> Found:
    count = counter or TokenEstimator()
    base = count([])
    ranked = [history[hit.index] for hit in hits]
    # Any message costs more than an empty one, so what is ranked behind as many as could fill the room is not priced.
    most = max(0, (max_tokens - base) // (count([HumanMessage("")]) - base + 1))
    fit: Fit[AnyMessage] = take_while_fits(
        ranked[:most], max_tokens - base, lambda message: count([message]) - base, on_overflow="skip"
    )
    tokens = base + fit.tokens if fit.kept else 0
    return Found(fit.kept, dropped=(*fit.dropped, *ranked[most:]), tokens=tokens)


TERM_SATURATION = 0.9
LENGTH_NORMALIZATION = 0.4
"""BM25's k1 and b: the values that Anserini uses for passages (Yang et al., 2017)."""

MAX_PASSAGES = 16_384
"""Passages whose terms are remembered: a very long conversation, about 20 MB when they are chat messages."""

NEIGHBOR_SHARES = (0.5, 0.25)
"""What a passage gets of the score of those one and two places away: an answer stands beside its question, a result
beside its call. Halving is as good as any other decline that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that matches a query."""

    index: int
    """Position of the message."""

    score: float
    start_char: int
    """Where its best passage begins in its readable text."""


def find(messages: Sequence[AnyMessage], query: str, embeddings: Embeddings | None = None) -> list[Hit]:
    """Return the messages that match, best first and newer before older; by words, or by meaning with embeddings."""
    passages = passages_of(messages)
    if embeddings is None or not passages:
        return _best(passages, _spread(word_scores(passages, query)))
    vectors = embeddings.embed_documents([passage.text for passage in passages])
    return _best(passages, meaning_scores(vectors, embeddings.embed_query(query), len(passages)))


async def afind(messages: Sequence[AnyMessage], query: str, embeddings: Embeddings | None = None) -> list[Hit]:
    """Like `find`, awaiting the embeddings."""
    passages = passages_of(messages)
    if embeddings is None or not passages:
        return _best(passages, _spread(word_scores(passages, query)))
    vectors = await embeddings.aembed_documents([passage.text for passage in passages])
    return _best(passages, meaning_scores(vectors, await embeddings.aembed_query(query), len(passages)))


def word_scores(passages: Sequence[Passage], query: str) -> list[float]:
    """Return the BM25 score of each passage; 0 without a common term.

    The index knows only the terms of the query; all others count as one, for the lengths.
    """
    wanted = dict.fromkeys(query_terms(query), 1.0)
    known = [Counter(term if term in wanted else "" for term in _passage_terms(p.text)) for p in passages]
    if not any(text.keys() - {""} for text in known):
        return [0.0] * len(passages)
    index = TermIndex(known, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION)
    scores: list[float] = index.scores(dict.fromkeys(index.numbers(wanted), 1.0)).tolist()
    return scores


def meaning_scores(vectors: Sequence[Sequence[float]], query: Sequence[float], expected: int) -> list[float]:
    """Return the cosine between each vector and the query's; 0 where one of them is zero."""
    import numpy as np  # noqa: PLC0415  # takes longer to import than this package

    if len(vectors) != expected or any(len(vector) != len(query) for vector in vectors):
        raise ContextWindowError(
            f"the embeddings returned {len(vectors)} vectors for {expected} passages, or vectors that are not as long "
            f"as the query's ({len(query)}): use one model for documents and queries"
        )
    documents, wanted = np.asarray(vectors, dtype=np.float32), np.asarray(query, dtype=np.float32)
    lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(wanted)
    cosines = np.divide(documents @ wanted, lengths, out=np.zeros(expected, dtype=np.float32), where=lengths > 0)
    scores: list[float] = cosines.tolist()
    return scores


@lru_cache(maxsize=MAX_PASSAGES)
def _passage_terms(text: str) -> tuple[str, ...]:
    return tuple(terms(text))


def _spread(scores: Sequence[float]) -> list[float]:
    """Give each passage shares of its neighbors' scores: what a short message is about is said around it."""
    spread = list(scores)
    for distance, share in enumerate(NEIGHBOR_SHARES, start=1):
        for position in range(distance, len(scores)):
            spread[position] += share * scores[position - distance]
            spread[position - distance] += share * scores[position]
    return spread


def _best(passages: Sequence[Passage], scores: Sequence[float]) -> list[Hit]:
    """The best passage of each message that matches at all."""
    hits: dict[int, Hit] = {}
    for passage, score in zip(passages, scores, strict=True):
        known = hits.get(passage.index)
        if score > 0 and (known is None or score > known.score):
            hits[passage.index] = Hit(index=passage.index, score=score, start_char=passage.start_char)
    return sorted(hits.values(), key=lambda hit: (-hit.score, -hit.index))


PASSAGE_CHARS = 1_200
"""Longest passage: a few paragraphs, about one subject; nearly every chat message is one passage."""

_REASONING = frozenset({"reasoning", "reasoning_content", "thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of one message that is searched as a unit."""

    index: int
    """Position of the message."""

    start_char: int
    """Where the passage begins in the readable text of its message."""

    text: str


def passages_of(messages: Sequence[AnyMessage]) -> list[Passage]:
    """Return the passages of all messages, in order; messages without text have none.

    The first passage of a message begins with the name of its author or tool, so that they are found by it.
    """
    found: list[Passage] = []
    for index, message in enumerate(messages):
        text, name = readable_text(message), message.name or ""
        for start, stop in piece_spans(text, PASSAGE_CHARS):
            shown = text[start:stop]
            found.append(Passage(index, start, f"{name} {shown}" if name and not start else shown))
    return found


def readable_text(message: AnyMessage) -> str:
    """Return a message as plain text: texts, tool calls as name and JSON, media as markers; reasoning is left out."""
    if isinstance(message.content, str) and (isinstance(message, ToolMessage) or not _has_calls(message)):
        return message.content
    said = message.model_copy(update={"content": _without_reasoning(message.content), "name": None})
    return "\n".join(filter(None, map(_readable, pieces(said))))


def _has_calls(message: AnyMessage) -> bool:
    return isinstance(message, AIMessage) and bool(
        message.tool_calls or message.invalid_tool_calls or message.additional_kwargs
    )


def _without_reasoning(content: Any) -> Any:
    return [block for block in content if not _is_reasoning(block)] if isinstance(content, list) else content


def _is_reasoning(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    return _is_reasoning(block.get("value")) if kind == "non_standard" else kind in _REASONING


def _readable(piece: Piece) -> str:
    if isinstance(piece, Media):
        return _attached_text(piece.block) or f"[{piece.kind}]"
    if isinstance(piece, Call):
        return f"{piece.name} {compact_json(piece.arguments)}".strip()
    return piece


def _attached_text(block: Mapping[str, Any]) -> str:
    """Text of a document that is attached as text."""
    source = block.get("source")
    is_text = isinstance(source, Mapping) and source.get("type") == "text"
    text = source.get("data") if isinstance(source, Mapping) and is_text else block.get("text")
    return text if isinstance(text, str) else ""


MIN_TOKENS = 200
"""Least room of the tool: one chat message with its label, or a few lines of a long one."""

DESCRIPTION = (
    "Look up earlier messages of this conversation that you no longer see: what was said, tool calls, and tool results "
    "that were cleared or shortened. Give `query` to search by words; names, numbers and file names work best. Give "
    "`message_id` to read one message, as named in notes like 'still in the history as message ...'; add `query` to "
    "read it from the best match on, or `offset_chars` to read on from there."
)

Query = Annotated[str, "Words to search for."]
MessageId = Annotated[str, "Id of one message to read, or its beginning as shown by this tool."]
OffsetChars = Annotated[int, "Where to begin reading the message, in characters."]


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
        embeddings: rank by meaning instead of by words; each passage is embedded once while it is remembered.
        name: how the model calls the tool.
        description: what the model is told of it.

    Raises:
        ConfigError: a setting is of the wrong type or out of range.

    Example:
        ```python
        agent = create_context_agent(model, [search, create_recall_tool()], checkpointer=InMemorySaver())
        ```
    """
    check_settings(max_tokens, counter, embeddings)
    if max_tokens < MIN_TOKENS:
        raise ConfigError(f"max_tokens={max_tokens} holds no message with its label: give at least {MIN_TOKENS}")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"name={name!r}: give the name by which the model calls the tool")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"description={description!r}: give the text that tells the model what the tool does")
    meaning = RememberedEmbeddings(embeddings) if embeddings else None
    price = text_price(counter)

    def recall(
        runtime: ToolRuntime[Any, Any], query: Query = "", message_id: MessageId = "", offset_chars: OffsetChars = 0
    ) -> str:
        task = read_call(runtime.state, query, message_id, offset_chars, name)
        return answer(task, find(task.pool, task.query, meaning) if task.query else [], price, max_tokens)

    async def arecall(
        runtime: ToolRuntime[Any, Any], query: Query = "", message_id: MessageId = "", offset_chars: OffsetChars = 0
    ) -> str:
        task = read_call(runtime.state, query, message_id, offset_chars, name)
        return answer(task, await afind(task.pool, task.query, meaning) if task.query else [], price, max_tokens)

    return StructuredTool.from_function(
        recall, arecall, name=name, description=description, handle_tool_error=True, parse_docstring=False
    )


BLOCK_TOKENS = 8
"""Least that a message with its label costs: what is ranked behind so many as could fill the room is not priced."""

EXCERPTS = 4
"""A message that would take more than half of the room is shown in part, so that this many different ones fit."""

QUOTED_CHARS = 80
"""How much of a query or an id is repeated in an answer that finds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one call of the tool asks for."""

    messages: Sequence[AnyMessage]
    """The full history."""

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


def read_call(state: Any, query: str, wanted_id: str, offset_chars: int, tool_name: str) -> Task:
    """Understand a call; raise what the model is told about a wrong one."""
    values = state if isinstance(state, Mapping) else {"messages": state} if isinstance(state, list) else vars(state)
    messages: Sequence[AnyMessage] = values.get("messages") or []
    query, wanted_id = query.strip(), wanted_id.strip()
    if not query and not wanted_id:
        raise ToolException("Nothing to look for: give `query` with words to search for, or `message_id`.")
    query_as_id = (i for i in range(len(messages)) if message_id(messages, i) == query)
    target = _target(messages, wanted_id) if wanted_id else next(query_as_id, None)
    if target is None:
        positions, seen = searchable(messages, tool_name), in_sight(messages, values)
        return Task(messages=messages, positions=positions, seen=seen, query=query)
    # A place that is given, and a query that is only an id, leave nothing to search for.
    wanted = "" if offset_chars > 0 or not wanted_id else query
    return Task(messages=messages, positions=[target], query=wanted, target=target, start_char=offset_chars)


def _target(messages: Sequence[AnyMessage], wanted_id: str) -> int:
    found = positions_called(messages, wanted_id)
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} messages have an id that begins like" if found else "No message has the id"
    raise ToolException(
        f"{problem} {wanted_id[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier answer of this "
        "tool, or search by words with `query`."
    )


def answer(task: Task, hits: Sequence[Hit], price: WholePrice, max_tokens: int) -> str:
    """Return what the model is told; `hits` are what a search of `task.pool` for `task.query` found."""
    printer = MessagePrinter(task.messages, price)
    if task.target is None:
        return _found(task, hits, printer, price, max_tokens)
    chars, start_char = len(readable_text(task.messages[task.target])), hits[0].start_char if hits else task.start_char
    if not 0 <= start_char < max(1, chars):
        raise ToolException(f"offset_chars={start_char} is outside of the message, which has {chars} characters.")
    return printer.excerpt(task.target, start_char, max_tokens).text


def _found(task: Task, hits: Sequence[Hit], printer: MessagePrinter, price: WholePrice, max_tokens: int) -> str:
    """The best messages that fit, in the order in which they were said."""
    unseen = [hit for hit in hits if task.positions[hit.index] not in task.seen]
    seen = len(hits) - len(unseen)
    if not unseen:
        in_view = f" (in your view: {seen})" if seen else ""
        return (
            f"No message that left your view matches {task.query[:QUOTED_CHARS]!r}{in_view}. Try other words for the "
            "same thing, names, numbers or parts of file names."
        )
    matching = f"of {len(unseen)} matching messages" + (f" (not counting {seen} in your view)" if seen else "")
    room = max_tokens - price(_intro(len(unseen), matching) + SEPARATOR)
    share = room // min(EXCERPTS, len(unseen))
    blocks = (_block(printer, task.positions[hit.index], hit, room, share) for hit in unseen[: room // BLOCK_TOKENS])
    fit: Fit[Block] = take_while_fits(blocks, room, lambda block: block.tokens, on_overflow="skip")
    return _page(fit.kept, matching, price, max_tokens) or (
        f"{len(unseen)} earlier messages match, but none fits: search with fewer or rarer words."
    )


def _block(printer: MessagePrinter, index: int, hit: Hit, room: int, share: int) -> Block:
    whole = printer.whole(index)
    return whole if whole.tokens <= max(share, room // 2) else printer.excerpt(index, hit.start_char, share)


def _page(ranked: Sequence[Block], matching: str, price: WholePrice, max_tokens: int) -> str:
    """The blocks under one line, the least relevant left out until the whole fits; empty when not even one does."""
    for shown in range(len(ranked), 0, -1):  # prices of parts need not add up
        blocks = sorted(ranked[:shown], key=lambda block: block.index)
        page = SEPARATOR.join([_intro(shown, matching), *(block.text for block in blocks)])
        if price(page) <= max_tokens:
            return page
    return ""


def _intro(shown: int, matching: str) -> str:
    return f"{shown} {matching}, the most relevant that fit, oldest first:"


STEP_CHARS = 100
"""An excerpt ends at the end of such a piece, after a space where there is one: about a line of text."""

NAME_CHARS = 64
"""Longest name in a label, the longest that providers accept; anybody's message may have a longer one."""

SEPARATOR = "\n\n"

_ROLES = {"human": "user", "ai": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One message, or a part of it, under a line that says which it is."""

    index: int
    """Position of the message."""

    text: str
    tokens: int


class MessagePrinter:
    """Shows the messages of one history within a number of tokens each."""

    def __init__(self, messages: Sequence[AnyMessage], price: WholePrice) -> None:
        self._messages = messages
        self._price = price
        self._handles = handles(messages)
        self._turns = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, HumanMessage) and NOTE_KEY not in message.additional_kwargs
        ]

    def whole(self, index: int) -> Block:
        """Return the whole message."""
        text = f"[{self._label(index)}]\n{readable_text(self._messages[index]) or '(no text)'}"
        return self._block(index, text)

    def excerpt(self, index: int, start_char: int, room_tokens: int) -> Block:
        """Return the message from `start_char` on, as much of it as fits."""
        text = readable_text(self._messages[index])
        longest = self._part_label(index, len(text), len(text) - 1, len(text))
        # No piece costs less than a token.
        pieces = islice(piece_spans(text[start_char:], STEP_CHARS), max(0, room_tokens))
        fit: Fit[tuple[int, int]] = take_while_fits(
            pieces,
            room_tokens - self._price(f"{longest}\n{SEPARATOR}"),
            lambda span: self._price(text[start_char + span[0] : start_char + span[1]]),
        )
        stop_char = start_char + (fit.kept[-1][1] if fit.kept else 0)
        label = self._part_label(index, start_char, stop_char, len(text))
        return self._block(index, f"{label}\n{text[start_char:stop_char]}")

    def _block(self, index: int, text: str) -> Block:
        return Block(index=index, text=text, tokens=self._price(f"{text}{SEPARATOR}"))

    def _label(self, index: int) -> str:
        message = self._messages[index]
        author = " ".join(filter(None, (_ROLES.get(message.type, message.type), (message.name or "")[:NAME_CHARS])))
        return f"{self._handles[index]}, {author}, turn {bisect_right(self._turns, index)}"

    def _part_label(self, index: int, start_char: int, stop_char: int, chars: int) -> str:
        more = f"; read on with offset_chars={stop_char}" if stop_char < chars else ""
        return f"[{self._label(index)}, characters {start_char} to {stop_char} of {chars}{more}]"


LONG_ID_CHARS = 16
"""Ids up to this length are short enough."""

SHORTEST_HANDLE_CHARS = 8
"""Least that is shown of a longer id, so that it is unlikely that a later id begins like it."""


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


def positions_called(messages: Sequence[AnyMessage], wanted: str) -> list[int]:
    """Return the positions of the messages with this id; without one, of those whose id begins like it."""
    ids = [message_id(messages, index) for index in range(len(messages))]
    exact = [index for index, key in enumerate(ids) if key == wanted]
    if exact or len(wanted) < SHORTEST_HANDLE_CHARS:
        return exact[:1]
    return [index for index, key in enumerate(ids) if key.startswith(wanted)]


def in_sight(messages: Sequence[AnyMessage], state: Mapping[str, Any]) -> frozenset[int]:
    """Return the positions of the messages that the model sees in full.

    These are the leading system messages and what `context_view` shows unedited: cleared and clamped messages are not
    in full. Where the state does not say what is shown, because nothing left or somebody else trims the history, all
    other messages count as unseen.
    """
    first = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return frozenset((*range(first), *_shown(messages, first, state)))


def searchable(messages: Sequence[AnyMessage], tool_name: str) -> list[int]:
    """Return the positions of what is worth a search.

    Not the question that is being answered and the calls that are being made: a question matches itself best of all.
    For the same reason not the earlier calls of the recall tool and what it returned.
    """
    asked = last_user(messages)
    calling = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=len(messages))
    own_calls: set[str | None] = set()
    found = []
    for index, message in enumerate(messages[:calling]):
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        own_calls.update(call["id"] for call in calls if call["name"] == tool_name)
        is_own = bool(calls) and all(call["name"] == tool_name for call in calls)
        if not (is_own or index == asked or _is_result(message, tool_name, own_calls)):
            found.append(index)
    return found


def _is_result(message: AnyMessage, tool_name: str, own_calls: set[str | None]) -> bool:
    if not isinstance(message, ToolMessage):
        return False
    return message.name == tool_name or (message.name is None and message.tool_call_id in own_calls)


def _shown(messages: Sequence[AnyMessage], first: int, state: Mapping[str, Any]) -> Iterable[int]:
    """The positions of what a view shows as it is; repaired and edited messages are copies."""
    view = read_session({"context_view": state.get("context_view")}, messages).view
    if view == View():
        return
    start = max(first, view.start.index) if view.start else first
    shown = {id(m) for step in show_steps(messages, start, view, Before(), lambda _: 0) for m in step.messages}
    pinned = (position.index for position in view.pinned)
    yield from (i for i in pinned if edit(messages[i], message_id(messages, i), view) is messages[i])
    for index in range(start, len(messages)):
        if id(messages[index]) in shown or isinstance(messages[index], SystemMessage):
            yield index


MAX_VECTORS = 10_000
"""Vectors that are kept: a very long conversation, 60 MB at 1,536 numbers each."""


class RememberedEmbeddings(Embeddings):
    """Embeds each text once while it is remembered; thread-safe and bounded, for any number of conversations."""

    def __init__(self, embeddings: Embeddings) -> None:
        self._embeddings = embeddings
        self._known: Lru[array[float]] = Lru(MAX_VECTORS)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text; only unknown ones are embedded."""
        known, new = self._look_up(texts)
        return self._complete(texts, known, new, self._embeddings.embed_documents(new) if new else [])

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Like `embed_documents`."""
        known, new = self._look_up(texts)
        return self._complete(texts, known, new, await self._embeddings.aembed_documents(new) if new else [])

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query."""
        return self._embeddings.embed_query(text)

    async def aembed_query(self, text: str) -> list[float]:
        """Like `embed_query`."""
        return await self._embeddings.aembed_query(text)

    def _look_up(self, texts: Sequence[str]) -> tuple[dict[str, array[float]], list[str]]:
        known = {text: vector for text in dict.fromkeys(texts) if (vector := self._known.get(text)) is not None}
        return known, [text for text in dict.fromkeys(texts) if text not in known]

    def _complete(
        self, texts: Sequence[str], known: dict[str, array[float]], new: Sequence[str], vectors: list[list[float]]
    ) -> list[list[float]]:
        """All vectors in order; as many as came back, when that are not as many as were asked for."""
        added = {text: self._known.put(text, array("f", vector)) for text, vector in zip(new, vectors, strict=False)}
        found = {**known, **added}
        return [list(found[text]) for text in texts if text in found]
