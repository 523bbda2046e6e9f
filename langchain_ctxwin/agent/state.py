"""`ContextState`: what a session remembers between steps, what of it is public, and how the steps read it.

State holds JSON values and messages only, because other types do not survive strict checkpoint serialization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.channels import UntrackedValue
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from langchain_ctxwin.agent.channel import RECORD_CHANNEL, MessagesDeltaChannel, newer
from langchain_ctxwin.core.session import valid_keys, valid_tools
from langchain_ctxwin.core.turns import call_ids
from langchain_ctxwin.errors import ConfigError, brief


class _SessionKeys(TypedDict, total=False):
    """What all states share; every key is missing until a node writes it."""

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


class _NodeKeys(_SessionKeys, total=False):
    llm_input_messages: Annotated[list[AnyMessage], UntrackedValue]
    """The request, for a model node of your own; ours builds the same list from the state. Never checkpointed."""


class StepState(_NodeKeys, total=False):
    """What the nodes read of any state; a graph whose own state lacks the keys gets them with the nodes."""

    messages: list[AnyMessage]


class HookState(_SessionKeys, total=False):
    """What a `pre_model_hook` reads: the agent brings the key of the request along."""

    messages: list[AnyMessage]
    llm_input_messages: list[AnyMessage]


class ContextState(_NodeKeys, total=False):
    """State of one conversation, with the full history at linear storage cost.

    ```python
    builder = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput)
    ```

    **Pruning.** A checkpoint holds what changed, not the whole history. Deleting older checkpoints of a thread while
    keeping newer ones (by SQL, a TTL per row, or a saver's "keep latest") makes `messages` come back empty or shorter,
    without an error, unless a snapshot happens to lie after the cut. Delete whole threads, or call
    `langchain_ctxwin.pruning.prune_thread`. Where rows must go by themselves, use `PlainContextState`.

    **Several agents.** One `ContextState` per conversation. Parallel agents that write the same `context_*` keys in one
    step raise LangGraph's `InvalidUpdateError`: give each its own subgraph. A subgraph agent forgets its `context_*`
    keys between calls, and pays for its summaries again, unless it is compiled with `checkpointer=True`.
    """

    messages: Annotated[list[AnyMessage], MessagesDeltaChannel()]
    """Full history; compaction never edits it."""

    context_record: Annotated[dict[str, Any], RECORD_CHANNEL]
    """Lines of what left the view, and how much left; a checkpoint holds them only when they changed."""


class PlainContextState(_NodeKeys, total=False):
    """The same state with LangGraph's `add_messages`: every checkpoint holds the whole history.

    Storage grows with the square of the number of messages (per checkpoint in SQLite, per write of `messages` in
    Postgres), but any single checkpoint can be kept alone. A thread can move from this state to `ContextState` at any
    time, and back.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    """Full history; compaction never edits it."""

    context_record: Annotated[dict[str, Any], newer]
    """Lines of what left the view, and how much left."""


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


OUR_KEYS = (*_SessionKeys.__annotations__, "llm_input_messages")
"""The state keys that are no business of callers."""

State = Mapping[str, Any]
Update = dict[str, Any]

SESSION = (
    *("context_view", "context_record", "context_summary", "context_pending", "context_counts", "context_guard"),
    *("context_tools", "context_model"),
)
"""The keys that a conversation goes on from; `context_report` is made anew with each request."""

FLAGS = ("due", "compress", "reason", "request_waits")
"""What `context_pending` says of the request at hand, beside the summary on its way."""


def as_mapping(state: Any) -> State:
    """Return the state that a node was given by key.

    Raises:
        ConfigError: it is neither a mapping nor a pydantic model nor a dataclass.
    """
    if isinstance(state, Mapping):
        return state
    names = getattr(type(state), "model_fields", None) or getattr(type(state), "__dataclass_fields__", None)
    if not names:
        raise ConfigError(
            f"state={brief(state)}: the nodes read a TypedDict, a pydantic model or a dataclass with the key "
            "`messages`, for example ContextState"
        )
    return {name: getattr(state, name) for name in names}


def changed(state: State, update: Update) -> Update:
    """Leave out what the state already says, so that a checkpoint stores only news."""
    return {key: value for key, value in update.items() if state.get(key) != value and (value or key in state)}


def flags_of(state: State) -> State:
    """Return `context_pending`; empty when something odd is stored there."""
    pending = state.get("context_pending")
    return pending if isinstance(pending, Mapping) else {}


def report_of(state: State) -> Mapping[str, Any]:
    """Return what the steps read of `context_report`; empty when something odd is stored there."""
    return valid_keys("context_report", state.get("context_report"))[0]


def tools_of(state: State) -> list[str]:
    """Return `context_tools`; empty when something odd is stored there."""
    return valid_tools(state.get("context_tools"))[0]


def turn_is_finished(state: State) -> bool:
    """True when the last message is an answer, not a question or a call."""
    messages: Sequence[AnyMessage] = state.get("messages") or ()
    last = messages[-1] if messages else None
    return isinstance(last, AIMessage) and not call_ids(last)
