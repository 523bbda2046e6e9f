"""The mechanisms that everybody shares: threads, memos, files, the log, work for sync and async callers."""

from langchain_ctxwin.util.files import alone, replace_text
from langchain_ctxwin.util.log import log
from langchain_ctxwin.util.memo import Lru, Seen, once
from langchain_ctxwin.util.work import Worker, arun, in_daemon, run

__all__ = [
    "Lru",
    "Seen",
    "Worker",
    "alone",
    "arun",
    "in_daemon",
    "log",
    "once",
    "replace_text",
    "run",
]
