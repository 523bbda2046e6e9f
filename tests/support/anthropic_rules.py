"""Which requests the Messages API refuses, how it edits a context, and what the model then sees.

Sources, under https://platform.claude.com/docs/en/: build-with-claude/prompt-caching, /context-editing, /compaction,
/extended-thinking, /adaptive-thinking, /preserved-thinking, agents-and-tools/tool-use/tool-search-tool; where a page
gives no text of an error, the text is what users of the API report.
"""

import copy
import hashlib
import re

from support.loopback import RefusalError
from support.oracle import MEDIA_TOKENS, compact_json, json_tokens, text_tokens
from support.prompt_cache import FIVE_MINUTES, ONE_HOUR, Block

MAX_BREAKPOINTS = 4
FRAME_TOKENS = 4  # around each message
PLACEHOLDER = "[cleared]"  # stands for a result that was edited out
BINDING_BETA = "thinking-binding-controls-2026-08-01"
DEMAND_BETA = "compact-2026-09-04"
THINKING = frozenset({"thinking", "redacted_thinking"})
TRIGGER_TOKENS = {"clear_tool_uses_20250919": 100_000, "compact_20260112": 150_000}
KEPT_TOOL_USES = 3  # when an edit does not say


def visible(body):
    """Return a copy with block lists for texts, and without what precedes the newest compaction block."""
    seen = copy.deepcopy(dict(body))
    for message in seen["messages"]:
        message["content"] = blocks_of(message)
    for index in reversed(range(len(seen["messages"]))):
        content = seen["messages"][index]["content"]
        at = max(
            (i for i, block in enumerate(content) if is_compaction(block)), default=None
        )
        if at is not None:
            rest = {**seen["messages"][index], "content": content[at:]}
            return seen | {"messages": [rest, *seen["messages"][index + 1 :]]}
    return seen


def is_compaction(block):
    """Tell whether a block is a summary; one with null content is a compaction that failed, and counts for nothing."""
    return block["type"] == "compaction" and block.get("content") is not None


