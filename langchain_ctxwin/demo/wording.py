"""How are questions asked from templates, and understood again by a reader that knows the templates?"""

from __future__ import annotations

import re
from collections.abc import Mapping

ANYTHING = "[^`]+"
"""What stands between backticks."""


class Wording:
    """Templates of questions by kind; the text in braces is filled in, and read back.

    Key init args:
        questions: templates by kind.
        values: patterns of what may stand in a place, by its name; anything without backticks where none is given.
    """

    def __init__(self, questions: Mapping[str, str], values: Mapping[str, str] | None = None) -> None:
        self._questions = questions
        self._patterns = {kind: pattern_of(text, values or {}) for kind, text in questions.items()}

    def ask(self, kind: str, fields: Mapping[str, object]) -> str:
        """Return the question."""
        return self._questions[kind].format(**fields)

    def understand(self, text: str) -> tuple[str, dict[str, str]] | None:
        """Return the kind of the question in a text and what was filled in; None when there is none."""
        found = ((kind, pattern.search(text)) for kind, pattern in self._patterns.items())
        return next(((kind, match.groupdict()) for kind, match in found if match), None)


def pattern_of(template: str, values: Mapping[str, str]) -> re.Pattern[str]:
    """Turn a template into the pattern that reads it back."""

    def place(name: re.Match[str]) -> str:
        return f"(?P<{name[1]}>{values.get(name[1], ANYTHING)})"

    return re.compile(re.sub(r"\\{(\w+)\\}", place, re.escape(template)))
