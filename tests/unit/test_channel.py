"""Does the message channel give the same list however its writes are batched, saved and loaded?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
)
from langgraph.channels.binop import _get_overwrite
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.errors import InvalidUpdateError
from langgraph.graph.message import (
    REMOVE_ALL_MESSAGES,
    _messages_delta_reducer,
    add_messages,
)
from langgraph.pregel._checkpoint import delta_channels_to_snapshot
from langgraph.pregel._messages import ensure_message_ids
from langgraph.types import Overwrite

from langchain_ctxwin.agent.state import (
    SNAPSHOT_UPDATES,
    MessagesDeltaChannel,
    reduce_messages,
)

IDS = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.sampled_from(["x", "y"])
STAMPED = st.builds(lambda i, t: HumanMessage(t, id=i), IDS, TEXTS)
REMOVALS = st.builds(lambda i: RemoveMessage(id=i), st.one_of(IDS, st.just("unknown")))
UNSTAMPED = st.one_of(
    TEXTS,
    TEXTS.map(lambda t: ("ai", t)),
    TEXTS.map(lambda t: {"role": "user", "content": t}),
    TEXTS.map(HumanMessage),
    TEXTS.map(lambda t: HumanMessage(t, id="")),
    TEXTS.map(lambda t: AIMessageChunk(content=t)),
)
RUNS = settings(max_examples=100, deadline=None)
ALL_GONE = RemoveMessage(id=REMOVE_ALL_MESSAGES)
# rarely: clearing hides the rest
KINDS = [STAMPED] * 6 + [REMOVALS] * 4 + [UNSTAMPED] * 3 + [st.just(ALL_GONE)]
ITEMS = st.sampled_from(KINDS).flatmap(lambda kind: kind)
WRITES = st.lists(st.one_of(ITEMS, st.lists(ITEMS, max_size=4)), max_size=8)
BATCHES = st.lists(WRITES, min_size=1, max_size=5)


def model(writes) -> list[tuple[str | None, str, str]]:
    """Return (id when given, type, content) of what remains, one obvious step per message."""
    history: list[tuple[str | None, str, str]] = []
    for item in (
        item
        for write in writes
        for item in (write if isinstance(write, list) else [write])
    ):
        if isinstance(item, RemoveMessage):
            history = (
                []
                if item.id == REMOVE_ALL_MESSAGES
                else [row for row in history if row[0] != item.id]
            )
            continue
        match item:
            case str():
                row = (None, "human", item)
            case tuple():
                row = (None, *item)
            case dict():
                row = (None, "human", item["content"])
            case _:
                row = (
                    item.id or None,
                    "ai" if isinstance(item, AIMessageChunk) else item.type,
                    item.content,
                )
        is_known = row[0] and row[0] in [other[0] for other in history]
        history = (
            [row if other[0] == row[0] else other for other in history]
            if is_known
            else [*history, row]
        )
    return history


def rows(messages):
    given_ids = {"a", "b", "c", "d"}
    return [(m.id if m.id in given_ids else None, m.type, m.content) for m in messages]


def loaded(value) -> MessagesDeltaChannel:
    return MessagesDeltaChannel().from_checkpoint(_DeltaSnapshot(value))


@RUNS
@given(BATCHES)
def test_the_list_is_what_a_step_by_step_model_says(batches):
    writes = [write for batch in batches for write in batch]
    result = reduce_messages([], writes)
    assert rows(result) == model(writes)
    assert all(type(m) in {HumanMessage, AIMessage} and m.id for m in result)
    assert len({m.id for m in result}) == len(result)


@RUNS
@given(BATCHES, st.sets(st.integers(0, 4)))
def test_live_replayed_copied_and_reloaded_channels_agree(batches, breaks):
    """Step by step, over copies and snapshots, as in one replay; lists of earlier steps stay as they were."""
    live = MessagesDeltaChannel().from_checkpoint(MessagesDeltaChannel().checkpoint())
    for position, batch in enumerate(batches):
        earlier = live.get()
        before = list(earlier)
        live.copy().update([*batch, "only in the copy"])
        live.update(batch)
        assert [*map(id, earlier)] == [*map(id, before)]
        live = loaded(live.get()) if position in breaks else live.copy()
    replayed = loaded([])
    replayed.replay_writes(
        [("task", "messages", write) for batch in batches for write in batch]
    )
    assert live.get() == replayed.get()
    assert live.get() == reduce_messages(
        [], [write for batch in batches for write in batch]
    )


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


def test_a_derived_id_is_pinned_and_never_that_of_another_message():
    """Stored threads depend on the value; equal texts, moved up or written where others were, get ids of their own."""
    assert reduce_messages([], ["hi"])[0].id == "599104cc-0af7-56db-8bd3-4bca2d6e0001"
    first = reduce_messages([], ["x", "y", "y"])
    moved = reduce_messages(
        first,
        [RemoveMessage(id=first[0].id), RemoveMessage(id=first[1].id), "y", "x", "y"],
    )
    assert [m.content for m in moved] == ["y", "y", "x", "y"]
    # three old ones, of which one is still here, and three new
    assert len({m.id for m in [*first, *moved]}) == 6
    (new,) = reduce_messages(first[:1], [RemoveMessage(id=first[0].id), "z"])
    assert new.id != first[0].id
    calls = [
        [{"name": "f", "args": {}, "id": i, "type": "tool_call"}] for i in ("1", "2")
    ]
    assert (
        len(
            {
                reduce_messages([], [AIMessage("", tool_calls=call)])[0].id
                for call in calls
            }
        )
        == 2
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([HumanMessage("n", id="n"), "plain"], ["n", "plain"]),
        (HumanMessage("n", id="n"), ["n"]),
        ([], []),
        (None, []),
    ],
)
@pytest.mark.parametrize("wrap", [Overwrite, lambda v: {"__overwrite__": v}])
def test_overwrite_replaces_the_list_live_and_in_replays(wrap, value, expected):
    live, replayed = (
        loaded([HumanMessage("x", id="a")]),
        loaded([HumanMessage("x", id="a")]),
    )
    live.update([wrap(value), "dropped: same step"])
    live.update(["after"])
    replayed.replay_writes(
        [("t", "messages", w) for w in ("before", wrap([]), wrap(value), "after")]
    )
    assert [m.content for m in live.get()] == [*expected, "after"]
    assert live.get() == replayed.get()
    with pytest.raises(InvalidUpdateError):
        live.update([wrap([]), wrap([])])


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
    channel = MessagesDeltaChannel()
    assert channel.reducer is _messages_delta_reducer
    assert DeltaChannel.__slots__ == ("value", "reducer", "snapshot_frequency")
    assert _DeltaSnapshot._fields == ("value",)
    assert _get_overwrite(Overwrite([1])) == (True, [1])
    assert _get_overwrite([1]) == (False, None)
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
