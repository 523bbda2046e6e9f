"""How are the questions worded, so that a person, a real model and the offline model all understand them?"""

from __future__ import annotations

import re

from langchain_ctxwin.demo.wording import Wording, pattern_of

RULE = "From now on, end every answer with the word {word} on a line of its own."
"""Stands in the first message only and holds until the end."""

QUESTIONS = {
    "survey": "How many files are there in the whole folder, and which one is the largest? Give its size in bytes.",
    "locate": "Search for `{term}`: how many lines of all files contain it, and what does the first one found say?",
    "whole": "Read all of `{file}`. How many lines does it have, and what does line {line} say?",
    "tour": "Go through lines 1 to {last} of `{file}`, {page} lines at a time. "
    "How many of them contain `{term}`, and which line is the longest?",
    "compare": "Which of these files has the most lines with `{term}`: {files}?",
    "recall": "One last thing: what was your answer to my very first question?",
}
"""By kind; the text in braces is filled in, and read back by the offline model."""


def read_rule(text: str) -> str:
    """Return the word that answers have to end with, where a text asks for one; else an empty text."""
    match = _RULE_PATTERN.search(text)
    return match["word"] if match else ""


def quoted(files: list[str]) -> str:
    """Write a list of names as it stands in a question."""
    return ", ".join(f"`{name}`" for name in files)


def unquoted(text: str) -> list[str]:
    """Read such a list."""
    return re.findall(r"`([^`]+)`", text)


FIELDS = {
    "word": r"\w+",
    "term": r"[^`]+",
    "file": r"[^`]+",
    "files": r"`[^`]+`(?:, `[^`]+`)*",
    "line": r"\d+",
    "last": r"\d+",
    "page": r"\d+",
}
"""What may stand in each place."""


WORDING = Wording(QUESTIONS, FIELDS)

_RULE_PATTERN = pattern_of(RULE, FIELDS)
