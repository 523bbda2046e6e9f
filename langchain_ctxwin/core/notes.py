"""Lines for the record of messages that leave the view, written without a model: how each line is made.

A statement of a person, a call with its telling arguments and what came of it, and everything that has a name or a
number: an agent's next call is made of those. How lines are merged, ordered and shown stands in `record`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.blocks import said_in, text_of
from langchain_ctxwin.core.calls import standard
from langchain_ctxwin.core.record import (
    EDGES,
    FILLER,
    HOLDS,
    KEEP,
    LABEL,
    PART,
    PREFIX,
    WORD,
    RecordLine,
    are_of_two_things,
    is_value,
    one_line,
)
from langchain_ctxwin.core.standing import is_standing
from langchain_ctxwin.core.view import Position, message_id

# Key in `additional_kwargs` that marks the answer of the tool by which an agent compacts; its value is what must stay.
# It needs no state of its own: the answer is in the history, before the request that is to be small.
COMPACT_KEY = "ctxwin_compact"
# The tool by which a model reads on in a large result, and its argument that says where. It ends within minutes.
READ_MORE, CURSOR = "read_more", "cursor"
# Around the data of a page: what it is, two marks, what of it is left out, and the cursor of the next one.
NEXT_PAGE, PAGE_LABEL = f"{READ_MORE}({CURSOR}=", "ata, not instructions.]"
PAGE_FRAME = re.compile(r"</?data [\w-]{1,40}>|\((?:rows of|left out:|cut short:|no field matches) .*\)")
MAX_SCAN_CHARS = 60_000  # looked at in one message, two thirds at its head: linear time, and more than a record holds
MAX_VALUES = 2_000  # values taken from one message: many times more than a record holds
STATEMENT_CHARS = 240  # two sentences, of talk
MAX_STATEMENTS = 40  # taken from one message
MAX_KEPT = 20  # lines of one request to keep something: a screenful, which most records have room for
MAX_JUDGED, JUDGED_CHARS = 20, 50_000  # newest results looked through for use, in so much of what followed each
DOCUMENT_CHARS = 1_200  # a user message that long is a document: its values count, not its sentences
OUTPUT_CHARS = 400  # the same for one that answers a block of code, as agents without tool calls get their results
SHORT_CHARS = 40  # an answer that says no more than that it was one
ANSWER_CHARS, CALL_CHARS, ARGUMENT_CHARS, OUTCOME_CHARS = 200, 100, 60, 60  # a line is read at a glance
LABEL_CHARS, TEXT_VALUE_CHARS = 40, 48  # of what labels a value, and of a text field kept whole, such as a name
MIN_NUMBER_CHARS = 3  # of a JSON field: its name says what it is

# What a terminal is told beside the text (ECMA-48): colours and cursor moves, titles and links, other commands.
TERMINAL = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?|\x1b[ -/]*+[0-Z\\^-~]")

Result = tuple[ToolMessage, str]  # a result with the id of its message
_PLAIN_WORD = re.compile(r"[^\W\d_]{3,24}")
# A word of a field: two letters are one in some scripts; signs that are no letters belong to it in others.
_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|[\u0900-\u0dff\u0e30-\u0e4e'\u2019-])+")
_TELLING = re.compile(r"[A-Za-z]{4}")  # a value that holds a word needs no label
_LIKE_A_START = re.compile(r"(?:user|open|answered|keep):", re.IGNORECASE)  # how lines of other kinds begin
_NO_NAME = re.compile(r"[^\w.@#$€%/-]+")
_RUN = re.compile(r"(.)\1+")
_SHAPE = str.maketrans("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "a" * 26 + "A" * 26 + "9" * 10)
_CODE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_NEXT = re.compile(r"\b(?:I['\u2019]ll|I will|I'm going to|let me|next,? I|now I|I need to|I still)\b", re.IGNORECASE)

_SENTENCE_END = re.compile(
    r"(?<=[.!?])(?<!\b(?:Mr|Ms|Dr|St|No)\.)(?<!\b(?:Mrs|e\.g|i\.e|etc)\.)\s+(?=[^\sa-z])|(?<=[。\uff01\uff1f])|\n+"
)
_CALL_LINE = re.compile(r"[\w.-]{1,64}\(|ran |answered: ")


def is_asked(messages: Sequence[AnyMessage], since: Position | None) -> bool:
    """True when an agent asked for a compaction after its last answer, and none has happened since (at `since`)."""
    newest = next(_requests(messages), None)
    compacted = since.find(messages) if since and newest is not None else None
    return newest is not None and (compacted is None or compacted < newest)


def asked_lines(messages: Sequence[AnyMessage]) -> tuple[RecordLine, ...]:
    """Return the lines for what must stay, as the agent said after its last answer."""
    positions = sorted(_requests(messages))
    return tuple(line for i in positions for line in _kept_lines(messages[i], message_id(messages, i)))


def lines_to_keep(text: str, key: str) -> Iterator[RecordLine]:
    """Yield one line for each statement of a text that must stay."""
    for statement in _sentences(text)[:MAX_KEPT]:
        yield RecordLine("open", f"{KEEP}{one_line(statement)[:STATEMENT_CHARS]}", key, HOLDS)


def _kept_lines(message: AnyMessage, key: str) -> Iterator[RecordLine]:
    keep = message.additional_kwargs.get(COMPACT_KEY) if isinstance(message, ToolMessage) else None
    return lines_to_keep(keep, key) if isinstance(keep, str) else iter(())


def _requests(messages: Sequence[AnyMessage]) -> Iterator[int]:
    """Positions of the requests to compact after the last answer, newest first."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AIMessage):
            return
        if COMPACT_KEY in messages[index].additional_kwargs:
            yield index


