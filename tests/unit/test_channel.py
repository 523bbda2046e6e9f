"""Does the message channel give the same list however its writes are batched, saved and loaded?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.errors import InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES, _messages_delta_reducer, add_messages
from langgraph.pregel._checkpoint import delta_channels_to_snapshot
from langgraph.types import Overwrite

from langchain_ctxwin.agent.channel import SNAPSHOT_UPDATES, MessagesDeltaChannel, reduce_messages
from langchain_ctxwin.errors import ConfigError

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
ALL_GONE = RemoveMessage(id=REMOVE_ALL_MESSAGES)
KINDS = [STAMPED] * 6 + [REMOVALS] * 4 + [UNSTAMPED] * 3 + [st.just(ALL_GONE)]  # rarely: clearing hides the rest
ITEMS = st.sampled_from(KINDS).flatmap(lambda kind: kind)
WRITES = st.lists(st.one_of(ITEMS, st.lists(ITEMS, max_size=4)), max_size=8)
BATCHES = st.lists(WRITES, min_size=1, max_size=5)


def model(writes) -> list[tuple[str | None, str, str]]:
    """Return (id when given, type, content) of what remains, one obvious step per message."""
    history: list[tuple[str | None, str, str]] = []
    for write in writes:
        for item in write if isinstance(write, list) else [write]:
            history = model_step(history, item)
    return history


def model_step(history, item):
    if isinstance(item, RemoveMessage):
        return [] if item.id == REMOVE_ALL_MESSAGES else [row for row in history if row[0] != item.id]
    row = model_row(item)
    if row[0] in [other[0] for other in history if other[0]]:
        return [row if other[0] == row[0] else other for other in history]
    return [*history, row]


def model_row(item):
    if isinstance(item, str):
        return (None, "human", item)
    if isinstance(item, tuple):
        return (None, item[0], item[1])
    if isinstance(item, dict):
        return (None, "human", item["content"])
    return (item.id or None, "ai" if isinstance(item, AIMessageChunk) else item.type, item.content)


def rows(messages):
    given_ids = {"a", "b", "c", "d"}
    return [(m.id if m.id in given_ids else None, m.type, m.content) for m in messages]


def loaded(value) -> MessagesDeltaChannel:
    return MessagesDeltaChannel().from_checkpoint(_DeltaSnapshot(value))


@settings(max_examples=200, deadline=None)
@given(BATCHES)
def test_the_list_is_what_a_step_by_step_model_says(batches):
    """Random writes give the rows of the reference model, each with a unique id of its own."""
    writes = [write for batch in batches for write in batch]
    result = reduce_messages([], writes)
    assert rows(result) == model(writes)
    assert all(type(m) in {HumanMessage, AIMessage} for m in result)
    assert all(m.id for m in result)
    assert len({m.id for m in result}) == len(result)


@settings(max_examples=200, deadline=None)
@given(st.lists(STAMPED, max_size=4), WRITES, WRITES)
def test_batching_does_not_matter(state, xs, ys):
    """Reducing in two steps equals reducing at once, ids included, and changes neither state nor writes."""
    start = reduce_messages([], [state])
    before, written = list(start), [m.id for m in xs if isinstance(m, BaseMessage)]
    assert reduce_messages(reduce_messages(start, xs), ys) == reduce_messages(start, [*xs, *ys])
    assert all(old is new for old, new in zip(start, before, strict=True))
    assert [m.id for m in xs if isinstance(m, BaseMessage)] == written


@settings(max_examples=200, deadline=None)
@given(BATCHES, st.sets(st.integers(0, 4)))
def test_live_replayed_copied_and_reloaded_channels_agree(batches, breaks):
    """Updates step by step, over copies and snapshots, give the list that one replay of all writes gives."""
    live = MessagesDeltaChannel().from_checkpoint(MessagesDeltaChannel().checkpoint())
    for position, batch in enumerate(batches):
        live.copy().update([*batch, "only in the copy"])
        live.update(batch)
        live = loaded(live.get()) if position in breaks else live.copy()
    replayed = loaded([])
    replayed.replay_writes([("task", "messages", write) for batch in batches for write in batch])
    assert live.get() == replayed.get()
    assert live.get() == reduce_messages([], [write for batch in batches for write in batch])


@settings(max_examples=200, deadline=None)
@given(st.lists(STAMPED, max_size=5), st.lists(STAMPED, max_size=5))
def test_stamped_writes_give_what_add_messages_gives(state, written):
    """Appending and replacing by id is LangGraph's own behavior."""
    left = add_messages([], state)
    assert reduce_messages(left, [written]) == add_messages(left, written)


