"""Limits that providers were heard to state, in any conversation and any process, and the file that keeps them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, create_model

from langchain_ctxwin.core.limits import unrefuted
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources.reading import MAX_NAME_CHARS, MAX_TOKENS
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.background import Worker, renew_after_fork
from langchain_ctxwin.util.files import SharedFile, place

VERSION = 1
MAX_WAITING = 64  # changes beside the one that is being saved; those who wait for the end of it count too

T = TypeVar("T")


class StoredValue(Generic[T]):
    """A mapping under its `key` in a JSON document with a version; without a path it is kept nowhere.

    Pydantic reads and writes it by its `kind`, with the arguments in `writing`; defaults are not written. `what` names
    it in texts. Trouble is logged under names that begin with `events`, and never raised.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        key: str,
        kind: Any,
        events: str,
        what: str,
        writing: dict[str, Any],
    ) -> None:
        self._worker = Worker(f"ctxwin-{what}", max_waiting=MAX_WAITING)
        self._file: SharedFile[Any] | None = None
        if path is None:
            return
        fields: Any = {"version": (Literal[1], ...), key: (kind, ...)}
        document: Any = create_model("document", **fields)

        def read(content: bytes) -> tuple[Any, str]:
            try:
                return getattr(document.model_validate_json(content), key), ""
            except ValidationError as error:
                where = ".".join(map(str, error.errors()[0]["loc"])) or "not JSON"
            except ConfigError as error:
                where = str(error)
            return {}, f"no {what} of version {VERSION}: {where}"

        def written(value: Any) -> str:
            values: Any = {"version": VERSION, key: value}
            return str(document.model_construct(**values).model_dump_json(exclude_defaults=True, **writing))

        self._file = SharedFile(path, events=events, key=key, version=VERSION, empty={}, read=read, write=written)

    def require_ours(self) -> None:
        """Refuse a path where something else lies; raises `ConfigError`."""
        if self._file:
            self._file.require_ours()

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


