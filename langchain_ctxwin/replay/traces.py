"""Conversations out of exported traces: of each thread the run that holds most of it.

A run as LangSmith exports it (`run_type`, `inputs`, `outputs`) holds the conversation up to it, in several forms:
an agent's run its whole history, a model's run one request. Later runs hold what earlier ones do, and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def is_run(row: Any) -> bool:
    """True for a run of an export."""
    return isinstance(row, Mapping) and "run_type" in row and "inputs" in row


class Traces:
    """Keeps the longest run of each thread, whatever the order in which runs come."""

    def __init__(self) -> None:
        self._longest: dict[str, tuple[int, dict[str, Any]]] = {}

    def take(self, run: Row) -> None:
        """Take up a run; one without messages says nothing."""
        messages = _said(run)
        thread = _thread(run)
        if messages and len(messages) > self._longest.get(thread, (0, {}))[0]:
            row = {"id": thread, "messages": messages, "tools": _tools(run)}
            self._longest[thread] = len(messages), row

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one conversation per thread, as a line of a recording would hold it."""
        for _, row in self._longest.values():
            yield row


def _said(run: Row) -> list[Any]:
    """What a run was given, and what it answered."""
    given, made = _listed(run.get("inputs")), run.get("outputs")
    if not isinstance(made, Mapping):
        return given
    whole = _listed(made)
    if len(whole) > len(given):  # a graph returns its history
        return whole
    answer = _answer(made)
    return [*given, answer] if given and answer is not None else given


def _listed(value: Any) -> list[Any]:
    messages = value.get("messages") if isinstance(value, Mapping) else None
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return []
    if len(messages) == 1 and isinstance(messages[0], list):  # a batch of one
        messages = messages[0]
    return [one for one in messages if isinstance(one, Mapping)]


def _answer(made: Row) -> Any:
    """The message that a model's run returned."""
    for key, path in (("generations", (0, 0, "message")), ("choices", (0, "message")), ("message", ())):
        found: Any = made.get(key)
        try:
            for part in path:
                found = found[part]
        except (LookupError, TypeError):
            continue
        if isinstance(found, Mapping):
            return found
    return made if "content" in made and ("role" in made or "type" in made) else None


def _thread(run: Row) -> str:
    metadata = (run.get("extra") or {}).get("metadata") or {}
    names = ("thread_id", "session_id", "conversation_id")  # as LangSmith groups traces into threads
    found = next((metadata[name] for name in names if metadata.get(name)), None)
    return str(found or run.get("trace_id") or run.get("id") or "trace")


def _tools(run: Row) -> list[Any]:
    invocation = (run.get("extra") or {}).get("invocation_params") or {}
    found = invocation.get("tools") or (run.get("inputs") or {}).get("tools")
    return found if isinstance(found, list) else []
