"""How does a tool's result come to fit? It is priced, kept, and shown in a form that fits, with a way to the rest."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.memo import Lru, once
from langchain_ctxwin.protocols import Clock, ResultStore, TokenCounter
from langchain_ctxwin.tool_results.budget import Call, Prices, Scope, call_of, known_contents, thread_of
from langchain_ctxwin.tool_results.contents import jsonable
from langchain_ctxwin.tool_results.cursors import CursorSigner
from langchain_ctxwin.tool_results.given import NAME_TAKEN, as_own_tool, check_arguments, check_tools, settings_of
from langchain_ctxwin.tool_results.notes import READ_MORE
from langchain_ctxwin.tool_results.outputs import contents, with_views
from langchain_ctxwin.tool_results.read_more import is_read_more, read_more_tool
from langchain_ctxwin.tool_results.reading import Fields, question_of
from langchain_ctxwin.tool_results.record import ID_CHARS
from langchain_ctxwin.tool_results.results import Results
from langchain_ctxwin.tool_results.stores import MemoryResultStore
from langchain_ctxwin.tool_results.wrapped import guarded, structured

ID_BYTES = ID_CHARS * 3 // 4

MAX_TOOLS = 256
"""Tools whose copies are remembered; making one again costs a millisecond."""

Handler = Callable[[Any], ToolMessage | Command[Any]]
AsyncHandler = Callable[[Any], Awaitable[ToolMessage | Command[Any]]]


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
        check_arguments(
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
        self._results = Results(self._store, self._signer_for, self._prices, new_id)
        self._read_more = read_more_tool(self.read, self.aread)
        self._structured: Lru[tuple[BaseTool, BaseTool]] = Lru(MAX_TOOLS)

    @property
    def config(self) -> ToolResultConfig:
        """The settings that hold now."""
        settings: ToolResultConfig = settings_of(self._config)
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
        check_tools(tools)
        return [tool for tool in map(as_own_tool, tools) if not is_read_more(tool)]

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
        return with_views(output, lambda content: self._results.shown(call, content), known)

    async def aoutput(self, output: Any, tool: str, args: Mapping[str, Any], runtime: Any = None) -> Any:
        """Like `output`, without blocking the event loop."""
        call, known = self._call(tool, args, runtime), _known(output, runtime)
        output = jsonable(output) if isinstance(output, Iterator) else output
        views = {id(content): await self._results.ashown(call, content) for content in contents(output, known)}
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
        return self._results.read(cursor, question, self._thread(runtime), self._page_of(runtime)).text

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
        return (await self._results.aread(cursor, question, self._thread(runtime), self._page_of(runtime))).text

    def _call(self, tool: str, args: Mapping[str, Any], runtime: Any, *, is_page: bool = False) -> Call:
        return call_of(
            tool,
            args,
            state=getattr(runtime, "state", None),
            thread=self._thread(runtime),
            config=self.config,
            prices=self._prices,
            is_page=is_page,
        )

    def _page_of(self, runtime: Any) -> Callable[[str], Call]:
        return lambda tool: self._call(tool, {}, runtime, is_page=True)

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
