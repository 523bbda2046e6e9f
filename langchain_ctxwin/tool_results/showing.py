"""What is shown of a tool's result: its entries, which of their fields, and the text in which they are printed.

How JSON values are printed in few tokens, so that they can be read back exactly:

1. A table: the header has one column per field, `owner.login` for a field inside an object; cells are parted by `|`, an
   empty cell means that the row lacks the field, and empty cells at the end of a line are left out.
2. Rows that do not share their fields are objects in a line each: `{id:7,tags:[a,b]}`.
3. Texts and keys stand without quotes wherever they cannot be taken for anything else; otherwise they are JSON strings.
   In quotes are: empty texts, texts that read as a number, true, false or null, texts with a separator or a line break.
4. Numbers, true, false and null are as in JSON (null is not the same as an empty cell), with NaN and Infinity.

Which fields are left out by rules: nulls and empty values; answers to yes-or-no questions (`has_wiki: true`); and
addresses, but for one where neither the object nor the one around it has an identifier. A key is split into words
(`createdAt`, `created_at`) and judged by the last one, a question by the first. What is kept of a row depends on that
row alone, so pages agree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import chain
from typing import Any, Final

from langchain_core.tools.base import TOOL_MESSAGE_BLOCK_TYPES
from pydantic_core import from_json, to_jsonable_python

from langchain_ctxwin.core.field_paths import (
    WHOLE,
    Wanted,
    after,
    compile_fields,
    joined,
)
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.provider_blocks import MEDIA_TYPES, compact_json
from langchain_ctxwin.text import Span, query_terms, statement_spans, terms
from langchain_ctxwin.tool_results.cursors import Style

# ---------------------------------------------------------------------------------------------------------- printing

EMPTY_ROW = "|"  # a row that has none of the columns: an empty line could be overlooked
MIN_FILLED = 0.4  # below, the empty cells of a table cost about what the repeated keys would, and are hard to count

_WORDS = r"(?:[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?|true|false|null|NaN|-?Infinity)\Z"
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_ABSENT: Final = object()


def _bare(separators: str) -> re.Pattern[str]:
    """A text that stands without quotes: no JSON word, no separator, no line break, no space at its ends."""
    rest = f"[^\x00-\x1f\ud800-\udfff{separators}]*(?<!\\s)"
    first = f'[^\\s"{{\\[(\x00-\x1f\ud800-\udfff{separators}]'
    return re.compile(f"(?!{_WORDS}){first}(?:{rest})")


_BARE_CELL = _bare("|")
_BARE_INSIDE = _bare(",|()}\\]")
_BARE_KEY = re.compile(r'(?!\s)[^"#.:;,|(){}\[\]\x00-\x1f\ud800-\udfff]+(?<!\s)')


def print_rows(rows: Sequence[Any]) -> tuple[str, list[str]]:
    """Print rows as a table when they share most of their fields, else as a value per line, without a header.

    Examples:
        >>> print_rows(
        ...     [
        ...         {"id": 1, "owner": {"login": "ann"}},
        ...         {"id": 2, "owner": {"login": "7"}},
        ...     ]
        ... )
        ('id|owner.login', ['1|ann', '2|"7"'])
    """
    is_table = len(rows) > 1 and all(type(row) is dict for row in rows)
    columns = _columns(rows) if is_table else None
    if not columns:
        return "", list(map(print_value, rows))
    lines = [
        "|".join(map(_cell, line)).rstrip("|")
        for line in zip(*columns.values(), strict=True)
    ]
    return "|".join(columns), lines


def row_lines(rows: Sequence[Any]) -> list[str]:
    """Print rows, one text each; the header of a table is part of the first row's."""
    header, lines = print_rows(rows)
    if header:
        lines = [line or EMPTY_ROW for line in lines]
        lines[0] = f"{header}\n{lines[0]}"
    return lines


