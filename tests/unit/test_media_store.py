"""Data of pictures that left the view: apart from the checkpoint in the graph's store, and back when shown again."""

import asyncio
import re
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from structlog.testing import capture_logs

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ModelLimits,
    create_recall_tool,
    pin,
)
from langchain_ctxwin.core.provider_blocks import MediaSize, apart, digests_in, filled
from langchain_ctxwin.core.turns import checksums
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.pruning import forget
from support.agents import THREAD, WAYS, agent_on, on_both, values
from support.fakes import ScriptedChatModel

OTHER = {"configurable": {"thread_id": "2"}}
LEFT_OUT = "[image left out; still in the history as message {}]"
LIMITS = ModelLimits(60_000, max_images=4)


def picture(number, chars=4_000):
    return {
        "type": "image",
        "base64": f"{number:04}" + "QUJD" * (chars // 4),
        "mime_type": "image/png",
    }


def looking(looks_per_turn=6):
    """A model that looks so many times in each turn, and its tool."""
    numbers = count()

    @tool
    def look() -> list:
        """Look at the page."""
        number = next(numbers)
        return [{"type": "text", "text": f"page {number}"}, picture(number)]

    def policy(messages, tools):
        asked = max(n for n, one in enumerate(messages) if one.type == "human")
        looks = sum(one.type == "tool" for one in messages[asked:])
        if messages[asked].text.startswith("turn") and looks < looks_per_turn:
            call = {"name": "look", "args": {}, "id": f"{messages[asked].text}-{looks}"}
            return AIMessage("", tool_calls=[call])
        return AIMessage("done")

    return ScriptedChatModel(policy=policy, profile={"max_input_tokens": 60_000}), look


def played(adapter, *, is_async=False, media="store", **options):
    """An agent after two turns, and its model."""
    model, look = looking()
    options.setdefault("store", InMemoryStore())
    options |= {"config": ContextConfig(media=media), "limits": LIMITS}
    agent = agent_on(adapter, model, [look], **options)
    for turn in range(2):
        take(agent, f"turn {turn}", is_async=is_async)
    return agent, model


def take(agent, text, config=THREAD, *, is_async=False):
    given = {"messages": [HumanMessage(text, id=text)]}
    if is_async:
        return asyncio.run(agent.ainvoke(given, config))
    return agent.invoke(given, config)


def blobs_in(store):
    return {item.key: item.namespace for item in store.search(("ctxwin", "media"))}


def said(request):
    """The contents of a request, without the random ids of results."""
    return re.sub(
        r"[0-9a-f]{8}-[0-9a-f-]{27}", "", str([one.content for one in request.messages])
    )


@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_data_that_left_are_in_the_store_and_requests_stay_the_same(adapter, is_async):
    """The state keeps its messages, each with a reference for what is not shown any more, one item per digest."""
    store = InMemoryStore()
    agent, model = played(adapter, is_async=is_async, store=store)
    plain, plain_model = played(adapter, media="state")
    assert list(map(said, model.requests)) == list(map(said, plain_model.requests))
    messages, whole = values(agent)["messages"], values(plain)["messages"]
    lean = [message for message in messages if digests_in(message)]
    assert len(lean) == len(blobs_in(store)) >= 6
    assert not any(map(digests_in, messages[-9:]))
    assert [message.type for message in messages] == [one.type for one in whole]
    data = {item.key: item.value["data"] for item in store.search(("ctxwin", "media"))}
    assert [filled(message, data).content for message in messages] == [
        message.content for message in whole
    ]


@on_both
def test_a_picture_that_is_missing_is_a_line(adapter):
    """No turn ends because of it: where it is to be shown again there is a line, the same in each request."""
    store = InMemoryStore()
    agent, model = played(adapter, store=store)
    for key, namespace in blobs_in(store).items():
        store.delete(namespace, key)
    first = next(one for one in values(agent)["messages"] if digests_in(one))
    agent.update_state(THREAD, {"messages": [pin(first)]}, *as_node(adapter))
    take(agent, "turn now")
    shown = [
        next(one for one in request.messages if one.id == first.id).content[1]
        for request in model.requests[-2:]
    ]
    assert shown == [{"type": "text", "text": LEFT_OUT.format(first.id)}] * 2
    assert values(agent)["messages"][-1].text == "done"


def as_node(adapter):
    return ("maybe_summarize",) if adapter == "nodes" else ("model",)


class BrokenStore(InMemoryStore):
    def batch(self, ops):
        raise OSError("the disk is full")


@on_both
def test_a_store_that_fails_leaves_the_data_in_the_state(adapter):
    with capture_logs() as logs:
        agent, _ = played(adapter, store=BrokenStore())
    assert not any(map(digests_in, values(agent)["messages"]))
    assert "media.not_stored" in {line["event"] for line in logs}


@on_both
def test_without_a_store_the_first_step_says_what_to_do(adapter):
    with pytest.raises(ConfigError, match="compile the graph with store="):
        played(adapter, store=None)


def test_nothing_of_one_conversation_is_in_another():
    """Not even by a reference that somebody copies, and what is deleted is that of its thread."""
    store = InMemoryStore()
    agent, model = played("nodes", store=store)
    first = next(one for one in values(agent)["messages"] if digests_in(one))
    agent.invoke({"messages": [HumanMessage(first.content, id="copied")]}, OTHER)
    sent = model.requests[-1].messages[-1]
    assert sent.content[1] == {"type": "text", "text": LEFT_OUT.format("copied")}
    take(agent, "turn 0", OTHER)
    namespaces = {*blobs_in(store).values()}
    assert len(namespaces) == 2
    forget("1", store=store)
    assert len({*blobs_in(store).values()}) == 1


@pytest.mark.parametrize("media", ["state", "store"])
@pytest.mark.parametrize(("adapter", "is_async"), WAYS)
def test_the_agent_gets_a_picture_back_by_its_id(adapter, is_async, media):
    model, look = looking(12)
    look_on = model.policy

    def policy(messages, tools):
        if messages[-1].text.startswith("recall"):
            line = next(one for one in messages if "left out" in one.text).text
            args = {"message_id": line.rpartition("message ")[2].rstrip("]")}
            call = {"name": "recall", "args": args, "id": "recalled"}
            return AIMessage("", tool_calls=[call])
        if getattr(messages[-1], "tool_call_id", "") == "recalled":
            return AIMessage("done")
        return look_on(messages, tools)

    model.policy = policy
    options = {"config": ContextConfig(media=media), "limits": LIMITS}
    options |= {"store": InMemoryStore(), "recall": True}
    agent = agent_on(adapter, model, [look], **options)
    take(agent, "turn 0", is_async=is_async)
    take(agent, "recall it", is_async=is_async)
    answer = next(
        one
        for one in model.requests[-1].messages
        if isinstance(one, ToolMessage) and one.name == "recall"
    )
    assert [block["type"] for block in answer.content] == ["text", "image"]
    assert answer.content[1] == picture(0)
    assert "page 0" in answer.text


def file(pages):
    return {
        "type": "file",
        "base64": "QUJD" * (pages * 12_500),
        "mime_type": "application/pdf",
    }


@pytest.mark.parametrize(
    ("content", "input_limit", "types"),
    [
        ([picture(0), picture(1)], 6_000, ["text", "image", "text"]),
        ([file(3)], 60_000, ["text", "file"]),
    ],
)
def test_recall_gives_as_many_pictures_and_files_as_fit(content, input_limit, types):
    """A quarter of the input limit, at least an answer of the tool; a line tells of the others."""
    photo = HumanMessage([{"type": "text", "text": "turned"}, *content], id="photo")
    state = {"messages": [photo], "context_report": {"input_limit": input_limit}}
    answer = create_recall_tool().func(
        SimpleNamespace(state=state, store=None), message_id="photo"
    )
    assert [block["type"] for block in answer] == types


VALUES = st.one_of(
    st.text(max_size=20),
    st.integers(),
    st.binary(min_size=800, max_size=1_200),
    st.integers(250, 400).map(lambda n: "QUJD" * n),
    st.integers(250, 400).map(lambda n: "data:image/png;base64," + "QUJD" * n),
    st.text(min_size=1_024, max_size=1_100),
)
MEDIA = st.dictionaries(
    st.sampled_from(["base64", "data", "url", "source", "file"]),
    VALUES | st.dictionaries(st.sampled_from(["data", "url"]), VALUES),
).map(lambda block: {**block, "type": "image"})
BLOCKS = st.one_of(
    MEDIA,
    MEDIA.map(lambda block: {"type": "non_standard", "value": block}),
    st.lists(MEDIA).map(
        lambda blocks: {"type": "tool_result", "tool_use_id": "c", "content": blocks}
    ),
    st.builds(lambda text: {"type": "text", "text": text}, st.text()),
    st.builds(lambda kind: {"type": kind}, st.text(max_size=5)),
    st.text(),
    st.none(),
)


@given(content=st.lists(BLOCKS, max_size=5))
def test_what_is_apart_comes_back_as_it_was(content):
    """Any content; sizes, checksums and digests are the same whether its data are in it or not."""
    message = HumanMessage("", id="m").model_copy(update={"content": content})
    lean, data = apart(message)
    assert filled(lean, data).content == content
    assert digests_in(lean) == data.keys()
    assert apart(lean) == (lean, {})
    assert MediaSize.of_all([lean]).images == MediaSize.of_all([message]).images
    assert checksums([lean]) == checksums([message])
    assert message.content == content


def test_a_middleware_before_ours_that_edits_the_request_is_not_stored():
    """What leaves is taken from the state, not from what somebody else made of it for one request."""

    @wrap_model_call
    def shout(request, handler):
        edited = [{"type": "text", "text": "EDITED"}, *request.messages[-1].content[1:]]
        last = request.messages[-1].model_copy(update={"content": edited})
        is_result = isinstance(last, ToolMessage)
        messages = [*request.messages[:-1], last] if is_result else request.messages
        return handler(request.override(messages=messages))

    model, look = looking()
    config = ContextConfig(media="store")
    ours = ContextWindowMiddleware(limits=LIMITS, config=config, recall=False)
    agent = create_agent(
        model,
        [look],
        middleware=[shout, ours],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
    )
    take(agent, "turn 0")
    take(agent, "turn 1")
    results = [one for one in values(agent)["messages"] if isinstance(one, ToolMessage)]
    assert any(map(digests_in, results))
    assert [one.content[0]["text"] for one in results] == [
        f"page {n}" for n in range(12)
    ]
