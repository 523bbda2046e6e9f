"""Lines for the record of messages that leave the view, written without a model: how each line is made.

A statement of a person, a call with its telling arguments and what came of it, and what a result showed: a line for
each object that has a key, else names and numbers with the word before them. How lines are merged, ordered and shown
stands in `record`.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, filterfalse, groupby, islice, zip_longest
from textwrap import wrap
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from langchain_ctxwin.core.provider_blocks import (
    compact_json,
    said_in,
    text_of,
)
from langchain_ctxwin.core.record import (
    ARROW,
    EDGES,
    HOLDS,
    JOINT,
    MAX_VALUE_CHARS,
    NAMED,
    NO_RESULT,
    PREFIX,
    SHOWN,
    USED,
    WORD,
    RecordLine,
    cut_short,
    has_digit,
    is_value,
    one_line,
)
from langchain_ctxwin.core.standing import (
    DOCUMENT_CHARS,
    MAX_STATEMENTS,
    STATEMENT_CHARS,
    StandingTest,
    is_standing,
    sentences,
    statements,
)
from langchain_ctxwin.core.turns import split_steps

# The tool by which a model reads on in a large result, and its argument that says where. It ends within minutes.
READ_MORE, CURSOR = "read_more", "cursor"
# Around the data of a page: what it is, two marks, what of it is left out, and the cursor of the next one.
_PAGE_FRAME = re.compile(
    r"^.*ata, not instructions\.\]$|^</?data [\w-]{1,40}>$|^\((?:rows of|left out:|cut short:|no field matches) .*\)$"
    rf"|\[[^\[\n]*{READ_MORE}\({CURSOR}=.*$",
    re.MULTILINE,
)
# A result of a server of tools, as Python prints that of the Model Context Protocol's own package, and as it is sent.
_PRINTED = re.compile(
    r"(?:(?:meta=\S+ )?content=)?\[?TextContent\(type='text', text="
    r"(?:'((?:[^'\\]|\\.)*+)'|\"((?:[^\"\\]|\\.)*+)\")(?:, \w+=\w+)*\)(?:, |\](?: \w+=\w+)*)?"
)
_ESCAPE = re.compile(r"\\(?:[nrt'\"\\]|x[0-9a-f]{2}|u[0-9a-f]{4})")
MAX_SCAN_CHARS = 60_000  # looked at in one message, two thirds at its head: linear time, and more than a record holds
# taken from one text that a result showed, the rarest first: more are words of a program
MAX_NAMES = 8
# Of things in a text that leave or stay together: what a fact is of, and its value. Of 2, 3 and 4 this number showed
# most of `benchmarks/sufficiency.py` for the least tokens.
FEW_NAMES = 2
MAX_VALUES = 2_000  # things taken from one message: many times more than a record holds
OUTPUT_CHARS = 400  # the same for one that answers a block of code, as agents without tool calls get their results
FEW_LINES = 3  # of a result: it says all that came of a call
SHORT_CHARS = 40  # an answer that says no more than that it was one
# read at a glance
ANSWER_CHARS = CALL_CHARS = 200
ARGUMENT_CHARS = OUTCOME_CHARS = 120
SCRIPT_CHARS = LAST_CHARS = 60  # of a script in a call; of a long output, its last line
# Of how an agent begins to say what it does: it begins the next step alike. With 60 the same stands, for more tokens.
OPENING_CHARS = 48
# of a row: an object of more fields is several, or none of it would have room; of a text field kept whole, and its name
ROW_CHARS, TEXT_VALUE_CHARS, LABEL_CHARS = 480, 48, 40
SHORT_WORD = 5  # of a field: "yes" and "False" say nothing without its name
# lines, most of them of one word: a listing, which leaves its size only
LISTING_LINES, LISTING_SHARE = (40, 0.8)
MOST_FOLDERS = 5  # more of them in one text are a tree
TAIL_CHARS = 4_000  # of a result: where programs say how they ended

# What a terminal is told beside the text (ECMA-48): colours and cursor moves, titles and links, other commands.
TERMINAL = re.compile(
    r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)?|\x1b[ -/]*+[0-Z\\^-~]"
)

Result = tuple[ToolMessage, str]  # a result with the id of its message
LEAST_LABEL_CHARS, MOST_LABEL_CHARS = 3, 24  # of a word that says what follows it
# a word of `WORD` with a digit or a sign of a name: all others are no values, and most words are others
_SIGNED = re.compile(
    r"(?<![\w./#@:+$€£%~-])[A-Za-z:+$€£%~-]*+[0-9_./#@][A-Za-z0-9_./#@:+$€£%~-]*+",
    re.ASCII,
)
_FRAGMENT = re.compile(r"__\w+__$|(?:self|cls|this)\.")  # a word of a program
_SMALL_WORDS = "the this that and are was has had not for its from with"
# a value that holds a word needs no label
_TELLING = re.compile(r"[A-Za-z]{4}|[a-z]{3}")
_NO_NAME = re.compile(r"[^\w.@#$€%/-]+")
_NAMING = re.compile(r"\d{6}|[A-Za-z][_-]?\d|\d[A-Za-z]|\w/\w")
_SHAPE = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "a" * 26 + "A" * 26 + "9" * 10,
)
_CODE = re.compile(r"(?:```[^\n`]*|<command>)\n(.*?)(?:```|</command>|\Z)", re.DOTALL)
_NEXT = re.compile(
    r"\b(?:I['\u2019]ll|I will|I'm going to|let (?:me|us)|let['\u2019]s|next,? I|now I|I need to|I still)\b",
    re.IGNORECASE,
)
_FINDING = re.compile(
    r"\b(?:the (?:issue|problem|bug|cause|fix|error|reason)\b.* (?:is|was|lies)|because|root cause|turns out|found that"
    r"|confirm(?:s|ed)|decided|instead of|passes|fail(?:s|ed)|fixed)\b",
    re.IGNORECASE,
)
# What names an object among others of its kind, and what says how something went.
_KEY_FIELD = re.compile(
    r"(?:^|_)(?:id|key|uuid|sku|path|url|email|number)s?$|[a-z](?:I[dD]|Key|Number)s?$"
)
_TITLE_FIELD = re.compile(r"(?:^|_)(?:name|title|subject|label)$")
_ID_FIELD = re.compile(r"(?:^i|_i|I)[dD]s?$")
_ENDING = re.compile(r"(?:_ids?|I[dD]s?|s)$")
_STATE_FIELD = re.compile(
    r"(?:status|state|result|message|success|total|count|balance|reason)$",
    re.IGNORECASE,
)
_EXIT = re.compile(
    r"(?:\[[\w ]{1,40})?<?\b(?:return ?code|exit(?:ed)?(?: with)?(?: (?:code|status))?)\b[ :=>]{1,3}(-?\d+)"
    r"(?:\.?\])?",
    re.IGNORECASE,
)
_FAILURE = re.compile(
    r"^(?:E\s+|- (?:E\d+ )?)?"
    r"(?:(?:[\w.]*(?:Error|Exception)|(?:\w+\.)+[A-Z]\w+(?=: )|error|fatal)\b(?::.*)?|(?!\d+:)(?:\S+: ){1,3}.*"
    r"(?:not found|No such file|[Dd]enied|cannot |invalid ).*)$"
    # a field of data in a string, as servers of tools wrap what failed
    r"|\berror\\+\": \\+\"[^\"\\\n]{4,}",
    re.MULTILINE,
)
_ESCAPED_QUOTE = re.compile(r"\\+\"")
_COUNTED = re.compile(
    r"\b\d+ (?:passed|failed|errors?|skipped)\b|\bRan \d+ tests?\b|\bFAILED \([^)\n]*\)"
)
_NOT_PASSED = re.compile(r"\b[1-9]\d* (?:failed|errors?)\b|\bFAILED \(")
# Where an agent is, as its shell shows it.
_PROMPT = re.compile(
    r"^(?:\((?:Open file|Current directory): .*\)|bash-\$|[\w.-]+@[\w.-]+:\S* [#$])\s*$\n?"
    r"|\AOBSERVATION:\n|\[Python Interpreter: \S+\]$",
    re.MULTILINE,
)
_CHEER = re.compile(r"\w+[.!]")  # a sentence of one word, as "Perfect!"
# words that do not read as said by somebody else
_UNLABELLED = re.compile(r"[^\W\d_][^\s:\uff1a]* ")
_TAG = re.compile(r"</?\w+>")
# where a numbered line begins with a word
_LINE_NUMBER = re.compile(r"^\d+(?::(?=[A-Za-z_]+$)|-(?=[a-z_]{3,}$))")
_CLOSING_TAG = re.compile(r"</[\w:.-]+>")
# a line of `ls -l`
_LISTED = re.compile(r"(?:total \d+|[-dlbcps][-rwxsStT]{9}[.+@]?\s.*)")
# above the names in a folder, of whatever columns, as `ls -R` shows each
_FOLDER = re.compile(r"\n\r?\n\S*/\S*:\r?\n")
_LICENCE = re.compile(
    r"\s*[^\n]{0,40}\blicen[cs]e\b[^\n]{0,40}\n[\s\S]*(?:hereby granted|warrant)",
    re.IGNORECASE,
)


def record_lines(
    messages: Sequence[AnyMessage],
    ids: Sequence[str],
    before: AnyMessage | None = None,
    holds: StandingTest = is_standing,
    parameters: Collection[str] = (),
) -> Iterator[RecordLine]:
    """Yield the lines of whole steps that leave after a message; each thing seen is a line until it is merged.

    What tools call their `parameters` stays longest of what results showed.
    """
    taken = {_plain(name) for name in parameters}
    taken |= {"id" for name in parameters if _ID_FIELD.search(name)}
    # ids of calls are used again: a result answers a call of its own step, and those without ids come in order
    for step in split_steps(messages):
        parts = [*zip(step.messages, ids[step.index : step.stop], strict=True)]
        results = defaultdict[str, list[Result]](list)
        for message, key in parts:
            if isinstance(message, ToolMessage):
                results[message.tool_call_id].append((message, key))
        for message, key in parts:
            if isinstance(message, AIMessage):
                yield from _of_answer(message, key, results, taken)
            elif isinstance(message, HumanMessage):
                yield from _of_person(_text(message.content), key, before, holds)
            # a system message in mid-conversation
            elif not isinstance(message, ToolMessage):
                yield from _values(_text(message.content), key, uses=USED)
            before = message
        # of calls that were made before
        for result, key in chain(*results.values()):
            yield from _seen(_result_text(result)[0], key, taken)


def parse_record(text: str) -> Iterator[RecordLine]:
    """Yield the lines of a rendered record, or of any other text, as they are; statements by what they state."""
    for number, line in enumerate(map(one_line, text.split("\n"))):
        if line.startswith(PREFIX["said"]):
            said = line.removeprefix(PREFIX["said"])
            yield from statements(said, f"#{number}", is_standing)
        elif line and not line.startswith(PREFIX["open"]):
            yield RecordLine("done", line, f"#{number}", USED)


def _of_answer(
    message: AIMessage,
    key: str,
    results: Mapping[str, list[Result]],
    parameters: Collection[str],
) -> Iterator[RecordLine]:
    said = said_in(message)
    commands = [] if message.tool_calls else _CODE.findall(said[:MAX_SCAN_CHARS])
    for command in commands:
        yield RecordLine("done", f"ran {_clipped(command, CALL_CHARS)}", key, NAMED)
    if len(said.strip()) > SHORT_CHARS and not (commands or message.tool_calls):
        yield RecordLine("done", f"answered: {_clipped(said, ANSWER_CHARS)}", key, USED)
    told = sentences(said[:DOCUMENT_CHARS]) if message.tool_calls else ()
    for place, sentence in enumerate(filterfalse(_CHEER.fullmatch, told)):
        is_plan = _NEXT.search(sentence)
        is_found = not is_plan and _FINDING.search(sentence)
        if not place or is_found:
            chars = OPENING_CHARS if is_plan else STATEMENT_CHARS
            words = _clipped(sentence, chars)
            label = "" if _UNLABELLED.match(words) else "noted: "
            uses = USED if is_found else NAMED
            yield RecordLine("done", f"{label}{words}", key, uses)
    result_key = key
    for call in message.tool_calls:
        waiting = results[call["id"] or ""]
        # who deletes a result takes back what it said
        result, result_key = waiting.pop(0) if waiting else (None, key)
        args = {
            name: value
            for name, value in call["args"].items()
            if (call["name"], name) != (READ_MORE, CURSOR)
        }
        texts = [*chain(*chain(*(fields.values() for fields in _objects(args))))]
        text, outcome, is_error = "", NO_RESULT, False
        if result is not None:
            text, is_error = _result_text(result)
            text = _without_echo(text, texts)
            outcome = _outcome(text, is_error=is_error)
        call_text = _call(call["name"], args)
        yield _done(call_text, outcome, result_key, is_error=is_error)
        yield from _values("\n".join(texts), result_key, uses=USED)
        yield from _seen(text, result_key, parameters, {*texts})
    # below the last call, as what its result showed
    if not commands:
        yield from _values(said, result_key, uses=NAMED)
    # what is done at once, and an answer that leaves nothing open, close what was
    is_acting = message.tool_calls or commands
    plans = [] if is_acting else sentences(said[-DOCUMENT_CHARS:])
    intent = next(filter(_NEXT.search, reversed(plans)), "")
    yield RecordLine("open", _clipped(intent, STATEMENT_CHARS), key, USED)


def _of_person(
    text: str, key: str, previous: AnyMessage | None, holds: StandingTest
) -> Iterator[RecordLine]:
    if previous and (commands := _commands_before(text, previous)):
        text = _PROMPT.sub("", text)
        yield _done(f"ran {_clipped(commands[-1], CALL_CHARS)}", _outcome(text), key)
        yield from _values(_text(previous.content), key, uses=NAMED)
        yield from _seen(text, key, ())
        return
    lines, is_document = statements(text, key, holds), len(text) > DOCUMENT_CHARS
    if (
        is_document
        or len(lines) >= MAX_STATEMENTS
        or any(line.text.endswith("…") for line in lines)
    ):
        yield from _values(text, key, uses=USED)
    yield from (line for line in lines if not is_document or line.uses >= HOLDS)


def _commands_before(text: str, previous: AnyMessage) -> list[str]:
    """The blocks of code that a user message answers, as agents without tool calls get their results; else empty.

    A person's reply to a block of code is short, and has no marks of a shell.
    """
    is_result = len(text) > OUTPUT_CHARS or _PROMPT.search(text)
    if not is_result or not isinstance(previous, AIMessage) or previous.tool_calls:
        return []
    return _CODE.findall(_text(previous.content)[:MAX_SCAN_CHARS])


# ---- calls and what came of them ------------------------------------------------------------------------------------


def _done(call: str, outcome: str, key: str, *, is_error: bool = False) -> RecordLine:
    """A call with what came of it; one that failed stays as long as what the agent found out."""
    has_failed = is_error or _FAILURE.match(outcome) or _NOT_PASSED.search(outcome)
    uses = USED if has_failed else NAMED
    return RecordLine("done", call + ARROW + outcome, key, uses)


def _call(name: str, args: Mapping[str, Any]) -> str:
    """A call in the form in which its model writes it, so that the next one is written alike; long texts are cut."""
    texts = {name: text for name, text in args.items() if isinstance(text, str)}
    shown = dict(args)
    for label, text in texts.items():
        chars = SCRIPT_CHARS if "\n" in text else ARGUMENT_CHARS
        shown[label] = _clipped(_from_difference(text, texts.values()), chars)
    # the arrow stands before what came of it alone
    written = compact_json(shown).replace(ARROW.strip(), "\u203a")
    return one_line(f"{_name(name)} {_clipped(written, CALL_CHARS)}")


def _from_difference(value: str, others: Iterable[str]) -> str:
    r"""The text from the line on by which it differs from another argument: what an edit changes, not its surroundings.

    Examples:
        >>> _from_difference(
        ...     "def size(self):\n    return 1", ["def size(self):\n    return 2"]
        ... )
        '…return 1'
    """
    lines = value.split("\n")
    pairs = (
        zip_longest(lines, other.split("\n")) for other in others if other != value
    )
    differing = (next(i for i, (one, two) in enumerate(p) if one != two) for p in pairs)
    same = max(differing, default=0)
    return "…" + "\n".join(lines[same:]).lstrip() if same else value


def _outcome(text: str, *, is_error: bool = False) -> str:
    """How a call ended: its error, counts and exit status; else its text, the fields of state, or its size."""
    data = _data(text)
    # A backslash of a short text without quotes is one: in a path of Windows an n may follow it.
    is_plain = len(text) <= OUTCOME_CHARS and text[:1] not in "\"'"
    text = (text if is_plain or data is not None else _unescaped(text)).strip()
    end = (
        text[-TAIL_CHARS:]
        if len(text) < 2 * TAIL_CHARS
        else f"{text[:OUTCOME_CHARS]}\n{text[-TAIL_CHARS:]}"
    )
    failures = _FAILURE.findall(end) or [text[:TAIL_CHARS]][:is_error]
    endings = [
        _clipped(_ESCAPED_QUOTE.sub('"', failure), OUTCOME_CHARS)
        for failure in failures[-1:]
    ]
    endings += dict.fromkeys(_COUNTED.findall(end))
    statuses = _EXIT.findall(end)[-1:]
    endings += [f"exit {status}" for status in statuses if status != "0"]
    if endings:
        told = ", ".join(endings)
        is_named = not is_error or told.lower().startswith("error")
        return told if is_named else f"error {told}".rstrip()
    if isinstance(data, Mapping):
        states = [
            f"{_name(name)}={value}"
            for name, value in data.items()
            if _STATE_FIELD.search(name) and not isinstance(value, Mapping | list)
        ]
        sizes = [
            f"{len(value):,} {_name(name)}"
            for name, value in data.items()
            if isinstance(value, list)
        ]
        if states or len(text) > OUTCOME_CHARS:
            return (
                _clipped(", ".join([*states, *sizes]), OUTCOME_CHARS)
                or f"{len(data):,} fields"
            )
    text = _TAG.sub(" ", _EXIT.sub(" ", text) if statuses else text).strip()
    plain = one_line(text[: 4 * OUTCOME_CHARS])
    if len(text) < 4 * OUTCOME_CHARS and len(plain) <= OUTCOME_CHARS:
        return plain or "ok"
    return f"{len(data):,} rows" if data else _told(text, plain)


def _without_echo(text: str, asked: Iterable[str]) -> str:
    """A result without the command above it, as a terminal shows it."""
    for command in asked:
        text = text.removeprefix(f"{command}\n")
    return text


def _told(text: str, plain: str) -> str:
    """What a longer text says of itself: its beginning where lines are few, else their number and the last one."""
    lines = text.split("\n")
    if len(lines) <= FEW_LINES and len(plain) <= 2 * OUTCOME_CHARS:
        return cut_short(plain, OUTCOME_CHARS)
    size = f"{len(lines):,} lines" if len(lines) > 1 else f"{len(text):,} characters"
    if _is_listing_or_licence(text):
        return size
    return f'{size}, "{_clipped(lines[-1], LAST_CHARS)}"'


def _text(content: Any) -> str:
    """The text of a message without the colours and cursor moves of a terminal, which stick to words."""
    return TERMINAL.sub("", text_of(content))


def _result_text(result: ToolMessage) -> tuple[str, bool]:
    """The text of a result, without what a server wrapped it in, and whether it failed; of a page its data alone."""
    text = _text(result.content)
    is_error = result.status == "error"
    if _PRINTED.match(text):
        is_error |= text.endswith("isError=True")
        text = TERMINAL.sub("", _PRINTED.sub(_as_written, text)).rstrip("\n")
    data = _data(text) if '"content"' in text else None
    if isinstance(data, Mapping) and data.keys() <= {"content", "isError", "_meta"}:
        is_error |= data.get("isError") is True
        text = _text(data.get("content")) or text
    return _PAGE_FRAME.sub("", _PROMPT.sub("", text)), is_error


def _as_written(printed: re.Match[str]) -> str:
    """What stands between the quotes, a line for itself."""
    text = printed[1] if printed[2] is None else printed[2]
    escaped = _ESCAPE.sub(lambda one: one[0].encode().decode("unicode_escape"), text)
    return f"{escaped}\n"


def _unescaped(text: str) -> str:
    """A text that was put into data, as it was."""
    return text.replace("\\n", "\n") if text.count("\\n") > text.count("\n") else text


# ---- what a text shows ----------------------------------------------------------------------------------------------


def _seen(
    text: str, key: str, parameters: Collection[str], asked: Collection[str] = ()
) -> Iterator[RecordLine]:
    """Lines for a result: of data one for each object; of other texts their values."""
    data = _data(text)
    if data is not None:
        if text.lstrip()[:1] not in ("{", "["):
            yield from _values(text.partition("\n")[0], key, uses=SHOWN)
        yield from islice(_rows(data, key, parameters, asked), MAX_VALUES)
    elif not _is_listing_or_licence(text):
        yield from _values(text, key, uses=SHOWN)


def _rows(
    data: Any, key: str, parameters: Collection[str], asked: Collection[str]
) -> Iterator[RecordLine]:
    """Lines for what objects are called and for their keys; then for all of each, and values in their long texts.

    A key that was `asked` for stands in the call.
    """
    rows = list[RecordLine]()
    for fields in _objects(data):
        taken = [
            name
            for name in fields
            if _plain(name) in parameters or _KEY_FIELD.search(name)
        ]
        keys = [
            (_labelled(name, text), USED if _plain(name) in parameters else NAMED)
            for name in taken
            for text in fields[name]
            if text not in asked and is_value(text) and WORD.fullmatch(text)
        ]
        title = _title(fields) if taken else ""
        if title:
            texts = " ".join([title, *(text for text, _ in keys)])
            keys = [(texts, max([NAMED, *(uses for _, uses in keys)]))]
        yield from (RecordLine("seen", text, key, uses) for text, uses in keys)
        rows += _row(fields, key, taken)
    yield from rows


def _title(fields: Mapping[str, Iterable[str]]) -> str:
    """What an object is called, so that its keys say what they are of."""
    titles = (_thing(t) for n in fields if _TITLE_FIELD.search(n) for t in fields[n])
    return next((title for title in titles if len(title) <= LABEL_CHARS), "")


def _objects(data: Any) -> Iterator[dict[str, dict[str, None]]]:
    """The fields of each object in nested data, with their values in order; of a list its own under the list's name."""
    stack = [("", data)]
    while stack:
        label, value = stack.pop()
        fields: dict[str, dict[str, None]] = {}
        nested = []
        for name, one in _fields(label, value):
            if isinstance(one, Mapping | list | tuple):
                nested.append((name, one))
            elif one is not None:
                fields.setdefault(name, {})[str(one)] = None
        stack += reversed(nested)
        yield fields


