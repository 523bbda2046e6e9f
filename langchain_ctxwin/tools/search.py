"""A tool by which a model finds tools that are not loaded; what it finds is loaded with the next request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from pydantic import BaseModel, Field

from langchain_ctxwin.core.fitting import take_while_fits
from langchain_ctxwin.core.native import FOUND_KEY
from langchain_ctxwin.core.session import valid_tools
from langchain_ctxwin.core.tokens import text_price
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.tools.entries import Entry
from langchain_ctxwin.tools.needs import LINE_NAME_END, LINE_START, SEARCH_NAME, needs_of

if TYPE_CHECKING:
    from langchain_ctxwin.tools.ranking import Ranker, Ranking

MAX_RESULTS = 5
"""Tools that one search shows and loads: more would push out too many of those that are loaded."""

MATCH_SHARE = 0.5  # least score, beside that of the best new tool, of what is shown with it
MAX_RESULT_TOKENS = 400  # five names with a line each

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


class Search(BaseModel):
    """What a model gives to the tool."""

    query: str = Field(description="What the tool should do, for example: convert currencies.")
    runtime: Runtime = None


def create_search_tool(
    entries: Sequence[Entry], ranker: Ranker, counter: TokenCounter | None, never: Collection[int] = ()
) -> BaseTool:
    """Return the tool `search_tools`.

    It leaves out the tools that the state key `context_tools` names, because the model has them, and those at the
    positions `never`, which cannot be loaded.
    """
    price = text_price(counter)

    def answer(ranking: Ranking, runtime: Any) -> Answer:
        state = getattr(runtime, "state", None)
        loaded = valid_tools(state.get("context_tools"))[0] if isinstance(state, Mapping) else ()
        left_out = {number for number, entry in enumerate(entries) if number in never or entry.name in loaded}
        return _answer(entries, ranking, left_out, price)

    def search_tools(query: str, runtime: Runtime = None) -> Answer:
        return answer(ranker.rank(needs_of(query)), runtime)

    async def asearch_tools(query: str, runtime: Runtime = None) -> Answer:
        return answer(await ranker.arank(needs_of(query)), runtime)

    return StructuredTool.from_function(
        search_tools,
        asearch_tools,
        name=SEARCH_NAME,
        description=DESCRIPTION,
        args_schema=Search,
        response_format="content_and_artifact",
    )


def _answer(
    entries: Sequence[Entry], ranking: Ranking, left_out: Collection[int], price: Callable[[str], int]
) -> Answer:
    """The best tools that can be loaded, a line each, as many as there is room for; and their names."""
    matching = [number for number in ranking.order if ranking.scores[number] > 0 and number not in left_out]
    least = MATCH_SHARE * ranking.scores[matching[0]] if matching else 0
    new = [entries[number] for number in matching[:MAX_RESULTS] if ranking.scores[number] >= least]
    lines = {
        f"{LINE_START}{entry.name}" + (f"{LINE_NAME_END}{entry.summary}" if entry.summary else ""): entry.name
        for entry in new
    }
    fit = take_while_fits(lines, MAX_RESULT_TOKENS - price(INTRODUCTION), price, on_overflow="skip")
    if not fit.kept:
        return NOTHING_FOUND, None
    return "\n".join([INTRODUCTION, *fit.kept]), {FOUND_KEY: [lines[line] for line in fit.kept]}
