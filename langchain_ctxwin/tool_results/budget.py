"""Budget of one call of a tool: how many tokens its result may take, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables.config import ensure_config

from langchain_ctxwin.config import ToolResultConfig
from langchain_ctxwin.core.tokens import CharRatioCounter, TokenEstimator, text_price
from langchain_ctxwin.guarded import GuardedCounter
from langchain_ctxwin.protocols import RequestCounter, TokenCounter
from langchain_ctxwin.tool_results.contents import content_of, stays_blocks

MIN_TOKENS = 300
"""A page is not made smaller because the window is nearly full: with less, its notes leave no room for data. Older
results make room for it at the next step."""

PAGE_SHARE = 0.1
"""Part of the input limit that a page may take which is read on, however full the window is. A part of what is left
would become so small while the window fills up that reading takes three times as many calls."""

Scope = Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool, and what its result may take."""

    tool: str
    args: Mapping[str, Any]
    thread: str
    """Tenant and thread."""

    budget_tokens: int
    """Largest size of the result, or of a page of it."""

    texts: tuple[str, ...]
    """What the result is asked for: texts among the arguments, and the current user message."""

    config: ToolResultConfig
    """Settings of this tool."""


class Prices:
    """Prices texts and contents by the upper bound of a counter, because what is shown has to fit.

    Key init args:
        counter: counts tokens; by default `TokenEstimator()`.
    """

    def __init__(self, counter: TokenCounter | None) -> None:
        self._count = _safe(counter)
        self._count_text = text_price(self._count)
        self._upper: Callable[[int], int] = getattr(self._count, "upper", int)
        self._empty = self._count([ToolMessage("", tool_call_id="")])

    def text(self, text: str) -> int:
        """Return the tokens of a text."""
        return self._upper(self._count_text(text))

    def content(self, content: Any) -> int:
        """Return the tokens of a message's content, media by kind and size."""
        if isinstance(content, str):
            return self.text(content)
        if not stays_blocks(content):
            return self.text(content_of(content).text)
        return self._upper(max(0, self._count([ToolMessage(content, tool_call_id="")]) - self._empty))

    def message(self, message: Any) -> int:
        """Return the tokens of a message."""
        return self._upper(self._count([message]))


def _safe(counter: Any) -> TokenCounter:
    """A counter that cannot fail a tool call; one that asks a provider estimates here: pages are priced often."""
    if isinstance(counter, RequestCounter):
        return counter.estimator
    if counter is None:
        return TokenEstimator()
    return (
        counter if isinstance(counter, TokenEstimator | CharRatioCounter) else GuardedCounter(counter, TokenEstimator())
    )


def budget_of(config: ToolResultConfig, state: Any, prices: Prices, *, is_page: bool = False) -> int:
    """Return the largest size of one result: the configured one, or its part of the room left in the window.

    The room is what the last `context_report` left of the input limit, less the message that made the calls; the calls
    of one step share it. Without a report only the configured size counts.
    """
    report = _of(state, "context_report")
    limit, total = (_of(report, name) for name in ("input_limit", "total_tokens"))
    if not isinstance(limit, int) or not isinstance(total, int):
        return config.max_tokens
    asking = next((message for message in reversed(_messages(state)) if isinstance(message, AIMessage)), None)
    room = limit - total - (prices.message(asking) if asking else 0)
    calls = max(1, len(asking.tool_calls) if asking else 1)
    least = int(PAGE_SHARE * limit / calls) if is_page else 0
    return min(config.max_tokens, max(MIN_TOKENS, least, int(config.max_share * room / calls)))


def thread_of(runtime: Any) -> str:
    """Return the id of the thread that a tool runs in, an empty string outside of a thread."""
    found = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    if found is None:
        # A tool that is invoked in a node without a `ToolNode` gets no runtime, but runs in a thread all the same.
        config = getattr(runtime, "config", None) or ensure_config()
        found = (config.get("configurable") or {}).get("thread_id")
    return "" if found is None else str(found)


def known_contents(state: Any) -> dict[str, Any]:
    """Return the contents of the messages in a graph state by their ids."""
    return {message.id: message.content for message in _messages(state) if getattr(message, "id", None)}


def asked_texts(args: Mapping[str, Any], state: Any) -> tuple[str, ...]:
    """Return the texts that say what a result is asked for: those of the arguments, and the current user message."""
    asked = next((message for message in reversed(_messages(state)) if isinstance(message, HumanMessage)), None)
    return (*_strings(args), *([asked.text] if asked else []))


def _messages(state: Any) -> Sequence[Any]:
    """The messages of a graph state in any of its forms."""
    found = state if isinstance(state, list) else _of(state, "messages")
    return found if isinstance(found, Sequence) else ()


def _of(state: Any, key: str) -> Any:
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def _strings(value: Any) -> Iterator[str]:
    parts: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for part in parts:
        if isinstance(part, str):
            yield part
        else:
            yield from _strings(part)
