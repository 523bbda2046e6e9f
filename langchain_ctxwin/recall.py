"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

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
    ToolMessage,
)
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.core.pairing import calls_of
from langchain_ctxwin.core.provider_blocks import (
    compact_json,
    digest_of,
    digests_in,
    filled,
    has_media,
    media_in,
    text_of,
)
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
from langchain_ctxwin.errors import expect
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.text import (
    TermIndex,
    query_terms,
    statement_spans,
    terms,
    word_cut,
)
from langchain_ctxwin.util.stores import ThreadStore
from langchain_ctxwin.util.work import run

__all__ = ["Found", "create_recall_tool", "search_messages"]

MAX_TOKENS = 2_000  # of one search: about fifty chat messages
# of the tool: one chat message with its label, or a few lines of a long one
MIN_TOKENS = 200
MOST_CHARS = 16  # of a token: what is read at once is no longer than so many characters for each one
# Part of the input limit that the pictures and files of one message may take, where they are more than one answer.
MEDIA_SHARE = 0.25
QUOTED_CHARS = 80  # of a query or an id, in an answer that finds nothing
CALL_CHARS = 200  # of the call above its result: as much as the record has of one
NAME_CHARS = 64  # of a name in a label, the longest that providers accept; anybody's message may have a longer one
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
    "Id of one message to read, or its number, as in 'still in the history as message ...'. With a query: from its "
    "best match on.",
]
OffsetChars = Annotated[int, "Where to read on in that message, in characters."]