def print_value(value: Any) -> str:
    """Print any JSON value in one line.

    Examples:
        >>> print_value(
        ...     {
        ...         "id": 7,
        ...         "note": "",
        ...         "tags": ["a", "b, c"],
        ...         "at": "2024-05-31T10:00:00Z",
        ...     }
        ... )
        '{id:7,note:"",tags:[a,"b, c"],at:2024-05-31T10:00:00Z}'
    """
    if isinstance(value, dict):
        fields = [
            f"{_text(key, _BARE_KEY)}:{print_value(item)}"
            for key, item in value.items()
        ]
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(print_value, value)) + "]"
    if isinstance(value, str):
        return _text(value, _BARE_INSIDE)
    return json.dumps(value)


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]] | None:
    """A column per field of rows and of the objects in them; None when too many cells would be empty."""
    flat_rows = [_flat(row, "") for row in rows]
    paths = dict.fromkeys(chain.from_iterable(flat_rows))
    if sum(map(len, flat_rows)) < MIN_FILLED * len(paths) * len(rows):
        return None
    return {path: [row.get(path, _ABSENT) for row in flat_rows] for path in paths}


def _flat(row: dict[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        path = f"{prefix}{_text(key, _BARE_KEY)}"
        if type(value) is dict and value:
            flat.update(_flat(value, f"{path}."))
        else:
            flat[path] = value
    return flat


def _cell(value: Any) -> str:
    if value is _ABSENT:
        return ""
    return _text(value, _BARE_CELL) if type(value) is str else print_value(value)


def _text(text: str, bare: re.Pattern[str]) -> str:
    if bare.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=bool(_HALF_CHARACTER.search(text)))


# ------------------------------------------------------------------------------------------------------------ entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A result as a sequence of entries: first what stands beside the rows, if anything, then the rows.

    An object without a list of rows is one entry, and so is a text.
    """

    entries: Sequence[Any]
    head: int = 0  # number of entries before the first row: 0 or 1
    # of the list of rows, as it can be asked for; empty for a list at the top
    path: str = ""

    @property
    def is_text(self) -> bool:
        """True for a result that is no JSON."""
        return self.head > 0 and isinstance(self.entries[0], str)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.entries) - self.head

    def __len__(self) -> int:
        return len(self.entries)

    def inside(self, path: str) -> str:
        """Return a path in the whole value as a path in one row; other paths are taken as paths in the row.

        The path of the list itself, or of what it stands in, is all of a row.
        """
        if self.path and f"{self.path}.".startswith(f"{path.removesuffix('[]')}."):
            return "**"
        return path.removeprefix(f"{self.path}[].").removeprefix(f"{self.path}.")

    def has(self, path: str) -> bool:
        """Say whether a path leads to something in the value or in any row, or names no field at all."""
        wanted, inside = compile_fields([path]), compile_fields([self.inside(path)])
        return (
            not any(isinstance(step, str) for step in wanted[0])
            or any(_chosen(row, inside) != {} for row in self.entries[self.head :])
            or any(_chosen(entry, wanted) != {} for entry in self.entries[: self.head])
        )

    def those_in(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the paths that lead to something; an error has none of the fields that were chosen of its tool."""
        return tuple(path for path in paths if not self.is_text and self.has(path))

    def path_of(self, index: int) -> str:
        """Return the path at which an entry stands; empty for what states its own."""
        return f"{self.path}[{index - self.head}]" if index >= self.head else ""

    def name(self, index: int) -> str:
        """Return what an entry is called outside of the marks: by its number, because keys are data."""
        if index >= self.head:
            return f"row {index - self.head + 1:,}"
        if self.is_text:
            return "the text"
        return "the fields beside the rows" if self.row_count else "the fields"


def layout_of(text: str) -> Layout:
    """Find the rows: the items of the top-level list, or of the list at the end of the largest entries.

    From an object the way leads into its largest entry, and so on. Where that ends in no list, or in one of a single
    item, there are none.

    Examples:
        >>> found = layout_of('{"total": 2, "data": {"items": [{"id": 1}, {"id": 2}]}}')
        >>> found.path, found.entries
        ('data.items', [{'total': 2}, {'id': 1}, {'id': 2}])
    """
    keys: list[str] = []
    node = value = json_value(text)
    while isinstance(node, dict) and node:
        sizes = {key: len(compact_json(inner)) for key, inner in node.items()}
        keys.append(max(sizes, key=sizes.__getitem__))
        node = node[keys[-1]]
    if not isinstance(node, list) or len(node) < 1 + bool(keys):
        return Layout(entries=[value or text], head=1)
    beside = _without(value, keys) if keys else {}
    head = [beside] if beside else []
    return Layout(entries=[*head, *node], head=len(head), path=reduce(joined, keys, ""))


def _without(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The value without what the keys lead to, and without objects that are empty then."""
    first, *others = keys
    remaining = {key: item for key, item in value.items() if key != first}
    inside = _without(value[first], others) if others else {}
    return {**remaining, first: inside} if inside else remaining


# ------------------------------------------------------------------------------------------------------- what is shown

# fields beside the rows that print in so many characters are shown whole
HEAD_CHARS = 1_000


class ResultView:
    """The entries of a result in one style."""

    def __init__(self, layout: Layout, style: Style) -> None:
        self.layout = layout
        self.style = style

    def __len__(self) -> int:
        return len(self.layout)

    def printed(self, indexes: range) -> list[str]:
        """Print entries in order, one text each; the header of a table is part of the first row's."""
        values, heads = self.values(indexes), self._heads(indexes)
        return [*map(_field_lines, values[:heads]), *row_lines(values[heads:])]

    def values(self, indexes: range) -> list[Any]:
        """Return the visible part of entries; an empty object when all of one is left out."""
        entries = self.layout.entries[indexes.start : indexes.stop]
        heads, fields = self._heads(indexes), self.style.fields
        head, rows = [*entries[:heads]], [*entries[heads:]]
        # The fields beside the rows tell about all rows, so few of them are shown as they are.
        if fields or len(compact_json(head)) > HEAD_CHARS:
            head = self._projected(head, fields)
        inside = [self.layout.inside(path) for path in fields]
        return head + self._projected(rows, inside)

    def shortens(self, indexes: range) -> bool:
        """Say whether anything of these entries is left out."""
        entries = self.layout.entries[indexes.start : indexes.stop]
        return self.values(indexes) != [*entries]

    def _heads(self, indexes: range) -> int:
        return max(0, self.layout.head - indexes.start)

    def _projected(self, values: list[Any], fields: Sequence[str]) -> list[Any]:
        if self.style.shows_everything or self.style.fields == ("*",):
            return values
        if fields:
            return project(values, fields)
        return [*project_automatically(values, self.style)]


def is_shortened(text: str, fields: Sequence[str]) -> bool:
    """Say whether a result that fits has others beside these fields; an error has none of them."""
    layout = layout_of(text)
    view = ResultView(layout, Style(fields=layout.those_in(fields)))
    return view.shortens(range(len(layout)))


def _field_lines(entry: dict[str, Any] | str) -> str:
    if isinstance(entry, str):
        return entry
    return "\n".join(
        f"{joined('', key)}: {print_value(item)}" for key, item in entry.items()
    )


# --------------------------------------------------------------------------------------------------- choice of fields

_NAMES = (
    "id uuid guid ulid oid pk key sha hash digest fingerprint checksum slug number no num code ref reference login "
    "username handle email phone sku isbn ean upc asin doi iban bic vin symbol ticker token identifier cursor"
)
_IDENTIFIERS = frozenset(_NAMES.split())
_LINKS = frozenset({"url", "uri", "href"})
# how things are (`is_open`) is a state
_QUESTIONS = frozenset({"has", "can", "should", "may", "allow", "allows"})
_WORD = re.compile(r"[A-Z]{2,}s?(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|[^\W\d_a-zA-Z]+")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S*")


def project(values: Sequence[Any], fields: Sequence[str]) -> list[Any]:
    """Keep only what `fields` name (see `core.field_paths`), in the order of each value; {} where that is nothing."""
    wanted = compile_fields(fields)
    return [_chosen(value, wanted) for value in values]


def _chosen(value: Any, wanted: Wanted) -> Any:
    """Return the part of a value that the paths name, {} where that is nothing; lists keep their length."""
    if WHOLE in wanted:
        return value
    if wanted and type(value) is list:
        items = [_chosen(item, wanted) for item in value]
        return items if any(item != {} for item in items) else {}
    if not wanted or type(value) is not dict:
        return {}
    parts = {key: _chosen(item, after(wanted, key)) for key, item in value.items()}
    return {key: part for key, part in parts.items() if part != {}}


def project_automatically(
    value: Any, style: Style, *, is_identified: bool = False
) -> Any:
    """Leave out nulls, empty values, answers to yes-or-no questions and addresses, by the rules of this module.

    An object in a list of which nothing would be left is kept whole, and lists keep all of their items. Texts of more
    than `style.text_chars` are cut to about as many that say most.
    """
    if type(value) is list:
        return [project_automatically(row, style) or row for row in value]
    if type(value) is dict:
        return _object(value, style, is_identified=is_identified)
    most = style.text_chars or 0
    if not isinstance(value, str) or len(value) <= most:
        return value
    if not style.extraction:
        return _beginning(value, most)
    return extract(value, most, style.words)


def _object(
    value: dict[str, Any], style: Style, *, is_identified: bool
) -> dict[str, Any]:
    present = {
        key: item for key, item in value.items() if item is not None and item != ""
    }
    is_identified = is_identified or any(
        _role_of(key) == "identifier" and not isinstance(item, dict | list)
        for key, item in present.items()
    )
    shown: dict[str, Any] = {}
    for key, item in present.items():
        is_link, is_flag = (
            _is_link(key, item),
            _role_of(key) == "question" and item in (0, 1),
        )
        if is_flag or (is_link and is_identified):
            continue
        # one stays where nothing else identifies
        is_identified = is_identified or is_link
        part = project_automatically(item, style, is_identified=is_identified)
        if part not in ({}, []):
            shown[key] = part
    return shown


@lru_cache(maxsize=4_096)  # the keys of a few hundred kinds of results
def _role_of(key: str) -> str:
    words = _WORD.findall(key) or [""]
    last = words[-1].lower().removesuffix("s")
    if last in _IDENTIFIERS:
        return "identifier"
    if last in _LINKS:
        return "link"
    return "question" if words[0].lower() in _QUESTIONS else ""


def _is_link(key: str, value: Any) -> bool:
    role = _role_of(key)
    return isinstance(value, str) and (
        role == "link" or (role != "identifier" and bool(_URL.fullmatch(value)))
    )


# ------------------------------------------------------------------------------------------------------- long texts

GAP = " … "  # stands where statements between two others were left out
MOST_WORDS = 64  # of a question: it has fewer, and of a pasted document the first ones say what it is about
QUERY_CHARS = 20_000  # of one argument or message are read for words
READ_CHARS = 24_000  # at the beginning of a text are read for statements, half a dozen printed pages


def extract(text: str, max_chars: int, words: Collection[str] = ()) -> str:
    """Return whole statements of `text` in at most `max_chars`, verbatim and in order: those with most of the words.

    Among equals the first ones are taken. Where statements are missing stands a gap, at the end how many characters
    were left out; of a text without any that fits, the beginning.

    Examples:
        >>> text = "It rains today. Trains run on time. Bread costs 4.20. Cats sleep all day."
        >>> extract(text, 65, query_words(["Bread?"]))
        'It rains today. … Bread costs 4.20. … [39 more characters]'
    """

    def order(span: Span) -> int:
        return -len(set(terms(text[slice(*span)])).intersection(words))

    spans = statement_spans(text, 0, min(len(text), READ_CHARS))
    statements = [span for span in spans if not text[slice(*span)].isspace()]
    room = max_chars - len(_ending(len(text)))
    fit: Fit[Span] = take_while_fits(
        sorted(statements, key=order) if words else statements,
        room,
        lambda span: span[1] - span[0] + len(GAP),
        on_overflow="skip",
    )
    if not fit.kept:
        return _beginning(text, max(0, room))
    excerpt, end = "", 0
    for start, stop in sorted(fit.kept):
        excerpt += ("" if start == end else GAP.lstrip()) + text[start:stop]
        end = stop
    left_out = len(text) - sum(stop - start for start, stop in fit.kept)
    return excerpt.rstrip() + _ending(left_out)


def query_words(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the words that say what is asked for, as they are compared.

    Examples:
        >>> query_words(["Where are my orders INV-7?"])
        ('order', 'inv-7', 'inv', '7')
    """
    words = dict.fromkeys(
        word for text in texts for word in query_terms(text[:QUERY_CHARS])
    )
    return tuple(words)[:MOST_WORDS]


def _ending(chars: int) -> str:
    return f"{GAP}[{chars:,} more characters]"


def _beginning(text: str, max_chars: int) -> str:
    return f"{text[:max_chars]}{_ending(len(text) - max_chars)}"


# ------------------------------------------------------------------------------------------------------ large entries

SMALL_CHARS = 200  # a value that prints in so many, about two lines, is shown on the line of its path


def inside_text(value: Any, path: str) -> str:
    """Return the text of one large value, which its pages are slices of, with the paths of what is in it."""
    return "".join(_parts(value, path))


def _parts(value: Any, path: str) -> Iterator[str]:
    """The pieces of a value, each after the path at which it stands."""
    printed = print_value(value)
    is_text, size = isinstance(value, str), len(printed)
    if size <= SMALL_CHARS or not (is_text or isinstance(value, dict | list)):
        yield f"{path}: {printed}\n" if path else f"{printed}\n"
    elif is_text:
        yield f"{path} ({len(value):,} characters):\n{value}\n".lstrip()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(item, joined(path, key))
    elif any(len(print_value(item)) > SMALL_CHARS for item in value):
        for index, item in enumerate(value):
            yield from _parts(item, f"{path}[{index}]")
    else:
        lines = "\n".join(row_lines(value))
        yield f"{path}[] ({len(value):,} items):\n{lines}\n".lstrip()


# ----------------------------------------------------------------------------------------------------------- contents

# keys of a block, or of the object under one, that may state an address
LINK_KEYS = ("url", "image_url", "source")
LINK_FACTS = ("title", "name", "description", "mime_type")  # what it says beside it
# rows of data may have a `type` as well
_BLOCK_TYPES = frozenset({*TOOL_MESSAGE_BLOCK_TYPES, *MEDIA_TYPES})


def content_text(content: Any) -> str:
    """Return the content of a tool message, or what a tool returned outside of an agent, as it is kept.

    Of blocks, and of several texts, it is the JSON list of what they say.

    Examples:
        >>> content_text({"a": 1})
        '{"a": 1}'
        >>> content_text([{"type": "text", "text": "plain"}])
        'plain'
    """
    if is_blocks(content):
        texts = [text_of(block) for block in content]
        content = (
            [*map(_said, content)] if len(texts) > 1 or None in texts else texts[0]
        )
    if isinstance(content, str):
        return content
    return json.dumps(jsonable(content), ensure_ascii=False)


def _said(block: Any) -> Any:
    """What a block says: a text block's text or JSON; of media kind and name, without their data."""
    text = text_of(block)
    if text is None and is_media(block):
        return {key: block[key] for key in ("type", *LINK_FACTS) if key in block}
    if text is None:
        return block
    value = json_value(text)
    return text if value is None else value


def json_value(text: str) -> Any:
    """Return the object or list that a text is in JSON; None for any other text, and for one of over 200 levels."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return from_json(text)
    except ValueError:
        return None


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
    said = ", ".join(str(facts[key]) for key in LINK_FACTS if facts.get(key))
    return {
        "type": "text",
        "text": f"{block['type']}: {url}{f' ({said})' if said else ''}",
    }


def jsonable(value: Any) -> Any:
    """Return a value of any type in the types of JSON: models as objects, anything unknown as its `str`."""
    try:
        return to_jsonable_python(value, serialize_unknown=True)
    # an object inside itself, or bytes that are no text
    except (ValueError, RecursionError):
        return str(value)
