"""Repairs requests that a provider would refuse: tool calls without results, results without calls, odd openings.

Every provider refuses a request whose tool calls lack results or whose results lack calls; what else it refuses its
`Rules` say, and nothing else is touched. Histories arrive like that all the same. Every repair depends only on the step
and on what precedes it, so a longer history never changes what was sent earlier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_ctxwin.core.calls import (
    CALL_BLOCKS,
    KEPT_CALLS,
    RESULT_BLOCKS,
    AnyCall,
    call_ids,
    calls_of,
    kinds_in,
    result_ids,
    standard,
    without_call_blocks,
)
from langchain_ctxwin.core.edits import REASONING_TYPES, media_count, spoken, text_of
from langchain_ctxwin.core.turns import NOTE_KEY, SOURCE

EMPTY_USER_TEXT = "[empty message]"
OPENING_TEXT = "[The conversation continues from here.]"
CONTINUE_TEXT = "[Continue.]"
UNANSWERED_TEXT = "[No result: this call was not answered.]"
LATE_TEXT = "[Result of an earlier call, which came late]"
SYSTEM_NOTE_TEXT = "[System note]"
NAMELESS = "call"  # begins the id of a call that came without one
UNANSWERED = ":unanswered"  # ends the id of a placeholder
FORMS = CALL_BLOCKS | RESULT_BLOCKS.keys()
_SIGNED = frozenset(
    {"signature", "thought_signature", "extras"}
)  # keys of blocks that are to be sent again as they are


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
    takes_breakpoints: bool = False
    """OpenAI's prompt cache matches at breakpoints, which blocks of content may set."""

    loads_tools: bool = False
    """A message can load a tool whose definition was deferred, so that the tools of a conversation stay the same."""

    calls_need_reasoning: bool = True
    """A call that waits for its result has to come back with the reasoning before it; so with a provider that nobody
    knows."""

    takes_betas: bool = False  # its client sends feature headers that a call names
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
    is_read = rules.provider == "anthropic" and _is_paired_in_blocks(messages)
    parts = messages if is_read else [part for message in messages for part in standard(_filled(message))]
    parts = [sendable(message, rules.provider) for message in parts]
    if is_read:
        body = tuple(parts)
    elif any(map(call_ids, parts)):
        body = _exchange(parts, rules, unanswered)
    else:
        body = tuple(shown for part in parts for shown in _lone(part, rules, unanswered))
    if not body or not isinstance(body[0], AIMessage):
        return body
    is_call = bool(call_ids(body[0]))
    if previous is None and not (rules.starts_with_ai and (rules.calls_after_ai or not is_call)):
        return (note_message(OPENING_TEXT, f"{body[0].id}:opening"), *body)
    if is_call and isinstance(previous, AIMessage) and not rules.calls_after_ai:
        return (note_message(CONTINUE_TEXT, f"{body[0].id}:continue"), *body)
    return body


def sendable(message: AnyMessage, provider: str) -> AnyMessage:
    """Return the message without the parts that its provider refuses, or that its integration makes such parts of.

    Gemini refuses a text part without text, and its integration sends no malformed call, as none sends one without a
    name; Anthropic refuses blanks
    before a call; OpenAI's Responses API refuses reasoning that nothing of its answer follows. What is signed stays.
    """
    changes = dict[str, Any]()
    content: Any = message.content
    if isinstance(content, list):
        blocks = [block for block in content if not (provider == "gemini" and _is_empty_text(block))]
        if provider == "openai" and isinstance(message, AIMessage) and not call_ids(message):
            blocks = _without_loose_reasoning(blocks)
        if len(blocks) < len(content):
            changes["content"] = blocks or ""
    elif provider == "anthropic" and content.isspace() and call_ids(message):
        changes["content"] = ""
    if isinstance(message, AIMessage):
        sent = [] if provider == "gemini" else [call for call in message.invalid_tool_calls if call["name"]]
        if len(sent) < len(message.invalid_tool_calls):
            kept = {key: value for key, value in message.additional_kwargs.items() if key not in KEPT_CALLS}
            blocks = without_call_blocks(changes.get("content", content))
            changes |= {"invalid_tool_calls": sent, "additional_kwargs": kept, "content": blocks}
        if provider in {"gemini", "anthropic"} and (said := spoken(message)) and not text_of(content).strip():
            changes["content"] = said  # the id of what was said is for OpenAI
    return message.model_copy(update=changes) if changes else message