# A month. A limit that is obeyed is never heard again, so only expiry finds out that it was raised; finding out that it
# was not costs one refused request, which recovers.
LEARNED_TTL_SECONDS = 30 * 24 * 3600.0
FLUSH_SECONDS = 5.0  # a few kilobytes take milliseconds, on a network folder perhaps a second
MAX_MODELS = 1000  # a deployment talks to dozens; this bounds gateways that make up a name per tenant
LIMIT_FIELDS = ("context_window", "max_input_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardLimit:
    """One limit as it was heard."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True)

    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    heard_at: float  # seconds since the epoch
    is_withdrawn: bool = False  # refuted by an accepted request: it counts no more, and stays to overrule older files


LimitField = Literal["context_window", "max_input_tokens"]
Heard = Mapping[Annotated[str, Field(min_length=1)], Mapping[LimitField, HeardLimit]]  # by model, each the newest


def limits_file(path: Path | None) -> StoredValue[Heard]:
    """Return the file that keeps statements."""
    return StoredValue(
        path,
        key="models",
        kind=Heard,
        events="models.learned",
        what="limits",
        writing={"indent": 1},
    )


class LearnedSource:
    """Remembers what providers stated about their limits, for every conversation and, with a path, every process.

    Per field the latest statement wins, be it smaller or larger. What is learned only ever lowers a configured limit,
    so a stale small one wastes window: a larger one that is heard corrects it, and a larger request that is taken
    withdraws it (`accepted`). Requests that obey it are never refused, so neither may happen; therefore each statement
    also expires. Where servers with different windows share a name, the smallest wins by itself.

    With a path, statements are kept in a JSON file that processes may share: read when the source is made and by
    `refresh`, and written in a background thread after `learn`, merged with what others saved meanwhile. Call `flush`
    before the program ends. Trouble with the file is logged and never raised; one of its own that has a fault is
    replaced. A lock file `<name>.lock` beside it stays.

    Raises:
        ConfigError: the path names no place, or a file that holds something else, which is never written; or
            `ttl_seconds` is not positive.

    Examples:
        >>> source = LearnedSource()
        >>> source.learn("small", {"context_window": 8192})
        >>> source.recall("small")
        {'context_window': 8192}
    """

    name = "learned"
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
        self._file = limits_file(None if path is None else place(path))
        self._file.require_ours()
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._heard: Heard = {}  # replaced as a whole, never changed, so that reading it needs no lock
        self.renew()
        renew_after_fork(self)
        self.refresh()

    def renew(self) -> None:
        """Make the lock anew: nobody gives back what a thread of the parent held.

        A handler of a log event or a signal may come back to this source while it is held by the same thread.
        """
        self._lock = threading.RLock()

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember what a provider just stated; returns at once, also on an event loop.

        An unnamed model (empty name) is not remembered: its limit would apply to every other unnamed model. Nor is one
        whose name has more than `MAX_NAME_CHARS` characters: such names are made, one for each request.

        Raises:
            ConfigError: a field is no limit or a value no plausible number of tokens; nothing was remembered.
        """
        for field, tokens in limits.items():
            if field not in LIMIT_FIELDS:
                use = " or ".join(LIMIT_FIELDS)
                raise ConfigError(f"{model!r}: {field!r} is no limit that can be learned: use {use}")
            if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MAX_TOKENS:
                wanted = f"a whole number of tokens from 1 to {MAX_TOKENS:,}"
                raise ConfigError(f"{model!r}: {field}={tokens!r}: give {wanted}")
        if 0 < len(model) <= MAX_NAME_CHARS:
            said: dict[Any, HeardLimit] = {
                field: HeardLimit(tokens=tokens, heard_at=0) for field, tokens in limits.items()
            }
            with self._lock:
                self._hear(model, said)

    def accepted(self, model: str, tokens: int) -> None:
        """Withdraw the limits below an input that the model took, here and in the file; returns at once.

        A withdrawn limit is kept as such for as long as it would have counted: other processes may have saved it.
        """
        with self._lock:
            known = self.recall(model)
            refuted = known.keys() - unrefuted(known, tokens).keys()
            heard = self._heard.get(model, {}).items()
            self._hear(model, {field: replace(said, is_withdrawn=True) for field, said in heard if field in refuted})

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits that were heard and have not expired, by field name; empty when there are none."""
        said = self._heard.get(model, {}).items()
        return {field: one.tokens for field, one in said if self._is_live(one) and not one.is_withdrawn}

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return what is known about one model, or about all of them by name; reads no file.

        Of a window and a larger input limit, heard at different times, only the window is stated.
        """
        infos = []
        for model in sorted(self._heard) if name is None else [name]:
            limits: dict[str, Any] = dict(self.recall(model))
            if limits.get("max_input_tokens", 0) > limits.get("context_window", math.inf):
                del limits["max_input_tokens"]
            if limits:
                infos.append(ModelInfo(name=model, **limits, provenance=dict.fromkeys(limits, self.name)))
        return infos

    def refresh(self) -> None:
        """Take over what other processes saved. Reads the file: in async code call it in a thread.

        Nothing that is in memory is forgotten; to start over, delete the file and make a new source.
        """
        if (stored := self._file.read()) is not None:
            self._absorb(stored)

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until what was learned is saved, or could not be; false when that takes longer. Blocks its thread."""
        return self._file.flush(timeout_seconds)

    def _hear(self, model: str, said: Mapping[LimitField, HeardLimit]) -> None:
        """Take up statements of this moment: newer than those they replace, even if the clock was set back."""
        heard = dict(self._heard.get(model, {}))
        for field, one in said.items():
            known = heard.get(field)
            earliest = math.nextafter(known.heard_at, math.inf) if known and self._is_live(known) else -math.inf
            heard[field] = replace(one, heard_at=max(self._clock(), earliest))
        if said:
            self._heard = _newest({**self._heard, model: heard})
            self._file.save(self._absorb)  # a change that waits saves this too

    def _absorb(self, stored: Heard) -> Heard:
        """Take up what is stored, and return what is to be stored: all that has not expired."""
        with self._lock:
            self._heard = _newest(merged(self._live(self._heard), self._live(stored)))
            return self._heard

    def _live(self, heard: Heard) -> Heard:
        live: dict[str, Mapping[LimitField, HeardLimit]] = {}
        for model, fields in heard.items():
            kept = {field: said for field, said in fields.items() if self._is_live(said)}
            if kept and len(model) <= MAX_NAME_CHARS:
                live[model] = kept
        return live

    def _is_live(self, said: HeardLimit) -> bool:
        """Not expired; one from as far ahead is the mistake of a clock that was wrong."""
        return abs(self._clock() - said.heard_at) < self._ttl_seconds


def merged(one: Heard, other: Heard) -> Heard:
    """Return the newest statement per model and field; of two that were heard in the same instant, the stricter."""
    both = {model: dict(fields) for model, fields in one.items()}
    for model, fields in other.items():
        known = both.setdefault(model, {})
        for field, said in fields.items():
            known[field] = max(known.get(field, said), said, key=_strictness)
    return both


def _strictness(said: HeardLimit) -> tuple[float, bool, int]:
    return said.heard_at, not said.is_withdrawn, -said.tokens


def _newest(heard: Heard) -> Heard:
    """At most `MAX_MODELS` of them: those about which nothing was heard for longest leave."""
    latest = {model: max(said.heard_at for said in fields.values()) for model, fields in heard.items()}
    kept = set(sorted(latest, key=lambda model: (latest[model], model))[-MAX_MODELS:])
    return {model: fields for model, fields in heard.items() if model in kept}
