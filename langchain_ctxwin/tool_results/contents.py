"""Content of a tool's result: a JSON value, a text, or blocks of text and media."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Any

from langchain_core.tools.base import TOOL_MESSAGE_BLOCK_TYPES
from langchain_core.utils.utils import LC_AUTO_PREFIX
from pydantic import BaseModel

from langchain_ctxwin.core.blocks import MEDIA_TYPES, compact_json
from langchain_ctxwin.errors import ContextWindowError

MAX_DEPTH = 100  # levels of a JSON value: far more than any API returns, far fewer than Python can follow
MAX_PATH_CHARS = 500
"""Keys that lead to a value of JSON have at most so many characters together, several times what services nest. Each
part of a large value is shown under its path: with longer ones, a result would be mostly its keys, many times over."""

MAX_INT_BITS = 4 * 3_500  # longer integers are written in hexadecimal: Python prints at most 4,300 decimal digits
MAX_ITEMS = 1_000_000  # taken from a generator: it may have no end, and so many of anything are no answer to a call
MEDIA_DATA = ("data", "base64", "url", "image_url", "file_data", "input_audio", "source")  # keys of a block's data
LINK_KEYS = ("url", "image_url", "source")  # keys of a block, or of the object under one, that may state an address
_BLOCK_TYPES = frozenset({*TOOL_MESSAGE_BLOCK_TYPES, *MEDIA_TYPES})  # rows of data may have a `type` as well


class Spelled(float):
    """A float whose text in the result says more than Python would print: `1.10`, or twenty digits."""

    __slots__ = ("text",)
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A tool's result in the form in which it is kept."""

    text: str  # the result as it came; blocks, and several texts, as the JSON list of them
    value: Any = None  # what `text` says in JSON, None for plain text
    kind: str = "text"  # `text`, `json`, or `blocks`: a list of what the text blocks say and of media blocks


def content_of(content: Any) -> Content:
    """Read the content of a tool message, or what a tool returned outside of an agent.

    Examples:
        >>> content_of('{"a": 1}').value
        {'a': 1}
        >>> content_of([{"type": "text", "text": "plain"}]).kind
        'text'
    """
    if is_blocks(content):
        texts = [text_of(block) for block in content]
        if len(texts) != 1 or texts[0] is None:
            return restored(compact_json(list(content)), "blocks")
        content = texts[0]
    return restored(content if isinstance(content, str) else json.dumps(jsonable(content), ensure_ascii=False), "json")


def restored(text: str, kind: str) -> Content:
    """Return the content that was kept as this text; what is no JSON is plain text."""
    value = None if kind == "text" else json_value(text)
    if value is None or (kind == "blocks" and not isinstance(value, list)):
        return Content(text=text)
    return Content(text=text, value=[_said(block) for block in value] if kind == "blocks" else value, kind=kind)


def _said(block: Any) -> Any:
    """What a block says: a text block's text or JSON, any other block as it is."""
    text = text_of(block)
    if text is None:
        return block
    value = json_value(text)
    return text if value is None else value


def json_value(text: str) -> Any:
    """Return the object or list that a text is in JSON; None for any other text.

    So that nothing is lost, what Python would read with losses counts as text: objects that state a key twice, and
    values nested deeper than `MAX_DEPTH`; likewise values under longer paths than `MAX_PATH_CHARS`, which no page could
    name. Floats keep their spelling.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, parse_float=_float, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        return None
    return value if _has_short_paths(value) else None


def is_blocks(content: Any) -> bool:
    """Say whether this is content of a message in blocks: texts, media, and whatever else states its type."""
    return (
        isinstance(content, list | tuple)
        and bool(content)
        and all(isinstance(b, str) or (isinstance(b, Mapping) and str(b.get("type")) in _BLOCK_TYPES) for b in content)
    )


def stays_blocks(content: Any) -> bool:
    """Say whether LangGraph's `ToolNode` hands content on as blocks; anything else it prints as JSON, data and all."""
    return is_blocks(content) and all(
        isinstance(block, Mapping) and block.get("type") in TOOL_MESSAGE_BLOCK_TYPES for block in content
    )


def text_of(block: Any) -> str | None:
    """Return the text of a block that is nothing but a text, None for other blocks: their keys are data as well."""
    if isinstance(block, str):
        return block
    others = {key: value for key, value in block.items() if key not in ("type", "text")}
    is_marked_only = others.keys() <= {"id"} and str(others.get("id", LC_AUTO_PREFIX)).startswith(LC_AUTO_PREFIX)
    text = block.get("text") if is_marked_only and block.get("type", "text") == "text" else None
    return text if isinstance(text, str) else None


def is_media(block: Any) -> bool:
    """Say whether a block holds an image, audio, video or a file."""
    return isinstance(block, Mapping) and MEDIA_TYPES.get(str(block.get("type"))) is not None


