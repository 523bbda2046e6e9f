"""The folder that the agent may read, and its tools: list and read files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from langchain_ctxwin.errors import ConfigError

MAX_FILES = 3_000
MAX_BYTES = 1_000_000  # of one file
SNIFFED_BYTES = 8_192  # at the beginning of a file, to decide whether it is binary, as git and grep do
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
            for file in root.rglob("*")
            if _is_text(file, root)
        }
        if not any(sizes.values()):
            raise ConfigError(
                f"{path} holds no text files that can be read: give a folder to explore"
            )
        return cls(root=root, sizes=dict(sorted(sizes.items())[:MAX_FILES]))

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file; bytes that are no UTF-8 read as replacement characters."""
        text = (self.root / name).read_bytes().decode("utf-8", "replace")
        return text.replace("\r\n", "\n").removesuffix("\n").split("\n")

    def tools(self) -> list[BaseTool]:
        """Return the tools; what they refuse reaches the model as a tool error."""
        functions: tuple[Any, ...] = (self.list_files, self.read_file)
        return [
            StructuredTool.from_function(
                function, handle_tool_error=True, handle_validation_error=True
            )
            for function in functions
        ]

    def list_files(
        self, order: Literal["path", "size"] = "path", limit: int = 0
    ) -> str:
        """List the files of the folder with their size in bytes.

        Order by path, or by size with the largest first. limit=0 lists all of them.
        """
        files = list(self.sizes)
        if order == "size":
            files.sort(key=lambda file: -self.sizes[file])
        listed = files[:limit] if limit > 0 else files
        lines = [f"{self.sizes[file]} {file}" for file in listed]
        return "\n".join([*lines, f"[{len(listed)} of {len(files)} files]"])

    def read_file(self, path: str, first_line: int = 1, last_line: int = 0) -> str:
        """Read a file, whole or from first_line to last_line (0 is the end); lines are numbered from 1."""
        name = PurePosixPath(path).as_posix()
        if name not in self.sizes:
            raise ToolException(
                f"there is no file {path!r}: list_files shows what there is"
            )
        lines = self.lines(name)
        start = max(1, first_line)
        stop = min(last_line, len(lines)) if last_line > 0 else len(lines)
        numbered_lines = [
            f"{number}: {line}"
            for number, line in enumerate(lines[start - 1 : stop], start)
        ]
        return "\n".join([*numbered_lines, f"[lines {start}-{stop} of {len(lines)}]"])


def _is_text(file: Path, root: Path) -> bool:
    """False also for links, devices, hidden files, names that cannot be quoted, and files that cannot be opened."""
    name = file.relative_to(root).as_posix()
    is_hidden = any(p.startswith(".") or p in LEFT_OUT for p in name.split("/"))
    if is_hidden or file.is_symlink() or not file.is_file():
        return False
    if not name.isprintable() or "`" in name:
        return False
    try:
        with file.open("rb") as opened:
            is_binary = b"\0" in opened.read(SNIFFED_BYTES)
        return not is_binary and file.stat().st_size <= MAX_BYTES
    except OSError:
        return False
