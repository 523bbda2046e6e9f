"""Where in what a tool returned is content that the model will see?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from langchain_ctxwin.tool_results.results import View

METADATA = "ctxwin"
"""Key of a message's `response_metadata` that tells programs what the notes tell the model."""

Look = Callable[[Any], View | None]
Known = Mapping[str, Any]

NOTHING_KNOWN: Known = MappingProxyType({})


def contents(output: Any, known: Known = NOTHING_KNOWN) -> list[Any]:
    """Return the contents in an output: of a message, of the messages in a command or a list, or the value itself."""
    found: list[Any] = []
    with_views(output, found.append, known)
    return found


def with_views(output: Any, look: Look, known: Known = NOTHING_KNOWN) -> Any:
    """Return the output with what is shown of its contents; all else, such as ids, status and artifacts, as it was.

    Args:
        output: what a tool returned.
        look: returns what is shown of a content, None when it is shown as it is.
        known: contents in the history by the ids of their messages: a command that hands a conversation over
            repeats them.
    """
    if isinstance(output, ToolMessage):
        return _shown(output, look)
    if _is_outputs(output):
        return [with_views(item, look, known) for item in output]
    if isinstance(output, Command):
        update = _updated(output.update, lambda item: _message(item, look, known))
        return output if update is output.update else replace(output, update=update)
    view = look(output)
    return output if view is None else view.content


def _updated(update: Any, message: Callable[[Any], Any]) -> Any:
    """An update in any of its forms: an object, pairs of keys and values, or messages."""
    if isinstance(update, Mapping):
        values = {key: _each(value, message) for key, value in update.items()}
        return update if all(values[key] is value for key, value in update.items()) else values
    if isinstance(update, list | tuple):
        return _each(update, lambda item: _each(item, lambda value: _each(value, message)))
    return update


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """What becomes of one value, or of each in a list; the list itself when nothing changes."""
    if type(value) not in (list, tuple):
        return change(value)
    changed = [change(item) for item in value]
    return value if all(map(_is, changed, value)) else type(value)(changed)


def _message(item: Any, look: Look, known: Known) -> Any:
    if isinstance(item, ToolMessage):
        return item if item.id and known.get(item.id) == item.content else _shown(item, look)
    if not isinstance(item, dict) or "tool" not in (item.get("role"), item.get("type")) or "content" not in item:
        return item
    view = look(item["content"])
    return item if view is None else {**item, "content": view.content}


def _shown(message: ToolMessage, look: Look) -> ToolMessage:
    if METADATA in message.response_metadata:  # a page already: another guard stands further inside
        return message
    view = look(message.content)
    if view is None:
        return message
    facts = {METADATA: view.facts}
    return message.model_copy(
        update={"content": view.content, "response_metadata": {**message.response_metadata, **facts}}
    )


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_outputs(output: Any) -> bool:
    return isinstance(output, list) and bool(output) and all(isinstance(item, ToolMessage | Command) for item in output)
