"""Tool calls and their results, in whatever form; and repairs of requests that a provider would refuse.

LangChain's form is `tool_calls` answered by one `ToolMessage` each. Histories state the same in blocks of the content
(Anthropic's `tool_use` and `tool_result`, items of OpenAI's Responses API, LangChain's standard blocks), and old ones
in `additional_kwargs` with a `FunctionMessage`. What an integration sends as a call is one.

Every provider refuses a request whose tool calls lack results or whose results lack calls; what else it refuses its
`Rules` and `sendable` say, and nothing else is touched. Histories arrive like that all the same. Every repair
depends only on the step and on what precedes it, so a longer history never changes what was sent earlier.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, zip_longest
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    FunctionMessage,
    HumanMessage,
    InvalidToolCall,
    RemoveMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

from langchain_ctxwin.core.model_info import UNKNOWN, Rules
from langchain_ctxwin.core.provider_blocks import (
    RESULT_KEYS,
    RESULT_TYPES,
    block_text,
    blocks_of,
    kind_of,
    media_count,
    spoken,
    text_of,
    with_fields,
    with_media,
    without_blocks,
)

# where `additional_kwargs` keep calls in OpenAI's own form
KEPT_CALLS = frozenset({"tool_calls", "function_call"})
UNSENT_TYPES = frozenset({"tool_call", "invalid_tool_call", "tool_call_chunk"})
"""Standard blocks, which integrations send only as `tool_calls`, or where the message says that its content is v1."""

# has no twin in `tool_calls`: the integration would send both
SCREEN_CALL = "computer_call"
# where blocks keep the arguments of a call
ARGUMENT_KEYS = ("input", "args", "arguments", "action", "partial_json")
# what LangChain calls the argument of a tool that takes one text
TEXT_ARGUMENT = "__arg1"

AnyCall = ToolCall | InvalidToolCall


def calls_of(message: AnyMessage) -> tuple[AnyCall, ...]:
    """Return the calls that a message states, in order; malformed ones last, because providers want them answered."""
    if not isinstance(message, AIMessage):
        return ()
    calls: list[AnyCall] = [*message.tool_calls, *message.invalid_tool_calls]
    if type(message.content) is list:
        calls = [*calls, *_calls_in_blocks(message.content, calls)]
    function = message.additional_kwargs.get("function_call") if not calls else None
    if function:
        calls = [_call(function["name"], function.get("arguments") or {}, None)]
    return tuple(calls)


def call_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls that a message states, in order; empty texts for calls without one."""
    return tuple([call["id"] or "" for call in calls_of(message)])


def result_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls whose results a message states; empty texts for results without one."""
    if isinstance(message, FunctionMessage):
        return ("",)
    is_text = type(message.content) is str
    block_ids = () if is_text else tuple(map(_result_id, _result_blocks(message)))
    if isinstance(message, ToolMessage):
        return block_ids or (message.tool_call_id or "",)
    return block_ids


def is_result(message: AnyMessage) -> bool:
    """True for a message of results alone, such as a user message with nothing but Anthropic's `tool_result` blocks."""
    if isinstance(message, HumanMessage):
        return bool(_result_blocks(message)) and not _beside_results(message.content)
    return isinstance(message, ToolMessage | FunctionMessage)


def is_user(message: AnyMessage) -> bool:
    """True for a user message that says something: one of tool results alone does not."""
    return isinstance(message, HumanMessage) and not is_result(message)


def is_empty(message: AnyMessage) -> bool:
    """True when a message has neither content nor calls, nor was spoken."""
    return not (
        text_of(message.content).strip()
        or media_count(message)
        or call_ids(message)
        or spoken(message)
    )


def standard(message: AnyMessage) -> tuple[AnyMessage, ...]:
    """Return a message in LangChain's own form: calls as `tool_calls`, each result as a `ToolMessage`.

    What a user message says beside results follows them. A message in that form already is returned as it is.

    Examples:
        >>> asked = AIMessage(
        ...     [
        ...         {
        ...             "type": "tool_use",
        ...             "id": "a",
        ...             "name": "look",
        ...             "input": {"at": "door"},
        ...         }
        ...     ]
        ... )
        >>> standard(asked)[0].tool_calls[0]["args"]
        {'at': 'door'}
        >>> [
        ...     m.type
        ...     for m in standard(
        ...         HumanMessage(
        ...             [{"type": "tool_result", "tool_use_id": "a", "content": "shut"}]
        ...         )
        ...     )
        ... ]
        ['tool']
    """
    if isinstance(message, AIMessage):
        return (_with_tool_calls(message),)
    if isinstance(message, FunctionMessage):
        return (
            ToolMessage(
                message.content, tool_call_id="", name=message.name, id=message.id
            ),
        )
    blocks = _result_blocks(message)
    if not blocks:
        return (message,)
    beside = _beside_results(message.content)
    is_alone = len(blocks) == 1 and not beside
    results = [
        _tool_message(block, message.id if is_alone else f"{message.id}:{number}")
        for number, block in enumerate(blocks)
    ]
    said = [message.model_copy(update={"content": beside})] if beside else []
    return (*results, *said)