def _fields(label: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of an object, with those of its parts; of a list its members under its own name."""
    if not isinstance(value, Mapping):
        yield from (
            (label, one)
            for one in (value if isinstance(value, list | tuple) else [value])
        )
        return
    for name, one in value.items():
        if isinstance(one, Mapping) and not has_digit(str(name)) and _is_part(one):
            yield from ((str(inner), text) for inner, text in one.items())
        else:
            yield str(name), one


def _is_part(value: Mapping[Any, Any]) -> bool:
    """True for an object in the line of the one that holds it: without a key of its own, and nothing nested."""
    has_key = any(_KEY_FIELD.search(str(name)) for name in value)
    return not (
        has_key
        or any(isinstance(one, Mapping | list | tuple) for one in value.values())
    )


def _row(
    fields: Mapping[str, Iterable[str]], key: str, taken: Collection[str]
) -> Iterator[RecordLine]:
    """One object: what a call takes and its keys first, numbers with their names."""
    cells = list[str]()
    for name in sorted(fields, key=lambda name: name not in taken):
        for text in fields[name]:
            if len(text) > TEXT_VALUE_CHARS and not WORD.fullmatch(text):
                yield from _values(
                    f"{_name(name)} {text}", key, uses=USED if name in taken else SHOWN
                )
            elif _thing(text) and len(text) <= MAX_VALUE_CHARS:
                cells.append(
                    _thing(text) if _is_plain(name, text) else _labelled(name, text)
                )
    for row in wrap(
        " ".join(cells), ROW_CHARS, break_long_words=False, break_on_hyphens=False
    ):
        yield RecordLine("seen", row, key, NAMED if taken else _use_of(row))


def _labelled(name: str, text: str) -> str:
    return f"{_name(name)}={_thing(text)}" if name else _thing(text)


def _is_plain(name: str, text: str) -> bool:
    """True for words that say by themselves what they are, without the name of their field."""
    return (
        text[0].isalpha()
        and (len(text) > SHORT_WORD or text.isupper())
        and not _KEY_FIELD.search(name)
    )


def _use_of(thing: str) -> int:
    """`NAMED` for what names one thing: a path, a number with letters or of six digits; no word of a program.

    Examples:
        >>> [
        ...     _use_of(thing)
        ...     for thing in (
        ...         "W12-7",
        ...         "src/app.py",
        ...         "user=100828",
        ...         "order=10082",
        ...         "self.order",
        ...     )
        ... ]
        [1, 1, 1, 0, 0]
    """
    return NAMED if _NAMING.search(thing) else SHOWN


def _values(text: str, key: str, *, uses: int) -> Iterator[RecordLine]:
    """The values of a text; of a result, without fragments of code, those first whose like it has fewest of."""
    parts: dict[str, str] = {}
    for label, value in islice(_tokens(text), MAX_VALUES):
        if uses != SHOWN or not _FRAGMENT.match(value):
            parts.setdefault(value, _part(label, value))
    if uses != SHOWN:
        yield from (RecordLine("seen", part, key, uses) for part in parts.values())
        return
    likes = {
        value: tuple(sign for sign, _ in groupby(value[:LABEL_CHARS].translate(_SHAPE)))
        for value in parts
    }
    number = Counter(likes.values())
    chosen = sorted(parts, key=lambda value: number[likes[value]])[:MAX_NAMES]
    things = [parts[value] for value in chosen]
    names = [thing for thing in things if _use_of(thing) == NAMED]
    if len(names) == FEW_NAMES:
        things = [" ".join(names), *(thing for thing in things if thing not in names)]
    for thing in things:
        yield RecordLine("seen", thing, key, _use_of(thing))


def _data(text: str) -> Any:
    """The object or list that a text is, if need be below its first line, or of which each line is one; else None."""
    below = text.partition("\n")[2]
    data = next((part for part in (text, below) if part.lstrip()[:1] in ("{", "[")), "")
    if len(data) <= 10 * MAX_SCAN_CHARS:
        for read in (json.loads, _json_lines):
            try:
                return read(data) or None
            except (ValueError, RecursionError):
                continue
    return None


def _json_lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _is_listing_or_licence(text: str) -> bool:
    """True for a listing or a licence, of which nothing is needed again."""
    lines = text[:MAX_SCAN_CHARS].split("\n")
    single = sum(len(line.split()) <= 1 or line[:1] in "├│└" for line in lines)
    listed = sum(bool(_LISTED.match(line)) for line in lines)
    return (
        bool(_LICENCE.match(text[:TAIL_CHARS]))
        or (len(lines) > LISTING_LINES and single > LISTING_SHARE * len(lines))
        or 2 * listed > len(lines)
        or len(_FOLDER.findall(text)) > MOST_FOLDERS
    )


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a text names and numbers, each with the word before it."""
    if len(text) > MAX_SCAN_CHARS:
        text = f"{text[: MAX_SCAN_CHARS * 2 // 3]}\n{text[-MAX_SCAN_CHARS // 3 :]}"
    text = _CLOSING_TAG.sub(" ", _unescaped(text))
    for line in text.split("\n"):
        start = 0
        for match in _SIGNED.finditer(line):
            value = match[0].strip(EDGES)
            if not line[: match.start()].strip():
                value = _LINE_NUMBER.sub("", value)
            if is_value(value):
                yield _label(line[start : match.start()]), value
                start = match.end()


def _label(text: str) -> str:
    """The last word of a text, which says what follows it; empty for a small one."""
    for word in reversed(WORD.findall(text)):
        label = word.strip(EDGES)
        if label.isalpha() and LEAST_LABEL_CHARS <= len(label) <= MOST_LABEL_CHARS:
            return "" if label.lower() in _SMALL_WORDS.split() else label
    return ""


def _part(label: str, value: str) -> str:
    return (
        f"{label}={value}"
        if label and not (_TELLING.search(value) and is_value(value))
        else value
    )


def _thing(text: str) -> str:
    """A text that can stand among others on a line."""
    return one_line(text).replace(JOINT, ", ").strip("; ")


def _plain(name: str) -> str:
    """A name of a field or parameter by which the same are known: `item_ids`, `itemId` and `items` are."""
    return _ENDING.sub("", name).replace("_", "").lower()


def _name(label: str) -> str:
    """A name without signs that could pass for those of the record: what begins a line comes from anywhere."""
    return _NO_NAME.sub("_", label.strip())[:LABEL_CHARS]


def _clipped(text: str, chars: int) -> str:
    return cut_short(one_line(text[: 4 * chars]), chars)
