"""What a request tells its provider: where its prompt cache ends, and what of the past it may go on from.

dressed(window)         the messages, with breakpoints, and after a compaction without ids of responses
call_arguments(window)  the arguments of the call: newest breakpoint, cache key

Anthropic caches what ends at a breakpoint, at most four of them in a request (Anthropic, prompt caching guide). Ours
stand behind what stays the same longest: the system prompt (the tools precede it), the record up to where a compaction
adds lines to it, and the newest message: one is left to a middleware behind ours.
`benchmarks/cost.py` bills what is sent here. Breakpoints that somebody else has set come first.

Newer models of OpenAI match a prefix at breakpoints only, of which the server sets one behind the newest message by
itself (OpenAI, prompt caching guide). Without others behind the system prompt and in the record, which is what a
compaction leaves as it was, all of the prompt is written again after each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage

from langchain_ctxwin.core.model_info import arguments_of, rules_of
from langchain_ctxwin.core.overflow import evidence_of
from langchain_ctxwin.core.pairing import CONTINUE_TEXT, call_ids
from langchain_ctxwin.core.provider_blocks import (
    Messages,
    blocks_of,
    digest,
    has_bound_reasoning,
    readable,
    text_block,
    tool_marks,
    with_fields,
)
from langchain_ctxwin.core.record import RECORD_ID
from langchain_ctxwin.core.request import Window

Mark = Mapping[str, str]
BREAKPOINT, OPENAI_BREAKPOINT = "cache_control", "prompt_cache_breakpoint"
# Of one request: Anthropic refuses more (prompt caching guide), OpenAI writes no more, its own included.
MAX_BREAKPOINTS = 4
EXPLICIT = {"mode": "explicit"}  # a breakpoint of OpenAI's cache
# a breakpoint that Anthropic keeps for five minutes from its last use
MINUTES = {"type": "ephemeral"}
# Of a block of the record, by itself and of what precedes it. Providers look for what is cached at the ends of the last
# twenty blocks before a breakpoint (Anthropic, prompt caching guide): enough for a record that grew to five times what
# it was. The size hardly matters: a call of `benchmarks/cost.py` at 8,192 tokens cost Anthropic's users 2,242 with 250,
# 2,245 with 400, 2,263 with 1,200.
RECORD_BLOCK_CHARS, RECORD_BLOCK_SHARE = 400, 0.1
LAST_CHARS = (
    300  # of the record, at least: what is open, how much was left out, the end
)
_SPACE = re.compile(r"\s")
RESPONSE_ID = "id"  # where answers of the Responses API keep the id that the server's history goes on from
# What asks Anthropic's API to drop reasoning that is tied to another prefix, and the feature header that goes with it.
DROP_BLOCK, BINDING_BETA = (
    {"prefix_mismatch_behavior": "drop_block"},
    "thinking-binding-controls-2026-08-01",
)
REFUSALS = {
    # OpenAI's code for an id that its server no longer has
    "history": ("previous_response_not_found",),
    # How Anthropic refuses reasoning that is tied to another prefix.
    "reasoning": (
        "bound to a different conversation",
        "prefix_mismatch_behavior",
        "invalid signature in thinking block",
    ),
    # How providers refuse what they signed or encrypted themselves, where it came from elsewhere, expired, or was
    # changed: OpenAI's reasoning and compactions, and items that stand alone then; Anthropic's compactions; Gemini's
    # signatures.
    "sealed": (
        "invalid_encrypted_content",
        "encrypted content for item",
        "items are not persisted when",
        "was provided without its required",
        "invalid signature in compaction block",
        "compaction_signature_invalid",
        "compaction_content_mismatch",
        "thought signature is not valid",
    ),
}
"""Words of refusals that a request without a part of it mends."""

# The feature header of a compaction on demand, and of each request that sends its block back.
DEMAND_BETA = "compact-2026-09-04"
CLOSED_TEXT = "[The results are in.]"
# the argument of OpenAI that names a conversation for its cache
CACHE_KEY = "prompt_cache_key"


def dressed(window: Window) -> list[AnyMessage]:
    """Return the messages of a request with what its provider wants in them; what changes is a copy."""
    prompt_cache = window.settings.prompt_cache
    messages, rules, session = window.assembled(), window.rules, window.session
    is_claude, is_cached = rules.provider == "anthropic", prompt_cache != "off"
    if is_claude and rules.calls_need_reasoning:
        messages = _with_call_closed(messages)
    if is_claude and is_cached:
        # What is kept for an hour is what stays; the newest message is read again within minutes, or not at all.
        mark = MINUTES if prompt_cache == "5m" else {**MINUTES, "ttl": prompt_cache}
        messages = with_breakpoints(messages, window.tools, mark)
    if rules.takes_breakpoints and is_cached:
        messages = with_breakpoints(messages, (), EXPLICIT, OPENAI_BREAKPOINT)
    if rules.keeps_history and session.compactions:
        # the server's history is another one
        messages = without_response_ids(messages)
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
    is_claude = rules.provider == "anthropic"
    caches = {BREAKPOINT: is_claude, OPENAI_BREAKPOINT: rules.takes_breakpoints}
    for key, is_taken in caches.items():
        if rules.provider and not is_taken:
            request = [_without_marks(message, key) for message in request]
    return request


def call_arguments(
    window: Window,
    messages: Messages,
    *,
    conversation: str = "",
    call: Any = None,
) -> dict[str, Any]:
    """Return the arguments that go along with a request as it is sent; those that the called model sets stay.

    The key of OpenAI's cache is made of the conversation's name, else of the id of its first message.
    """
    own = arguments_of(call)
    rules, is_claude = window.rules, window.rules.provider == "anthropic"
    arguments: dict[str, Any] = {}
    if window.settings.prompt_cache != "off":
        taken = _taken(window.tools, messages)
        is_open = taken < MAX_BREAKPOINTS and not _marks(messages[-1:])
        if is_claude and is_open and own.get(BREAKPOINT) is None:
            arguments[BREAKPOINT] = dict(MINUTES)  # behind the newest message
        name = conversation or next((one.id for one in window.history.messages), "")
        if rules.takes_cache_key and name and not own.get(CACHE_KEY):
            # the same for all requests of a conversation
            arguments[CACHE_KEY] = digest(name)
    # asked for: the id is of each request
    diagnostics = own.get("diagnostics")
    if is_claude and diagnostics is not None:
        answers = (one.response_metadata for one in reversed(window.history.messages))
        ids = (about.get(RESPONSE_ID) for about in answers)
        previous_id = next(filter(None, ids), None)
        arguments["diagnostics"] = {**diagnostics, "previous_message_id": previous_id}
    betas: list[str] = []
    model, may_ask = window.model, rules.takes_betas and own.get("thinking") is None
    # it refused reasoning of another prefix before
    if may_ask and model and window.session.guard.get("binding_model") == model:
        # models that tie reasoning think like that anyway
        arguments["thinking"] = {"type": "adaptive", "block_binding": DROP_BLOCK}
        betas.append(BINDING_BETA)
    if window.block is not None and rules.takes_betas:
        betas.append(DEMAND_BETA)
    if betas:
        arguments["betas"] = [*dict.fromkeys([*(own.get("betas") or ()), *betas])]
    if rules.provider == "gemini" and own.get("cached_content"):
        arguments["tools"] = []  # the content that somebody stored has the tools
    return arguments


def dropped_reasoning(answer: Any) -> str:
    """Return why the server left reasoning out of the request before the model saw it; empty where it did not."""
    about = getattr(answer, "response_metadata", None) or {}
    for change in about.get("input_transformations") or ():
        if change.get("type") == "thinking_dropped":
            return str(change.get("reason"))
    return ""


def refused_part(error: BaseException) -> str:
    """Return which part of a request a provider refused, by its words: a key of `REFUSALS`; empty for another."""
    texts = [evidence.text.lower() for evidence in evidence_of(error)]
    for part, wordings in REFUSALS.items():
        if any(words in text for text in texts for words in wordings):
            return part
    return ""


def without_response_ids(
    messages: Messages,
) -> list[AnyMessage]:
    """Remove the ids of OpenAI's responses, so that the server gets messages and no reference to its own."""
    return [
        with_fields(m, response_metadata=_without(m.response_metadata, RESPONSE_ID))
        for m in messages
    ]


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def with_breakpoints(
    messages: Messages,
    tools: Sequence[Any],
    mark: Mark,
    key: str = BREAKPOINT,
) -> list[AnyMessage]:
    """Return the request with breakpoints behind its prompt and in its record.

    They are set as far as others have left some, and one is left for the newest message. `mark` counts where nobody
    else has set one: Anthropic wants those that last longer first.
    """
    marked = list(messages)
    first = int(bool(marked) and isinstance(marked[0], SystemMessage))
    own = _marks(marked[:first], key)
    taken = _taken(tools, marked, key)
    free = MAX_BREAKPOINTS - taken - (not _marks(marked[-1:], key))
    mark = own[0] if own else mark
    if free > 0 and first and not own:
        marked[0] = _marked(marked[0], mark, key)
        free -= 1
    for place, message in enumerate(marked):
        if free > 0 and message.id == RECORD_ID:
            marked[place] = _record_marked(message, mark, key)
    return marked


