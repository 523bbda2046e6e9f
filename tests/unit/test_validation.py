"""Are counts compared with what is known better, without holding anybody up and without quoting anything?"""

import contextvars
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from structlog.testing import capture_logs

from langchain_ctxwin import CharRatioCounter, ConfigError
from langchain_ctxwin.observe import Accuracy, Validator, Verdict
from langchain_ctxwin.observe.validation import (
    LOG_SECONDS,
    MAX_MODELS,
    MAX_TOKENS,
    MAX_WAITING,
    MIN_SAMPLES,
    PROFILED_MESSAGES,
    WINDOW,
    profile,
)
from support.model_sources import Watch

HUGE = pytest.param(10**5_000, id="huge")  # too long to be written out
HI = [HumanMessage("hi")]
CALLER = contextvars.ContextVar("CALLER", default="nobody")
NOTHING = Verdict(error=None, reset=False)
FEWEST_MISSES = 4  # of MIN_SAMPLES comparisons: one less is a share of exactly 85 %


class Exact:
    """Counts requests with one number, a function's result or an exception; remembers what it was asked."""

    def __init__(self, answer=100):
        self.answer, self.asked, self.saw = answer, [], []

    def __call__(self, messages, *, tools=None):
        self.saw.append((CALLER.get(), threading.current_thread().daemon))
        try:
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer() if callable(self.answer) else self.answer
        finally:
            self.asked.append((list(messages), tools))


class Held(Exact):
    """Counts 100 when it is let."""

    def __init__(self):
        self.entered, self.opened = threading.Event(), threading.Event()
        super().__init__(self._count)

    def _count(self):
        self.entered.set()
        self.opened.wait()
        return 100


class Remote(Exact):
    """A counter of whole requests; called like a plain one it would only estimate."""

    estimator = CharRatioCounter()

    def __init__(self, answer):
        super().__init__(AssertionError("an estimate was asked for"))
        self.count_request = Exact(answer)

    async def acount_request(self, messages, *, tools=None):
        raise AssertionError("asked on an event loop")


def check(validator, expected, reported=None, *, model="m", messages=HI, tools=()):
    return validator.check(
        model=model, messages=messages, tools=tools, expected_tokens=expected, reported_tokens=reported
    )


def settled(validator, *sizes, **request):
    """Check, and wait until the sample is counted or lost."""
    verdict = check(validator, *sizes, **request)
    assert validator.flush()
    return verdict


def counted(validator, *pairs, model="m"):
    """Check pairs of expected and reported sizes; return the verdicts."""
    return [check(validator, expected, reported, model=model) for expected, reported in pairs]


def events(logs, name):
    """The log entries of one name, without what every entry has."""
    found = (entry for entry in logs if entry["event"] == name)
    return [{key: value for key, value in entry.items() if key not in {"event", "log_level"}} for entry in found]


def test_every_reported_size_is_compared():
    validator = Validator(share=1)
    assert counted(validator, (1_250, 1_000), (800, 1_000), (1_000, 1_000)) == [
        Verdict(error=0.25),
        Verdict(error=-0.2),
        Verdict(error=0.0),
    ]
    assert validator.accuracy("m") == Accuracy(
        share=2 / 3, samples=3, exact_samples=0, mean_error=pytest.approx(0.05 / 3)
    )
    assert (validator.flush(), validator.lost_samples) == (True, 0)


@pytest.mark.parametrize(
    ("expected", "reported"),
    [
        *((100, reported) for reported in (None, 0, -5, True, 100.0, float("nan"), "100", 10**9 + 1, 51_001, [100])),
        pytest.param(100, 10**5_000, id="huge"),
        *((expected, 100) for expected in (0, -1, True, 1.5, float("nan"), None, MAX_TOKENS + 1)),
    ],
)
def test_what_is_no_size_of_the_request_is_not_compared(expected, reported):
    """No usage, nonsense, and sizes that are too far from ours; without a count of ours nothing is sampled either."""
    exact = Exact()
    validator = Validator(exact, share=0 if expected == 100 else 1)
    assert check(validator, expected, reported) == NOTHING
    assert (validator.flush(), exact.asked, validator.accuracy("m")) == (True, [], None)


sizes = st.sampled_from([79, 80, 100, 119, 120, 121, 200]) | st.integers(60, 290)


