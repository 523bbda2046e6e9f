"""What does the offline model do next? One small function per kind of question, from what it sees alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_ctxwin.demo.phrases import WORDING, unquoted
from langchain_ctxwin.demo.sight import Result, Sight

QUOTE_CHARS = 80
"""Characters of a line that an answer quotes."""

CONTEXT_LINES = 2
"""Lines read around a line that is looked up, as people do."""

SMALLEST_PAGE_LINES = 5
"""Pages are halved when they do not fit, down to this."""

FILES_TOTAL = r"\[\d+ of (\d+) files\]"
HITS_TOTAL = r"\[(\d+) lines in \d+ files, \d+ shown\]"
LINES_SHOWN = r"\[lines (\d+)-(\d+) of (\d+)\]"

Fields = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Either calls with a note, or an answer with its facts."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    note: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def next_move(sight: Sight) -> Move:
    """Decide what to do; what is missing from the sight is said, never guessed."""
    understood = WORDING.understand(sight.question)
    if understood is None:
        return lost("a question that I understand")
    error = next((result for result in sight.results if result.is_error), None)
    if error:
        return lost(f"a result of {error.name}: it failed with {error.text}")
    gone = next((result for result in sight.results if result.is_gone), None)
    if gone:
        return lost(f"the latest result of {gone.name}")
    kind, fields = understood
    return SKILLS[kind](fields, sight)


def lost(what: str) -> Move:
    """Say what is missing."""
    return Move(text=f"I cannot see {what}.", facts={"missing": what})


def _survey(_fields: Fields, sight: Sight) -> Move:
    """List everything; when the list does not fit into view, ask for the largest files only."""
    if not sight.results:
        return Move(text="I list all files first.", calls=(("list_files", {}),))
    result = sight.results[0]
    total = result.totals(FILES_TOTAL)
    if not total:
        return lost("how many files were listed")
    if not result.is_whole:
        largest_first = {"order": "size", "limit": 5}
        return Move(
            text="The list is cut, so I ask for the largest files only.", calls=(("list_files", largest_first),)
        )
    sizes = [(int(size), path) for size, _, path in (line.partition(" ") for line in result.lines)]
    size, path = max(sizes, key=lambda entry: entry[0])
    facts = {"files": total[0], "largest": path, "bytes": size}
    return Move(text=f"{total[0]:,} files; the largest is {path} with {size:,} bytes.", facts=facts)


def _locate(fields: Fields, sight: Sight) -> Move:
    """Search, then read the place that was found first, so that the quote is not a cut one."""
    if not sight.results:
        search = ("search", {"pattern": re.escape(fields["term"])})
        return Move(text=f"I search for {fields['term']}.", calls=(search,))
    result = sight.results[0]
    if result.name == "read_file":
        return _quote(result, file=result.args["path"], note=sight.note, total="found")
    total = result.totals(HITS_TOTAL)
    first = re.match(r"(.+?):(\d+): ", result.text)
    if not total or not first:
        return lost("where it was found")
    note = {"found": total[0], "line": first[2]}
    return Move(text=f"{total[0]} lines. I read the first place.", note=note, calls=(_read(first[1], int(first[2])),))


def _whole(fields: Fields, sight: Sight) -> Move:
    """Read everything; a file that does not fit into view shows its end, which tells where to look again."""
    if not sight.results:
        return Move(text="I read the whole file.", calls=(("read_file", {"path": fields["file"]}),))
    result, wanted = sight.results[0], int(fields["line"])
    if sight.note:
        return _quote(result, file=fields["file"], note=sight.note, total="lines")
    shown = result.totals(LINES_SHOWN)
    if not shown:
        return lost("how many lines the file has")
    note = {"lines": shown[2], "line": wanted}
    if result.is_whole:
        return _quote(result, file=fields["file"], note={key: str(value) for key, value in note.items()}, total="lines")
    text = f"{shown[2]} lines are more than I can see at once. I read around line {wanted}."
    return Move(text=text, note=note, calls=(_read(fields["file"], wanted),))


def _tour(fields: Fields, sight: Sight) -> Move:
    """Read page by page; what was found so far travels in the note, because old pages leave the view."""
    start = {"at": "0", "hits": "0", "longest": "0", "chars": "-1", "page": fields["page"]}
    if not sight.results:
        return _next_page(fields, start, "I begin.")
    if not start.keys() <= sight.note.keys():
        return lost("my notes about the pages before")
    return _page(fields, sight.note, sight.results[0])


def _page(fields: Fields, note: Fields, result: Result) -> Move:
    """Take one page into account, or ask for a smaller one when it is cut."""
    at, page = int(note["at"]), int(note["page"])
    if not result.is_whole and page <= SMALLEST_PAGE_LINES:
        return lost(f"all of lines {at + 1} to {at + page}")
    if not result.is_whole:
        return _next_page(fields, note | {"page": str(page // 2)}, "The page is cut, so I take smaller ones.")
    shown = result.totals(LINES_SHOWN)
    if not shown or shown[0] != at + 1 or len(result.lines) != shown[1] - at:
        return lost(f"the page that starts at line {at + 1}")
    note = _counted(note, result, term=fields["term"]) | {"at": str(shown[1])}
    if shown[1] < int(fields["last"]):
        return _next_page(fields, note, f"{note['hits']} so far.")
    facts = {"file": fields["file"], "hits": int(note["hits"]), "longest": int(note["longest"])}
    return Move(text=f"{note['hits']} of them do; the longest is line {note['longest']}.", facts=facts)


def _counted(note: Fields, result: Result, *, term: str) -> Fields:
    """Add one page to the note."""
    pages = (line.partition(": ") for line in result.lines)
    lines = [(int(number), text) for number, _, text in pages]
    hits = int(note["hits"]) + sum(term in text for _, text in lines)
    number, text = max(lines, key=lambda line: len(line[1]))
    is_longer = len(text) > int(note["chars"])
    best = {"longest": str(number), "chars": str(len(text))} if is_longer else {}
    return {**note, "hits": str(hits), **best}


def _next_page(fields: Fields, note: Fields, text: str) -> Move:
    first = int(note["at"]) + 1
    last = min(first + int(note["page"]) - 1, int(fields["last"]))
    page = {"path": fields["file"], "first_line": first, "last_line": last}
    return Move(text=text, note=dict(note), calls=(("read_file", page),))


def _compare(fields: Fields, sight: Sight) -> Move:
    """Search all files at once, with parallel calls."""
    files = unquoted(fields["files"])
    if not sight.results:
        searches = tuple(("search", {"pattern": re.escape(fields["term"]), "path": file}) for file in files)
        return Move(text=f"I search {len(files)} files at once.", calls=searches)
    totals = [(result.totals(HITS_TOTAL), result.args["path"]) for result in sight.results]
    if not all(total for total, _ in totals):
        return lost("how many lines were found in one of the files")
    total, file = max(totals, key=lambda entry: entry[0][0])
    return Move(text=f"{file} has the most, {total[0]:,}.", facts={"file": file, "found": total[0]})


def _recall(fields: Fields, sight: Sight) -> Move:
    """Repeat the first answer while it is visible; else look again, as anybody would."""
    if sight.first_answer.get("largest") and not sight.results:
        facts = {key: sight.first_answer.get(key) for key in ("files", "largest", "bytes")}
        return Move(text=f"I still see it: {facts['files']:,} files, the largest is {facts['largest']}.", facts=facts)
    return _survey(fields, sight)


def _quote(result: Result, *, file: str, note: dict[str, str], total: str) -> Move:
    """Answer with the text of the line that the note names."""
    number = note.get("line", "")
    text = result.line(int(number)) if number else None
    if text is None or total not in note:
        return lost(f"line {number} of {file}")
    quote = text.strip()[:QUOTE_CHARS]
    facts = {total: int(note[total]), "file": file, "line": int(number), "text": quote}
    return Move(text=f"{int(note[total]):,} lines; {file}:{number} says {quote!r}.", facts=facts)


def _read(file: str, line: int) -> tuple[str, dict[str, Any]]:
    around = {"first_line": max(1, line - CONTEXT_LINES), "last_line": line + CONTEXT_LINES}
    return "read_file", {"path": file, **around}


SKILLS: dict[str, Callable[[Fields, Sight], Move]] = {
    "survey": _survey,
    "locate": _locate,
    "whole": _whole,
    "tour": _tour,
    "compare": _compare,
    "recall": _recall,
}
