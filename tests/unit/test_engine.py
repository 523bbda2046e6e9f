"""The engine as its callers see it: counts, anchors, recovery, bad input, bad summarizers."""

import asyncio
import json
import re
import threading

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langchain_ctxwin.config import ContextConfig
from langchain_ctxwin.core.calibration import Belief
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.outcome import from_answer, seen
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.pairing import find_faults
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.engine import ContextEngine
from langchain_ctxwin.errors import BudgetExceededError, ConfigError, UnknownModelError
from support.conversations import CharCounter

FILLER = "lorem ipsum dolor " * 20  # 90 tokens


class Margin(CharCounter):
    """An estimator whose truth may be a quarter more or less."""

    exact = False

    def upper(self, tokens):
        return int(tokens * 1.25)

    def lower(self, tokens):
        return int(tokens * 0.75)


def engine_of(window=600, *, counter=None, summarizer=None, limits=None, **config):
    settings = ContextConfig(output_reserve=0, **config)
    limits = limits or ModelLimits(context_window=window)
    return ContextEngine(limits=limits, counter=counter or CharCounter(), summarizer=summarizer, config=settings)


def chat(turns):
    messages = []
    for i in range(turns):
        messages += [HumanMessage(f"question {i} {FILLER}", id=f"q{i}"), AIMessage(f"answer {i}", id=f"a{i}")]
    return [*messages, HumanMessage("now", id="now")]


def reply(tokens, **fields):
    usage = {"input_tokens": tokens, "output_tokens": 5, "total_tokens": tokens + 5}
    return AIMessage("fine", usage_metadata=usage, **fields)


def asked(engine, messages, tokens, state=None):
    """Return history and state after a model answered with a reported size."""
    window = engine.measure(messages, session=state)
    answer = reply(tokens, id=f"r{len(messages)}")
    return [*messages, answer], {**seen(window), "context_counts": from_answer(window, answer).counts}


def test_the_regions_add_up():
    """Every token of the total belongs to one region."""
    window = engine_of().measure(chat(2), system_prompt="S" * 40, tools=[{"name": "f"}])
    names = ("system_tokens", "tool_tokens", "summary_tokens", "pinned_tokens", "history_tokens")
    assert sum(window.report[name] for name in names) == window.total_tokens
    assert (window.report["counted_by"], window.report["input_limit"]) == ("exact", 600)
    assert window.report["utilization"] == round(window.total_tokens / 600, 4)


def test_langchains_own_counter_works():
    """Its counts are estimates."""
    window = engine_of(counter=count_tokens_approximately).measure(chat(2), system_prompt="hi")
    assert window.report["counted_by"] == "estimate"


def test_a_margin_decides_compaction_but_never_refuses():
    """Compaction uses the upper bound, refusal the lower one."""
    engine = engine_of(200, counter=Margin())
    messages = [HumanMessage("short " * 125, id="1")]
    checked = Belief(offset_variance=0, slope_variance=0.15**2, reports=1)
    window = engine.measure(messages, session={"context_counts": {"beliefs": {"|": checked.to_json()}}})
    assert window.total_tokens <= 200 < window.priced_view.upper_tokens
    compaction = engine.emergency(window)
    assert compaction.tokens_after < compaction.upper_after <= 200


def test_a_first_question_is_not_cut_on_a_suspicion():
    """Nobody has reported a size yet: what probably fits is sent whole."""
    engine = engine_of(200, counter=Margin())
    window = engine.measure([HumanMessage("short " * 125, id="1")])
    assert window.over_by > 0
    assert engine.emergency(window) is None


def test_the_reported_size_anchors_the_count():
    """Only what was added since is estimated."""
    engine = engine_of(2000)
    messages, state = asked(engine, [HumanMessage("hello", id="q")], 500)
    grown = [*messages, HumanMessage("x" * 400, id="next")]
    window = engine.measure(grown, session=state)
    added = CharCounter()(grown[1:]) - CharCounter()([])
    assert (window.total_tokens, window.report["counted_by"]) == (500 + added, "usage")


