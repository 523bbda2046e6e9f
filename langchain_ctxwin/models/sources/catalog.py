"""Public catalogs of models as sources, read from a file or a URL, in the shapes of models.dev and LiteLLM."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from langchain_ctxwin.core.model_info import CACHE_BREAKPOINTS, ModelInfo
from langchain_ctxwin.errors import PATH, ConfigError, expect
from langchain_ctxwin.models.sources.http import MAX_BYTES, TIMEOUT_SECONDS, SourceError, base_of, connected, shown
from langchain_ctxwin.models.sources.platforms import digest
from langchain_ctxwin.models.sources.reading import (
    ONE_TOKEN,
    capabilities_of,
    day,
    items,
    mapping,
    price,
    provider_id,
    stated,
    tokens,
)
from langchain_ctxwin.util.log import log

INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "pdf": "pdf"}  # models.dev's -> capability
SUPPORTS = {  # capability -> field of LiteLLM's table
    "images": "supports_vision",
    "structured_output": "supports_response_schema",
    "reasoning": "supports_reasoning",
    "audio": "supports_audio_input",
    "video": "supports_video_input",
    "pdf": "supports_pdf_input",
    CACHE_BREAKPOINTS: "supports_prompt_cache_breakpoint",
}


class CatalogSource:
    """Reads a catalog in the shape of models.dev (`api.json`) or of LiteLLM's price table, whichever it is.

    Rows that cannot be read are passed over and counted in the warning `models.catalog_rows_skipped`. The file is read
    anew by each `fetch`, so replacing it is enough to update it; it may be packed with gzip.

    Args:
        path_or_url: A file, or an http(s) URL, of which redirects to other hosts are not followed.
        name: How the catalog is called where its statements are shown; by default the file's name, or the URL's host.
        timeout_seconds: For a URL.

    Raises:
        ConfigError: no path was given, or the URL is none or holds a password.
    """

    tier = "catalog"

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        *,
        name: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        place = os.fspath(expect(path_or_url, PATH, "path_or_url", "the path or the URL of a catalog")).strip()
        if not place:
            raise ConfigError(f"path_or_url={path_or_url!r}: give the path or the URL of a catalog")
        self._is_url = place.lower().startswith(("http://", "https://"))
        if self._is_url:
            base_of(place.partition("?")[0])  # a query is fine here, where it may hold what opens the catalog
        self._place = place if self._is_url else str(Path(place).expanduser().absolute())
        self._timeout_seconds = timeout_seconds
        self._shown = shown(place) if self._is_url else self._place
        self.name = name or (urlsplit(place).hostname if self._is_url else Path(place).name) or "catalog"
        # A file is read as fast as a copy of it, and may have been replaced.
        self.cache_key = f"catalog {self._shown}{digest(urlsplit(place).query)}" if self._is_url else ""

    def __repr__(self) -> str:
        return f"CatalogSource({self._shown!r})"

    def fetch(self, name: str | None) -> list[ModelInfo]:
        """Return one model, wherever it is served, or all of them; a `SourceError` when nothing can be read."""
        rows = list(_rows(self.name, self._document()))
        found = [info for info in rows if info is not None]
        if not found:
            raise SourceError(f"{self._shown} has no models in the shape of models.dev or of LiteLLM's price table")
        if len(found) < len(rows):
            log.warning("models.catalog_rows_skipped", catalog=self._shown, skipped=len(rows) - len(found))
        return [info for info in found if name is None or name in (info.name, f"{info.provider}/{info.name}")]

    def _document(self) -> Any:
        try:
            if self._is_url:
                with connected(self._place, timeout_seconds=self._timeout_seconds) as session:
                    content = session.body("GET", self._place)
            else:
                with Path(self._place).open("rb") as file:
                    content = file.read(MAX_BYTES + 1)
            if content.startswith(b"\x1f\x8b"):  # gzip, which may hold much more than its size
                with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                    content = packed.read(MAX_BYTES + 1)
            if len(content) <= MAX_BYTES:
                return json.loads(content)
        except OSError as error:
            raise SourceError(f"{self._shown} cannot be read: {error.strerror or type(error).__name__}") from error
        except (ValueError, RecursionError, EOFError, zlib.error):
            pass
        raise SourceError(f"{self._shown} is no JSON of at most {MAX_BYTES:,} bytes")


def _rows(source: str, document: Any) -> Iterator[ModelInfo | None]:
    """Yield a statement for each row, None for one that cannot be read; each entry tells its own shape."""
    for key, entry in mapping(document).items():
        models = mapping(entry).get("models")
        if isinstance(models, dict):
            provider = entry.get("id") or key
            yield from (read_provider_row(source, provider, name, row) for name, row in models.items())
        elif key != "sample_spec":  # the row of LiteLLM's table that explains the others
            yield read_price_row(source, key, entry)


def read_provider_row(source: str, provider: Any, name: Any, row: Any) -> ModelInfo | None:
    """Return what a model of a provider states, in the shape of models.dev, or None when it is unreadable."""
    if not isinstance(row, dict) or not isinstance(provider, str):
        return None
    limit, cost, kinds = mapping(row.get("limit")), mapping(row.get("cost")), mapping(row.get("modalities"))
    inputs = items(kinds.get("input"))
    prices: Any = {f"{kind}_price": price(cost.get(kind)) for kind in ("input", "output", "cache_read", "cache_write")}
    return stated(
        source,
        name,
        provider=provider_id(provider),
        context_window=tokens(limit.get("context")),
        max_input_tokens=tokens(limit.get("input")),
        max_output_tokens=tokens(limit.get("output")),
        **prices,
        capabilities=capabilities_of(
            tools=row.get("tool_call"),
            **{kind: row.get(kind) for kind in ("structured_output", "reasoning", "temperature")},
            **{name: kind in inputs for kind, name in INPUT_KINDS.items()},
        ),
        deprecated=row.get("status") == "deprecated",
    )


def read_price_row(source: str, key: str, row: Any) -> ModelInfo | None:
    """Return what a row of LiteLLM's table states, or None when it is none.

    Its `max_input_tokens` is the window that the output shares, more often than not; `max_tokens` is an older name for
    the output limit, or for the window where no output limit is stated.
    """
    served_by = mapping(row).get("litellm_provider")
    if not isinstance(served_by, str):
        return None
    provider = provider_id(served_by)
    prefix, slash, name = key.partition("/")
    platform = provider_id(prefix)  # price tables split a platform into parts; what else has a slash is of the name
    is_prefixed = slash and (provider == platform or provider.startswith(f"{platform}-"))
    output = tokens(row.get("max_output_tokens"))
    window = tokens(row.get("max_input_tokens")) or (tokens(row.get("max_tokens")) if output is None else None)
    return stated(
        source,
        name if is_prefixed else key,
        provider=provider,
        context_window=window,
        max_output_tokens=output,
        input_price=price(row.get("input_cost_per_token"), per=ONE_TOKEN),
        output_price=price(row.get("output_cost_per_token"), per=ONE_TOKEN),
        cache_read_price=price(row.get("cache_read_input_token_cost"), per=ONE_TOKEN),
        cache_write_price=price(row.get("cache_creation_input_token_cost"), per=ONE_TOKEN),
        cache_write_hour_price=price(row.get("cache_creation_input_token_cost_above_1hr"), per=ONE_TOKEN),
        capabilities=capabilities_of(
            tools=row.get("supports_function_calling"),
            **{capability: row.get(field) for capability, field in SUPPORTS.items()},
        ),
        retires_on=day(row.get("deprecation_date")),
    )
