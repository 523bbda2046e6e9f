"""JSON files that processes share: whole at any moment, written by one at a time, and never a reason to fail."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.background import ForkSafeLock
from langchain_ctxwin.util.failures import FailureLog
from langchain_ctxwin.util.log import log

if sys.platform != "win32":
    import fcntl

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file read: ten times what all public catalogs and a dozen providers take together."""

SMALL_FILE_BYTES = 16 * 1024 * 1024
"""The same for what this package alone fills, a few thousand names: more than it ever writes."""

NOT_OURS = "a file that holds something else"

T = TypeVar("T")


class SharedFile(Generic[T]):
    """A JSON file that processes share. Trouble with it is logged once and never raised.

    A file of ours with a fault is set aside as `<name>.corrupt`, over an earlier one, before it is replaced; one of a
    newer version of this package, one that is not ours, and a link are left alone. A lock file `<name>.lock` beside it
    stays.
    """

    def __init__(
        self,
        path: Path,
        *,
        events: str,  # how the names of log events begin
        key: str,  # under which the document holds the value: by this and its `version` it is known as ours
        version: int,  # what the document states as `version`
        empty: T,
        read: Callable[[bytes], tuple[T, str]],  # what is valid, and what is wrong
        write: Callable[[T], str],  # a `ValueError` means that a text is no Unicode
        max_bytes: int | None = None,
    ) -> None:
        self.path = path
        self._events = events
        self._key = key
        self._version = version
        self._empty = empty
        self._read = read
        self._write = write
        self._max_bytes = max_bytes or MAX_FILE_BYTES
        self._failures = FailureLog(path=str(path))
        self._lock = ForkSafeLock()

    def require_ours(self) -> None:
        """Refuse a file that will never be written, because it belongs to something else.

        Raises:
            ConfigError: it is a link, or holds something else.
        """
        if self.path.is_symlink():
            raise ConfigError(f"{self.path} is a link, which is not followed: give the path of the file itself")
        with suppress(OSError):  # which is logged when it is read
            if self._content()[1] == NOT_OURS:
                raise ConfigError(
                    f"{self.path} is {NOT_OURS}: give another path, or delete the file if nobody needs it"
                )

    def read(self) -> T | None:
        """Return what is valid in the file, in this thread; None when it cannot be read."""
        try:
            value, fault, _ = self._content()
        except OSError as error:
            value, fault = None, _fault_of(error)
        self._failures.note(f"{self._events}_unreadable", fault)
        return value

    def update(self, change: Callable[[T], T]) -> T | None:
        """Replace what the file holds by what `change` makes of it, in this thread; None when it could not be saved."""
        saved, fault = None, ""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock.held, alone(self.path):
                stored, stored_fault, is_others = self._content()
                if is_others:
                    fault = stored_fault
                else:
                    saved = self._replaced(stored, stored_fault, change)
        except OSError as error:
            fault = _fault_of(error)
        except ValueError:
            fault = "a text that is to be saved is no Unicode"
        self.not_saved(fault)
        return saved

    def not_saved(self, reason: str) -> None:
        """Log why what is new is not in the file; an empty reason says that it is."""
        self._failures.note(f"{self._events}_not_saved", reason)

    def _replaced(self, stored: T, fault: str, change: Callable[[T], T]) -> T:
        self._failures.note(f"{self._events}_unreadable", fault)
        changed = change(stored)
        if not fault and changed == stored:
            return changed
        text = self._write(changed)
        if fault:
            aside = self.path.with_name(f"{self.path.name}.corrupt")
            self.path.replace(aside)
            log.info(f"{self._events}_set_aside", path=str(self.path), moved_to=str(aside))
        replace_text(self.path, text)
        return changed

    def _content(self) -> tuple[T, str, bool]:
        """What the file holds, what is wrong with it, and whether it is not ours to replace."""
        if self.path.is_symlink():
            raise OSError("it is a link, which is not followed")
        try:
            content = read_regular(self.path, self._max_bytes, opener=_not_following)
        except FileNotFoundError:
            return self._empty, "", False
        if content is None:
            raise OSError("it is no regular file")
        if len(content) > self._max_bytes:
            return self._empty, f"more than {self._max_bytes:,} bytes", True
        if not content.strip():
            return self._empty, "", False
        value, fault = self._read(content)
        others = self._of_others(content) if fault else ""
        return (self._empty, others, True) if others else (value, fault, False)

    def _of_others(self, content: bytes) -> str:
        """Say why a file that cannot be read is not ours to replace; empty when it is ours."""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            return NOT_OURS
        version = document.get("version") if isinstance(document, dict) else None
        if not isinstance(version, int) or isinstance(version, bool) or self._key not in document:
            return NOT_OURS
        return f"of version {version}, newer than {self._version}" if version > self._version else ""


Opener = Callable[[str, int], int]


def _not_waiting(path: str, flags: int) -> int:
    """Open for `open(opener=...)`, a pipe without waiting for its other end, so that it can be refused."""
    no_wait = getattr(os, "O_NONBLOCK", 0)  # Windows has none
    return os.open(path, flags | no_wait, 0o666)  # what `open` gives a new file, before the process's own mask


def _not_following(path: str, flags: int) -> int:
    """Like `_not_waiting`, where a link in the place of the file is an error."""
    return _not_waiting(path, flags | getattr(os, "O_NOFOLLOW", 0))  # Windows has none


def read_regular(path: Path, max_bytes: int, *, opener: Opener = _not_waiting) -> bytes | None:
    """Return a file's content, of a longer one a byte more than `max_bytes`; None for a pipe or a device.

    Raises:
        OSError: it cannot be read.
        ValueError: its name holds a null character.
    """
    with open(path, "rb", opener=opener) as file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(max_bytes + 1) if is_regular else None


def place(path: str | os.PathLike[str], *, follows_link: bool = True) -> Path:
    """Return where a file is, so that a later change of folder does not move it.

    Links to folders are followed; one in the place of the file only where that is wanted.

    Raises:
        ConfigError: no file can be there.
    """
    try:
        given = Path(path).expanduser()
        itself = Path(os.path.realpath(given))
        return itself if follows_link else Path(os.path.realpath(given.parent), given.name)
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        raise ConfigError(f"path={path!r}: {error}: give the path of a file, or None for memory only") from error


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other writers of the file out, so that none loses what another just saved.

    On Windows, and in network folders without locks, nothing keeps them out: of two that save in the same moment one
    may miss the other's newest entry, which is saved again later.

    The lock belongs to the open lock file `<name>.lock` and ends with the process at the latest, so a crash leaves none
    behind. The lock file stays: removing it would let two processes hold different ones.

    Raises:
        OSError: the lock file cannot be made or locked.
    """
    with open(path.with_name(f"{path.name}.lock"), "a", opener=_not_following) as lock:
        if sys.platform == "win32":
            yield
            return
        with suppress(OSError):  # a folder without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with suppress(OSError):  # said explicitly: a process forked meanwhile holds the same open file
                fcntl.flock(lock, fcntl.LOCK_UN)


def replace_text(path: Path, text: str) -> None:
    """Write the file; a reader sees the old one, also after an error, or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _fault_of(error: OSError) -> str:
    """Say what is wrong with a file, without its path, which is logged beside it."""
    return f"{type(error).__name__}: {error.strerror or error}"
