"""The offline chat model: it decides from its request alone, and refuses what exceeds its window."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.limits import ModelLimits

QUESTIONS = {
    "largest": "How many files are there in the whole folder, and which one is the largest? Give its size in bytes.",
    "whole": "Read all of `{file}`. How many lines does it have, and what does line {line} say?",
    "tour": "Go through lines 1 to {last} of `{file}`, {page} lines at a time. "
    "How many of them contain `{term}`, and which line is the longest?",
    "compare": "Which of these files has the most lines with `{term}`: `{files}`?",
    "recall": "One last thing: what was your answer to my very first question?",
}
"""What the model understands, by kind; the text in braces is filled in, and read back."""

ANSWERS = {
    "largest": "There are {files} files; the largest is {largest} with {bytes} bytes.",
    "whole": "It has {lines} lines; line {line} says {text!r}.",
    "tour": "{hits} of them do; the longest is line {longest}.",
    "compare": "{file} has the most, {found}.",
    "recall": "It was: {answer}",
}

RULE = re.compile(r"end every answer with the word (\w+)")  # what a message may ask for that holds until the end
NOT_ASKED = ("[", "<record>")  # begin messages that somebody put in between: a request to continue, the record
GONE = ("[Tool result cleared", "[No result")
SEARCH_TOOLS, NOTE, FILE_SEPARATOR, QUOTE_CHARS = "search_tools", "Note to myself: ", ", ", 80
FRAME_TOKENS = 4  # role and separators around each message, and what wraps a tool's definition

PIECE = re.compile(r"[^\x00-\u024f]|\s?[A-Za-z\u00c0-\u024f]{1,6}|\d{1,3}|\n\s*|[^\w\s]{1,2}|_|\s{1,8}")
"""About what byte-pair encodings make of text: short words whole, long words in parts, numbers in threes."""

Fields = Mapping[str, str]


class RequestTooLargeError(Exception):
    """The refusal of a provider whose window a request exceeds."""

    status_code = 400
    code = "context_length_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One result of the latest calls, as far as it is visible."""

    name: str
    args: dict[str, Any]
    text: str
    is_error: bool

    @property
    def totals(self) -> list[int]:
        """The numbers in the last line, which says what the result covers."""
        return [int(number) for number in re.findall(r"\d+", self.text.rpartition("\n")[2])]

    def line(self, number: int) -> str | None:
        """Return a numbered line of a file; None when it is not visible as a whole, up to the line after it."""
        start, following = f"{number}: ", (f"{number + 1}: ", "[lines ")
        pairs = pairwise(self.text.split("\n"))
        found = (line for line, after in pairs if line.startswith(start) and after.startswith(following))
        return next((line.removeprefix(start) for line in found), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one request shows; a field is empty for what it does not show."""

    messages: Sequence[BaseMessage] = ()
    question: str = ""
    rule_word: str = ""  # what answers must end with
    note: Mapping[str, Any] = field(default_factory=dict)  # what the model wrote down beside its latest calls
    results: tuple[Result, ...] = ()  # of the latest calls, in their order; empty at the beginning of a turn
    first_answer: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """An answer, or calls with a note."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    note: Mapping[str, Any] = field(default_factory=dict)


class OfflineChatModel(BaseChatModel):
    """Explores a folder; deterministic, stateless, with a joint window that it enforces by its own count.

    Examples:
        ```python
        model = OfflineChatModel(context_window=8192, max_tokens=1024).bind_tools(tools)
        ```
    """

    model: str = "offline-explorer"
    context_window: int
    """Tokens that input and output share."""

    max_tokens: int
    """Tokens asked for the answer; they must fit beside the input."""

    @property
    def limits(self) -> ModelLimits:
        """What the model states about itself."""
        return ModelLimits(self.context_window, max_output_tokens=self.max_tokens, source="profile")

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tool definitions in the OpenAI form."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        *_: Any,
        tools: Sequence[dict[str, Any]] = (),
        max_tokens: int | None = None,
        **__: Any,
    ) -> ChatResult:
        tokens, requested = request_tokens(messages, tools), max_tokens or self.max_tokens
        if tokens + requested > self.context_window:
            raise RequestTooLargeError(
                f"This model's maximum context length is {self.context_window} tokens. However, you requested "
                f"{tokens + requested} tokens ({tokens} in the messages, {requested} in the completion). "
                "Please reduce the length of the messages or completion."
            )
        answer = self._answer(messages, [tool.get("function", tool).get("name") for tool in tools])
        output = request_tokens([answer])
        answer.usage_metadata = UsageMetadata(input_tokens=tokens, output_tokens=output, total_tokens=tokens + output)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def _answer(self, messages: Sequence[BaseMessage], tools: Sequence[str] = ()) -> AIMessage:
        """Decide, and write the decision as a message; call ids follow from what was seen."""
        sight = look(messages)
        move = self._next_move(sight)
        missing = [name for name, _ in move.calls if tools and name not in tools]
        if missing and SEARCH_TOOLS in tools and getattr(messages[-1], "name", "") != SEARCH_TOOLS:
            move = Move("I need another tool.", ((SEARCH_TOOLS, {"query": missing[0]}),))
        elif missing:
            move = lost(f"the tool {missing[0]}")
        if not move.calls:
            return AIMessage("\n".join(filter(None, [move.text, sight.rule_word])))
        seen = hashlib.sha256(f"{len(messages)} {messages[-1].text} {move}".encode("utf-8", "replace")).hexdigest()
        calls = [
            {"name": name, "args": args, "id": f"call-{seen[:8]}-{number}"}
            for number, (name, args) in enumerate(move.calls)
        ]
        note = NOTE + json.dumps(move.note) if move.note else ""
        return AIMessage("\n".join(filter(None, [move.text, note])), tool_calls=calls)

    def _next_move(self, sight: Sight) -> Move:
        """Decide what to do; what is missing from the sight is said, never guessed."""
        understood = understand(sight.question, PATTERNS)
        if understood is None:
            return lost("a question that I understand")
        if any(one.is_error or one.text.startswith(GONE) or not one.totals for one in sight.results):
            return lost(f"the results of my latest calls: {sight.results[0].text}")
        kind, fields = understood
        return SKILLS[kind](fields, sight)


