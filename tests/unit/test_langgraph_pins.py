"""Are the parts of LangGraph that the message channel relies on, public or private, still what they were?"""

from langchain_core.messages import HumanMessage
from langgraph.channels.binop import _get_overwrite
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.pregel._checkpoint import delta_channels_to_snapshot
from langgraph.pregel._messages import ensure_message_ids
from langgraph.types import Overwrite

from langchain_ctxwin.agent.channel import MessagesDeltaChannel
from langchain_ctxwin.graph.state import ContextInput, ContextOutput, ContextState, PlainContextState


def test_langgraph_rebuilds_the_channel_with_its_settings():
    """Compiling a graph keeps class, reducer and spacing; every schema of ours compiles."""
    channel = StateGraph(ContextState, input_schema=ContextInput, output_schema=ContextOutput).channels["messages"]
    assert type(channel) is MessagesDeltaChannel
    assert channel == MessagesDeltaChannel()
    assert channel.ValueType is list
    StateGraph(PlainContextState, input_schema=ContextInput, output_schema=ContextOutput)


def test_the_private_parts_of_langgraph_that_we_rely_on_are_there():
    """A LangGraph release that renames or changes these must fail here, not in somebody's thread."""
    channel = MessagesDeltaChannel()
    assert channel.reducer is _messages_delta_reducer
    assert DeltaChannel.__slots__ == ("value", "reducer", "snapshot_frequency")
    assert _DeltaSnapshot._fields == ("value",)
    assert _get_overwrite(Overwrite([1])) == (True, [1])
    assert _get_overwrite([1]) == (False, None)
    for raw in ("hi", ("user", "hi"), {"role": "user", "content": "hi"}, HumanMessage("hi"), ["hi"], [("user", "hi")]):
        writes = [("messages", raw)]
        ensure_message_ids({"messages": channel}, writes)
        (message,) = writes[0][1] if isinstance(writes[0][1], list) else [writes[0][1]]
        assert (type(message), message.content) == (HumanMessage, "hi")
        assert message.id
    long = channel.from_checkpoint(_DeltaSnapshot([HumanMessage("x", id=str(i)) for i in range(1_000)]))
    due = [delta_channels_to_snapshot({"m": long}, {"m": (n, 0)}, {"m": 1}) for n in (499, 500)]
    assert due == [set(), {"m"}]
