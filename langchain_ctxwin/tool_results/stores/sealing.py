"""Is what a shared store returns what was put there, under this key?"""

from __future__ import annotations

import hashlib

import structlog

SEAL_BYTES = 16  # 128 bits: damage never passes by chance

_log = structlog.get_logger(__name__)


def key_bytes(key: str) -> bytes:
    """Return a key as bytes; scopes may hold lone surrogates, which cannot be encoded strictly."""
    return key.encode("utf-8", "surrogatepass")


def sealed(key: str, value: bytes) -> bytes:
    """Put a digest of key and value before the value. It tells damage and mix-ups, not forgery."""
    return _seal(key, value) + value


def unsealed(key: str, data: bytes | None) -> bytes | None:
    """Return the value inside, or None with a warning: damaged, put under another key, or not by us."""
    if data is None:
        return None
    value = data[SEAL_BYTES:]
    if data[:SEAL_BYTES] != _seal(key, value):
        report_damaged(key, f"{len(data):,} bytes do not match their digest")
        return None
    return value


def report_damaged(key: str, reason: str) -> None:
    """Warn that what is kept under a key is none of our results."""
    _log.warning("results.damaged", key=key, reason=reason)


def _seal(key: str, value: bytes) -> bytes:
    place = hashlib.sha256(key_bytes(key)).digest()  # of a fixed length: no other key and value give the same bytes
    digest = hashlib.blake2b(place, digest_size=SEAL_BYTES)
    digest.update(value)
    return digest.digest()
