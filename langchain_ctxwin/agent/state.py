"""`ContextState`: what a session remembers between steps, and the message channel that keeps the full history cheaply.

State holds JSON values and messages only, because other types do not survive strict checkpoint serialization. A delta
channel stores what each step wrote and, now and then, a snapshot of the whole list; loading a thread replays the writes
since the last snapshot. Two properties make that safe: the same writes give the same list however they are batched, and
LangGraph gives each message an id before it saves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from langchain_core.messages import AnyMessage, message_chunk_to_message
from langgraph.channels import UntrackedValue
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import PendingWrite
from langgraph.graph.message import (
    REMOVE_ALL_MESSAGES,
    _messages_delta_reducer,
    add_messages,
)
from typing_extensions import TypedDict

from langchain_ctxwin.core.session import Json, State, read_key

SNAPSHOT_UPDATES = 100
"""Smallest number of updates between two snapshots: LangGraph's own default, so that short threads load as usual."""

UPDATES_PER_MESSAGE = 0.5
"""Updates between two snapshots, per message of history. With one message per update the history doubles from one
snapshot to the next, so all snapshots together hold at most about twice the messages, and a load replays at most half
as many writes as there are messages."""

RECORD_UPDATES = 10
"""Updates between two snapshots of the record: each write holds all of it, so that snapshots add a tenth, and a load
reads no more writes than for the messages."""

LANGGRAPH_REDUCER: Any = _messages_delta_reducer
"""What LangGraph compares a channel's reducer with before it gives ids to message-likes."""


class MessagesDeltaChannel(DeltaChannel[list[AnyMessage]]):
    """The `messages` channel: the whole history, stored as one write per step plus snapshots that become rarer.

    It reports LangGraph's own message reducer as its `reducer`: only then LangGraph gives ids to strings, tuples
    and dicts *before* it saves them. The list itself changes as `reduce_messages` says; `Overwrite` replaces it.
    A thread that was written with `add_messages` can be continued with this channel.

    Deleting single checkpoints of such a thread deletes the writes its later checkpoints are rebuilt from: `messages`
    then comes back empty or shorter, without an error. Delete whole threads, or copy the state to a new thread first.
    """

    __slots__ = ()

    @property
    def snapshot_frequency(self) -> int:
        """Updates between two snapshots, at the present length of the history."""
        messages = len(self.value) if self.is_available() else 0
        return max(SNAPSHOT_UPDATES, int(messages * UPDATES_PER_MESSAGE))

    @snapshot_frequency.setter
    def snapshot_frequency(self, _: int) -> None:
        """Take nothing: the spacing follows from the history alone."""

    def update(self, values: Sequence[Any]) -> bool:
        """Apply the writes of one step; an `Overwrite` among them replaces everything, the other writes included."""
        reduced = self._reducing()
        is_changed = reduced.update(values)
        self.value = reduced.value
        return is_changed

    def replay_writes(self, writes: Sequence[PendingWrite]) -> None:
        """Apply stored writes, oldest first; those before the last `Overwrite` no longer matter."""
        reduced = self._reducing()
        reduced.replay_writes(writes)
        self.value = reduced.value

    def _reducing(self) -> DeltaChannel[list[AnyMessage]]:
        """A channel of LangGraph's with this list, and with our reducer instead of the one that this class reports."""
        channel: DeltaChannel[list[AnyMessage]] = DeltaChannel(
            reduce_messages, self.typ
        )
        channel.value = self.value
        return channel


MESSAGES_CHANNEL = MessagesDeltaChannel(LANGGRAPH_REDUCER)
"""The channel of the messages."""


def latest(state: Any, writes: Sequence[Any]) -> Any:
    """Return the last value that was written."""
    return writes[-1] if writes else state


RECORD_CHANNEL = DeltaChannel(latest, Json, snapshot_frequency=RECORD_UPDATES)
"""The channel of the record: checkpoints that do not change it do not hold it again."""


def reduce_messages(state: Any, writes: Sequence[Any]) -> list[AnyMessage]:
    """Return the history after the writes, as LangGraph's own reducer does, with two things that it leaves out.

    Message chunks become messages, and `REMOVE_ALL_MESSAGES` removes everything before it, which releases of
    LangGraph before 1.2.24 do not do. Batching does not matter: `reduce(reduce(s, xs), ys) == reduce(s, [*xs, *ys])`.

    Examples:
        >>> [m.content for m in reduce_messages([], ["hi", [("ai", "hello")]])]
        ['hi', 'hello']
    """
    new = list[Any]()
    for write in writes:
        for message in write if isinstance(write, list) else [write]:
            if getattr(message, "id", None) == REMOVE_ALL_MESSAGES:
                state, new = [], []
            else:
                new.append(message_chunk_to_message(message))
    messages: list[AnyMessage] = LANGGRAPH_REDUCER(state, [new])
    return messages


