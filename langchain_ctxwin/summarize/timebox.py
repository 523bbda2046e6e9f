"""Runs one summary for at most so long, without leaking it into the user's stream or holding up the exit."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError

from langchain_core.messages import AnyMessage

from langchain_ctxwin.daemon import in_daemon
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import Summarizer


def write_summary(
    summarizer: Summarizer,
    messages: Sequence[AnyMessage],
    *,
    previous: str,
    max_tokens: int,
    timeout_seconds: float,
) -> str:
    """Return the summary, or raise `SummarizationError` whatever went wrong; the caller goes on without one."""
    job = in_daemon(lambda: summarizer.summarize(messages, previous=previous, max_tokens=max_tokens))
    try:
        return _text(job.result(timeout_seconds))
    except FutureTimeoutError as error:
        raise _too_slow(timeout_seconds) from error
    except Exception as error:  # a summarizer is soft: any failure of it only means that there is no summary
        raise _failed(error) from error


async def awrite_summary(
    summarizer: Summarizer,
    messages: Sequence[AnyMessage],
    *,
    previous: str,
    max_tokens: int,
    timeout_seconds: float,
) -> str:
    """Like `write_summary`; awaits `asummarize` where the summarizer has it."""
    asummarize = getattr(summarizer, "asummarize", None)
    if asummarize is None:
        job = in_daemon(lambda: summarizer.summarize(messages, previous=previous, max_tokens=max_tokens))
        task: asyncio.Future[str] = asyncio.wrap_future(job)
    else:
        writing = asummarize(messages, previous=previous, max_tokens=max_tokens)
        # An empty context, as in a thread of its own: the caller's would stream the summary to the user.
        task = asyncio.get_running_loop().create_task(writing, context=contextvars.Context())
    try:
        return _text(await asyncio.wait_for(task, timeout_seconds))
    except TimeoutError as error:
        raise _too_slow(timeout_seconds) from error
    except Exception as error:  # see write_summary
        raise _failed(error) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SummarizationError(f"the summarizer returned {value!r}: expected a text that is not empty")
    return value


def _failed(error: Exception) -> SummarizationError:
    if isinstance(error, SummarizationError):
        return error
    return SummarizationError(f"the summarizer failed: {type(error).__name__}: {error}")


def _too_slow(timeout_seconds: float) -> SummarizationError:
    return SummarizationError(
        f"no summary within {timeout_seconds:g} seconds: use a faster summarizer or raise summary_timeout_seconds"
    )