@settings(max_examples=200, deadline=None)
@given(st.lists(STAMPED, min_size=1, max_size=5), st.data())
def test_known_removals_give_what_add_messages_gives(state, data):
    """Removing present ids, or everything before some survivors, is LangGraph's own behavior."""
    left = add_messages([], state)
    gone = [RemoveMessage(id=m.id) for m in data.draw(st.lists(st.sampled_from(left), max_size=3))]
    assert reduce_messages(left, [gone]) == add_messages(left, gone)
    survivors = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *left[1:]]
    assert reduce_messages(left, [survivors]) == add_messages(left, survivors)


def test_a_derived_id_is_never_that_of_another_present_message():
    """After removals move messages up, equal texts still get ids of their own."""
    first = reduce_messages([], ["x", "y", "y"])
    moved = reduce_messages(first, [RemoveMessage(id=first[0].id), RemoveMessage(id=first[1].id), "y", "x", "y"])
    assert [m.content for m in moved] == ["y", "y", "x", "y"]
    assert len({m.id for m in [*first, *moved]}) == 6  # three old ones, of which one is still here, and three new


def test_a_different_message_never_inherits_the_id_of_a_removed_one():
    """A text written at the place of a removed one has an id of its own."""
    (old,) = reduce_messages([], ["x"])
    (new,) = reduce_messages([old], [RemoveMessage(id=old.id), "y"])
    assert new.id != old.id


def test_messages_that_differ_in_their_calls_alone_get_different_ids():
    """Empty answers with different tool calls are different messages."""
    calls = [[{"name": "f", "args": {}, "id": i, "type": "tool_call"}] for i in ("1", "2")]
    one, two = (reduce_messages([], [AIMessage("", tool_calls=call)])[0].id for call in calls)
    assert one != two


@pytest.mark.parametrize("content", ["\ud800", [{"type": "text", "text": "\ud800", ("odd", "key"): b"\xff"}]])
def test_any_content_gets_an_id(content):
    """Lone surrogates, bytes and odd keys do not stop an id from being derived."""
    message = HumanMessage.model_construct(content=content, type="human", id=None)
    assert reduce_messages([], [message])[0].id


def test_derived_ids_are_pinned():
    """Stored threads depend on this value: it must not change between releases."""
    assert reduce_messages([], ["hi"])[0].id == "599104cc-0af7-56db-8bd3-4bca2d6e0001"


def test_what_is_no_message_fails_and_changes_nothing():
    """A write LangChain cannot read raises, and the channel goes on with what it had."""
    channel = loaded([HumanMessage("x", id="a")])
    channel.update(["y"])
    before = channel.get()
    with pytest.raises((ValueError, NotImplementedError)):
        channel.update([["z", 7]])
    assert channel.get() is before
    channel.update([RemoveMessage(id="a")])
    assert [m.content for m in channel.get()] == ["y"]


def test_a_write_that_fails_half_way_changes_nothing():
    """Content without end has no id to derive; the removal before it in the same write is not half done."""
    endless: list[object] = []
    endless.append(endless)
    unread = HumanMessage.model_construct(content=endless, type="human", id=None)
    channel = loaded([HumanMessage("x", id="a"), HumanMessage("y", id="b")])
    with pytest.raises(ValueError, match="Circular"):
        channel.update([RemoveMessage(id="a"), HumanMessage("new", id="c"), unread])
    channel.update([HumanMessage("z", id="a")])
    assert [m.content for m in channel.get()] == ["z", "y"]


def test_positions_are_right_in_the_step_after_a_removal():
    """What moved up is found where it is now."""
    channel = loaded([HumanMessage(text, id=text) for text in "abcd"])
    channel.update([RemoveMessage(id="a")])
    channel.update([HumanMessage("B", id="b"), RemoveMessage(id="c")])
    assert [m.content for m in channel.get()] == ["B", "d"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([HumanMessage("n", id="n"), "plain"], ["n", "plain"]),
        ((HumanMessage("n", id="n"), ("ai", "answer")), ["n", "answer"]),
        (HumanMessage("n", id="n"), ["n"]),
        ("plain", ["plain"]),
        ([], []),
        (None, []),
    ],
)
@pytest.mark.parametrize("wrap", [Overwrite, lambda v: {"__overwrite__": v}])
def test_overwrite_replaces_the_list_live_and_in_replays(wrap, value, expected):
    """Every form of `Overwrite` replaces what was there, and what follows is appended."""
    live, replayed = loaded([HumanMessage("x", id="a")]), loaded([HumanMessage("x", id="a")])
    live.update([wrap(value), "dropped: same step"])
    live.update(["after"])
    replayed.replay_writes([("t", "messages", w) for w in ("before", wrap([]), wrap(value), "after")])
    assert [m.content for m in live.get()] == [*expected, "after"]
    assert live.get() == replayed.get()