def test_an_anchor_is_for_its_prefix_only():
    """Another prompt, other tools or an edited message make it worthless."""
    engine = engine_of(2000)
    messages, state = asked(engine, [HumanMessage("hello", id="q")], 500)
    edited = [HumanMessage("hello " * 50, id="q"), *messages[1:]]
    assert engine.measure(messages, session=state).report["counted_by"] == "usage"
    assert engine.measure(messages, session=state, system_prompt="new").report["counted_by"] == "exact"
    assert engine.measure(messages, session=state, tools=[{"name": "f"}]).report["counted_by"] == "exact"
    assert engine.measure(edited, session=state).report["counted_by"] == "exact"


def test_usage_in_a_fresh_history_is_used():
    """A history that another program wrote says its size as well."""
    window = engine_of(2000).measure([HumanMessage("hello"), reply(700), HumanMessage("next")])
    assert window.report["counted_by"] == "usage"
    assert window.total_tokens > 700


def test_a_request_that_is_over_by_the_providers_count_is_compacted():
    """Although our own estimate is far below the limit."""
    engine = engine_of(600, pin_first_user=False)
    history = [*chat(2), reply(900, id="r"), HumanMessage("next", id="n")]
    window = engine.measure(history)
    assert window.priced_view.estimates.total_tokens < 300
    assert window.total_tokens > 600
    compaction = engine.emergency(window)
    assert compaction.tokens_after < compaction.tokens_before == window.total_tokens


def test_dropping_the_view_forgets_reported_sizes():
    """They belong to requests that the view made small."""
    engine = engine_of(pin_first_user=False)
    messages = chat(10)
    window = engine.measure(messages)
    state = engine.apply(engine.emergency(window), window)
    messages, state = asked(engine, messages, 200, state)
    start = state["context_view"]["start"]["id"]
    left = [m for m in [*messages, HumanMessage("next", id="n")] if m.id != start]
    assert engine.measure(left, session=state).report["counted_by"] == "exact"


def test_recovery_learns_the_stated_limit():
    """The next measure has it, per model."""
    engine = engine_of(2000)
    messages = chat(10)
    window = engine.measure(messages)
    overflow = ContextOverflow(limit=800, actual=1600, kind="input")
    state = engine.recover(window, overflow)
    after = engine.measure(messages, session=state)
    assert after.budget.input_limit == 800
    assert after.priced_view.upper_tokens <= 800
    assert json.loads(json.dumps(state)) == state


def test_recovery_of_the_smallest_request_is_refused():
    """There is nothing left to give."""
    engine = engine_of()
    with pytest.raises(BudgetExceededError):
        engine.recover(engine.measure([HumanMessage("hi")]), ContextOverflow(limit=5, actual=10, kind="input"))


RELEASED = threading.Event()


def hang(messages):
    RELEASED.wait(5)


async def ahang(messages):
    await asyncio.sleep(5)


def fail(messages):
    raise RuntimeError("model is down")


@pytest.mark.parametrize("summarizer", [hang, fail, lambda messages: "", lambda messages: "novel" * 9000])
async def test_a_bad_summarizer_fails_nothing_and_stops_after_two_tries(summarizer):
    """The next user message may try again."""
    engine = engine_of(summarizer=summarizer, summary_timeout_seconds=0.02)
    messages, state = chat(6), {}
    for attempt in range(2):
        window = engine.measure(messages, session=state)
        plan = engine.plan(window)
        state = engine.apply(plan, window) if attempt else await engine.aapply(plan, window)
        assert (state["context_view"], state["context_summary"]) == ({}, "")
        assert state["context_guard"]["reason"].startswith("summary refused: ")
    window = engine.measure(messages, session=state)
    assert engine.plan(window) is None
    later = [*messages, AIMessage("ok", id="ok"), HumanMessage("again", id="again")]
    assert engine.plan(engine.measure(later, session=state)) is not None
    RELEASED.set()  # the event loop waits for its threads


async def test_an_async_summarizer_that_hangs_is_cut_off():
    """After the timeout the state says why."""
    engine = engine_of(summarizer=ahang, summary_timeout_seconds=0.02)
    window = engine.measure(chat(6))
    state = await engine.aapply(engine.plan(window), window)
    assert "no summary within 0.02 seconds" in state["context_guard"]["reason"]


def test_an_empty_history_is_an_empty_request():
    """Nothing to compact either."""
    engine = engine_of()
    window = engine.measure([])
    assert (engine.build(window), window.over_by, engine.plan(window), engine.emergency(window)) == ([], 0, None, None)


