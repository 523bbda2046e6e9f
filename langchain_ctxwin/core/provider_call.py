"""What a request tells its provider: where its prompt cache ends, and where its history begins anew.

dressed(window)         the messages, with breakpoints, and without the response ids of what was compacted since
call_arguments(window)  the arguments of the call: newest breakpoint, cache key

Anthropic caches what ends at a breakpoint, at most four of them in a request (Anthropic, prompt caching guide). Ours
stand behind what stays the same longest: the system prompt (the tools precede it), the pins, and the newest message. A
breakpoint behind the record would be rewritten with each compaction and saves nothing beside the one of the newest
message; the one behind the pins saves most where some pauses outlast the cache. `benchmarks/cost.py` bills what is sent
here. Breakpoints that somebody else has set come first.

Newer models of OpenAI match a prefix at breakpoints only, of which the server sets one behind the newest message by
itself (OpenAI, prompt caching guide). Without another one behind the system prompt, which is what a compaction leaves
as it was, all of the prompt is written again after each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from langchain_ctxwin.core.model_info import rules_of
from langchain_ctxwin.core.pairing import CONTINUE_TEXT, call_ids
from langchain_ctxwin.core.parts import RECORD_ID
from langchain_ctxwin.core.provider_blocks import has_bound_reasoning, readable
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.turns import last_user
from langchain_ctxwin.errors import ConfigError

PromptCache = Literal["5m", "1h", "off"]

BREAKPOINT, OPENAI_BREAKPOINT = "cache_control", "prompt_cache_breakpoint"
# Of one request (Anthropic, prompt caching guide), more are refused; that OpenAI writes, its own included.
MAX_BREAKPOINTS = 4
EXPLICIT = {"mode": "explicit"}  # a breakpoint of OpenAI's cache
# a breakpoint that Anthropic keeps for five minutes from its last use
MINUTES = {"type": "ephemeral"}
KEY_CHARS = 16  # length of a cache key: enough to tell conversations apart, and nothing of their names is in it
RESPONSE_ID = "id"  # where answers of the Responses API keep the id that the server's history goes on from
# What asks Anthropic's API to drop reasoning that is tied to another prefix, and the feature header that goes with it.
DROP_BLOCK, BINDING_BETA = (
    {"prefix_mismatch_behavior": "drop_block"},
    "thinking-binding-controls-2026-08-01",
)
# How Anthropic refuses reasoning that is tied to another prefix.
BOUND_ELSEWHERE = (
    "bound to a different conversation",
    "prefix_mismatch_behavior",
    "invalid signature in thinking block",
)
# How providers refuse what they signed or encrypted themselves, where it came from elsewhere, expired, or was changed:
# OpenAI's reasoning and compactions, and items that stand alone then; Anthropic's compactions; Gemini's signatures.
UNREADABLE = (
    "invalid_encrypted_content",
    "encrypted content for item",
    "items are not persisted when",
    "was provided without its required",
    "invalid signature in compaction block",
    "compaction_signature_invalid",
    "compaction_content_mismatch",
    "thought signature is not valid",
)
# The feature header of a compaction on demand, and of each request that sends its block back.
DEMAND_BETA = "compact-2026-09-04"
CLOSED_TEXT = "[The results are in.]"
FORGOTTEN = "previous_response_not_found"  # OpenAI's code for an id that its server no longer has


def dressed(window: Window, prompt_cache: PromptCache) -> list[AnyMessage]:
    """Return the request as its provider wants it, in copies.

    Raises:
        ConfigError: tools and system prompt have more breakpoints than a request may have.
    """
    messages, rules, session = window.assembled(), window.parts.rules, window.session
    if rules.provider == "anthropic" and rules.calls_need_reasoning:
        messages = _with_call_closed(messages)
    if rules.provider == "anthropic" and prompt_cache != "off":
        # What is kept for an hour is what stays; the newest message is read again within minutes, or not at all.
        mark = MINUTES if prompt_cache == "5m" else {**MINUTES, "ttl": prompt_cache}
        messages = with_breakpoints(
            messages, window.parts.tools, mark, record=_record_in_prompt(window)
        )
    if rules.takes_breakpoints and prompt_cache != "off":
        messages = with_prompt_breakpoint(messages, record=_record_in_prompt(window))
    if rules.keeps_history and session.since and session.compactions:
        # The server's history with the answers up to the latest compaction is another one.
        history = window.parts.messages
        seen = window.parts.visible_indexes(session.view, session.since.index + 1)
        old = (history[index] for index in seen if index < len(history))
        messages = without_response_ids(
            messages, {str(_response_id(message)) for message in old}
        )
    return messages


def _with_call_closed(messages: list[AnyMessage]) -> list[AnyMessage]:
    """The request as one that begins a turn, where it ends with results of calls that another model made.

    A model that thinks each time wants its own reasoning before such calls, and there is none.
    """
    answers = (m for m in reversed(messages) if isinstance(m, AIMessage))
    answer = next(answers, None)
    if answer is None or not call_ids(answer) or has_bound_reasoning(answer):
        return messages
    return [*messages, AIMessage(CLOSED_TEXT), HumanMessage(CONTINUE_TEXT)]


def readable_by(model: object, messages: Sequence[Any]) -> list[Any]:
    """Return the messages as the provider of this model takes them, whatever model they were made for.

    Blocks that only their maker reads become text, and breakpoints are for the caches that have them.
    """
    rules = rules_of(model)
    request = [readable(message, rules.provider) for message in messages]
    if rules.provider not in {"", "anthropic"}:
        request = [_with_at_most(message, 0)[0] for message in request]
    if rules.provider and not rules.takes_breakpoints:
        request = [
            _with_at_most(message, 0, OPENAI_BREAKPOINT)[0] for message in request
        ]
    return request


def call_arguments(
    window: Window,
    messages: Sequence[AnyMessage],
    prompt_cache: PromptCache,
    *,
    conversation: str = "",
    model_arguments: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments that go along with a request as it is sent; `model_arguments`, set on the model, stay.

    The name of the conversation makes the key of OpenAI's cache.
    """
    rules, model_arguments = window.parts.rules, model_arguments or {}
    arguments: dict[str, Any] = {}
    if rules.provider == "anthropic" and prompt_cache != "off":
        taken = sum(map(_is_marked_tool, window.parts.tools)) + sum(
            len(_marks(message)) for message in messages
        )
        if taken < MAX_BREAKPOINTS and messages and not _marks(messages[-1]):
            arguments[BREAKPOINT] = dict(MINUTES)  # behind the newest message
    if rules.takes_cache_key and prompt_cache != "off" and conversation:
        arguments["prompt_cache_key"] = cache_key(conversation)
    arguments = {
        name: value
        for name, value in arguments.items()
        if model_arguments.get(name) is None
    }
    diagnostics = model_arguments.get("diagnostics")
    # asked for: the id is of each request
    if rules.provider == "anthropic" and isinstance(diagnostics, Mapping):
        answers = (_response_id(message) for message in reversed(window.parts.messages))
        arguments["diagnostics"] = {
            **diagnostics,
            "previous_message_id": next(filter(None, answers), None),
        }
    if rules.provider == "anthropic" and (
        config := _counted_down(window, model_arguments)
    ):
        arguments["output_config"] = config
    betas: list[str] = []
    if _may_drop(window, model_arguments):
        # models that tie reasoning think like that anyway
        arguments["thinking"] = {"type": "adaptive", "block_binding": DROP_BLOCK}
        betas.append(BINDING_BETA)
    if window.block is not None and rules.takes_betas:
        betas.append(DEMAND_BETA)
    if betas:
        own = model_arguments.get("betas") or ()
        arguments["betas"] = [*dict.fromkeys([*own, *betas])]
    if rules.provider == "gemini" and model_arguments.get("cached_content"):
        arguments["tools"] = []  # the content that somebody stored has the tools
    return arguments


