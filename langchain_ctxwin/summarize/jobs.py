"""Summary jobs: each at most once, in this process or through a store in any, off the critical path, in time."""

from __future__ import annotations

import asyncio
import atexit
import json
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AnyMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import (
    ensure_config,
    merge_configs,
    var_child_runnable_config,
)
from langgraph.store.base import BaseStore

from langchain_ctxwin.core.fitting import first_part
from langchain_ctxwin.core.model_info import Usage
from langchain_ctxwin.core.plan import request_until, shown_part
from langchain_ctxwin.core.provider_blocks import digest
from langchain_ctxwin.core.provider_call import call_arguments, dressed
from langchain_ctxwin.core.record import EDGES, is_value
from langchain_ctxwin.core.request import Window
from langchain_ctxwin.core.tokens import readable_text
from langchain_ctxwin.errors import SummarizationError
from langchain_ctxwin.summarize.model import (
    CALL_CONFIG,
    Instructed,
    NativeSummarizer,
    Written,
    caller_loop,
    longest,
    written_text,
)
from langchain_ctxwin.text import query_terms
from langchain_ctxwin.util.memo import Lru
from langchain_ctxwin.util.stores import ThreadStore
from langchain_ctxwin.util.work import Wait, Work, in_daemon, renew_after_fork, run

# Written at a time: providers limit parallel requests, and no turn waits for a summary. One that hangs takes its place
# until it returns.
MAX_RUNNING = 4
# Jobs known, some 10 MB of texts at most. A summary waits until its conversation's next turn, and the summaries
# of as many other conversations may end meanwhile; one that is forgotten is paid for twice.
MAX_REMEMBERED = 2_048
# longest wait at exit for summaries that go to a store: what a person or an orchestrator bears, and most need
DRAIN_SECONDS = 5.0


Write = Callable[[], Any]
"""Writes one summary, in a thread of its own."""

TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")


@dataclass(slots=True, kw_only=True, eq=False)
class Job:
    """One attempt to write a summary; its thread ends when the text was stored, too."""

    store: SummaryStore | None
    thread_id: str
    ended: Future[Written] = field(default_factory=Future)

    @property
    def written(self) -> Written | None:
        """The summary, once it is there."""
        return self.ended.result() if self.ended.done() and not self.failure else None

    @property
    def failure(self) -> str:
        """Why it failed; empty while it runs, and once its summary is there."""
        error = self.ended.exception() if self.ended.done() else None
        return (str(error) or type(error).__name__) if error else ""


class SummaryJobs:
    """Writes summaries in threads that hold up neither a turn nor the exit; thread-safe, shared by many engines.

    What is lost with it (a crash, a full memory, a fork) costs only the time to write a summary again.

    Use:
        ```python
        jobs = SummaryJobs()
        jobs.start(
            key,
            lambda: summarizer.summarize(messages, previous="", max_tokens=500),
        )
        if (job := jobs.find(key)) and job.written:
            print(job.written.text)
        ```
    """

    def __init__(self) -> None:
        self.renew()
        renew_after_fork(self.renew)
        atexit.register(self.drain, DRAIN_SECONDS, stored_only=True)

    def renew(self) -> None:
        """Forget everything: threads do not survive a fork, and the lock may have been held by one of them."""
        self._lock = threading.Lock()
        self._jobs: Lru[Job] = Lru(MAX_REMEMBERED)
        self._free = threading.Semaphore(MAX_RUNNING)

    def start(
        self,
        key: str,
        write: Write,
        *,
        store: SummaryStore | None = None,
        thread_id: str = "",
    ) -> bool:
        """Write a summary in the background; False when no thread is free, and nothing is remembered then.

        A key that is known, whatever became of it, is not started again: `forget` it first. Callbacks of the run that
        starts it see its calls, tagged; what is only async runs on the caller's event loop while there is one.
        """
        writing, free = attempting(write), self._free
        job = Job(store=store, thread_id=thread_id)

        def work() -> Written:
            try:
                written = job.store.get(key) if job.store is not None else None
                if written is None:
                    written = writing()
                    if job.store is not None:  # and nobody cancelled it
                        job.store.put(key, written)
                return written
            finally:
                free.release()

        with self._lock:
            if key in self._jobs:
                return True
            if not free.acquire(blocking=False):
                return False
            try:
                job.ended = in_daemon(work)
            # the system has no thread to give, or the interpreter is at its end
            except RuntimeError:
                free.release()
                return False
            self._jobs.put(key, job)
        return True

    def find(self, key: str) -> Job | None:
        """Return what is known of a key, None when nothing is; never blocks."""
        return self._jobs.get(key)

    def cancel_thread(self, thread_id: str) -> None:
        """Forget the jobs of a conversation; what they still write is neither kept nor stored."""
        with self._lock:
            for key, job in [*self._jobs.items()]:
                if job.thread_id == thread_id:
                    del self._jobs[key]
                    job.store = None

    def forget(self, key: str) -> None:
        """Forget a job, so that it can be started again; what it still writes goes to its store."""
        with self._lock:
            self._jobs.pop(key, None)

    def drain(self, timeout_seconds: float, *, stored_only: bool = False) -> int:
        """Wait for the jobs that are known, and return how many have not ended.

        Blocks: from a coroutine call it by `asyncio.to_thread`. Stores have to stay open until it returns.

        Args:
            timeout_seconds: Longest wait.
            stored_only: Wait for those alone whose text goes to a store.
        """
        known = [*self._jobs.values()]
        awaited = [job.ended for job in known if job.store or not stored_only]
        return len(wait(awaited, timeout_seconds).not_done)