def unanswered_in(messages: Sequence[AnyMessage]) -> Iterator[str]:
    """Yield the ids of the calls that are shown with a placeholder for their result."""
    for message in messages:
        if isinstance(message, ToolMessage) and (message.id or "").endswith(UNANSWERED):
            yield message.tool_call_id


def is_valid_step(messages: Sequence[AnyMessage], previous: AnyMessage | None, rules: Rules = UNKNOWN) -> bool:
    """True for the steps that histories mostly consist of, which `repair_step` returns as they are; takes no time."""
    first, size = messages[0], len(messages)
    if not isinstance(first.content, str):
        return False
    is_blank = first.content == "" or first.content.isspace()
    if type(first) is HumanMessage:
        return size == 1 and not is_blank
    if type(first) is not AIMessage or previous is None or first.invalid_tool_calls:
        return False
    calls = first.tool_calls
    if not calls:
        return size == 1 and not is_blank and KEPT_CALLS.isdisjoint(first.additional_kwargs)
    if size != len(calls) + 1 or (isinstance(previous, AIMessage) and not rules.calls_after_ai):
        return False
    return not (is_blank and first.content) and all(
        type(result) is ToolMessage and result.tool_call_id == call["id"] != "" and isinstance(result.content, str)
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
    return HumanMessage(content=content, id=note_id, additional_kwargs={NOTE_KEY: True, "lc_source": SOURCE})


def is_empty(message: AnyMessage) -> bool:
    """True when a message has neither content nor calls, nor was spoken."""
    return not (text_of(message.content).strip() or media_count(message) or call_ids(message) or spoken(message))


def _filled(message: AnyMessage) -> AnyMessage:
    """Adapters that do not validate leave `None` as content; integrations and counters expect text."""
    missing: object = None
    return message.model_copy(update={"content": ""}) if message.content is missing else message


def _without_loose_reasoning(blocks: list[Any]) -> list[Any]:
    """The blocks without the reasoning at their end."""
    kinds = [block.get("type") if isinstance(block, dict) and not _is_empty_text(block) else "" for block in blocks]
    is_end = [kind == "" or kind in REASONING_TYPES for kind in kinds]
    stop = next((i + 1 for i in range(len(blocks) - 1, -1, -1) if not is_end[i]), 0)
    return blocks[:stop] if any(kind in REASONING_TYPES for kind in kinds[stop:]) else blocks


def _is_empty_text(block: Any) -> bool:
    """True for text without text; one that carries a signature has to be sent again."""
    if isinstance(block, str):
        return block == ""
    return isinstance(block, dict) and block.get("type") == "text" and not block.get("text") and not _SIGNED & {*block}


def _is_paired_in_blocks(messages: Sequence[AnyMessage]) -> bool:
    """True for an answer whose calls have ids of their own, with the results of just these in user messages."""
    wanted, results = call_ids(messages[0]), [result_ids(message) for message in messages[1:]]
    answered = [name for names in results for name in names]
    kinds = [kinds_in(message) & FORMS for message in messages]
    if not (all(results) and all(isinstance(message, HumanMessage) for message in messages[1:])):
        return False
    is_sent = kinds[0] == {"tool_use"} or (not kinds[0] and bool(getattr(messages[0], "tool_calls", ())))
    if not is_sent or any(kind != {"tool_result"} for kind in kinds[1:]):
        return False
    return all(wanted) and len({*wanted}) == len(wanted) and sorted(answered) == sorted(wanted)


def _lone(message: AnyMessage, rules: Rules, unanswered: Collection[str] = ()) -> tuple[AnyMessage, ...]:
    if isinstance(message, ToolMessage | RemoveMessage):
        # One without an id can only be told to be late, not for which call.
        is_late = any(name in unanswered or (not name and bool(unanswered)) for name in result_ids(message))
        return (_late(message),) if is_late else ()
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
    known = {call_id for message in messages for call_id in call_ids(message)} | {*unanswered}
    results = _Results([message for message in messages if isinstance(message, ToolMessage)], known)
    ordered: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage | SystemMessage):
            continue
        ordered += _lone(message, rules)
        calls = calls_of(message)
        for call, answer in zip(calls, results.taken_by(calls), strict=True):
            key = call["id"] or ""
            if answer is None:
                place = f"{message.id}:{key}{UNANSWERED}"
                answer = ToolMessage(content=UNANSWERED_TEXT, tool_call_id=key, status="error", id=place)  # noqa: PLW2901
            ordered.append(answer if answer.tool_call_id == key else answer.model_copy(update={"tool_call_id": key}))
    late = (note for result in results.left() for note in _lone(result, rules, unanswered))
    notes = (_lone(message, rules)[0] for message in messages if isinstance(message, SystemMessage))
    return (*ordered, *late, *notes)


