"""The offline model of the demo, which sees nothing but its request, and the questions it understands."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_ctxwin.demo.folder import LINE_CHARS, Folder

QUESTIONS = {
    "largest": "How many files are there in the whole folder, and which one is the largest? Give its size in bytes.",
    "tour": "Go through lines 1 to {last} of `{file}`, {page} lines at a time. How many of them contain `{term}`?",
    "compare": "Which of these files has the most lines with `{term}`: `{files}`?",
    "recall": "One last thing: what was your answer to my very first question?",
}
"""What the model understands, by kind; the text in braces is filled in, and read back."""

ANSWERS = {
    "largest": "There are {files} files; the largest is {largest} with {bytes} bytes.",
    "tour": "{hits} of them do.",
    "compare": "{file} has the most, {found}.",
    "recall": "It was: {answer}",
}

# what a message may ask for that holds until the end
RULE = re.compile(r"end every answer with the word (\w+)")
# begin messages that somebody put in between: a request to continue, the record
NOT_ASKED = ("[", "<record>")
NOTE = re.compile(r"Note to myself: (\d+) so far")
SEPARATOR = ", "

TOUR_PAGES = 13  # many more than a window holds
MOST_LINES, LEAST_LINES = 70, 5  # of a page
PAGE_CHARS_PER_TOKEN = (
    0.7  # of the window: one page of a tour then takes up to a quarter of it
)
NUMBER_CHARS = 8  # before each line
COMPARED_FILES, COMMON_WORDS = 4, 40
WORD = re.compile(r"[^\W\d_]{4,16}")

Asked = tuple[str, str]
"""A question, and what the answer has to begin with: worked out from the files, without the agent's tools or model."""

Calls = list[tuple[str, dict[str, Any]]]


def patterns(questions: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Turn templates of questions into the patterns that read them back."""
    return {
        kind: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^`]+?)", re.escape(text)))
        for kind, text in questions.items()
    }


PATTERNS = patterns(QUESTIONS)


class Sight:
    """What one request shows: the question, the rule, the first answer, the newest calls and their results."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        questions = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, HumanMessage)
            and not message.text.startswith(NOT_ASKED)
        ] or [0]
        self.messages, self.question = messages, messages[questions[-1]].text
        rules = (RULE.search(messages[index].text) for index in questions)
        self.rule_word = next((rule[1] for rule in rules if rule), "")
        answers = [
            one for one in messages[questions[0] :] if isinstance(one, AIMessage)
        ]
        firsts = (one.text.partition("\n")[0] for one in answers if not one.tool_calls)
        self.first_answer = next(firsts, "")
        after = messages[questions[-1] + 1 :]
        callers = [
            one for one in after if isinstance(one, AIMessage) and one.tool_calls
        ]
        self.calls = callers[-1].tool_calls if callers else []
        note = NOTE.search(callers[-1].text) if callers else None
        self.note = int(note[1]) if note else None
        results = {
            one.tool_call_id: one.text for one in after if isinstance(one, ToolMessage)
        }
        self.results = [results.get(str(call["id"]), "") for call in self.calls]

    def understood(
        self, patterns: Mapping[str, re.Pattern[str]]
    ) -> tuple[str, dict[str, str]]:
        """Return the kind of the question and what was filled in; ("", {}) when it is none that is known."""
        for kind, pattern in patterns.items():
            if match := pattern.search(self.question):
                return kind, match.groupdict()
        return "", {}

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

    def call(self, text: str, calls: Calls, tools: Sequence[Any]) -> AIMessage:
        """Call tools, but none that the request does not show."""
        offered = {tool["function"]["name"] for tool in tools}
        if missing := {name for name, _ in calls} - offered:
            return self.lost(f"the tool {', '.join(missing)}")
        key = f"call-{len(self.question)}-{self.note}-{len(self.messages)}"
        made = [
            {"name": name, "args": args, "id": f"{key}-{number}"}
            for number, (name, args) in enumerate(calls)
        ]
        return AIMessage(text, tool_calls=made)


def explore(messages: Sequence[BaseMessage], tools: Sequence[Any]) -> AIMessage:
    """Answer a question about a folder from what the request shows, or call the tools for it."""
    sight = Sight(messages)
    kind, fields = sight.understood(PATTERNS)
    if not kind:
        return sight.lost("a question that I understand")
    if any(
        not re.search(r"\[[^\[\]]*\d[^\[\]]*\]\Z", result) for result in sight.results
    ):
        return sight.lost(f"the results of my latest calls: {sight.results}")
    if kind == "recall":
        return sight.recalled()
    return {"largest": _largest, "tour": _tour, "compare": _compare}[kind](
        fields, sight, tools
    )


def _numbers(result: str) -> list[int]:
    """The numbers in the last line of a result, which says what it covers."""
    return [int(number) for number in re.findall(r"\d+", result.rpartition("\n")[2])]