def test_two_overwrites_in_one_step_raise():
    """LangGraph's own rule is kept."""
    with pytest.raises(InvalidUpdateError):
        loaded([]).update([Overwrite([]), Overwrite([])])


def test_no_write_is_no_update():
    """An empty step leaves the value alone."""
    channel = loaded([HumanMessage("x", id="a")])
    before = channel.get()
    assert (channel.update([]), channel.get() is before) == (False, True)


def test_the_list_of_an_earlier_step_is_never_changed():
    """Whoever still holds an older value sees it as it was."""
    channel = loaded([HumanMessage("x", id="a"), HumanMessage("y", id="b")])
    seen = channel.get()
    channel.update([HumanMessage("z", id="a"), RemoveMessage(id="b"), "new"])
    assert [m.content for m in seen] == ["x", "y"]
    assert [m.content for m in channel.get()] == ["z", "new"]


def test_a_list_changed_behind_the_channels_back_is_indexed_again():
    """A node that appends to the list it was given, or code that assigns one, does not confuse later writes."""
    channel = loaded([HumanMessage("x", id="a")])
    channel.get().append(HumanMessage("y", id="b"))
    channel.update([HumanMessage("z", id="b")])
    assert [m.content for m in channel.get()] == ["x", "z"]
    channel.value = [HumanMessage("p", id="b"), HumanMessage("q", id="a")]
    channel.update([HumanMessage("r", id="a")])
    assert [m.content for m in channel.get()] == ["p", "r"]


@pytest.mark.parametrize("wrap", [_DeltaSnapshot, list])
def test_a_stored_list_is_made_valid_when_it_is_loaded(wrap):
    """Messages without ids, repeated ids, chunks and dicts in an old thread become messages with unique ids."""
    tool = ToolMessage("done", tool_call_id="1", id="t")
    stored = [HumanMessage("x"), {"role": "user", "content": "y"}, AIMessageChunk(content="z", id="c"), tool, tool]
    one, two = (MessagesDeltaChannel().from_checkpoint(wrap(list(stored))) for _ in range(2))
    assert [(type(m), m.content) for m in one.get()] == [
        (HumanMessage, "x"),
        (HumanMessage, "y"),
        (AIMessage, "z"),
        (ToolMessage, "done"),
    ]
    assert one.get() == two.get()
    assert all(m.id for m in one.get())


def test_snapshots_become_rarer_as_the_history_grows():
    """The spacing follows the length; copies and reloads keep the configured minimum, not the grown value."""
    channel = loaded([HumanMessage("x", id=str(i)) for i in range(10_000)])
    assert MessagesDeltaChannel().snapshot_frequency == SNAPSHOT_UPDATES
    assert channel.snapshot_frequency == 5_000
    assert channel.copy().snapshot_frequency == 5_000
    assert channel.copy().from_checkpoint(_DeltaSnapshot([])).snapshot_frequency == SNAPSHOT_UPDATES
    channel.update([RemoveMessage(id=REMOVE_ALL_MESSAGES)])
    assert channel.snapshot_frequency == SNAPSHOT_UPDATES


def test_all_snapshots_together_stay_in_proportion_to_the_history():
    """One message per update: snapshots hold at most three times the messages, and replays at most half."""
    total, updates, channel = 0, 0, loaded([])
    for number in range(20_000):
        channel.update([HumanMessage("x", id=str(number))])
        updates += 1
        if delta_channels_to_snapshot({"messages": channel}, {"messages": (updates, 0)}, {"messages": 1}):
            total, updates = total + len(channel.get()), 0
        assert updates <= max(SNAPSHOT_UPDATES, len(channel.get()) / 2)
    assert 20_000 / 2 < total < 3 * 20_000


def test_channels_are_equal_when_their_settings_are():
    """LangGraph compares the channels of two schemas: length does not matter, settings and class do."""
    assert loaded([HumanMessage("x", id=str(i)) for i in range(1_000)]) == MessagesDeltaChannel()
    assert MessagesDeltaChannel(snapshot_frequency=7) != MessagesDeltaChannel()
    assert MessagesDeltaChannel() != DeltaChannel(_messages_delta_reducer)


def test_another_reducer_is_refused():
    """The channel has one way to reduce, and says so."""
    with pytest.raises(ConfigError, match="leave it out"):
        MessagesDeltaChannel(add_messages)