def _calls_in_blocks(
    content: Sequence[Any], listed_calls: Sequence[AnyCall]
) -> Iterator[AnyCall]:
    """The calls in blocks that `tool_calls` do not state, too; a block without an id belongs to those."""
    stated_ids = {call["id"] for call in listed_calls}
    for block in filter(is_call_block, content):
        ids = {block.get("call_id"), block.get("id")} - {None, ""}
        is_stated = bool(ids & stated_ids) if ids else bool(listed_calls)
        if not is_stated:
            yield _call_in(block)


def _call_in(block: Mapping[str, Any]) -> AnyCall:
    arguments: Any = next((block[key] for key in ARGUMENT_KEYS if block.get(key)), {})
    if block["type"] == "custom_tool_call":
        arguments = {TEXT_ARGUMENT: arguments}
    name = block.get("name") or block["type"]
    return _call(name, arguments, block.get("call_id") or block.get("id"))


def _call(name: Any, raw_arguments: Any, call_id: Any) -> AnyCall:
    """A call with arguments that may be JSON; malformed where they are no object."""
    arguments = raw_arguments
    if isinstance(raw_arguments, str):
        try:
            arguments = json.loads(raw_arguments)
        except ValueError:
            arguments = None
    if isinstance(arguments, dict):
        return tool_call(name=str(name), args=arguments, id=call_id)
    return invalid_tool_call(
        name=str(name),
        args=str(raw_arguments),
        id=call_id,
        error="the arguments are no JSON object",
    )


def _with_tool_calls(message: AIMessage) -> AIMessage:
    """The message with all its calls in `tool_calls` and `invalid_tool_calls`."""
    calls = [call for call in calls_of(message) if call["name"] != SCREEN_CALL]
    listed = len(message.tool_calls) + len(message.invalid_tool_calls)
    is_whole = len(calls) == listed
    content: Any = message.content
    if message.response_metadata.get("output_version") != "v1":
        content = without_blocks(content, _is_unsent)
    return with_fields(
        message,
        content=content,
        tool_calls=[call for call in calls if call["type"] == "tool_call"],
        invalid_tool_calls=[call for call in calls if call["type"] != "tool_call"],
        additional_kwargs=message.additional_kwargs
        if is_whole
        else without_kept_calls(message),
    )


def without_kept_calls(message: AIMessage) -> dict[str, Any]:
    """Return the `additional_kwargs` without the provider's raw copy of the calls: `tool_calls` hold what is sent."""
    return {
        key: value
        for key, value in message.additional_kwargs.items()
        if key not in KEPT_CALLS
    }


def is_call_block(block: Any) -> bool:
    """Return whether a block of content states a call."""
    return kind_of(block) == "call"


def _is_unsent(block: Any) -> bool:
    return is_call_block(block) and block["type"] in UNSENT_TYPES


def _tool_message(block: Mapping[str, Any], message_id: str | None) -> ToolMessage:
    returned = next(
        (block[key] for key in RESULT_KEYS if block.get(key) is not None), ""
    )
    if not isinstance(returned, str | list):
        returned = json.dumps(returned, ensure_ascii=False, default=str)
    return ToolMessage(
        returned,
        tool_call_id=_result_id(block),
        name=block.get("name"),
        status="error" if block.get("is_error") else "success",
        id=message_id,
    )


def _result_blocks(message: AnyMessage) -> list[Mapping[str, Any]]:
    """The blocks of results of a user message; of a `ToolMessage` only where it holds nothing else."""
    content: Any = message.content
    if type(content) is not list or not isinstance(message, HumanMessage | ToolMessage):
        return []
    results = [block for block in content if kind_of(block) == "result"]
    is_user_side = isinstance(message, HumanMessage)
    is_whole = len(results) == len(content) and all(map(_result_id, results))
    return results if is_user_side or is_whole else []


def _beside_results(content: Any) -> list[Any]:
    """The content beside results; empty where there is none."""
    rest = [block for block in content if kind_of(block) != "result"]
    is_said = any(text is None or text.strip() for text in map(block_text, rest))
    return rest if is_said else []


