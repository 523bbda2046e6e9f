"""Is every field of these facts of its kind? A dataclass takes anything, and one bad entry would break all merging."""

from __future__ import annotations

from datetime import date
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo


def is_sound(info: Any) -> bool:
    """Say whether this is a `ModelInfo` whose texts, sets, flags and days are what they are declared to be.

    Limits and prices need no look: a `ModelInfo` with wrong ones cannot be made.
    """
    if not isinstance(info, ModelInfo):
        return False
    return (
        isinstance(info.name, str)
        and isinstance(info.provider, str | None)
        and isinstance(info.tokenizer_family, str | None)
        and isinstance(info.deprecated, bool)
        and (info.retires_on is None or type(info.retires_on) is date)  # a datetime does not compare with a date
        and _are_texts(info.aliases, tuple)
        and _are_texts(info.capabilities, frozenset)
    )


def _are_texts(values: Any, kind: type[tuple[Any, ...] | frozenset[Any]]) -> bool:
    return isinstance(values, kind) and all(isinstance(value, str) for value in values)