def _largest(_fields: dict[str, str], sight: Sight, tools: Sequence[Any]) -> AIMessage:
    if not sight.results:
        return sight.call(
            "I list the largest file.",
            [("list_files", {"order": "size", "limit": 1})],
            tools,
        )
    size, _, path = sight.results[0].split("\n")[0].partition(" ")
    return sight.answer(
        ANSWERS["largest"].format(
            files=_numbers(sight.results[0])[-1], largest=path, bytes=size
        )
    )


def _tour(fields: dict[str, str], sight: Sight, tools: Sequence[Any]) -> AIMessage:
    """Read page by page; the count so far travels in a note, because old pages leave the view."""
    hits = first = 0
    if sight.results:
        args = sight.calls[0]["args"]
        numbered_lines = [
            line.partition(": ") for line in sight.results[0].split("\n")[:-1]
        ]
        wanted = map(str, range(args["first_line"], args["last_line"] + 1))
        if sight.note is None or [number for number, _, _ in numbered_lines] != list(
            wanted
        ):
            return sight.lost(
                f"all lines up to {args['last_line']}, or my note about those before"
            )
        hits = sight.note + sum(fields["term"] in text for _, _, text in numbered_lines)
        first = args["last_line"]
        if first == int(fields["last"]):
            return sight.answer(ANSWERS["tour"].format(hits=hits))
    last = min(first + int(fields["page"]), int(fields["last"]))
    page: dict[str, Any] = {
        "path": fields["file"],
        "first_line": first + 1,
        "last_line": last,
    }
    return sight.call(f"Note to myself: {hits} so far.", [("read_file", page)], tools)


def _compare(fields: dict[str, str], sight: Sight, tools: Sequence[Any]) -> AIMessage:
    """Search all files at once, with parallel calls."""
    files = fields["files"].split(SEPARATOR)
    if not sight.results:
        searches: Calls = [
            ("search", {"pattern": re.escape(fields["term"]), "path": file})
            for file in files
        ]
        return sight.call(f"I search {len(files)} files at once.", searches, tools)
    counts = [_numbers(result)[0] for result in sight.results]
    best = counts.index(max(counts))
    return sight.answer(ANSWERS["compare"].format(file=files[best], found=counts[best]))


class Interview:
    """The questions of one conversation; the same folder and seed give the same ones."""

    def __init__(self, folder: Folder, *, window_tokens: int, seed: int = 0) -> None:
        self._dice = random.Random(seed)  # noqa: S311  # no secret
        largest = max(folder.sizes, key=lambda name: folder.sizes[name])
        answer = ANSWERS["largest"].format(
            files=len(folder.sizes), largest=largest, bytes=folder.sizes[largest]
        )
        self.opening: Asked = QUESTIONS["largest"], answer
        self.closing: Asked = (
            QUESTIONS["recall"],
            ANSWERS["recall"].format(answer=answer),
        )
        by_size = sorted(folder.sizes, key=lambda name: -folder.sizes[name])
        texts = {name: folder.lines(name) for name in by_size if SEPARATOR not in name}
        self._texts = {name: lines for name, lines in texts.items() if any(lines)}
        words = Counter(
            word
            for lines in self._texts.values()
            for line in lines
            for word in WORD.findall(line)
        )
        self._words = [word for word, _ in words.most_common(COMMON_WORDS)] or ["e"]
        # the larger third of the files is asked about
        most = max(COMPARED_FILES, len(self._texts) // 3)
        self._compared = [*self._texts][:most]
        self._pages = dict[str, int]()
        for name in self._compared:
            longest = max(map(len, self._texts[name]))
            room = int(window_tokens * PAGE_CHARS_PER_TOKEN)
            page = min(MOST_LINES, room // (longest + NUMBER_CHARS))
            if longest <= LINE_CHARS and page >= LEAST_LINES:
                self._pages[name] = page

    def questions(self) -> Iterator[Asked]:
        """Yield the questions between the first and the last one, without end."""
        while True:
            if self._pages:
                yield self._tour()
            yield self._compare()

    def _tour(self) -> Asked:
        name = self._dice.choice([*self._pages])
        term, page = self._dice.choice(self._words), self._pages[name]
        lines = self._texts[name][: TOUR_PAGES * page]
        question = QUESTIONS["tour"].format(
            file=name, last=len(lines), page=page, term=term
        )
        hits = sum(term in line for line in lines)
        return question, ANSWERS["tour"].format(hits=hits)

    def _compare(self) -> Asked:
        term, most = (
            self._dice.choice(self._words),
            min(COMPARED_FILES, len(self._compared)),
        )
        files = sorted(self._dice.sample(self._compared, most))
        counts = {
            name: sum(term in line for line in self._texts[name]) for name in files
        }
        best = max(counts, key=lambda name: counts[name])
        question = QUESTIONS["compare"].format(term=term, files=SEPARATOR.join(files))
        return question, ANSWERS["compare"].format(file=best, found=counts[best])