def _result_id(block: Mapping[str, Any]) -> str:
    return str(block.get(RESULT_TYPES[block["type"]]) or "")


NOTE_KEY = "ctxwin_note"  # marks user-side messages that this package wrote; they never start a turn
SOURCE = "langchain_ctxwin"  # what `lc_source`, LangChain's mark of what wrote a message or makes a call, says of ours
EMPTY_USER_TEXT = "[empty message]"
OPENING_TEXT = "[The conversation continues from here.]"
CONTINUE_TEXT = "[Continue.]"
UNANSWERED_TEXT = "[No result: this call was not answered.]"
LATE_TEXT = "[Result of an earlier call, which came late]"
MEDIA_TEXT = "[Pictures and files of the results above, in their order]"
SYSTEM_NOTE_TEXT = "[System note]"
NAMELESS = "call"  # begins the id of a call that came without one
UNANSWERED = ":unanswered"  # ends the id of a placeholder

# of blocks that are to be sent again as they are
SIGNATURE_KEYS = ("signature", "thought_signature", "extras")


def repair_step(
    messages: Sequence[AnyMessage],
    previous: AnyMessage | None,
    rules: Rules = UNKNOWN,
    unanswered: Collection[str] = (),
    *,
    is_answered: bool = False,
) -> tuple[AnyMessage, ...]:
    """Return the step as a valid continuation of `previous` (None at the start of the request).

    Messages that need no repair are returned as the same objects. Orphaned results and empty AI messages are left out;
    unanswered calls get a marked placeholder, and a result that comes after it is a labelled user-side note, as system
    messages are where the provider does not take them. `unanswered` are the ids of the calls before the step that were
    shown with a placeholder. `is_answered` says that an answer follows, or is asked for.
    """
    if rules.takes_system_behind_user and is_answered:
        is_behind = isinstance(previous, HumanMessage | ToolMessage | SystemMessage)
        rules = replace(rules, takes_system=is_behind)
    is_read = rules.provider == "anthropic" and _is_paired_in_blocks(messages)
    parts = (
        messages
        if is_read
        else [part for message in messages for part in standard(_filled(message))]
    )
    parts = [sendable(message, rules.provider) for message in parts]
    if is_read:
        body = tuple(parts)
    elif any(map(call_ids, parts)):
        body = _paired(parts, rules, unanswered)
    else:
        body = tuple(
            repaired for part in parts for repaired in _lone(part, rules, unanswered)
        )
    if not rules.media_in_results:
        body = tuple(_media_behind_results(body))
    opening = opening_before(body[0], previous, rules) if body else ""
    return (note_message(opening, f"{body[0].id}:opening"), *body) if opening else body


# Of `additional_kwargs`: what was spoken or thought, which not every provider takes as it is.
SPECIAL_KEYS = frozenset({"audio", "reasoning"})


def is_plain(messages: Sequence[AnyMessage], calls: Sequence[str]) -> bool:
    """True for a text, and for calls with ids of their own and a text for each in order: no provider needs a repair."""
    first, results = messages[0], messages[1:]
    content: Any = first.content
    if type(content) is not str or not SPECIAL_KEYS.isdisjoint(first.additional_kwargs):
        return False
    if not calls:
        return type(first) in {AIMessage, HumanMessage} and bool(content.strip())
    answered = [
        result.tool_call_id
        for result in results
        if isinstance(result, ToolMessage)
        and type(result.content) is str
        and result.artifact is None
    ]
    return (
        isinstance(first, AIMessage)
        and len(first.tool_calls) == len(results) == len({*calls})
        and answered == [*calls]
        and all(calls)
        and not content.isspace()
    )


def sendable(message: AnyMessage, provider: str) -> AnyMessage:
    """Return the message without the parts that its provider refuses or its integration does not send.

    What is signed stays; a call without a name is sent by none.
    """
    is_claude, is_gemini = provider == "anthropic", provider == "gemini"
    content: Any = message.content
    if is_claude or is_gemini:
        content = without_blocks(content, _is_empty_text)
    if not isinstance(message, AIMessage):
        return with_fields(message, content=content)
    calls = call_ids(message)
    is_loose = not calls and provider in {"gemini", "openai"}
    if is_loose and isinstance(content, list):
        content = _without_loose_reasoning(content) or ""
    if is_claude and calls and isinstance(content, str) and not content.strip():
        content = ""
    kwargs = message.additional_kwargs
    said = "" if text_of(content).strip() else spoken(message)
    if said and (is_claude or is_gemini):  # they know no id of what was spoken
        content = said
        kwargs = {key: value for key, value in kwargs.items() if key != "audio"}
    if is_claude:  # other forms of a call that `tool_calls` state, too
        content = without_blocks(content, _is_foreign_call)
    named = [call for call in message.invalid_tool_calls if call["name"]]
    invalid = [] if is_gemini else named
    if len(invalid) == len(message.invalid_tool_calls):
        return with_fields(message, content=content, additional_kwargs=kwargs)
    return with_fields(
        message,
        content=without_blocks(content, is_call_block),
        invalid_tool_calls=invalid,
        additional_kwargs=without_kept_calls(message),
    )