@cache
def default_jobs() -> SummaryJobs:
    """Jobs that every engine of this process shares unless it is given others."""
    return SummaryJobs()


def writing(
    summarizer: Any,
    window: Window,
    start: int,
    stop: int,
    max_tokens: int,
    *,
    call: Any,
) -> Write:
    """Return what writes a summary of the messages in `[start, stop)`, for another thread."""
    messages = shown_part(window, start, stop)
    is_native = isinstance(summarizer, NativeSummarizer)
    if isinstance(summarizer, Instructed):
        summarizer = summarizer.told(window.settings, window.focus)
        is_shown = is_native or start >= window.start
        sent = request_until(window, stop) if is_shown else None
        asked = summarizer.asked(call, sent.tools) if sent else None
        if sent and asked is not None:
            # as it was sent, breakpoints and key of the cache included
            request = dressed(sent)
            options = call_arguments(sent, request, call=asked)
            summarizer = replace(summarizer, sent=(asked, request, options))

    previous = window.session.summary

    def write() -> Any:
        made = summarizer.summarize(messages, previous=previous, max_tokens=max_tokens)
        if isinstance(made, Written):  # a provider's own block stays as it is
            return made
        text = written_text(made)
        text = first_part(text, longest(max_tokens), window.price_text)
        return checked(text, window.history.messages, previous)

    return write


def writing_summary(write: Write, *, timeout_seconds: float) -> Work[Written]:
    """The work of writing a summary in a thread while the caller waits, for sync and async ones.

    Raises:
        SummarizationError: the summarizer failed, was too slow, or wrote nothing that can be used.
    """
    try:
        written: Written = yield Wait.within(
            timeout_seconds,
            lambda is_waiting: in_daemon(attempting(write, is_waiting=is_waiting)),
        )
    except TimeoutError as error:
        raise SummarizationError(too_slow(timeout_seconds)) from error
    return written


def attempting(write: Write, *, is_waiting: bool = False) -> Callable[[], Written]:
    """Return what writes one summary in a thread of its own, with what its model calls cost.

    The caller's callbacks see it, nothing is streamed. What is only async runs on the caller's event loop, unless that
    waits for the summary itself. It raises `SummarizationError` whatever went wrong; not even what is no `Exception`
    passes through, such as a panic in an extension.
    """
    callbacks = ensure_config().get("callbacks")
    try:
        loop = None if is_waiting else asyncio.get_running_loop()
    except RuntimeError:
        loop = None

    def attempt() -> Written:
        meter, began = _Meter(), time.perf_counter()
        both = merge_configs({"callbacks": callbacks}, {"callbacks": [meter]})
        var_child_runnable_config.set({**CALL_CONFIG, "callbacks": both["callbacks"]})
        caller_loop.set(loop)
        try:
            summary = write()
            if not isinstance(summary, Written):
                summary = Written(text=written_text(summary))
            meter.tokens.update(summary.tokens)
            return replace(
                summary,
                tokens=dict(meter.tokens),
                seconds=time.perf_counter() - began,
            )
        except SummarizationError:
            raise
        except BaseException as error:
            raise SummarizationError(
                f"the summarizer failed: {type(error).__name__}: {error}"
            ) from error

    return attempt


def too_slow(timeout_seconds: float) -> str:
    """Return why a summary is given up that was not written in time."""
    return f"no summary within {timeout_seconds:g} seconds: use a faster summarizer or raise summary_timeout_seconds"


class _Meter(BaseCallbackHandler):
    """Counts the tokens of one summary, wherever LangChain's callbacks reach."""

    run_inline = True  # calls that are awaited would otherwise report through a pool whose threads hold up the exit

    def __init__(self) -> None:
        self.tokens = Counter[str]()

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        # several choices of one answer repeat the same report
        first = response.generations[0][0]
        usage = Usage.of_answer(getattr(first, "message", None))
        for one in (usage, *usage.compactions):
            self.tokens.update({name: getattr(one, name) or 0 for name in TOKENS})


class SummaryStore:
    """One place per conversation in a LangGraph store; the next text takes the place of the last one.

    Args:
        store: where it is.
        thread_id: the conversation.
        path: names of the subgraphs that lead to the agent, where it is not the thread's own.
    """

    def __init__(self, store: BaseStore, thread_id: str, path: str = "") -> None:
        self._texts = ThreadStore(store, "summaries", thread_id)
        self._place = digest(path)

    def put(self, key: str, written: Written) -> None:
        """Store a summary; blocks while the store does: for background threads."""
        # in ASCII: some databases refuse the control characters and surrogates that a model may write
        text = json.dumps({"key": key, **asdict(written)})
        run(self._texts.putting({self._place: text}))

    def get(self, key: str) -> Written | None:
        """Return the summary stored under this key, or None; on the event loop of an async store use `getting`."""
        return run(self.getting(key))

    def getting(self, key: str) -> Work[Written | None]:
        """The work of `get`, for sync and async callers."""
        texts = yield from self._texts.getting([self._place])
        try:
            fields = json.loads(texts[self._place])
            return Written(**fields) if fields.pop("key") == key else None
        except (AttributeError, LookupError, TypeError, ValueError):  # none, or damaged
            return None


