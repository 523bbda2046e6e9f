"""LangChain's own form of calls and results; and repairs of requests that a provider would refuse.

That form is `tool_calls` answered by one `ToolMessage` each. Histories state the same in blocks of the content
(Anthropic's `tool_use` and `tool_result`, items of OpenAI's Responses API, LangChain's standard blocks), and old ones
in `additional_kwargs` with a `FunctionMessage`. `standard` reads all of them once; from then on there is one form.

Every provider refuses a request whose tool calls lack results or whose results lack calls; what else it refuses its
`Rules` and `sendable` say, and nothing else is touched. Histories arrive like that all the same. Every repair
depends only on the step and on what precedes it, so a longer history never changes what was sent earlier.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, repeat
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    FunctionMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call

from langchain_ctxwin.core.model_info import UNKNOWN, Rules
from langchain_ctxwin.core.provider_blocks import (
    RESULT_KEYS,
    RESULT_TYPES,
    Block,
    Messages,
    block_text,
    kind_of,
    media_count,
    spoken,
    text_block,
    text_of,
    with_fields,
    with_media,
    without_blocks,
)

# where `additional_kwargs` keep calls in OpenAI's own form
KEPT_CALLS = frozenset({"tool_calls", "function_call"})
UNSENT_TYPES = frozenset({"tool_call", "invalid_tool_call", "tool_call_chunk"})
"""Standard blocks, which integrations send only as `tool_calls`, or where the message says that its content is v1."""

# where blocks keep the arguments of a call
ARGUMENT_KEYS = ("input", "args", "arguments", "action", "partial_json")
# what LangChain calls the argument of a tool that takes one text
TEXT_ARGUMENT = "__arg1"

AnyCall = ToolCall | InvalidToolCall


def standard(message: AnyMessage) -> tuple[AnyMessage, ...]:
    """Return a message in LangChain's own form: calls as `tool_calls`, each result as a `ToolMessage`.

    What a user message says beside results follows them; a tool message may be all results, of several calls. A message
    in that form already is returned as it is.

    Examples:
        >>> use = {
        ...     "type": "tool_use",
        ...     "id": "a",
        ...     "name": "look",
        ...     "input": {"at": "door"},
        ... }
        >>> standard(AIMessage([use]))[0].tool_calls[0]["args"]
        {'at': 'door'}
        >>> result = {"type": "tool_result", "tool_use_id": "a", "content": "shut"}
        >>> [one.type for one in standard(HumanMessage([result]))]
        ['tool']
    """
    if isinstance(message, AIMessage):
        return (_with_tool_calls(message),)
    content: Any = message.content
    if isinstance(message, FunctionMessage):
        block = {"type": "tool_result", "name": message.name, "content": content}
        return (_tool_message(block, message.id, message),)
    if isinstance(message, SystemMessage) or type(content) is not list:
        return (message,)
    results = [block for block in content if kind_of(block) == "result"]
    beside = [block for block in content if kind_of(block) != "result"]
    if not results or (beside and isinstance(message, ToolMessage)):
        return (message,)
    if not any(text is None or text.strip() for text in map(block_text, beside)):
        beside = []
    ids = [message.id]
    if beside or len(results) > 1:
        ids = [message.id and f"{message.id}:{place}" for place in range(len(results))]
    said = [message.model_copy(update={"content": beside})] if beside else []
    return (*map(_tool_message, results, ids, repeat(message)), *said)


def calls_of(message: AnyMessage) -> tuple[AnyCall, ...]:
    """Return the calls that a message states, in order; malformed ones later, because providers want them answered."""
    if not isinstance(message, AIMessage):
        return ()
    return (*message.tool_calls, *message.invalid_tool_calls)


def call_ids(message: AnyMessage) -> tuple[str, ...]:
    """Ids of the calls that a message states, in order; empty texts for calls without one."""
    return tuple([call["id"] or "" for call in calls_of(message)])


def is_empty(message: AnyMessage) -> bool:
    """True when a message has neither content nor calls, nor was spoken."""
    return not (
        text_of(message.content).strip()
        or media_count(message)
        or call_ids(message)
        or spoken(message)
    )


def is_call(block: Any) -> bool:
    """Return whether a block of content states a call."""
    return kind_of(block) == "call"


def without_kept_calls(message: AIMessage) -> dict[str, Any]:
    """Return the `additional_kwargs` without the provider's raw copy of the calls: `tool_calls` hold what is sent."""
    kwargs = message.additional_kwargs
    return {key: value for key, value in kwargs.items() if key not in KEPT_CALLS}


