"""Cursors: opaque, signed pointers into kept tool results, and the records that they point into."""

from __future__ import annotations

import hashlib
import json
import math
import re
import secrets
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from typing import Any, NamedTuple

from itsdangerous.encoding import base64_decode, base64_encode
from itsdangerous.signer import HMACAlgorithm, Signer

from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.core.field_paths import compile_fields
from langchain_ctxwin.errors import ConfigError, CursorExpiredError, CursorTamperedError, ResultGoneError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.log import log

TTL_SECONDS = 600.0
CLOCK_SKEW_SECONDS = 300.0  # between workers: the five minutes that Kerberos allows (RFC 4120, "clock skew")
MAX_CHARS = 60  # of a cursor: a model copies it character by character, about one token for two characters
MAX_ID_CHARS = 17  # of an id written as it is; up to 15 leave room for every offset, and for times until the year 4453
ID_CHARS = 12  # of the ids that are made here: 72 random bits, and short enough for `MAX_CHARS`
MAX_OFFSET = 2**64  # room for a position in any result, and for what is asked of it
MAX_BYTES = 1 << 26  # of an unpacked result, far above what an API returns; one that grows beyond is not read

_TAG_BYTES = 16  # 128 bits: beyond guessing, and half as long to copy as the whole HMAC-SHA256
_PACKED_ID_CHARS = 22  # 16 bytes in base64, longer than any id that is written as it is
_QUOTED_CHARS = 60  # of a cursor that is refused: it may be anything, of any length
_NOT_AGAIN = "call the tool again only if repeating it is safe"
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"

_HEX_ID = re.compile(r"[0-9a-f]{32}")
_SHORT_ID = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_ID_CHARS}}}")
_FORM = re.compile(
    rf"({_SHORT_ID.pattern}|[A-Za-z0-9_-]{{{_PACKED_ID_CHARS}}})"  # result id
    r"\.(0|[1-9a-z][0-9a-z]{0,12})"  # offset
    r"\.(0|[1-9a-z][0-9a-z]{0,6})"  # time
    r"\.([A-Za-z0-9_-]{22})"  # tag: 128 bits in base64
)

_PROCESS_KEY = secrets.token_bytes(32)  # made before any fork, so that the children of one server share it
_first_use = threading.Lock()  # taken by whoever says first that the process key is used, and never given back


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in one stored tool result; it is good for this tool, these arguments and this thread only."""

    tool: str
    args_digest: str
    """What `args_digest` says of the call's arguments."""
    thread: str
    result_id: str
    """1 to 17 of the characters A-Z, a-z, 0-9, `_` and `-`, or 32 lower-case hex digits like `uuid4().hex`."""
    offset: int
    """Where to read on, from 0 to below 2**64."""


