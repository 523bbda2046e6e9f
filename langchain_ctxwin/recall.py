"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from langchain_core.messages import (
    AnyMessage,
    HumanMessage,
    MessageLikeRepresentation,
    ToolMessage,
)
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime

from langchain_ctxwin.core.fitting import Fit, first_enough, take_while_fits
from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.core.pairing import calls_of, standard
from langchain_ctxwin.core.provider_blocks import (
    compact_json,
    digest_of,
    digests_in,
    filled,
    media_in,
    text_of,
)
from langchain_ctxwin.core.tokens import (
    TokenEstimator,
    WholePrice,
    readable_text,
    text_price,
)
from langchain_ctxwin.core.tool_schemas import RECALL_KEY
from langchain_ctxwin.core.turns import as_messages, last_user
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

    def __init__(self, fit: Fit[AnyMessage]) -> None:
        super().__init__(fit.kept)
        self.dropped = fit.dropped
        """Messages that match but did not fit, most relevant first."""
        self.tokens = fit.tokens
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
    calls = _answered_calls(history)
    matches = _matching(history, range(len(history)), query, calls)
    fit = take_while_fits(
        [history[index] for index in dict.fromkeys(one.at for one in matches)],
        max_tokens,
        lambda message: count([message]),
        on_overflow="skip",
    )
    return Found(fit)


