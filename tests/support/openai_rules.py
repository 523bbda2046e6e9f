"""Which input items the Responses API refuses, and what the model then sees.

Sources, under https://developers.openai.com/api/docs/guides/: conversation-state, reasoning, context-management,
prompt-caching; the docstrings of the SDK's types; texts of errors as users of the API report them.
"""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

from support.loopback import RefusalError
from support.oracle import MEDIA_TOKENS, compact_json, json_tokens, text_tokens
from support.prompt_cache import Block

FRAME_TOKENS = 4  # around each message
# how many of the latest are written, by mode
EXPLICIT_BREAKPOINTS = {"implicit": 3, "explicit": 4}
INSTRUCTING = frozenset({"system", "developer"})

Item = dict[str, Any]


@dataclass(slots=True)
class Vault:
    """What the server remembers of the items that it handed out."""

    hidden: dict[str, str] = field(default_factory=dict)
    """Encrypted content, or id of a stored reasoning item -> the text."""

    retained: dict[str, set[str]] = field(default_factory=dict)
    """Encrypted content of a compaction -> the items before it that stay in the prompt."""

    needs: dict[str, Item] = field(default_factory=dict)
    """Id of an item -> the reasoning item that was handed out right before it."""

    follows: dict[str, str] = field(default_factory=dict)
    """Id of a reasoning item -> id of the item right behind it."""

    stored: set[str] = field(default_factory=set)
    """Ids that may be referred to; those of a request with `store=False` may not."""

    def remember(self, output):
        """Note which reasoning belongs to which item."""
        for before, item in itertools.pairwise(output):
            if before["type"] == "reasoning":
                self.needs[item["id"]] = before
                self.follows[before["id"]] = item["id"]


def items_of(body):
    """Return the input as items."""
    given = body.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [item if "type" in item else {"type": "message", **item} for item in items]


def identity(item):
    """Return what makes two items the same, wherever they come from."""
    return compact_json(
        [item.get("role"), [part.get("text") for part in parts_of(item)]]
    )


def check(items, vault):
    """Refuse orphans and items that the server did not hand out like that."""
    items = visible(items, vault)
    _check_pairs(items)
    for index, item in enumerate(items):
        if item["type"] in {"reasoning", "compaction"}:
            _check_sealed(item, vault)
        if item["type"] == "reasoning":
            _check_follower(item, items[index + 1 : index + 2], vault)
        before = items[index - 1] if index else {}
        needed = vault.needs.get(item.get("id") or "")
        if needed and before.get("id") != needed["id"]:
            kind, wanted = (
                f"'{item['id']}' of type '{item['type']}'",
                f"'reasoning' item: '{needed['id']}'",
            )
            raise RefusalError(
                f"Item {kind} was provided without its required {wanted}.",
                param="input",
            )


def _check_pairs(items):
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [
        item["call_id"] for item in items if item["type"] == "function_call_output"
    ]
    for call_id in calls:
        if call_id not in outputs:
            raise RefusalError(
                f"No tool output found for function call {call_id}.", param="input"
            )
    for call_id in outputs:
        if call_id not in calls:
            text = (
                f"No tool call found for function call output with call_id {call_id}."
            )
            raise RefusalError(text, param="input")


def _check_sealed(item, vault):
    sealed = item.get("encrypted_content")
    if sealed and sealed not in vault.hidden:
        reason = "Reason: Encrypted content could not be decrypted or parsed."
        text = f"The encrypted content for item {item.get('id')} could not be verified. {reason}"
        raise RefusalError(text, code="invalid_encrypted_content", param="input")
    if not sealed and item.get("id") not in vault.stored:
        text = f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
        raise RefusalError(text, param="input", status=404)


def _check_follower(item, rest, vault):
    wanted = vault.follows.get(item.get("id") or "")
    if wanted and not (
        rest and rest[0].get("id") in {wanted, None} and rest[0].get("role") != "user"
    ):
        text = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
        raise RefusalError(text, param="input")


