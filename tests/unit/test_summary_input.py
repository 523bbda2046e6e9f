"""Is a summarizer given what the model saw, is what it writes made to fit, and is a failing one asked less and less?"""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_ctxwin import ContextConfig, ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.core.clamping import first_part
from langchain_ctxwin.core.session import MAX_DOUBLINGS, Pending, Session
from langchain_ctxwin.core.summary_input import last_request, shown_part
from langchain_ctxwin.core.view import Position, View
from support.fakes import exact_count

WORDS = "lorem ipsum dolor sit amet " * 6
HISTORY = [
    HumanMessage("left", id="q0"),
    AIMessage("gone", id="a0"),
    HumanMessage("read the log", id="q1"),
    AIMessage("", id="c1", tool_calls=[{"name": "read", "args": {}, "id": "call"}]),
    ToolMessage("error 7 " * 400, tool_call_id="call", id="t1"),
    AIMessage("It fails.", id="a1"),
    HumanMessage("why?", id="q2"),
]
VIEW = {"start": {"id": "q1", "index": 2}, "clamped": {"t1": {"head_chars": 40, "tail_chars": 40}}}


def window_of(messages=HISTORY, view=VIEW, summarizer=None, context_window=4_000):
    engine = ContextEngine(
        ModelLimits(context_window=context_window),
        counter=exact_count,
        summarizer=summarizer,
        config=ContextConfig(output_reserve=0, summarize="inline", pin_first_user=False),
    )
    return engine, engine.measure(messages, session={"context_view": view})


def test_what_is_in_the_view_is_given_as_the_view_shows_it():
    """A result that was shortened for the model is as short for the summarizer; what had left is given as it was."""
    _, window = window_of()
    given = shown_part(window, 0, 6)
    assert [message.id for message in given] == ["q0", "a0", "q1", "c1", "t1", "a1"]
    assert given[4] == window.messages[2]
    assert len(given[4].text) < 300


def test_the_last_request_ends_with_its_answer():
    """The question that nobody has answered yet was not sent yet."""
    engine, window = window_of()
    request = last_request(window, 2, 4)
    assert list(request.messages) == engine.build(window)[:-1]
    assert (request.messages[-1].id, request.unseen) == ("a1", 0)
    assert last_request(window, 0, 4).unseen == 2


def test_what_no_provider_has_in_its_cache_has_no_request():
    """Messages that have left, and a view that was just changed."""
    engine, window = window_of()
    session = {"context_view": VIEW, "context_guard": {"compactions": 1, "since": {"id": "q2", "index": 6}}}
    assert last_request(window, 0, 2) is None
    assert last_request(engine.measure(HISTORY, session=session), 2, 4) is None


class Talkative:
    """A summarizer that writes far more than it was asked for."""

    def summarize(self, messages, *, previous, max_tokens):
        return "- The build fails with error 7.\n" * 2_000


def test_a_summary_larger_than_its_room_is_shortened():
    """The turn goes on with as much of it as was planned for."""
    history = [m for n in range(30) for m in (HumanMessage(f"q{n} {WORDS}", id=f"q{n}"), AIMessage("ok", id=f"a{n}"))]
    engine, window = window_of([*history, HumanMessage("and now?", id="now")], {}, Talkative(), context_window=1_100)
    compaction = engine.plan(window)
    update = engine.apply(compaction, window)
    summary = update["context_summary"]
    assert summary.startswith("- The build fails with error 7.\n")
    assert set(summary.split("\n")) == {"- The build fails with error 7."}
    assert update["context_guard"]["ineffective"] == 0
    after = engine.measure(window.request.messages, session=update)
    assert (after.over_by, after.total_tokens < window.total_tokens) == (0, True)


def test_a_text_that_fits_is_not_touched():
    """Whole lines first, then whole words; a value is never cut in two."""
    assert first_part("one\ntwo", 7, len) == "one\ntwo"
    assert first_part("one\ntwo", 6, len) == "one"
    assert first_part("port 8080 is open", 12, len) == "port ..."
    assert first_part("8080808080", 6, len) == ""