def record_lines(
    messages: Sequence[AnyMessage], ids: Sequence[str], before: AnyMessage | None = None
) -> Iterator[RecordLine]:
    """Yield the lines of whole steps that leave after a message; a value is a line of its own until it is merged."""
    parts = [(part, key) for message, key in zip(messages, ids, strict=True) for part in standard(message)]
    return _notes([part for part, _ in parts], [key for _, key in parts], before)


def lasting(message: AnyMessage, key: str, before: AnyMessage | None = None) -> list[RecordLine]:
    """Return the lines for what a person said that goes on to hold, or has a value; of a document the former alone."""
    text = _text(message.content)
    is_output, is_document = _kind_of(text, before)
    if is_output and is_document:
        return []
    return [
        one for one in _statements(_ends(text), key) if one.uses >= HOLDS or (not is_document and _has_value(one.text))
    ]


def parse_record(text: str) -> tuple[RecordLine, ...]:
    """Return the lines of a rendered record, or of any other text: what cannot be told apart counts as said."""
    found = list[RecordLine]()
    for number, raw in enumerate(text.split("\n")):
        line, source = one_line(raw), f"#{number}"
        is_said = line.startswith(PREFIX["said"])
        if line.startswith(PREFIX["open"]):
            found.append(RecordLine("open", line.removeprefix(PREFIX["open"]), source, 1))
        elif not is_said and _CALL_LINE.match(line):
            found.append(RecordLine("done", line, source, 1))
        elif not is_said and all("=" in part or '"' in part or is_value(part) for part in PART.findall(line)):
            found += [RecordLine("seen", line, source, 1)] if line else []
        else:
            found += [_said(statement, source) for statement in _sentences(line.removeprefix(PREFIX["said"]))]
    return tuple(found)


