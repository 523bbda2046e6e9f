"""Content of a tool's result: a JSON value, a text, or blocks of text and media."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools.base import TOOL_MESSAGE_BLOCK_TYPES
from pydantic_core import to_jsonable_python

from langchain_ctxwin.core.provider_blocks import MEDIA_TYPES, compact_json

MAX_DEPTH = 100  # levels of a JSON value: far more than any API returns, far fewer than Python can follow
# keys of a block's data
MEDIA_DATA = (
    "data",
    "base64",
    "url",
    "image_url",
    "file_data",
    "input_audio",
    "source",
)
# keys of a block, or of the object under one, that may state an address
LINK_KEYS = ("url", "image_url", "source")
# rows of data may have a `type` as well
_BLOCK_TYPES = frozenset({*TOOL_MESSAGE_BLOCK_TYPES, *MEDIA_TYPES})


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A tool's result in the form in which it is kept."""

    text: str  # the result as it came; of blocks, and of several texts, the JSON list of what they say
    value: Any = None  # what `text` says in JSON, None for plain text


def content_of(content: Any) -> Content:
    """Read the content of a tool message, or what a tool returned outside of an agent.

    Examples:
        >>> content_of('{"a": 1}').value
        {'a': 1}
        >>> content_of([{"type": "text", "text": "plain"}]).text
        'plain'
    """
    if is_blocks(content):
        texts = [text_of(block) for block in content]
        content = (
            [*map(_said, content)] if len(texts) > 1 or None in texts else texts[0]
        )
    text = (
        content
        if isinstance(content, str)
        else json.dumps(jsonable(content), ensure_ascii=False)
    )
    return Content(text=text, value=json_value(text))


def _said(block: Any) -> Any:
    """What a block says: a text block's text or JSON; of media all but their data."""
    text = text_of(block)
    if text is None:
        return without_data(block) if is_media(block) else block
    value = json_value(text)
    return text if value is None else value


def json_value(text: str) -> Any:
    """Return the object or list that a text is in JSON; None for any other text, and for one of too many levels."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
        return value if _depth(value) <= MAX_DEPTH else None
    except (ValueError, RecursionError):
        return None


def _depth(value: dict[str, Any] | list[Any]) -> int:
    items = value.values() if isinstance(value, dict) else value
    inside = (_depth(item) for item in items if isinstance(item, dict | list))
    return 1 + max(inside, default=0)


def is_blocks(content: Any) -> bool:
    """Say whether this is content of a message in blocks: texts, media, and whatever else states its type."""
    return (
        isinstance(content, list | tuple)
        and bool(content)
        and all(
            isinstance(b, str)
            or (isinstance(b, Mapping) and str(b.get("type")) in _BLOCK_TYPES)
            for b in content
        )
    )


def stays_blocks(content: Any) -> bool:
    """Say whether LangGraph's `ToolNode` hands content on as blocks; anything else it prints as JSON, data and all."""
    return is_blocks(content) and all(
        isinstance(block, Mapping) and block.get("type") in TOOL_MESSAGE_BLOCK_TYPES
        for block in content
    )


def text_of(block: Any) -> str | None:
    """Return the text of a block that is nothing but a text, None for other blocks: their keys are data as well."""
    if isinstance(block, str):
        return block
    text = block.get("text") if block.keys() <= {"type", "text", "id"} else None
    return text if isinstance(text, str) else None


def is_media(block: Any) -> bool:
    """Say whether a block holds an image, audio, video or a file."""
    return (
        isinstance(block, Mapping)
        and MEDIA_TYPES.get(str(block.get("type"))) is not None
    )


def with_addresses(content: Any) -> Any:
    """Return content in blocks with a text in the place of each link to a file: its kind, address, and what it says.

    Examples:
        >>> with_addresses(
        ...     [
        ...         {
        ...             "type": "file",
        ...             "url": "https://archive.example/tides.csv",
        ...             "mime_type": "text/csv",
        ...         }
        ...     ]
        ... )
        [{'type': 'text', 'text': 'file: https://archive.example/tides.csv (text/csv)'}]
    """
    if not is_blocks(content):
        return content
    return [_addressed(block) if is_media(block) else block for block in content]


def _addressed(block: Mapping[str, Any]) -> Any:
    addresses = (block.get(key) for key in LINK_KEYS)
    urls = [one.get("url") if isinstance(one, Mapping) else one for one in addresses]
    links = (
        url for url in urls if isinstance(url, str) and not url.startswith("data:")
    )
    if (url := next(links, None)) is None:
        return block
    facts = {**block, **(block.get("extras") or {})}
    said = ", ".join(
        text
        for key, text in facts.items()
        if key not in ("type", "id", *LINK_KEYS) and isinstance(text, str)
    )
    return {
        "type": "text",
        "text": f"{block['type']}: {url}{f' ({said})' if said else ''}",
    }


def without_data(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a media block with the size of its data in the place of the data."""
    return {
        key: f"[{len(compact_json(value)):,} characters]"
        if key in MEDIA_DATA
        else value
        for key, value in block.items()
    }


def jsonable(value: Any) -> Any:
    """Return a value of any type in the types of JSON: models as objects, anything unknown as its `str`."""
    try:
        return to_jsonable_python(value, serialize_unknown=True)
    # an object inside itself, or bytes that are no text
    except (ValueError, RecursionError):
        return str(value)
