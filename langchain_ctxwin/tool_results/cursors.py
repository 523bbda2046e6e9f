"""Cursors: opaque, signed pointers into kept tool results, and the records that they point into."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from itsdangerous import BadSignature, TimestampSigner
from itsdangerous.encoding import base64_decode, bytes_to_int
from itsdangerous.signer import HMACAlgorithm

from langchain_ctxwin.core.provider_blocks import digest
from langchain_ctxwin.errors import (
    ConfigError,
    CursorExpiredError,
    CursorTamperedError,
    ResultGoneError,
    brief,
    expect,
)
from langchain_ctxwin.protocols import Clock

TTL_SECONDS = 600.0
CLOCK_SKEW_SECONDS = 300.0  # between workers: the five minutes that Kerberos allows (RFC 4120, "clock skew")
MAX_CHARS = 60  # of a cursor: a model copies it character by character, about one token for two characters
# of a result's id: with it the largest offset makes a cursor of `MAX_CHARS`
MAX_ID_CHARS = 13
ID_CHARS = 12  # of the ids that are made here: 72 random bits
MAX_OFFSET = 2**64  # room for a position in any result, and for what is asked of it

# 128 bits: beyond guessing, and half as long to copy as the whole HMAC-SHA256
_TAG_BYTES = 16
_NOT_AGAIN = "call the tool again only if repeating it is safe"

# id and offset
_PLACE = re.compile(rf"([A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}})\.([0-9a-f]{{1,16}})")
# 16 bytes take 22 characters of base64, of which the last holds two bits: with other last characters than these four,
# the same bytes could be spelled in sixteen ways. All that stands before the tag is signed as it is spelled.
# A time of today takes six characters, one near the epoch, as clocks of tests have it, fewer.
_TIME = r"((?:[A-Za-z0-9_-]{4})?(?:[A-Za-z0-9_-]{2,3})?)"
_FORM = re.compile(rf"{_PLACE.pattern}\.{_TIME}\.[A-Za-z0-9_-]{{21}}[AQgw]")

# made before any fork, so that the children of one server share it
PROCESS_KEY = secrets.token_bytes(32)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in one stored tool result; it is good for this tool, these arguments and this thread only."""

    tool: str
    args_digest: str
    """What `args_digest` says of the call's arguments."""
    thread: str
    result_id: str
    """1 to 13 of the characters A-Z, a-z, 0-9, `_` and `-`."""
    offset: int
    """Where to read on, from 0 to below 2**64."""


