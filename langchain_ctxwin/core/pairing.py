"""Repairs requests that a provider would refuse: tool calls without results, results without calls, odd openings.

Every provider refuses a request whose tool calls lack results or whose results lack calls; what else it refuses its
`Rules` say, and nothing else is touched. Histories arrive like that all the same. Every repair depends only on the step
and on what precedes it, so a longer history never changes what was sent earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.edits import media_count, text_of
from langchain_ctxwin.core.turns import NOTE_KEY, call_ids

EMPTY_USER_TEXT = "[empty message]"
OPENING_TEXT = "[The conversation continues from here.]"
CONTINUE_TEXT = "[Continue.]"
UNANSWERED_TEXT = "[No result: this call was not answered.]"
LATE_TEXT = "[Result of an earlier call, which came late]"
SYSTEM_NOTE_TEXT = "[System note]"
UNANSWERED = ":unanswered"  # ends the id of a placeholder


@dataclass(frozen=True, slots=True)
class Rules:
    """What a provider takes as it is; the defaults are those of a provider that nobody knows."""

    starts_with_ai: bool = False  # a request may begin with an answer, such as a greeting
    calls_after_ai: bool = True
    """A call may follow an answer, such as that of another agent. Gemini wants a user message or a result before it."""

    takes_system: bool = False
    """System messages stay in place. Elsewhere integrations move them to the front, and the cached prefix is lost."""

    provider: str = ""
    """Whose blocks it reads: `anthropic`, `openai`, `gemini`, or `other` for none; empty when nobody knows."""

    takes_cache_key: bool = False  # a call may name the conversation for the provider's prompt cache
    loads_tools: bool = False
    """A message can load a tool whose definition was deferred, so that the tools of a conversation stay the same."""

    keeps_history: bool = False
    """Its server goes on from the newest response id among the messages, so that those before it are not sent."""


UNKNOWN = Rules()


def repair_step(
    messages: Sequence[AnyMessage],
    previous: AnyMessage | None,
    rules: Rules = UNKNOWN,
    unanswered: Collection[str] = (),
) -> tuple[AnyMessage, ...]:
    """Return the step as a valid continuation of `previous` (None at the start of the request).

    Messages that need no repair are returned as the same objects. Orphaned results and empty AI messages are left out;
    unanswered calls get a marked placeholder, and a result that comes after it is a labelled user-side note, as system
    messages are where the provider does not take them. `unanswered` are the ids of the calls before the step that were
    shown with a placeholder.
    """
    # Adapters that do not validate leave `None` as content; integrations and counters expect text.
    missing: object = None
    messages = [m.model_copy(update={"content": ""}) if m.content is missing else m for m in messages]
    first = messages[0]
    if call_ids(first):
        body = _exchange(messages, rules, unanswered)
    elif isinstance(first, ToolMessage) and first.tool_call_id in unanswered:
        body = (_late(first),)
    else:
        body = _lone(first, rules)
    if not body or not isinstance(body[0], AIMessage):
        return body
    is_call = bool(call_ids(body[0]))
    if previous is None and not (rules.starts_with_ai and (rules.calls_after_ai or not is_call)):
        return (note_message(OPENING_TEXT, f"{body[0].id}:opening"), *body)
    if is_call and isinstance(previous, AIMessage) and not rules.calls_after_ai:
        return (note_message(CONTINUE_TEXT, f"{body[0].id}:continue"), *body)
    return body


def unanswered_in(messages: Sequence[AnyMessage]) -> Iterator[str]:
    """Yield the ids of the calls that are shown with a placeholder for their result."""
    for message in messages:
        if isinstance(message, ToolMessage) and (message.id or "").endswith(UNANSWERED):
            yield message.tool_call_id


def is_valid_step(messages: Sequence[AnyMessage], previous: AnyMessage | None, rules: Rules = UNKNOWN) -> bool:
    """True for the steps that histories mostly consist of, which `repair_step` returns as they are; takes no time."""
    first = messages[0]
    calls = first.tool_calls if type(first) is AIMessage else []
    if type(first) is HumanMessage or (type(first) is AIMessage and not calls and previous is not None):
        is_filled = isinstance(first.content, str) and first.content != "" and not first.content.isspace()
        return is_filled and len(messages) == 1 and not getattr(first, "invalid_tool_calls", ())
    if type(first) is not AIMessage or previous is None or first.invalid_tool_calls or first.content is None:
        return False
    if len(messages) != len(calls) + 1 or (isinstance(previous, AIMessage) and not rules.calls_after_ai):
        return False
    return all(
        type(result) is ToolMessage and result.tool_call_id == call["id"] and result.content is not None
        for call, result in zip(calls, messages[1:], strict=True)
    )


def find_faults(messages: Sequence[AnyMessage]) -> list[str]:
    """Return what a strict provider would refuse in a message list; empty when it is valid.

    Examples:
        >>> find_faults([AIMessage("hello")])
        ['the first message after the system prompt is ai, not human']
    """
    begin = next((i for i, message in enumerate(messages) if not isinstance(message, SystemMessage)), len(messages))
    body, faults, index = messages[begin:], list[str](), 0
    if body and not isinstance(body[0], HumanMessage):
        faults.append(f"the first message after the system prompt is {body[0].type}, not human")
    while index < len(body):
        message = body[index]
        index += 1
        if isinstance(message, ToolMessage):
            faults.append(f"tool result {message.tool_call_id!r} answers no call")
        elif isinstance(message, SystemMessage) or is_empty(message):
            what = "a late system message" if message.type == "system" else "empty"
            faults.append(f"message {index - 1} is {what}")
        elif wanted := [*call_ids(message)]:
            following = body[index : index + len(wanted)]
            answered = [reply.tool_call_id for reply in following if isinstance(reply, ToolMessage)]
            index += len(answered)
            faults += [f"calls {wanted} are answered by {answered}"] if answered != wanted else []
    return faults


def note_message(content: Any, note_id: str) -> HumanMessage:
    """Return a user-side message written by this package; it never counts as a user message of its own."""
    return HumanMessage(content=content, id=note_id, additional_kwargs={NOTE_KEY: True})


def is_empty(message: AnyMessage) -> bool:
    """True when a message has neither content nor calls."""
    return not (text_of(message.content).strip() or media_count(message) or call_ids(message))


def _lone(message: AnyMessage, rules: Rules) -> tuple[AnyMessage, ...]:
    if isinstance(message, ToolMessage | RemoveMessage):
        return ()
    if isinstance(message, SystemMessage) and not (rules.takes_system and not is_empty(message)):
        return (note_message(f"{SYSTEM_NOTE_TEXT}\n{text_of(message.content)}", message.id or "system-note"),)
    if not is_empty(message):
        return (message,)
    return () if isinstance(message, AIMessage) else (message.model_copy(update={"content": EMPTY_USER_TEXT}),)


def _late(result: ToolMessage) -> AnyMessage:
    """A result whose call was shown without one; what was sent stays as it was."""
    label = f"{LATE_TEXT}\n"
    shown: Any = f"{label}{result.content}"
    if not isinstance(result.content, str):
        shown = [{"type": "text", "text": label}, *result.content]
    return note_message(shown, f"{result.id or result.tool_call_id}:late")


def _exchange(messages: Sequence[AnyMessage], rules: Rules, unanswered: Collection[str]) -> tuple[AnyMessage, ...]:
    """Each calling AI message followed by one result per call, in the order of the calls; then what came late."""
    results = [message for message in messages if isinstance(message, ToolMessage)]
    ordered: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage | SystemMessage):
            continue
        ordered.append(message)
        for call_id in call_ids(message):
            place = next((i for i, result in enumerate(results) if result.tool_call_id == call_id), None)
            key = f"{message.id}:{call_id}{UNANSWERED}"
            placeholder = ToolMessage(content=UNANSWERED_TEXT, tool_call_id=call_id, status="error", id=key)
            ordered.append(placeholder if place is None else results.pop(place))
    late = (_late(result) for result in results if result.tool_call_id in unanswered)
    notes = (_lone(message, rules)[0] for message in messages if isinstance(message, SystemMessage))
    return (*ordered, *late, *notes)


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
            free = waiting.pop(0)
            is_same = message.tool_call_id == free
            renamed.append(message if is_same else message.model_copy(update={"tool_call_id": free}))
            continue
        waiting = []
        for call_id in call_ids(message):
            candidates = (call_id if number == 0 else f"{call_id}_{number}" for number in count())
            waiting.append(next(name for name in candidates if name and name not in taken))
            taken.add(waiting[-1])
        renamed.append(_calling(message, waiting) if isinstance(message, AIMessage) and waiting else message)
    return tuple(renamed)


def _calling(message: AIMessage, new_ids: Sequence[str]) -> AIMessage:
    """Rename the calls everywhere an integration may read them: calls, content blocks, the provider's raw copy."""
    old_ids = call_ids(message)
    if list(old_ids) == list(new_ids):
        return message
    names = {old: new for old, new in zip(old_ids, new_ids, strict=True) if old}
    free = iter(new_ids)
    changes: dict[str, Any] = {
        "tool_calls": [{**call, "id": next(free)} for call in message.tool_calls],
        "invalid_tool_calls": [{**call, "id": next(free)} for call in message.invalid_tool_calls],
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
