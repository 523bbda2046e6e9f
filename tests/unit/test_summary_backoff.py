"""How often is a summarizer asked that keeps failing? Less and less, until it works again."""

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_ctxwin import ContextConfig, ContextEngine, ContextNodes, ModelLimits
from langchain_ctxwin.core.session import MAX_DOUBLINGS, Session
from support.fakes import exact_count

WORDS = "lorem ipsum dolor sit amet " * 6
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


def test_the_wait_doubles_with_every_failure():
    """After the second failure one user message passes, then 2, 4, 8 ..."""
    history = [HumanMessage("a question")]
    for failures, wait in enumerate(WAITS, 2):
        session = failed_at(failures, history)
        asked = [session.has_given_up([*history, *[HumanMessage("next")] * later]) for later in range(2 * wait)]
        assert asked == [later < wait for later in range(2 * wait)]


def test_only_user_messages_end_the_wait():
    """The steps of one long turn are no new chance."""
    history = [HumanMessage("a question")]
    assert failed_at(2, history).has_given_up([*history, *[AIMessage("a step")] * 50])


def test_one_failure_is_no_reason_to_wait():
    """A single failure is tried again at once."""
    history = [HumanMessage("a question")]
    assert not failed_at(1, history).has_given_up(history)


@given(st.integers(0, 10_000))
def test_the_wait_is_bounded(failures):
    """However long a summarizer was down, it is asked again."""
    history = [HumanMessage("a question")]
    later = [*history, *[HumanMessage("next")] * 2**MAX_DOUBLINGS]
    assert not failed_at(failures, history).has_given_up(later)


def test_history_that_was_cut_ends_the_wait():
    """Where nobody knows how much was asked since, the summarizer gets its chance."""
    session = Session(guard={"ineffective": 9, "asked": 40})
    assert not session.has_given_up([HumanMessage("a question")])


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