class CursorSigner:
    """Writes places in stored results as short texts that only a holder of the key can write, and reads them again.

    A cursor is `id.offset.time.tag`, at most 60 characters. Tool, arguments and thread are under the tag without being
    in the text: whoever verifies a cursor has them from the stored result. Anyone can read a cursor's id and offset.

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
        text = signer.sign(Cursor("search", args_digest({"query": "tea"}), "thread-1", "r1", 40))
        cursor = signer.verify(text, tool="search", args_digest=args_digest({"query": "tea"}), thread="thread-1")
        ```

    Raises:
        ConfigError: a key is empty or no text, or `ttl_seconds` is not positive and finite. No key is ever shown.
    """

    def __init__(
        self, keys: str | bytes | Sequence[str | bytes], ttl_seconds: float = TTL_SECONDS, clock: Clock = time.time
    ) -> None:
        is_number = isinstance(ttl_seconds, int | float) and not isinstance(ttl_seconds, bool)
        if not is_number or not 0 < ttl_seconds < math.inf:
            raise ConfigError(f"ttl_seconds={ttl_seconds!r:.60}: pass a positive, finite number of seconds")
        self._signer = Signer(
            _checked_keys(keys),
            salt=b"langchain_ctxwin.cursor",
            key_derivation="hmac",
            digest_method=hashlib.sha256,
            algorithm=_ShortTag(hashlib.sha256),
        )
        self._ttl_seconds = ttl_seconds
        self._clock = clock

    @classmethod
    def random(cls, ttl_seconds: float = TTL_SECONDS, clock: Clock = time.time) -> CursorSigner:
        """Sign with this process's random key, which all such signers share; one event says what that means.

        Processes forked after the package was imported have the same key; others refuse each other's cursors.
        """
        signer = cls(_PROCESS_KEY, ttl_seconds, clock)
        if _first_use.acquire(blocking=False):
            log.info(
                "cursors.process_key",
                effect="cursors end with this process, and other processes refuse them",
                remedy="set cursor_keys or CTXWIN_TOOL_RESULTS_CURSOR_KEYS, or pass a CursorSigner with keys of yours",
            )
        return signer

    @property
    def ttl_seconds(self) -> float:
        """How long a cursor is good for."""
        return self._ttl_seconds

    def __repr__(self) -> str:
        return f"CursorSigner(keys={len(self._signer.secret_keys)}, ttl_seconds={self._ttl_seconds:g})"

    def sign(self, cursor: Cursor) -> str:
        """Write a cursor, as of now.

        Raises:
            ConfigError: a field is of the wrong type or out of range, or the text would be longer than 60 characters.
        """
        _check(cursor)
        head = _written_head(cursor.result_id, cursor.offset, max(0, math.ceil(self._clock())))
        text = f"{head}.{self._signer.get_signature(_signed(head, cursor)).decode()}"
        if len(text) > MAX_CHARS:
            raise ConfigError(
                f"a cursor for result_id={cursor.result_id!r} and offset={cursor.offset} has {len(text)} of at most "
                f"{MAX_CHARS} characters: use a shorter result id; every offset fits with 15 characters"
            )
        return text

    def peek(self, text: str) -> str:
        """Return the result id that a cursor states: a key to look up the stored result with, not to be trusted.

        Raises:
            CursorTamperedError: the text does not have the form of a cursor.
        """
        return parsed(text).result_id

    def verify(self, text: str, *, tool: str, args_digest: str, thread: str) -> Cursor:
        """Read a cursor that was signed for this tool, these arguments and this thread.

        Raises:
            CursorTamperedError: it was not; or the text was changed, or is no cursor at all.
            CursorExpiredError: it was, but it is older than its time to live, or of a time that has not come yet.
            ConfigError: `tool`, `args_digest` or `thread` is no text.
        """
        stated = parsed(text)
        cursor = Cursor(tool, args_digest, thread, stated.result_id, stated.offset)
        _check(cursor)
        if not self._signer.verify_signature(_signed(stated.head, cursor), stated.tag):
            raise _tampered(text, "was changed, or belongs to another call, thread or key")
        age, fault = self._clock() - stated.time_seconds, ""
        if age > self._ttl_seconds:
            fault = f"{age:,.0f} seconds old, it was good for {self._ttl_seconds:g}"
        elif -age > CLOCK_SKEW_SECONDS:
            fault = f"of a time {-age:,.0f} seconds from now, clocks may differ by {CLOCK_SKEW_SECONDS:g}"
        if fault:
            raise CursorExpiredError(
                f"the cursor {text} is {fault}: use the newest cursor of this result, or {_NOT_AGAIN}"
            )
        return cursor


def args_digest(arguments: Mapping[Any, Any]) -> str:
    """Return 32 hex digits that stand for the arguments of a call, whatever they hold; their order does not matter."""
    try:
        text = json.dumps(dict(arguments), sort_keys=True, default=str, ensure_ascii=False)
    except Exception:  # noqa: BLE001  # keys of several types, cycles, and objects whose __str__ may raise anything
        text = _described(arguments)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _described(arguments: Mapping[Any, Any]) -> str:
    try:
        return repr(dict(arguments))
    except Exception as error:  # noqa: BLE001  # see above; the result's id still tells the calls apart
        return f"{len(arguments)} arguments: {type(error).__name__}"


class _ShortTag(HMACAlgorithm):
    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return super().get_signature(key, value)[:_TAG_BYTES]


def _signed(head: str, cursor: Cursor) -> bytes:
    """What the tag covers; with the lengths in it, no two different cursors give the same bytes."""
    parts = (part.encode("utf-8", "surrogatepass") for part in (head, cursor.tool, cursor.args_digest, cursor.thread))
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def _check(cursor: Cursor) -> None:
    for name in ("tool", "args_digest", "thread", "result_id"):
        value = getattr(cursor, name)
        if not isinstance(value, str):
            raise ConfigError(f"{name} of a cursor is {type(value).__name__:.60}: pass text")
    result_id, offset = cursor.result_id, cursor.offset
    if not _SHORT_ID.fullmatch(result_id) and not _HEX_ID.fullmatch(result_id):
        raise ConfigError(
            f"result_id={result_id[:_QUOTED_CHARS]!r:.{_QUOTED_CHARS}} ({len(result_id):,} characters): use 1 to "
            f"{MAX_ID_CHARS} of A-Z, a-z, 0-9, _ and -, or 32 lower-case hex digits"
        )
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < MAX_OFFSET:
        raise ConfigError(f"offset={offset!r:.60}: pass a whole number from 0 to below {MAX_OFFSET:,}")


def _checked_keys(keys: Any) -> list[bytes]:
    several = [keys] if isinstance(keys, str | bytes) else keys
    if not isinstance(several, Sequence) or isinstance(several, bytearray | memoryview):
        raise ConfigError(f"keys is {type(keys).__name__:.60}: pass a text, bytes, or a list of them, oldest first")
    if not several:
        raise ConfigError("keys is empty: pass at least one secret, or use CursorSigner.random()")
    for place, key in enumerate(several):
        if not isinstance(key, str | bytes):
            raise ConfigError(f"key {place} is {type(key).__name__:.60}: pass a text or bytes")
        if not key.strip():
            raise ConfigError(f"key {place} is empty: pass a secret of 32 random characters or more")
    return [key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key for key in several]


