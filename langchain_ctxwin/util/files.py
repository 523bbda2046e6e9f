"""JSON files that processes share: whole at any moment, written by one at a time, and never a reason to fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.failures import FailureLog

if sys.platform != "win32":
    import fcntl

NOT_OURS = "a file that holds something else"

T = TypeVar("T")


class SharedFile(Generic[T]):
    """A JSON file that processes share. Trouble with it is logged once and never raised.

    Of a file of ours with a fault what is valid is kept. One of a newer version of this package, and one that is not
    ours, are left alone. A lock file `<name>.lock` beside it stays.
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
    ) -> None:
        self.path = path
        self._events = events
        self._key = key
        self._version = version
        self._empty = empty
        self._read = read
        self._write = write
        self._failures = FailureLog(path=str(path))

    def require_ours(self) -> None:
        """Refuse a file that will never be written, because it belongs to something else.

        Raises:
            ConfigError: it holds something else.
        """
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
        try:
            changed = self._replaced(change)
        except OSError as error:
            self.not_saved(_fault_of(error))
            return None
        except ValueError:
            self.not_saved("a text that is to be saved is no Unicode")
            return None
        self.not_saved("")
        return changed

    def not_saved(self, reason: str) -> None:
        """Log why what is new is not in the file; an empty reason says that it is."""
        self._failures.note(f"{self._events}_not_saved", reason)

    def _replaced(self, change: Callable[[T], T]) -> T:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with alone(self.path):
            stored, fault, is_ours = self._content()
            if not is_ours:
                raise OSError(fault)
            changed = change(stored)
            if fault or changed != stored:
                replace_text(self.path, self._write(changed))
            return changed

    def _content(self) -> tuple[T, str, bool]:
        """What the file holds, what is wrong with it, and whether it is ours to replace."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            content = b""
        if not content.strip():
            return self._empty, "", True
        value, fault = self._read(content)
        others = self._of_others(content) if fault else ""
        return (self._empty, others, False) if others else (value, fault, True)

    def _of_others(self, content: bytes) -> str:
        """Say why a file that cannot be read is not ours to replace; empty when it is ours."""
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            return NOT_OURS
        version = document.get("version") if isinstance(document, dict) else None
        if not isinstance(version, int) or self._key not in document:
            return NOT_OURS
        return f"of version {version}, newer than {self._version}" if version > self._version else ""


def place(path: str | os.PathLike[str]) -> Path:
    """Return where a file is, so that a later change of folder does not move it.

    Raises:
        ConfigError: no file can be there.
    """
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
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
    with path.with_name(f"{path.name}.lock").open("a") as lock:
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
