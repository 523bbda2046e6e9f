"""Which messages is it no use to recall: what the model sees anyway, and its own recalling?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.edits import edit
from langchain_ctxwin.core.session import read_session
from langchain_ctxwin.core.survey import Before, last_user, show_steps
from langchain_ctxwin.core.view import View, message_id


def in_sight(messages: Sequence[AnyMessage], state: Mapping[str, Any]) -> frozenset[int]:
    """Return the positions of the messages that the model sees in full.

    These are the leading system messages and what `context_view` shows unedited: cleared and clamped messages are not
    in full. Where the state does not say what is shown, because nothing left or somebody else trims the history, all
    other messages count as unseen.
    """
    first = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    return frozenset((*range(first), *_shown(messages, first, state)))


def searchable(messages: Sequence[AnyMessage], tool_name: str) -> list[int]:
    """Return the positions of what is worth a search.

    Not the question that is being answered and the calls that are being made: a question matches itself best of all.
    For the same reason not the earlier calls of the recall tool and what it returned.
    """
    asked = last_user(messages)
    calling = max((i for i, message in enumerate(messages) if isinstance(message, AIMessage)), default=len(messages))
    own_calls: set[str | None] = set()
    found = []
    for index, message in enumerate(messages[:calling]):
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        own_calls.update(call["id"] for call in calls if call["name"] == tool_name)
        is_own = bool(calls) and all(call["name"] == tool_name for call in calls)
        if not (is_own or index == asked or _is_result(message, tool_name, own_calls)):
            found.append(index)
    return found


def _is_result(message: AnyMessage, tool_name: str, own_calls: set[str | None]) -> bool:
    if not isinstance(message, ToolMessage):
        return False
    return message.name == tool_name or (message.name is None and message.tool_call_id in own_calls)


def _shown(messages: Sequence[AnyMessage], first: int, state: Mapping[str, Any]) -> Iterable[int]:
    """The positions of what a view shows as it is; repaired and edited messages are copies."""
    view = read_session({"context_view": state.get("context_view")}, messages).view
    if view == View():
        return
    start = max(first, view.start.index) if view.start else first
    shown = {id(m) for step in show_steps(messages, start, view, Before(), _no_price) for m in step.messages}
    yield from (position.index for position in view.pinned if _is_whole(messages, position.index, view))
    for index in range(start, len(messages)):
        if id(messages[index]) in shown or isinstance(messages[index], SystemMessage):
            yield index


def _is_whole(messages: Sequence[AnyMessage], index: int, view: View) -> bool:
    return edit(messages[index], message_id(messages, index), view) is messages[index]


def _no_price(_: AnyMessage) -> int:
    return 0
