"""What does a cursor look like as text, in the one spelling that counts?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from itsdangerous.encoding import base64_decode, base64_encode

from langchain_ctxwin.errors import ConfigError, CursorTamperedError

MAX_CHARS = 60
"""Longest cursor: a model copies it character by character, about one token for two characters."""

MAX_ID_CHARS = 17
"""Longest result id written as it is; up to 15 leave room for every offset, and for times until the year 4453."""

MAX_OFFSET = 2**64
"""Offsets stay below it: room for a position in any result, and for what is asked of it."""

QUOTED_CHARS = 60  # of a cursor that is refused: it may be anything, of any length
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
NOT_AGAIN = "call the tool again only if repeating it is safe"

_HEX_ID = re.compile(r"[0-9a-f]{32}")
_SHORT_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}")
_PACKED_ID_CHARS = 22  # 16 bytes in base64, longer than any id that is written as it is
_FORM = re.compile(
    rf"({_SHORT_ID.pattern}|[A-Za-z0-9_-]{{{_PACKED_ID_CHARS}}})"  # result id
    r"\.(0|[1-9a-z][0-9a-z]{0,12})"  # offset
    r"\.(0|[1-9a-z][0-9a-z]{0,6})"  # time
    r"\.([A-Za-z0-9_-]{22})"  # tag: 128 bits in base64
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What stands in a cursor's text; true only when the tag is."""

    result_id: str
    offset: int
    time_seconds: int
    tag: str

    @property
    def head(self) -> str:
        """The text before the tag."""
        return written_head(self.result_id, self.offset, self.time_seconds)


def parsed(text: Any) -> Parsed:
    """Take a text apart that is spelled as `CursorSigner.sign` does.

    Raises:
        CursorTamperedError: it is not. The length is checked first, so that no text is too long to be refused.
    """
    if not isinstance(text, str):
        raise CursorTamperedError(
            f"a cursor is text, not {type(text).__name__:.60}: copy it from the page before exactly as it stands there"
        )
    match = _FORM.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        raise tampered(text, f"({len(text):,} characters) has not the form of a cursor")
    result_id, offset, time_seconds, tag = match.groups()
    found = Parsed(result_id=_unpacked(result_id), offset=int(offset, 36), time_seconds=int(time_seconds, 36), tag=tag)
    # Base64 reads several last characters as the same bytes: without this, a changed text could still verify.
    if f"{found.head}.{base64_encode(base64_decode(tag)).decode()}" != text:
        raise tampered(text, "was changed")
    return found


def tampered(text: str, what: str) -> CursorTamperedError:
    """Return the error for a text that is refused; it quotes the beginning only."""
    quoted = f"{text[:QUOTED_CHARS]!r:.{QUOTED_CHARS}}"
    return CursorTamperedError(
        f"the cursor {quoted} {what}: copy it from the page before exactly as it stands there, or {NOT_AGAIN}"
    )


def written_head(result_id: str, offset: int, time_seconds: int) -> str:
    """Write everything but the tag."""
    return f"{_packed(result_id)}.{_base36(offset)}.{_base36(time_seconds)}"


def check_place(result_id: str, offset: Any) -> None:
    """Raise `ConfigError` for a result id or an offset that cursors cannot hold."""
    if not _SHORT_ID.fullmatch(result_id) and not _HEX_ID.fullmatch(result_id):
        raise ConfigError(
            f"result_id={result_id[:QUOTED_CHARS]!r:.{QUOTED_CHARS}} ({len(result_id):,} characters): use 1 to "
            f"{MAX_ID_CHARS} of A-Z, a-z, 0-9, _ and -, or 32 lower-case hex digits"
        )
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < MAX_OFFSET:
        raise ConfigError(f"offset={offset!r:.60}: pass a whole number from 0 to below {MAX_OFFSET:,}")


def _packed(result_id: str) -> str:
    return base64_encode(bytes.fromhex(result_id)).decode() if _HEX_ID.fullmatch(result_id) else result_id


def _unpacked(text: str) -> str:
    return base64_decode(text).hex() if len(text) == _PACKED_ID_CHARS else text


def _base36(number: int) -> str:
    digits = ""
    while number >= len(BASE36):
        number, digit = divmod(number, len(BASE36))
        digits = BASE36[digit] + digits
    return BASE36[number] + digits