# ---- what a model makes up is marked, and what is no summary is refused ----------------------------------------------

MARK = " [not in the conversation]"
# Times its compressed size: texts that people and good models write reach 3, lists of like lines 4, runaways 5 to 13.
MOST_REPETITION = 5.0
# Share of its terms that stand in what a summary covers: in another language names and numbers alone. A few words are
# not enough to tell.
HELD_SHARE, LEAST_TERMS = 0.2, 8
# Digits, with what writers put between them; longer ones are encoded data.
_NUMBER = re.compile(r"[0-9][0-9.,'\u2019\u00a0\u202f]{0,38}[0-9]|[0-9]")
# Words as the record reads them, but a number whole, whatever stands between its digits.
_TOKEN = re.compile(rf"(?:{_NUMBER.pattern}|[A-Za-z0-9_./#@:+$€£%~-])+")
_DECIMALS = re.compile(r"(.*?)(?:[.,](\d{1,2}))?")
_BARE = re.compile(rf"(?:[A-Z]{{0,3}}[$€£])?({_NUMBER.pattern})[%$€£]?")


def checked(summary: str, conversation: Sequence[AnyMessage], previous: str) -> str:
    """Return a summary with marks at what stands neither in the conversation nor in the summary before.

    All of the conversation counts: a summary may name what comes later than its own messages.

    Raises:
        SummarizationError: it repeats itself, or holds nothing of the conversation.
    """
    sources = [*map(readable_text, conversation), previous]
    if fault := fault_of(summary, sources):
        raise SummarizationError(f"{fault}: use a larger model as summarizer")
    return marked(summary, sources)


def fault_of(summary: str, sources: Sequence[str]) -> str:
    """Return why a text is no summary of the sources; empty where it may be one.

    Examples:
        >>> fault_of("I'm sorry for any issues you may have. " * 9, ["Where is A-17?"])
        'the summary repeats itself'
    """
    data = summary.encode("utf-8", "surrogatepass")
    if len(data) > MOST_REPETITION * len(zlib.compress(data)):
        return "the summary repeats itself"
    wanted, texts = query_terms(summary), [text.casefold() for text in sources]
    held = sum(any(term in text for text in texts) for term in wanted)
    if len(wanted) >= LEAST_TERMS and held < HELD_SHARE * len(wanted):
        return "the summary holds nothing of what it covers"
    return ""


def marked(summary: str, sources: Sequence[str]) -> str:
    """Return a summary with a mark behind each value that it makes up.

    Examples:
        >>> marked("Order A-17 goes to 4711 Graz.", ["Where is order A-17?"])
        'Order A-17 goes to 4711 [not in the conversation] Graz.'
    """
    for text in unsupported(summary, sources):
        whole = rf"(?<!\w)(?<!\d[.,]){re.escape(text)}(?!\w|[.,]\d|{re.escape(MARK)})"
        summary = re.sub(whole, lambda match: match[0] + MARK, summary)
    return summary


def marked_in(summary: str) -> list[str]:
    r"""Return what bears a mark, each with the beginning of its line.

    Examples:
        >>> marked_in("It is late.\nIt goes to 4711 [not in the conversation] Graz.")
        ['It goes to 4711']
    """
    return [part.rpartition("\n")[2].strip() for part in summary.split(MARK)[:-1]]


def unsupported(summary: str, sources: Sequence[str]) -> list[str]:
    """Return the values of a summary that no source holds: numbers, addresses, names of files.

    A number counts by its value, however it is written.

    Examples:
        >>> unsupported("Order A-17 goes to 4711 Graz.", ["Where is order A-17?"])
        ['4711']
        >>> unsupported("It cost $1,234.50.", ["The price is 1234.5 dollars."])
        []
    """
    sources = [text for text in sources if MARK not in text]
    numbers = {_digits(one) for text in sources for one in _NUMBER.findall(text)}

    def is_held(value: str) -> bool:
        bare = _BARE.fullmatch(value)
        is_number = bare is not None and _digits(bare[1]) in numbers
        return is_number or any(value in text for text in sources)

    values = filter(is_value, {one.strip(EDGES) for one in _TOKEN.findall(summary)})
    return [value for value in sorted(values) if not is_held(value)]


def _digits(number: str) -> str:
    """The digits of a number, the same for `1,234.50`, `1.234,5` and `1234.5`."""
    whole, part = _DECIMALS.fullmatch(number).groups("")  # type: ignore[union-attr]  # matches any text
    return re.sub(r"\D", "", whole) + part.rstrip("0")