def _with_tool_calls(message: AIMessage) -> AIMessage:
    """The message with all its calls in `tool_calls` and `invalid_tool_calls`."""
    kwargs, content = message.additional_kwargs, cast("Any", message.content)
    if type(content) is not list and "function_call" not in kwargs:
        return message
    listed: list[AnyCall] = [*message.tool_calls, *message.invalid_tool_calls]
    calls = [_call_in(block) for block in content if _is_unlisted(block, listed)]
    if not (listed or calls) and (old := kwargs.get("function_call")):
        calls = [_call(old["name"], old.get("arguments") or {}, None)]
    new = {
        f"{field}s": [one for one in (*listed, *calls) if one["type"] == field]
        for field in ("tool_call", "invalid_tool_call")
    }
    if message.response_metadata.get("output_version") != "v1":
        content = without_blocks(
            content, lambda block: is_call(block) and block["type"] in UNSENT_TYPES
        )
    return with_fields(
        message,
        content=content,
        additional_kwargs=without_kept_calls(message) if calls else kwargs,
        **new,
    )


def _is_unlisted(block: Any, listed: Sequence[AnyCall]) -> bool:
    """True for a call that `tool_calls` do not state, too; a block without an id belongs to those."""
    if not is_call(block):
        return False
    ids = {block.get("call_id"), block.get("id")} - {None, ""}
    return ids.isdisjoint(call["id"] for call in listed) if ids else not listed


def _call_in(block: Block) -> AnyCall:
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


def _tool_message(
    block: Block, message_id: str | None, message: BaseMessage
) -> ToolMessage:
    given = (block[key] for key in RESULT_KEYS if block.get(key) is not None)
    returned = next(given, "")
    if not isinstance(returned, str | list):
        returned = json.dumps(returned, ensure_ascii=False, default=str)
    call_id = block.get(RESULT_TYPES[block["type"]])
    return ToolMessage(
        returned,
        tool_call_id=str(call_id or getattr(message, "tool_call_id", "")),
        name=block.get("name"),
        status="error" if block.get("is_error") else "success",
        id=message_id,
        additional_kwargs=message.additional_kwargs,  # such as the mark of a pin
    )


def merge_system(
    prompt: str | SystemMessage, leading: Messages
) -> SystemMessage | None:
    """Merge the system prompt with the system messages that lead the history; None when all are empty.

    A prompt with content blocks (cache markers, for example) keeps them as they are.
    """
    base = prompt if isinstance(prompt, SystemMessage) else SystemMessage(prompt)
    filled = [message for message in (base, *leading) if message.content]
    if not filled:
        return None
    first, *others = filled
    texts = (text_of(message.content) for message in others)
    return append_text(cast("SystemMessage", first), texts)


def append_text(
    system: SystemMessage | None, parts: Iterable[str]
) -> SystemMessage | None:
    """Return the system message with text added at its end; the same object when there is nothing to add."""
    text = "\n\n".join(filter(None, parts))
    if not text:
        return system
    message = system or SystemMessage("")
    content: Any = message.content
    if isinstance(content, list):
        return with_fields(message, content=[*content, text_block(text)])
    return with_fields(message, content="\n\n".join(filter(None, (content, text))))


# ---- repairs --------------------------------------------------------------------------------------------------------

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

# of blocks that are to be sent again as they are
SIGNATURE_KEYS = ("signature", "thought_signature", "extras")


@dataclass(slots=True, kw_only=True)
class Before:
    """What precedes a step in its request; each step that is shown joins it."""

    rules: Rules = UNKNOWN
    """What the provider of the request takes."""

    message: AnyMessage | None = None
    """The message right before the step; None at the start of the request."""

    calls: set[str] = field(default_factory=set)
    """Ids of the tool calls that were made before it."""

    unanswered: set[str] = field(default_factory=set)
    """Those of them that are shown without a result."""

    unbound: int = 0
    """Position up to which reasoning is tied to a prefix that the request no longer has: it is left out."""

    unsealed: int = 0
    """Position up to which nothing is shown that a provider signed or encrypted: it took that no more."""

    is_answered: bool = False
    """An answer follows the step, or is asked for behind it."""


