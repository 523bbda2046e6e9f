"""Sources of facts about models: what the caller states, profiles, catalogs, and what errors of providers stated.

Providers' own lists are in `apis`.
"""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from langchain_ctxwin.config import place
from langchain_ctxwin.core.limits import models_behind
from langchain_ctxwin.core.model_info import (
    CACHE_BREAKPOINTS,
    PRICE_FIELDS,
    ModelInfo,
    model_name,
)
from langchain_ctxwin.errors import PATH, ConfigError, expect, expect_each
from langchain_ctxwin.models.apis import (
    MAX_TOKENS,
    ONE_TOKEN,
    AnthropicSource,
    GeminiSource,
    OllamaSource,
    OpenAICompatibleSource,
    SourceError,
    capabilities_of,
    day,
    fetch_json,
    mapping,
    model_info_of,
    named,
    price,
    provider_id,
    tokens,
)
from langchain_ctxwin.protocols import Clock
from langchain_ctxwin.util.log import log, reason_of

__all__ = [
    "AnthropicSource",
    "CatalogSource",
    "ExplicitSource",
    "GeminiSource",
    "LearnedSource",
    "OllamaSource",
    "OpenAICompatibleSource",
    "ProfileSource",
]

MODELS_DEV = "https://models.dev/api.json"  # the public catalog, as of November 2026
SNAPSHOT_FILE = "snapshot.json.gz"  # comes with the package; `benchmarks/model_snapshot.py` makes it


# an int is the context window alone
Facts = ModelInfo | Mapping[str, Any] | int

INFO = TypeAdapter(ModelInfo)
FACTS = tuple(
    field.name
    for field in fields(ModelInfo)
    if field.name not in {"name", "provenance", "conflicts"}
)


class ExplicitSource:
    """States what it was given. Without a `provider` a fact holds wherever the model is served.

    Args:
        facts: Name of a model, as its client spells it -> what is known about it.

    Raises:
        ConfigError: a fact is no value of its field; the text names the model, the field and the value.

    Examples:
        >>> source = ExplicitSource(
        ...     {
        ...         "small": 8192,
        ...         "house-blend": {
        ...             "context_window": 128_000,
        ...             "input_price": 0.25,
        ...         },
        ...     }
        ... )
        >>> [info.context_window for info in source.fetch(None)]
        [8192, 128000]
    """

    name = "explicit"
    tier = "explicit"

    def __init__(self, facts: Mapping[str, Facts]) -> None:
        wanted = "a mapping of model names to what is known about each"
        expect(facts, Mapping, "facts", wanted)
        self._infos = [_info(name, said) for name, said in facts.items()]

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return the facts about one model, by its name or an alias, or about all of them."""
        return named(self._infos, name)


def _info(name: str, said: Facts) -> ModelInfo:
    if isinstance(said, ModelInfo):
        return replace(said, name=name)
    facts = dict(said) if isinstance(said, Mapping) else {"context_window": said}
    if unknown := [str(field) for field in facts if field not in FACTS]:
        raise ConfigError(
            f"{name}: unknown field {', '.join(unknown)}: give some of {', '.join(FACTS)}"
        )
    try:
        info = INFO.validate_python({"name": name, **facts})
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"]))
        raise ConfigError(
            f"{name}: {field}={fault['input']!r:.80}: {fault['msg']}, or None when unknown"
        ) from error
    return replace(info, provider=provider_id(info.provider)) if info.provider else info


CAPABILITIES = {  # capability -> field of a profile
    "tools": "tool_calling",
    "images": "image_inputs",
    "audio": "audio_inputs",
    "video": "video_inputs",
    "pdf": "pdf_inputs",
    "structured_output": "structured_output",
    "reasoning": "reasoning_output",
}


class ProfileSource:
    """Reads the profiles of the given chat models, or runnables around them.

    A profile's `max_input_tokens` is the window that the output shares, more often than not.
    """

    name = "profile"
    tier = "profile"

    def __init__(self, models: Sequence[Any] = ()) -> None:
        self._models = expect_each(models, object, "models", "a list of chat models")

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return the profile of one model, or all of them."""
        parts = [part for model in self._models for part, _ in models_behind(model)]
        return named(filter(None, map(_of_profile, parts)), name)


def _of_profile(model: Any) -> ModelInfo | None:
    profile = getattr(model, "profile", None)
    if not isinstance(profile, Mapping) or not profile:
        return None
    return model_info_of(
        model_name(model).removeprefix("models/"),
        provider=provider_of(model),
        context_window=tokens(profile.get("max_input_tokens")),
        max_output_tokens=tokens(profile.get("max_output_tokens")),
        capabilities=capabilities_of(
            temperature=profile.get("temperature"),
            **{
                capability: profile.get(field)
                for capability, field in CAPABILITIES.items()
            },
        ),
        deprecated=profile.get("status") == "deprecated",
    )


