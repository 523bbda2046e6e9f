"""What a request carries for its provider's prompt cache: breakpoints, and the arguments of the call.

Anthropic caches what ends at a breakpoint, at most four of them in a request (Anthropic, prompt caching guide). Ours
stand behind what stays the same longest: the system prompt (the tools precede it), the pins, and the newest message. A
breakpoint behind the record would be rewritten with each compaction and saves nothing beside the one of the newest
message; the one behind the pins saves 10 and 1 % at windows of 8,192 and 32,768 tokens, where some pauses outlast the
cache (recorded agents, `benchmarks/cost.py --providers`). Breakpoints that somebody else has set come first.
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
    """Return the request with breakpoints behind its system prompt and its pins; messages in between are the same.

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
    fixed_stop = _fixed_stop(marked, len(system))
    if free > 0 and fixed_stop is not None:
        marked[fixed_stop] = _marked(marked[fixed_stop], mark)
    return marked


def _fixed_stop(messages: Sequence[AnyMessage], first: int) -> int | None:
    """Position of the last message that stays when the record is written anew; before that, of the first message."""
    record = next((i for i, message in enumerate(messages) if message.id == RECORD_ID), None)
    places = [first] if record is None else range(record, first - 1, -1)
    newest = len(messages) - 1
    likely = (place for place in places if place not in {record, newest} and _ends_in_text(messages[place]))
    return next(likely, record) if first <= newest else None


def _ends_in_text(message: AnyMessage) -> bool:
    """True where a breakpoint may stand at the end: reasoning cannot carry one."""
    content: Any = message.content
    last = content[-1] if isinstance(content, list) and content else content
    is_text = isinstance(last, str) or (isinstance(last, dict) and last.get("type") == "text")
    return bool(last) and is_text and not _marks(message)


def without_breakpoints(message: AnyMessage) -> AnyMessage:
    """Return a message that no provider's cache is told of; the same object when it has no breakpoints."""
    return _with_at_most(message, 0)[0] if _marks(message) else message


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
