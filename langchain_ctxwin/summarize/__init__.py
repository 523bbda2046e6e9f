"""Summaries, written by a model or extracted without one, on the critical path or off it."""

from langchain_ctxwin.summarize.background import SummaryJobs
from langchain_ctxwin.summarize.extractive import ExtractiveSummarizer
from langchain_ctxwin.summarize.lease import RedisLease
from langchain_ctxwin.summarize.model import ModelSummarizer, as_summarizer

__all__ = ["ExtractiveSummarizer", "ModelSummarizer", "RedisLease", "SummaryJobs", "as_summarizer"]
