"""What is newest is cut last, to what fits, and aloud."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import (
    BudgetExceededError,
    ConfigError,
    ContextConfig,
    ContextEngine,
    ModelLimits,
    create_recall_tool,
    pin,
)
from langchain_ctxwin.core.events import NoticeEvent
from langchain_ctxwin.observe import MemorySink
from langchain_ctxwin.testing import count_tokens
from support import agents
from support.conversations import CharCounter, turns
from support.spoiled import Writer, pairs

LIMIT = 4_000
WORDS = "a grey heron stands near the mill while two barges pass slowly and the miller counts his sacks of barley "
FULL = 0.9  # of the limit, by the bound that decides
SAME = 0.93  # of what a smaller message shows: the grain of cuts, and the room of the record
PRESETS = st.sampled_from(("balanced", "roomy"))
SHARES = st.floats(0.1, 4)


def text(tokens):
    return (WORDS * (4 * tokens // len(WORDS) + 1))[: 4 * tokens]


def engine_of(preset="balanced", *, counter=None, **options):
    config = ContextConfig.preset(preset, output_reserve=0)
    return ContextEngine(ModelLimits(LIMIT), counter, config=config, **options)


def count_whole(messages, *, tools=None):
    """Counts exactly, as a byte-pair encoding does about."""
    return count_tokens(list(messages), list(tools or ()))


count_whole.exact = True


def question(size):
    return [HumanMessage(text(size), id="new")]


def result(size):
    call = {"name": "read", "args": {"page": 3}, "id": "c", "type": "tool_call"}
    asked = [
        HumanMessage("Read page 3.", id="q"),
        AIMessage("", tool_calls=[call], id="b"),
    ]
    return [*asked, ToolMessage(text(size), tool_call_id="c", id="new")]


def fitted(engine, messages, **about):
    """The report of a request, and what it shows of the newest message."""
    found = engine.fit(messages, **about)
    shown = next(message for message in found.request if message.id == "new")
    return found.report, shown.content


def shown_chars(content):
    """Characters of the message itself, without the note between its two ends."""
    head, _, rest = content.partition("\n[... ")
    return len(head) + len(rest.partition(" ...]\n")[2])


@settings(max_examples=20, deadline=None)
@given(
    made=st.sampled_from((question, result)),
    share=SHARES,
    old=st.integers(0, 40),
    preset=PRESETS,
)
def test_a_request_whose_newest_message_is_cut_is_nearly_full(made, share, old, preset):
    report, content = fitted(
        engine_of(preset, counter=CharCounter()),
        [*turns(old)[:-1], *made(int(share * LIMIT))],
    )
    assert report["over_by"] == 0
    if shown_chars(content) < 4 * int(share * LIMIT):
        assert report["total_tokens"] >= FULL * LIMIT
        (shown, whole) = report["clamped"]["new"]
        assert 0 < shown < whole


@settings(max_examples=20, deadline=None)
@given(old=st.integers(0, 40), number=st.integers(1, 4), share=st.floats(0.02, 4))
def test_results_after_a_question_that_filled_the_window_are_cut_to_what_fits(
    old, number, share
):
    """Where question, results and record have no room together, the record gets what is left."""
    limit = 800
    engine = agents.engine_of(limit)
    calls = [
        {"name": "read", "args": {}, "id": f"c{i}", "type": "tool_call"}
        for i in range(number)
    ]
    found = [
        ToolMessage(text(int(share * limit)), tool_call_id=f"c{i}", id=f"r{i}")
        for i in range(number)
    ]
    messages, fit = [*turns(old)[:-1], *question(2 * limit)], engine.fit
    session = fit(messages).session
    asked = AIMessage("", tool_calls=calls, id="b")
    report = fit([*messages, asked, *found], session=session).report
    assert "r0" not in report["clamped"] or report["total_tokens"] >= FULL * limit


@pytest.mark.parametrize("chars", range(308, 332, 8))
def test_a_short_result_is_not_cut_where_the_note_of_the_cut_takes_more_than_it_saves(
    chars,
):
    """Beside a question that fills the window the request would be refused."""
    engine = agents.engine_of(1500, count_whole)
    messages = [*turns(3)[:-1], *question(3_000)]
    session = engine.fit(messages).session
    messages += agents.called(0, (9 * WORDS)[:chars])
    assert engine.fit(messages, session=session).request[-1].text == messages[-1].text


@pytest.mark.parametrize("made", [question, result])
def test_rules_are_in_the_record_beside_whatever_is_cut_and_from_then_on(made):
    """A pasted document has no more need of the room than the rules that were given before."""
    rules = [f"Never ship parcels of kind {kind} on a Friday." for kind in range(20)]
    asked = HumanMessage(" ".join([*rules, "Ship it."]), id="rules")
    messages = [HumanMessage("Hello.", id="first"), asked, *turns(60)[:-1]]
    messages += made(3 * LIMIT)
    fit = engine_of(counter=CharCounter()).fit
    first = fit(messages)
    then = fit(
        [*messages, AIMessage("Read.", id="z"), *turns(1)], session=first.session
    )
    for fitted in (first, then):
        shown = " ".join(message.text for message in fitted.request)
        assert [rule for rule in rules if rule not in shown] == []


def test_a_rule_outlasts_a_summary_that_is_due_while_a_result_fills_the_window():
    config = ContextConfig(output_reserve=0, summarize="inline")
    limits, count = ModelLimits(context_window=LIMIT), CharCounter()
    fit = ContextEngine(limits, count, Writer(), config).fit
    rule = "Never ship on a Friday."
    messages = [HumanMessage("Hello.", id="first"), HumanMessage(rule), *turns(60)]
    session = fit(messages).session
    messages += [AIMessage("Done.", id="z"), *pairs(20, first=100), *result(3 * LIMIT)]
    session = fit(messages, session=session).session
    messages += [AIMessage("Read.", id="y"), HumanMessage("And now?", id="later")]
    shown = fit(messages, session=session).request
    assert rule in " ".join(message.text for message in shown)


@pytest.mark.parametrize("limit", [700, 750, 800])
def test_a_record_that_fills_what_a_cut_leaves_fits_to_the_token(limit):
    rules = (f"Never ship kind {'x' * (kind % 9)}{kind} today." for kind in range(60))
    old = [one for rule in rules for one in (HumanMessage(rule), AIMessage("Noted."))]
    fitted = agents.engine_of(limit, count_whole).fit([*old, *question(limit)])
    assert fitted.report["over_by"] == 0


@pytest.mark.parametrize("window", range(220, 380, 10))
def test_rules_take_no_room_without_which_nothing_is_sent(window):
    rules = [HumanMessage(f"Never ship parcels of kind {n}.") for n in range(20)]
    messages = [*rules, *turns(3)[:-1], pin(HumanMessage(text(200))), *result(400)]

    def error_of(**options):
        try:
            agents.engine_of(window, **options).fit(messages)
        except BudgetExceededError as error:
            return type(error)

    assert error_of() == error_of(record_share=0)


def test_a_question_that_has_room_beside_the_rules_is_whole_and_the_rest_of_the_record_leaves():
    fit = engine_of(counter=CharCounter()).fit
    done = [
        one for n in range(30) for one in agents.called(n, f"A-{n} is at pier {n}.")
    ]
    first = [HumanMessage("Never ship on a Friday.", id="rule"), *done, *turns(40)]
    session = fit(first).session
    asked = [AIMessage("Done.", id="z"), *question(int(0.93 * LIMIT))]
    fitted = fit([*first, *asked], session=session)
    assert fitted.request[-1].content == asked[-1].content
    assert "Never ship on a Friday." in fitted.request[0].text


def test_a_pasted_document_takes_no_fact_of_the_conversation_along():
    """They have no room beside it, and are in the record again once it has left."""
    facts = [f"KX-{number}" for number in range(1000, 1040)]
    told = [
        one
        for fact in facts
        for one in (
            HumanMessage(f"Where is it? {text(100)}", id=f"u{fact}"),
            AIMessage(
                "",
                tool_calls=[{"name": "find", "args": {"row": fact[3:]}, "id": fact}],
                id=f"c{fact}",
            ),
            ToolMessage(f"It lies at {fact}.", tool_call_id=fact, id=f"r{fact}"),
            AIMessage("There.", id=f"a{fact}"),
        )
    ]
    fit, session = engine_of(counter=CharCounter()).fit, None
    pasted = [*told, *question(3 * LIMIT)]
    later = [*pasted, AIMessage("Read.", id="z"), *turns(40)]
    for messages in (told, pasted, later):
        fitted = fit(messages, session=session)
        session = fitted.session
    shown = " ".join(message.text for message in fitted.request)
    assert [fact for fact in facts if fact not in shown] == []


@settings(max_examples=20, deadline=None)
@given(
    made=st.sampled_from((question, result)),
    shares=st.tuples(SHARES, SHARES).map(sorted),
    old=st.integers(0, 40),
    presets=st.sampled_from(
        (("balanced", "balanced"), ("roomy", "roomy"), ("balanced", "roomy"))
    ),
    counter=st.sampled_from((CharCounter(), None)),
)
@example(
    made=result,
    shares=[0.5, 1.0],
    old=37,
    presets=("balanced", "balanced"),
    counter=None,
)
@example(
    made=result,
    shares=[1.0, 3.0],
    old=29,
    presets=("balanced", "balanced"),
    counter=None,
)
@example(
    made=result,
    shares=[0.5, 0.5],
    old=18,
    presets=("balanced", "roomy"),
    counter=None,
)
def test_a_larger_newest_message_and_a_roomier_preset_show_no_less_of_it(
    made, shares, old, presets, counter
):
    small, large = (
        shown_chars(
            fitted(
                engine_of(preset, counter=counter),
                [*turns(old)[:-1], *made(int(share * LIMIT))],
            )[1]
        )
        for preset, share in zip(presets, shares, strict=True)
    )
    assert large >= SAME * small


def test_a_question_that_is_cut_while_counts_are_unsure_leaves_rules_their_place():
    config = ContextConfig(output_reserve=0, pin_first_user=False)
    engine = ContextEngine(ModelLimits(LIMIT), config=config)
    rule = [HumanMessage("Never deploy on Friday."), AIMessage("Noted. " * 20)]
    request = engine.fit([*rule, *question(2 * LIMIT)]).request
    assert "Never deploy on Friday." in request[0].text


@pytest.mark.parametrize("made", [question, result])
def test_a_cut_of_what_is_newest_is_told_once_with_ids_and_sizes(made, caplog):
    """As a warning, an event and in the report, without a word of the text."""
    sink = MemorySink()
    report, _ = fitted(engine_of(counter=CharCounter(), sinks=[sink]), made(2 * LIMIT))
    (event,) = sink.of(NoticeEvent)
    clamped = report["clamped"]
    about = {"shown_tokens": clamped, "input_limit": LIMIT}
    assert (event.name, event.level, event.about) == (
        "context.newest_clamped",
        "warning",
        about,
    )
    assert [*clamped] == ["new"]
    assert 0.8 * LIMIT < clamped["new"][0] < clamped["new"][1] == 2 * LIMIT + 4
    (record,) = (one for one in caplog.records if one.levelname == "WARNING")
    assert "context.newest_clamped" in record.getMessage()
    assert "shown_tokens={'new': [" in record.getMessage()
    assert "heron" not in record.getMessage()


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ((), "as message new ...]"),
        (
            (create_recall_tool(name="look_back"),),
            "as message new, which look_back reads",
        ),
    ],
)
def test_the_note_names_a_tool_that_the_agent_has(tools, told):
    _, content = fitted(engine_of(), question(2 * LIMIT), tools=tools)
    assert told in content


# ---- triggers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("summarize", ["background", "inline", "off"])
@pytest.mark.parametrize(
    ("trigger", "largest"),
    [
        (0.2, 0.2 * LIMIT),
        (0.3, 0.3 * LIMIT),
        (("tokens", 1_500), 1_500),
        (("messages", 12), LIMIT),
    ],
)
def test_a_trigger_holds_in_every_mode(summarize, trigger, largest):
    """Past it the oldest turns leave, into a summary or into the record."""
    settings_ = {"summarize": summarize, "trigger": trigger, "pin_first_user": False}
    engine = agents.engine_of(LIMIT, None, lambda _: "They talked.", **settings_)
    history, fitted = [], None
    for number in range(60):
        history.append(HumanMessage(text(60), id=f"q{number}"))
        fitted = engine.fit(history, session=fitted and fitted.session)
        history.append(AIMessage("Yes.", id=f"a{number}"))
        assert fitted.report["history_tokens"] <= 1.25 * largest
        assert engine.config.trigger_messages is None or len(fitted.request) <= 13
    assert fitted.report["compactions"] > 1


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        (
            {"trigger": 80},
            "trigger=80 is neither a share .*256 or more.*: for 80 % give 0.8",
        ),
        (
            {"trigger": 0.2, "keep": 0.5},
            "keep=0.5 is not below trigger=0.2: lower keep, for example to 0.1",
        ),
        (
            {"trigger": ("messages", 2)},
            r'as trigger \("messages", n\) with an n of at least 3',
        ),
        ({"keep": ("messages", 20)}, r'as trigger \("messages", n\)'),
        ({"keep": ("tokens", 0.5)}, r'\("tokens", 2000\)'),
        ({"keep": ("fraction", 80)}, r'\("fraction", 0.8\)'),
        ({"keep": ("tokens", "many")}, r'\("tokens", 2000\)'),
    ],
)
def test_a_size_that_cannot_work_is_refused_with_what_to_do(settings_, said):
    with pytest.raises(ConfigError, match=said):
        ContextConfig(**settings_)


def test_a_question_that_is_likely_to_fit_is_cut_once():
    """Also where a result follows it, and no answer has told yet how large requests are."""
    engine = ContextEngine(ModelLimits(2_048), config=ContextConfig(summarize="off"))
    history = [HumanMessage("why " * 2_500, id="q"), *agents.called(1, "so")]
    first = engine.fit(history)
    again = engine.fit(history, session=first.session)
    assert again.request == first.request
