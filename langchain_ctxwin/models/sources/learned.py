"""Limits that providers were heard to state, in any conversation and any process."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources.reading import MAX_NAME_CHARS, MAX_TOKENS
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.background import Worker
from langchain_ctxwin.util.files import SMALL_FILE_BYTES, SharedFile, place
from langchain_ctxwin.util.forks import renew_after_fork

SOURCE_NAME = "learned"
LIMIT_FIELDS = ("context_window", "max_input_tokens")
FILE_VERSION: Final = 1

LEARNED_TTL_SECONDS = 30 * 24 * 3600.0
"""A month. A limit that is obeyed is never heard again, so only expiry finds out that it was raised; finding out that
it was not costs one refused request, which recovers."""

MAX_MODELS = 1000
"""Models remembered: a deployment talks to dozens; this bounds gateways that make up a name per tenant."""

FLUSH_SECONDS = 5.0
"""How long `flush` waits unless told: a few kilobytes take milliseconds, on a network folder perhaps a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One limit as it was heard."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    heard_at: float
    """Seconds since the epoch."""

    is_withdrawn: bool = False
    """True once an accepted request refuted the limit: it counts no more, and stays to overrule older files."""


LimitField = Literal["context_window", "max_input_tokens"]

Heard = Mapping[str, Mapping[str, Statement]]
"""Model name -> limit field -> the newest statement about it."""


class LearnedSource:
    """Remembers what providers stated about their limits, for every conversation and, with a path, every process.

    Per field the latest statement wins, be it smaller or larger. What is learned only ever lowers a configured limit,
    so a stale small one wastes window: whoever hears a larger one, because the server was restarted with more room,
    corrects it for new conversations; one that heard the small limit itself keeps it in its state. A request that the
    provider accepts although it is larger withdraws the limit (`accepted`). Requests that obey the small one are never
    refused, so neither may happen; therefore each statement also expires. Where servers with
    different windows share a name, the smallest wins by itself: once it was heard, no request is large enough for the
    others to refuse.

    With a path, statements are kept in a JSON file that processes may share: read when the source is made and by
    `refresh`, and written in a background thread after `learn`, merged with what others saved meanwhile. Call `flush`
    before the program ends. Trouble with the file is logged and never raised; a file with a fault is set aside as
    `<name>.corrupt` (one such file, the latest) before it is replaced. A lock file `<name>.lock` beside it stays.

    Raises:
        ConfigError: the path names no place, or `ttl_seconds` is not positive.

    Examples:
        >>> source = LearnedSource()
        >>> source.learn("small", {"context_window": 8192})
        >>> source.recall("small")
        {'context_window': 8192}
    """

    name = SOURCE_NAME
    tier = "learned"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        ttl_seconds: float = LEARNED_TTL_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        if not ttl_seconds > 0:
            raise ConfigError(f"ttl_seconds={ttl_seconds!r}: give a positive number of seconds")
        self._file = None if path is None else limits_file(place(path))
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._heard: Heard = {}  # replaced as a whole, never changed, so that reading it needs no lock
        self._worker = Worker("ctxwin-learned")
        self.renew()
        renew_after_fork(self)
        self.refresh()

    def renew(self) -> None:
        """Make the lock anew; in a forked process nobody gives back what a thread of the parent held."""
        self._lock = threading.RLock()

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember what a provider just stated; returns at once, also on an event loop.

        An unnamed model (empty name) is not remembered: its limit would apply to every other unnamed model. Nor is one
        whose name has more than `MAX_NAME_CHARS` characters: such names are made, one for each request.

        Raises:
            ConfigError: a field is no limit or a value no plausible number of tokens; nothing was remembered.
        """
        for field, tokens in limits.items():
            _require_limit(model, field, tokens)
        if not 0 < len(model) <= MAX_NAME_CHARS or not limits:
            return
        with self._lock:
            known = self._live({model: self._heard.get(model, {})}).get(model, {})
            stated = {field: self._statement(tokens, known.get(field)) for field, tokens in limits.items()}
            self._heard = _newest_models({**self._heard, model: {**known, **stated}})
            self._save_soon()

    def accepted(self, model: str, tokens: int) -> None:
        """Withdraw the limits below an input that the model took, here and in the file; returns at once.

        A withdrawn limit is kept as such for as long as it would have counted: other processes may have saved it.
        """
        with self._lock:
            known, heard = self.recall(model), self._heard.get(model, {})
            refuted = known.keys() - unrefuted(known, tokens).keys()
            withdrawn = {
                field: replace(self._statement(heard[field].tokens, heard[field]), is_withdrawn=True)
                for field in refuted
            }
            if not withdrawn:
                return
            self._heard = {**self._heard, model: {**heard, **withdrawn}}
            self._save_soon()

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits that were heard and have not expired, by field name; empty when there are none."""
        known = self._heard.get(model)
        live = self._live({model: known}).get(model, {}) if known else {}
        return {field: heard.tokens for field, heard in live.items() if not heard.is_withdrawn}

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return what is known about one model, or about all of them by name; reads no file.

        Of a window and a larger input limit, heard at different times, only the window is stated.
        """
        names = sorted(self._heard) if name is None else [name]
        return [_info(model, limits) for model in names if (limits := self.recall(model))]

    def refresh(self) -> None:
        """Take over what other processes saved. Reads the file: in async code call it in a thread.

        Nothing that is in memory is forgotten; to start over, delete the file and make a new source.
        """
        stored = self._file.read() if self._file else None
        if stored is not None:
            self._absorb(stored)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was learned is saved, or could not be; false when that takes longer. Blocks its thread."""
        return self._worker.flush(timeout_seconds)

    def _statement(self, tokens: int, previous: Statement | None) -> Statement:
        """A statement newer than the one it replaces, even if the clock stood still or was set back."""
        earliest = -math.inf if previous is None else math.nextafter(previous.heard_at, math.inf)
        return Statement(tokens=tokens, heard_at=max(self._clock(), earliest))

    def _absorb(self, heard: Heard) -> Heard:
        with self._lock:
            self._heard = _newest_models(merged(self._live(self._heard), self._live(heard)))
            return self._heard

    def _live(self, heard: Heard) -> Heard:
        """What has not expired; a statement from as far ahead is the mistake of a clock that was wrong."""
        now, ttl = self._clock(), self._ttl_seconds
        live = {
            model: {field: said for field, said in known.items() if now - ttl < said.heard_at < now + ttl}
            for model, known in heard.items()
        }
        return {model: known for model, known in live.items() if known}

    def _save_soon(self) -> None:
        """Save in another thread, because files must not be touched on an event loop; one that waits saves this too."""
        if self._file is None:
            return
        try:
            self._worker.submit(partial(self._file.update, self._absorb))
        except RuntimeError as error:  # the process may have no more threads, or is about to end
            self._file.not_saved(str(error))


