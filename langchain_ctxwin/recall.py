"""Search over what left the view: for programs (`search_messages`), and for the agent itself (`create_recall_tool`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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

from langchain_ctxwin.core.fitting import (
    CUT_MARK,
    Fit,
    first_enough,
    first_part,
    take_while_fits,
)
from langchain_ctxwin.core.limits import require_count
from langchain_ctxwin.core.pairing import calls_of, standard
from langchain_ctxwin.core.provider_blocks import (
    Messages,
    compact_json,
    digest_of,
    digests_in,
    filled,
    media_in,
    text_block,
    text_of,
)
from langchain_ctxwin.core.session import read_key
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
    "Id of one message to read, or its number, as in 'still in the history as message ...'.",
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
    require_count("max_tokens", max_tokens, minimum=1)
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
    The model gives `query` or `message_id`. Short messages come whole. Of long ones come the best passages, each
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
    require_count("max_tokens", max_tokens, minimum=MIN_TOKENS)
    price, count = text_price(counter), counter or TokenEstimator()

    def recall(
        runtime: ToolRuntime[Any, Any],
        query: Query = "",
        message_id: MessageId = "",
        offset_chars: OffsetChars = 0,
    ) -> str | list[Any]:
        state = runtime.state
        messages = [part for one in state["messages"] for part in standard(one)]
        wanted = message_id.strip() or query.strip()
        if not wanted:
            raise ToolException(
                "Nothing to look for: give `query` with words to search for, or `message_id`."
            )
        places = range(len(messages))
        named = (at for at in places if wanted in (messages[at].id, f"#{at}"))
        index = next(named, None)
        if index is None and message_id.strip():
            raise ToolException(
                f"No message has the id {wanted[:QUOTED_CHARS]!r}. Copy the whole id from a note or from an earlier "
                "answer of this tool, or search by words with `query`."
            )
        if index is None:
            view, _ = read_key("context_view", state.get("context_view"))
            unseen = _out_of_sight(messages, view, name)
            return _search(messages, unseen, wanted, max_tokens, price)
        page = _page(messages, index, max(0, offset_chars), max_tokens, price)
        if offset_chars > 0 or not media_in(messages[index]):
            return page
        limit = (state.get("context_report") or {}).get("input_limit", 0)
        room = max(max_tokens - price(page), int(MEDIA_SHARE * limit))
        return [text_block(page), *_media(messages[index], runtime, room, count)]

    return StructuredTool.from_function(
        recall,
        name=name,
        description=DESCRIPTION,
        handle_tool_error=True,
        parse_docstring=False,
        metadata={RECALL_KEY: True},
    )


def _page(
    messages: Messages,
    index: int,
    start: int,
    max_tokens: int,
    price: WholePrice,
) -> str:
    """As much of one message as fits, from a position on, behind a line that says what it is."""
    text = readable_text(messages[index])

    def page(stop: int) -> str:
        more = f"; read on with offset_chars={stop}" if stop < len(text) else ""
        where = f"characters {start} to {stop} of {len(text)}{more}"
        return f"[{_author(messages, index)}, {where}]\n{text[start:stop]}"

    most = min(len(text), start + MOST_CHARS * max_tokens)
    stops = range(most, start, -1) or [start]
    stop = first_enough(stops, lambda stop: price(page(stop)) <= max_tokens)
    return page(word_cut(text, start, stop) if start < stop < len(text) else stop)


def _search(
    messages: Messages,
    positions: Sequence[int],
    query: str,
    max_tokens: int,
    price: WholePrice,
) -> str:
    """The best passages at these positions, in the order in which they were said."""
    calls = _answered_calls(messages)
    passages = _matching(messages, positions, query, calls)
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
    room = max_tokens - price(f"{matching} {opening}")

    def labelled(part: _Passage) -> str:
        """A passage behind the line that says whose it is, a result behind its call."""
        text = readable_text(messages[part.at])
        # one passage leaves some room to others
        said = first_part(text[part.start : part.stop], room // 2, price)
        stop = part.start + len(said.removesuffix(CUT_MARK))
        where = "" if said == text else f", {part.start}-{stop} of {len(text)}"
        label = f"[{_author(messages, part.at)}{where}]"
        call = calls.get(part.at, "")[:CALL_CHARS]
        return "\n".join(filter(None, (label, call, said)))

    best = passages[:max_tokens]  # nothing takes less than a token
    fit = take_while_fits(
        [(part, labelled(part)) for part in best],
        room,
        lambda pair: price(f"{SEPARATOR}{pair[1]}"),
        on_overflow="skip",
    )
    shown = len({part.at for part, _ in fit.kept})
    return SEPARATOR.join(
        [f"{shown} {opening}", *(text for _, text in sorted(fit.kept))]
    )


def _author(messages: Messages, index: int) -> str:
    message = messages[index]
    role = {"human": "user", "ai": "assistant"}.get(message.type, message.type)
    return f"#{index}, {role} {message.name or ''}".rstrip()


def _media(
    message: AnyMessage, runtime: Any, room: int, count: TokenCounter
) -> list[Any]:
    """The pictures and files of a message, as many as fit, with a line about the others."""
    if runtime.store is not None and (digests := digests_in(message)):
        thread = str(runtime.config["configurable"].get("thread_id") or "")
        data = run(ThreadStore(runtime.store, "media", thread).getting(digests))
        message = filled(message, data)
    blocks = media_in(message)
    fit = take_while_fits(
        [block for block in blocks if not digest_of(block)],
        room,
        lambda block: count([HumanMessage([dict(block)])]),
        on_overflow="skip",
    )
    gone = len(blocks) - len(fit.kept)
    note = f"[{gone} of {len(blocks)} not shown: no longer stored, or more than {room:,} tokens]"
    return [*fit.kept, *([text_block(note)] if gone else ())]


def _out_of_sight(messages: Messages, view: View, tool_name: str) -> list[int]:
    """The positions of what is worth a search: what the model does not see in full, and what answers nothing itself.

    The model sees leading system messages, and the view where nothing in it is edited. Where the state does not say
    what is shown, because nothing left or somebody else trims the history, all other messages count as unseen.
    A question matches itself best of all, and so do earlier calls of this tool with their answers. A call that says
    nothing else is found with its result.
    """
    places = range(len(messages))
    seen = {*range(first_after_system(messages)), last_user(messages)}
    if view != View():
        shown = (*places[view.start_index :], *view.pinned)
        seen |= {at for at in shown if message_id(messages, at) not in view.edited}

    def is_own(message: AnyMessage) -> bool:
        if isinstance(message, ToolMessage):
            return message.name == tool_name
        is_bare = not text_of(message.content).strip()
        return any(is_bare or call["name"] == tool_name for call in calls_of(message))

    return [at for at in places if at not in seen and not is_own(messages[at])]


class _Passage(NamedTuple):
    """A part of a message as plain text, or all of it; passages are ordered by their places."""

    at: int
    start: int
    stop: int
    worth: float
    """How well it matches for the room that it takes."""


def _matching(
    messages: Messages,
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


def _answered_calls(messages: Messages) -> dict[int, str]:
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
