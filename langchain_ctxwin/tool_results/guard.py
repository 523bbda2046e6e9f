"""Guard of tool results: what is too large is priced, kept, and shown in a form that fits, with a way to the rest."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langgraph.types import Command

from langchain_ctxwin.config import FileConfig, LiveConfig, ToolResultConfig
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.errors import ConfigError, ResultGoneError
from langchain_ctxwin.protocols import Clock, ResultStore, TokenCounter
from langchain_ctxwin.tool_results.budget import (
    MIN_TOKENS,
    Call,
    Prices,
    Scope,
    asked_texts,
    budget_of,
    known_contents,
    thread_of,
)
from langchain_ctxwin.tool_results.contents import content_of, is_blocks, is_media, jsonable, stays_blocks
from langchain_ctxwin.tool_results.cursors import ID_CHARS, CursorSigner, Record, args_digest, key_of, parsed
from langchain_ctxwin.tool_results.extraction import query_words
from langchain_ctxwin.tool_results.reading import READ_MORE, Answer, Fields, Question, Reader, question_of
from langchain_ctxwin.tool_results.stores import MemoryResultStore, in_thread
from langchain_ctxwin.tool_results.wrapping import (
    Reduced,
    contents,
    guarded,
    is_read_more,
    read_more_tool,
    structured,
    with_views,
)
from langchain_ctxwin.util.background import in_daemon, in_few_daemons
from langchain_ctxwin.util.memo import Lru, once

ID_BYTES = ID_CHARS * 3 // 4
NAME_TAKEN = f"a tool has the name {READ_MORE!r}, which the guard's own tool has: give yours another name"

MAX_TOOLS = 256
"""Tools whose copies are remembered; making one again costs a millisecond."""

MEDIA_SHARE = 0.5
"""Part of a result's budget that media may take; the rest tells what there is."""

STORE_SECONDS = 3.0
"""Longest wait for a store: a tool call waits for it, and a healthy one takes milliseconds for a megabyte."""

Handler = Callable[[Any], ToolMessage | Command[Any]]
AsyncHandler = Callable[[Any], Awaitable[ToolMessage | Command[Any]]]
T = TypeVar("T")
Steps = Generator[tuple[Any, ...], Any, T]
"""Work that asks a store in between: it yields the name of a method with its arguments, and is sent what came of it."""

_log = structlog.get_logger(__name__)


