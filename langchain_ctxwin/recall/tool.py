"""A tool by which an agent searches and reads what left its view."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.embeddings import Embeddings
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import ToolRuntime

from langchain_ctxwin.core.tokens import text_price
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import TokenCounter
from langchain_ctxwin.recall.answers import answer, read_call
from langchain_ctxwin.recall.relevance import afind, find
from langchain_ctxwin.recall.search import MAX_TOKENS, check_settings
from langchain_ctxwin.recall.vectors import RememberedEmbeddings

MIN_TOKENS = 200
"""Least room of the tool: one chat message with its label, or a few lines of a long one."""

DESCRIPTION = (
    "Look up earlier messages of this conversation that you no longer see: what was said, tool calls, and tool results "
    "that were cleared or shortened. Give `query` to search by words; names, numbers and file names work best. Give "
    "`message_id` to read one message, as named in notes like 'still in the history as message ...'; add `query` to "
    "read it from the best match on, or `offset_chars` to read on from there."
)

Query = Annotated[str, "Words to search for."]
MessageId = Annotated[str, "Id of one message to read, or its beginning as shown by this tool."]
OffsetChars = Annotated[int, "Where to begin reading the message, in characters."]


def create_recall_tool(
    *,
    max_tokens: int = MAX_TOKENS,
    counter: TokenCounter | None = None,
    embeddings: Embeddings | None = None,
    name: str = "recall",
    description: str = DESCRIPTION,
) -> BaseTool:
    """Return a tool that gives an agent messages of its own history that it no longer sees in full.

    It reads the `messages` of the graph state, and what `context_view` says of them, so that it returns nothing that
    the model sees anyway. The model gives `query`, `message_id` or both. Messages come whole and in the order in which
    they were said; one that would take more than half of the room is shown from its best passage on, with the position
    to read on from. An answer is at most `max_tokens` long.

    Args:
        max_tokens: room of one answer, at least 200.
        counter: counts tokens; by default `TokenEstimator()`.
        embeddings: rank by meaning instead of by words; each passage is embedded once while it is remembered.
        name: how the model calls the tool.
        description: what the model is told of it.

    Raises:
        ConfigError: a setting is of the wrong type or out of range.

    Example:
        ```python
        agent = create_context_agent(model, [search, create_recall_tool()], checkpointer=InMemorySaver())
        ```
    """
    check_settings(max_tokens, counter, embeddings)
    if max_tokens < MIN_TOKENS:
        raise ConfigError(f"max_tokens={max_tokens} holds no message with its label: give at least {MIN_TOKENS}")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"name={name!r}: give the name by which the model calls the tool")
    if not isinstance(description, str) or not description.strip():
        raise ConfigError(f"description={description!r}: give the text that tells the model what the tool does")
    meaning = RememberedEmbeddings(embeddings) if embeddings else None
    price = text_price(counter)

    def recall(
        runtime: ToolRuntime[Any, Any], query: Query = "", message_id: MessageId = "", offset_chars: OffsetChars = 0
    ) -> str:
        task = read_call(runtime.state, query, message_id, offset_chars, name)
        return answer(task, find(task.pool, task.query, meaning) if task.query else [], price, max_tokens)

    async def arecall(
        runtime: ToolRuntime[Any, Any], query: Query = "", message_id: MessageId = "", offset_chars: OffsetChars = 0
    ) -> str:
        task = read_call(runtime.state, query, message_id, offset_chars, name)
        return answer(task, await afind(task.pool, task.query, meaning) if task.query else [], price, max_tokens)

    return StructuredTool.from_function(
        recall, arecall, name=name, description=description, handle_tool_error=True, parse_docstring=False
    )
