"""Does the message channel give the same list however its writes are batched, saved and loaded?"""

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph.message import (
    REMOVE_ALL_MESSAGES,
    _messages_delta_reducer,
    add_messages,
)
from langgraph.pregel._checkpoint import delta_channels_to_snapshot
from langgraph.pregel._messages import ensure_message_ids

from langchain_ctxwin.agent.state import (
    MESSAGES_CHANNEL,
    SNAPSHOT_UPDATES,
    reduce_messages,
)

IDS = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.sampled_from(["x", "y"])
STAMPED = st.builds(lambda i, t: HumanMessage(t, id=i), IDS, TEXTS)
REMOVALS = st.builds(lambda i: RemoveMessage(id=i), st.one_of(IDS, st.just("unknown")))
CHUNKS = st.builds(lambda i, t: AIMessageChunk(content=t, id=i), IDS, TEXTS)
RUNS = settings(max_examples=100)
ALL_GONE = RemoveMessage(id=REMOVE_ALL_MESSAGES)
# rarely: clearing hides the rest
KINDS = [STAMPED] * 6 + [REMOVALS] * 4 + [CHUNKS] * 3 + [st.just(ALL_GONE)]
ITEMS = st.sampled_from(KINDS).flatmap(lambda kind: kind)
WRITES = st.lists(st.one_of(ITEMS, st.lists(ITEMS, max_size=4)), max_size=8)
BATCHES = st.lists(WRITES, min_size=1, max_size=5)


def loaded(value):
    return MESSAGES_CHANNEL.from_checkpoint(_DeltaSnapshot(value))


@RUNS
@given(BATCHES, st.sets(st.integers(0, 4)))
def test_live_replayed_copied_and_reloaded_channels_agree(batches, breaks):
    """Step by step, over copies and snapshots, as in one replay; lists of earlier steps stay as they were."""
    live = MESSAGES_CHANNEL.from_checkpoint(MESSAGES_CHANNEL.checkpoint())
    for position, batch in enumerate(batches):
        earlier = live.get()
        before = list(earlier)
        live.copy().update([*batch, HumanMessage("only in the copy", id="e")])
        live.update(batch)
        assert [*map(id, earlier)] == [*map(id, before)]
        live = loaded(live.get()) if position in breaks else live.copy()
    replayed = loaded([])
    replayed.replay_writes(
        [("task", "messages", write) for batch in batches for write in batch]
    )
    assert live.get() == replayed.get()
    assert {type(message) for message in live.get()} <= {HumanMessage, AIMessage}


@RUNS
@given(
    st.lists(STAMPED, min_size=1, max_size=5), st.lists(STAMPED, max_size=5), st.data()
)
def test_stamped_writes_and_known_removals_give_what_add_messages_gives(
    state, written, data
):
    """Appending and replacing by id, removing present ids, or all before some survivors, is LangGraph's behavior."""
    left = add_messages([], state)
    gone = [
        RemoveMessage(id=m.id)
        for m in data.draw(st.lists(st.sampled_from(left), max_size=3))
    ]
    for write in (written, gone, [RemoveMessage(id=REMOVE_ALL_MESSAGES), *left[1:]]):
        assert reduce_messages(left, [write]) == add_messages(left, write)


MANY = 4_000  # messages, far more than lie between two snapshots at first


def test_all_snapshots_together_stay_in_proportion_to_the_history():
    total, updates, channel = 0, 0, loaded([])
    for number in range(MANY):
        channel.update([HumanMessage("x", id=str(number))])
        updates += 1
        if delta_channels_to_snapshot(
            {"messages": channel}, {"messages": (updates, 0)}, {"messages": 1}
        ):
            total, updates = total + len(channel.get()), 0
        assert updates <= max(SNAPSHOT_UPDATES, len(channel.get()) / 2)
    assert MANY / 2 < total < 3 * MANY


def test_the_private_parts_of_langgraph_that_we_rely_on_are_there():
    """A LangGraph release that renames or changes these must fail here, not in somebody's thread."""
    channel = MESSAGES_CHANNEL
    assert channel.reducer is _messages_delta_reducer
    assert _DeltaSnapshot._fields == ("value",)
    for raw in (
        "hi",
        ("user", "hi"),
        {"role": "user", "content": "hi"},
        HumanMessage("hi"),
        ["hi"],
        [("user", "hi")],
    ):
        writes = [("messages", raw)]
        ensure_message_ids({"messages": channel}, writes)
        (message,) = writes[0][1] if isinstance(writes[0][1], list) else [writes[0][1]]
        assert (type(message), message.content) == (HumanMessage, "hi")
        assert message.id
    long = channel.from_checkpoint(
        _DeltaSnapshot([HumanMessage("x", id=str(i)) for i in range(1_000)])
    )
    due = [
        delta_channels_to_snapshot({"m": long}, {"m": (n, 0)}, {"m": 1})
        for n in (499, 500)
    ]
    assert due == [set(), {"m"}]
