"""The folder that the agent may read, and its tools: list, search and read files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from langchain_ctxwin.errors import ConfigError

MAX_FILES = 3_000
MAX_BYTES = 1_000_000  # of one file, so that a search of all stays well under a second
SNIFFED_BYTES = 8_192  # at the beginning of a file, to decide whether it is binary, as git and grep do
LINE_CHARS = 400  # shown of one line of a range; a file may be one endless line
HIT_CHARS = 160  # shown of a line that was found: enough to recognise it
MAX_HITS = 150  # lines that one search shows; they can still be far more than a small window holds
# folders of generated files; hidden ones may hold secrets
LEFT_OUT = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder and the text files in it that the agent may read; nothing else can be reached by a name."""

    root: Path
    sizes: dict[str, int]
    """Bytes of each file, by its path from the root with slashes, in path order."""

    @classmethod
    def open(cls, path: Path) -> Folder:
        """List the text files of a folder; links, hidden and very large files are left out.

        Raises:
            ConfigError: the path is missing, is no folder, or holds no text.
        """
        if not path.is_dir():
            problem = "is a file" if path.exists() else "does not exist"
            raise ConfigError(f"{path} {problem}: give a folder to explore")
        root = path.resolve()
        sizes = {
            file.relative_to(root).as_posix(): file.stat().st_size
            for file in _text_files(root)
        }
        if not any(sizes.values()):
            raise ConfigError(
                f"{path} holds no text files that can be read: give a folder to explore"
            )
        return cls(root=root, sizes=dict(sorted(sizes.items())[:MAX_FILES]))

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file; bytes that are no UTF-8 read as replacement characters."""
        lines = (
            (self.root / name)
            .read_bytes()
            .decode("utf-8", "replace")
            .replace("\r\n", "\n")
            .split("\n")
        )
        return lines[:-1] if lines[-1] == "" else lines

    def tools(self) -> list[BaseTool]:
        """Return the tools; what they refuse reaches the model as a tool error."""
        functions: tuple[Any, ...] = (self.list_files, self.search, self.read_file)
        return [
            StructuredTool.from_function(
                function, handle_tool_error=True, handle_validation_error=True
            )
            for function in functions
        ]

    def list_files(
        self, folder: str = ".", order: Literal["path", "size"] = "path", limit: int = 0
    ) -> str:
        """List the files of a folder with their size in bytes.

        Order by path, or by size with the largest first. limit=0 lists all of them.
        """
        files = self._below(folder)
        if order == "size":
            files.sort(key=lambda name: -self.sizes[name])
        listed = files[:limit] if limit > 0 else files
        lines = [f"{self.sizes[name]} {name}" for name in listed]
        return "\n".join([*lines, f"[{len(listed)} of {len(files)} files]"])

    def search(self, pattern: str, path: str = ".") -> str:
        """Find the lines that match a regular expression, in one file or in all files of a folder."""
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise ToolException(
                f"{pattern!r} is no regular expression: {error}"
            ) from error
        hits = [
            f"{name}:{number}: {line.strip()[:HIT_CHARS]}"
            for name in self._below(path)
            for number, line in enumerate(self.lines(name), 1)
            if expression.search(line)
        ]
        return "\n".join(
            [*hits[:MAX_HITS], f"[{len(hits)} lines, {min(MAX_HITS, len(hits))} shown]"]
        )

    def read_file(self, path: str, first_line: int = 1, last_line: int = 0) -> str:
        """Read a file, whole or from first_line to last_line (0 is the end); lines are numbered from 1."""
        name = _plain(path)
        if name not in self.sizes:
            raise ToolException(
                f"there is no file {path!r}: list_files shows what there is"
            )
        lines = self.lines(name)
        start, stop = (
            max(1, first_line),
            min(last_line, len(lines)) if last_line > 0 else len(lines),
        )
        numbered_lines = [
            f"{number}: {_cut(line)}"
            for number, line in enumerate(lines[start - 1 : stop], start)
        ]
        return "\n".join([*numbered_lines, f"[lines {start}-{stop} of {len(lines)}]"])

    def _below(self, path: str) -> list[str]:
        """The file itself, or the files of the folder and its subfolders, in path order."""
        name = _plain(path)
        files = [
            file
            for file in self.sizes
            if name in {".", file} or file.startswith(f"{name}/")
        ]
        if not files:
            raise ToolException(
                f"there is nothing at {path!r}: list_files shows what there is"
            )
        return files


def _text_files(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and name not in LEFT_OUT
        ]
        yield from (
            file
            for name in names
            if not name.startswith(".") and _is_text(file := Path(place, name))
        )


def _is_text(file: Path) -> bool:
    """False also for links and devices, names that cannot be quoted, and files that cannot be opened."""
    if (
        file.is_symlink()
        or not file.is_file()
        or not file.name.isprintable()
        or "`" in str(file)
    ):
        return False
    try:
        with file.open("rb") as opened:
            return (
                b"\0" not in opened.read(SNIFFED_BYTES)
                and file.stat().st_size <= MAX_BYTES
            )
    except OSError:
        return False


def _plain(path: str) -> str:
    return PurePosixPath(path).as_posix()


def _cut(line: str) -> str:
    return (
        line
        if len(line) <= LINE_CHARS
        else f"{line[:LINE_CHARS]} [{len(line)} characters]"
    )