@settings(deadline=None)
@given(st.lists(st.tuples(sizes, sizes), max_size=150))
def test_accuracy_is_that_of_the_latest_comparisons(pairs):
    """Whatever comes: share, mean and resets are those of a recomputation with whole numbers over the window."""
    validator, since = Validator(), []
    for expected, reported in pairs:
        since.append((expected, reported))
        window = since[-WINDOW:]
        accurate = sum(5 * abs(ours - theirs) <= theirs for ours, theirs in window)
        fell = len(window) >= MIN_SAMPLES and 100 * accurate < 85 * len(window)
        assert check(validator, expected, reported).reset is fell
        since = [] if fell else since
    found = validator.accuracy("m")
    window = since[-WINDOW:]
    if not window:
        assert found is None
        return
    errors = [ours / theirs - 1 for ours, theirs in window]
    accurate = sum(5 * abs(ours - theirs) <= theirs for ours, theirs in window)
    assert (found.share, found.samples, found.exact_samples) == (accurate / len(window), len(window), 0)
    assert found.mean_error == pytest.approx(sum(errors) / len(errors), abs=1e-9)


def test_a_drop_resets_once_and_starts_anew():
    """One miss too many among the first comparisons: one verdict and one event say so, and old misses are forgotten."""
    good, bad = (100, 100), (125, 100)
    with capture_logs() as logs:
        verdicts = counted(
            validator := Validator(), *[good] * (MIN_SAMPLES - FEWEST_MISSES), *[bad] * FEWEST_MISSES, *[good] * WINDOW
        )
    assert [verdict.reset for verdict in verdicts].index(True) == MIN_SAMPLES - 1
    assert sum(verdict.reset for verdict in verdicts) == 1
    assert events(logs, "validation.accuracy_dropped") == [{"model": "m", "share": 0.8, "samples": MIN_SAMPLES}]
    assert validator.accuracy("m") == Accuracy(share=1.0, samples=WINDOW, exact_samples=0, mean_error=0.0)
    validator = Validator()
    pairs = [good] * (MIN_SAMPLES - FEWEST_MISSES + 1) + [bad] * (FEWEST_MISSES - 1)
    assert not any(verdict.reset for verdict in counted(validator, *pairs))
    assert validator.accuracy("m").share == 0.85  # which is still good enough


def test_the_models_seen_least_recently_are_forgotten():
    validator = Validator()
    for number in range(MAX_MODELS + 5):
        counted(validator, (100, 100), model=f"m{number}")
        assert not counted(validator, (100, 100), model="busy")[0].reset
    assert counted(validator, *[(125, 100)] * MIN_SAMPLES, model="wrong")[-1].reset
    assert validator.accuracy("wrong") is None
    known = [number for number in range(MAX_MODELS + 5) if validator.accuracy(f"m{number}")]
    assert known == list(range(7, MAX_MODELS + 5))
    assert validator.accuracy("busy").samples == WINDOW


def test_threads_share_a_validator():
    validator = Validator(Exact(100), share=0.5)
    with capture_logs() as logs, ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda number: check(validator, 100 + number % 2 * 25, 100), range(2_000)))
        assert validator.flush()
        verdicts.append(check(validator, 100, 100))
    resets = sum(verdict.reset for verdict in verdicts)
    assert 0 < resets <= len(events(logs, "validation.accuracy_dropped"))
    seen = validator.accuracy("m")  # None where the last comparison of all dropped the share once more
    assert seen is None or seen.samples <= WINDOW


def test_a_sample_is_counted_exactly():
    """The request goes to the counter as it was sent, in a daemon thread that sees nothing of the caller's context."""
    exact = Held()
    validator = Validator(exact, share=1)
    messages, tool = [SystemMessage("s"), HumanMessage("hi")], {"name": "look"}
    CALLER.set("somebody")
    assert check(validator, 110, messages=messages, tools=(tool,)) == NOTHING
    messages.append(AIMessage("ho"))
    exact.opened.set()
    assert validator.flush()
    assert (exact.asked, exact.saw) == ([(messages[:2], [tool])], [("nobody", True)])
    assert validator.accuracy("m") == Accuracy(share=1.0, samples=1, exact_samples=1, mean_error=0.1)


@pytest.mark.parametrize(("counter", "exact_tokens"), [(Exact(100), 100), (Remote(200), 200)])
def test_an_answer_can_be_compared_twice(counter, exact_tokens):
    """With its usage and with the exact count; the plain form of a counter of requests may be an estimate."""
    validator = Validator(counter, share=1)
    assert settled(validator, 110, 100) == Verdict(error=0.1)
    found = validator.accuracy("m")
    assert (found.samples, found.exact_samples) == (2, 1)
    assert found.mean_error == pytest.approx((0.1 + 110 / exact_tokens - 1) / 2)


@pytest.mark.parametrize(("options", "sampled"), [({"share": 0}, 0), ({"share": 1}, 100), ({}, 1)])
def test_a_share_of_the_answers_is_sampled(options, sampled):
    """Of a hundred numbers evenly over the range; by default one in a hundred."""
    exact, draws = Exact(), iter(range(100))
    validator = Validator(exact, random=lambda: next(draws) / 100, **options)
    for _ in range(100):
        settled(validator, 100, 100)
    assert len(exact.asked) == sampled


