"""Can an agent compact at the end of a phase, naming what to keep, and see how full its window is?"""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import (
    ContextConfig,
    ContextEngine,
    ModelLimits,
    create_compact_tool,
    render_record,
)
from langchain_ctxwin.core.notes import COMPACT_KEY
from support.agents import (
    THREAD,
    WORD,
    agent_on,
    ask,
    call,
    model_of,
    on_both,
    values,
)
from support.fakes import exact_count, script

LIMIT = 4_000
KEEP = "The customer wants order 8812 refunded.\nUse the blue template."
KEPT = [
    "open: keep: The customer wants order 8812 refunded.",
    "open: keep: Use the blue template.",
]


@tool
def read(part: int) -> str:
    """Read a part."""
    return WORD * 100


def reads(count):
    return [call("read", f"c{n}", part=n) for n in range(count)]


def compacting(keep=KEEP, *, before=8, after=3, name="compact_context"):
    """A script: read some parts, compact, read more, answer."""
    parts = reads(before + after)
    return script(
        *parts[:before], call(name, "keep", keep=keep), *parts[before:], "done"
    )


def ran(adapter, policy, *, name="compact_context", guard=None, **config):
    """Run one turn; return the session and the model."""
    model, settings = (
        model_of(LIMIT, policy=policy),
        ContextConfig(output_reserve=0, **config),
    )
    tools = [read, create_compact_tool(name=name)]
    agent = agent_on(
        adapter, model, tools, config=settings, counter=exact_count, guard=guard
    )
    ask(agent, "Refund it.")
    return values(agent), model


def record_of(state):
    return render_record(state["context_record"]).splitlines()


@on_both
def test_a_call_compacts_once_to_the_low_water_mark_and_keeps_what_it_names_line_by_line(
    adapter,
):
    """Although the request fits: an eighth of its room is full by default then, and the newest step is there."""
    state, model = ran(adapter, compacting(before=20))
    full, after = model.requests[20:22]
    assert full.tokens < LIMIT
    assert after.tokens < 0.4 * full.tokens
    assert isinstance(after.messages[-1], ToolMessage)
    assert record_of(state)[-2:] == KEPT
    shown = "\n".join(str(message.content) for message in after.messages)
    assert all(line in shown for line in KEPT)
    assert (
        state["context_guard"]["compactions"],
        state["context_guard"]["reason"],
    ) == (
        1,
        "the agent asked to compact",
    )


@pytest.mark.parametrize(
    ("adapter", "before", "after", "config"),
    [("nodes", 8, 40, {}), ("middleware", 8, 40, {}), ("nodes", 0, 60, {"keep": 0.3})],
    ids=["nodes", "middleware", "nothing left at the time of the call"],
)
def test_what_to_keep_stays_through_later_compactions(adapter, before, after, config):
    state, _ = ran(adapter, compacting(before=before, after=after), **config)
    assert state["context_guard"]["compactions"] > (1 if before else 0)
    assert set(KEPT) <= {*record_of(state)}


def test_what_to_keep_stays_where_a_long_history_is_met_at_once():
    """Of the oldest messages only that and what people said is read."""
    asked = call("compact_context", "keep", keep=KEEP)
    kept = ToolMessage(
        "Done.", tool_call_id="keep", additional_kwargs={COMPACT_KEY: KEEP}
    )
    read_since = [
        one
        for n in range(800)
        for one in (
            call("read", f"c{n}", part=n),
            ToolMessage(WORD, tool_call_id=f"c{n}"),
        )
    ]
    history = [HumanMessage("Refund it."), asked, kept, *read_since]
    engine = ContextEngine(ModelLimits(context_window=4_000))
    session = engine.fit(history).session
    assert set(KEPT) <= {*record_of(session)}


class StoppedError(Exception):
    """The process ended here."""


def test_a_resume_after_the_compaction_does_not_compact_again():
    model = model_of(LIMIT)
    answer, stopped = compacting(before=8, after=0), []

    def stop_once(messages, tools):
        if "keep: " in str(messages) and not stopped:
            stopped.append(True)
            raise StoppedError
        return answer(messages, tools)

    model.policy = stop_once
    options = {
        "config": ContextConfig(output_reserve=0),
        "counter": exact_count,
        "checkpointer": InMemorySaver(),
    }
    agent = agent_on("nodes", model, [read, create_compact_tool()], **options)
    with pytest.raises(StoppedError):
        ask(agent, "Refund it.")
    agent.invoke(None, THREAD)
    assert values(agent)["context_guard"]["compactions"] == 1
