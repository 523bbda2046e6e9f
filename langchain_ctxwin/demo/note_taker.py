"""A summarizer that takes its time, as a model behind a network does: what the agent must not have to wait for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from langchain_core.messages import AnyMessage

from langchain_ctxwin.summarize import ExtractiveSummarizer

WRITING_SECONDS = 0.4
"""How long one summary takes: a hundred times as long as extracting it, and some twenty steps of the offline agent."""


class NoteTaker:
    """Extracts the notes, slowly; stands in for a chat model when there is no network."""

    def __init__(self, *, writing_seconds: float = WRITING_SECONDS) -> None:
        self._writing_seconds = writing_seconds
        self._extractive = ExtractiveSummarizer()

    def summarize(self, messages: Sequence[AnyMessage], *, previous: str, max_tokens: int) -> str:
        """Return the summary, after a while."""
        time.sleep(self._writing_seconds)
        return self._extractive.summarize(messages, previous=previous, max_tokens=max_tokens)