def test_only_system_messages_are_the_system_region():
    """They are merged into one."""
    window = engine_of().measure([SystemMessage("A"), SystemMessage("B")], system_prompt="S")
    assert [(m.type, m.content) for m in engine_of().build(window)] == [("system", "S\n\nA\n\nB")]
    assert window.messages == []


def test_tool_results_without_calls_are_left_out():
    """The rest of the request is valid."""
    engine = engine_of()
    orphan = ToolMessage("r", tool_call_id="x")
    request = engine.build(engine.measure([orphan, HumanMessage("q"), orphan]))
    assert [m.content for m in request] == ["q"]


def test_fixed_regions_larger_than_the_window_are_refused():
    """The table names them."""
    engine = engine_of(50)
    with pytest.raises(BudgetExceededError, match="fixed regions need") as refused:
        engine.emergency(engine.measure([HumanMessage("q")], system_prompt=FILLER))
    assert refused.value.report["system_tokens"] > 50


def test_one_user_message_larger_than_the_window_is_clamped():
    """And reported."""
    engine = engine_of()
    messages = [HumanMessage("x" * 100_000, id="big")]
    window = engine.measure(messages)
    state = engine.apply(engine.emergency(window), window)
    assert list(state["context_view"]["clamped"]) == ["big"]
    assert engine.measure(messages, session=state).over_by == 0


@pytest.mark.parametrize("summarize", ["off", "inline"])
def test_none_content_and_lone_surrogates_survive_compaction(summarize):
    """Also inside summaries and stubs."""
    messages = chat(8)
    messages[2].content = f"lone \ud800 {FILLER}"
    messages[3].content = None
    messages.insert(4, AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "x"}], id="c"))
    messages.insert(5, ToolMessage("r", tool_call_id="x", id="r"))
    messages[4].content = messages[5].content = None
    engine = engine_of(summarize=summarize, pin_first_user=False)
    window = engine.measure(messages)
    state = engine.apply(engine.plan(window) or engine.emergency(window), window)
    assert "refused" not in state["context_guard"]["reason"]
    after = engine.measure(messages, session=json.loads(json.dumps(state)))
    assert find_faults(engine.build(after)) == []


@pytest.mark.parametrize("value", [0, -1])
def test_limits_that_are_no_sizes_are_refused(value):
    """Zero and negative."""
    with pytest.raises(ConfigError, match="context_window"):
        engine_of(limits=ModelLimits(context_window=value))


def test_limits_that_leave_no_input_are_refused():
    """A reserve as large as the window."""
    with pytest.raises(ConfigError, match="leaves no input"):
        ContextEngine(limits=ModelLimits(context_window=100), config=ContextConfig(output_reserve=100))


def test_an_unknown_model_is_refused_unless_a_guess_is_allowed():
    """Guessed from the output limit."""
    limits = ModelLimits(max_output_tokens=1000)
    with pytest.raises(UnknownModelError):
        ContextEngine(limits=limits)
    engine = ContextEngine(limits=limits, config=ContextConfig(allow_guess=True))
    assert (engine.limits.context_window, engine.limits.source) == (4000, "guess")


def test_a_shrunken_history_is_said_loudly():
    """Also without ids; a removal at the end is not one."""
    engine = engine_of()
    state = seen(engine.measure([HumanMessage("a"), AIMessage("b"), HumanMessage("c")]))
    assert engine.measure([HumanMessage("a")], session=state).session.faults == ()
    state = seen(engine.measure(chat(2)))
    (fault,) = engine.measure(chat(2)[2:], session=state).session.faults
    assert fault.startswith("history has 3 messages, the state remembers 5")


@pytest.mark.parametrize("family", ["generic", "openai", "gemini"])
@pytest.mark.parametrize("limit", [800, 20_000])
def test_a_prompt_of_nearly_half_as_much_again_as_the_limit_is_refused(family, limit):
    """Before money is spent; the table says by how much with the count that its total has."""
    rule, counter = "Follow the rules of the house. ", TokenEstimator(family)
    prompt = rule * round(1.42 * limit / counter.count_text(rule))
    engine = ContextEngine(ModelLimits(max_input_tokens=limit, context_window=2 * limit), counter=counter)
    window = engine.measure([HumanMessage("Hello?")], system_prompt=prompt)
    with pytest.raises(BudgetExceededError) as refused:
        engine.emergency(window)
    assert re.search(rf"^over by +{window.total_tokens - limit:,} ", str(refused.value), re.MULTILINE)
