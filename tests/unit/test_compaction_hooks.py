"""What have an application and its settings a say in before a compaction, and what is it told after one?"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from structlog.testing import capture_logs

from langchain_ctxwin import (
    ConfigError,
    ContextConfig,
    ContextEngine,
    ModelLimits,
    create_context_agent,
    render_record,
)
from langchain_ctxwin.core import message_id, text_of
from langchain_ctxwin.core.events import CompactionEvent
from langchain_ctxwin.core.notes import lines_to_keep
from langchain_ctxwin.errors import BudgetExceededError
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import MemorySink
from langchain_ctxwin.testing import request_faults
from support import agents
from support.agents import (
    RUNS,
    THREAD,
    WORD,
    agent_on,
    ask,
    compacted,
    model_of,
    on_both,
    talk,
    values,
)
from support.conversations import conversations
from support.fakes import ScriptedChatModel, exact_count, script

LIMIT = 1_000


class Asked:
    """A hook that remembers what it was asked, and answers as it is told."""

    def __init__(self, answer=lambda compaction: compaction):
        self.compactions = []
        self.answer = answer

    def __call__(self, window, compaction):
        self.compactions.append(compaction)
        return self.answer(compaction)


def broken(messages):
    raise RuntimeError("no")


def veto(compaction):
    return None


def engine_of(before=None, *, window=LIMIT, summarizer=None, sinks=(), **config):
    return agents.engine_of(
        window, None, summarizer, before_compaction=before, sinks=sinks, **config
    )


def ids(window):
    return [message.id for message in window.messages]


def test_an_answer_that_means_nothing_is_refused():
    engine = engine_of(Asked(lambda c: True))
    with pytest.raises(
        ConfigError,
        match=r"before_compaction returned True: return the compaction, compaction.spare",
    ):
        engine.emergency(engine.measure(talk(12)))


@pytest.mark.parametrize("unknown", ["nobody", None])
def test_a_wish_for_a_message_that_does_not_exist_is_passed_over_and_said(unknown):
    """What else was wished is kept."""
    engine, history = engine_of(Asked(lambda c: c.spare(unknown, "q2"))), talk(12)
    with capture_logs() as logs:
        state = engine.apply(
            engine.emergency(window := engine.measure(history)), window
        )
    assert "q2" in ids(engine.measure(history, session=state))
    assert [
        (log["event"], log["reason"]) for log in logs if log["log_level"] == "warning"
    ] == [("compaction.hook_ignored", f"the history has no message {unknown!r}")]


def test_the_first_shown_message_can_be_wished_for_whoever_wrote_it():
    """A thread that a client begins with an answer is shown behind a note of ours, which the history does not have."""

    def first(window, compaction):
        return compaction.spare(window.messages[0].id)

    agent = create_context_agent(
        ScriptedChatModel(profile={"max_input_tokens": LIMIT}),
        [],
        recall=False,
        before_compaction=first,
        limits=ModelLimits(LIMIT),
    )
    history = [
        AIMessage("Hello! " + "What can I do for you? " * 20, id="greeting"),
        *talk(12),
    ]
    assert (
        agent.invoke({"messages": [*history, HumanMessage("And now?")]})["messages"][
            -1
        ].type
        == "ai"
    )


async def _async_hook(window, compaction):
    return compaction


@pytest.mark.parametrize("hook", [3, _async_hook, Asked])
@pytest.mark.parametrize(
    "make",
    [
        lambda **hooks: ContextEngine(ModelLimits(context_window=LIMIT), **hooks),
        ContextWindowMiddleware,
        lambda **hooks: create_context_agent(
            ScriptedChatModel(profile={"max_input_tokens": LIMIT}), [], **hooks
        ),
    ],
)
def test_what_is_no_plain_function_is_refused(make, hook):
    with pytest.raises(
        ConfigError, match=r"^before_compaction=.*: pass a plain function that takes "
    ):
        make(before_compaction=hook)


def test_the_event_says_what_happened():
    sink = MemorySink()
    engine, history = engine_of(sinks=[sink]), talk(12)
    before = engine.measure(history)
    state = engine.apply(engine.emergency(before), before)
    after = engine.measure(history, session=state)
    [event] = sink.of(CompactionEvent)
    assert (event.kind, event.reason, event.thread) == (
        "force",
        state["context_guard"]["reason"],
        "",
    )
    sizes = [window.total_tokens for window in (before, after)]
    assert [event.tokens_before, event.tokens_after] == sizes
    assert event.left_messages == len([m.id for m in history if m.id not in ids(after)])


@pytest.mark.parametrize(
    ("summarizer", "kinds"), [(broken, []), (lambda _: "short", ["summarize"])]
)
def test_only_what_happened_is_told(summarizer, kinds):
    sink = MemorySink()
    engine = engine_of(
        sinks=[sink], summarizer=summarizer, summarize="inline", trigger=0.5
    )
    window = engine.measure(talk(6))
    engine.apply(engine.plan(window), window)
    asyncio.run(engine.aapply(engine.plan(window), window))
    assert [event.kind for event in sink.of(CompactionEvent)] == kinds * 2


def agent_of(adapter, **hooks):
    return agent_on(
        adapter,
        model_of(LIMIT),
        config=ContextConfig(output_reserve=0),
        counter=exact_count,
        **hooks,
    )


def chat(agent, turns):
    for n in range(turns):
        agent.invoke(
            {"messages": [HumanMessage(f"question {n} " + WORD * 90, id=f"q{n}")]},
            THREAD,
        )
    return values(agent)


@pytest.mark.parametrize(
    ("verb", "turns", "config"),
    [("plan", 6, {"trigger": 0.5}), ("relieve", 3, {"max_history_tokens": 200})],
)
def test_what_may_wait_can_be_vetoed(verb, turns, config):
    plain, engine = engine_of(**config), engine_of(Asked(veto), **config)
    assert getattr(plain, verb)(plain.measure(talk(turns))) is not None
    assert getattr(engine, verb)(engine.measure(talk(turns))) is None


@pytest.mark.parametrize(
    ("answer", "ignored"),
    [
        (lambda c: c, ""),
        (veto, "does not fit"),
        (lambda c: c.spare(*(f"{who}{n}" for who in "qa" for n in range(12))), ""),
    ],
    ids=["as it is", "a veto", "a wish that cannot fit"],
)
def test_what_has_to_happen_happens_with_a_warning_where_the_hook_wants_something_else(
    answer, ignored
):
    hook = Asked(answer)
    with capture_logs() as logs:
        window, _ = compacted(engine_of(hook), talk(12))
    assert (window.over_by, len(window.messages) < 12) == (0, True)
    assert hook.compactions[0].kind == "force"
    is_taken = hook.answer(hook.compactions[0]) is hook.compactions[0]
    warnings = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["event"] for entry in warnings] == (
        [] if is_taken else ["compaction.hook_ignored"]
    )
    assert is_taken or ignored in warnings[0]["reason"]
    assert not is_taken or len(hook.compactions) == 1


def test_spared_messages_lines_and_reasons_of_the_application_are_taken():
    hook = Asked(
        lambda compaction: compaction.spare("q2", "a7").with_lines(
            "Ticket 4711 is open."
        )
    )
    engine, history = engine_of(hook), talk(12)
    before = engine.measure(history)
    compaction = engine.emergency(before)
    state = engine.apply(compaction, before)
    window = engine.measure(history, session=state)
    assert {"q2", "a7"} <= {*ids(window)}
    assert (window.over_by, window.total_tokens) == (0, compaction.tokens_after)
    assert (
        "open: keep: Ticket 4711 is open."
        in render_record(state["context_record"]).splitlines()
    )
    _, state = compacted(
        engine_of(Asked(lambda c: replace(c, reason="end of phase one"))), history
    )
    assert state["context_guard"]["reason"] == "end of phase one"


@on_both
def test_agents_ask_once_and_tell_once_per_compaction(adapter):
    hook, sink = Asked(lambda compaction: compaction.spare("q3")), MemorySink()
    state = chat(agent_of(adapter, before_compaction=hook, sinks=[sink]), 20)
    events = sink.of(CompactionEvent)
    number = state["context_guard"]["compactions"]
    assert number > 0
    assert (len(hook.compactions), len(events)) == (number, number)
    assert {event.thread for event in events} == {"1"}
    assert "q3" in [key for key, _ in state["context_view"]["pinned"]]


@on_both
def test_a_hook_that_raises_fails_the_step_and_changes_nothing(adapter):
    def fail(*_):
        raise KeyError("mine")

    agent = agent_of(adapter, before_compaction=fail)
    with pytest.raises(KeyError, match="mine"):
        chat(agent, 20)
    assert values(agent).get("context_guard", {}).get("compactions", 0) == 0
    assert values(agent).get("context_view", {}) == {}


@on_both
def test_with_a_veto_every_request_fits_all_the_same(adapter):
    hook = Asked(veto)
    with capture_logs() as logs:
        state = chat(agent_of(adapter, before_compaction=hook), 20)
    happened = [entry for entry in logs if entry["event"] == "context.compacted"]
    assert state["context_guard"]["compactions"] == len(happened) > 0
    assert all("exceeds" in entry["reason"] for entry in happened)
    assert len(hook.compactions) >= len(happened)


@RUNS
@given(
    messages=conversations(huge=True),
    window=st.sampled_from((200, 400, 800, 2000)),
    data=st.data(),
)
def test_whatever_a_hook_wishes_the_request_fits_and_costs_what_was_said(
    messages, window, data
):
    positions = data.draw(st.sets(st.integers(0, len(messages) - 1), max_size=4))
    lines = data.draw(st.lists(st.text(max_size=300), max_size=2))
    spared = [message_id(messages, index) for index in sorted(positions)]
    engine = engine_of(
        Asked(lambda c: c.spare(*spared).with_lines(*lines)), window=window
    )
    before = engine.measure(messages)
    try:
        compaction = engine.emergency(before)
    except BudgetExceededError:
        with pytest.raises(BudgetExceededError):  # without the wishes it is no other
            engine_of(window=window).emergency(before)
        return
    if compaction is None:
        return
    after = engine.measure(messages, session=engine.apply(compaction, before))
    assert (after.over_by, after.total_tokens) == (0, compaction.tokens_after)
    assert request_faults(engine.build(after)) == []


# --- tools whose results are spared, or cleared first


def parallel(number, **texts):
    """One call of each tool, in parallel, with their results."""
    calls = [{"name": name, "args": {}, "id": f"{name}{number}"} for name in texts]
    ids = {
        name: {
            "tool_call_id": f"{name}{number}",
            "id": f"{name}-{number}",
            "name": name,
        }
        for name in texts
    }
    results = [ToolMessage(text, **ids[name]) for name, text in texts.items()]
    return [AIMessage("", tool_calls=calls, id=f"a{number}"), *results]


PLAN, LOG = WORD * 300, WORD * 900
HISTORY = [HumanMessage("Compare them.", id="q"), *parallel(1, plan=PLAN, log=LOG)]
NAMELESS = [
    m.model_copy(update={"name": None}) if isinstance(m, ToolMessage) else m
    for m in HISTORY
]


def fitted(history, window, **config):
    """The request after what has to leave left, by message id, and the state."""
    after, state = compacted(engine_of(window=window, **config), history)
    assert after.over_by == 0
    return {message.id: text_of(message.content) for message in after.messages}, state


@pytest.mark.parametrize(
    ("history", "window", "config", "whole"),
    [
        (HISTORY, 900, {"spare_tools": ("plan",)}, {"plan-1"}),
        (NAMELESS, 900, {"spare_tools": ("plan",)}, {"plan-1"}),
        (
            [HISTORY[0], *parallel(1, plan=LOG, log=LOG)],
            700,
            {"record_share": 0.8},
            set(),
        ),
        (HISTORY, 500, {"spare_tools": ("plan", "log")}, set()),
    ],
    ids=["spared", "found by its call", "not spared", "nothing else makes it fit"],
)
def test_results_of_spared_tools_stay_whole_while_others_can_be_shortened(
    history, window, config, whole
):
    shown, _ = fitted(history, window, **config)
    assert shown["q"] == "Compare them."
    assert {
        m.id for m in history if m.type == "tool" and shown[m.id] == m.content
    } == whole


def test_what_a_spared_result_brought_goes_to_the_record_when_its_turn_leaves():
    plan = parallel(0, plan="ticket TK-4711 " + WORD * 60)
    first = [HumanMessage("What is planned?", id="q0"), *plan, AIMessage("Done.")]
    later = [HumanMessage("And now?", id="q1"), *parallel(1, log=WORD * 200)]
    shown, state = fitted([*first, *later], 300, spare_tools=("plan",))
    assert "plan-0" not in shown
    assert "TK-4711" in render_record(state["context_record"])


def test_old_results_of_cleared_tools_go_first_and_those_of_others_stay():
    history = [
        HISTORY[0],
        *parallel(1, log=WORD * 500, plan=WORD * 100),
        *parallel(2, plan="short"),
    ]
    shown, _ = fitted(history, 600, clear_tools=("log",), keep=0.9)
    assert shown["log-1"].startswith("[Tool result cleared")
    assert shown["plan-1"] == WORD * 100


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            {"clear_tools": ["a", "b"], "spare_tools": ["b"]},
            "clear_tools and spare_tools both name b: leave each in one",
        ),
        ({"spare_tools": [""]}, "spare_tools.0='': String should match pattern"),
        ({"clear_tools": 3}, "clear_tools=3"),
        *(
            (
                {name: ["plam"]},
                f"{name}=('plam',): the agent has no tool of that name, it has log, plan: correct",
            )
            for name in ("clear_tools", "spare_tools")
        ),
    ],
)
def test_settings_that_cannot_hold_are_refused_with_what_to_do(config, told):
    with pytest.raises(ConfigError) as raised:
        agent_on("nodes", model_of(700), [plan, log], config=ContextConfig(**config))
    assert told in str(raised.value)


@tool
def plan() -> str:
    """Read the plan."""
    return WORD * 250


@tool
def log() -> str:
    """Read the log."""
    return WORD * 700


@on_both
def test_agents_spare_the_results_of_a_tool(adapter):
    calls = [{"name": name, "args": {}, "id": f"c-{name}"} for name in ("plan", "log")]
    model = model_of(700, policy=script(AIMessage("", tool_calls=calls), "done"))
    config = ContextConfig(spare_tools=("plan",), output_reserve=0)
    ask(
        agent_on(adapter, model, [plan, log], config=config, counter=exact_count),
        "Compare.",
    )
    shown = {
        m.name: m.content
        for m in model.requests[-1].messages
        if isinstance(m, ToolMessage)
    }
    assert shown["plan"] == WORD * 250
    assert len(shown["log"]) < len(WORD * 700)


def test_the_middleware_warns_once_of_a_tool_that_no_request_shows():
    """It cannot refuse: other middleware may have left the tool out of this request."""
    agent = agent_on(
        "middleware",
        model_of(700),
        [plan, log],
        config=ContextConfig(spare_tools=("plam",)),
    )
    with capture_logs() as logs:
        ask(agent, "One.")
        ask(agent, "Two.")
    assert [entry["event"] for entry in logs] == ["config.tools_unknown"]
    assert "spare_tools=('plam',)" in logs[0]["reason"]


def test_a_wished_line_that_says_nothing_is_no_line():
    """Two escape characters are a statement of a text, and nothing on a line."""
    assert list(lines_to_keep("\x1b\x1b", "m0")) == []
