"""JSON files that processes share: whole at any moment, and never a reason to fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import TypeAdapter

from langchain_ctxwin.errors import PATH, expect
from langchain_ctxwin.util.log import log, reason_of


class SharedFile:
    """A JSON file that processes share. Trouble with it is logged, without what it holds, and never raised.

    One that cannot be read, because it is somebody else's, say, is left alone. Of two processes that save in the same
    moment one may miss the other's newest entry, which is saved again with its next one.

    Raises:
        ConfigError: no file can be there.
    """

    def __init__(self, path: str | os.PathLike[str], values: TypeAdapter[Any]) -> None:
        self.path = place(path)
        self._values = values

    def read(self) -> Any:
        """Return the value stored in the file, read in this thread; None when it cannot be read."""
        return self._attempt(self._stored)

    def update(self, change: Callable[[Any], Any]) -> None:
        """Replace the stored value by `change` of it, in this thread."""

        def save() -> None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            value = change(self._stored())
            replace_text(self.path, self._values.dump_json(value, indent=1).decode())

        self._attempt(save)

    def _stored(self) -> Any:
        content = self.path.read_bytes() if self.path.exists() else b""
        return self._values.validate_json(content.strip() or b"{}")

    def _attempt(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (OSError, ValueError) as error:
            log.warning("file.failed", path=str(self.path), error=reason_of(error))
            return None


def place(path: str | os.PathLike[str]) -> Path:
    """Return where a file is, so that a later change of folder does not move it.

    Raises:
        ConfigError: no file can be there.
    """
    return Path(expect(path, PATH, "path", "the path of a file")).expanduser().resolve()


def replace_text(path: Path, text: str) -> None:
    """Write the file; a reader sees the old one, also after an error, or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
