"""How does a model name the place where it reads on, so that it can neither change nor borrow it?"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from itsdangerous.signer import HMACAlgorithm, Signer

from langchain_ctxwin.errors import ConfigError, CursorExpiredError
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.tool_results.cursor_form import (
    MAX_CHARS,
    NOT_AGAIN,
    check_place,
    parsed,
    tampered,
    written_head,
)

TAG_BYTES = 16
"""128 bits: beyond guessing, and half as long to copy as the whole HMAC-SHA256."""

ARGS_DIGEST_CHARS = 32  # 128 bits in hex: two calls of one tool never share it by chance
TTL_SECONDS = 600.0
SALT = b"langchain_ctxwin.cursor"

_PROCESS_KEY = secrets.token_bytes(32)  # made before any fork, so that the children of one server share it
_first_use = threading.Lock()  # taken by whoever says first that the process key is used, and never given back

_log = structlog.get_logger(__name__)


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
        clock: seconds since the epoch. A cursor from the future, of a worker whose clock runs ahead, counts as new.

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
        if not _is_number(ttl_seconds) or not 0 < ttl_seconds < math.inf:
            raise ConfigError(f"ttl_seconds={ttl_seconds!r:.60}: pass a positive, finite number of seconds")
        self._signer = Signer(
            _checked_keys(keys),
            salt=SALT,
            key_derivation="hmac",
            digest_method=hashlib.sha256,
            algorithm=_ShortTag(hashlib.sha256),
        )
        self._ttl_seconds = ttl_seconds
        self._clock = clock

    @classmethod
    def random(cls, ttl_seconds: float = TTL_SECONDS, clock: Clock = time.time) -> CursorSigner:
        """Sign with this process's random key, which all such signers share; one warning says what that means.

        Processes forked after the package was imported have the same key; others refuse each other's cursors.
        """
        signer = cls(_PROCESS_KEY, ttl_seconds, clock)
        if _first_use.acquire(blocking=False):
            _log.warning(
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
        head = written_head(cursor.result_id, cursor.offset, max(0, math.ceil(self._clock())))
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
            CursorExpiredError: it was, but it is older than its time to live.
            ConfigError: `tool`, `args_digest` or `thread` is no text.
        """
        stated = parsed(text)
        cursor = Cursor(tool, args_digest, thread, stated.result_id, stated.offset)
        _check(cursor)
        if not self._signer.verify_signature(_signed(stated.head, cursor), stated.tag):
            raise tampered(text, "was changed, or belongs to another call, thread or key")
        age_seconds = self._clock() - stated.time_seconds
        if age_seconds > self._ttl_seconds:
            raise CursorExpiredError(
                f"the cursor {text} is {age_seconds:,.0f} seconds old, it was good for {self._ttl_seconds:g}: use the "
                f"newest cursor of this result, or {NOT_AGAIN}"
            )
        return cursor


def args_digest(arguments: Mapping[Any, Any]) -> str:
    """Return 32 hex digits that stand for the arguments of a call, whatever they hold; their order does not matter."""
    text = _canonical(dict(arguments))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:ARGS_DIGEST_CHARS]


def _canonical(arguments: dict[Any, Any]) -> str:
    try:
        return json.dumps(arguments, sort_keys=True, default=str, ensure_ascii=False)
    except Exception:  # noqa: BLE001  # keys of several types, cycles, and objects whose __str__ may raise anything
        return _described(arguments)


def _described(arguments: dict[Any, Any]) -> str:
    try:
        return repr(arguments)
    except Exception as error:  # noqa: BLE001  # see above; the result's id still tells the calls apart
        return f"{len(arguments)} arguments: {type(error).__name__}"


class _ShortTag(HMACAlgorithm):
    """HMAC, cut to `TAG_BYTES`."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        return super().get_signature(key, value)[:TAG_BYTES]


def _signed(head: str, cursor: Cursor) -> bytes:
    """What the tag covers; with the lengths in it, no two different cursors give the same bytes."""
    parts = (part.encode("utf-8", "surrogatepass") for part in (head, cursor.tool, cursor.args_digest, cursor.thread))
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


def _check(cursor: Cursor) -> None:
    for name in ("tool", "args_digest", "thread", "result_id"):
        value = getattr(cursor, name)
        if not isinstance(value, str):
            raise ConfigError(f"{name} of a cursor is {type(value).__name__:.60}: pass text")
    check_place(cursor.result_id, cursor.offset)


def _checked_keys(keys: Any) -> list[bytes]:
    several = [keys] if isinstance(keys, str | bytes) else keys
    if not isinstance(several, Sequence) or isinstance(several, bytearray | memoryview):
        raise ConfigError(f"keys is {type(keys).__name__:.60}: pass a text, bytes, or a list of them, oldest first")
    if not several:
        raise ConfigError("keys is empty: pass at least one secret, or use CursorSigner.random()")
    return [_checked_key(key, place) for place, key in enumerate(several)]


def _checked_key(key: Any, place: int) -> bytes:
    if not isinstance(key, str | bytes):
        raise ConfigError(f"key {place} is {type(key).__name__:.60}: pass a text or bytes")
    if not key.strip():
        raise ConfigError(f"key {place} is empty: pass a secret of 32 random characters or more")
    return key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