class ToolResultGuard:
    """Makes the results of tools fit: what is too large is kept, and shown in part with a cursor to the rest.

    A large result is reduced as little as possible: printed compactly; less important fields left out and long texts
    shortened; then page by page, whole rows first. The model reads on with the tool `read_more`.

    Setup:
        ```bash
        pip install langchain-ctxwin
        ```

    Key init args:
        config: how much is shown and how long results are kept; also anything with a `current` configuration, see
            `langchain_ctxwin.reload`.
        signer: signs cursors; by default with `config.cursor_keys`, else with a random key of this process.
        store: where large results are kept; by default in this process's memory.
        counter: counts tokens; by default an estimator. The upper bound of its estimates counts.
        clock: seconds since the epoch.
        scope: tells tenant and thread from the tool's runtime, by default the thread's id. A result can be read in its
            own scope only.
        new_id: makes ids of results; they must not be guessable.

    Instantiate:
        ```python
        guard = ToolResultGuard(ToolResultConfig(max_tokens=2000))
        ```

    Use:
        ```python
        agent = create_context_agent(model, guard.wrap([search, query]))
        ```

        or, where tool calls can be wrapped, `ToolNode([*tools, *guard.tools], wrap_tool_call=guard.wrap_tool_call)`.

    Raises:
        ConfigError: an argument is of the wrong type.
    """

    def __init__(
        self,
        config: Any = None,
        *,
        signer: CursorSigner | None = None,
        store: ResultStore | None = None,
        counter: TokenCounter | None = None,
        clock: Clock = time.time,
        scope: Scope | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(ID_BYTES),
    ) -> None:
        _check_arguments(
            config=config, signer=signer, store=store, counter=counter, scope=scope, clock=clock, new_id=new_id
        )
        self._config = ToolResultConfig() if config is None else config
        self._signer = signer
        self._clock = clock
        self._scope = thread_of if scope is None else scope
        self._counter = counter
        self._prices = Prices(counter)
        self._store: ResultStore = MemoryResultStore(clock=clock) if store is None else store
        self._new_id = new_id
        self._read_more = read_more_tool(self.read, self.aread)
        self._structured: Lru[tuple[BaseTool, BaseTool]] = Lru(MAX_TOOLS)

    @property
    def config(self) -> ToolResultConfig:
        """The settings that hold now."""
        settings: ToolResultConfig = _settings_of(self._config)
        return settings

    @property
    def tools(self) -> list[BaseTool]:
        """The tools that the model needs to read on: bind them beside your own."""
        return [self._read_more]

    def counting(self, counter: TokenCounter) -> ToolResultGuard:
        """Return this guard with a counter, where it was made without one; kept results and settings are the same."""
        if self._counter is not None:
            return self
        return ToolResultGuard(
            self._config,
            signer=self._signer,
            store=self._store,
            counter=counter,
            clock=self._clock,
            scope=self._scope,
            new_id=self._new_id,
        )

    def wrap(self, tools: Sequence[Any]) -> list[BaseTool]:
        """Return the tools with guarded results, and `read_more`; functions become tools.

        Raises:
            ConfigError: one of them is no tool, or has the name `read_more`.
        """
        return [*(guarded(tool, self) for tool in self.others(tools)), self._read_more]

    def others(self, tools: Sequence[Any]) -> list[BaseTool]:
        """Return tools without `read_more` of this or another guard; functions become tools.

        Raises:
            ConfigError: one of them is no tool, or one of yours has the name `read_more`.
        """
        if isinstance(tools, BaseTool | str) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools={tools!r:.80}: pass a list of tools")
        return [tool for tool in map(_as_own_tool, tools) if not is_read_more(tool)]

    def wrap_tool_call(self, request: Any, handler: Handler) -> ToolMessage | Command[Any]:
        """Guard one call of a `ToolNode` or of `create_agent`; `read_more` works even if the node does not have it."""
        prepared = self._prepared(request)
        output = handler(prepared)
        if request.tool_call["name"] == READ_MORE:
            return output
        guarded_output: ToolMessage | Command[Any] = self.output(
            output, request.tool_call["name"], request.tool_call["args"], request.runtime
        )
        return guarded_output

    async def awrap_tool_call(self, request: Any, handler: AsyncHandler) -> ToolMessage | Command[Any]:
        """Like `wrap_tool_call`, for async runs."""
        prepared = self._prepared(request)
        output = await handler(prepared)
        if request.tool_call["name"] == READ_MORE:
            return output
        guarded_output: ToolMessage | Command[Any] = await self.aoutput(
            output, request.tool_call["name"], request.tool_call["args"], request.runtime
        )
        return guarded_output

    def output(self, output: Any, tool: str, args: Mapping[str, Any], runtime: Any = None) -> Any:
        """Return what a tool returned, made to fit: a message, a command with messages, a list of them, or a value."""
        call, known = self._call(tool, args, runtime), _known(output, runtime)
        output = jsonable(output) if isinstance(output, Iterator) else output
        return with_views(output, lambda content: self._run(self._shown(call, content)), known)

    async def aoutput(self, output: Any, tool: str, args: Mapping[str, Any], runtime: Any = None) -> Any:
        """Like `output`, without blocking the event loop."""
        call, known = self._call(tool, args, runtime), _known(output, runtime)
        output = jsonable(output) if isinstance(output, Iterator) else output
        views = {id(content): await self._ashown(call, content) for content in contents(output, known)}
        return with_views(output, lambda content: views[id(content)], known)

    def read(
        self,
        cursor: str,
        *,
        contains: str | None = None,
        fields: Fields = None,
        page_tokens: int | None = None,
        runtime: Any = None,
    ) -> str:
        """Return a page of a kept result, as the tool `read_more` does.

        Args:
            cursor: as the notes show it.
            contains: search the whole result for this text, whatever its case.
            fields: paths of the fields to show; `*` for all.
            page_tokens: largest size of the page, at most what the tool's results may take.
            runtime: tells tenant and thread.

        Raises:
            CursorTamperedError: the cursor was changed, or belongs elsewhere.
            CursorExpiredError: it is too old.
            ResultGoneError: the result is no longer kept.
            ConfigError: a path is no path, or an argument is of the wrong type or out of range.
        """
        question = question_of(contains, fields, page_tokens)
        return self._run(self._answered(cursor, question, runtime))

    async def aread(
        self,
        cursor: str,
        *,
        contains: str | None = None,
        fields: Fields = None,
        page_tokens: int | None = None,
        runtime: Any = None,
    ) -> str:
        """Like `read`, without blocking the event loop."""
        question = question_of(contains, fields, page_tokens)
        return await self._arun(self._answered(cursor, question, runtime))

    def _shown(self, call: Call, content: Any) -> Steps[Reduced | None]:
        """What is shown of a result, None when it fits as it is. What is left out is kept before that."""
        if self._prices.content(content) <= call.budget_tokens:
            return None
        read, config, media = content_of(content), call.config, self._media_that_fits(call, content)
        result_id, tokens = self._new_id(), call.budget_tokens - media.tokens
        record = Record(
            tool=call.tool,
            args_digest=args_digest(call.args),
            thread=call.thread,
            text=read.text,
            kind=read.kind,
            words=tuple(sorted(query_words(call.texts))),
            keywords=config.keywords,
            extraction=config.extraction,
        )
        reader, is_stored = self._reader(result_id, call), False
        answer = reader.first(read, record, config, tokens, is_stored=True)
        if not answer.is_everything:
            key = key_of(call.thread, result_id)
            is_stored = yield from _kept(key, answer.record.to_bytes(), config.ttl_seconds)
            answer = answer if is_stored else reader.first(read, record, config, tokens, is_stored=False)
        _log.info(
            "tool_result.reduced",
            tool=call.tool,
            chars=len(read.text),
            shown_chars=len(answer.text),
            budget_tokens=call.budget_tokens,
            stored=is_stored,
        )
        shown = [{"type": "text", "text": answer.text}, *media.kept] if media.kept else answer.text
        return Reduced(shown, _facts(answer))

    async def _ashown(self, call: Call, content: Any) -> Reduced | None:
        # A text is priced by a sample; anything else may have to be printed first, beside the event loop.
        if isinstance(content, str) and self._prices.content(content) <= call.budget_tokens:
            return None
        return await self._arun(self._shown(call, content))

    def _media_that_fits(self, call: Call, content: Any) -> Fit[Any]:
        media = [block for block in content if is_media(block) and stays_blocks([block])] if is_blocks(content) else []
        budget = int(MEDIA_SHARE * call.budget_tokens)
        return take_while_fits(media, budget, lambda block: self._prices.content([block]), on_overflow="skip")

    def _answered(self, cursor: str, question: Question, runtime: Any) -> Steps[str]:
        """The page that a cursor stands for; only because of a good one is the result kept for longer."""
        result_id = parsed(cursor).result_id
        key = key_of(self._thread(runtime), result_id)
        kept = yield "get", key
        if isinstance(kept, Exception):
            raise ResultGoneError(
                "the store of results does not answer now: ask once more later, or call the tool again if repeating it "
                "is safe"
            ) from kept
        if not isinstance(kept, bytes):
            raise ResultGoneError(
                "this result is no longer stored: it expired or was displaced. Call the tool again only if repeating "
                "it is safe"
            )
        record = Record.from_bytes(kept)
        call = self._call(record.tool, {}, runtime, is_page=True)
        reader = self._reader(result_id, call)
        place = reader.place(record, cursor)
        is_extended = yield from _kept(key, kept, call.config.ttl_seconds)
        tokens = min(call.budget_tokens, max(MIN_TOKENS, question.tokens or call.budget_tokens))
        limited = replace(question, rows=call.config.page_rows)
        return reader.answer(record, place, limited, tokens, is_extended=is_extended).text

    def _reader(self, result_id: str, call: Call) -> Reader:
        signer = self._signer_for(call.config.ttl_seconds)
        ttl_seconds = min(signer.ttl_seconds, call.config.ttl_seconds)
        return Reader(result_id, signer, self._prices.text, ttl_seconds=ttl_seconds)

    def _run(self, steps: Steps[T]) -> T:
        is_done, found = _next(steps, None)
        while not is_done:
            method, *args = found
            try:
                reply = in_few_daemons(partial(getattr(self._store, method), *args)).result(STORE_SECONDS)
            except Exception as error:  # noqa: BLE001  # stores have no common error, and none may fail the call
                reply = _failed(method, args[0], error)
            is_done, found = _next(steps, reply)
        result: T = found
        return result

    async def _arun(self, steps: Steps[T]) -> T:
        """Like `_run`; work on large results is done beside the event loop."""
        is_done, found = await _beside(partial(_next, steps, None))
        while not is_done:
            method, *args = found
            own = getattr(self._store, f"a{method}", None)
            try:
                asked = own(*args) if own is not None else in_thread(partial(getattr(self._store, method), *args))
                reply = await asyncio.wait_for(asked, STORE_SECONDS)
            except Exception as error:  # noqa: BLE001  # see `_run`
                reply = _failed(method, args[0], error)
            is_done, found = await _beside(partial(_next, steps, reply))
        result: T = found
        return result

    def _call(self, tool: str, args: Mapping[str, Any], runtime: Any, *, is_page: bool = False) -> Call:
        """Describe one call from the state of the graph that makes it; there is no state outside of a graph."""
        state, config = getattr(runtime, "state", None), self.config.for_tool(tool)
        return Call(
            tool=tool,
            args=args,
            thread=self._thread(runtime),
            budget_tokens=budget_of(config, state, self._prices, is_page=is_page),
            texts=asked_texts(args, state),
            config=config,
        )

    def _thread(self, runtime: Any) -> str:
        thread: Any = self._scope(runtime)
        if not isinstance(thread, str):
            raise ConfigError(f"scope returned {thread!r:.60}: return tenant and thread as one text")
        return thread

    def _prepared(self, request: Any) -> Any:
        tool = request.tool
        if request.tool_call["name"] == READ_MORE:
            return request if tool is not None and is_read_more(tool) else request.override(tool=self._own(tool))
        if tool is None:
            return request
        # The value keeps the tool alive, so an id in the key cannot come to mean another one.
        return request.override(tool=once(self._structured, id(tool), lambda: (tool, structured(tool)))[1])

    def _own(self, tool: BaseTool | None) -> BaseTool:
        """The guard's tool where the node has none of its name."""
        if tool is not None:
            raise ConfigError(NAME_TAKEN)
        return self._read_more

    def _signer_for(self, ttl_seconds: float) -> CursorSigner:
        if self._signer is not None:
            return self._signer
        keys = [key.get_secret_value() for key in self.config.cursor_keys]
        if keys:
            return CursorSigner(keys, ttl_seconds, self._clock)
        return CursorSigner.random(ttl_seconds, self._clock)


