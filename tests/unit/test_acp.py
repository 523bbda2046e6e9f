"""Compactions as an editor shows them: the `compaction_update` of the Agent Client Protocol."""

import pytest

from langchain_ctxwin import ContextConfig, ContextEngine, create_context_agent
from langchain_ctxwin.observe import (
    MemorySink,
    StepEvent,
    acp_update,
)
from langchain_ctxwin.testing import ScriptedChatModel

INLINE = ContextConfig(summarize="inline")
HISTORY = [("user", "Where is A-17? " + "word " * 200), ("assistant", "Soon.")] * 10
ENTRY = {"sessionUpdate": "compaction_update", "compactionId": "compaction-1"}
SHOWN = [{"type": "text", "text": "A-17 is on its way."}]


def failing(*_):
    raise ConnectionError("down")


def updates_of(events):
    return [update for event in events if (update := acp_update(event))]


@pytest.mark.parametrize(
    ("summarizer", "expected"),
    [
        (
            lambda *_: "A-17 is on its way.",
            [
                {"status": "in_progress"},
                {"status": "completed", "summary": SHOWN, "error": None},
            ],
        ),
        (None, [{"status": "completed", "summary": [], "error": None}]),
    ],
)
def test_a_compaction_is_one_entry_from_its_beginning_to_its_end(summarizer, expected):
    sink = MemorySink()
    engine = ContextEngine(2_000, summarizer=summarizer, config=INLINE, sinks=[sink])
    engine.fit(HISTORY)
    assert updates_of(sink.events) == [{**ENTRY, **update} for update in expected]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_summary_that_fails_is_told_in_the_stream_and_the_entry_is_completed(
    is_async,
):
    """What leaves without a summary then is the same compaction."""
    agent = create_context_agent(
        ScriptedChatModel(), [], limits=2_000, summarizer=failing, config=INLINE
    )
    given, options = {"messages": HISTORY[:-1]}, {"stream_mode": "custom"}
    if is_async:
        chunks = [chunk async for chunk in agent.astream(given, **options)]
    else:
        chunks = list(agent.stream(given, **options))
    updates = updates_of(chunks)
    assert [update["status"] for update in updates] == [
        "in_progress",
        "failed",
        "completed",
    ]
    assert {update["compactionId"] for update in updates} == {"compaction-1"}
    assert updates[1]["error"]


def test_other_events_are_no_updates():
    assert acp_update(StepEvent()) is None
    assert acp_update({"type": "context.step"}) is None
