"""One self-contained page: the requests of a conversation over time, what each showed, and why the rest had left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, SystemMessage

from langchain_ctxwin.core.provider_blocks import text_of
from langchain_ctxwin.replay.playing import Policy, Sent, input_limit, replay
from langchain_ctxwin.replay.reading import Conversation

REGIONS = {
    "system": "system messages",
    "tool": "tools",
    "summary": "summary",
    "record": "record",
    "pinned": "kept although older",
    "history": "messages",
}
"""Regions of a request, as the keys of a `context_report` begin, and what the page calls them."""

SHOWN_CHARS = 1_500
"""Text of a message that the page holds: enough to know it by, and a page of 400 requests stays within some MB."""


def page(conversation: Conversation, policy: Policy, window: int) -> str:
    """Return the HTML of one conversation under one policy.

    Nothing is loaded from elsewhere, and what was said is shown as text alone.
    """
    data = page_data(conversation, policy, window)
    # so that no text ends the script
    script_data = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    # recordings hold halves of characters, which no file takes
    script_data = script_data.encode(errors="replace").decode()
    return (
        (files(__package__) / "page.html")
        .read_text(encoding="utf-8")
        .replace("__DATA__", script_data)
    )


def page_data(
    conversation: Conversation, policy: Policy, window: int
) -> dict[str, Any]:
    """Return what the page shows, in JSON values."""
    messages, sent = conversation.messages[conversation.begins :], list[Sent]()
    result = replay(conversation, policy, window, heard=sent.append)
    places = {message.id: place for place, message in enumerate(messages)}
    return {
        "name": conversation.name,
        "policy": policy.name,
        "window": window,
        "limit": input_limit(window, policy),
        "result": result.to_dict(),
        "regions": list(REGIONS.values()),
        "messages": [
            {"role": message.type, "text": _printed(message)} for message in messages
        ],
        "steps": [_step(one, messages, places) for one in sent],
    }


def _step(
    sent: Sent, messages: Sequence[AnyMessage], places: dict[str | None, int]
) -> dict[str, Any]:
    """The page's data of one request."""
    placed_messages = {
        places[message.id]: message for message in sent.request if message.id in places
    }
    notes = [
        message
        for message in sent.request
        if message.id not in places and not isinstance(message, SystemMessage)
    ]
    sizes = [sent.report.get(f"{name}_tokens", 0) for name in REGIONS]
    if not any(sizes):  # a plain policy tells of none
        sizes[-1] = 1
    # the report estimates: its proportions are those of what was counted
    sizes = [round(size * sent.tokens / sum(sizes)) for size in sizes]
    is_compaction = sent.fits and not sent.is_extended
    return {
        "tokens": sent.tokens,
        "fits": sent.fits,
        "cached": sent.cached_tokens,
        "sizes": sizes,
        "history": sent.history,
        "shown": sorted(placed_messages),
        "edited": {
            place: _printed(message)
            for place, message in placed_messages.items()
            if message.content != messages[place].content
        },
        "notes": [text_of(message.content) for message in notes],
        "missing": sent.missing,
        "compaction": is_compaction,
        "reason": sent.guard.get("reason", "") if is_compaction else "",
    }


def _printed(message: AnyMessage) -> str:
    """The text of a message with its calls, its beginning where it is long."""
    calls = message.tool_calls if isinstance(message, AIMessage) else ()
    call_lines = (
        f"→ {call['name']}({json.dumps(call['args'], ensure_ascii=False, default=str)})"
        for call in calls
    )
    text = "\n".join(filter(None, (text_of(message.content), *call_lines)))
    return (
        text
        if len(text) <= SHOWN_CHARS
        else f"{text[:SHOWN_CHARS]} … ({len(text):,} characters)"
    )
