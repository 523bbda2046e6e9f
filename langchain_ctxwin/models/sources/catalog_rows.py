"""What does one row of a public catalog say?"""

from __future__ import annotations

from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.models.sources.stating import capabilities_of, items, mapping, stated
from langchain_ctxwin.models.values import ONE_TOKEN, day, price, provider_id, tokens

INPUT_KINDS = {"image": "images", "audio": "audio", "video": "video", "pdf": "pdf"}
"""Kinds of input as models.dev calls them -> capability."""

SUPPORTS = {
    "images": "supports_vision",
    "structured_output": "supports_response_schema",
    "reasoning": "supports_reasoning",
    "audio": "supports_audio_input",
    "video": "supports_video_input",
    "pdf": "supports_pdf_input",
}
"""Capability -> field of LiteLLM's table."""

EXAMPLE = "sample_spec"


def is_example(key: str) -> bool:
    """Say whether this row of LiteLLM's table explains the others."""
    return key == EXAMPLE


def read_provider_row(source: str, provider: Any, name: Any, row: Any) -> ModelInfo | None:
    """Return what a model of a provider states, in the shape of models.dev, or None when it is unreadable."""
    if not isinstance(row, dict) or not isinstance(provider, str):
        return None
    limit, cost, kinds = mapping(row.get("limit")), mapping(row.get("cost")), mapping(row.get("modalities"))
    inputs = items(kinds.get("input"))
    return stated(
        source,
        name,
        provider=provider_id(provider),
        context_window=tokens(limit.get("context")),
        max_input_tokens=tokens(limit.get("input")),
        max_output_tokens=tokens(limit.get("output")),
        input_price=price(cost.get("input")),
        output_price=price(cost.get("output")),
        cache_read_price=price(cost.get("cache_read")),
        capabilities=capabilities_of(
            tools=row.get("tool_call"),
            structured_output=row.get("structured_output"),
            reasoning=row.get("reasoning"),
            temperature=row.get("temperature"),
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
    output = tokens(row.get("max_output_tokens"))
    window = tokens(row.get("max_input_tokens")) or (tokens(row.get("max_tokens")) if output is None else None)
    return stated(
        source,
        _bare_name(key, provider),
        provider=provider,
        context_window=window,
        max_output_tokens=output,
        input_price=price(row.get("input_cost_per_token"), per=ONE_TOKEN),
        output_price=price(row.get("output_cost_per_token"), per=ONE_TOKEN),
        cache_read_price=price(row.get("cache_read_input_token_cost"), per=ONE_TOKEN),
        capabilities=capabilities_of(
            tools=row.get("supports_function_calling"),
            **{capability: row.get(field) for capability, field in SUPPORTS.items()},
        ),
        retires_on=day(row.get("deprecation_date")),
    )


def _bare_name(key: str, provider: str) -> str:
    """The name without the provider before it, where the key has one; what else has a slash is part of the name."""
    prefix, slash, name = key.partition("/")
    return name if slash and _same_platform(provider_id(prefix), provider) else key


def _same_platform(one: str, other: str) -> bool:
    """True for one provider, and for the parts into which a price table splits a platform."""
    return one == other or other.startswith(f"{one}-")
