"""`ContextState`: what a session remembers between steps, and what of it is public.

State holds JSON values and messages only, because other types do not survive strict checkpoint serialization.
"""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.channels import UntrackedValue
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from langchain_ctxwin.flow.channel import MessagesDeltaChannel


class _SessionKeys(TypedDict, total=False):
    """What both states share; every key is missing until a node writes it."""

    context_summary: str
    """The one live summary of what left the view."""

    context_record: dict[str, Any]
    """Lines of what left the view, and how much left: `{"lines": [[kind, text, message id, uses]], "left": {...}}`."""

    context_view: dict[str, Any]
    """How the history is shown; empty shows all of it."""

    context_pending: dict[str, Any]
    """The summary that is due or ready."""

    context_counts: dict[str, Any]
    """What was learned about token counts and limits."""

    context_tools: list[str]
    """Names of the selected tools, in the order in which requests show them."""

    context_model: dict[str, Any]
    """The candidate that the conversation's requests go to, and why."""

    context_guard: dict[str, Any]
    """Compactions so far, and why automatic ones stopped."""

    context_report: dict[str, Any]
    """The last measure of the next request, in tokens per region."""

    llm_input_messages: Annotated[list[AnyMessage], UntrackedValue]
    """The request the model node sends; never checkpointed, so it is missing after a resume."""


class ContextState(_SessionKeys, total=False):
    """State of one conversation, with the full history at linear storage cost.

    ```python
    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    ```

    **Pruning.** A checkpoint holds what changed, not the whole history. Deleting older checkpoints of a thread while
    keeping newer ones (by SQL, a TTL per row, or a saver's "keep latest") makes `messages` come back empty or shorter,
    without an error, unless a snapshot happens to lie after the cut. Delete whole threads, or write the messages you
    want to keep to a new thread. Where old checkpoints must go, use `PlainContextState`.

    **Several agents.** One `ContextState` per conversation. Parallel agents that write the same `context_*` keys in one
    step raise LangGraph's `InvalidUpdateError`: give each its own subgraph. A subgraph agent forgets its `context_*`
    keys between calls, and pays for its summaries again, unless it is compiled with `checkpointer=True`.
    """

    messages: Annotated[list[AnyMessage], MessagesDeltaChannel()]
    """Full history; compaction never edits it."""


class PlainContextState(_SessionKeys, total=False):
    """The same state with LangGraph's `add_messages`: every checkpoint holds the whole history.

    Storage grows with the square of the number of messages (per checkpoint in SQLite, per write of `messages` in
    Postgres), but any single checkpoint can be kept alone. A thread can move from this state to `ContextState` at any
    time, and back.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    """Full history; compaction never edits it."""


class ContextInput(TypedDict):
    """The public input: pass it as `input_schema`, so that callers give messages only.

    LangGraph ignores what else they send, the `context_*` keys above all: who could set the summary would write into
    every request. Keys of your own that callers may set stand in a subclass.

    `update_state` and a `Command(update=...)` in the place of an input write any key, whatever the schema: they are for
    the application, not for its clients.
    """

    messages: list[AnyMessage]
    """What is new in the conversation."""


class ContextOutput(TypedDict):
    """The public output: pass it as `output_schema`, so that `invoke` and `ainvoke` return messages only.

    LangGraph's `values` streams show every state key whatever the output schema is; `output_keys` narrows them:

    ```python
    graph.stream(inputs, config, stream_mode="values", output_keys=["messages"])
    ```
    """

    messages: list[AnyMessage]
    """Full history."""