def provider_of(model: Any) -> str | None:
    """Return the provider that a chat model names for tracing."""
    try:
        name = model._get_ls_params().get("ls_provider")  # noqa: SLF001  # LangChain's own way to ask
    except Exception:  # noqa: BLE001  # other people's code; who serves a model then stays unknown
        return None
    return provider_id(name) if name else None


class CatalogSource:
    """Reads a catalog in the shape of models.dev (`api.json`) or of LiteLLM's price table, whichever it is.

    Rows that cannot be read are passed over. A file is read anew by each `fetch`, so replacing it is enough to update
    it.

    Args:
        path_or_url: A file, or an http(s) URL.

    Raises:
        ConfigError: it is no path.
    """

    tier = "catalog"

    def __init__(self, path_or_url: str | os.PathLike[str]) -> None:
        wanted = "the path or the URL of a catalog"
        place = os.fspath(expect(path_or_url, PATH, "path_or_url", wanted)).strip()
        parts = urlsplit(place)
        self._place, self._is_url = place, parts.scheme in {"http", "https"}
        self.name = parts.hostname if self._is_url else Path(place).name

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, wherever it is served, or all of them; a `SourceError` when nothing can be read."""
        models = list(filter(None, _rows(self._document())))
        if not models:
            raise SourceError(
                f"{self.name} has no models in the shape of models.dev or of LiteLLM's price table"
            )
        return named(models, name)

    def _document(self) -> Any:
        if self._is_url:
            return fetch_json(self._place)
        try:
            return json.loads(Path(self._place).expanduser().read_bytes())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no JSON"
            raise SourceError(f"{self._place} cannot be read: {why}") from None


def _rows(document: Any) -> Iterator[ModelInfo | None]:
    """Yield the facts of each row, None for one that cannot be read; each entry tells its own shape."""
    for key, entry in mapping(document).items():
        models = mapping(entry).get("models")
        if isinstance(models, dict):
            provider = provider_id(str(entry.get("id") or key))
            yield from (
                read_provider_row(provider, name, row) for name, row in models.items()
            )
        # the row of LiteLLM's table that explains the others
        elif key != "sample_spec":
            yield read_price_row(key, entry)


# models.dev's -> capability
INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "pdf": "pdf"}
FLAGS = ("structured_output", "reasoning", "temperature")


def read_provider_row(provider: str, name: str, row: Any) -> ModelInfo | None:
    """Return the facts of a model in the shape of models.dev, or None when they are unreadable."""
    if not isinstance(row, dict):
        return None
    limit, cost = mapping(row.get("limit")), mapping(row.get("cost"))
    inputs = mapping(row.get("modalities")).get("input") or ()
    prices: dict[str, Any] = {
        field: price(cost.get(field.removesuffix("_price"))) for field in PRICE_FIELDS
    }
    return model_info_of(
        name,
        provider=provider,
        context_window=tokens(limit.get("context")),
        max_input_tokens=tokens(limit.get("input")),
        max_output_tokens=tokens(limit.get("output")),
        **prices,
        capabilities=capabilities_of(
            tools=row.get("tool_call"),
            **{flag: row.get(flag) for flag in FLAGS},
            **{name: kind in inputs for kind, name in INPUT_KINDS.items()},
        ),
        deprecated=row.get("status") == "deprecated",
    )


SUPPORTS = {  # capability -> field of LiteLLM's table
    "images": "supports_vision",
    "structured_output": "supports_response_schema",
    "reasoning": "supports_reasoning",
    "audio": "supports_audio_input",
    "video": "supports_video_input",
    "pdf": "supports_pdf_input",
    CACHE_BREAKPOINTS: "supports_prompt_cache_breakpoint",
}
COSTS = {  # field -> that of LiteLLM's table
    "input_price": "input_cost_per_token",
    "output_price": "output_cost_per_token",
    "cache_read_price": "cache_read_input_token_cost",
    "cache_write_price": "cache_creation_input_token_cost",
    "cache_write_hour_price": "cache_creation_input_token_cost_above_1hr",
}


def read_price_row(key: str, row: Any) -> ModelInfo | None:
    """Return the facts of a row of LiteLLM's table, or None when it is no model.

    Its `max_input_tokens` is the window that the output shares, more often than not; `max_tokens` is an older name for
    the output limit, or for the window where no output limit is stated.
    """
    served_by = mapping(row).get("litellm_provider")
    if not isinstance(served_by, str):
        return None
    provider = provider_id(served_by)
    prefix, slash, name = key.partition("/")
    # price tables split a platform into parts; what else has a slash is of the name
    platform = provider_id(prefix)
    is_prefixed = slash and (
        provider == platform or provider.startswith(f"{platform}-")
    )
    output = tokens(row.get("max_output_tokens"))
    window = tokens(row.get("max_input_tokens")) or (
        tokens(row.get("max_tokens")) if output is None else None
    )
    prices: dict[str, Any] = {
        field: price(row.get(column), per=ONE_TOKEN) for field, column in COSTS.items()
    }
    return model_info_of(
        name if is_prefixed else key,
        provider=provider,
        context_window=window,
        max_output_tokens=output,
        **prices,
        capabilities=capabilities_of(
            tools=row.get("supports_function_calling"),
            **{capability: row.get(field) for capability, field in SUPPORTS.items()},
        ),
        retires_on=day(row.get("deprecation_date")),
    )


MODELS = TypeAdapter(list[ModelInfo])


@cache
def snapshot() -> tuple[ModelInfo, ...]:
    """Return the limits, prices and capabilities that come with the package, as of the day its file was made."""
    packed = files(__package__).joinpath(SNAPSHOT_FILE).read_bytes()
    return tuple(MODELS.validate_json(gzip.decompress(packed)))


class SnapshotSource:
    """States what comes with the package, where no other source knows better."""

    name = "snapshot"
    tier = "snapshot"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, wherever it is served, or all of them."""
        return named(snapshot(), name)