class _Results:
    """The results of a step, each taken by one call: of many, the one by an id is found without looking at the others.

    `known` are the ids of calls that a result may be of; a result of none of them is loose.
    """

    def __init__(self, results: Sequence[ToolMessage], known: Collection[str]) -> None:
        self._results = results
        self._by_id = defaultdict[str, deque[int]](deque)
        self._loose = list[int]()
        self._taken = set[int]()
        for place, result in enumerate(results):
            is_loose = not result.tool_call_id or result.tool_call_id not in known
            (self._loose if is_loose else self._by_id[result.tool_call_id]).append(place)

    def taken_by(self, calls: Sequence[AnyCall]) -> list[ToolMessage | None]:
        """Take the result of each call: the one by its id; where ids are missing the one of its name, or the next."""
        found: list[ToolMessage | None] = [self._by_id_of(call) for call in calls]
        for fits in (_is_by_name, _is_next) if self._loose else ():
            for number, call in enumerate(calls):
                if found[number] is None:
                    place = next((place for place in self._loose if fits(call, self._results[place])), None)
                    found[number] = None if place is None else self._take(place)
                    if place is not None:
                        self._loose.remove(place)
        return found

    def left(self) -> Iterator[ToolMessage]:
        """Yield the results that no call took."""
        return (result for place, result in enumerate(self._results) if place not in self._taken)

    def _by_id_of(self, call: AnyCall) -> ToolMessage | None:
        places = self._by_id.get(call["id"] or "")
        return self._take(places.popleft()) if places else None

    def _take(self, place: int) -> ToolMessage:
        self._taken.add(place)
        return self._results[place]


def _is_by_name(call: AnyCall, result: ToolMessage) -> bool:
    return _is_open(call, result) and bool(result.name) and result.name == call["name"]


def _is_next(call: AnyCall, result: ToolMessage) -> bool:
    return _is_open(call, result) and (not result.name or not call["name"])


def _is_open(call: AnyCall, result: ToolMessage) -> bool:
    return not result.tool_call_id or not call["id"]


def unique_calls(shown: Sequence[AnyMessage], taken: set[str]) -> tuple[AnyMessage, ...]:
    """Return the messages of a valid step with every call id that is missing or taken replaced, results included.

    The ids of the step are added to `taken`. Messages that keep their ids are returned as the same objects.
    """
    ids = [call_id for message in shown for call_id in call_ids(message)]
    if taken.isdisjoint(ids) and len(set(ids)) == len(ids) and all(ids):
        taken.update(ids)
        return tuple(shown)
    renamed: list[AnyMessage] = []
    waiting: list[str] = []
    for message in [part for given in shown for part in standard(given)]:
        if isinstance(message, ToolMessage) and waiting:
            free = waiting.pop(0)
            is_same = message.tool_call_id == free
            renamed.append(message if is_same else message.model_copy(update={"tool_call_id": free}))
            continue
        waiting = []
        for call_id in call_ids(message):
            waiting.append(_free_id(call_id, taken))
            taken.add(waiting[-1])
        renamed.append(_calling(message, waiting) if isinstance(message, AIMessage) and waiting else message)
    return tuple(renamed)


def _free_id(call_id: str, taken: Collection[str]) -> str:
    """The id itself if it is free, else with the first number behind it that is; found in few looks among many."""
    if call_id and call_id not in taken:
        return call_id
    base = call_id or NAMELESS
    most = next(2**power for power in count() if f"{base}_{2**power}" not in taken)
    return f"{base}_{1 + bisect_left(range(1, most + 1), x=True, key=lambda number: f'{base}_{number}' not in taken)}"


def _calling(message: AIMessage, new_ids: Sequence[str]) -> AIMessage:
    """Rename the calls everywhere an integration may read them: calls, content blocks, the provider's raw copy.

    Blocks that state calls without ids, or several with one, leave: the calls are sent as `tool_calls` state them.
    """
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
    content: Any = message.content
    if isinstance(content, list):
        changes["content"] = _renamed(content if len(names) == len(old_ids) else without_call_blocks(content), names)
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