def test_a_drop_that_exact_counts_show_resets_with_the_next_answer():
    validator = Validator(Exact(100), share=1)
    for _ in range(MIN_SAMPLES):
        assert settled(validator, 125) == NOTHING
    assert [check(validator, 125).reset, check(validator, 125).reset] == [True, False]


def test_a_sample_from_before_a_reset_does_not_count():
    gate = Held()
    validator = Validator(gate, share=1, random=iter([0.0, *[1.0] * WINDOW]).__next__)
    check(validator, 125)
    assert counted(validator, *[(125, 100)] * MIN_SAMPLES)[-1].reset
    gate.opened.set()
    assert validator.flush()
    assert validator.accuracy("m") is None


@pytest.mark.parametrize(
    "answer",
    [None, -3, 0, 10.0, float("nan"), True, "100", HUGE, ValueError("hi"), SystemExit("hi"), [HumanMessage("hi")]],
)
def test_a_counter_without_a_usable_count_loses_the_sample(answer):
    """Nothing is recorded, one warning says why without quoting the request, and the next samples are tried."""
    exact = Exact(answer)
    validator = Validator(exact, share=1)
    with capture_logs() as logs:
        for _ in range(3):
            assert settled(validator, 100, 100) == Verdict(error=0.0)
    (warning,) = events(logs, "validation.count_failed")
    assert (warning["lost"], "hi" in warning["reason"]) == (1, False)
    assert (len(exact.asked), validator.lost_samples, validator.accuracy("m").exact_samples) == (3, 3, 0)


def test_a_counter_that_stays_down_is_reported_once_a_minute():
    clock = Watch()
    validator = Validator(Exact(None), share=1, clock=clock)
    with capture_logs() as logs:
        for wait in (0, 1, LOG_SECONDS, 1):
            clock.now += wait
            settled(validator, 100)
    assert [warning["lost"] for warning in events(logs, "validation.count_failed")] == [1, 3]


def test_a_counter_that_hangs_holds_nobody_up():
    """So many requests wait, the others are lost with one warning; answers are compared all the same."""
    gate = Held()
    validator = Validator(gate, share=1)
    check(validator, 100)
    assert gate.entered.wait(10)
    with capture_logs() as logs:
        assert counted(validator, *[(100, 100)] * (MAX_WAITING + 5)) == [Verdict(error=0.0)] * (MAX_WAITING + 5)
    assert events(logs, "validation.count_failed") == [
        {"reason": f"the counter is busy and {MAX_WAITING} requests wait", "lost": 1}
    ]
    assert (validator.lost_samples, validator.flush(0.01)) == (5, False)
    gate.opened.set()
    assert validator.flush()
    assert validator.accuracy("m") == Accuracy(
        share=1.0, samples=2 * MAX_WAITING + 6, exact_samples=MAX_WAITING + 1, mean_error=0.0
    )


