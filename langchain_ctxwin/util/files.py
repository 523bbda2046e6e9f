"""JSON files that processes share: whole at any moment, written by one at a time, and never a reason to fail."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.log import FailureLog

if sys.platform != "win32":
    import fcntl

NOT_OURS = "a file that holds something else"

T = TypeVar("T")


class SharedFile(Generic[T]):
    """A JSON file `{"version": ..., key: {...}}` that processes share. Trouble with it is logged once and never raised.

    That of another version of this package is left alone. A lock file `<name>.lock` beside it stays.

    Raises:
        ConfigError: the file belongs to something else, or no file can be there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        events: str,
        key: str,
        version: int,
        values: TypeAdapter[Any],
    ) -> None:
        self.path = place(path)
        self._events = events  # how the names of log events begin
        self._key = key
        self._version = version
        self._values = values
        self._failures = FailureLog(path=str(self.path))
        with suppress(OSError):  # which is logged when it is read
            try:
                self._stored()
            except ValueError as error:
                if str(error) == NOT_OURS:
                    raise ConfigError(
                        f"{self.path} is {NOT_OURS}: give another path, or delete the file if nobody needs it"
                    ) from error

    def read(self) -> T | None:
        """Return the value stored in the file, read in this thread; None when it cannot be read."""
        value, fault = None, ""
        try:
            value = self._stored()
        except (OSError, ValueError) as error:
            fault = _fault_of(error)
        self._failures.note(f"{self._events}_unreadable", fault)
        return value

    def update(self, change: Callable[[T], T]) -> T | None:
        """Replace the stored value by `change` of it, in this thread; None when it could not be saved."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with alone(self.path):
                stored = self._stored()
                changed = change(stored)
                if changed != stored:
                    document = {
                        "version": self._version,
                        self._key: self._values.dump_python(changed),
                    }
                    replace_text(self.path, json.dumps(document, indent=1))
        except (OSError, ValueError) as error:
            self.not_saved(_fault_of(error))
            return None
        self.not_saved("")
        return changed

    def not_saved(self, reason: str) -> None:
        """Log why what is new is not in the file; an empty reason says that it is."""
        self._failures.note(f"{self._events}_not_saved", reason)

    def _stored(self) -> T:
        """The value stored in the file; `ValueError` where the file is not ours to read or replace."""
        content = self.path.read_bytes() if self.path.exists() else b""
        empty: T = self._values.validate_python({})
        if not content.strip():
            return empty
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        if (
            not isinstance(document, dict)
            or not {"version", self._key} <= document.keys()
        ):
            raise ValueError(NOT_OURS)
        if document["version"] != self._version:
            raise ValueError(
                f"a file of version {document['version']!r:.20}, not {self._version}"
            )
        value: T = self._values.validate_python(document[self._key])
        return value


def place(path: str | os.PathLike[str]) -> Path:
    """Return where a file is, so that a later change of folder does not move it.

    Raises:
        ConfigError: no file can be there.
    """
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        raise ConfigError(
            f"path={path!r}: {error}: give the path of a file, or None for memory only"
        ) from error


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
            # said explicitly: a process forked meanwhile holds the same open file
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)


def replace_text(path: Path, text: str) -> None:
    """Write the file; a reader sees the old one, also after an error, or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _fault_of(error: OSError | ValueError) -> str:
    """The fault of a file, without its path, which is logged beside it, and without its content."""
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or error}"
    is_own = type(error) is ValueError
    return (
        str(error)
        if is_own
        else "what it holds, or is to hold, is not as this package writes it"
    )