def visible(items, vault):
    """Return what the newest compaction leaves: instructions, what it retained, itself, and what follows."""
    at = max(
        (i for i, item in enumerate(items) if item["type"] == "compaction"),
        default=None,
    )
    if at is None:
        return items
    kept = vault.retained.get(items[at]["encrypted_content"], set())
    before = [
        item
        for item in items[:at]
        if item.get("role") in INSTRUCTING or identity(item) in kept
    ]
    return [*before, *items[at:]]


def compacts(body, tokens):
    """Tell whether the request asks for a compaction at this size."""
    entries = body.get("context_management") or []
    return any(
        tokens > entry.get("compact_threshold", tokens)
        for entry in entries
        if entry["type"] == "compaction"
    )


def leading(items):
    """Return the instructions at the start."""
    count = next(
        (i for i, item in enumerate(items) if item.get("role") not in INSTRUCTING),
        len(items),
    )
    return items[:count]


def prompt_tokens(body, seen, vault):
    """Return what the model would see."""
    return sum(block.tokens for block in prompt_blocks(body, seen, vault))


def prompt_blocks(
    body,
    seen,
    vault,
    *,
    ttl_seconds=None,
):
    """Return the prompt in its order, tools and items; breakpoints are kept for `ttl_seconds`."""
    blocks = [
        Block(key=compact_json(tool), tokens=json_tokens(tool))
        for tool in body.get("tools") or []
    ]
    turn = max(
        (i for i, item in enumerate(seen) if item.get("role") == "user"), default=0
    )
    for index, item in enumerate(seen):
        if item["type"] == "reasoning" and index < turn:
            continue  # the model does not see the reasoning of earlier turns
        block = Block(key=_key(item), tokens=item_tokens(item, vault))
        blocks.append(
            replace(block, ttl_seconds=ttl_seconds)
            if ttl_seconds and is_marked(item)
            else block
        )
    return blocks


def marked(body, seen):
    """Return the items with the breakpoints that are written: the latest explicit ones, and an implicit one."""
    mode = (body.get("prompt_cache_options") or {}).get("mode", "implicit")
    explicit = [i for i, item in enumerate(seen) if is_marked(item)][
        -EXPLICIT_BREAKPOINTS[mode] :
    ]
    chosen = {*explicit, *([len(seen) - 1] if mode == "implicit" else [])}
    return [
        {**item, "prompt_cache_breakpoint": i in chosen, "content": parts_of(item)}
        for i, item in enumerate(seen)
    ]


def item_tokens(item, vault):
    """Return the tokens of one item."""
    kind = item["type"]
    if kind == "message":
        return FRAME_TOKENS + sum(map(_part_tokens, parts_of(item)))
    if kind in {"reasoning", "compaction"}:
        return text_tokens(
            vault.hidden.get(item.get("encrypted_content") or item["id"], "")
        )
    if kind == "function_call":
        return text_tokens(item["name"]) + text_tokens(item["arguments"])
    return sum(map(_part_tokens, parts_of({"content": item["output"]})))


def _part_tokens(part):
    return text_tokens(part["text"]) if "text" in part else MEDIA_TOKENS


def parts_of(item):
    """Return the content of a message as parts."""
    content = item.get("content") or []
    return (
        [{"type": "input_text", "text": content}]
        if isinstance(content, str)
        else content
    )


def is_marked(item):
    """Tell whether an item has a breakpoint."""
    own = item.get("prompt_cache_breakpoint")
    return (
        any("prompt_cache_breakpoint" in part for part in parts_of(item))
        if own is None
        else own
    )


def _key(item):
    """Return what the model sees of an item: not its ids, nor its breakpoints."""
    parts = [
        {k: v for k, v in part.items() if k in {"text", "image_url", "file_id"}}
        for part in parts_of(item)
    ]
    rest = {
        k: v
        for k, v in item.items()
        if k in {"role", "name", "arguments", "call_id", "output", "encrypted_content"}
    }
    return compact_json([item["type"], rest, parts])