class _StateKeys(TypedDict, total=False):
    """The keys that all states share; each is missing until a node writes it."""

    context_summary: str
    """The one live summary of what left the view."""

    context_record: Json
    """Lines of what left the view, and how much left: `{"lines": [[kind, text, message id, uses]], "left": {...}}`."""

    context_view: Json
    """How the history is shown; empty shows all of it."""

    context_pending: Json
    """The summary on its way: being written, or ready; and whether one is to be written before the next call."""

    context_counts: Json
    """What was learned about token counts and limits."""

    context_tools: list[str]
    """Names of the selected tools, in the order in which requests show them."""

    context_model: Json
    """The candidate that the conversation's requests go to, and why."""

    context_guard: Json
    """What became of compactions and summaries, what was spent, and up to where reasoning is left out."""

    context_report: Json
    """The last measure of the next request, in tokens per region."""


class _NodeKeys(_StateKeys, total=False):
    llm_input_messages: Annotated[list[AnyMessage], UntrackedValue]
    """The request, for a model node of your own; ours builds the same list from the state. Never checkpointed."""


class HookState(_StateKeys, total=False):
    """What a `pre_model_hook` reads: the agent brings the key of the request along."""

    messages: list[AnyMessage]


class ContextState(_NodeKeys, total=False):
    """State of one conversation, with the full history at linear storage cost.

    ```python
    builder = StateGraph(
        ContextState, input_schema=ContextInput, output_schema=ContextOutput
    )
    ```

    **Pruning.** A checkpoint holds what changed, not the whole history. Deleting older checkpoints of a thread while
    keeping newer ones (by SQL, a TTL per row, or a saver's "keep latest") makes `messages` come back empty or shorter,
    without an error, unless a snapshot happens to lie after the cut. Delete whole threads, or call
    `langchain_ctxwin.pruning.prune_thread`. Where rows must go by themselves, use `PlainContextState`.

    **Several agents.** One `ContextState` per conversation. Parallel agents that write the same `context_*` keys in one
    step raise LangGraph's `InvalidUpdateError`: give each its own subgraph. A subgraph agent forgets its `context_*`
    keys between calls, and pays for its summaries again, unless it is compiled with `checkpointer=True`.
    """

    messages: Annotated[list[AnyMessage], MESSAGES_CHANNEL]
    """Full history; compaction never edits it."""

    context_record: Annotated[Json, RECORD_CHANNEL]
    """Lines of what left the view, and how much left; a checkpoint holds them only when they changed."""


class PlainContextState(_NodeKeys, total=False):
    """The same state with LangGraph's `add_messages`: every checkpoint holds the whole history.

    Storage grows with the square of the number of messages (per checkpoint in SQLite, per write of `messages` in
    Postgres), but any single checkpoint can be kept alone. A thread can move from this state to `ContextState` at any
    time, not back.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    """Full history; compaction never edits it."""


class ContextInput(TypedDict):
    """The public input: pass it as `input_schema`, so that callers give messages only.

    LangGraph ignores everything else that they send, the `context_*` keys above all: a caller who sets the summary
    writes into every request. Put keys of your own that callers may set into a subclass.

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


OUR_KEYS = (*_StateKeys.__annotations__, "llm_input_messages")
"""The state keys that are no business of callers."""

SESSION = [key for key in _StateKeys.__annotations__ if key != "context_report"]
"""The keys that a conversation goes on from; `context_report` is made anew with each request."""


def changed(state: State, update: Json) -> Json:
    """Leave out what the state already says, so that a checkpoint stores only news."""
    return {
        key: value
        for key, value in update.items()
        if state.get(key) != value and (value or key in state)
    }


def mapping_of(state: State, name: str) -> State:
    """Return a key that holds an object; empty when something odd is stored there."""
    value = state.get(name)
    return value if isinstance(value, Mapping) else {}


def kept(state: State, name: str) -> Any:
    """Return a key of the session; empty when it is damaged."""
    return read_key(name, state.get(name))[0]