def _known(output: Any, runtime: Any) -> dict[str, Any]:
    """The contents that were there before the call; looked up only where an output may repeat them."""
    return known_contents(getattr(runtime, "state", None)) if isinstance(output, Command | list) else {}


def _facts(answer: Answer) -> dict[str, Any]:
    return {
        "result_chars": len(answer.record.text),
        "rows": len(answer.layout.rows),
        "next_cursor": answer.following or None,
        "left_out": list(answer.page.shown.left_out),
        "shortened": list(answer.page.shown.shortened),
    }


def _kept(key: str, value: bytes, ttl_seconds: float) -> Steps[bool]:
    """Keep a result; False when the store failed."""
    reply = yield "put", key, value, ttl_seconds
    return not isinstance(reply, Exception)


def _next(steps: Steps[Any], reply: Any) -> tuple[bool, Any]:
    """Go on to the next question to the store, or to the end, which no future can be told by `StopIteration`."""
    try:
        return False, steps.send(reply)
    except StopIteration as end:
        return True, end.value


async def _beside(work: Callable[[], T]) -> T:
    """Run work that takes milliseconds or more in a thread, so that the event loop goes on."""
    done: T = await asyncio.wrap_future(in_daemon(work))
    return done


def _failed(method: str, key: str, error: Exception) -> Exception:
    text = f"no answer within {STORE_SECONDS:g} seconds" if isinstance(error, TimeoutError) else str(error)
    event = "tool_result.not_stored" if method == "put" else "tool_result.not_read"
    _log.warning(event, key=key, error=f"{type(error).__name__}: {text}")
    return error