def address_of(block: Mapping[str, Any]) -> str:
    """Return where the file of a media block is, an empty string for one that holds its data.

    Examples:
        >>> address_of({"type": "file", "url": "https://archive.example/tides.csv", "mime_type": "text/csv"})
        'https://archive.example/tides.csv'
        >>> address_of({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}})
        ''
    """
    for value in (block.get(key) for key in LINK_KEYS):
        url = value.get("url") if isinstance(value, Mapping) else value
        if isinstance(url, str) and not url.startswith("data:"):
            return url
    return ""


def with_addresses(content: Any) -> Any:
    """Return content in blocks with a text in the place of each link to a file: its kind, address, and what it says."""
    return [_addressed(block) if is_media(block) else block for block in content] if is_blocks(content) else content


def _addressed(block: Mapping[str, Any]) -> Any:
    url = address_of(block)
    if not url:
        return block
    others = {key: value for key, value in block.items() if key not in ("type", "id", *LINK_KEYS)}
    said = ", ".join(text for text in {**others, **(others.get("extras") or {})}.values() if isinstance(text, str))
    return {"type": "text", "text": f"{block['type']}: {url}{f' ({said})' if said else ''}"}


def without_data(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a media block with the size of its data in the place of the data."""
    return {
        key: f"[{len(compact_json(value)):,} characters]" if key in MEDIA_DATA else value
        for key, value in block.items()
    }


def repeats(content: Any, structured: Any) -> bool:
    """Say whether the structured content of an MCP tool says what its content says.

    Servers print a value as one text, or the items of a list as a text each, and name a value that is no object
    `result`, because structured content has to be an object.

    Examples:
        >>> repeats([{"type": "text", "text": "7"}, {"type": "text", "text": "8"}], {"result": [7, 8]})
        True
    """
    blocks = [content] if isinstance(content, str) else content
    texts = list(map(text_of, blocks)) if is_blocks(blocks) else []
    if not texts or not isinstance(structured, Mapping):
        return False
    named = [structured["result"]] if structured.keys() == {"result"} else []
    lists = [value for value in named if isinstance(value, list)]
    each = [[value] for value in (structured, *named)] + lists
    return any(len(values) == len(texts) and all(map(_says, texts, values)) for values in each)


def _says(text: str | None, value: Any) -> bool:
    if isinstance(value, str):
        return text == value
    try:
        return text is not None and bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def jsonable(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Return a value of any type in the types of JSON: models and dataclasses as objects, generators as lists.

    Bytes become text, or base64 where they are none; keys become strings, and so do integers of thousands of digits;
    an object inside itself becomes a note of where it is (`around` has the ids); anything else becomes its `str`. A
    generator of more than `MAX_ITEMS` items raises a `ContextWindowError`.
    """
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        return hex(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if id(value) in around:
        return f"[the object {len(around) - around.index(id(value))} levels above]"
    if len(around) < MAX_DEPTH:
        return _converted(value, lambda part: jsonable(part, (*around, id(value))))
    try:
        return str(value)
    except RecursionError:
        return f"[a {type(value).__name__} of more levels than Python can print]"


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    names: list[str] | None = None
    if isinstance(value, BaseModel):
        names = [*type(value).model_fields, *(value.model_extra or {})]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    if names is not None:
        return convert({name: getattr(value, name) for name in names})
    if isinstance(value, Mapping):
        pairs = [[key if isinstance(key, str) else compact_json(key), convert(item)] for key, item in value.items()]
        named = dict(pairs)
        return named if len(named) == len(pairs) else pairs  # two keys would become the same string
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    if isinstance(value, Iterator):
        value = list(islice(value, MAX_ITEMS + 1))
        if len(value) > MAX_ITEMS:
            raise ContextWindowError(
                f"the tool's generator yields more than {MAX_ITEMS:,} items: return a list, or fewer items"
            )
    if isinstance(value, Sequence | AbstractSet):
        return [convert(item) for item in value]
    return str(value)


def _float(text: str) -> float:
    value = float(text)
    if repr(value) == text:
        return value
    spelled = Spelled(value)
    spelled.text = text
    return spelled


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is stated twice")
    return found


def _has_short_paths(value: Any) -> bool:
    """Say whether no path has more keys than `MAX_DEPTH`, or more characters in them than `MAX_PATH_CHARS`."""
    level = [(value, 0)]
    for _ in range(MAX_DEPTH):
        below: list[tuple[Any, int]] = []
        for node, chars in level:
            is_object = isinstance(node, dict)
            if is_object and chars + max(map(len, node), default=0) > MAX_PATH_CHARS:
                return False
            children = node.items() if is_object else (("", child) for child in node)
            below.extend((child, chars + len(key)) for key, child in children if isinstance(child, dict | list))
        if not below:
            return True
        level = below
    return False