def repair_step(messages: Messages, before: Before) -> tuple[AnyMessage, ...]:
    """Return the messages of a step, each as its provider takes it, as a valid continuation of what precedes them.

    Messages that need no repair are returned as the same objects. Orphaned results and empty AI messages are left out;
    unanswered calls get a marked placeholder, and a result that comes after it is a labelled user-side note, as system
    messages are where the provider does not take them. Ids of calls that are missing or taken are replaced.
    """
    rules = before.rules
    is_behind = isinstance(before.message, HumanMessage | ToolMessage | SystemMessage)
    may_follow = rules.takes_system_behind_user and before.is_answered
    takes_system = rules.takes_system or (may_follow and is_behind)
    # a result without an id can only be told to be late, not for which call
    late_ids = {*before.unanswered, ""} if before.unanswered else set()
    called_ids = {call_id for message in messages for call_id in call_ids(message)}
    results = [message for message in messages if isinstance(message, ToolMessage)]
    notes = [message for message in messages if isinstance(message, SystemMessage)]
    body = list[AnyMessage]()
    for message in messages:
        if isinstance(message, ToolMessage | SystemMessage):
            continue
        new_ids = [_free_id(call_id, before.calls) for call_id in call_ids(message)]
        body += _said(_with_ids(message, new_ids), takes_system=takes_system)
        answers = list[ToolMessage]()
        for call_id, new_id in zip(call_ids(message), new_ids, strict=True):
            answer = _result_of(call_id, results, called_ids)
            if answer is None:
                before.unanswered.add(new_id)
                answer = ToolMessage(
                    UNANSWERED_TEXT,
                    tool_call_id="",
                    status="error",
                    id=f"{message.id}:{call_id}:unanswered",
                )
            results = [result for result in results if result is not answer]
            answers.append(with_fields(answer, tool_call_id=new_id))
        body += answers if rules.media_in_results else _media_behind(answers)
    body += [_late(result) for result in results if result.tool_call_id in late_ids]
    for note in notes:
        body += _said(note, takes_system=takes_system)
    opening = opening_before(body[0], before) if body else ""
    first = [note_message(opening, f"{body[0].id}:opening")] if opening else []
    return (*first, *body)


def opening_before(first: AnyMessage, before: Before) -> str:
    """Return the text of the user message that has to stand before an answer; empty where none is needed."""
    if not isinstance(first, AIMessage):
        return ""
    rules, previous = before.rules, before.message
    is_free = rules.calls_after_ai or not call_ids(first)
    if previous is None:
        return "" if rules.starts_with_ai and is_free else OPENING_TEXT
    return "" if is_free or not isinstance(previous, AIMessage) else CONTINUE_TEXT


def note_message(content: Any, note_id: str) -> HumanMessage:
    """Return a user-side message written by this package; it never counts as a user message of its own."""
    return HumanMessage(
        content=content,
        id=note_id,
        additional_kwargs={NOTE_KEY: True, "lc_source": SOURCE},
    )


def _said(message: AnyMessage, *, takes_system: bool) -> list[AnyMessage]:
    """A message that is no result, as the provider takes it."""
    is_void = is_empty(message)
    if isinstance(message, SystemMessage) and (is_void or not takes_system):
        text = f"{SYSTEM_NOTE_TEXT}\n{text_of(message.content)}"
        return [note_message(text, message.id or "system-note")]
    if is_void and isinstance(message, AIMessage):
        return []
    return [with_fields(message, content=EMPTY_USER_TEXT) if is_void else message]


def _late(result: ToolMessage) -> AnyMessage:
    """A result whose call was shown without one; what was sent stays as it was."""
    label = f"{LATE_TEXT}\n"
    content: Any = f"{label}{result.content}"
    if not isinstance(result.content, str):
        content = [text_block(label), *result.content]
    return note_message(content, f"{result.id or result.tool_call_id}:late")


def _result_of(
    call_id: str, results: Sequence[ToolMessage], called_ids: Collection[str]
) -> ToolMessage | None:
    """The result of a call: the one with its id, else the first that belongs to no other, where an id is missing."""
    own = (result for result in results if result.tool_call_id == call_id)
    others = (
        result
        for result in results
        if not (call_id and result.tool_call_id)
        and result.tool_call_id not in called_ids
    )
    return next(chain(own, others), None)