def _settings_of(config: Any) -> Any:
    """Return the settings for tool results in what was given as a configuration, as they are now."""
    current = config.current if isinstance(config, LiveConfig) else config
    return current.tool_results if isinstance(current, FileConfig) else current


def _as_own_tool(one: Any) -> BaseTool:
    """Return a tool, or a function as one.

    Raises:
        ConfigError: it is none, or it would hide `read_more`.
    """
    try:
        found = one if isinstance(one, BaseTool) else as_tool(one)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{one!r:.80} is no tool: pass functions and BaseTools ({error})") from error
    if not isinstance(found, BaseTool):
        raise ConfigError(f"{one!r:.80} is no tool: pass functions and BaseTools")
    if found.name == READ_MORE and not is_read_more(found):
        raise ConfigError(NAME_TAKEN)
    return found


def _check_arguments(*, config: Any, signer: Any, store: Any, **functions: Any) -> None:
    """Raise `ConfigError` for arguments that would fail at the first large result."""
    if config is not None and not isinstance(_settings_of(config), ToolResultConfig):
        raise ConfigError(f"config={config!r:.80}: pass a ToolResultConfig, a FileConfig or a ConfigFile, or None")
    if not isinstance(signer, CursorSigner | None):
        raise ConfigError(f"signer={type(signer).__name__}: pass a CursorSigner, or None")
    if store is not None and (
        isinstance(store, type) or not all(callable(getattr(store, name, None)) for name in ("put", "get", "delete"))
    ):
        raise ConfigError(
            f"store={store!r:.80} has no methods put, get and delete: pass MemoryResultStore() or the like"
        )
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ConfigError(f"{name}={function!r:.80} cannot be called: pass a function, or leave it out")
