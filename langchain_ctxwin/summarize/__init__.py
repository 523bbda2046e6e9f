"""Summaries, written by a model or extracted without one, on the critical path or off it.

model       who writes: a model (with prompts), the lines of the record, or the provider of the agent's model, asked for
            a block that stands for what leaves
jobs        writing in time and at known cost, also in the background; processes share finished texts through a
            LangGraph store; what a model makes up is marked
"""

from langchain_ctxwin.summarize.jobs import SummaryJobs
from langchain_ctxwin.summarize.model import (
    ExtractiveSummarizer,
    ModelSummarizer,
    NativeSummarizer,
    Written,
)

__all__ = [
    "ExtractiveSummarizer",
    "ModelSummarizer",
    "NativeSummarizer",
    "SummaryJobs",
    "Written",
]
