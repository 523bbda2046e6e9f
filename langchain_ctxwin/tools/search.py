"""A tool by which a model finds tools that are not loaded; what it finds is loaded with the next request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from pydantic import BaseModel, Field

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.native import FOUND_KEY
from langchain_ctxwin.core.session import valid_tools
from langchain_ctxwin.core.tokens import text_price
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.tools.entries import Entry
from langchain_ctxwin.tools.needs import LINE_NAME_END, LINE_START, needs_of
from langchain_ctxwin.tools.ranking import Ranker, Ranking

SEARCH_NAME = "search_tools"

MAX_RESULTS = 5
"""Tools that one search shows and loads: more would push out too many of those that are loaded."""

MATCH_SHARE = 0.5
"""Least score beside the best new tool's of what is shown with it."""

MAX_RESULT_TOKENS = 400
"""Room of one answer: five names with a line each."""

DESCRIPTION = (
    "Find more tools. You see only some of the tools that exist. When none of yours does what is needed, describe in a "
    "few words what the tool should do; the tools that are found can be called in your next step."
)

NOTHING_FOUND = "No other tool matches these words. Try others, or go on with the tools that you have."

INTRODUCTION = "Found; you can call these now:"

Answer = tuple[str, dict[str, list[str]] | None]
"""What the model reads, and the names of the tools that were found."""

Runtime = Annotated[Any, InjectedToolArg]
"""LangGraph gives its `ToolRuntime` to an argument with the name `runtime`; a plain call has none."""


@cache
def _arguments() -> type[BaseModel]:
    """The schema of what a model gives to the tool; made when there is one, because making it takes long."""

    class Search(BaseModel):
        """What a model gives to the tool."""

        query: str = Field(description="What the tool should do, for example: convert currencies.")
        runtime: Runtime = None

    return Search


def create_search_tool(
    entries: Sequence[Entry], ranker: Ranker, counter: TokenCounter | None, never: frozenset[int] = frozenset()
) -> BaseTool:
    """Return the tool `search_tools`.

    It leaves out the tools that the state key `context_tools` names, because the model has them, and those at the
    positions `never`, which cannot be loaded.
    """
    price = text_price(counter)

    def left_out(runtime: Any) -> set[int]:
        loaded = _loaded(runtime)
        return {index for index, entry in enumerate(entries) if index in never or entry.name in loaded}

    def search_tools(query: str, runtime: Runtime = None) -> Answer:
        return _answer(entries, ranker.rank(needs_of(query, SEARCH_NAME)), left_out(runtime), price)

    async def asearch_tools(query: str, runtime: Runtime = None) -> Answer:
        return _answer(entries, await ranker.arank(needs_of(query, SEARCH_NAME)), left_out(runtime), price)

    return StructuredTool.from_function(
        search_tools,
        asearch_tools,
        name=SEARCH_NAME,
        description=DESCRIPTION,
        args_schema=_arguments(),
        response_format="content_and_artifact",
    )


def named_in(lines: Iterable[str], numbers: Mapping[str, int]) -> list[int]:
    """Return the positions of the tools with which lines of an answer begin; a name may hold a colon itself."""
    return [number for line in lines if (number := _leading_name(line, numbers)) is not None]


def _leading_name(line: str, numbers: Mapping[str, int]) -> int | None:
    cut = line.find(LINE_NAME_END)
    while cut >= 0:
        if line[:cut] in numbers:
            return numbers[line[:cut]]
        cut = line.find(LINE_NAME_END, cut + 1)
    return numbers.get(line)


def _loaded(runtime: Any) -> set[str]:
    state = getattr(runtime, "state", None)
    return set(valid_tools(state.get("context_tools"))[0]) if isinstance(state, Mapping) else set()


def _answer(entries: Sequence[Entry], ranking: Ranking, left_out: set[int], price: Callable[[str], int]) -> Answer:
    """The best tools that can be loaded, a line each, as many as there is room for; and their names."""
    matching = [index for index in ranking.order if ranking.scores[index] > 0 and index not in left_out]
    least = MATCH_SHARE * ranking.scores[matching[0]] if matching else 0
    new = [entries[index] for index in matching[:MAX_RESULTS] if ranking.scores[index] >= least]
    fit = take_while_fits(map(_line, new), MAX_RESULT_TOKENS - price(INTRODUCTION), price, on_overflow="skip")
    names = [entry.name for entry in new if _line(entry) in fit.kept]
    return ("\n".join([INTRODUCTION, *fit.kept]), {FOUND_KEY: names}) if names else (NOTHING_FOUND, None)


def _line(entry: Entry) -> str:
    return f"{LINE_START}{entry.name}{LINE_NAME_END}{entry.summary}" if entry.summary else f"{LINE_START}{entry.name}"
