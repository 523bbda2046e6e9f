"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    MessageLikeRepresentation,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.core.media import (
    digest_of,
    digests_in,
    filled,
    has_media,
    media_in,
)
from langchain_ctxwin.core.pairing import NOTE_KEY, calls_of, is_user
from langchain_ctxwin.core.provider_blocks import compact_json, text_of
from langchain_ctxwin.core.session import read_key, read_session
from langchain_ctxwin.core.tokens import (
    TokenEstimator,
    WholePrice,
    readable_text,
    text_price,
)
from langchain_ctxwin.core.tool_schemas import RECALL_KEY
from langchain_ctxwin.core.turns import as_messages, last_user, read_history
from langchain_ctxwin.core.view import View, first_after_system, message_id
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.text import (
    TermIndex,
    query_terms,
    statement_spans,
    terms,
    word_cut,
)
from langchain_ctxwin.util.stores import MediaStore
from langchain_ctxwin.util.work import run

__all__ = [
    "Excerpt",
    "Found",
    "create_recall_tool",
    "search_messages",
]

MAX_TOKENS = 2_000  # of one search: about fifty chat messages
MIN_TOKENS = (
    200  # of the tool: one chat message with its label, or a few lines of a long one
)
LEAST_TOKENS = 8  # of a message with its label: what is ranked behind as many as fill the room is not priced
MOST_CHARS = 16  # of a token: what is read at once is no longer than so many characters for each one
# Part of the input limit that the pictures and files of one message may take, where they are more than one answer.
MEDIA_SHARE = 0.25
QUOTED_CHARS = 80  # of a query or an id, in an answer that finds nothing
CALL_CHARS = 200  # of the call above its result: as much as the record has of one
NAME_CHARS = 64  # of a name in a label, the longest that providers accept; anybody's message may have a longer one
LONG_ID_CHARS = 16  # ids up to this length are short enough
HANDLE_CHARS = (
    8  # of a longer id, so that it is unlikely that a later id begins like it
)
MAX_SPLIT_TEXTS = 8_192  # whose passages are remembered: those of a long conversation

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
    "Look up earlier messages of this conversation that you no longer see whole: what was said, "
    "results of tools."
)

