"""What does an answer hold when it is unpacked, and is it small enough to be believed?"""

from __future__ import annotations

import zlib

MAX_BYTES = 32 * 1024 * 1024
"""Largest answer read, unpacked: about ten times the largest public catalog."""

PLAIN = frozenset({"", "identity"})
GZIP = frozenset({"gzip", "x-gzip"})
ACCEPTED = "gzip"

_GZIP_BITS = 16 + zlib.MAX_WBITS  # how zlib is told that there is a gzip header


class BodyError(Exception):
    """An answer that cannot be used; the text says why."""


class Body:
    """Collects an answer piece by piece, and never holds more than `MAX_BYTES` and one piece.

    Raises:
        BodyError: it is packed in another way than was asked for, twice for example.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        packing = encoding.strip().lower()
        if packing not in PLAIN | GZIP:
            raise BodyError("is packed in a way that was not asked for")
        self._packed = zlib.decompressobj(_GZIP_BITS) if packing in GZIP else None
        self._max_bytes = max_bytes
        self._content = bytearray()

    def add(self, piece: bytes) -> None:
        """Take the next piece.

        Raises:
            BodyError: the answer is too large, or is not packed as it says.
        """
        try:
            room = self._max_bytes - len(self._content) + 1
            self._content += self._packed.decompress(piece, room) if self._packed else piece
        except zlib.error:
            raise BodyError("answered something else than the gzip it announced") from None
        if len(self._content) > self._max_bytes:
            raise BodyError(f"answered more than {self._max_bytes:,} bytes")

    def whole(self) -> bytes:
        """Return the answer.

        Raises:
            BodyError: its end is missing.
        """
        if self._packed and self._content and not self._packed.eof:
            raise BodyError("did not finish its answer")
        return bytes(self._content)