def unanswered_in(messages: Sequence[AnyMessage]) -> Iterator[str]:
    """Yield the ids of the calls that are shown with a placeholder for their result."""
    for message in messages:
        if isinstance(message, ToolMessage) and (message.id or "").endswith(UNANSWERED):
            yield message.tool_call_id


def note_message(content: Any, note_id: str) -> HumanMessage:
    """Return a user-side message written by this package; it never counts as a user message of its own."""
    return HumanMessage(
        content=content,
        id=note_id,
        additional_kwargs={NOTE_KEY: True, "lc_source": SOURCE},
    )


def unique_calls(
    messages: Sequence[AnyMessage], taken: set[str]
) -> tuple[AnyMessage, ...]:
    """Return the messages of a valid step with every call id that is missing or taken replaced, results included.

    The ids of the step are added to `taken`. Messages that keep their ids are returned as the same objects.
    """
    ids = [call_id for message in messages for call_id in call_ids(message)]
    if taken.isdisjoint(ids) and len(set(ids)) == len(ids) and all(ids):
        taken.update(ids)
        return tuple(messages)
    renamed: list[AnyMessage] = []
    waiting: deque[str] = deque()
    for message in [part for source in messages for part in standard(source)]:
        if isinstance(message, ToolMessage) and waiting:
            renamed.append(with_fields(message, tool_call_id=waiting.popleft()))
            continue
        waiting = deque(_free_id(call_id, taken) for call_id in call_ids(message))
        renamed.append(
            _with_ids(message, waiting) if isinstance(message, AIMessage) else message
        )
    return tuple(renamed)


def _filled(message: AnyMessage) -> AnyMessage:
    """Adapters that do not validate leave `None` as content, and tools no blocks; integrations expect text."""
    return message if message.content else with_fields(message, content="")


def _media_behind_results(messages: Sequence[AnyMessage]) -> Iterator[AnyMessage]:
    """Yield the messages with the pictures and files of results in a user-side note behind these results."""
    moved = list[Any]()

    def place(block: Mapping[str, Any]) -> Mapping[str, Any]:
        moved.append(block)
        return {"type": "text", "text": f"[{kind_of(block)} {len(moved)}: see below]"}

    for message, following in zip_longest(messages, messages[1:]):
        is_result = isinstance(message, ToolMessage)
        content = with_media(message.content, place) if is_result else message.content
        yield with_fields(message, content=content)
        if moved and not isinstance(following, ToolMessage):
            label = {"type": "text", "text": MEDIA_TEXT}
            yield note_message([label, *moved], f"{message.id}:media")
            moved = []


def opening_before(first: AnyMessage, previous: AnyMessage | None, rules: Rules) -> str:
    """Return the text of the user message that has to stand before an answer; empty where none is needed."""
    if not isinstance(first, AIMessage):
        return ""
    is_free = rules.calls_after_ai or not call_ids(first)
    if previous is None:
        return "" if rules.starts_with_ai and is_free else OPENING_TEXT
    return "" if is_free or not isinstance(previous, AIMessage) else CONTINUE_TEXT


def _without_loose_reasoning(blocks: list[Any]) -> list[Any]:
    """The blocks without the reasoning at their end."""
    stop = len(blocks)
    while stop and (
        kind_of(blocks[stop - 1]) == "reasoning" or _is_empty_text(blocks[stop - 1])
    ):
        stop -= 1
    is_loose = any(kind_of(block) == "reasoning" for block in blocks[stop:])
    return blocks[:stop] if is_loose else blocks


def _is_empty_text(block: Any) -> bool:
    """True for text without text; one that carries a signature has to be sent again."""
    if kind_of(block) != "text" or block_text(block):
        return False
    return isinstance(block, str) or block.keys().isdisjoint(SIGNATURE_KEYS)


def _is_foreign_call(block: Any) -> bool:
    return is_call_block(block) and block["type"] != "tool_use"


