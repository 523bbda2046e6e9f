"""The engine as its callers see it: regions, anchors, recovery, bad input, the budget, and what is remembered."""

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import (
    BudgetExceededError,
    CharRatioCounter,
    ContextConfig,
    ContextEngine,
    ModelInfo,
    ModelLimits,
    TokenBudget,
    TokenEstimator,
    pin,
)
from langchain_ctxwin.core.limits import refusal
from langchain_ctxwin.core.measuring import after_measure, from_answer
from langchain_ctxwin.core.session import read_key
from langchain_ctxwin.core.sizing import STORED_SIZES, Sizes, Span
from langchain_ctxwin.core.turns import read_history
from langchain_ctxwin.core.view import View
from langchain_ctxwin.observe import MemorySink, NoticeEvent
from support.agents import engine_of
from support.conversations import CharCounter, turns
from support.fakes import usage


class Margin(CharCounter):
    """An estimator whose truth may be a quarter more or less."""

    exact = False

    def upper(self, tokens):
        return int(tokens * 1.25)

    def lower(self, tokens):
        return int(tokens * 0.75)


def reply(tokens, **fields):
    return AIMessage("fine", usage_metadata=usage(tokens), **fields)


def asked(engine, messages, tokens, state=None):
    """Return history and state after a model answered with a reported size."""
    window = engine.measure(messages, session=state)
    answer = reply(tokens, id=f"r{len(messages)}")
    return [*messages, answer], {
        **after_measure(window).to_json(),
        "context_counts": from_answer(window, answer)[0],
    }


def test_one_call_compacts_as_its_steps_do_and_goes_on_from_its_session():
    engine, history, session = engine_of(900), turns(40), None
    for count in (3, 81):
        state = json.loads(json.dumps(session))
        window = engine.measure(
            history[:count], system_prompt="Be brief.", session=state
        )
        if compaction := engine.plan(window) or engine.emergency(window):
            state = engine.apply(compaction, window)
            window = engine.measure(
                history[:count], system_prompt="Be brief.", session=state
            )
        fitted = engine.fit(history[:count], session=session, system_prompt="Be brief.")
        session = fitted.session
        assert (fitted.request, fitted.report) == (engine.build(window), window.report)
        assert not fitted.report["over_by"]
    assert (
        asyncio.run(engine.afit(history, session=session, system_prompt="Be brief."))
        == fitted
    )
    assert session["context_guard"]["compactions"] >= 1


def test_a_margin_decides_compaction_but_never_refuses():
    """Compaction uses the upper bound, but not before a size was reported: what probably fits is sent whole."""
    engine = engine_of(200, counter=Margin())
    messages = [HumanMessage("short " * 125, id="1")]
    checked = Sizes(is_reported=True)
    window = engine.measure(
        messages,
        session={"context_counts": {"sizes": {"": STORED_SIZES.dump_python(checked)}}},
    )
    assert window.total_tokens <= 200 < window.upper_tokens
    compaction = engine.emergency(window)
    assert compaction.tokens_after < compaction.after.upper_tokens <= 200
    first = engine.measure(messages)
    assert first.over_by > 0
    assert engine.emergency(first) is None


# ---- reported sizes -------------------------------------------------------------------------------------------------


def test_the_reported_size_anchors_the_count_of_its_prefix_only():
    """Only what was added since is estimated; another prompt, other tools or an edited message make it worthless."""
    engine = engine_of(2000)
    messages, state = asked(engine, [HumanMessage("hello", id="q")], 500)
    grown = [*messages, HumanMessage("x" * 400, id="next")]
    window = engine.measure(grown, session=state)
    added = CharCounter()(grown[1:]) - CharCounter()([])
    assert (window.total_tokens, window.report["counted_by"]) == (500 + added, "usage")
    edited = [HumanMessage("hello " * 50, id="q"), *messages[1:]]
    for history, changed in (
        (messages, {"system_prompt": "new"}),
        (messages, {"tools": [{"name": "f"}]}),
        (edited, {}),
    ):
        assert (
            engine.measure(history, session=state, **changed).report["counted_by"]
            == "exact"
        )


# ---- bad summarizers, bad input -------------------------------------------------------------------------------------


def test_a_window_is_guessed_where_the_settings_allow_it():
    limits, config = (
        ModelLimits(max_output_tokens=1000),
        ContextConfig(allow_guess=True),
    )
    assert ContextEngine(limits, config=config).limits == limits.guessed()


