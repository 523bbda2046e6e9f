"""What was chosen of a tool set, and what was left out?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """The tools for one request. Every tool is either selected or deferred."""

    selected: tuple[Any, ...]
    """The tools to bind, as they were given; the same set always comes in the same order."""

    deferred: tuple[Any, ...]
    """The others, in the order in which they were given."""

    tokens: int
    """What the selected definitions add to a request."""

    names: tuple[str, ...]
    """The names of the selected tools, in their order: pass them as `previous` with the next request."""

    added: tuple[str, ...] = ()
    """Names that the previous set did not have."""

    removed: tuple[str, ...] = ()
    """Names that only the previous set had."""

    skipped: tuple[str, ...] = ()
    """Names of deferred tools that never fit: not readable, or larger than the room beside what is always there."""