# A month. A limit that is obeyed is never heard again, so only expiry finds out that it was raised; finding out that it
# was not costs one refused request, which recovers.
LEARNED_TTL_SECONDS = 30 * 24 * 3600.0
WRITER = "ctxwin-limits"  # name of the threads that write the file
LEARNED_FIELDS = ("context_window", "max_input_tokens")


# field -> tokens, and when they were stated, by model
Limits = dict[str, dict[str, tuple[int, float]]]


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


def replace_text(path: Path, text: str) -> None:
    """Write the file; a reader sees the old one, also after an error, or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class LearnedSource:
    """Remembers what providers stated about their limits, for every conversation and, with a path, every process.

    Per field the latest statement wins, be it smaller or larger: a larger one that is stated later corrects a small one
    that is out of date. Each statement expires after a month.

    With a path, statements are kept in a JSON file that processes may share: read when the source is made and by
    `refresh`, and written after `learn`, merged with what others saved meanwhile. Trouble with the file is logged and
    never raised.

    Raises:
        ConfigError: the path names no place.

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
        clock: Clock = time.time,
    ) -> None:
        self._file: SharedFile | None = (
            None if path is None else SharedFile(path, TypeAdapter(Limits))
        )
        self._clock = clock
        self._learned: Limits = {}  # replaced as a whole, never changed, so that reading it needs no lock
        self._lock = threading.Lock()
        self.refresh()

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember what a provider just stated; returns at once, also on an event loop.

        An unnamed model (empty name) is not remembered: its limit would apply to every other unnamed model.

        Raises:
            ConfigError: a field is no limit or a value no plausible number of tokens; nothing was remembered.
        """
        for field, value in limits.items():
            is_tokens = type(value) is int and 1 <= value <= MAX_TOKENS
            if field not in LEARNED_FIELDS or not is_tokens:
                raise ConfigError(
                    f"{model!r}: {field}={value!r}: give {' or '.join(LEARNED_FIELDS)}, a whole number of tokens from "
                    f"1 to {MAX_TOKENS:,}"
                )
        if not limits or not model:
            return
        now = self._clock()
        self._absorb({model: {field: (value, now) for field, value in limits.items()}})
        if self._file is not None:
            # in a thread, because files must not be touched on an event loop; a program waits for it at its end
            threading.Thread(
                target=partial(self._file.update, self._absorb), name=WRITER
            ).start()

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the stated limits that have not expired, by field name; empty when there are none."""
        since = self._clock() - LEARNED_TTL_SECONDS
        limits = self._learned.get(model, {}).items()
        return {field: tokens for field, (tokens, at) in limits if at > since}

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return the learned limits of one model, or of all models by name; reads no file."""
        infos = (
            model_info_of(one, **self.recall(one)) for one in sorted(self._learned)
        )
        return [info for info in named(filter(None, infos), name) if info.limits.known]

    def refresh(self) -> None:
        """Take over what other processes saved. Reads the file: in async code call it in a thread."""
        if self._file and (stored := self._file.read()) is not None:
            self._absorb(stored)

    def _absorb(self, said: Limits) -> Limits:
        """Merge stated limits, and return all: per field the newest."""
        with self._lock:
            merged = {model: dict(limits) for model, limits in self._learned.items()}
            for model, limits in said.items():
                known = merged.setdefault(model, {})
                for field, one in limits.items():
                    known[field] = max(one, known.get(field, one), key=_stated_at)
            self._learned = merged
            return merged


def _stated_at(said: tuple[int, float]) -> float:
    return said[1]