Query = Annotated[
    str,
    "Words to search for: names, products, options, numbers, file names; not the name of a tool.",
]
MessageId = Annotated[
    str,
    "Id of one message to read, or its beginning, as in 'still in the history as message ...'. With a query: from its "
    "best match on.",
]
OffsetChars = Annotated[int, "Where to read on in that message, in characters."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A message that a search found, or a part of a long one, word for word."""

    message: AnyMessage
    index: int
    """Position of the message among those that were searched."""
    text: str
    start_char: int
    """Where the text begins in the message as plain text."""
    is_whole: bool
    """True when it is all of the message."""
    score: float = field(default=0.0, compare=False)
    """How well it matches."""
    worth: float = field(default=0.0, compare=False)
    """How well it matches for the room that it takes."""

    @property
    def stop_char(self) -> int:
        """Where the text ends in the message as plain text."""
        return self.start_char + len(self.text)


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
) -> Found:
    """Return the messages that match a query and fit in `max_tokens`, whole and most relevant first.

    Texts, tool calls with their arguments and tool results are searched, reasoning is not. Rare words of the history
    count more (BM25), and a message is also found by what stands right before and after it. Of two messages that match
    alike the shorter is taken, so that the room goes to many. A message that does not fit is left out, and `Found` says
    so; it also has the best parts of long messages.

    Args:
        messages: the history to search, for example a graph state's `messages`.
        query: words, names, numbers or a question, in any language.
        max_tokens: what all returned messages may cost together.
        counter: counts tokens; by default `TokenEstimator()`.

    Raises:
        ConfigError: there is no room, or `messages` holds something else than messages.

    Examples:
        >>> history = [
        ...     ("user", "My order is ORD-1234."),
        ...     ("ai", "Thank you."),
        ...     ("user", "Nice weather today."),
        ... ]
        >>> found = search_messages(history, "Which order?", max_tokens=20)
        >>> [message.text for message in found]
        ['My order is ORD-1234.']
        >>> [(excerpt.index, excerpt.text) for excerpt in found.excerpts]
        [(0, 'My order is ORD-1234.')]
    """
    require_tokens("max_tokens", max_tokens, minimum=1)
    history: Sequence[Any] = as_messages(messages)
    count = counter or TokenEstimator()
    base = count([])

    def cost(message: AnyMessage) -> int:
        return count([message]) - base

    said = [i for i, one in enumerate(history) if not isinstance(one, RemoveMessage)]
    passages = _matching(history, said, query)
    most = 1 + max_tokens // LEAST_TOKENS
    scores = dict[int, float]()
    for passage in passages:
        scores[passage.index] = max(passage.score, scores.get(passage.index, 0.0))
    by_worth = sorted(
        scores,
        key=lambda at: (-_worth(scores[at], readable_text(history[at])), -at),
    )
    fit = take_while_fits(
        by_worth[:most],
        max_tokens - base,
        lambda index: cost(history[index]),
        on_overflow="skip",
    )
    fitting = set(fit.kept)
    ranked = sorted(scores, key=lambda index: (-scores[index], -index))
    excerpts = _fitting(
        passages[:most],
        max_tokens - base,
        lambda part: cost(HumanMessage(part.text)),
        lambda parts: count([HumanMessage(part.text) for part in parts]) <= max_tokens,
    )
    return Found(
        (history[index] for index in ranked if index in fitting),
        dropped=(history[index] for index in ranked if index not in fitting),
        tokens=base + fit.tokens if fitting else 0,
        excerpts=sorted(
            excerpts, key=lambda part: (-part.score, -part.index, part.start_char)
        ),
    )


def create_recall_tool(
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    name: str = "recall",
    description: str = DESCRIPTION,
) -> BaseTool:
    """Return a tool that gives an agent messages of its own history that it no longer sees in full.

    It reads the `messages` of the graph state, and leaves out what the model sees anyway, which `context_view` says.
    The model gives `query`, `message_id` or both. Short messages come whole. Of long ones come the best passages, each
    with its message's id and the position to read on from. All stand in the order in which they were said, and an
    answer is at most `max_tokens` long. A message that is read by its id comes with its pictures and files, as many as
    a quarter of the input limit holds.

    Args:
        max_tokens: room of one answer, at least 200.
        counter: counts tokens; by default `TokenEstimator()`.
        name: how the model calls the tool.
        description: what the model reads about the tool.

    Raises:
        ConfigError: `max_tokens` has no room for an answer.

    Examples:
        ```python
        agent = create_context_agent(
            model, [search, create_recall_tool()], checkpointer=InMemorySaver()
        )
        ```
    """
    require_tokens("max_tokens", max_tokens, minimum=MIN_TOKENS)
    price = text_price(counter)

    def recall(
        runtime: ToolRuntime[Any, Any],
        query: Query = "",
        message_id: MessageId = "",
        offset_chars: OffsetChars = 0,
    ) -> str | list[Any]:
        state: Any = runtime.state
        if isinstance(state, list):
            state = {"messages": state}
        elif not isinstance(state, Mapping):
            state = vars(state)
        reader = _Reader(list(state.get("messages") or ()), price, max_tokens)
        query, wanted = query.strip(), message_id.strip()
        if not query and not wanted:
            raise ToolException(
                "Nothing to look for: give `query` with words to search for, or `message_id`."
            )
        if wanted or query in reader.ids:
            at = reader.position_of(wanted or query)
            about = query if wanted and offset_chars <= 0 else ""
            text = reader.read(at, about, offset_chars)
            if offset_chars > 0 or not has_media(reader.messages[at]):
                return text
            report = read_key("context_report", state.get("context_report"))[0]
            share = int(MEDIA_SHARE * (report.get("input_limit") or 0))
            room = max(max_tokens - price(text), share)
            return [_text(text), *_media(reader.messages[at], runtime, room, counter)]
        return reader.search(
            query, _searchable(reader.messages, name), _in_sight(reader.messages, state)
        )

    return StructuredTool.from_function(
        recall,
        name=name,
        description=description,
        handle_tool_error=True,
        parse_docstring=False,
        metadata={RECALL_KEY: True},
    )


def _media(
    message: AnyMessage, runtime: Any, room: int, counter: TokenCounter | None
) -> list[Any]:
    """The pictures and files of a message, as many as fit, with lines about the others."""
    if runtime.store is not None and (digests := digests_in(message)):
        thread = str(runtime.config["configurable"].get("thread_id") or "")
        data = run(MediaStore(runtime.store, thread).getting(digests))
        message = filled(message, data)
    blocks = media_in(message)
    available = [block for block in blocks if not digest_of(block)]
    count = counter or TokenEstimator()

    def price(block: Any) -> int:
        return count([HumanMessage([block])])

    fit = take_while_fits(available, room, price, on_overflow="skip")
    gone = len(blocks) - len(fit.kept)
    note = f"[{gone} of {len(blocks)} not shown: no longer stored, or more than {room:,} tokens]"
    return [*fit.kept, *([_text(note)] if gone else ())]


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _matching(
    messages: Sequence[AnyMessage], positions: Iterable[int], query: str
) -> list[Excerpt]:
    """The passages of the messages at these positions that match, by worth; of equals the newer, from its beginning."""
    passages, words = list[Excerpt](), list[Sequence[str]]()
    calls = _answered_calls(messages)
    for index in positions:
        message = messages[index]
        # Beside what it says, a message is found by its author, and a result by its call.
        about = terms(f"{message.name or ''} {calls.get(index, '')}")
        text = readable_text(message)
        for start, stop, said in _passages(text):
            is_whole = stop - start == len(text)
            part = Excerpt(
                message=message,
                index=index,
                text=text[start:stop],
                start_char=start,
                is_whole=is_whole,
            )
            passages.append(part)
            words.append(said if start else (*about, *said))
    matches = [
        replace(
            passage,
            score=score,
            worth=_worth(score, passage.text) * (1 if passage.is_whole else PART_SHARE),
        )
        for passage, score in zip(passages, _scores(words, query), strict=True)
        if score > 0
    ]
    return sorted(matches, key=lambda part: (-part.worth, -part.index, part.start_char))


def _answered_calls(messages: Sequence[AnyMessage]) -> dict[int, str]:
    """Return the call that each result answers, by the result's position; ids of calls are used again."""
    calls, answered = dict[str | None, str](), dict[int, str]()
    for index, message in enumerate(messages):
        calls |= {
            call["id"]: f"{call['name']} {compact_json(call['args'])}"
            for call in calls_of(message)
        }
        if isinstance(message, ToolMessage) and message.tool_call_id in calls:
            answered[index] = calls[message.tool_call_id]
    return answered


def _worth(score: float, text: str) -> float:
    """The score for its room."""
    return float(score / (len(text) + LABEL_CHARS) ** LENGTH_EXPONENT)


@lru_cache(maxsize=MAX_SPLIT_TEXTS)
def _passages(text: str) -> Sequence[tuple[int, int, Sequence[str]]]:
    """Where the passages of a text are, and their terms: all of a short one, else statements that follow each other."""
    spans = list[tuple[int, int]]()
    for start, stop in (
        [(0, len(text))]
        if len(text) <= WHOLE_CHARS
        else statement_spans(text, 0, len(text))
    ):
        if spans and stop - spans[-1][0] <= PASSAGE_CHARS:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((start, stop))
    return [
        (start, stop, tuple(terms(text[start:stop])))
        for start, stop in spans
        if stop > start
    ]


def _scores(words: Sequence[Sequence[str]], query: str) -> list[float]:
    """The BM25 score of each passage, and shares of its neighbors': what a short message is about is said around it."""
    wanted = dict.fromkeys(query_terms(query), 1.0)
    # The index knows only the terms of the query; all others count as one, for the lengths.
    counts = [
        Counter(term if term in wanted else "" for term in said) for said in words
    ]
    own = TermIndex(
        counts, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION
    ).scores(wanted)
    scores = list(own)
    for distance, share in enumerate(NEIGHBOR_SHARES, start=1):
        for place in range(len(own) - distance):
            scores[place + distance] += share * own[place]
            scores[place] += share * own[place + distance]
    return scores


def _fitting(
    ranked: Iterable[Excerpt],
    room: int,
    cost: Callable[[Excerpt], int],
    fits: Callable[[list[Excerpt]], bool],
) -> list[Excerpt]:
    """The passages that fit, in the order of their places; those that follow each other are one.

    `fits` is asked of all together, because prices of parts need not add up.
    """
    fitting = [*take_while_fits(ranked, room, cost, on_overflow="skip").kept]
    while fitting and not fits(_joined(fitting)):
        fitting.pop()
    return _joined(fitting)


def _joined(passages: Iterable[Excerpt]) -> list[Excerpt]:
    parts = list[Excerpt]()
    for passage in sorted(
        passages, key=lambda passage: (passage.index, passage.start_char)
    ):
        last = parts[-1] if parts else None
        if last and (last.index, last.stop_char) == (passage.index, passage.start_char):
            text, score = last.text + passage.text, max(last.score, passage.score)
            is_whole = text == readable_text(last.message)
            parts[-1] = replace(last, text=text, is_whole=is_whole, score=score)
        else:
            parts.append(passage)
    return parts


class _Reader:
    """Reads messages of one history, and searches them, for one answer of the tool."""

    def __init__(
        self, messages: Sequence[AnyMessage], price: WholePrice, max_tokens: int
    ) -> None:
        self.messages = messages
        self.ids = [message_id(messages, index) for index in range(len(messages))]
        self._price = price
        self._max_tokens = max_tokens
        self._handles = handles(messages)
        self._calls = _answered_calls(messages)
        said = ((i, message) for i, message in enumerate(messages) if is_user(message))
        self._turns = [
            index
            for index, message in said
            if NOTE_KEY not in message.additional_kwargs
        ]

    def position_of(self, wanted: str) -> int:
        """The position of the message with this id, or of the only one whose id begins like it."""
        if wanted in self.ids:
            return self.ids.index(wanted)
        is_handle = len(wanted) >= HANDLE_CHARS
        positions = [
            index
            for index, key in enumerate(self.ids)
            if is_handle and key.startswith(wanted)
        ]
        if len(positions) == 1:
            return positions[0]
        problem = (
            f"{len(positions)} messages have an id that begins like"
            if positions
            else "No message has the id"
        )
        raise ToolException(
            f"{problem} {wanted[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier answer of this "
            "tool, or search by words with `query`."
        )

    def read(self, index: int, query: str, start_char: int) -> str:
        """As much of one message as fits, from the best match on when there is something to search for."""
        hits = _matching(self.messages, [index], query) if query else []
        if hits:
            start_char = max(hits, key=lambda hit: hit.score).start_char
        text = readable_text(self.messages[index])
        if not 0 <= start_char < max(1, len(text)):
            raise ToolException(
                f"offset_chars={start_char} is outside of the message, which has {len(text)} characters."
            )

        def page(part: str) -> str:
            stop_char = start_char + len(part)
            more = (
                f"; read on with offset_chars={stop_char}"
                if stop_char < len(text)
                else ""
            )
            return f"[{self._author(index)}, characters {start_char} to {stop_char} of {len(text)}{more}]\n{part}"

        return page(
            _beginning(
                text[start_char:],
                self._max_tokens,
                lambda part: self._price(page(part)),
            )
        )

    def search(self, query: str, positions: Sequence[int], seen: frozenset[int]) -> str:
        """The best passages at these positions that are not seen, in the order in which they were said."""
        passages = _matching(self.messages, positions, query)
        matching = {passage.index for passage in passages}
        passages = [passage for passage in passages if passage.index not in seen]
        unseen, in_view = len(matching - seen), len(matching & seen)
        if not unseen:
            where = f" (in your view: {in_view})" if in_view else ""
            return (
                f"No message that left your view matches {query[:QUOTED_CHARS]!r}{where}. Try other words for the "
                "same thing, names, numbers or parts of file names."
            )

        def page(parts: Sequence[Excerpt]) -> str:
            besides = f" (not counting {in_view} in your view)" if in_view else ""
            how = " (of long ones characters from-to: read on with message_id and offset_chars)"
            opening = (
                f"{len({part.index for part in parts})} of {unseen} matching messages{besides}, the most relevant that "
                f"fit, oldest first{'' if all(part.is_whole for part in parts) else how}:"
            )
            return SEPARATOR.join([opening, *map(self._labelled, parts)])

        room = self._max_tokens - self._price(page([]))
        parts = _fitting(
            (
                self._cut(part, room // 2)
                for part in passages[: self._max_tokens // LEAST_TOKENS]
            ),
            room,
            lambda part: self._price(f"{SEPARATOR}{self._labelled(part)}"),
            lambda parts: self._price(page(parts)) <= self._max_tokens,
        )
        if not parts:
            return f"{unseen} earlier messages match, but none fits: search with fewer or rarer words."
        return page(parts)

    def _cut(self, part: Excerpt, room: int) -> Excerpt:
        """The passage, or as much of it as fits in a room that leaves some to others."""
        text = _beginning(part.text, room, self._price)
        return part if text == part.text else replace(part, text=text, is_whole=False)

    def _labelled(self, part: Excerpt) -> str:
        """A passage behind the line that says whose it is; how to read on stands once, at the top of the page."""
        where = f", {part.start_char}-{part.stop_char} of {len(readable_text(part.message))}"
        label = f"[{self._author(part.index)}{'' if part.is_whole else where}]"
        return "\n".join(
            filter(
                None, (label, self._calls.get(part.index, "")[:CALL_CHARS], part.text)
            )
        )

    def _author(self, index: int) -> str:
        message = self.messages[index]
        role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
        author = " ".join(filter(None, (role, (message.name or "")[:NAME_CHARS])))
        return (
            f"{self._handles[index]}, {author}, turn {bisect_right(self._turns, index)}"
        )


def _beginning(text: str, room: int, price: Callable[[str], int]) -> str:
    """As much of a text as fits."""
    text = text[: max(1, room) * MOST_CHARS]
    while len(text) > 1 and (tokens := price(text)) > room:
        text = text[: word_cut(text, 0, max(1, len(text) * max(0, room) // tokens))]
    return text


def handles(messages: Sequence[AnyMessage]) -> list[str]:
    """Return a short name for each message: its id, or the beginning of a long id when no other id begins like it.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> handles(
        ...     [
        ...         HumanMessage("a", id="4dd9dc63-ae48-41de"),
        ...         HumanMessage("b", id="m2"),
        ...         HumanMessage("c"),
        ...     ]
        ... )
        ['4dd9dc63', 'm2', '#2']
    """
    ids = [message_id(messages, index) for index in range(len(messages))]
    alike = Counter(key[:HANDLE_CHARS] for key in ids)
    is_short = [
        len(key) <= LONG_ID_CHARS or alike[key[:HANDLE_CHARS]] > 1 for key in ids
    ]
    return [
        key if short else key[:HANDLE_CHARS]
        for key, short in zip(ids, is_short, strict=True)
    ]


def _in_sight(
    messages: Sequence[AnyMessage], state: Mapping[str, Any]
) -> frozenset[int]:
    """The positions of what the model sees in full: leading system messages, unedited view.

    Where the state does not say what is shown, because nothing left or somebody else trims the history, all other
    messages count as unseen.
    """
    first = first_after_system(messages)
    history = read_history(messages)
    view = read_session({"context_view": state.get("context_view")}, history).view
    places = set(range(first))
    if view != View():
        places |= {position.index for position in view.pinned}
        places |= set(
            range(max(first, view.start.index) if view.start else first, len(messages))
        )
    edited = view.cleared | view.clamped.keys()
    return frozenset(
        index for index in places if message_id(messages, index) not in edited
    )


def _searchable(messages: Sequence[AnyMessage], tool_name: str) -> list[int]:
    """The positions of what is worth a search: not the question being answered, nor calls of this tool and answers.

    A question matches itself best of all. A call that was answered and says nothing else is found with its result.
    """
    answered = {
        message.tool_call_id for message in messages if isinstance(message, ToolMessage)
    }

    def is_own(message: AnyMessage) -> bool:
        if isinstance(message, ToolMessage):
            return message.name == tool_name
        calls = calls_of(message)
        is_bare = not text_of(message.content).strip()
        return bool(calls) and all(
            call["name"] == tool_name or (is_bare and call["id"] in answered)
            for call in calls
        )

    question = last_user(messages)
    calling = max(
        (i for i, message in enumerate(messages) if isinstance(message, AIMessage)),
        default=len(messages),
    )
    return [
        i
        for i, message in enumerate(messages[:calling])
        if i != question and not is_own(message)
    ]
