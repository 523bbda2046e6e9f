"""Keeps tool call ids unique within a request: agents and replayed logs reuse them, and clients match results by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from langchain_ctxwin.core.turns import call_ids


def unique_calls(shown: Sequence[AnyMessage], taken: set[str]) -> tuple[AnyMessage, ...]:
    """Return the messages of a valid step with every call id that is already taken renamed, results included.

    The ids of the step are added to `taken`. Messages that keep their ids are returned as the same objects.
    """
    ids = [call_id for message in shown for call_id in call_ids(message)]
    if taken.isdisjoint(ids) and len(set(ids)) == len(ids):
        taken.update(ids)
        return tuple(shown)
    renamed: list[AnyMessage] = []
    waiting: list[str] = []
    for message in shown:
        if isinstance(message, ToolMessage) and waiting:
            renamed.append(_answer_to(message, waiting.pop(0)))
            continue
        waiting = [_free(call_id, taken) for call_id in call_ids(message)]
        renamed.append(_calling(message, waiting) if isinstance(message, AIMessage) and waiting else message)
    return tuple(renamed)


def _free(call_id: str, taken: set[str]) -> str:
    candidates = (call_id if number == 0 else f"{call_id}_{number}" for number in count())
    free = next(candidate for candidate in candidates if candidate and candidate not in taken)
    taken.add(free)
    return free


def _answer_to(result: ToolMessage, call_id: str) -> ToolMessage:
    return result if result.tool_call_id == call_id else result.model_copy(update={"tool_call_id": call_id})


def _calling(message: AIMessage, new_ids: Sequence[str]) -> AIMessage:
    """Rename the calls everywhere an integration may read them: calls, content blocks, the provider's raw copy."""
    old_ids = call_ids(message)
    if list(old_ids) == list(new_ids):
        return message
    names = {old: new for old, new in zip(old_ids, new_ids, strict=True) if old}
    split = len(message.tool_calls)
    changes: dict[str, Any] = {
        "tool_calls": [{**call, "id": new} for call, new in zip(message.tool_calls, new_ids[:split], strict=True)],
        "invalid_tool_calls": [
            {**call, "id": new} for call, new in zip(message.invalid_tool_calls, new_ids[split:], strict=True)
        ],
        "additional_kwargs": _renamed(message.additional_kwargs, names),
    }
    if isinstance(message.content, list):
        changes["content"] = _renamed(message.content, names)
    return message.model_copy(update=changes)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Replace whole strings that are ids, in values and in keys (Gemini keeps its signatures by call id)."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    return value
