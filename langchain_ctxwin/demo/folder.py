"""The folder that the agent may read: which files, and what is in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from langchain_ctxwin.errors import ConfigError

MAX_FILES, MAX_TOTAL_BYTES = 3_000, 32_000_000
"""A folder with more files or bytes of text is cut off in path order, so that a search stays well under a second."""

MAX_TEXT_BYTES = 8_000_000  # of a file that counts as text; nobody reads a larger one line by line
SNIFFED_BYTES = 8_192  # at the beginning of a file, to decide whether it is binary, as git and grep do

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
        root, files, text_bytes = path.resolve(), list[FileEntry](), 0
        for file in _files(root):
            text_bytes += file.size_bytes if file.is_text else 0
            if files and (len(files) == MAX_FILES or text_bytes > MAX_TOTAL_BYTES):
                break
            files.append(file)
        if not any(file.is_text and file.size_bytes for file in files):
            raise ConfigError(f"{path} holds no text files that can be read: give a folder to explore")
        return cls(root=root, files=tuple(sorted(files, key=lambda file: file.path)))

    @property
    def texts(self) -> tuple[FileEntry, ...]:
        """The files that hold text."""
        return tuple(file for file in self.files if file.is_text)

    def lines(self, path: str) -> list[str]:
        """Return the lines of a file of this folder; bytes that are no UTF-8 read as replacement characters."""
        text = (self.root / path).read_bytes().decode("utf-8", "replace")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        return lines[:-1] if lines[-1] == "" else lines


def _files(root: Path) -> Iterator[FileEntry]:
    for place, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT_FOLDERS)
        found = (_entry(root, Path(place, name)) for name in sorted(names) if not name.startswith("."))
        yield from filter(None, found)


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
