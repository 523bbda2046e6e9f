"""The folder that the demo's agent may read, and its tools: list and read Python files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from langchain_ctxwin.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder and the Python files in it; nothing else can be reached by a name."""

    root: Path
    sizes: dict[str, int]
    """Bytes of each file, by its path from the root with slashes, in path order."""

    @classmethod
    def open(cls, path: Path) -> Folder:
        """List the Python files of a folder.

        Raises:
            ConfigError: there are none.
        """
        sizes = {
            file.relative_to(path).as_posix(): file.stat().st_size
            for file in sorted(path.rglob("*.py"))
        }
        if not any(sizes.values()):
            raise ConfigError(
                f"{path} holds no Python files: give a folder of source code"
            )
        return cls(root=path, sizes=sizes)

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file."""
        return (self.root / name).read_text(encoding="utf-8").rstrip("\n").split("\n")

    def tools(self) -> list[BaseTool]:
        """Return the tools; what they refuse reaches the model as a tool error."""
        functions: tuple[Any, ...] = (self.list_files, self.read_file)
        return [
            StructuredTool.from_function(
                function, handle_tool_error=True, handle_validation_error=True
            )
            for function in functions
        ]

    def list_files(self) -> str:
        """List the files of the folder with their size in bytes."""
        return "\n".join(f"{size} {name}" for name, size in self.sizes.items())

    def read_file(self, path: str, first_line: int = 1, last_line: int = 0) -> str:
        """Read a file, whole or from first_line to last_line (0 is the end); lines are numbered from 1."""
        if path not in self.sizes:
            raise ToolException(
                f"there is no file {path!r}: list_files shows what there is"
            )
        numbered_lines = [
            f"{number}: {line}" for number, line in enumerate(self.lines(path), 1)
        ]
        return "\n".join(
            numbered_lines[max(0, first_line - 1) : max(0, last_line) or None]
        )
