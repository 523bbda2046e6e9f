"""How is a small file kept that several processes share: whole at any moment, and written by one at a time?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from langchain_ctxwin.errors import ConfigError

if sys.platform != "win32":
    import fcntl


def place(path: str | os.PathLike[str]) -> Path:
    """Return the file itself, so that neither a later change of folder nor replacing a link moves it.

    Raises:
        ConfigError: the path names no place.
    """
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigError(f"path={path!r}: {error}: give the path of a file, or None for memory only") from error


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other writers of the file out, so that none loses what another just saved.

    On Windows, and in network folders without locks, nothing keeps them out: of two that save in the same moment one
    may miss the other's newest entry, which is saved again later.

    The lock belongs to the open lock file `<name>.lock` and ends with the process at the latest, so a crash leaves none
    behind. The lock file stays: removing it would let two processes hold different ones.

    Raises:
        OSError: the lock file cannot be opened.
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
    """Write the file; a reader sees the old one or the new one, never a part.

    Raises:
        OSError: the file is as it was.
    """
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Move a faulty file out of the way as `<name>.corrupt`, over an earlier one, and return where it is now.

    Raises:
        OSError: the file is as it was.
    """
    aside = path.with_name(f"{path.name}.corrupt")
    path.replace(aside)
    return aside


def fault_of(error: OSError) -> str:
    """Say what is wrong with a file, without its path, which is logged beside it."""
    return f"{type(error).__name__}: {error.strerror or error}"