def _counted_down(window: Window, model_arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The setting of a task budget with what remains of it; empty where nothing of the current turn has left.

    The API counts what it sees of the turn by itself, so that what remains is the same between compactions.
    """
    config: Any = model_arguments.get("output_config")
    budget: Any = config.get("task_budget") if isinstance(config, Mapping) else None
    question_index = last_user(window.parts.messages)
    if (
        not isinstance(budget, Mapping)
        or "remaining" in budget
        or question_index is None
    ):
        return {}
    total = budget.get("total")
    if not isinstance(total, int):
        return {}
    gone = window.parts.messages[question_index + 1 : window.start]
    remaining = max(0, total - sum(map(window.parts.price, gone)))
    countdown = {**config, "task_budget": {**budget, "remaining": remaining}}
    return countdown if gone else {}


def dropped_reasoning(answer: Any) -> str:
    """Return why the server left reasoning out of the request before the model saw it; empty where it did not."""
    about = getattr(answer, "response_metadata", None) or {}
    changes = about.get("input_transformations")
    for change in changes if isinstance(changes, list) else ():
        if isinstance(change, Mapping) and change.get("type") == "thinking_dropped":
            return str(change.get("reason") or "unknown")
    return ""


def _may_drop(window: Window, model_arguments: Mapping[str, Any]) -> bool:
    """True when this model refused reasoning of another prefix before, and its client lets us ask to drop it."""
    is_bound = (
        bool(window.parts.model) and window.session.binding_model == window.parts.model
    )
    return (
        is_bound
        and window.parts.rules.takes_betas
        and model_arguments.get("thinking") is None
    )


def forgets_history(error: BaseException) -> bool:
    """True for the refusal of an id that the server's history was to go on from."""
    body = getattr(error, "body", None)
    return FORGOTTEN in (
        getattr(error, "code", None),
        body.get("code") if isinstance(body, Mapping) else None,
    )


def refuses_reasoning(error: BaseException) -> bool:
    """True for the refusal of reasoning that is tied to another prefix than the request has, in Anthropic's words."""
    return _says(error, BOUND_ELSEWHERE)


def refuses_sealed(error: BaseException) -> bool:
    """True for the refusal of what a provider signed or encrypted itself, in its words."""
    return _says(error, UNREADABLE)


def _says(error: BaseException, wordings: Sequence[str]) -> bool:
    texts = (
        str(one).lower().replace("`", "")
        for one in (error, error.__cause__)
        if one is not None
    )
    return any(words in text for text in texts for words in wordings)


def without_response_ids(
    messages: Sequence[AnyMessage], old: set[str] | None = None
) -> list[AnyMessage]:
    """Remove these ids of OpenAI responses, or all, so that the server gets messages and no reference to its own."""
    anew = list[AnyMessage]()
    for message in messages:
        name = _response_id(message)
        if name is not None and (old is None or name in old):
            metadata = {
                key: value
                for key, value in message.response_metadata.items()
                if key != RESPONSE_ID
            }
            message = message.model_copy(update={"response_metadata": metadata})  # noqa: PLW2901  # the one to send
        anew.append(message)
    return anew


def _response_id(message: AnyMessage) -> Any:
    return (
        message.response_metadata.get(RESPONSE_ID)
        if isinstance(message, AIMessage)
        else None
    )


def cache_key(conversation: str) -> str:
    """Return a key that is the same for all requests of a conversation, and tells nothing of its name."""
    return hashlib.blake2b(
        conversation.encode("utf-8", "surrogatepass"), digest_size=KEY_CHARS // 2
    ).hexdigest()


def with_breakpoints(
    messages: Sequence[AnyMessage],
    tools: Sequence[Any],
    mark: Mapping[str, str],
    *,
    record: str = "",
) -> list[AnyMessage]:
    """Return the request with breakpoints behind its system prompt and its pins; messages in between are the same.

    In a system prompt that ends with the `record` it stands before that. One is left for the newest message. If others
    have set too many, the oldest of them in messages are left out. `mark` counts where nobody else has set one:
    Anthropic wants those that last longer first.

    Raises:
        ConfigError: tools and system prompt have more breakpoints than a request may have.
    """
    marked = list(messages)
    first = int(isinstance(marked[0], SystemMessage)) if marked else 0
    own = _marks(marked[0]) if first else []
    fixed = sum(map(_is_marked_tool, tools)) + len(own)
    if fixed > MAX_BREAKPOINTS:
        raise ConfigError(
            f"tools and system prompt have {fixed} cache breakpoints (`{BREAKPOINT}`), and a request may have "
            f"{MAX_BREAKPOINTS}: leave one behind the last tool and one at the end of the system prompt"
        )
    mark, free = own[0] if own else mark, MAX_BREAKPOINTS - fixed
    for index in range(len(marked) - 1, first - 1, -1):
        marked[index], free = _with_at_most(marked[index], free)
    free -= 1  # for the newest message
    if free > 0 and first and not own:
        marked[0], free = _marked(marked[0], mark, record=record), free - 1
    fixed_stop = _fixed_stop(marked, first)
    if free > 0 and fixed_stop is not None:
        marked[fixed_stop] = _marked(marked[fixed_stop], mark)
    return marked


def with_prompt_breakpoint(
    messages: Sequence[AnyMessage], *, record: str = ""
) -> list[AnyMessage]:
    """Return the request to OpenAI with a breakpoint behind its system prompt, or before the `record` that ends it.

    Of those that others have set as many stay as OpenAI writes beside it and beside the server's own, the newest ones.
    """
    marked, free = list(messages), MAX_BREAKPOINTS - 1  # for the newest message
    first = int(bool(marked) and isinstance(marked[0], SystemMessage))
    if first:
        if not _marks(marked[0], OPENAI_BREAKPOINT):
            marked[0] = _marked(marked[0], EXPLICIT, OPENAI_BREAKPOINT, record=record)
        marked[0], free = _with_at_most(marked[0], free, OPENAI_BREAKPOINT)
    for index in range(len(marked) - 1, first - 1, -1):
        marked[index], free = _with_at_most(marked[index], free, OPENAI_BREAKPOINT)
    return marked


def _record_in_prompt(window: Window) -> str:
    """The record where it ends the system prompt; empty where it has a message of its own."""
    return window.record if window.parts.settings.summary_placement == "system" else ""


def _fixed_stop(messages: Sequence[AnyMessage], first: int) -> int | None:
    """Position of the last message that stays when the record is written anew; before that, of the first message."""
    record = next(
        (i for i, message in enumerate(messages) if message.id == RECORD_ID), None
    )
    places = [first] if record is None else range(record, first - 1, -1)
    newest = len(messages) - 1
    likely = (
        place
        for place in places
        if place not in {record, newest} and _ends_in_text(messages[place])
    )
    return next(likely, record) if first <= newest else None


def _ends_in_text(message: AnyMessage) -> bool:
    """True where a breakpoint may stand at the end: reasoning cannot carry one."""
    content: Any = message.content
    last = content[-1] if isinstance(content, list) and content else content
    is_text = isinstance(last, str) or (
        isinstance(last, dict) and last.get("type") == "text"
    )
    return bool(last) and is_text and not _marks(message)


def _is_marked_tool(tool: Any) -> bool:
    marks = tool if isinstance(tool, Mapping) else getattr(tool, "extras", None)
    return isinstance(marks, Mapping) and bool(marks.get(BREAKPOINT))


def _marks(message: AnyMessage, key: str = BREAKPOINT) -> list[Any]:
    """The breakpoints that a message has."""
    content = message.content if isinstance(message.content, list) else []
    return [
        mark
        for block in content
        if isinstance(block, dict) and (mark := _mark(block, key))
    ]


def _mark(block: Mapping[str, Any], key: str) -> Any:
    extras = block.get("extras")
    return block.get(key) or (extras.get(key) if isinstance(extras, Mapping) else None)


def _with_at_most(
    message: AnyMessage, free: int, key: str = BREAKPOINT
) -> tuple[AnyMessage, int]:
    """The message with its last `free` breakpoints, and how many are free then."""
    surplus = len(_marks(message, key)) - free
    if surplus <= 0:
        return message, -surplus
    content = list[Any]()
    for block in message.content:
        is_surplus = surplus > 0 and isinstance(block, dict) and bool(_mark(block, key))
        content.append(_unmarked(block, key) if is_surplus else block)
        surplus -= is_surplus
    return message.model_copy(update={"content": content}), 0


def _unmarked(block: Any, key: str) -> dict[str, Any]:
    bare = {name: value for name, value in block.items() if name != key}
    extras = bare.get("extras")
    if isinstance(extras, Mapping) and key in extras:
        bare["extras"] = {name: value for name, value in extras.items() if name != key}
    return bare


def _marked(
    message: AnyMessage,
    mark: Mapping[str, str],
    key: str = BREAKPOINT,
    *,
    record: str = "",
) -> AnyMessage:
    """The message with a breakpoint at its end, or before the record that ends it."""
    content: Any = message.content
    blocks = (
        [{"type": "text", "text": content}]
        if isinstance(content, str)
        else list(content)
    )
    last = (
        blocks[-1]
        if isinstance(blocks[-1], dict)
        else {"type": "text", "text": blocks[-1]}
    )
    preceding, rest = blocks[:-1], list[Any]()
    text, ending = str(last.get("text") or ""), f"\n\n{record}"
    if record and text.endswith(ending):
        last, rest = (
            {**last, "text": text.removesuffix(ending)},
            [{"type": "text", "text": ending}],
        )
    elif record and text == record:
        if not preceding:
            return message  # the record is all there is
        *preceding, last = preceding
        rest = [{"type": "text", "text": record}]
    return message.model_copy(
        update={"content": [*preceding, {**last, key: dict(mark)}, *rest]}
    )