@pytest.mark.parametrize("family", ["generic", "openai", "gemini"])
@pytest.mark.parametrize("limit", [800, 20_000])
def test_a_prompt_of_nearly_half_as_much_again_as_the_limit_is_refused(family, limit):
    """Before money is spent; the table has the count that was compared."""
    rule, counter = "Follow the rules of the house. ", TokenEstimator(family)
    prompt = rule * round(1.42 * limit / counter.count_text(rule))
    engine = ContextEngine(
        ModelLimits(max_input_tokens=limit, context_window=2 * limit), counter=counter
    )
    window = engine.measure([HumanMessage("Hello?")], system_prompt=prompt)
    with pytest.raises(BudgetExceededError) as refused:
        engine.emergency(window)
    total = rf"^total +{window.total_tokens:,} "
    assert re.search(total, str(refused.value), re.MULTILINE)


# ---- the budget and its table ---------------------------------------------------------------------------------------

TOKENS = st.integers(0, 10_000_000)
REPORT = {
    "context_window": 10_240,
    "input_limit": 8192,
    "system_tokens": 2000,
    "tool_tokens": 7200,
    "summary_tokens": 0,
    "record_tokens": 0,
    "pinned_tokens": 0,
    "history_tokens": 10,
    "reserved_tokens": 2048,
    "total_tokens": 9210,
    "over_by": 1018,
    "counted_by": "estimate",
}


@given(sizes=st.tuples(*[TOKENS] * 6))
def test_the_history_gets_what_the_fixed_regions_leave(sizes):
    """The reserve is outside the input limit."""
    budget = TokenBudget(*sizes)
    assert budget.fixed_tokens == sum(sizes[1:5])
    assert budget.history_budget == max(0, sizes[0] - sum(sizes[1:5]))


LARGE = {
    "context_window": 8192,
    "input_limit": 4096,
    "reserved_tokens": 4096,
    "history_tokens": 0,
    "tool_tokens": 0,
    "record_tokens": 0,
    "total_tokens": 4200,
    "over_by": 104,
}
LARGE |= {"system_tokens": 1500, "pinned_tokens": 1400, "summary_tokens": 1300}


@pytest.mark.parametrize(
    ("report", "needed", "advice"),
    [
        (
            REPORT,
            "9,210 of 8,192 tokens (system 2,000, tools 7,200, history 10)",
            "bind fewer tools",
        ),
        (
            LARGE,
            "4,200 of 4,096 tokens (system 1,500, summary 1,300, pinned 1,400)",
            "lower output_reserve",
        ),
    ],
)
def test_a_refusal_names_value_limit_regions_and_what_to_change(report, needed, advice):
    """What is largest is what to change, the reserve among it."""
    error = refusal(report)
    first, table = str(error).split("\n\n")
    assert first == f"the request needs {needed}: {advice} or raise context_window"
    assert f"system{report['system_tokens']:>22,}" in table
    assert (type(error), error.report) == (BudgetExceededError, report)


# ---- what is remembered is only ever a shortcut ---------------------------------------------------------------------


DEFERRED = {"name": "find", "input_schema": {}, "defer_loading": True}


@pytest.mark.parametrize("tools", [[], [DEFERRED]], ids=["no tools", "a deferred one"])
def test_a_message_is_priced_once_while_the_history_grows(tools):
    """So is the system prompt, of which each request makes a message anew."""
    priced = []

    def counter(given, *, tools=None):
        priced.extend(message.content for message in given)
        return CharRatioCounter()(given, tools=tools)

    engine = ContextEngine(limits=ModelLimits(context_window=10_000), counter=counter)
    messages = [HumanMessage("a", id="1"), AIMessage("b", id="2")]
    for text in "cde":
        messages = [*messages, HumanMessage(text, id=text)]
        engine.measure(messages, system_prompt="Be brief.", tools=tools).report  # noqa: B018
    assert sorted(priced) == ["Be brief.", *"abcde"]


COMPACTED = [{"type": "compaction", "content": "all of it"}]
PICTURE = [{"type": "image", "base64": "QUJD", "mime_type": "image/png"}]
MESSAGES = st.one_of(
    st.just(HumanMessage("plain")),
    st.just(HumanMessage(PICTURE)),
    st.just(pin(HumanMessage("pinned"))),
    st.builds(AIMessage, st.just(COMPACTED)),
)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.lists(MESSAGES, min_size=1, max_size=3)),
        max_size=8,
    )
)
def test_what_is_known_of_a_history_follows_it(changes):
    """However it grows, is cut or branches: steps, pins, compactions and pictures are those of the one built anew."""
    messages, history = [HumanMessage("first", id="0")], None
    for cut, added in changes:
        messages = [
            *messages[: max(1, len(messages) - cut)],
            *(message.model_copy() for message in added),
        ]
        history = read_history(messages, history)
        assert history == read_history(messages)


# State that holds something odd: its key is dropped whole, with a line, and the thread goes on.

HISTORY = [
    HumanMessage("question " * 40, id="q"),
    AIMessage("answer " * 40, id="a"),
    HumanMessage("next", id="n"),
]