def blocks_of(message):
    """Return the content of a message as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def check(body, betas):
    """Refuse a request for what can be seen without the past: breakpoints, tools, edits, pairs, thinking."""
    _check_breakpoints(body)
    _check_tools(body)
    _check_edits(body)
    _check_demand(body, betas)
    seen = visible(body)
    _check_parts(seen["messages"])
    _check_pairs(seen["messages"])
    _check_thinking(seen)


def _check_breakpoints(body):
    blocks, automatic = _in_prompt_order(body), body.get("cache_control")
    marks = [mark for block in blocks for mark in _marks(block)]
    own = _marks(blocks[-1])[-1:]
    if automatic and own and _ttl(own[0]) != _ttl(automatic):
        raise RefusalError(
            "cache_control: the last block has a breakpoint with another ttl"
        )
    if automatic and not own:  # beside one of the same ttl it does nothing
        marks.append(automatic)
    count = len(marks)
    if count > MAX_BREAKPOINTS:
        raise RefusalError(
            f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
        )
    ttls = [mark.get("ttl", "5m") for mark in marks]
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        order = "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
        text = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
        raise RefusalError(f"cache_control.ttl: {text}. {order}")
    for block in blocks:
        if "cache_control" in block and block.get("type") in THINKING:
            raise RefusalError(
                f"{block['type']}.cache_control: Extra inputs are not permitted"
            )
        if (
            "cache_control" in block
            and block.get("type") == "text"
            and not block["text"]
        ):
            raise RefusalError("cache_control cannot be set for empty text blocks")


def _check_tools(body):
    for tool in body.get("tools") or []:
        if tool.get("defer_loading") and "cache_control" in tool:
            both = "both defer_loading=true and cache_control set. Tools with defer_loading cannot use prompt caching."
            raise RefusalError(f"Tool '{tool['name']}' cannot have {both}")


def _check_edits(body):
    edits = [
        edit["type"]
        for edit in (body.get("context_management") or {}).get("edits") or []
    ]
    if edits and "compaction" in body:
        raise RefusalError("`compaction` cannot be combined with `context_management`")


def _check_demand(body, betas):
    """A compaction on demand, and each request that sends its block back, need the feature's header."""
    blocks = [block for m in body["messages"] for block in blocks_of(m)]
    signed = [
        block for block in blocks if is_compaction(block) and block.get("signature")
    ]
    edits = (body.get("context_management") or {}).get("edits") or []
    if ("compaction" in body or signed) and DEMAND_BETA not in betas:
        raise RefusalError("compaction: Extra inputs are not permitted")
    if signed and any(edit["type"].startswith("compact") for edit in edits):
        raise RefusalError("a `compaction` block cannot be sent with a compaction edit")
    if "compaction" not in body:
        return
    if (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        raise RefusalError("`compaction` cannot be combined with a forced tool")
    if body["messages"][-1]["role"] == "assistant" and _ids(
        {"content": blocks_of(body["messages"][-1])}, "tool_use"
    ):
        raise RefusalError(
            "the last `assistant` turn is not finished",
            code="compaction_incomplete_turn",
        )


def check_system(body, *, is_taken):
    """Refuse a system message in between where the model takes none there, or where it does not stand as it has to."""
    messages = [m for m in body["messages"] if isinstance(m, dict)]
    roles = [message["role"] for message in messages]
    for index, role in enumerate(roles):
        if role != "system":
            continue
        if not is_taken:
            raise RefusalError(f"messages.{index}.role: `system` is not supported")
        before, after = roles[:index][-1:], roles[index + 1 : index + 2]
        if before not in (["user"], ["system"]) or after == ["user"]:
            raise RefusalError(
                f"messages.{index}: `system` must follow a user turn and precede an assistant turn"
            )


def _check_parts(messages):
    for index, message in enumerate(messages):
        blocks = message["content"]
        if all(
            block["type"] == "text" and not block["text"].strip() for block in blocks
        ):
            raise RefusalError(
                f"messages.{index}: text content blocks must contain non-whitespace text"
            )
        for place, block in enumerate(blocks):
            name = block.get("id") or block.get("tool_use_id") or "none"
            if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
                raise RefusalError(
                    f"messages.{index}.content.{place}.{block['type']}.id: String should match pattern "
                    "'^[a-zA-Z0-9_-]+$'"
                )


def check_size(body, *, max_bytes, max_images):
    """Refuse a request with too many bytes or images."""
    text = compact_json(body)
    if len(text) > max_bytes:
        raise RefusalError("Request exceeds the maximum size", status=413)
    images = text.count('"type":"image"')
    if images > max_images:
        raise RefusalError(f"too many images and documents: {images} > {max_images}")


def _check_pairs(messages):
    for index, message in enumerate(messages):
        calls = _ids(message, "tool_use")
        results = (
            _ids(messages[index + 1], "tool_result")
            if index + 1 < len(messages)
            else []
        )
        if missing := [each for each in calls if each not in results]:
            raise RefusalError(
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        before = _ids(messages[index - 1], "tool_use") if index else []
        for place, each in enumerate(_ids(message, "tool_result")):
            if each not in before:
                raise RefusalError(
                    f"messages.{index}.content.{place}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{each}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    "message."
                )


def _check_thinking(seen):
    """With `enabled`, not with `adaptive`, the message with the pending calls must begin with thinking."""
    pending = pending_call(seen)
    if pending is None or (seen.get("thinking") or {}).get("type") != "enabled":
        return
    first = next(
        block["type"]
        for block in seen["messages"][pending]["content"]
        if not is_compaction(block)
    )
    if first not in THINKING:
        raise RefusalError(
            f"messages.{pending}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
            "previous turns. To avoid this requirement, disable `thinking`."
        )


def pending_call(seen):
    """Return the index of the assistant message whose results the request ends with."""
    last = max(
        i for i, message in enumerate(seen["messages"]) if message["role"] != "system"
    )
    return last - 1 if last and _ids(seen["messages"][last], "tool_result") else None


def drops_bound(body, betas):
    """Tell whether a request to a model that ties thinking to its prefix asks to drop what is tied to another one."""
    binding = (body.get("thinking") or {}).get("block_binding")
    if binding is not None and BINDING_BETA not in betas:
        raise RefusalError("thinking.block_binding: Extra inputs are not permitted")
    return bool(binding) and binding.get("prefix_mismatch_behavior") == "drop_block"


def prefix(
    seen,
    index=None,
    place=0,
    stands_for=None,
):
    """Return a digest of what precedes a block, or an answer to all of it: system, tools, messages, no thinking.

    A block of a compaction on demand counts as what it stands for, by its signature: nothing may stand between that and
    what follows it, and a turn of the same role would be part of it.
    """
    before = told_before(seen, index, place, stands_for or {})
    tools = [tool for tool in seen.get("tools") or [] if not tool.get("defer_loading")]
    told = [blocks_of({"content": seen.get("system") or []}), tools]
    said = [(role, block) for role, block in before if block["type"] not in THINKING]
    return hashlib.sha256(
        compact_json(_bare([*told, *map(list, said)])).encode()
    ).hexdigest()


def told_before(seen, index, place, stands_for):
    """Return the blocks before a place in a request, each with its role."""
    messages = seen["messages"]
    index = len(messages) if index is None else index
    rest = messages[index]["content"][:place] if place else []
    flat = [(m["role"], block) for m in messages[:index] for block in m["content"]]
    flat += [(messages[index]["role"], block) for block in rest]
    if not flat or (sign := flat[0][1].get("signature")) not in stands_for:
        return flat
    covered, kept = stands_for[sign], flat[1:]
    joint = [("joint", {"type": "joint"})]
    merges = kept and covered and covered[-1][0] == kept[0][0]
    return [*covered, *(joint if merges else ()), *kept]


def thinks(body):
    """Tell whether the request lets the model think."""
    return (body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}


def apply_clearing(seen):
    """Apply the edits that clear, in order; return what is left and the `applied_edits` of the response."""
    applied = []
    for edit in (seen.get("context_management") or {}).get("edits") or []:
        if edit["type"] != "clear_tool_uses_20250919":
            continue
        edited = copy.deepcopy(seen)
        uses = _clear_tool_uses(edited, edit)
        cleared = prompt_tokens(seen) - prompt_tokens(edited)
        if cleared > 0:
            seen = edited
            applied.append(
                {
                    "type": edit["type"],
                    "cleared_input_tokens": cleared,
                    "cleared_tool_uses": uses,
                }
            )
    return seen, applied


def compacts(seen):
    """Return the compaction edit that a prompt triggers."""
    for edit in (seen.get("context_management") or {}).get("edits") or []:
        least = _value(edit, "trigger", TRIGGER_TOKENS.get(edit["type"], 0))
        if edit["type"] == "compact_20260112" and prompt_tokens(seen) > least:
            return edit
    return None


def _clear_tool_uses(seen, edit):
    """Clear the oldest results but for those of the newest `keep` uses; return how many."""
    uses = [
        block
        for message in seen["messages"]
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    if prompt_tokens(seen) <= _value(edit, "trigger", TRIGGER_TOKENS[edit["type"]]):
        return 0
    old = uses[: len(uses) - _value(edit, "keep", KEPT_TOOL_USES)]
    ids = {use["id"] for use in old}
    for message in seen["messages"]:
        for block in message["content"]:
            if block.get("tool_use_id") in ids:
                block["content"] = PLACEHOLDER
    return len(old)


def prompt_tokens(body):
    """Return what the model would see of a request, before any edit."""
    return sum(block.tokens for block in prompt_blocks(visible(body)))


def prompt_blocks(seen):
    """Return the prompt in its order, tools, system, messages, with the breakpoints."""
    tools = seen.get("tools") or []
    shown = [tool for tool in tools if not tool.get("defer_loading")]
    blocks = [_block("tool", tool, json_tokens(_bare(tool))) for tool in shown]
    system = blocks_of({"content": seen.get("system") or []})
    blocks += [_block("system", block, text_tokens(block["text"])) for block in system]
    # changing these ends the reuse of messages
    ways = seen.get("thinking"), seen.get("tool_choice")
    how = compact_json([*ways])
    role = None
    for message in seen["messages"]:
        for inner in message["content"]:
            if inner["type"] in THINKING and not thinks(seen):
                continue  # ignored by a request that does not think
            frame = 0 if role == message["role"] else FRAME_TOKENS
            blocks.append(
                _block(f"{message['role']} {how}", inner, _tokens(inner) + frame)
            )
            role = message["role"]
    if seen.get("cache_control") and not blocks[-1].ttl_seconds:
        last = blocks[-1]
        blocks[-1] = Block(
            key=last.key, tokens=last.tokens, ttl_seconds=_ttl(seen["cache_control"])
        )
    return blocks


def _block(where, value, tokens):
    marks = _marks(value)
    return Block(
        key=where + compact_json(_bare(value)),
        tokens=tokens,
        ttl_seconds=_ttl(marks[-1]) if marks else None,
    )


def _tokens(block):
    kind = block["type"]
    if kind in {"text", "thinking"}:
        return text_tokens(block[kind])
    if kind in {"image", "document"}:
        return MEDIA_TOKENS
    if kind == "tool_use":
        return text_tokens(block["name"]) + json_tokens(block["input"])
    if kind == "compaction":
        return text_tokens(block.get("content") or "")
    if kind == "tool_result":
        content = block.get("content") or ""
        return (
            text_tokens(content)
            if isinstance(content, str)
            else sum(map(_tokens, content))
        )
    return json_tokens(_bare(block))


def _bare(value):
    """Return a value without its breakpoints, which are no part of the prompt."""
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if isinstance(value, dict):
        return {
            key: _bare(each)
            for key, each in value.items()
            if key not in {"cache_control", "defer_loading"}
        }
    return value


def _in_prompt_order(body):
    system = blocks_of({"content": body.get("system") or []})
    return [
        *(body.get("tools") or []),
        *system,
        *(b for m in body["messages"] for b in blocks_of(m)),
    ]


def _marks(block):
    content = block.get("content")
    inner = (
        [mark for each in content for mark in _marks(each)]
        if isinstance(content, list)
        else []
    )
    return inner + ([block["cache_control"]] if block.get("cache_control") else [])


def _ttl(mark):
    return ONE_HOUR if mark.get("ttl") == "1h" else FIVE_MINUTES


def _ids(message, kind):
    key = "id" if kind == "tool_use" else "tool_use_id"
    return [block[key] for block in message["content"] if block["type"] == kind]


def _value(edit, name, default):
    return int((edit.get(name) or {"value": default})["value"])
