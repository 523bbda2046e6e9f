"""Summaries, written by a model or extracted without one."""

from langchain_ctxwin.summarize.coerce import as_summarizer
from langchain_ctxwin.summarize.extractive import ExtractiveSummarizer
from langchain_ctxwin.summarize.model import ModelSummarizer

__all__ = ["ExtractiveSummarizer", "ModelSummarizer", "as_summarizer"]
