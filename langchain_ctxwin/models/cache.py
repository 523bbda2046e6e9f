"""What did slow sources state the last time any process asked them? One JSON file that survives restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Any

from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.files import alone, fault_of, replace_text, set_aside
from langchain_ctxwin.models.sound import is_sound
from langchain_ctxwin.models.troubles import Troubles
from langchain_ctxwin.util.fork import renew_after_fork

FILE_VERSION = 1

MAX_SNAPSHOTS = 64
"""Snapshots kept in the file, those of other programs included; the oldest leave."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file read: ten times what all public catalogs and a dozen providers take together."""

_EMPTY: tuple[object, ...] = (frozenset(), ())
_FIELDS = tuple(f.name for f in fields(ModelInfo) if f.name not in {"provenance", "conflicts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that one source stated at one time."""

    models: tuple[ModelInfo, ...]
    fetched_at: float
    """Seconds since the epoch."""


Snapshots = Mapping[str, Snapshot]
"""Identity of a source -> its latest snapshot."""


class _NewerFileError(Exception):
    """A later version of this package wrote the file; it is not ours to read or replace."""


class _CorruptFileError(Exception):
    """The file holds something else than snapshots."""


class SnapshotCache:
    """Keeps snapshots in a file that processes may share. Trouble with it is logged once and never raised.

    A corrupt file is moved to `<name>.corrupt` and started anew; one of a newer version is left alone, and nothing is
    saved; where nothing can be written, everything goes on without.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._troubles = Troubles(path=str(path))
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Make the lock anew; a thread of the parent process may have held it."""
        self._lock = threading.Lock()

    def load(self) -> Snapshots:
        """Return what the file holds; nothing when it is missing or unusable. Reads the file in this thread."""
        try:
            snapshots = _read(self._path)
        except _CorruptFileError as error:
            self._troubles.tell("models.cache_corrupt", str(error))
        except _NewerFileError as error:
            self._troubles.tell("models.cache_newer", str(error))
        except OSError as error:
            self._troubles.tell("models.cache_unreadable", fault_of(error))
        else:
            return snapshots
        return {}

    def save(self, snapshots: Snapshots) -> None:
        """Put these, just fetched, into the file beside those of other sources. Writes in this thread."""
        with self._lock:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with alone(self._path):
                    self._save(snapshots)
            except _NewerFileError as error:
                self._troubles.tell("models.cache_newer", str(error))
            except OSError as error:
                self._troubles.tell("models.cache_not_saved", fault_of(error))
            else:
                self._troubles.tell("models.cache_not_saved", "")

    def _save(self, snapshots: Snapshots) -> None:
        try:
            stored = _read(self._path)
        except _CorruptFileError as error:
            self._troubles.tell("models.cache_corrupt", str(error))
            set_aside(self._path)
            stored = {}
        both = newest({**stored, **snapshots})
        if both != stored:
            replace_text(self._path, json.dumps(_document(both), separators=(",", ":")))


def newest(snapshots: Snapshots) -> dict[str, Snapshot]:
    """Return at most `MAX_SNAPSHOTS` of them, the latest."""
    kept = sorted(snapshots, key=lambda identity: snapshots[identity].fetched_at)[-MAX_SNAPSHOTS:]
    return {identity: snapshots[identity] for identity in kept}


def _document(snapshots: Snapshots) -> dict[str, Any]:
    entries = {
        identity: {"fetched_at": snapshot.fetched_at, "models": [_written(info) for info in snapshot.models]}
        for identity, snapshot in snapshots.items()
    }
    return {"version": FILE_VERSION, "snapshots": entries}


def _read(path: Path) -> dict[str, Snapshot]:
    try:
        document = json.loads(_content(path))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise _CorruptFileError(f"not JSON: {type(error).__name__}") from error
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > FILE_VERSION:
        raise _NewerFileError(f"version {version}, this package writes version {FILE_VERSION}")
    try:
        if version != FILE_VERSION:
            raise _CorruptFileError(f"not snapshots of version {FILE_VERSION}")
        return {identity: _snapshot(entry) for identity, entry in document["snapshots"].items()}
    except (AttributeError, KeyError, TypeError, ValueError, DecimalException, ConfigError) as error:
        raise _CorruptFileError(f"an entry is no snapshot: {type(error).__name__}") from error


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError("it is no regular file")  # reading a pipe would wait for ever
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _CorruptFileError(f"more than {MAX_FILE_BYTES:,} bytes")
    return content


def _snapshot(entry: Any) -> Snapshot:
    return Snapshot(models=tuple(map(_info, entry["models"])), fetched_at=float(entry["fetched_at"]))


def _written(info: ModelInfo) -> dict[str, Any]:
    stated = ((name, getattr(info, name)) for name in _FIELDS)
    return {name: _json(value) for name, value in stated if value is not None and value not in _EMPTY}


def _json(value: Any) -> Any:
    if isinstance(value, Decimal | date):
        return str(value)
    return sorted(value) if isinstance(value, frozenset) else value


def _info(written: Mapping[str, Any]) -> ModelInfo:
    stated = {name: written[name] for name in _FIELDS if name in written}
    for name in PRICE_FIELDS:
        if name in stated:
            stated[name] = Decimal(stated[name])
    if "retires_on" in stated:
        stated["retires_on"] = date.fromisoformat(stated["retires_on"])
    stated["capabilities"] = frozenset(map(_text, stated.get("capabilities", ())))
    stated["aliases"] = tuple(map(_text, stated.get("aliases", ())))
    info = ModelInfo(**stated)
    if not is_sound(info):
        raise TypeError(f"{info.name!r} holds a value of another kind")
    return info


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
