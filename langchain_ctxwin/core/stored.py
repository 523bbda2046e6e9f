"""Which of the values that come from a checkpoint are what this package writes? The others are dropped, and it is said.

State passes through serializers, migrations and other people's code. A thread that holds something odd has to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from langchain_ctxwin.core.calibration import Belief
from langchain_ctxwin.core.pending import Pending
from langchain_ctxwin.core.record import Record
from langchain_ctxwin.core.view import View

Check = Callable[[Any], bool]


def valid_counts(value: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what is valid of `context_counts`, and a line for every key that is not; unknown keys leave silently."""
    return _valid("context_counts", value, _COUNTS)


def valid_guard(value: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what is valid of `context_guard`, and a line for every key that is not."""
    return _valid("context_guard", value, _GUARD)


def valid_view(value: object, record: Record | None = None) -> tuple[View, tuple[str, ...]]:
    """Return the stored view with its record; the whole history, and a line, when it is not one."""
    try:
        view = View.from_json(value or {}, record)  # type: ignore[arg-type]  # anything may be stored
        if view.record.lines and not (view.start or view.cleared or view.clamped):
            return replace(view, record=Record()), (
                "context_record tells of nothing that left the view: it was dropped",
            )
        return _converted(view, value) if value else (view, ())
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return View(), ("context_view holds no view of ours: it was dropped, the whole history counts",)


def valid_summary(value: object, view: View) -> tuple[str, tuple[str, ...]]:
    """Return the stored summary; none, and a line, when it is no text, or the view says that nothing left."""
    if not value:
        return "", ()
    if not isinstance(value, str):
        return "", (f"context_summary is {type(value).__name__}, not a text: it was dropped",)
    if view.start is None and view.covered is None:
        return "", ("context_summary stands for nothing that left the view: it was dropped",)
    return value, ()


def valid_report(value: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what a step reads of the `context_report` before it, and a line for every key that is not valid."""
    return _valid("context_report", value, _REPORT)


def valid_tools(value: object) -> tuple[list[str], tuple[str, ...]]:
    """Return the stored names of tools; none, and a line, when it is anything but a list of texts."""
    if not value:
        return [], ()
    if not isinstance(value, list | tuple) or not all(map(_is_text, value)):
        return [], ("context_tools is no list of names: it was dropped",)
    return list(value), ()


def valid_record(value: object) -> tuple[Record, tuple[str, ...]]:
    """Return the stored record; an empty one, and a line, when something else is stored."""
    try:
        return Record.from_json(value), ()  # type: ignore[arg-type]  # anything may be stored
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return Record(), ("context_record holds no record of ours: it was dropped",)


def _converted(view: View, value: Any) -> tuple[View, tuple[str, ...]]:
    """Take over what a version without a record stored: how much had left; its lines begin with what leaves next."""
    receipt = value.get("receipt")
    if not receipt or view.record:
        return view, ()
    left = {name: int(receipt.get(name, 0)) for name in ("turns", "steps", "messages", "tokens")}
    record = Record.from_json({"lines": [], "left": left})
    return replace(view, record=record), ("context_view is of an earlier version: its receipt became a record",)


def valid_pending(value: object) -> tuple[Pending | None, tuple[str, ...]]:
    """Return the summary on its way; None, and a line, when something else is stored."""
    try:
        return Pending.from_json(value), ()  # type: ignore[arg-type]  # anything may be stored
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None, ("context_pending holds no summary of ours: it was dropped",)


def _valid(name: str, value: object, checks: Mapping[str, Check]) -> tuple[dict[str, Any], tuple[str, ...]]:
    if not value:
        return {}, ()
    if not isinstance(value, Mapping):
        return {}, (f"{name} is {type(value).__name__}, not a mapping: it was dropped",)
    known = {key: stored for key, stored in value.items() if key in checks}
    kept = {key: stored for key, stored in known.items() if checks[key](stored)}
    return kept, tuple(f"{name}[{key!r}] holds nothing of ours: it was dropped" for key in known if key not in kept)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_optional_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_position(value: object) -> bool:
    return value == {} or (isinstance(value, Mapping) and _is_text(value.get("id")) and _is_count(value.get("index")))


def _is_anchor(value: object) -> bool:
    return value is None or (_is_checked(value) and isinstance(value, Mapping) and _is_optional_text(value.get("id")))


def _is_checked(value: object) -> bool:
    sizes = isinstance(value, Mapping) and _is_count(value.get("tokens")) and _is_count(value.get("estimate"))
    return sizes and isinstance(value, Mapping) and _is_text(value.get("digest"))


def _each(check: Check) -> Check:
    def all_valid(value: object) -> bool:
        return isinstance(value, Mapping) and all(isinstance(key, str) and check(item) for key, item in value.items())

    return all_valid


def _is_limit(value: object) -> bool:
    return _is_count(value) and bool(value)


_COUNTS: dict[str, Check] = {
    "anchor": _is_anchor,
    "checked": _is_checked,
    "beliefs": _each(lambda value: Belief.from_json(value) is not None),
    "measured": _each(lambda value: isinstance(value, Mapping)),
    "speakers": _each(_is_text),
    "limits": _each(_each(_is_limit)),
    "messages": _is_count,
    "first": _is_optional_text,
    "resets": _is_count,
}

_REPORT: dict[str, Check] = {
    "input_limit": _is_count,
    "total_tokens": _is_count,
    "over_by": _is_count,
    "stopped": _is_text,
}

_GUARD: dict[str, Check] = {
    "compactions": _is_count,
    "dropped_turns": _is_count,
    "ineffective": _is_count,
    "asked": lambda value: value is None or _is_count(value),
    "since": _is_position,
    "reason": _is_text,
    "summarizer": _each(_is_count),
}