class CursorSigner:
    """Writes places in stored results as short texts that only a holder of the key can write, and reads them again.

    A cursor is `id.offset.time.tag`, at most 60 characters. Tool, arguments and thread are under the tag without being
    in the text: who verifies a cursor has them from the stored result. Anyone can read a cursor's id and offset.

    Key init args:
        keys: a secret, or several, oldest first: the last one signs, all of them verify.
        ttl_seconds: how long a cursor is good for; it may end up to a second later, never earlier.
        clock: seconds since the epoch. A cursor of a worker whose clock runs up to five minutes ahead counts as new.

    Instantiate:
        ```python
        signer = CursorSigner([old_secret, new_secret])
        ```

    Use:
        ```python
        text = signer.sign(
            Cursor("search", args_digest({"query": "tea"}), "thread-1", "r1", 40)
        )
        cursor = signer.verify(
            text,
            tool="search",
            args_digest=args_digest({"query": "tea"}),
            thread="thread-1",
        )
        ```

    Raises:
        ConfigError: a key is empty or no text, or `ttl_seconds` is not positive and finite. No key is ever shown.
    """

    def __init__(
        self,
        keys: str | bytes | Sequence[str | bytes],
        ttl_seconds: float = TTL_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        wanted = "a number of seconds"
        if not 0 < expect(ttl_seconds, int | float, "ttl_seconds", wanted) < math.inf:
            raise ConfigError(
                f"ttl_seconds={ttl_seconds}: pass a positive, finite number of seconds"
            )
        self._keys = _checked_keys(keys)
        self._ttl_seconds = ttl_seconds
        self._clock = clock

    def sign(self, cursor: Cursor) -> str:
        """Write a cursor, as of now.

        Raises:
            ConfigError: the result's id or the offset is out of range.
        """
        place = f"{cursor.result_id}.{cursor.offset:x}"
        if not _PLACE.fullmatch(place):
            raise ConfigError(
                f"result_id={brief(cursor.result_id)}, offset={brief(cursor.offset)}: use an id of 1 to {MAX_ID_CHARS} "
                f"of A-Z, a-z, 0-9, _ and -, and an offset from 0 to below {MAX_OFFSET:,}"
            )
        return (
            self._signer_of(cursor.tool, cursor.args_digest, cursor.thread)
            .sign(place)
            .decode()
        )

    def peek(self, text: str) -> str:
        """Return the result id that a cursor states: a key to look up the stored result with, not to be trusted.

        Raises:
            CursorTamperedError: the text does not have the form of a cursor.
        """
        return parsed(text)[0]

    def verify(self, text: str, *, tool: str, args_digest: str, thread: str) -> Cursor:
        """Read a cursor that was signed for this tool, these arguments and this thread.

        Raises:
            CursorTamperedError: it was not; or the text was changed, or is no cursor at all.
            CursorExpiredError: it was, but it is older than its time to live, or of a time that has not come yet.
        """
        result_id, offset, time_seconds = parsed(text)
        try:
            self._signer_of(tool, args_digest, thread).unsign(text)
        except BadSignature:
            raise _tampered(
                text, "was changed, or belongs to another call, thread or key"
            ) from None
        age = self._clock() - time_seconds
        if not -CLOCK_SKEW_SECONDS <= age <= self._ttl_seconds:
            raise CursorExpiredError(
                f"the cursor {text} is {age:,.0f} seconds old, it was good for {self._ttl_seconds:g}: use the newest "
                f"cursor of this result, or {_NOT_AGAIN}"
            )
        return Cursor(tool, args_digest, thread, result_id, offset)

    def _signer_of(self, tool: str, args_digest: str, thread: str) -> _CallSigner:
        call = json.dumps([tool, args_digest, thread]).encode()
        return _CallSigner(self._keys, call, self._clock)


class _CallSigner(TimestampSigner):
    """Signs places in the result of one call, with a key that is derived for it."""

    def __init__(self, keys: list[bytes], call: bytes, clock: Clock) -> None:
        super().__init__(
            keys,
            salt=b"langchain_ctxwin.cursor" + call,
            key_derivation="hmac",
            digest_method=hashlib.sha256,
            algorithm=_ShortTag(hashlib.sha256),
        )
        self._clock = clock

    def get_timestamp(self) -> int:
        """Return the time in whole seconds, rounded up: no cursor ends too early."""
        return math.ceil(self._clock())


class _ShortTag(HMACAlgorithm):
    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return super().get_signature(key, value)[:_TAG_BYTES]


def _checked_keys(keys: Any) -> list[bytes]:
    several = [keys] if isinstance(keys, str | bytes) else keys
    is_list = isinstance(several, list | tuple) and len(several) > 0
    if not is_list or not all(
        isinstance(key, str | bytes) and key.strip() for key in several
    ):
        raise ConfigError(  # which never shows what may be a key
            f"keys is {type(keys).__name__}: pass a secret of 32 random characters or more, or a list of them, oldest "
            "first, none of them empty"
        )
    return [key.encode() if isinstance(key, str) else key for key in several]


def parsed(text: Any) -> tuple[str, int, int]:
    """Return result id, offset and time of a text that is spelled as `sign` does; they are true only when the tag is.

    Any other raises `CursorTamperedError`. The length is checked first, so that no text is too long to be refused.
    """
    form = (
        _FORM.fullmatch(text)
        if isinstance(text, str) and len(text) <= MAX_CHARS
        else None
    )
    if form is None:
        raise _tampered(text, "has not the form of a cursor")
    result_id, offset, time_64 = form.groups()
    return result_id, int(offset, 16), bytes_to_int(base64_decode(time_64))


def _tampered(text: Any, what: str) -> CursorTamperedError:
    quoted = brief(text[:MAX_CHARS] if isinstance(text, str | bytes) else type(text))
    return CursorTamperedError(
        f"the cursor {quoted} {what}: copy it from the page before exactly as it stands there, or {_NOT_AGAIN}"
    )


def args_digest(arguments: Mapping[Any, Any]) -> str:
    """Return 32 hex digits that stand for the arguments of a call; their order does not matter."""
    text = json.dumps(dict(arguments), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Which fields of a result are shown, and how long the texts in them are."""

    # paths of the fields to show; empty: by the rules of the automatic projection
    fields: tuple[str, ...] = ()
    text_chars: int | None = (
        None  # longest text without `fields`; None: nothing is shortened and nothing left out
    )
    # what makes a sentence worth keeping, as `query_words` spells it
    words: tuple[str, ...] = ()
    extraction: bool = True  # shorten to sentences, otherwise to the beginning

    @property
    def shows_everything(self) -> bool:
        """True when nothing is left out; otherwise at least empty fields."""
        return self.text_chars is None and not self.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord(Style):
    """One large result and the style of its pages; `thread` is the tenant and thread that it belongs to."""

    tool: str
    args_digest: str
    thread: str
    text: str  # the result as it came, see `showing.content_text`

    def to_bytes(self) -> bytes:
        """Return the record as compressed JSON."""
        text = json.dumps(asdict(self)).encode()
        # zlib's fastest level: JSON shrinks to a fifth, and the best level takes six times as long for a seventh.
        return zlib.compress(text, 1)

    @classmethod
    def from_bytes(cls, value: bytes) -> ResultRecord:
        """Read a record back; bytes that are none raise a `ResultGoneError`."""
        try:
            values = json.loads(zlib.decompress(value))
            lists = {name: tuple(values[name]) for name in ("fields", "words")}
            return cls(**{**values, **lists})
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            damaged = f"the stored result is damaged: {_NOT_AGAIN}"
            raise ResultGoneError(damaged) from error


def key_of(thread: str, result_id: str) -> str:
    """Return the key of a result: a namespace that belongs to one tenant and thread, and the result's id."""
    return f"{namespace_of_results(thread)}/{result_id}"


def namespace_of_results(thread: str) -> str:
    """Return what the keys of all results of a tenant and thread begin with."""
    return digest(thread)
