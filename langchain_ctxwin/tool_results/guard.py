"""`ToolResultGuard`: a tool result that is too large is kept, and shown in a form that fits, with a way to the rest."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    StructuredTool,
    ToolException,
)
from langchain_core.tools import tool as as_tool
from langchain_core.tools.base import get_all_basemodel_annotations
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command
from pydantic import BaseModel, RootModel, create_model

from langchain_ctxwin.config import ToolResultConfig, group_of
from langchain_ctxwin.core.events import ToolResultEvent
from langchain_ctxwin.core.fitting import Fit, take_while_fits
from langchain_ctxwin.core.notes import READ_MORE
from langchain_ctxwin.core.provider_blocks import leaves
from langchain_ctxwin.core.tokens import TokenEstimator, text_price
from langchain_ctxwin.core.tool_schemas import listed
from langchain_ctxwin.errors import ConfigError, CursorError, ResultGoneError, expect
from langchain_ctxwin.protocols import Clock, MetricsSink, ResultStore, TokenCounter
from langchain_ctxwin.reporting import Reporter
from langchain_ctxwin.tool_results.cursors import (
    ID_CHARS,
    PROCESS_KEY,
    TTL_SECONDS,
    CursorSigner,
    ResultRecord,
    args_digest,
    key_of,
    parsed,
)
from langchain_ctxwin.tool_results.pages import Reader
from langchain_ctxwin.tool_results.query import Question, question_of
from langchain_ctxwin.tool_results.showing import (
    content_text,
    is_blocks,
    is_media,
    is_shortened,
    query_words,
    stays_blocks,
    with_addresses,
)
from langchain_ctxwin.tool_results.stores import MemoryResultStore
from langchain_ctxwin.util.log import log, reason_of
from langchain_ctxwin.util.work import in_daemon

MIN_TOKENS = 300
"""A page is not made smaller because the window is nearly full: with less, its notes leave no room for data. Older
results make room for it at the next step."""

PAGE_SHARE = 0.1
"""Part of the input limit that a page may take which is read on, however full the window is. A part of what is left
would become so small while the window fills up that reading takes three times as many calls."""

# a result that is kept as long as its thread: longer than any
THREAD_SECONDS = 10 * 365 * 86_400.0

# of the budget of a large result, that media may take beside a long text
MEDIA_SHARE = 0.5
NAME_TAKEN = f"a tool has the name {READ_MORE!r}, which the guard's own tool has: give yours another name"


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
        counter: counts tokens; by default an estimator, of whose estimates the upper bound counts.
        clock: seconds since the epoch.
        scope: a function of the tool's runtime that returns tenant and thread; by default the thread's id. A result can
            be read in its own scope only.
        new_id: makes ids of results, of at most 13 characters (A-Z, a-z, 0-9, `_`, `-`); they must not be guessable.
        sinks: take a `ToolResultEvent` for each result, see `langchain_ctxwin.observe`.

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
        scope: Callable[[Any], str] | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(ID_CHARS * 3 // 4),
        sinks: Iterable[MetricsSink] = (),
    ) -> None:
        settings = group_of(config or ToolResultConfig(), "tool_results")
        wanted = "a store with the methods put, get and delete, or None"
        expect(store, ResultStore | None, "store", wanted)
        if not isinstance(signer, CursorSigner | None):
            raise ConfigError(  # which never shows what may be a key
                f"signer is {type(signer).__name__}: pass a CursorSigner, or the keys as "
                "ToolResultConfig(cursor_keys=[...])"
            )
        self._config = config or settings
        self._signer = signer
        self._store = MemoryResultStore(clock=clock) if store is None else store
        self._clock = clock
        self._scope = thread_of if scope is None else scope
        self._new_id = new_id
        self._prices = ContentPrices(counter)
        self._reporter = Reporter(sinks)

    @property
    def config(self) -> ToolResultConfig:
        """The settings that hold now."""
        settings: ToolResultConfig = group_of(self._config, "tool_results")
        return settings

    @property
    def tools(self) -> list[BaseTool]:
        """The tools that the model needs to read on: bind them beside your own."""
        return [read_more_tool(self.read, self.aread)]

    def within(self, reporter: Reporter) -> ToolResultGuard:
        """Return this guard with the sinks of an agent, where it was made without any."""
        other = copy(self)
        if not self._reporter.sinks:
            other._reporter = reporter  # noqa: SLF001
        return other

    def wrap(self, tools: Sequence[Any]) -> list[BaseTool]:
        """Return the tools with guarded results, and `read_more`; see `others`."""
        return [*(wrapped(tool, self) for tool in self.others(tools)), *self.tools]

    def others(self, tools: Sequence[Any]) -> list[BaseTool]:
        """Return tools without `read_more` of this or another guard; functions become tools.

        Raises:
            ConfigError: one of them is no tool, or one of yours has the name `read_more`.
        """
        return [
            tool for tool in map(_as_own_tool, listed(tools)) if not is_read_more(tool)
        ]

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Guard one call of a `ToolNode` or of `create_agent`."""
        call = request.tool_call
        return self.output(
            handler(request), call["name"], call["args"], request.runtime
        )

    async def awrap_tool_call(
        self, request: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Like `wrap_tool_call`, for async runs."""
        call, output = request.tool_call, await handler(request)
        return await self.aoutput(output, call["name"], call["args"], request.runtime)

    def output(
        self, output: Any, tool: str, args: Mapping[str, Any], runtime: Any = None
    ) -> Any:
        """Return a tool's output, made to fit: a message, a command with messages, a list of them, or a value."""
        return self._views(output, tool, args, runtime, None)

    async def aoutput(
        self, output: Any, tool: str, args: Mapping[str, Any], runtime: Any = None
    ) -> Any:
        """Like `output`, in a thread, so that the event loop goes on."""
        loop = asyncio.get_running_loop()
        return await _aside(partial(self._views, output, tool, args, runtime, loop))

    def read(self, cursor: str, *, runtime: Any = None, **arguments: Any) -> str:
        """Return a page of a kept result, as the tool `read_more` does.

        Args:
            cursor: as the notes show it.
            runtime: names tenant and thread.
            arguments: `contains`, a regular expression that must match, whatever its case; `fields`, paths of the
                fields to show, `*` for all; `where`, an expression that must hold, see `tool_results.query`; `sort`,
                fields to sort by, after `-` the largest first; `count_by`, fields whose values are counted.

        Raises:
            CursorTamperedError: the cursor was changed, or belongs elsewhere.
            CursorExpiredError: it is too old.
            ResultGoneError: the result is no longer kept.
            ConfigError: an argument cannot be read, is of the wrong type or out of range.
        """
        return self._answered(cursor, question_of(**arguments), runtime, None)

    async def aread(self, cursor: str, *, runtime: Any = None, **arguments: Any) -> str:
        """Like `read`, without blocking the event loop."""
        question, loop = question_of(**arguments), asyncio.get_running_loop()
        page: str = await _aside(
            partial(self._answered, cursor, question, runtime, loop)
        )
        return page

    def _views(
        self, output: Any, tool: str, args: Mapping[str, Any], runtime: Any, loop: Any
    ) -> Any:
        """The output with what is shown of its contents; `loop` is that of an async run, where stores are awaited."""
        config, state = self.config.for_tool(tool), getattr(runtime, "state", None)
        if tool == READ_MORE or not config.enabled:
            return output
        questions = [
            message.text
            for message in _messages(state)
            if isinstance(message, HumanMessage)
        ]
        texts = (text for text in leaves(args) if isinstance(text, str))
        record = ResultRecord(
            tool=tool,
            args_digest=args_digest(args),
            thread=self._scope(runtime),
            text="",
            words=query_words((*texts, *questions[-1:])),
            extraction=config.extraction,
        )
        budget = budget_of(config, state, self._prices)
        look = partial(self._shown, record, config, budget, loop)
        return with_views(output, look, getattr(runtime, "tool_call_id", None))

    def _shown(
        self,
        record: ResultRecord,
        config: ToolResultConfig,
        budget_tokens: int,
        loop: Any,
        content: Any,
    ) -> Any:
        """What is shown of a result: the result itself where it fits and no setting shortens it."""
        size = self._prices.content(content)
        shown, is_large = content, size > budget_tokens
        facts: dict[str, Any] = {}
        if is_large or config.chosen_fields:
            record = replace(record, text=content_text(with_addresses(content)))
            if is_large or is_shortened(record.text, config.chosen_fields):
                media = self._media(content, budget_tokens)
                tokens = budget_tokens - media.tokens
                text = self._first_page(record, config, tokens, loop)
                facts |= {
                    "shown_tokens": self._prices.content(text) + media.tokens,
                    "is_reduced": True,
                }
                shown = text
                if media.kept:
                    shown = [{"type": "text", "text": text}, *media.kept]
        self._reporter.emit(
            ToolResultEvent(
                tool=record.tool,
                tokens=size,
                is_oversized=is_large,
                **facts,
            )
        )
        return shown

    def _first_page(
        self,
        record: ResultRecord,
        config: ToolResultConfig,
        tokens: int,
        loop: Any,
    ) -> str:
        """The first page of a result, all of which is stored where it is more than that."""
        result_id = self._new_id()
        key = key_of(record.thread, result_id)
        path_of = getattr(self._store, "path_of", None)
        place = f"\n[All of it is in the file {path_of(key)}]" if path_of else ""
        tokens -= self._prices.text(place)
        reader = self._reader(result_id, record, config)
        first = partial(reader.first, config, tokens)
        answer = first(is_stored=True)
        if answer.is_everything:
            return answer.text
        kept: Any = answer.view.style
        ttl_seconds = self._ttl_seconds(config)
        failure = self._call_store(loop, "put", key, kept.to_bytes(), ttl_seconds)
        if isinstance(failure, Exception):
            return first(is_stored=False).text
        return f"{answer.text}{place}"

    def _media(self, content: Any, budget_tokens: int) -> Fit[Any]:
        """The media that stay beside the text: as many as the budget holds, where the text is short."""
        blocks = with_addresses(list(content)) if is_blocks(content) else []
        media = [block for block in blocks if is_media(block) and stays_blocks([block])]
        others = [block for block in blocks if not is_media(block)]
        text_tokens = MIN_TOKENS + self._prices.content(others)
        room = max(int(MEDIA_SHARE * budget_tokens), budget_tokens - text_tokens)
        return take_while_fits(
            media, room, lambda block: self._prices.content([block]), on_overflow="skip"
        )

    def _answered(
        self, cursor: str, question: Question, runtime: Any, loop: Any
    ) -> str:
        """The page that a cursor stands for; it also renews the time to live of the result."""
        result_id, *_ = parsed(cursor)
        key = key_of(self._scope(runtime), result_id)
        record_bytes = self._call_store(loop, "get", key)
        if isinstance(record_bytes, Exception):
            raise ResultGoneError(
                "the store of results does not answer now: ask once more later, or call the tool again if repeating it "
                "is safe"
            ) from record_bytes
        if record_bytes is None:
            raise ResultGoneError(
                "this result is no longer stored: it expired or was displaced. Call the tool again only if repeating "
                "it is safe"
            )
        record = ResultRecord.from_bytes(record_bytes)
        config = self.config.for_tool(record.tool)
        state = getattr(runtime, "state", None)
        tokens = budget_of(config, state, self._prices, is_page=True)
        question = replace(question, rows=config.page_rows)
        page = self._reader(result_id, record, config).answer(cursor, question, tokens)
        self._call_store(loop, "put", key, record_bytes, self._ttl_seconds(config))
        return page.text

    def _ttl_seconds(self, config: ToolResultConfig) -> float:
        """How long a result is kept: as stated, else as long as its thread where there is a store of its own."""
        if config.ttl_seconds is not None:
            return config.ttl_seconds
        is_own = isinstance(self._store, MemoryResultStore)
        return TTL_SECONDS if is_own else THREAD_SECONDS

    def _reader(
        self, result_id: str, record: ResultRecord, config: ToolResultConfig
    ) -> Reader:
        keys = [key.get_secret_value() for key in self.config.cursor_keys]
        signer = self._signer or CursorSigner(
            keys or PROCESS_KEY, self._ttl_seconds(config), self._clock
        )
        return Reader(result_id, record, signer, self._prices.text)

    def _call_store(self, loop: Any, method: str, *args: Any) -> Any:
        """Call a method of the store, its async twin in async runs; the error it fails with is returned."""
        own = getattr(self._store, f"a{method}", None)
        try:
            if loop is None or own is None:
                return getattr(self._store, method)(*args)
            return asyncio.run_coroutine_threadsafe(own(*args), loop).result()
        except Exception as error:  # noqa: BLE001  # stores have no common error, and none may fail the call
            event = "not_stored" if method == "put" else "not_read"
            log.warning(f"tool_result.{event}", key=args[0], error=reason_of(error))
            return error


async def _aside(work: Callable[[], Any]) -> Any:
    """Do blocking work in a thread, in the context of the run, and let the event loop go on."""
    return await asyncio.wrap_future(in_daemon(work, copy_context()))


class ContentPrices:
    """Prices texts and contents by the upper bound of a counter, because what is shown has to fit."""

    def __init__(self, counter: TokenCounter | None) -> None:
        count: Any = TokenEstimator() if counter is None else counter
        self._count = count
        self._count_text = text_price(count)
        self._upper: Callable[[int], int] = getattr(count, "upper", int)

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._upper(self._count_text(text))

    def content(self, content: Any) -> int:
        """Return the tokens of a message's content, media by kind and size."""
        if stays_blocks(content):
            return self.message(ToolMessage(content, tool_call_id=""))
        return self.text(content_text(content))

    def message(self, message: Any) -> int:
        """Return the tokens of a message."""
        return self._upper(self._count([message]))


def budget_of(
    config: ToolResultConfig,
    state: Any,
    prices: ContentPrices,
    *,
    is_page: bool = False,
) -> int:
    """Return the largest size of one result: the configured one, or its part of the room left in the window.

    The room is what the last `context_report` left of the input limit, less the message that made the calls; the calls
    of one step share it. Without a report only the configured size counts.
    """
    report = _of(state, "context_report")
    limit, total = (_of(report, name) for name in ("input_limit", "total_tokens"))
    if not isinstance(limit, int) or not isinstance(total, int):
        return config.max_tokens
    asking = [one for one in _messages(state) if isinstance(one, AIMessage)][-1:]
    room = limit - total - sum(map(prices.message, asking))
    calls = max(1, *(len(message.tool_calls) for message in asking), 1)
    least = int(PAGE_SHARE * limit / calls) if is_page else 0
    share = int(config.max_share * room / calls)
    return min(config.max_tokens, max(MIN_TOKENS, least, share))


def thread_of(runtime: Any) -> str:
    """Return the id of the thread that a tool runs in, an empty string outside of a thread."""
    # A tool that is invoked in a node without a `ToolNode` gets no runtime, but runs in a thread all the same.
    config = getattr(runtime, "config", None) or ensure_config()
    thread_id = (config.get("configurable") or {}).get("thread_id")
    return "" if thread_id is None else str(thread_id)


def _messages(state: Any) -> Sequence[Any]:
    messages = state if isinstance(state, list) else _of(state, "messages")
    return messages if isinstance(messages, Sequence) else ()


def _of(state: Any, key: str) -> Any:
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def _as_own_tool(one: Any) -> BaseTool:
    is_function = callable(one) and not isinstance(one, BaseTool)
    made: Any = as_tool(one) if is_function else one
    own: BaseTool = expect(made, BaseTool, "tools", "functions and BaseTools")
    if own.name == READ_MORE and not is_read_more(own):
        raise ConfigError(NAME_TAKEN)
    return own


# ----------------------------------------------------------------------------------------------------------- wrapping

DESCRIPTION = (
    "Read more of a tool result that was too large to show at once. Copy `cursor` from the note beside the result. "
    "Without more it gives the next page. All other arguments ask the whole result at once and can be combined. "
    "Notation: id|user.name names the fields of the rows below, an empty cell is a field that the row lacks; … and […] "
    "and [41 more characters]: text left out; (goes on): begun on the page before."
)
"""What the tool does, and the notation of all pages: said once here, because it stands in every request anyway."""

TAG = "ctxwin:read_more"  # marks the tool, also in traces
OUR_RUNTIME = "ctxwin_runtime"  # the argument for a wrapped tool's runtime: it may have a `runtime` of its own


Look = Callable[[Any], Any]
Paths = list[str] | str | None


def wrapped(tool: BaseTool, guard: Any) -> BaseTool:
    """Return a copy of a tool whose output goes through a guard's `output` and `aoutput`.

    The tool itself runs, so that what it remembers is in one place; name, schema, errors and callbacks stay. The copy
    asks LangGraph for the runtime, also where the tool does not: the guard needs the state and the thread.
    """
    kind: Any = type(tool)
    asks_itself = _asks_for_runtime(tool)

    def run(_: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        own_input, arguments, runtime = _taken_apart(tool, tool_input)
        output = tool.run(own_input, *args, **kwargs)
        return guard.output(output, tool.name, arguments, runtime)

    async def arun(_: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        own_input, arguments, runtime = _taken_apart(tool, tool_input)
        output = await tool.arun(own_input, *args, **kwargs)
        return await guard.aoutput(output, tool.name, arguments, runtime)

    def get_input_schema(_: Any, config: Any = None) -> Any:
        schema: Any = tool.get_input_schema(config)
        if asks_itself or not issubclass(schema, BaseModel):
            return schema
        extra: dict[str, Any] = {
            OUR_RUNTIME: (Annotated[Any, InjectedToolArg, ToolRuntime], None)
        }
        # Of a tool with a JSON schema this is a root model, which takes no fields and tells nothing about arguments.
        base = None if issubclass(schema, RootModel) else schema
        return create_model(schema.__name__, __base__=base, **extra)

    methods = {"run": run, "arun": arun, "get_input_schema": get_input_schema}
    changed: Any = type(kind)(
        kind.__name__, (kind,), {"__module__": kind.__module__, **methods}
    )
    copy = tool.model_copy()
    copy.__class__ = changed
    return copy


def _taken_apart(tool: BaseTool, tool_input: Any) -> tuple[Any, dict[str, Any], Any]:
    """The input that the tool expects, the arguments of the model, and the runtime."""
    if not isinstance(tool_input, dict):
        return tool_input, {"input": tool_input}, None
    own_input = {**tool_input}
    runtimes = (one for one in tool_input.values() if isinstance(one, ToolRuntime))
    runtime = own_input.pop(OUR_RUNTIME, None) or next(runtimes, None)
    arguments = {key: value for key, value in own_input.items() if key in tool.args}
    return own_input, arguments, runtime


def _asks_for_runtime(tool: BaseTool) -> bool:
    """Say whether the tool has an argument that LangGraph fills with a runtime: by its name, or by its type."""
    func = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    annotations = {
        **getattr(func, "__annotations__", {}),
        **get_all_basemodel_annotations(tool.get_input_schema()),
    }
    return "runtime" in annotations or any(
        "ToolRuntime" in str(one) for one in annotations.values()
    )


def with_views(output: Any, look: Look, call_id: str | None = None) -> Any:
    """Return the output with views in the place of its contents; ids, status and artifacts stay.

    Of a command that hands a conversation over only the answer to this call is looked at.
    """
    match output:
        case ToolMessage() if call_id in (None, output.tool_call_id):
            return output.model_copy(update={"content": look(output.content)})
        case ToolMessage():
            return output
        case list() if any(isinstance(item, ToolOutputMixin) for item in output):
            return [with_views(item, look, call_id) for item in output]
        case Command(update={"messages": list() | ToolMessage() as messages, **others}):
            guarded = [
                with_views(item, look, call_id)
                if isinstance(item, ToolMessage)
                else item
                for item in (messages if isinstance(messages, list) else [messages])
            ]
            return replace(output, update={"messages": guarded, **others})
        case Command():
            return output
    return look(output)


def is_read_more(tool: BaseTool) -> bool:
    """Say whether this is the tool of a guard, rather than another one of the same name."""
    return tool.name == READ_MORE and TAG in (tool.tags or ())


def read_more_tool(
    read: Callable[..., str], aread: Callable[..., Awaitable[str]]
) -> BaseTool:
    """Return the tool of a guard; a fault of a cursor is an answer to the model, in a sentence that it can act on."""

    def read_more(
        cursor: Annotated[str, "The cursor, exactly as it stands in the note."],
        contains: Annotated[
            str | None, "Only what matches this regular expression, whatever its case."
        ] = None,
        fields: Annotated[
            Paths,
            'Paths of the fields to show, such as "price.amount, items[].id"; "*" for all.',
        ] = None,
        where: Annotated[
            str | None,
            'Only rows such as: total > 100 and city in (Graz, "Bad Ischl").',
        ] = None,
        sort: Annotated[
            Paths, 'Fields to sort by, "-total" for the largest first.'
        ] = None,
        count_by: Annotated[
            Paths, "Fields whose values are counted, instead of rows."
        ] = None,
        runtime: Annotated[Any, InjectedToolArg] = None,
    ) -> str:
        question = {
            "contains": contains,
            "fields": fields,
            "where": where,
            "sort": sort,
            "count_by": count_by,
        }
        try:
            return read(cursor, **question, runtime=runtime)
        except (CursorError, ConfigError) as error:
            raise ToolException(str(error)) from error

    async def aread_more(cursor: str, **question: Any) -> str:
        try:
            return await aread(cursor, **question)
        except (CursorError, ConfigError) as error:
            raise ToolException(str(error)) from error

    return StructuredTool.from_function(
        read_more,
        aread_more,
        name=READ_MORE,
        description=DESCRIPTION,
        tags=[TAG],
        handle_tool_error=True,
    )