WAITS = [1, 2, 4, 8]


class Flaky:
    """A summarizer that fails while it is down."""

    def __init__(self):
        self.is_down = True
        self.asked = 0

    def summarize(self, messages, *, previous, max_tokens):
        self.asked += 1
        if self.is_down:
            raise RuntimeError("down")
        return "The user counts questions."


class Talk:
    """Questions past the trigger; each is checked until nothing more is due."""

    def __init__(self, summarizer):
        config = ContextConfig(output_reserve=0, summarize="inline", pin_first_user=False)
        limits = ModelLimits(context_window=1_200)
        self.nodes = ContextNodes(ContextEngine(limits, counter=exact_count, summarizer=summarizer, config=config))
        self.state = {"messages": []}

    def ask(self):
        number = len(self.state["messages"])
        question = HumanMessage(f"question {number} {WORDS}", id=f"q{number}")
        self.state["messages"] = [*self.state["messages"], question]
        for _ in range(4):
            self.state |= self.nodes.budget_check.invoke(self.state)
            if self.nodes.route_on_budget(self.state) != "maybe_summarize":
                break
            self.state |= self.nodes.maybe_summarize.invoke(self.state)
        if self.nodes.route_on_budget(self.state) == "force_compress":
            self.state |= self.nodes.force_compress.invoke(self.state)
        self.state["messages"] = [*self.state["messages"], AIMessage(f"answer {WORDS}", id=f"a{number}")]


def failed_at(count, history):
    return Session(guard={"ineffective": count, "asked": len(history) - 1})


def test_the_wait_doubles_with_every_failure_and_is_bounded():
    """After the second failure one user message passes, then 2, 4, 8; one failure, or a cut history, is no reason."""
    history, user, step = [HumanMessage("a question")], [HumanMessage("next")], [AIMessage("a step")]
    for failures, wait in enumerate(WAITS, 2):
        session = failed_at(failures, history)
        asked = [session.has_given_up([*history, *user * later]) for later in range(2 * wait)]
        assert asked == [later < wait for later in range(2 * wait)]
    assert failed_at(2, history).has_given_up([*history, *step * 50])  # the steps of a long turn are no new chance
    assert not failed_at(1, history).has_given_up(history)
    assert not failed_at(10_000, history).has_given_up([*history, *user * 2**MAX_DOUBLINGS])
    assert not Session(guard={"ineffective": 9, "asked": 40}).has_given_up(history)


def test_a_summarizer_that_is_down_is_asked_rarely_and_healed_by_one_success():
    """Every question went on without it; when it works again, its summary ends the waiting."""
    summarizer = Flaky()
    talk = Talk(summarizer)
    for _ in range(120):
        talk.ask()
    tries = summarizer.asked
    assert 4 <= tries <= 9
    summarizer.is_down = False
    for _ in range(2**MAX_DOUBLINGS + 40):
        talk.ask()
        if summarizer.asked > tries and talk.state["context_summary"]:
            break
    assert talk.state["context_guard"]["ineffective"] == 0
    assert talk.state["context_summary"] == "The user counts questions."


CHAT = [kind(f"text {n}", id=f"m{2 * n + m}") for n in range(4) for m, kind in enumerate((HumanMessage, AIMessage))]


def position(index):
    return Position(id=f"m{index}", index=index)


@pytest.mark.parametrize(
    ("view", "first", "is_kept"),
    [(View(covered=position(index)), 0, index == 1) for index in (0, 1, 3, 5)]
    + [(View(), 0, False), (View(), 2, True)],
)
def test_a_summary_on_its_way_has_to_begin_where_the_one_before_it_ends(view, first, is_kept):
    """Or with the history: otherwise it would leave messages out, or tell them twice."""
    span = {"start": position(2), "through": position(5)}
    pending = Pending(key="key", digest="digest", since_seconds=0.0, max_tokens=100, **span)
    assert pending.located(CHAT, view, first) == (pending if is_kept else None)
