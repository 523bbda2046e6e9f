"""Which summarizer is meant by what a user passes?"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import Runnable

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Summarizer, TokenCounter
from langchain_ctxwin.summarize.extractive import ExtractiveSummarizer
from langchain_ctxwin.summarize.model import ModelSummarizer

LEAST_WINDOW_TOKENS = 4096
"""Window of a summarizer that states none, at least: chat models with a smaller one are no longer served."""


def as_summarizer(
    value: Any, *, counter: TokenCounter | None = None, max_input_tokens: int | None = None
) -> Summarizer:
    """Return a summarizer for `value`.

    None is the extractive one, an object with a `summarize` method is itself, and a chat model, a Runnable or a
    callable (sync or async) writes through `ModelSummarizer`. `max_input_tokens` bounds a model that states no limits,
    from `LEAST_WINDOW_TOKENS` on.

    Raises:
        ConfigError: `value` is none of these, e.g. a model's name or a class.
    """
    if value is None:
        return ExtractiveSummarizer(counter=counter)
    if isinstance(value, type) or not (isinstance(value, Summarizer | Runnable) or callable(value)):
        raise ConfigError(
            f"summarizer={value!r} cannot summarize: pass a chat model, a Runnable, a callable that takes messages, "
            "an object with a summarize method, or None"
        )
    if isinstance(value, Summarizer):
        return value
    if max_input_tokens is None or ModelLimits.of(value).known:
        return ModelSummarizer(value, counter=counter)
    return ModelSummarizer(value, counter=counter, max_input_tokens=max(max_input_tokens, LEAST_WINDOW_TOKENS))