def _notes(messages: Sequence[AnyMessage], ids: Sequence[str], before: AnyMessage | None) -> Iterator[RecordLine]:
    answers, others = _results(messages, ids)
    for position, (message, key) in enumerate(zip(messages, ids, strict=True)):
        if isinstance(message, AIMessage):
            results = [answers.pop((position, number), None) for number in range(len(message.tool_calls))]
            yield from _of_answer(message, key, results)
        elif isinstance(message, HumanMessage):
            yield from _of_person(_text(message.content), key, before)
        elif not isinstance(message, ToolMessage):  # a system message in mid-conversation
            yield from _values(_text(message.content), key, uses=1)
        before = message
    for message, key in others:
        yield from _kept_lines(message, key)
        yield from _values(_found(message), key, uses=0)


def _results(messages: Sequence[AnyMessage], ids: Sequence[str]) -> tuple[dict[tuple[int, int], Result], list[Result]]:
    """The results by the positions of the message that called and of the call in it; then all others.

    Ids of calls are used again, and calls without ids have their results in order.
    """
    answers: dict[tuple[int, int], Result] = {}
    others: list[Result] = []
    callers: dict[str, list[tuple[int, int]]] = {}
    for position, (message, key) in enumerate(zip(messages, ids, strict=True)):
        if isinstance(message, AIMessage):
            callers.update((call["id"] or "", []) for call in message.tool_calls)
            for number, call in enumerate(message.tool_calls):
                callers[call["id"] or ""].append((position, number))
        elif isinstance(message, ToolMessage):
            waiting = callers.get(message.tool_call_id)
            if waiting:
                answers[waiting.pop(0)] = message, key
            else:  # the call was made before these messages, or has its result
                others.append((message, key))
    return answers, others


def _of_answer(message: AIMessage, key: str, results: Sequence[Result | None]) -> Iterator[RecordLine]:
    text = said_in(message)
    commands = [] if message.tool_calls else _CODE.findall(text[:MAX_SCAN_CHARS])
    for command in commands:
        yield RecordLine("done", f"ran {_clipped(command, CALL_CHARS)}", key, 1)
    if len(text.strip()) > SHORT_CHARS and not (commands or message.tool_calls):
        yield RecordLine("done", f"answered: {_clipped(text, ANSWER_CHARS)}", key, 1)
    yield from _values(text, key, uses=1)
    for call, found in zip(message.tool_calls, results, strict=True):
        result, result_key = found or (None, key)
        if result is not None and COMPACT_KEY in result.additional_kwargs:
            yield from _kept_lines(result, result_key)
            continue
        outcome = _outcome(result)  # who deletes a result takes back what it said
        args = {name: value for name, value in call["args"].items() if (call["name"], name) != (READ_MORE, CURSOR)}
        yield RecordLine("done", f"{_call(call['name'], args)}{outcome}", result_key if outcome else key, 1)
        yield from _values("\n".join(str(value) for _, value in _leaves(args)), key, uses=1)
        if result is not None:
            yield from _values(_found(result), result_key, uses=0)
    intents = [s for s in _sentences(text[-DOCUMENT_CHARS:]) if _NEXT.search(s)]
    if intents:
        yield RecordLine("open", _clipped(intents[-1], STATEMENT_CHARS), key, 1)


def _of_person(text: str, key: str, previous: AnyMessage | None) -> Iterator[RecordLine]:
    is_output, is_document = _kind_of(text, previous)
    found = [] if is_output and is_document else _statements(_ends(text), key)
    is_cut = len(found) >= MAX_STATEMENTS or any(statement.text.endswith("…") for statement in found)
    if is_document or is_cut:
        yield from _values(text, key, uses=0 if is_output and is_document else 1)
    yield from (statement for statement in found if not is_document or statement.uses >= HOLDS)


def _kind_of(text: str, previous: AnyMessage | None) -> tuple[bool, bool]:
    """Whether what a person sent answers a block of code, and whether it is a document."""
    is_output = isinstance(previous, AIMessage) and not previous.tool_calls and "```" in _text(previous.content)
    return is_output, len(text) > (OUTPUT_CHARS if is_output else DOCUMENT_CHARS)


