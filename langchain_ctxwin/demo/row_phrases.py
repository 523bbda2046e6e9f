"""How are questions about rows worded, so that a person, a real model and the offline reader all understand them?"""

from __future__ import annotations

import re
from collections.abc import Mapping

QUESTIONS = {
    "find": "What is the `{field}` of the row whose `{key}` is `{value}`?",
    "count": "How many of all rows have `{value}` as their `{field}`?",
    "total": "Of the rows whose `{key}` is `{value}`: how many are there, and what is the sum of their `{field}`?",
    "text": "Read the whole `{field}` of the row whose `{key}` is `{value}`: how often does it say `{word}`?",
    "borrowed": "A colleague copied me the cursor `{cursor}`. What does read_more show for it?",
    "recall": "One last thing: what was your answer to my very first question?",
}
"""By kind; the text in braces is filled in, and read back by the offline reader."""


def ask(kind: str, fields: Mapping[str, object]) -> str:
    """Return the question."""
    return QUESTIONS[kind].format(**fields)


def understand(text: str) -> tuple[str, dict[str, str]] | None:
    """Return the kind of the question in a text and what was filled in; None when there is none."""
    found = ((kind, pattern.search(text)) for kind, pattern in _PATTERNS.items())
    return next(((kind, match.groupdict()) for kind, match in found if match), None)


def _pattern(template: str) -> re.Pattern[str]:
    """Turn a template into the pattern that reads it back."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^`]+)", re.escape(template)))


_PATTERNS = {kind: _pattern(template) for kind, template in QUESTIONS.items()}
