"""Runs one summary for at most so long, without leaking it into the user's stream or holding up the exit."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError

from langchain_core.messages import AnyMessage

from langchain_ctxwin.daemon import in_daemon
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import Summarizer
from langchain_ctxwin.summarize.usage import Written, ametered, metered


def write_summary(
    summarizer: Summarizer,
    messages: Sequence[AnyMessage],
    *,
    previous: str,
    max_tokens: int,
    timeout_seconds: float,
) -> Written:
    """Return the summary, or raise `SummarizationError` whatever went wrong; the caller goes on without one."""
    job = in_daemon(lambda: attempt(lambda: summarizer.summarize(messages, previous=previous, max_tokens=max_tokens)))
    try:
        written: Written = job.result(timeout_seconds)
    except FutureTimeoutError as error:
        raise too_slow(timeout_seconds) from error
    return written


async def awrite_summary(
    summarizer: Summarizer,
    messages: Sequence[AnyMessage],
    *,
    previous: str,
    max_tokens: int,
    timeout_seconds: float,
) -> Written:
    """Like `write_summary`; awaits `asummarize` where the summarizer has it."""
    asummarize = getattr(summarizer, "asummarize", None)
    if asummarize is None:
        job = in_daemon(
            lambda: attempt(lambda: summarizer.summarize(messages, previous=previous, max_tokens=max_tokens))
        )
        task: asyncio.Future[Written] = asyncio.wrap_future(job)
    else:
        writing = ametered(lambda: asummarize(messages, previous=previous, max_tokens=max_tokens))
        # An empty context, as in a thread of its own: the caller's would stream the summary to the user.
        task = asyncio.get_running_loop().create_task(writing, context=contextvars.Context())
    try:
        return _checked(await asyncio.wait_for(task, timeout_seconds))
    except TimeoutError as error:
        raise too_slow(timeout_seconds) from error
    except Exception as error:  # a summarizer is soft: any failure of it only means that there is no summary
        raise _failed(error) from error


def attempt(write: Callable[[], str]) -> Written:
    """Write one summary, metered, or raise `SummarizationError` whatever went wrong.

    For a thread of its own: not even a crash that is no `Exception`, such as a panic in an extension, passes through.
    """
    try:
        return _checked(metered(write))
    except SummarizationError:
        raise
    except BaseException as error:
        raise _failed(error) from error


def too_slow(timeout_seconds: float) -> SummarizationError:
    """Return the error for a summary that did not come in time."""
    return SummarizationError(
        f"no summary within {timeout_seconds:g} seconds: use a faster summarizer or raise summary_timeout_seconds"
    )


def lost_elsewhere(timeout_seconds: float) -> str:
    """Return why a summary that another process took is given up."""
    return (
        f"another process took this summary and did not finish it within {timeout_seconds:g} seconds: use a faster "
        "summarizer, raise summary_timeout_seconds, or let all processes share one store"
    )


def _checked(written: Written) -> Written:
    text: object = written.text  # a summarizer may return anything
    if not isinstance(text, str) or not text.strip():
        raise SummarizationError(f"the summarizer returned {text!r}: expected a text that is not empty")
    return written


def _failed(error: BaseException) -> SummarizationError:
    if isinstance(error, SummarizationError):
        return error
    return SummarizationError(f"the summarizer failed: {type(error).__name__}: {error}")