class Parsed(NamedTuple):
    """What stands in a cursor's text; true only when the tag is."""

    result_id: str
    offset: int
    time_seconds: int
    head: str  # the text before the tag
    tag: str


def parsed(text: Any) -> Parsed:
    """Take a text apart that is spelled as `CursorSigner.sign` does; any other raises `CursorTamperedError`.

    The length is checked first, so that no text is too long to be refused.
    """
    if not isinstance(text, str):
        raise CursorTamperedError(
            f"a cursor is text, not {type(text).__name__:.60}: copy it from the page before exactly as it stands there"
        )
    match = _FORM.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        raise _tampered(text, f"({len(text):,} characters) has not the form of a cursor")
    result_id, offset, time_seconds, tag = match.groups()
    if len(result_id) == _PACKED_ID_CHARS:
        result_id = base64_decode(result_id).hex()
    place = int(offset, 36), int(time_seconds, 36)
    head = _written_head(result_id, *place)
    # Base64 reads several last characters as the same bytes: without this, a changed text could still verify.
    if f"{head}.{base64_encode(base64_decode(tag)).decode()}" != text:
        raise _tampered(text, "was changed")
    return Parsed(result_id, *place, head, tag)


def _tampered(text: str, what: str) -> CursorTamperedError:
    quoted = f"{text[:_QUOTED_CHARS]!r:.{_QUOTED_CHARS}}"
    return CursorTamperedError(
        f"the cursor {quoted} {what}: copy it from the page before exactly as it stands there, or {_NOT_AGAIN}"
    )


def _written_head(result_id: str, offset: int, time_seconds: int) -> str:
    is_hex = _HEX_ID.fullmatch(result_id)
    packed = base64_encode(bytes.fromhex(result_id)).decode() if is_hex else result_id
    return f"{packed}.{_base36(offset)}.{_base36(time_seconds)}"


def _base36(number: int) -> str:
    digits = ""
    while number >= len(_BASE36):
        number, digit = divmod(number, len(_BASE36))
        digits = _BASE36[digit] + digits
    return _BASE36[number] + digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Which fields of a result are shown, and how long the texts in them are."""

    fields: tuple[str, ...] = ()  # paths of the fields to show; empty: by the rules of the automatic projection
    text_chars: int | None = None  # longest text without `fields`; None: nothing is shortened and nothing left out
    words: tuple[str, ...] = ()  # what makes a sentence worth keeping, as `query_words` spells it
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
    text: str  # the result as it came, see `Content`
    kind: str

    def to_bytes(self) -> bytes:
        """Return the record as compressed JSON; empty when that would be too large to be read back."""
        text = compact_json(asdict(self)).encode("utf-8", "surrogatepass")
        # zlib's fastest level: JSON shrinks to a fifth, and the best level takes six times as long for a seventh.
        return zlib.compress(text, 1) if len(text) < MAX_BYTES else b""

    @classmethod
    def from_bytes(cls, value: bytes) -> ResultRecord:
        """Read a record back, which may have been written by anybody; `ResultGoneError` when the bytes are none."""
        try:
            return _unpacked(value)
        except (zlib.error, ValueError, TypeError, KeyError, RecursionError, ConfigError) as error:
            raise ResultGoneError(
                "the stored result is damaged: call the tool again only if repeating it is safe"
            ) from error


def _unpacked(value: bytes) -> ResultRecord:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(value, MAX_BYTES)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise ValueError("cut off, or too large")
    stated = json.loads(text.decode("utf-8", "surrogatepass"))
    values: dict[str, Any] = {field.name: stated[field.name] for field in fields(ResultRecord)}
    kind, chars, lists = values["kind"], values["text_chars"], (values["fields"], values["words"])
    is_sound = kind in ("text", "json", "blocks") and isinstance(values["extraction"], bool)
    is_sound = is_sound and (chars is None or (type(chars) is int and chars >= 0))
    is_sound = is_sound and all(isinstance(one, list) for one in lists)
    texts = [*(values[name] for name in ("tool", "args_digest", "thread", "text")), *chain.from_iterable(lists)]
    if not is_sound or not all(isinstance(text, str) for text in texts):
        raise TypeError("a field is of another type")
    if values["fields"]:
        compile_fields(values["fields"])
    return ResultRecord(**(values | {"fields": tuple(values["fields"]), "words": tuple(values["words"])}))


def key_of(thread: str, result_id: str) -> str:
    """Return the key of a result: a namespace that belongs to one tenant and thread, and the result's id."""
    return f"{namespace_of_results(thread)}/{result_id}"


def namespace_of_results(thread: str) -> str:
    """Return what the keys of all results of a tenant and thread begin with."""
    return hashlib.sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()[:32]
