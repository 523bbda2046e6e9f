"""What a request carries for its provider's prompt cache: breakpoints, and the arguments of the call.

Anthropic caches what ends at a breakpoint, at most four of them in a request (Anthropic, prompt caching guide). Ours
stand behind what stays the same longest: the system prompt (the tools precede it), the record, and the newest message.
Those that somebody else has set come first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.core.assembly import RECORD_ID
from langchain_ctxwin.errors import ConfigError

BREAKPOINT = "cache_control"
MAX_BREAKPOINTS = 4
"""Of one request (Anthropic, prompt caching guide); more are refused."""

KEY_CHARS = 16
"""Length of a cache key: enough to tell conversations apart, and nothing of their names is in it."""


def with_breakpoints(messages: Sequence[AnyMessage], tools: Sequence[Any], mark: Mapping[str, str]) -> list[AnyMessage]:
    """Return the request with breakpoints behind its system prompt and its record; messages in between are the same.

    One is left for the newest message, see `tail_argument`. When others have set too many, the oldest of them in
    messages are left out.

    Args:
        messages: the request.
        tools: the definitions bound to the model.
        mark: the value of a breakpoint, where nobody else has set one: Anthropic wants those that last longer first.

    Raises:
        ConfigError: tools and system prompt have more breakpoints than a request may have.
    """
    marked, fixed = list(messages), sum(map(_is_marked_tool, tools))
    system = [message for message in marked[:1] if isinstance(message, SystemMessage)]
    in_system = sum(len(_marks(message)) for message in system)
    fixed += in_system
    if fixed > MAX_BREAKPOINTS:
        raise ConfigError(
            f"tools and system prompt have {fixed} cache breakpoints (`{BREAKPOINT}`), and a request may have "
            f"{MAX_BREAKPOINTS}: leave one behind the last tool and one at the end of the system prompt"
        )
    mark = next((found for message in system for found in _marks(message)), mark)
    places = [index for index in range(len(system), len(marked)) if _marks(marked[index])]
    free = MAX_BREAKPOINTS - fixed
    for index in reversed(places):
        marked[index], free = _with_at_most(marked[index], free)
    free -= 1  # for the newest message
    if free > 0 and system and not in_system:
        marked[0], free = _marked(system[0], mark), free - 1
    record = next((i for i, message in enumerate(marked) if message.id == RECORD_ID), None)
    if free > 0 and record is not None:
        marked[record] = _marked(marked[record], mark)
    return marked


def tail_argument(messages: Sequence[AnyMessage], tools: Sequence[Any], mark: Mapping[str, str]) -> dict[str, Any]:
    """Return the argument that puts a breakpoint behind the newest message; none when there are four already."""
    taken = sum(map(_is_marked_tool, tools)) + sum(len(_marks(message)) for message in messages)
    return {BREAKPOINT: dict(mark)} if taken < MAX_BREAKPOINTS and messages and not _marks(messages[-1]) else {}


def cache_key(conversation: str) -> str:
    """Return a key that is the same for all requests of a conversation, and tells nothing of its name."""
    return hashlib.blake2b(conversation.encode("utf-8", "surrogatepass"), digest_size=KEY_CHARS // 2).hexdigest()


def _is_marked_tool(tool: Any) -> bool:
    if isinstance(tool, Mapping):
        return bool(tool.get(BREAKPOINT))
    extras = getattr(tool, "extras", None)
    return isinstance(extras, Mapping) and bool(extras.get(BREAKPOINT))


def _marks(message: AnyMessage) -> list[Any]:
    """The breakpoints that a message has."""
    if not isinstance(message.content, list):
        return []
    return [block[BREAKPOINT] for block in message.content if isinstance(block, dict) and block.get(BREAKPOINT)]


def _with_at_most(message: AnyMessage, free: int) -> tuple[AnyMessage, int]:
    """The message with its last `free` breakpoints, and how many are free then."""
    content: list[Any] = list(message.content)
    count = 0
    for place in range(len(content) - 1, -1, -1):
        block = content[place]
        if not (isinstance(block, dict) and block.get(BREAKPOINT)):
            continue
        count += 1
        if count > free:
            content[place] = {key: value for key, value in block.items() if key != BREAKPOINT}
    if count <= free:
        return message, free - count
    return message.model_copy(update={"content": content}), 0


def _marked(message: AnyMessage, mark: Mapping[str, str]) -> AnyMessage:
    """The message with a breakpoint at its end."""
    content: Any = message.content
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    last = blocks[-1] if isinstance(blocks[-1], dict) else {"type": "text", "text": blocks[-1]}
    return message.model_copy(update={"content": [*blocks[:-1], {**last, BREAKPOINT: dict(mark)}]})
