"""What is kept of a large result, so that every page of it can be shown later?"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.errors import ResultGoneError

LEVEL = 1
"""zlib's fastest level: JSON shrinks to a fifth with it, and the best level takes six times as long for a seventh."""

ID_CHARS = 12
"""Length of a result's id: 72 random bits, and short enough for cursors of at most 60 characters."""

MAX_BYTES = 1 << 30
"""Largest kept result: what is larger when it is unpacked was not written by this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One large result and how its pages are made."""

    tool: str
    """Name of the tool that returned it."""

    args_digest: str
    """Digest of the arguments of the call."""

    thread: str
    """Tenant and thread that it belongs to."""

    text: str
    """The result as it came, see `Content.text`."""

    kind: str
    """`text`, `json` or `blocks`."""

    text_chars: int | None = None
    """Length to which long texts inside the value are shortened on its pages; None: they and all fields are whole."""

    fields: tuple[str, ...] = ()
    """Configured fields of its pages."""

    words: tuple[str, ...] = ()
    """Words of the call and of the user's question, which long texts are shortened by."""

    keywords: tuple[str, ...] = ()
    """Configured words."""

    extraction: bool = True
    """Shorten long texts to sentences."""

    tail_start: int | None = None
    """Where the end of a text begins that was shown with the first page."""

    @property
    def shows_everything(self) -> bool:
        """True when its pages leave nothing out; otherwise at least empty fields."""
        return self.text_chars is None and not self.fields

    def to_bytes(self) -> bytes:
        """Return the record as compressed JSON."""
        return zlib.compress(compact_json(asdict(self)).encode("utf-8", "surrogatepass"), LEVEL)

    @classmethod
    def from_bytes(cls, value: bytes) -> Record:
        """Read a record back.

        Raises:
            ResultGoneError: the bytes are no record.
        """
        try:
            stated = json.loads(_unpacked(value).decode("utf-8", "surrogatepass"))
            return cls(**{name: _restored(stated[name]) for name in (field.name for field in fields(cls))})
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            raise ResultGoneError(
                "the stored result is damaged: call the tool again only if repeating it is safe"
            ) from error


def key_of(thread: str, result_id: str) -> str:
    """Return the key of a result: a namespace that belongs to one tenant and thread, and the result's id."""
    digest = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{digest[:32]}/{result_id}"


def _unpacked(value: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(value, MAX_BYTES)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("cut off, or too large")
    return text


def _restored(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
