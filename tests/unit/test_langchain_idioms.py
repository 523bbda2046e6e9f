"""Does the package do as LangChain's own parts do: traces, marks of inserted messages, the newest streams?"""

import asyncio
import warnings
from collections import defaultdict

import pytest
from langchain_core import messages
from langchain_core.messages import AIMessage
from langsmith import Client, tracing_context

from langchain_ctxwin import ContextConfig
from langchain_ctxwin.observe import acp_update
from langchain_ctxwin.testing import ScriptedChatModel
from support.agents import THREAD, agent_on, on_both, talk

WINDOW = 2_000
INLINE = ContextConfig(summarize="inline")
TOLD = "question 3"
LONG = {"messages": talk(12, words=150)}


def writer():
    return ScriptedChatModel(script=lambda *_: AIMessage("SUMMARY so far."))


def model():
    return ScriptedChatModel(
        window=WINDOW, max_tokens=200, script=lambda *_: AIMessage("The answer.")
    )


def agent_of(adapter, chat):
    options = {"limits": WINDOW, "summarizer": writer(), "config": INLINE}
    return agent_on(adapter, chat, **options)


class Kept(Client):
    """LangSmith's client, which keeps the spans instead of sending them."""

    def __init__(self):
        super().__init__(
            api_url="http://localhost", api_key="x", auto_batch_tracing=False
        )
        self.inputs = defaultdict(str)

    def create_run(self, name, inputs, run_type, **_):
        self.inputs[name] += str(inputs)

    def update_run(self, run_id, **about):
        self.inputs[about.get("name")] += str(about.get("inputs") or "")


def test_the_span_of_the_middleware_holds_no_copy_of_the_request():
    """The spans around and inside of it have the messages already."""
    client = Kept()
    with tracing_context(enabled=True, client=client):
        agent_of("middleware", model()).invoke(LONG, THREAD)
    own = [name for name in client.inputs if "ContextWindow" in name]
    assert own
    assert not any(TOLD in client.inputs[name] for name in own)
    assert TOLD in client.inputs["ScriptedChatModel"]


@on_both
def test_what_is_inserted_says_whose_it_is(adapter):
    """In LangChain's own words, so that a user interface tells it from what people wrote."""
    if not hasattr(messages, "get_notification_metadata"):
        pytest.skip("this langchain-core has no notification metadata")
    chat = model()
    agent_of(adapter, chat).invoke(LONG, THREAD)
    sent = chat.requests[-1].messages
    marked = [one for one in sent if messages.get_notification_metadata(one)]
    assert len(marked) == 1
    assert "SUMMARY" in marked[0].text
    metadata = messages.get_notification_metadata(marked[0])
    assert metadata["source"] == "langchain_ctxwin"


async def all_of(channel):
    return [one async for one in channel]


async def texts_of(run):
    return [await message.text async for message in run.messages]


@pytest.mark.parametrize("is_async", [False, True])
@on_both
async def test_the_newest_stream_shows_the_answer_and_our_events_apart(
    adapter, is_async
):
    """No token of a summary is in it."""
    stream = pytest.importorskip("langgraph.stream.transformers")
    agent, options = agent_of(adapter, model()), {"version": "v3", "config": THREAD}
    options["transformers"] = [stream.CustomTransformer]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is experimental
        if is_async:
            run = await agent.astream_events(LONG, **options)
            texts, events = await asyncio.gather(texts_of(run), all_of(run.custom))
        else:
            run = agent.stream_events(LONG, **options)
            shown = list(run.interleave("messages", "custom"))
            texts = [str(one.text) for name, one in shown if name == "messages"]
            events = [one for name, one in shown if name == "custom"]
    assert texts == ["The answer."]
    updates = [update["status"] for one in events if (update := acp_update(one))]
    assert updates == ["in_progress", "completed"]