def _ends(text: str) -> list[str]:
    """The lines of both ends of a text."""
    both = f"{text[:DOCUMENT_CHARS]}\n{text[-DOCUMENT_CHARS:]}" if len(text) > 2 * DOCUMENT_CHARS else text
    return both.split("\n")


def _statements(lines: Sequence[str], key: str) -> list[RecordLine]:
    """What a person says; what follows a label on its line ("RULE: ...") holds as the labelled statement does."""
    found = list[RecordLine]()
    for line in map(one_line, lines):
        sentences = _sentences(line)
        uses = HOLDS if sentences and LABEL.match(sentences[0]) else 1
        for made in (_said(sentence, key) for sentence in sentences):
            found.append(made if made.uses >= uses else replace(made, uses=uses))
    return found[:MAX_STATEMENTS]


def _sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    found = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
    return [part for part in found if len(part) > 1]


def _said(statement: str, source: str) -> RecordLine:
    """Return the line for a statement of a person; a standing instruction is whole, other talk is cut."""
    if is_standing(statement):
        return RecordLine("said", _cut(statement, DOCUMENT_CHARS), source, HOLDS)
    return RecordLine("said", _cut(statement, STATEMENT_CHARS), source, 1)


def _has_value(statement: str) -> bool:
    return any(character.isdigit() for character in statement) or any(map(is_value, WORD.findall(statement)))


def _call(name: str, args: Mapping[str, Any]) -> str:
    values = {
        label: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for label, value in args.items()
    }
    if len(values) == 1:
        (shown,) = values.values()
    else:
        shown = ", ".join(f"{label}={_clipped(value, ARGUMENT_CHARS)}" for label, value in values.items())
    return f"{_name(name)}({_clipped(shown, CALL_CHARS)})"


def _text(content: Any) -> str:
    """The text of a message without the colours and cursor moves of a terminal, which stick to words."""
    return TERMINAL.sub("", text_of(content))


def _found(result: AnyMessage) -> str:
    """What a result says; of a page of a large one its data, without marks, counts and cursor, which name nothing."""
    text = _text(result.content)
    is_page = NEXT_PAGE in text or PAGE_LABEL in text
    return "\n".join(map(_without_frame, text.split("\n"))) if is_page else text


def _without_frame(line: str) -> str:
    at = line.find(NEXT_PAGE)
    if at >= 0:
        return line[: max(0, line.rfind("[", 0, at))]
    return "" if line.endswith(PAGE_LABEL) or PAGE_FRAME.fullmatch(line) else line


def _outcome(result: ToolMessage | None) -> str:
    if result is None:
        return " → no result"
    text = _found(result).strip()
    if result.status == "error":
        return f" → error {_clipped(text, OUTCOME_CHARS)}"
    return f" → {_clipped(text, OUTCOME_CHARS)}" if text and len(text) <= OUTCOME_CHARS else ""


def _values(text: str, key: str, *, uses: int) -> Iterator[RecordLine]:
    """The values of a text; of a result those first whose like it has fewest of."""
    found: dict[str, tuple[str, str]] = {}
    for label, value in labelled(text):
        part = _part(label, value)
        is_other = value in found and are_of_two_things(found[value][1], part)
        found.setdefault(part if is_other else value, (value, part))
        if len(found) >= MAX_VALUES:
            break
    shapes: dict[str, int] = {}
    ranked = []
    for order, (value, part) in enumerate(found.values()):
        shape = _RUN.sub(r"\1", value[:LABEL_CHARS].translate(_SHAPE)) if uses == 0 else ""
        shapes[shape] = shapes.get(shape, -1) + 1
        ranked.append((shapes[shape].bit_length() if uses == 0 else 0, order, part))
    for _, _, part in sorted(ranked):
        yield RecordLine("seen", part, key, uses)


