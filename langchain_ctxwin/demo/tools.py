"""The tools of the agent: list, search and read the files of one folder, and nothing outside of it."""

from __future__ import annotations

import re
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from langchain_ctxwin.demo.folder import FileEntry, Folder

LINE_CHARS = 400  # shown of one line of a range; a file may be one endless line
HIT_CHARS = 160  # shown of a line that was found: enough to recognise it
MAX_HITS = 150  # lines that one search shows; they can still be far more than a small window holds
MAX_WHOLE_BYTES = 1_000_000  # of a file that is read whole; anything larger has to be read by lines
MAX_PATTERN_CHARS = 200


class FolderTools:
    """The three tools of one folder; every result ends with a line in brackets that says what it covers."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._entries = {file.path: file for file in folder.files}

    def tools(self) -> list[BaseTool]:
        """Return the tools; what they refuse reaches the model as a tool error."""
        functions: tuple[Any, ...] = (self.list_files, self.search, self.read_file)
        return [
            StructuredTool.from_function(function, handle_tool_error=True, handle_validation_error=True)
            for function in functions
        ]

    def list_files(self, folder: str = ".", order: Literal["path", "size"] = "path", limit: int = 0) -> str:
        """List the files of a folder with their size in bytes.

        Order by path, or by size with the largest first. limit=0 lists all of them.
        """
        found = self._below(folder)
        ordered = sorted(found, key=lambda file: (-file.size_bytes, file.path)) if order == "size" else found
        shown = ordered[:limit] if limit > 0 else ordered
        lines = [f"{file.size_bytes} {file.path}" for file in shown]
        return "\n".join([*lines, f"[{len(shown)} of {len(found)} files]"])

    def search(self, pattern: str, path: str = ".") -> str:
        """Find the lines that match a regular expression, in one file or in all files of a folder."""
        if not 0 < len(pattern) <= MAX_PATTERN_CHARS:
            raise ToolException(f"the pattern has {len(pattern)} characters: give 1 to {MAX_PATTERN_CHARS}")
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise ToolException(f"{pattern!r} is no regular expression: {error}") from error
        shown: list[str] = []
        lines = files = 0
        for file in self._below(path):
            numbered = enumerate(self._lines(file) if file.is_text else [], 1)
            hits = [(number, line) for number, line in numbered if expression.search(line)]
            room = max(0, MAX_HITS - len(shown))
            shown.extend(f"{file.path}:{number}: {_cut(line.strip(), HIT_CHARS)}" for number, line in hits[:room])
            lines += len(hits)
            files += bool(hits)
        return "\n".join([*shown, f"[{lines} lines in {files} files, {len(shown)} shown]"])

    def read_file(self, path: str, first_line: int = 1, last_line: int = 0) -> str:
        """Read a file, whole or from first_line to last_line (0 is the end); lines are numbered from 1."""
        entry = self._entries.get(self._inside(path))
        if entry is None:
            raise ToolException(f"there is no file {path!r}: list_files shows what there is")
        if not entry.is_text:
            raise ToolException(f"{path} is binary or too large to be read as text: choose another file")
        is_whole = first_line <= 1 and last_line <= 0
        if is_whole and entry.size_bytes > MAX_WHOLE_BYTES:
            raise ToolException(f"{path} has {entry.size_bytes} bytes, {MAX_WHOLE_BYTES} are read whole: name lines")
        lines = self._lines(entry)
        start, stop = max(1, first_line), min(last_line, len(lines)) if last_line > 0 else len(lines)
        numbered = enumerate(lines[start - 1 : stop], start)
        shown = (f"{number}: {line if is_whole else _cut(line, LINE_CHARS)}" for number, line in numbered)
        return "\n".join([*shown, f"[lines {start}-{stop} of {len(lines)}]"])

    def _below(self, path: str) -> list[FileEntry]:
        """The file itself, or the files of the folder and its subfolders, in path order."""
        name = self._inside(path)
        below = "" if name == "." else f"{name}/"
        found = [file for file in self._folder.files if file.path == name or file.path.startswith(below)]
        if not found:
            raise ToolException(f"there is nothing at {path!r}: list_files shows what there is")
        return found

    def _inside(self, path: str) -> str:
        """Return the path relative to the folder, links followed; a path that leads out is refused."""
        root = self._folder.root
        try:
            target = (root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolException(f"{path!r} is no path: {error}") from error
        if not target.is_relative_to(root):
            raise ToolException(f"{path!r} leads out of the folder: give a path inside it")
        return target.relative_to(root).as_posix()

    def _lines(self, file: FileEntry) -> list[str]:
        try:
            return self._folder.lines(file.path)
        except OSError as error:
            raise ToolException(f"{file.path} cannot be read: {error.strerror}") from error


def _cut(line: str, chars: int) -> str:
    return line if len(line) <= chars else f"{line[:chars]} [{len(line)} characters]"
