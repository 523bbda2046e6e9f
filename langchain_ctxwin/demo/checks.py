"""Is an answer true? Worked out from the files by plain Python, without the agent's tools or its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_ctxwin.demo.folder import Folder
from langchain_ctxwin.demo.phrases import unquoted
from langchain_ctxwin.demo.questions import Question
from langchain_ctxwin.demo.sight import digest, read_facts
from langchain_ctxwin.demo.skills import QUOTE_CHARS

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one question."""

    is_true: bool
    """The answer states exactly the facts of the file system, and the fingerprint of the question as it was asked."""

    keeps_rule: bool
    """The answer ends as the first message demanded."""

    wrong: tuple[str, ...]
    """What differs, one line each."""


def verify(answer: str, question: Question, folder: Folder, *, rule_word: str) -> Verdict:
    """Compare an answer with the file system."""
    stated = read_facts(answer)
    expected = {"question": digest(question.text), **TRUTHS[question.kind](question.fields, folder)}
    wrong = tuple(
        f"{key}: {stated.get(key, 'nothing')!r} instead of {expected.get(key, 'nothing')!r}"
        for key in dict.fromkeys([*expected, *stated])
        if stated.get(key) != expected.get(key)
    )
    return Verdict(is_true=not wrong, keeps_rule=keeps_rule(answer, rule_word), wrong=wrong)


def keeps_rule(answer: str, rule_word: str) -> bool:
    """Say whether the last word stands where it has to, on a line of its own."""
    return answer.rstrip().split("\n")[-1].strip(" .*_`") == rule_word


def _survey(_fields: dict[str, str], folder: Folder) -> Facts:
    largest = max(folder.files, key=lambda file: file.size_bytes)
    return {"files": len(folder.files), "largest": largest.path, "bytes": (folder.root / largest.path).stat().st_size}


def _locate(fields: dict[str, str], folder: Folder) -> Facts:
    found = [
        (file.path, number, line)
        for file in folder.texts
        for number, line in enumerate(folder.lines(file.path), 1)
        if fields["term"] in line
    ]
    file, number, line = found[0]
    return {"found": len(found), "file": file, "line": number, "text": line.strip()[:QUOTE_CHARS]}


def _whole(fields: dict[str, str], folder: Folder) -> Facts:
    lines = folder.lines(fields["file"])
    number = int(fields["line"])
    text = lines[number - 1].strip()[:QUOTE_CHARS]
    return {"lines": len(lines), "file": fields["file"], "line": number, "text": text}


def _tour(fields: dict[str, str], folder: Folder) -> Facts:
    lines = folder.lines(fields["file"])[: int(fields["last"])]
    hits = sum(fields["term"] in line for line in lines)
    longest = max(range(len(lines)), key=lambda index: len(lines[index]))
    return {"file": fields["file"], "hits": hits, "longest": longest + 1}


def _compare(fields: dict[str, str], folder: Folder) -> Facts:
    counts = {file: sum(fields["term"] in line for line in folder.lines(file)) for file in unquoted(fields["files"])}
    best = max(counts, key=lambda file: counts[file])
    return {"file": best, "found": counts[best]}


TRUTHS: dict[str, Callable[[dict[str, str], Folder], Facts]] = {
    "survey": _survey,
    "locate": _locate,
    "whole": _whole,
    "tour": _tour,
    "compare": _compare,
    "recall": _survey,
}