def _record_marked(record: AnyMessage, mark: Mark, key: str) -> AnyMessage:
    """The record in blocks, with a breakpoint behind the last that stays as it is when lines are added behind it."""
    text, ends = str(record.text), [0]
    while space := _SPACE.search(
        text,
        ends[-1] + max(RECORD_BLOCK_CHARS, int(RECORD_BLOCK_SHARE * ends[-1])),
        max(0, len(text) - LAST_CHARS),
    ):
        ends.append(space.end())
    *stable, rest = (
        dict[str, Any](type="text", text=text[start:end])
        for start, end in pairwise([*ends, len(text)])
    )
    if not stable:
        return record
    stable[-1] = {**stable[-1], key: dict(mark)}
    return with_fields(record, content=[*stable, rest])


def _taken(tools: Sequence[Any], messages: Messages, key: str = BREAKPOINT) -> int:
    """How many breakpoints a request has."""
    marked = [tool for tool in tools if tool_marks(tool).get(BREAKPOINT)]
    return len(marked) + len(_marks(messages, key))


def _marks(messages: Messages, key: str = BREAKPOINT) -> list[Any]:
    """The breakpoints that messages have."""
    # most messages are plain texts, and all of a long history are looked at
    contents = (one.content for one in messages if type(one.content) is not str)
    blocks = (block for content in contents for block in blocks_of(content))
    # an integration sends those of pictures and files from either place
    places = (place for one in blocks for place in (one, one.get("extras") or {}))
    return [place[key] for place in places if place.get(key)]


def _without_marks(message: AnyMessage, key: str) -> AnyMessage:
    """The message without breakpoints."""
    content: Any = message.content
    if isinstance(content, str):
        return message
    bare = [_without(one, key) if isinstance(one, Mapping) else one for one in content]
    return with_fields(message, content=bare)


def _marked(message: AnyMessage, mark: Mark, key: str) -> AnyMessage:
    """The message with a breakpoint at its end."""
    content: Any = message.content
    *blocks, last = [content] if isinstance(content, str) else content
    if isinstance(last, str):
        last = text_block(last)
    return with_fields(message, content=[*blocks, {**last, key: dict(mark)}])
