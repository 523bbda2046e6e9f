"""Summaries, written by a model or extracted without one, on the critical path or off it.

model       who writes: a model (with prompts, in parts where its window is small), or the lines of the record
jobs        writing in time and at known cost, also in the background; processes share finished texts through a
            LangGraph store
"""

from langchain_ctxwin.summarize.jobs import (
    Job,
    SummaryJobs,
    SummaryStore,
    Written,
    default_jobs,
    writing_summary,
)
from langchain_ctxwin.summarize.model import (
    ExtractiveSummarizer,
    ModelSummarizer,
    as_summarizer,
    writer_of,
)

__all__ = [
    "ExtractiveSummarizer",
    "Job",
    "ModelSummarizer",
    "SummaryJobs",
    "SummaryStore",
    "Written",
    "as_summarizer",
    "default_jobs",
    "writer_of",
    "writing_summary",
]
