"""Retrieved chunks of known size and score, and a base that finds them."""

import math

import numpy as np
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from langchain_ctxwin.retrieval import BudgetedRetriever

NO_SCORE = object()
SCORES = [NO_SCORE, None, math.nan, math.inf, -math.inf, "0.9", True, [1.0], 0.5, 1, -2, 10**400, np.float32(0.5)]


class Chars:
    """Counts one token per character."""

    def count_text(self, text):
        return len(text)

    def __call__(self, messages, *, tools=None):
        raise AssertionError("the text alone is asked for")


class FixedRetriever(BaseRetriever):
    """Finds the same documents for every query; remembers how it was called."""

    found: list[Document]
    asked: list[str] = Field(default_factory=list)
    by_topic: dict[str, list[Document]] = Field(default_factory=dict)

    def _get_relevant_documents(self, query, *, run_manager, topic=None):
        self.asked.append("sync")
        return self.by_topic.get(topic, self.found)

    async def _aget_relevant_documents(self, query, *, run_manager, topic=None):
        self.asked.append("async")
        return self.by_topic.get(topic, self.found)


def chunk(name, size, score=NO_SCORE):
    """Make a chunk of `size` characters, with a score when one is given (whatever its type)."""
    metadata = {"name": name} if score is NO_SCORE else {"name": name, "score": score}
    return Document(name[0] * size, metadata=metadata)


def names(documents):
    """List the names of some chunks."""
    return [document.metadata["name"] for document in documents]


def budgeted(found, max_context_tokens=100, **options):
    """Put a budget in characters before a base that finds these chunks."""
    options = {"counter": Chars(), **options}
    return BudgetedRetriever(base=FixedRetriever(found=found), max_context_tokens=max_context_tokens, **options)


def marked(document, truncated):
    """Return the document as a retrieval hands it out."""
    return Document(document.page_content, metadata={**document.metadata, "truncated": truncated}, id=document.id)