def _newest_models(heard: Heard) -> Heard:
    """At most `MAX_MODELS` of them: those about which nothing was heard for longest leave."""
    if len(heard) <= MAX_MODELS:
        return heard
    latest = {model: max(statement.heard_at for statement in known.values()) for model, known in heard.items()}
    newest = sorted(heard, key=lambda model: (latest[model], model))[-MAX_MODELS:]
    return {model: heard[model] for model in newest}


def _info(model: str, limits: Mapping[str, int]) -> ModelInfo:
    known = dict(limits)
    if known.get("max_input_tokens", 0) > known.get("context_window", math.inf):
        del known["max_input_tokens"]
    return ModelInfo(
        name=model,
        context_window=known.get("context_window"),
        max_input_tokens=known.get("max_input_tokens"),
        provenance=dict.fromkeys(known, SOURCE_NAME),
    )


def _require_limit(model: str, field: str, tokens: object) -> None:
    if field not in LIMIT_FIELDS:
        raise ConfigError(f"{model!r}: {field!r} is no limit that can be learned: use {' or '.join(LIMIT_FIELDS)}")
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_TOKENS:
        raise ConfigError(f"{model!r}: {field}={tokens!r}: give a whole number of tokens from 1 to {MAX_TOKENS:,}")


def merged(one: Heard, other: Heard) -> dict[str, dict[str, Statement]]:
    """Return the newest statement per model and field; of two that were heard in the same instant, the stricter."""
    both: dict[str, dict[str, Statement]] = {}
    for model, known in chain(one.items(), other.items()):
        newest = both.setdefault(model, {})
        for name, heard in known.items():
            newest[name] = max(heard, newest.get(name, heard), key=_precedence)
    return both


def _precedence(said: Statement) -> tuple[float, bool, int]:
    return said.heard_at, not said.is_withdrawn, -said.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    version: Literal[1]
    models: Mapping[Annotated[str, Field(min_length=1)], Mapping[LimitField, Statement]]


_DOCUMENT = TypeAdapter(_Document)


def limits_file(path: Path) -> SharedFile[Heard]:
    """Return the file that keeps statements."""
    return SharedFile(
        path,
        events="models.learned",
        version=FILE_VERSION,
        empty={},
        read=_read_statements,
        write=_written,
        max_bytes=SMALL_FILE_BYTES,
    )


def _read_statements(content: bytes) -> tuple[Heard, str]:
    try:
        heard: Any = _DOCUMENT.validate_json(content).models
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        return {}, f"no limits of version {FILE_VERSION}: {where or 'not JSON'}"
    return {model: known for model, known in heard.items() if len(model) <= MAX_NAME_CHARS}, ""


def _written(heard: Heard) -> str:
    """All statements as JSON; only a withdrawn one says so."""
    models: Any = heard
    document = _Document(version=FILE_VERSION, models=models)
    return _DOCUMENT.dump_json(document, exclude_defaults=True, indent=1).decode()