def _media_behind(results: Sequence[ToolMessage]) -> Iterable[AnyMessage]:
    """The results of a call, and their pictures and files in a user-side note behind them."""
    moved = list[Any]()

    def place(block: Block) -> Block:
        moved.append(block)
        return text_block(f"[{kind_of(block)} {len(moved)}: see below]")

    for result in results:
        yield with_media(result, place)
    if moved:
        yield note_message([text_block(MEDIA_TEXT), *moved], f"{results[-1].id}:media")


def _free_id(call_id: str, taken: set[str]) -> str:
    """Take the id itself if it is free, else with a number behind it: some servers give every call the same id."""
    numbered = (f"{call_id or NAMELESS}_{number}" for number in count(len(taken) or 1))
    free = call_id or next(numbered)
    while free in taken:
        free = next(numbered)
    taken.add(free)
    return free


def _with_ids(message: AnyMessage, new_ids: Sequence[str]) -> AnyMessage:
    """Rename the calls. Blocks that state them leave: the calls are sent as `tool_calls` state them."""
    if not isinstance(message, AIMessage) or call_ids(message) == tuple(new_ids):
        return message
    free = iter(new_ids)
    return with_fields(
        message,
        tool_calls=[{**call, "id": next(free)} for call in message.tool_calls],
        invalid_tool_calls=[
            {**call, "id": next(free)} for call in message.invalid_tool_calls
        ],
        additional_kwargs=without_kept_calls(message),
        content=without_blocks(message.content, is_call),
    )


# ---- what one provider refuses of a message that another takes -------------------------------------------------------


def sendable(message: AnyMessage, provider: str) -> AnyMessage:
    """Return the message without the parts that its provider refuses or its integration does not send.

    What is signed stays; a call without a name is sent by none.
    """
    is_claude, is_gemini = provider == "anthropic", provider == "gemini"
    content: Any = message.content or ""
    if is_claude or is_gemini:
        content = without_blocks(content, _is_empty_text)
    if not isinstance(message, AIMessage):
        return with_fields(message, content=content)
    kwargs, is_calling = message.additional_kwargs, bool(call_ids(message))
    if not is_calling and provider in {"gemini", "openai"}:
        content = _without_loose_reasoning(content)
    if is_claude:
        # blanks beside a call, and other forms of a call that `tool_calls` state, too
        is_blank = is_calling and isinstance(content, str) and content.isspace()
        content = "" if is_blank else content
        content = without_blocks(
            content, lambda block: is_call(block) and block["type"] != "tool_use"
        )
    said = "" if text_of(content).strip() else spoken(message)
    if said and (is_claude or is_gemini):  # they know no id of what was spoken
        content = said
        kwargs = {key: value for key, value in kwargs.items() if key != "audio"}
    named = [call for call in message.invalid_tool_calls if call["name"]]
    invalid = [] if is_gemini else named
    if len(invalid) < len(message.invalid_tool_calls):
        content = without_blocks(content, is_call)
        kwargs = without_kept_calls(message)
    return with_fields(
        message, content=content, additional_kwargs=kwargs, invalid_tool_calls=invalid
    )


def _without_loose_reasoning(content: Any) -> Any:
    """The content without the reasoning at its end, behind which nothing of the answer stands."""
    if not isinstance(content, list):
        return content
    stop = len(content)
    while stop and (
        kind_of(content[stop - 1]) == "reasoning" or _is_empty_text(content[stop - 1])
    ):
        stop -= 1
    is_loose = any(kind_of(block) == "reasoning" for block in content[stop:])
    return (content[:stop] or "") if is_loose else content


def _is_empty_text(block: Any) -> bool:
    """True for text without text; one that carries a signature has to be sent again."""
    if kind_of(block) != "text" or block_text(block):
        return False
    return isinstance(block, str) or block.keys().isdisjoint(SIGNATURE_KEYS)


def unbound_before(messages: Messages, stop: int, rules: Rules) -> int:
    """Return the position up to which reasoning is left out when the prefix of the first `stop` messages changes.

    The step whose calls wait for an answer keeps its reasoning where the provider would refuse it without.
    """
    is_waiting = stop and isinstance(messages[stop - 1], ToolMessage)
    if not (rules.calls_need_reasoning and is_waiting):
        return stop
    answers = (i for i in reversed(range(stop)) if isinstance(messages[i], AIMessage))
    return next(answers, stop)
