"""Pictures and files apart from their messages: a block with the digest of the real one stands in its place.

Documents whose text is in their block stay, because a search reads it, and so do bytes, which are no JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.blocks import (
    MEDIA_KINDS,
    RESULT_KEYS,
    Media,
    kind_of,
    leaves,
    with_fields,
)

DIGEST, CHARS = "ctxwin_digest", "ctxwin_chars"  # of what was in the place of a block

Block = Mapping[str, Any]


def media_in(message: AnyMessage) -> list[Block]:
    """Return the blocks of media in the content of a message, and in the results that it states."""
    blocks = list[Block]()

    def noted(block: Block) -> Block:
        blocks.append(block)
        return block

    if not isinstance(message, AIMessage):
        with_media(message.content, noted)
    return blocks


def with_media(content: Any, change: Callable[[Block], Block]) -> Any:
    """Return a content with its blocks of media changed, those inside results included; the same one where none is."""
    if not isinstance(content, list):
        return content
    blocks = [_with_block(block, change) for block in content]
    return content if all(map(is_, blocks, content)) else blocks


def _with_block(block: Any, change: Callable[[Block], Block]) -> Any:
    kind = kind_of(block)
    if kind in MEDIA_KINDS:
        return change(block)
    if kind == "result":
        inner = {k: with_media(block[k], change) for k in RESULT_KEYS if k in block}
        is_same = all(value is block[key] for key, value in inner.items())
        return block if is_same else {**block, **inner}
    if isinstance(block, Mapping) and block.get("type") == "non_standard":
        value = _with_block(block.get("value"), change)
        is_media = kind_of(value) in MEDIA_KINDS
        is_same = value is block.get("value")
        return block if is_same else {**block, "value": value} if is_media else value
    return block


def apart(message: AnyMessage) -> tuple[AnyMessage, dict[str, str]]:
    """Return the message with references in the place of pictures and files, and these as JSON by their digest.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> picture = {"type": "image", "base64": "QUJD" * 300}
        >>> lean, data = apart(HumanMessage([picture]))
        >>> sorted(lean.content[0]), len(data)
        (['ctxwin_chars', 'ctxwin_digest', 'type'], 1)
        >>> filled(lean, data).content == [picture]
        True
    """
    data = dict[str, str]()

    def reference(block: Block) -> Block:
        encoded = [leaf for leaf in leaves(block) if isinstance(leaf, Media)]
        chars = sum(len(leaf.block["data"]) for leaf in encoded)
        try:
            text = json.dumps(block) if encoded else ""
        except (TypeError, ValueError):
            text = ""
        if not text:
            return block
        digest = hashlib.sha256(text.encode()).hexdigest()
        data[digest] = text
        return {"type": block["type"], DIGEST: digest, CHARS: chars}

    return _changed(message, reference), data


def filled(message: AnyMessage, data: Mapping[str, str]) -> AnyMessage:
    """Return the message with the pictures and files that are known in the place of their references."""

    def block_of(block: Block) -> Block:
        text = data.get(digest_of(block))
        return json.loads(text) if text else block

    return _changed(message, block_of)


def digest_of(block: Block) -> str:
    """Return the digest of what a block stands for; empty where it is no reference."""
    digest = block.get(DIGEST)
    return digest if isinstance(digest, str) else ""


def digests_in(message: AnyMessage) -> frozenset[str]:
    """Return the digests of what the references of a message stand for."""
    return frozenset(filter(None, map(digest_of, media_in(message))))


def _changed(message: AnyMessage, change: Callable[[Block], Block]) -> AnyMessage:
    """The message with its media changed; what a model made is sent again as it is."""
    if isinstance(message, AIMessage):
        return message
    return with_fields(message, content=with_media(message.content, change))
