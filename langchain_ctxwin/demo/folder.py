"""Which files may the agent see, and what is in them?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from langchain_ctxwin.errors import ConfigError

MAX_FILES = 3_000
"""Files that are looked at; a folder with more is cut off in path order, so that a search stays well under a second."""

MAX_TOTAL_BYTES = 32_000_000
"""Bytes of all files together, for the same reason."""

MAX_TEXT_BYTES = 8_000_000
"""Largest file that counts as text; nobody reads a larger one line by line."""

SNIFFED_BYTES = 8_192
"""Bytes at the beginning of a file that decide whether it is binary, as git and grep do."""

LEFT_OUT_FOLDERS = frozenset({"__pycache__", "node_modules"})
"""Folders of generated or foreign files; hidden files and folders are left out too, they may hold secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One regular file of the folder."""

    path: str
    """Relative to the folder, with slashes."""

    size_bytes: int
    is_text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder and the files in it that the agent may read, in path order; nothing outside can be reached."""

    root: Path
    files: tuple[FileEntry, ...]
    is_cut_off: bool
    """True when the folder holds more files than are looked at."""

    @classmethod
    def open(cls, path: Path) -> Folder:
        """List the files of a folder.

        Symbolic links, hidden files and files that cannot be opened are left out.

        Raises:
            ConfigError: the path is missing, is no folder, or holds no text.
        """
        if not path.is_dir():
            problem = "is a file" if path.exists() else "does not exist"
            raise ConfigError(f"{path} {problem}: give a folder to explore")
        root = path.resolve()
        files, is_cut_off = _bounded(_files(root))
        folder = cls(root=root, files=tuple(sorted(files, key=lambda file: file.path)), is_cut_off=is_cut_off)
        if not any(file.is_text and file.size_bytes for file in files):
            raise ConfigError(f"{path} holds no text files that can be read: give a folder to explore")
        return folder

    @property
    def texts(self) -> tuple[FileEntry, ...]:
        """The files that hold text."""
        return tuple(file for file in self.files if file.is_text)

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.size_bytes for file in self.files)

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file of this folder; bytes that are no UTF-8 read as replacement characters."""
        text = (self.root / path).read_bytes().decode("utf-8", "replace")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        return lines[:-1] if lines[-1] == "" else lines


def _files(root: Path) -> Iterator[FileEntry]:
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT_FOLDERS)
        for name in sorted(names):
            entry = None if name.startswith(".") else _entry(root, Path(place, name))
            if entry is not None:
                yield entry


def _entry(root: Path, path: Path) -> FileEntry | None:
    """Describe one file; None for links, devices, names that cannot be printed, and files that cannot be opened."""
    relative = path.relative_to(root).as_posix()
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not relative.isprintable() or "`" in relative:
            return None
        with path.open("rb") as file:
            is_binary = b"\0" in file.read(SNIFFED_BYTES)
    except OSError:
        return None
    is_text = not is_binary and status.st_size <= MAX_TEXT_BYTES
    return FileEntry(path=relative, size_bytes=status.st_size, is_text=is_text)


def _bounded(files: Iterator[FileEntry]) -> tuple[list[FileEntry], bool]:
    """Take files while they stay within the bounds; the first one is always taken."""
    taken: list[FileEntry] = []
    total_bytes = 0
    for file in files:
        total_bytes += file.size_bytes if file.is_text else 0
        if taken and (len(taken) == MAX_FILES or total_bytes > MAX_TOTAL_BYTES):
            return taken, True
        taken.append(file)
    return taken, False
