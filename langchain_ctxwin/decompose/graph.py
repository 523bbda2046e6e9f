"""A graph that answers a question from more text than fits any window."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import Runnable
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from langchain_ctxwin.decompose.collecting import whole_work
from langchain_ctxwin.decompose.nodes import MapReduceNodes
from langchain_ctxwin.decompose.parts import Parting
from langchain_ctxwin.decompose.prompts import MAP_PROMPT, REDUCE_PROMPT, Prompts
from langchain_ctxwin.decompose.sizes import Sizes
from langchain_ctxwin.decompose.state import MapReduceInput, MapReduceOutput, State
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.measurer import shown
from langchain_ctxwin.protocols import TokenCounter

MAX_CONCURRENCY = 8
"""Calls at a time: few enough for the rate limits of a usual account, and an eighth of the waiting."""


def create_map_reduce_graph(
    model: Runnable[Any, Any],
    *,
    limits: Any = None,
    counter: TokenCounter | None = None,
    map_prompt: str = MAP_PROMPT,
    reduce_prompt: str = REDUCE_PROMPT,
    max_concurrency: int = MAX_CONCURRENCY,
    output_reserve: int | None = None,
    sub_questions: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    store: BaseStore | None = None,
    **compile_options: Any,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a compiled graph: split the input into parts that fit, answer from each, combine the answers.

        split -> map (each part) -> collect -> [reduce (some answers each) -> collect]* -> END

    Input: `question`, and `documents` (Documents, texts, or dicts with `page_content` and `metadata`) or `text`.
    Output: `answer`; `failures`, the parts that it does not consider and why; `parts`, how many the input had; and
    `report`: parts per level, calls, tokens, where documents were cut, which answers were shortened.

    Documents stay whole where they fit, several small ones share a part, larger ones are cut between sections, else
    paragraphs, lines or sentences. Input that fits makes one call. A part that the provider refuses as too large is
    split and tried again. A part whose call fails otherwise, after the model's own retries, is reported; when all of
    them fail, the provider's exception leaves the graph. With a checkpointer, a run that ended by a crash or an
    exception goes on with `invoke(None, config)` and repeats no finished part. Each part done is an event on the
    `custom` stream.

    Args:
        model: a chat model, or a Runnable around one; set its own retries.
        limits: the model's limits, where the model does not state them itself.
        counter: counts tokens; parts are as large as its upper bound allows.
        map_prompt: instructions for the calls on documents.
        reduce_prompt: instructions for the calls that combine answers.
        max_concurrency: calls at a time; `max_concurrency` in the config of a run wins.
        output_reserve: tokens kept for each answer.
        sub_questions: ask the model first which questions the question consists of, and answer each on its own: as
            many calls for each of them as there are parts.
        checkpointer: makes runs resumable.
        store: passed on to the graph.
        **compile_options: passed to `StateGraph.compile`.

    Raises:
        UnknownModelError: neither the model nor `limits` states a limit.
        BudgetExceededError: the prompts and the output reserve leave no room; in a run, with the question.
        ConfigError: an argument, or the input of a run, is not usable.

    Example:
        ```python
        graph = create_map_reduce_graph(model)
        result = graph.invoke({"question": "Who owns which company?", "documents": documents})
        result["answer"], result["failures"]
        ```
    """
    if not isinstance(model, Runnable):
        raise ConfigError(f"model={shown(model)}: pass a chat model or a Runnable around one")
    if isinstance(max_concurrency, bool) or not isinstance(max_concurrency, int) or max_concurrency < 1:
        raise ConfigError(f"max_concurrency={max_concurrency!r}: give a whole number of calls, at least 1")
    sizes = Sizes(model, limits=limits, counter=counter, output_reserve=output_reserve)
    parting = Parting(Prompts(on_documents=map_prompt, on_answers=reduce_prompt), sizes)
    parting.of_documents(whole_work("", "", 0), [])  # prompts that leave no room are refused here
    nodes = MapReduceNodes(model, parting, sub_questions=sub_questions)
    builder = StateGraph(State, input_schema=MapReduceInput, output_schema=MapReduceOutput)
    builder.add_node("split", nodes.split, destinations=("map",))
    builder.add_node("map", nodes.map)
    builder.add_node("collect", nodes.collect, destinations=("map", "reduce", END))
    builder.add_node("reduce", nodes.reduce)
    builder.add_edge(START, "split")
    builder.add_edge("map", "collect")
    builder.add_edge("reduce", "collect")
    graph = builder.compile(checkpointer=checkpointer, store=store, **compile_options)
    return graph.with_config(max_concurrency=max_concurrency)