def create_recall_tool(
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    name: str = "recall",
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
        given = runtime.state["messages"]
        messages = [part for message in given for part in standard(message)]
        state = {**runtime.state, "messages": messages}
        reader = _Reader(messages, price, max_tokens)
        query, wanted = query.strip(), message_id.strip()
        if not query and not wanted:
            raise ToolException(
                "Nothing to look for: give `query` with words to search for, or `message_id`."
            )
        index = reader.position_of(wanted or query)
        if index is None and wanted:
            raise ToolException(
                f"No message has the id {wanted[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier "
                "answer of this tool, or search by words with `query`."
            )
        if index is None:
            return reader.search(query, _out_of_sight(state, name))
        about = query if wanted and offset_chars <= 0 else ""
        text, message = reader.read(index, about, offset_chars), reader.messages[index]
        if offset_chars > 0 or not media_in(message):
            return text
        report = runtime.state.get("context_report") or {}
        share = int(MEDIA_SHARE * report.get("input_limit", 0))
        room = max(max_tokens - price(text), share)
        return [_text(text), *_media(message, runtime, room, counter)]

    return StructuredTool.from_function(
        recall,
        name=name,
        description=DESCRIPTION,
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


class _Passage(NamedTuple):
    """A part of a message as plain text, or all of it; passages are ordered by their places."""

    at: int
    start: int
    stop: int
    worth: float
    """How well it matches for the room that it takes."""


def _matching(
    messages: Sequence[AnyMessage],
    positions: Iterable[int],
    query: str,
    calls: Mapping[int, str],
) -> list[_Passage]:
    """The passages of the messages at these positions that match, by worth; of equals the newer, from its beginning."""
    wanted = dict.fromkeys(query_terms(query), 1.0)
    passages, counts = list[_Passage](), list[Counter[str]]()
    for index in positions:
        text = readable_text(messages[index])
        # Beside what it says, a message is found by its author, and a result by its call.
        about = terms(f"{messages[index].name or ''} {calls.get(index, '')}")
        for start, stop, said in _passages(text):
            share = 1 if stop - start == len(text) else PART_SHARE
            length = (stop - start + LABEL_CHARS) ** LENGTH_EXPONENT
            passages.append(_Passage(index, start, stop, share / length))
            words = said if start else [*about, *said]
            # All terms that the query has not count as one, for the lengths.
            counts.append(Counter(term if term in wanted else "" for term in words))
    own = TermIndex(
        counts, saturation=TERM_SATURATION, length_share=LENGTH_NORMALIZATION
    ).scores(wanted)
    # What a short message is about is said around it.
    scores = list(own)
    for distance, share in enumerate(NEIGHBOR_SHARES, start=1):
        for place in range(len(own) - distance):
            scores[place + distance] += share * own[place]
            scores[place] += share * own[place + distance]
    matches = [
        passage._replace(worth=passage.worth * score)
        for passage, score in zip(passages, scores, strict=True)
        if score > 0
    ]
    return sorted(matches, key=lambda one: (-one.worth, -one.at, one.start))


def _answered_calls(messages: Sequence[AnyMessage]) -> dict[int, str]:
    """Return the call that each result answers, by the result's position; ids of calls are used again."""
    calls, answered = dict[str | None, str](), dict[int, str]()
    for index, message in enumerate(messages):
        for call in calls_of(message):
            calls[call["id"]] = f"{call['name']} {compact_json(call['args'])}"
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
        follows = spans and stop - spans[-1][0] <= PASSAGE_CHARS
        spans.append((spans.pop()[0] if follows else start, stop))
    return [(start, stop, terms(text[start:stop])) for start, stop in spans]


class _Reader:
    """Reads messages of one history, and searches them, for one answer of the tool."""

    def __init__(
        self, messages: Sequence[AnyMessage], price: WholePrice, max_tokens: int
    ) -> None:
        self.messages, self._price, self._max_tokens = messages, price, max_tokens
        self._calls = _answered_calls(messages)

    def position_of(self, wanted: str) -> int | None:
        """The position of the message with this id or number."""
        named = ((index, one.id) for index, one in enumerate(self.messages))
        return next((i for i, key in named if wanted in (key, f"#{i}")), None)

    def read(self, index: int, query: str, start: int) -> str:
        """As much of one message as fits, from the best match on when there is something to search for."""
        if hits := query and _matching(self.messages, [index], query, self._calls):
            start = hits[0].start
        text = readable_text(self.messages[index])
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
        passages = _matching(self.messages, positions, query, self._calls)
        if not passages:
            return (
                f"No message that left your view matches {query[:QUOTED_CHARS]!r}. Try other words for the same thing, "
                "names, numbers or parts of file names."
            )
        matching = len({passage.at for passage in passages})
        opening = (
            f"of {matching} matching messages, the most relevant that fit, oldest first (of long ones "
            "characters from-to: read on with message_id and offset_chars):"
        )
        room = self._max_tokens - self._price(f"{matching} {opening}")
        fit = take_while_fits(
            # nothing takes less than a token
            [self._cut(part, room // 2) for part in passages[: self._max_tokens]],
            room,
            lambda part: self._price(f"{SEPARATOR}{self._labelled(part)}"),
            on_overflow="skip",
        )
        shown = len({part.at for part in fit.kept})
        return SEPARATOR.join(
            [f"{shown} {opening}", *map(self._labelled, _joined(fit.kept))]
        )

    def _cut(self, part: _Passage, room: int) -> _Passage:
        """The passage, or as much of it as fits in a room that leaves some to others."""
        text = readable_text(self.messages[part.at])[part.start : part.stop]
        return part._replace(stop=part.start + len(_beginning(text, room, self._price)))

    def _labelled(self, part: _Passage) -> str:
        """A passage behind the line that says whose it is, a result behind its call."""
        text = readable_text(self.messages[part.at])
        said = text[part.start : part.stop]
        where = "" if said == text else f", {part.start}-{part.stop} of {len(text)}"
        label = f"[{self._author(part.at)}{where}]"
        call = self._calls.get(part.at, "")[:CALL_CHARS]
        return "\n".join(filter(None, (label, call, said)))

    def _author(self, index: int) -> str:
        message = self.messages[index]
        role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
        name = f" {message.name[:NAME_CHARS]}" if message.name else ""
        return f"#{index}, {role}{name}"


def _joined(passages: Iterable[_Passage]) -> list[_Passage]:
    """The passages in the order of their places; those that follow each other are one."""
    parts = list[_Passage]()
    for part in sorted(passages):
        if parts and (parts[-1].at, parts[-1].stop) == (part.at, part.start):
            parts[-1] = parts[-1]._replace(stop=part.stop)
        else:
            parts.append(part)
    return parts


def _beginning(text: str, room: int, price: Callable[[str], int]) -> str:
    """As much of a text as fits."""
    text = text[: room * MOST_CHARS]
    if price(text) <= room:
        return text
    stops = range(len(text) - 1, 0, -1)
    stop = first_enough(stops, lambda stop: price(text[:stop]) <= room)
    return text[: word_cut(text, 0, stop)]


def _out_of_sight(state: Mapping[str, Any], tool_name: str) -> list[int]:
    """The positions of what is worth a search: what the model does not see in full, and what answers nothing itself.

    The model sees leading system messages, and the view where nothing in it is edited. Where the state does not say
    what is shown, because nothing left or somebody else trims the history, all other messages count as unseen.
    A question matches itself best of all, and so do earlier calls of this tool with their answers. A call that says
    nothing else is found with its result.
    """
    messages = state["messages"]
    ids = [message_id(messages, index) for index in range(len(messages))]
    first = first_after_system(messages)
    seen = {*range(first), last_user(messages)}
    if stored := state.get("context_view"):
        view = View.from_json(stored)
        start = view.start.index if view.start else first
        shown = {*ids[start:], *(position.id for position in view.pinned)}
        shown -= view.edited
        seen |= {index for index, key in enumerate(ids) if key in shown}

    def is_own(message: AnyMessage) -> bool:
        if isinstance(message, ToolMessage):
            return message.name == tool_name
        is_bare = not text_of(message.content).strip()
        return any(is_bare or call["name"] == tool_name for call in calls_of(message))

    return [
        index
        for index, message in enumerate(messages)
        if index not in seen and not is_own(message)
    ]
