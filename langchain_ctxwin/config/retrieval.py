"""How much of what is retrieved may a request hold?"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from langchain_ctxwin.config.settings import Settings


class RetrievalConfig(Settings):
    """Defaults of the retrieval budget; a `BudgetedRetriever` reads them once, when it is made.

    Environment variables: `CTXWIN_RETRIEVAL_<FIELD>`, e.g. `CTXWIN_RETRIEVAL_MAX_CONTEXT_TOKENS=4096`.
    """

    model_config = SettingsConfigDict(env_prefix="CTXWIN_RETRIEVAL_")

    max_context_tokens: Annotated[int, Field(gt=0)] = 8192
    """Budget of one retrieval, in tokens: about sixteen chunks of 500 tokens."""

    score: str = "score"
    """Metadata key that holds a chunk's relevance, higher is better."""

    k: Annotated[int, Field(gt=0)] | None = None
    """Largest number of chunks, whatever their size."""

    on_overflow: Literal["stop", "skip"] = "stop"
    """Stop at the first chunk that does not fit, or skip it and go on with smaller ones."""