class Found(list[AnyMessage]):
    """The messages that a search found and that fit, most relevant first: a list that also says what was left out."""

    def __init__(
        self,
        kept: Iterable[AnyMessage] = (),
        *,
        dropped: Iterable[AnyMessage] = (),
        tokens: int = 0,
    ) -> None:
        super().__init__(kept)
        self.dropped = tuple(dropped)
        """Messages that match but did not fit, most relevant first."""
        self.tokens = tokens
        """What the kept messages cost, each priced alone: together they cost no more."""


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
    alike the shorter comes first, so that the room goes to many. A message that does not fit is left out, and `Found`
    says so.

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
    """
    require_tokens("max_tokens", max_tokens, minimum=1)
    history: Sequence[Any] = as_messages(messages)
    expect(query, str, "query", "what to look for, as a text")
    count = counter or TokenEstimator()
    base = count([])
    matches = _matching(history, range(len(history)), query)
    ranked = dict.fromkeys(one.index for one in matches)
    fit = take_while_fits(
        [history[index] for index in ranked],
        max_tokens - base,
        lambda message: count([message]) - base,
        on_overflow="skip",
    )
    tokens = base + fit.tokens if fit.kept else 0
    return Found(fit.kept, dropped=fit.dropped, tokens=tokens)


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
    with its message's number and the position to read on from. All stand in the order in which they were said, and an
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
        messages = list(state.get("messages") or ())
        reader = _Reader(messages, price, max_tokens)
        query, wanted = query.strip(), message_id.strip()
        if not query and not wanted:
            raise ToolException(
                "Nothing to look for: give `query` with words to search for, or `message_id`."
            )
        if not wanted and query not in reader.places:
            return reader.search(query, _out_of_sight(messages, state, name))
        index = reader.position_of(wanted or query)
        about = query if wanted and offset_chars <= 0 else ""
        text = reader.read(index, about, offset_chars)
        if offset_chars > 0 or not has_media(messages[index]):
            return text
        report = read_key("context_report", state.get("context_report"))[0]
        share = int(MEDIA_SHARE * (report.get("input_limit") or 0))
        room = max(max_tokens - price(text), share)
        return [_text(text), *_media(messages[index], runtime, room, counter)]

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
        data = run(ThreadStore(runtime.store, "media", thread).getting(digests))
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


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Passage:
    """A part of a message as plain text, or all of it; passages are ordered by their places."""

    index: int
    start: int
    stop: int
    worth: float = field(compare=False)
    """How well it matches for the room that it takes."""


def _matching(
    messages: Sequence[AnyMessage], positions: Iterable[int], query: str
) -> list[_Passage]:
    """The passages of the messages at these positions that match, by worth; of equals the newer, from its beginning."""
    places, words = list[tuple[int, int, int, bool]](), list[Sequence[str]]()
    calls = _answered_calls(messages)
    for index in positions:
        message = messages[index]
        # Beside what it says, a message is found by its author, and a result by its call.
        about = terms(f"{message.name or ''} {calls.get(index, '')}")
        text = readable_text(message)
        for start, stop, said in _passages(text):
            places.append((index, start, stop, stop - start == len(text)))
            words.append(said if start else (*about, *said))
    matches = [
        _Passage(
            index=index,
            start=start,
            stop=stop,
            worth=score
            * (1 if is_whole else PART_SHARE)
            / (stop - start + LABEL_CHARS) ** LENGTH_EXPONENT,
        )
        for (index, start, stop, is_whole), score in zip(
            places, _scores(words, query), strict=True
        )
        if score > 0
    ]
    return sorted(matches, key=lambda one: (-one.worth, -one.index, one.start))


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
    return [(start, stop, tuple(terms(text[start:stop]))) for start, stop in spans]


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


class _Reader:
    """Reads messages of one history, and searches them, for one answer of the tool."""

    def __init__(
        self, messages: Sequence[AnyMessage], price: WholePrice, max_tokens: int
    ) -> None:
        self._messages, self._price, self._max_tokens = messages, price, max_tokens
        self._calls = _answered_calls(messages)
        self.places = {f"#{index}": index for index in range(len(messages))}
        """Where messages are, by number and by id."""
        self.places |= {
            message.id: index for index, message in enumerate(messages) if message.id
        }

    def position_of(self, wanted: str) -> int:
        """The position of the message with this id or number."""
        if wanted in self.places:
            return self.places[wanted]
        raise ToolException(
            f"No message has the id {wanted[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier answer "
            "of this tool, or search by words with `query`."
        )

    def read(self, index: int, query: str, start: int) -> str:
        """As much of one message as fits, from the best match on when there is something to search for."""
        if hits := _matching(self._messages, [index], query) if query else ():
            start = hits[0].start
        text = readable_text(self._messages[index])
        if not 0 <= start < max(1, len(text)):
            raise ToolException(
                f"offset_chars={start} is outside of the message, which has {len(text)} characters."
            )

        def page(part: str) -> str:
            stop = start + len(part)
            more = f"; read on with offset_chars={stop}" if stop < len(text) else ""
            where = f"characters {start} to {stop} of {len(text)}{more}"
            return f"[{self._author(index)}, {where}]\n{part}"

        return page(
            _beginning(
                text[start:], self._max_tokens, lambda part: self._price(page(part))
            )
        )

    def search(self, query: str, positions: Sequence[int]) -> str:
        """The best passages at these positions, in the order in which they were said."""
        passages = _matching(self._messages, positions, query)
        matching = {passage.index for passage in passages}
        if not matching:
            return (
                f"No message that left your view matches {query[:QUOTED_CHARS]!r}. Try other words for the same thing, "
                "names, numbers or parts of file names."
            )

        def page(parts: Sequence[_Passage]) -> str:
            shown = len({part.index for part in parts})
            opening = (
                f"{shown} of {len(matching)} matching messages, the most relevant that fit, oldest first (of long ones "
                "characters from-to: read on with message_id and offset_chars):"
            )
            return SEPARATOR.join([opening, *map(self._labelled, _joined(parts))])

        room = self._max_tokens - self._price(page([]))
        parts = take_while_fits(
            # nothing takes less than a token
            [self._cut(part, room // 2) for part in passages[: self._max_tokens]],
            room,
            lambda part: self._price(f"{SEPARATOR}{self._labelled(part)}"),
            on_overflow="skip",
        ).kept
        # prices of parts need not add up
        while parts and self._price(page(parts)) > self._max_tokens:
            parts = parts[:-1]
        if not parts:
            return f"{len(matching)} earlier messages match, but none fits: search with fewer or rarer words."
        return page(parts)

    def _cut(self, part: _Passage, room: int) -> _Passage:
        """The passage, or as much of it as fits in a room that leaves some to others."""
        text = readable_text(self._messages[part.index])[part.start : part.stop]
        return replace(part, stop=part.start + len(_beginning(text, room, self._price)))

    def _labelled(self, part: _Passage) -> str:
        """A passage behind the line that says whose it is, a result behind its call."""
        text = readable_text(self._messages[part.index])
        is_whole = part.stop - part.start == len(text)
        where = "" if is_whole else f", {part.start}-{part.stop} of {len(text)}"
        label = f"[{self._author(part.index)}{where}]"
        call = self._calls.get(part.index, "")[:CALL_CHARS]
        return "\n".join(filter(None, (label, call, text[part.start : part.stop])))

    def _author(self, index: int) -> str:
        message = self._messages[index]
        role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
        name = f" {message.name[:NAME_CHARS]}" if message.name else ""
        return f"#{index}, {role}{name}"


def _joined(passages: Iterable[_Passage]) -> list[_Passage]:
    """The passages in the order of their places; those that follow each other are one."""
    parts = list[_Passage]()
    for part in sorted(passages):
        if parts and (parts[-1].index, parts[-1].stop) == (part.index, part.start):
            parts[-1] = replace(parts[-1], stop=part.stop)
        else:
            parts.append(part)
    return parts


def _beginning(text: str, room: int, price: Callable[[str], int]) -> str:
    """As much of a text as fits."""
    text = text[: max(1, room) * MOST_CHARS]
    while len(text) > 1 and (tokens := price(text)) > room:
        text = text[: word_cut(text, 0, max(1, len(text) * max(0, room) // tokens))]
    return text


def _out_of_sight(
    messages: Sequence[AnyMessage], state: Mapping[str, Any], tool_name: str
) -> list[int]:
    """The positions of what is worth a search: what the model does not see in full, and what answers nothing itself.

    The model sees leading system messages, and the view where nothing in it is edited. Where the state does not say
    what is shown, because nothing left or somebody else trims the history, all other messages count as unseen.
    A question matches itself best of all, and so do earlier calls of this tool with their answers. A call that was
    answered and says nothing else is found with its result.
    """
    first = first_after_system(messages)
    history = read_history(messages)
    view = read_session({"context_view": state.get("context_view")}, history).view
    seen = {*range(first), last_user(messages)}
    if view != View():
        start = max(first, view.start.index) if view.start else first
        shown = {*range(start, len(messages))}
        shown |= {position.index for position in view.pinned}
        edited = view.cleared | view.clamped.keys()
        seen |= {i for i in shown if message_id(messages, i) not in edited}
    answered = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}

    def is_own(message: AnyMessage) -> bool:
        if isinstance(message, ToolMessage):
            return message.name == tool_name
        calls = calls_of(message)
        is_bare = not text_of(message.content).strip()
        return bool(calls) and all(
            call["name"] == tool_name or (is_bare and call["id"] in answered)
            for call in calls
        )

    calling = max(
        (i for i, message in enumerate(messages) if isinstance(message, AIMessage)),
        default=len(messages),
    )
    return [
        i
        for i, message in enumerate(messages[:calling])
        if i not in seen and not is_own(message)
    ]
