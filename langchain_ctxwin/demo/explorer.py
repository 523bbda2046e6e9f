"""The offline model of the demo, which sees nothing but its request, and the questions it understands."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxwin.demo.folder import Folder

QUESTIONS = {
    "largest": "Which file of the whole folder is the largest? Give its size in bytes.",
    "tour": "Go through lines 1 to {last} of `{file}`, {page} lines at a time. How many of them contain `{term}`?",
    "recall": "One last thing: what was your answer to my very first question?",
}
"""What the model understands, by kind; the text in braces is filled in, and read back."""

ANSWERS = {
    "largest": "It is {largest} with {bytes} bytes.",
    "tour": "{hits} of them do.",
    "recall": "It was: {answer}",
}

# what a message may ask for that holds until the end
RULE = re.compile(r"end every answer with the word (\w+)")
# begin messages that somebody put in between: a request to continue, the record
NOT_ASKED = ("[", "<record>")
NOTE = re.compile(r"Note to myself: (\d+) so far")

TOUR_PAGES = 13  # many more than a window holds
MOST_LINES, LEAST_LINES = 70, 5  # of a page
PAGE_CHARS_PER_TOKEN = (
    0.7  # of the window: one page of a tour then takes up to a quarter of it
)
NUMBER_CHARS = 8  # before each line
WORD = re.compile(r"[^\W\d_]{4,16}")

Asked = tuple[str, str]
"""A question, and what the answer has to begin with: worked out from the files, without the agent's tools or model."""


def patterns(questions: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Turn templates of questions into the patterns that read them back."""
    return {
        kind: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^`]+?)", re.escape(text)))
        for kind, text in questions.items()
    }


PATTERNS = patterns(QUESTIONS)


class Sight:
    """What one request shows: the question, the rule, the first answer, the newest call and its result."""

    def __init__(
        self, messages: Sequence[BaseMessage], patterns: Mapping[str, re.Pattern[str]]
    ) -> None:
        asked: list[tuple[int, str]] = [
            (index, message.text)
            for index, message in enumerate(messages)
            if isinstance(message, HumanMessage)
            and not message.text.startswith(NOT_ASKED)
        ] or [(0, "")]
        first, (last, question) = asked[0][0], asked[-1]
        self.key = f"call-{len(question)}-{len(messages)}"
        self.kind, self.fields = "", dict[str, str]()
        for kind, pattern in patterns.items():
            if match := pattern.search(question):
                self.kind, self.fields = kind, match.groupdict()
        rules = (RULE.search(text) for _, text in asked)
        self.rule_word = next((rule[1] for rule in rules if rule), "")
        answers = (
            message.text.partition("\n")[0]
            for message in messages[first:]
            if isinstance(message, AIMessage) and not message.tool_calls
        )
        self.first_answer = next(answers, "")
        self.call, self.note, self.result = None, -1, ""
        for message in messages[last + 1 :]:
            if isinstance(message, AIMessage) and message.tool_calls:
                self.call = message.tool_calls[0]
                note = NOTE.search(message.text)
                self.note = int(note[1]) if note else -1
            elif isinstance(message, ToolMessage):
                self.result = message.text

    def answer(self, text: str) -> AIMessage:
        """Write an answer as the rule demands."""
        return AIMessage("\n".join(filter(None, [text, self.rule_word])))

    def lost(self, what: str) -> AIMessage:
        """Say what is missing: it is never guessed."""
        return self.answer(f"I cannot see {what}.")

    def recalled(self) -> AIMessage:
        """Repeat the first answer, which stays in view beside its question."""
        if not self.first_answer:
            return self.lost("my first answer")
        return self.answer(ANSWERS["recall"].format(answer=self.first_answer))

    def calling(self, text: str, name: str, **args: Any) -> AIMessage:
        """Call a tool."""
        call = {"name": name, "args": args, "id": self.key}
        return AIMessage(text, tool_calls=[call])


def explore(messages: Sequence[BaseMessage], _tools: Sequence[Any]) -> AIMessage:
    """Answer a question about a folder from what the request shows, or call the tools for it."""
    sight = Sight(messages, PATTERNS)
    if not sight.kind:
        return sight.lost("a question that I understand")
    if sight.kind == "recall":
        return sight.recalled()
    return _largest(sight) if sight.kind == "largest" else _tour(sight)


def _largest(sight: Sight) -> AIMessage:
    if not sight.result:
        text = "I list the largest file."
        return sight.calling(text, "list_files", order="size", limit=1)
    size, _, path = sight.result.split("\n")[0].partition(" ")
    return sight.answer(ANSWERS["largest"].format(largest=path, bytes=size))


def _tour(sight: Sight) -> AIMessage:
    """Read page by page; the count so far travels in a note, because old pages leave the view."""
    hits = first = 0
    end, fields = int(sight.fields["last"]), sight.fields
    if sight.call:
        args = sight.call["args"]
        numbered_lines = [
            line.partition(": ") for line in sight.result.split("\n")[:-1]
        ]
        first = args["last_line"]
        wanted = list(map(str, range(args["first_line"], first + 1)))
        if sight.note < 0 or [number for number, *_ in numbered_lines] != wanted:
            return sight.lost(f"all lines up to {first}, or my note about those before")
        hits = sight.note + sum(fields["term"] in text for *_, text in numbered_lines)
        if first == end:
            return sight.answer(ANSWERS["tour"].format(hits=hits))
    last = min(first + int(fields["page"]), end)
    page = {"path": fields["file"], "first_line": first + 1, "last_line": last}
    return sight.calling(f"Note to myself: {hits} so far.", "read_file", **page)


def interview(folder: Folder, *, window_tokens: int) -> Iterator[Asked]:
    """Yield the questions of a conversation without end; the same folder gives the same ones."""
    by_size = sorted(folder.sizes, key=lambda name: -folder.sizes[name])
    answer = {"largest": by_size[0], "bytes": folder.sizes[by_size[0]]}
    yield QUESTIONS["largest"], ANSWERS["largest"].format(**answer)
    tours = list[tuple[str, list[str], int]]()
    # the larger third of the files is asked about
    for name in by_size[: 1 + len(by_size) // 3]:
        lines = folder.lines(name)
        longest = max(map(len, lines))
        room = int(window_tokens * PAGE_CHARS_PER_TOKEN)
        page = min(MOST_LINES, room // (longest + NUMBER_CHARS))
        if longest and page >= LEAST_LINES:
            tours.append((name, lines[: TOUR_PAGES * page], page))
    dice = random.Random(0)  # noqa: S311  # no secret
    while tours:
        name, lines, page = dice.choice(tours)
        term = dice.choice(WORD.findall("\n".join(lines)) or ["e"])
        tour = {"file": name, "last": len(lines), "page": page, "term": term}
        hits = sum(term in line for line in lines)
        yield QUESTIONS["tour"].format(**tour), ANSWERS["tour"].format(hits=hits)