def patterns(questions: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Turn templates of questions into the patterns that read them back."""
    filled = {kind: re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^`]+)", re.escape(text)) for kind, text in questions.items()}
    return {kind: re.compile(text) for kind, text in filled.items()}


PATTERNS = patterns(QUESTIONS)


def understand(text: str, known: Mapping[str, re.Pattern[str]]) -> tuple[str, Fields] | None:
    """Return the kind of the question in a text and what was filled in; None when there is none."""
    found = ((kind, pattern.search(text)) for kind, pattern in known.items())
    return next(((kind, match.groupdict()) for kind, match in found if match), None)


def look(messages: Sequence[BaseMessage]) -> Sight:
    """Read a request the way a model does: by its text and order alone."""
    people = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
    asked = [index for index in people if not messages[index].text.startswith(NOT_ASKED)]
    if not asked:
        return Sight(messages=messages)
    after = messages[asked[-1] + 1 :]
    called = [message for message in after if isinstance(message, AIMessage) and message.tool_calls]
    caller = next((one for one in reversed(called) if one.tool_calls[0]["name"] != SEARCH_TOOLS), AIMessage(""))
    try:
        note = json.loads(caller.text.partition(NOTE)[2] or "{}")
    except ValueError:  # it was clamped
        note = {}
    results, answered = [], {m.tool_call_id: m for m in reversed(after) if isinstance(m, ToolMessage)}
    for call in caller.tool_calls:
        result = answered.get(str(call["id"]), ToolMessage("[No result]", tool_call_id="none"))
        is_error = result.status == "error"
        results.append(Result(name=call["name"], args=call["args"], text=result.text, is_error=is_error))
    rules = (RULE.search(messages[index].text) for index in asked)
    answers = [message for message in messages[asked[0] : asked[-1]] if isinstance(message, AIMessage)]
    return Sight(
        messages=messages,
        question=messages[asked[-1]].text,
        rule_word=next((rule[1] for rule in rules if rule), ""),
        note=note,
        results=tuple(results),
        first_answer=next((answer.text.partition("\n")[0] for answer in answers if not answer.tool_calls), ""),
    )


def lost(what: str) -> Move:
    """Say what is missing."""
    return Move(f"I cannot see {what}.")


def request_tokens(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]] = ()) -> int:
    """Return the input tokens of one request by a rule that the package does not know; the sum of its parts."""
    texts = [json.dumps(tool) for tool in tools]
    for message in messages:
        calls = [call["name"] + json.dumps(call["args"]) for call in getattr(message, "tool_calls", ())]
        texts.append("".join([message.text, *calls, getattr(message, "tool_call_id", "")]))
    return sum(FRAME_TOKENS + text_tokens(text) for text in texts)


@lru_cache(maxsize=4_096)
def text_tokens(text: str) -> int:
    """Return the tokens of a text: words, numbers and punctuation."""
    return sum(1 for _ in PIECE.finditer(text))


def _largest(_fields: Fields, sight: Sight) -> Move:
    if not sight.results:
        return Move("I list the largest file.", (("list_files", {"order": "size", "limit": 1}),))
    result = sight.results[0]
    size, _, path = result.text.split("\n")[0].partition(" ")
    return Move(ANSWERS["largest"].format(files=result.totals[-1], largest=path, bytes=size))


def _whole(fields: Fields, sight: Sight) -> Move:
    """Read the file, then around the line when that was left out; the number of lines travels in the note."""
    if not sight.results:
        return Move("I read the whole file.", (("read_file", {"path": fields["file"]}),))
    result, wanted = sight.results[0], int(fields["line"])
    text, lines = result.line(wanted), sight.note.get("lines") or result.totals[-1]
    if text is not None:
        return Move(ANSWERS["whole"].format(lines=lines, line=wanted, text=text.strip()[:QUOTE_CHARS]))
    if sight.note:
        return lost(f"line {wanted}")
    around = {"path": fields["file"], "first_line": max(1, wanted - 2), "last_line": wanted + 2}
    text = f"{lines} lines are more than I can see at once. I read around line {wanted}."
    return Move(text, (("read_file", around),), {"lines": lines})


def _tour(fields: Fields, sight: Sight) -> Move:
    """Read page by page; what was found so far travels in the note, because old pages leave the view."""
    note: dict[str, Any] = {"at": 0, "hits": 0, "longest": 0, "chars": -1}
    last, text = int(fields["last"]), "I begin."
    if sight.results:
        lines, note = sight.results[0].text.split("\n")[:-1], dict(sight.note)
        stop = min(note.get("at", 0) + int(fields["page"]), last)
        numbers = [int(line.partition(": ")[0]) for line in lines if line[:1].isdigit()]
        if not note or numbers != list(range(note["at"] + 1, stop + 1)):
            return lost(f"all lines up to {stop}, or my note about those before")
        for number, line in zip(numbers, lines, strict=True):
            found = line.partition(": ")[2]
            note["hits"] += fields["term"] in found
            if len(found) > note["chars"]:
                note |= {"longest": number, "chars": len(found)}
        if stop == last:
            return Move(ANSWERS["tour"].format_map(note))
        note["at"], text = stop, f"{note['hits']} so far."
    page = {"first_line": note["at"] + 1, "last_line": min(note["at"] + int(fields["page"]), last)}
    return Move(text, (("read_file", {"path": fields["file"], **page}),), note)


def _compare(fields: Fields, sight: Sight) -> Move:
    """Search all files at once, with parallel calls."""
    files = fields["files"].split(FILE_SEPARATOR)
    if not sight.results:
        pattern = re.escape(fields["term"])
        searches = tuple(("search", {"pattern": pattern, "path": file}) for file in files)
        return Move(f"I search {len(files)} files at once.", searches)
    found = {result.args["path"]: result.totals[0] for result in sight.results}
    best = max(found, key=lambda file: found[file])
    return Move(ANSWERS["compare"].format(file=best, found=found[best]))


def recall(_fields: Fields, sight: Sight) -> Move:
    """Repeat the first answer, which stays in view beside its question."""
    return Move(ANSWERS["recall"].format(answer=sight.first_answer)) if sight.first_answer else lost("my first answer")


SKILLS: dict[str, Callable[[Fields, Sight], Move]] = {
    "largest": _largest,
    "whole": _whole,
    "tour": _tour,
    "compare": _compare,
    "recall": recall,
}