def test_a_process_without_more_threads_loses_samples_only(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    validator = Validator(Exact(100), share=1)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(threading.Thread, "start", refuse)
        assert check(validator, 100, 100) == Verdict(error=0.0)
    assert (validator.flush(), validator.lost_samples) == (True, 1)
    assert events(logs, "validation.count_failed") == [{"reason": "can't start new thread", "lost": 1}]
    settled(validator, 100)
    assert validator.accuracy("m").exact_samples == 1


EXIT_PROBE = """
import threading
from langchain_ctxwin.observe import Validator
entered = threading.Event()
def hang(messages, *, tools=None):
    entered.set()
    threading.Event().wait()
validator = Validator(hang, share=1)
for _ in range(3):
    validator.check(model="m", messages=[], tools=(), expected_tokens=1, reported_tokens=1)
assert entered.wait(30)
print("done")
"""


def test_exit_does_not_wait_for_a_counter_that_hangs():
    command = [sys.executable, "-B", "-c", EXIT_PROBE]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("done\n", "")


MARKER = "XYZZY-secret-4711"
MARKED = [
    SystemMessage(f"{MARKER} rules"),
    HumanMessage([{"type": "text", "text": MARKER}, {"type": "image", "base64": MARKER, "mime_type": "image/png"}]),
    AIMessage("", tool_calls=[{"name": MARKER, "args": {MARKER: [MARKER, {"deep": MARKER}]}, "id": MARKER}]),
    ToolMessage(MARKER, tool_call_id=MARKER, name=MARKER),
    AIMessage([{"type": "reasoning", "reasoning": MARKER}, {"type": MARKER, MARKER: MARKER}]),
]
MARKED_TOOL = {"name": MARKER, "description": MARKER, "parameters": {"properties": {MARKER: {"type": "string"}}}}


@pytest.mark.parametrize("answer", [300, None, ValueError(MARKER), MARKER, {MARKER: MARKER}, [MARKER]])
def test_no_text_gets_into_the_log(answer):
    """Discrepancies, drops and failures are logged, and none of them quotes a message, a call, a tool or an error."""
    validator = Validator(Exact(answer), share=1)
    with capture_logs() as logs:
        for _ in range(WINDOW):
            settled(validator, 200, 100, messages=MARKED, tools=[MARKED_TOOL])
        check(validator, 200, MARKER, messages=MARKED, tools=[MARKED_TOOL])
    assert {"validation.discrepancy", "validation.accuracy_dropped"} <= {entry["event"] for entry in logs}
    assert MARKER not in json.dumps(logs)


def test_a_discrepancy_is_logged_with_the_profile_of_the_text():
    """Who counted what, how far off, and what kind of text it was."""
    messages, clock = [HumanMessage("ab 12 "), AIMessage("漢字!é")], Watch()
    validator = Validator(Exact(200), share=1, clock=clock)
    with capture_logs() as logs:
        settled(validator, 131, 100, messages=messages, tools=["tool"])
        clock.now += LOG_SECONDS
        settled(validator, 100, messages=messages, tools=["tool"])
    shared = {"model": "m", "profile": profile(messages, ["tool"])}
    usage = {"expected_tokens": 131, "counted_tokens": 100, "counted_by": "usage", "error": 0.31, "unlogged": 0}
    exact = {"expected_tokens": 100, "counted_tokens": 200, "counted_by": "exact", "error": -0.5, "unlogged": 1}
    assert events(logs, "validation.discrepancy") == [usage | shared, exact | shared]


@pytest.mark.parametrize(("expected", "logged"), [(130, 0), (131, 1), (70, 0), (69, 1)])
def test_up_to_30_percent_is_no_discrepancy(expected, logged):
    with capture_logs() as logs:
        check(Validator(), expected, 100)
    assert len(events(logs, "validation.discrepancy")) == logged


def test_a_model_has_one_discrepancy_a_minute_in_the_log():
    """The others are counted and reported with the next one; a clock that is set back silences nothing."""
    clock = Watch()
    validator = Validator(clock=clock)
    asked = [(0, "a"), (1, "a"), (0, "b"), (LOG_SECONDS - 2, "a"), (1, "a"), (0, "b"), (1, "b"), (LOG_SECONDS, "a")]
    with capture_logs() as logs:
        for wait, model in [*asked, (-86_400, "a")]:
            clock.now += wait
            check(validator, 200, 100, model=model)
    found = [(entry["model"], entry["unlogged"]) for entry in events(logs, "validation.discrepancy")]
    assert found == [("a", 0), ("b", 0), ("a", 2), ("b", 1), ("a", 0), ("a", 0)]


def test_a_profile_tells_sizes_and_kinds_of_characters():
    picture = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}
    messages = [
        HumanMessage([{"type": "text", "text": "ab 1"}, picture]),
        AIMessage("漢字かな", tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
        ToolMessage("é☃", tool_call_id="1"),
        HumanMessage(""),
    ]
    assert profile(messages, ["a", "b"]) == {
        "messages": 4,
        "tools": 2,
        "profiled_messages": 4,
        "characters": 13,
        "longest_message_characters": 7,  # the call is f{}
        "media_blocks": 1,
        "ascii_letters": round(3 / 13, 3),
        "digits": round(1 / 13, 3),
        "whitespace": round(1 / 13, 3),
        "punctuation": round(2 / 13, 3),
        "cjk": round(4 / 13, 3),
        "other": round(2 / 13, 3),
    }


def test_a_profile_of_a_long_history_looks_at_some_messages():
    found, many = profile([HumanMessage("ab")] * (2 * PROFILED_MESSAGES + 1), []), 2 * PROFILED_MESSAGES + 1
    assert (found["messages"], found["profiled_messages"], found["characters"]) == (many, 667, 1334)
    assert set(profile([], []).values()) == {0}
    message = HumanMessage("")
    message.content = [{"type": "text", "text": "fine"}, {"type": "odd", "value": Unreadable()}]
    assert profile([message], []) == {"messages": 1, "tools": 0}


class Unreadable:
    def __str__(self):
        raise ValueError(MARKER)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=300), st.integers(1, 200))
@example("a\ud800é", 10)
def test_shares_of_any_text_add_up(text, times):
    found = profile([HumanMessage(text * times)], [])
    shares = [found[name] for name in ("ascii_letters", "digits", "whitespace", "punctuation", "cjk", "other")]
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(1.0 if text else 0.0, abs=0.004)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *(
            ({"share": share}, f"share={share!r} is not from 0 to 1")
            for share in (-0.01, 1.01, float("nan"), float("inf"))
        ),
        ({"counter": "some-model"}, "counter='some-model': pass a callable"),
    ],
)
def test_what_cannot_work_is_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        Validator(**arguments)
