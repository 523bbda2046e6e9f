"""A value that processes share in a JSON file: read and checked by its type, saved in a background thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError, create_model

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.util.background import Worker
from langchain_ctxwin.util.files import SharedFile

VERSION = 1
MAX_WAITING = 64  # changes beside the one that is being saved; those who wait for the end of it count too

T = TypeVar("T")


class StoredValue(Generic[T]):
    """A value under its `key` in a JSON document with a version; without a path it is kept nowhere.

    Pydantic reads and writes it by its `kind`, with the arguments in `writing`; defaults are not written. `what` names
    it in texts. Trouble is logged under names that begin with `events`, and never raised.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        key: str,
        kind: Any,
        empty: T,
        events: str,
        what: str,
        writing: dict[str, Any],
        max_bytes: int | None = None,
    ) -> None:
        self._worker = Worker(f"ctxwin-{what}", max_waiting=MAX_WAITING)
        self._file: SharedFile[T] | None = None
        if path is None:
            return
        fields: Any = {"version": (Literal[1], ...), key: (kind, ...)}
        document: Any = create_model("document", **fields)

        def read(content: bytes) -> tuple[T, str]:
            try:
                return getattr(document.model_validate_json(content), key), ""
            except ValidationError as error:
                where = ".".join(map(str, error.errors()[0]["loc"])) or "not JSON"
            except ConfigError as error:
                where = str(error)
            return empty, f"no {what} of version {VERSION}: {where}"

        def written(value: T) -> str:
            values: Any = {"version": VERSION, key: value}
            return str(document.model_construct(**values).model_dump_json(exclude_defaults=True, **writing))

        self._file = SharedFile(
            path, events=events, version=VERSION, empty=empty, read=read, write=written, max_bytes=max_bytes
        )

    def read(self) -> T | None:
        """Return what the file holds, in this thread; None when it cannot be read."""
        return self._file.read() if self._file else None

    def save(self, change: Callable[[T], T]) -> None:
        """Have a thread replace what the file holds by what `change` makes of it; returns at once."""
        if self._file is None:
            return
        try:
            self._worker.submit(partial(self._file.update, change))
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._file.not_saved(str(error))

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until what was to be saved is, or could not be; false when that takes longer."""
        return self._worker.flush(timeout_seconds)