def engine():
    return ContextEngine(ModelLimits(8192))


def counts():
    """What a conversation of this package stores."""
    window = engine().measure(HISTORY[:1])
    answer = HISTORY[1].model_copy(update={"usage_metadata": usage(70)})
    return from_answer(window, answer)[0]


@given(
    reported=st.integers(1, 200_000),
    offset=st.integers(-(10**5), 10**5),
    counted=st.integers(0, 4_000),
    prompt=st.sampled_from(["", "rule " * 2000]),
)
def test_measuring_again_changes_nothing(reported, offset, counted, prompt):
    spans = (Span(5, 7, 1_000, counted),)
    known = Sizes(offset=offset, spans=spans, is_reported=True)
    answered = HISTORY[1].model_copy(update={"usage_metadata": usage(reported)})
    history = [HISTORY[0], answered, HISTORY[2]]
    state = {"context_counts": {"sizes": {"": STORED_SIZES.dump_python(known)}}}
    once = after_measure(
        engine().measure(history, system_prompt=prompt, session=state)
    ).to_json()
    twice = after_measure(
        engine().measure(history, system_prompt=prompt, session=once)
    ).to_json()
    assert twice == once


@pytest.mark.parametrize(
    ("extra", "kept", "faults"),
    [
        ({"messages": 2, "first": "q"}, {"messages": 2, "first": "q"}, ()),
        (
            {"corrections": {"|": [0]}, "messages": 3},
            {"messages": 3},
            (),
        ),  # a key of earlier versions is no fault
        (
            {"anchor": "x", "limits": {"m": {"context_window": 4096}}},
            None,
            ("context_counts holds nothing of ours: it was dropped",),
        ),
    ],
)
def test_what_we_store_is_read_back_whole_and_one_bad_value_costs_its_key(
    extra, kept, faults
):
    others = {key: value for key, value in counts().items() if key not in extra}
    kept = {} if kept is None else others | kept
    assert read_key("context_counts", json.loads(json.dumps(others | extra))) == (
        kept,
        faults,
    )
    guard = {
        "compactions": 1,
        "dropped_turns": 2,
        "ineffective": 0,
        "asked": 4,
        "since": 2,
    }
    assert read_key("context_guard", guard) == (guard, ())
    session = engine().measure(HISTORY, session={"context_guard": guard}).session
    assert session.number("since") == 2


def test_a_view_that_cannot_be_read_goes_with_its_summary_and_record_and_what_was_spent_stays():
    """They tell of what is shown again."""
    state = {
        "context_view": {"start": {"id": "a", "index": 1}, "pinned": [["q", 0]]},
        "context_summary": "They asked.",
        "context_record": {
            "lines": [["said", "Be brief.", "q", 0]],
            "left": {"messages": 1},
        },
        "context_guard": {"compactions": 1, "since": 1, "spent": {"cost": "0.5"}},
    }
    session = engine().measure(HISTORY, session=state).session
    assert (session.view, session.summary) == (View(), "")
    stored = {"compactions": 1, "since": len(HISTORY), "spent": {"cost": "0.5"}}
    assert session.guard == stored


def test_a_pending_summary_of_what_is_summarized_already_is_dropped():
    digest = read_history(HISTORY).checksums[1]
    pending = {"key": "k", "start": 0, "stop": 1, "digest": digest, "text": ""}
    state = {"context_pending": pending | {"since": 0.0, "max_tokens": 9}}
    assert engine().measure(HISTORY, session=state).session.pending is not None
    view = {"start": {"id": "a", "index": 1}, "covered": 1}
    state |= {"context_summary": "They asked.", "context_view": view}
    assert engine().measure(HISTORY, session=state).session.pending is None


def test_a_view_that_a_provider_began_anew_is_told():
    sink = MemorySink()
    claude = ModelInfo(name="claude", provider="anthropic", context_window=200_000)
    block = {"type": "compaction", "content": "They greeted each other."}
    answer = AIMessage([block, {"type": "text", "text": "And now?"}], id="d")
    ContextEngine(claude, sinks=[sink]).fit([*HISTORY, answer, HumanMessage("Go on.")])
    [notice] = sink.of(NoticeEvent)
    assert "the provider compacted what was before" in notice.about["fault"]


def test_a_history_that_lost_messages_is_told_where_there_is_no_graph():
    sink = MemorySink()
    engine = ContextEngine(ModelLimits(8192), sinks=[sink])
    chat = [HumanMessage(f"text {number}", id=f"m{number}") for number in range(3)]
    engine.fit(chat[2:], session=engine.fit(chat).session)
    [notice] = sink.of(NoticeEvent)
    assert notice.notice == "session_mended"