def _is_paired_in_blocks(messages: Sequence[AnyMessage]) -> bool:
    """True for an answer whose calls have ids of their own, with the results of just these in user messages."""
    called_ids = call_ids(messages[0])
    answered = [call_id for message in messages[1:] for call_id in result_ids(message)]
    if not all(called_ids) or sorted({*called_ids}) != sorted(answered):
        return False
    blocks = [block for message in messages for block in blocks_of(message.content)]
    types = {b["type"] for b in blocks if kind_of(b) in {"call", "result"}}
    is_in_blocks = all(isinstance(message, HumanMessage) for message in messages[1:])
    is_own = is_in_blocks and types == {"tool_use", "tool_result"}
    return is_own and len(called_ids) == len(answered)


def _lone(
    message: AnyMessage, rules: Rules, unanswered: Collection[str] = ()
) -> tuple[AnyMessage, ...]:
    """A message that is part of no exchange, as the provider takes it."""
    if isinstance(message, ToolMessage | RemoveMessage):
        # A result without an id can only be told to be late, not for which call.
        names = result_ids(message) if unanswered else ()
        is_late = any(not name or name in unanswered for name in names)
        return (_late(message),) if is_late else ()
    if isinstance(message, SystemMessage) and (
        is_empty(message) or not rules.takes_system
    ):
        return (
            note_message(
                f"{SYSTEM_NOTE_TEXT}\n{text_of(message.content)}",
                message.id or "system-note",
            ),
        )
    if not is_empty(message):
        return (message,)
    return (
        ()
        if isinstance(message, AIMessage)
        else (with_fields(message, content=EMPTY_USER_TEXT),)
    )


def _late(result: ToolMessage) -> AnyMessage:
    """A result whose call was shown without one; what was sent stays as it was."""
    label = f"{LATE_TEXT}\n"
    content: Any = f"{label}{result.content}"
    if not isinstance(result.content, str):
        content = [{"type": "text", "text": label}, *result.content]
    return note_message(content, f"{result.id or result.tool_call_id}:late")


def _paired(
    messages: Sequence[AnyMessage], rules: Rules, unanswered: Collection[str]
) -> tuple[AnyMessage, ...]:
    """Each calling AI message followed by one result per call, in the order of the calls; then what came late."""
    called_ids = {call_id for message in messages for call_id in call_ids(message)}
    results = [message for message in messages if isinstance(message, ToolMessage)]
    paired: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage | SystemMessage):
            continue
        paired += _lone(message, rules)
        for call_id in call_ids(message):
            own_result = _result_of(call_id, results, called_ids)
            results = [result for result in results if result is not own_result]
            answer = own_result or ToolMessage(
                content=UNANSWERED_TEXT,
                tool_call_id=call_id,
                status="error",
                id=f"{message.id}:{call_id}{UNANSWERED}",
            )
            paired.append(with_fields(answer, tool_call_id=call_id))
    for result in results:
        paired += _lone(result, rules, unanswered)
    for message in messages:
        paired += _lone(message, rules) if isinstance(message, SystemMessage) else ()
    return tuple(paired)


def _result_of(
    call_id: str, results: Sequence[ToolMessage], called_ids: Collection[str]
) -> ToolMessage | None:
    """The result of a call: the one with its id, else the first that belongs to no other, where an id is missing."""
    for result in results:
        if result.tool_call_id == call_id:
            return result
    for result in results:
        lacks_id = not (call_id and result.tool_call_id)
        if lacks_id and result.tool_call_id not in called_ids:
            return result
    return None


def _free_id(call_id: str, taken: set[str]) -> str:
    """Take the id itself if it is free, else with a number behind it: some servers give every call the same id."""
    base = call_id or NAMELESS
    numbered = (f"{base}_{number}" for number in count(len(taken) or 1))
    free = (
        call_id
        if call_id and call_id not in taken
        else next(name for name in numbered if name not in taken)
    )
    taken.add(free)
    return free


def _with_ids(message: AIMessage, new_ids: Sequence[str]) -> AnyMessage:
    """Rename the calls. Blocks that state them leave: the calls are sent as `tool_calls` state them."""
    names = dict(zip(call_ids(message), new_ids, strict=True))
    free = iter(new_ids)
    return with_fields(
        message,
        tool_calls=[{**call, "id": next(free)} for call in message.tool_calls],
        invalid_tool_calls=[
            {**call, "id": next(free)} for call in message.invalid_tool_calls
        ],
        additional_kwargs={
            key: _renamed(value, names)
            for key, value in without_kept_calls(message).items()
        },
        content=without_blocks(message.content, is_call_block),
    )


def _renamed(kept: Any, names: Mapping[str, str]) -> Any:
    """Replace ids in a mapping by id (Gemini keeps its signatures like that)."""
    if not isinstance(kept, dict):
        return kept
    return {names.get(key, key): value for key, value in kept.items()}