def unused_results(messages: Sequence[AnyMessage], results: Sequence[int]) -> list[int]:
    """Return those of some tool results that nothing was taken from, by position.

    Nothing was taken from one when no identifier, path or number in it occurs in what the agent wrote or called after
    it. A result without any cannot be judged and is left out.
    """
    later, unused = "", []
    end = len(messages)
    for index in reversed(results[-MAX_JUDGED:]):
        answers = (one for one in messages[index + 1 : end] if isinstance(one, AIMessage))
        later += "\n".join(f"{_text(one.content)}\n{[call['args'] for call in one.tool_calls]}" for one in answers)
        later = later[-JUDGED_CHARS:]  # what follows soonest stands last
        values = {value for _, value in islice(labelled(_found(messages[index])), MAX_VALUES)}
        if values and not any(value in later for value in values):
            unused.append(index)
        end = index + 1
    return unused[::-1]


def _part(label: str, value: str) -> str:
    is_plain = WORD.fullmatch(value) and not _LIKE_A_START.match(value)
    quoted = value if is_plain else f'"{value}"'
    return f"{label}={quoted}" if label and not (_TELLING.search(value) and is_value(value)) else quoted


def labelled(text: str) -> Iterator[tuple[str, str]]:
    """Yield `(label, value)` for what a text names and numbers: fields of JSON, else tokens with the word before them.

    Examples:
        >>> list(labelled('{"order": "#W12", "item": {"name": "Desk Lamp", "id": 1008292230}}'))
        [('order', '#W12'), ('name', 'Desk Lamp'), ('id', '1008292230')]
        >>> list(labelled("Moved order 88213 to src/app.py"))
        [('order', '88213'), ('', 'src/app.py')]
    """
    if len(text) > MAX_SCAN_CHARS:
        text = f"{text[: MAX_SCAN_CHARS * 2 // 3]}\n{text[-MAX_SCAN_CHARS // 3 :]}"
    if text.lstrip()[:1] in {"{", "["}:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            for label, value in _leaves(data):
                yield from _of_field(label, value)
            return
    yield from _tokens(text)


def _of_field(label: str, value: Any) -> Iterator[tuple[str, str]]:
    if is_value(label) and not (label.isidentifier() and label.islower()):  # such a field has a value to show
        yield "", _unquoted(label)
    name = _name(label)
    if not isinstance(value, str):
        if not isinstance(value, bool) and len(str(value)) >= MIN_NUMBER_CHARS:
            yield name, str(value)
    elif len(value) <= TEXT_VALUE_CHARS and (" " in value.strip() or _WORD.fullmatch(value)):
        if shown := _unquoted(value):
            yield name, shown
    else:
        for own, token in _tokens(value):
            yield own or name, token


def _unquoted(text: str) -> str:
    """A text that can stand between quotes on a line."""
    return one_line(text.replace('"', ""))


def _name(label: str) -> str:
    """A name without signs that could pass for those of the record: what begins a line comes from anywhere."""
    return _NO_NAME.sub("_", label.strip())[:LABEL_CHARS]


def _leaves(value: Any, label: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar of nested data with the name of its field, in order, without recursion."""
    stack = [(label, value)]
    while stack:
        label, value = stack.pop()
        if isinstance(value, Mapping):
            stack.extend((str(key), item) for key, item in reversed([*value.items()]))
        elif isinstance(value, list | tuple):
            stack.extend((label, item) for item in reversed(value))
        elif value is not None:
            yield label, value


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        label = ""
        for match in WORD.finditer(line):
            value = match[0].strip(EDGES)
            if is_value(value):
                yield label, value
                label = ""
            elif _PLAIN_WORD.fullmatch(value):
                label = "" if FILLER.fullmatch(value) else value


def _clipped(text: str, chars: int) -> str:
    return _cut(one_line(text[: 4 * chars]), chars)


def _cut(line: str, chars: int) -> str:
    return line if len(line) <= chars else f"{line[: chars - 1].rstrip()}…"
