"""Writes one summary: for at most so long, without leaking into the user's stream, counting what it costs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers.context import register_configure_hook

from langchain_ctxwin.daemon import in_daemon
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.protocols import Clock, Summarizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished summary and what it cost."""

    text: str
    calls: int = 0
    """Model calls, failed ones included."""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    @property
    def cost(self) -> dict[str, int]:
        """Calls and tokens, to be added up."""
        return {"calls": self.calls, "input_tokens": self.input_tokens, "output_tokens": self.output_tokens}

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Written | None:
        """Read what `to_json` returned; None when that is not what this is. Unknown fields are left out."""
        if not isinstance(value, Mapping):
            return None
        text, seconds = value.get("text"), value.get("seconds")
        if not isinstance(text, str) or not text.strip():
            return None
        counts = {name: _count(value.get(name)) for name in ("calls", "input_tokens", "output_tokens")}
        return cls(text=text, seconds=float(seconds) if isinstance(seconds, int | float) else 0.0, **counts)


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


def metered(work: Callable[[], str], clock: Clock = time.perf_counter) -> Written:
    """Run `work` and return its text with what its model calls cost.

    Calls are seen wherever LangChain's callbacks reach: nested runnables, retries, fallbacks, several threads of its
    own executors. Start it in an empty context, or the caller's callbacks see those calls too.
    """
    with _metering() as meter:
        started = clock()
        return meter.written(work(), clock() - started)


async def ametered(work: Callable[[], Awaitable[str]], clock: Clock = time.perf_counter) -> Written:
    """Like `metered`, awaiting what `work` returns."""
    with _metering() as meter:
        started = clock()
        return meter.written(await work(), clock() - started)


class _Meter(BaseCallbackHandler):
    """Counts the calls of one piece of work; any thread may report."""

    run_inline = True  # async calls would otherwise report through a pool whose threads hold up the exit

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = self._input_tokens = self._output_tokens = 0

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        with self._lock:
            self._calls += 1

    def on_llm_start(self, *_: Any, **__: Any) -> None:
        with self._lock:
            self._calls += 1

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        usage = _usage(response)
        with self._lock:
            self._input_tokens += _count(usage.get("input_tokens"))
            self._output_tokens += _count(usage.get("output_tokens"))

    def written(self, text: str, seconds: float) -> Written:
        with self._lock:
            return Written(
                text=text,
                calls=self._calls,
                input_tokens=self._input_tokens,
                output_tokens=self._output_tokens,
                seconds=max(0.0, seconds),
            )


_meter: ContextVar[_Meter | None] = ContextVar("ctxwin_summary_meter", default=None)
_registering = threading.Lock()
_is_registered = threading.Event()


@contextmanager
def _metering() -> Iterator[_Meter]:
    _register_once()
    meter = _Meter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def _register_once() -> None:
    """Let LangChain look at our variable: once per process, since a hook is never removed again."""
    if _is_registered.is_set():
        return
    with _registering:
        if not _is_registered.is_set():
            register_configure_hook(_meter, inheritable=True)
            _is_registered.set()


def _usage(response: LLMResult) -> Mapping[str, Any]:
    """What the provider reported for one call; several choices of one answer repeat the same report."""
    first = next((choice for choices in response.generations for choice in choices), None)
    if isinstance(first, ChatGeneration) and isinstance(first.message, AIMessage):
        return first.message.usage_metadata or {}
    return {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
