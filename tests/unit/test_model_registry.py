"""A registry answers from many sources, whatever they do: late, wrong, gone, contradicting, ambiguous or hanging."""

import asyncio
import os
import signal
import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.runnables import RunnableLambda
from structlog.testing import capture_logs

from langchain_ctxwin import ModelRegistry
from langchain_ctxwin.errors import ConfigError, UnknownModelError
from langchain_ctxwin.models import cache
from langchain_ctxwin.models.sources import ExplicitSource, GeminiSource, GuessSource, LearnedSource
from langchain_ctxwin.models.sources.platforms import ollama_address, sources_of
from langchain_ctxwin.protocols import LimitMemory
from langchain_ctxwin.util import in_daemon
from langchain_ctxwin.util.failures import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from support.model_sources import AskedSource, HeldSource, ListSource, Watch, model

TTL = 600.0

SHARED_OVERFLOW = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
    "(4000 in the messages, 1000 in the completion)."
)


def registry(*sources, watch=None, **options):
    return ModelRegistry(sources, TTL, watch or Watch(), **options)


def window(known, name="nova-1"):
    """The window of a model; None when it is unknown."""
    try:
        return known.lookup(name).context_window
    except UnknownModelError:
        return None


def windows(known, *names):
    return [window(known, name) for name in names]


def events(logs):
    return [log["event"] for log in logs if log["log_level"] == "warning"]


class Chat(GenericFakeChatModel):
    """A chat model of a provider that is named for tracing."""

    model_name: str = "nova-1"
    served_by: str = "acme"
    openai_api_base: str | None = None
    profile: dict | None = None

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": self.served_by}


def chat(**fields):
    return Chat(messages=iter([]), **fields)


# Answers


@pytest.mark.parametrize("stated", ["nova-1", "Nova-1", "acme/nova-1", "models/nova-1", "nova"])
@pytest.mark.parametrize("asked", ["nova-1", "acme/nova-1", "ACME/nova-1", "nova", "acme/nova"])
def test_what_is_stated_for_any_provider_holds_under_each_name(stated, asked):
    known = registry(ListSource(model(aliases=("nova",))), ExplicitSource({stated: {"context_window": 5}}))
    info = known.lookup(asked)
    assert (info.provider, info.name, info.context_window) == ("acme", "nova-1", 5)


def test_what_a_server_states_without_a_provider_holds_at_no_other_one():
    local = ListSource(model(provider=None, context_window=1_000_000), name="local")
    table = ListSource(model(provider="groq"), name="table", tier="catalog")
    assert windows(registry(local, table), "groq/nova-1", "nova-1") == [8192, 1_000_000]


def test_rows_of_one_list_about_one_name_are_told_apart_by_spelling_else_the_smaller_counts():
    """Nobody knows which of two rows of one spelling answers."""
    spelled = registry(ListSource(model(context_window=9), model("NOVA-1", context_window=5)))
    assert windows(spelled, "nova-1", "NOVA-1") == [9, 5]
    assert window(registry(ListSource(model(context_window=9), model(context_window=5)))) == 5


def test_what_is_stated_about_a_variant_holds_for_the_variant_alone():
    known = registry(ListSource(model(input_price=Decimal(2))), ExplicitSource({"nova-1:free": {"context_window": 5}}))
    facts = [(info.context_window, info.input_price) for info in map(known.lookup, ("acme/nova-1:free", "nova-1:free"))]
    assert (facts, window(known)) == ([(5, Decimal(2)), (5, None)], 8192)


def test_sources_of_one_name_are_told_apart_and_a_nameless_one_is_named_after_its_class():
    tables = (ListSource(model(context_window=w), name="table", tier="catalog") for w in (900, 800, 700))
    info = registry(*tables).lookup("nova-1")
    conflicts = {"context_window": {"table": 900, "table #2": 800}}
    assert (info.provenance, info.conflicts) == ({"context_window": "table #3"}, conflicts)
    plain = SimpleNamespace(fetch=lambda name: [model()])
    lower = ListSource(model(context_window=1), tier="catalog")
    assert registry(plain, lower).lookup("nova-1").provenance == {"context_window": "SimpleNamespace"}


def test_an_unknown_model_names_the_nearest_known_ones_and_what_to_do():
    known = registry(ListSource(model()), ListSource(name="down", failing=TimeoutError()))
    with pytest.raises(UnknownModelError) as caught:
        known.lookup("acme/nova-2")
    assert str(caught.value) == (
        "'acme/nova-2' is listed by no source (api; down failed: TimeoutError); the nearest known names are "
        "acme/nova-1: state its limits with an ExplicitSource, or pass ModelLimits(context_window=...)"
    )


@pytest.mark.parametrize("name", ["", "  ", None, 7, RunnableLambda(lambda x: x)])
def test_what_names_no_model_is_unknown(name):
    with pytest.raises(UnknownModelError, match=r"names no model|listed by no source"):
        registry(ListSource(model())).lookup(name)


def test_a_model_without_limits_is_unknown_unless_a_guess_is_allowed():
    listed = ListSource(model(context_window=None, max_output_tokens=100), model("bare", context_window=None))
    with pytest.raises(UnknownModelError, match=r"no source states its context window.*allow a guess"):
        registry(listed).lookup("nova-1")
    for guessing in (registry(listed, allow_guess=True), registry(listed, GuessSource())):
        assert (windows(guessing, "nova-1", "bare"), guessing.lookup("nova-1").limits.source) == ([400, None], "guess")


def test_all_models_are_listed_by_provider_and_name():
    known = registry(
        ListSource(model("b", context_window=None), model("a"), model("a", provider="cloud")),
        ExplicitSource({"a": {"context_window": 5}, "own": {"context_window": 6}}),
    )
    listed = [(info.provider, info.name, info.context_window) for info in known.models()]
    assert listed == [(None, "own", 6), ("acme", "a", 5), ("acme", "b", None), ("cloud", "a", 5)]
    assert [info.name for info in known.models("ACME")] == ["a", "b"]


def test_explain_shows_who_states_what():
    watch = Watch()
    known = registry(
        ListSource(model(), model(provider="cloud")),
        ListSource(model(context_window=9000), name="table", tier="catalog"),
        ListSource(name="down", failing=ConnectionError()),
        watch=watch,
    )
    known.refresh()
    watch.now += 5
    told = known.explain("acme/nova-1")
    assert [(s.field, s.source, s.tier, s.value, s.counts) for s in told.statements] == [
        ("context_window", "api", "provider", 8192, True),
        ("context_window", "table", "catalog", 9000, False),
    ]
    assert [(s.name, s.models, s.age_seconds, s.fault) for s in told.sources] == [
        ("api", 2, 5, ""),
        ("table", 1, 5, ""),
        ("down", 0, None, "ConnectionError"),
    ]
    assert (told.info, told.how, told.problem) == (known.lookup("acme/nova-1"), "name", "")

    told = known.explain("nova")
    assert (told.info, told.statements, told.how) == (None, (), "")
    assert "'nova' is listed by no source" in told.problem


# Chat models and ambiguous names


def test_a_chat_model_is_looked_up_at_its_provider():
    """Bindings are looked through; OpenAI's client speaks to many servers, of which a well-known address is named."""
    sizes = {"acme": 800, "cloud": 700, "openai": 600, "groq": 500, "localhost:8000": 400, "aaa": 300}
    served = [model(provider=provider, context_window=size) for provider, size in sizes.items()]
    known = registry(ListSource(*served, model("nova-2", provider="cloud", context_window=5)))
    cloud = chat(served_by="cloud")
    models = (chat(), cloud, cloud.bind(stop=["x"]), cloud.bind(model="nova-2"))
    assert windows(known, *models) == [800, 700, 700, 5]
    addresses = (None, "https://api.groq.com/openai/v1", "http://localhost:8000/v1", "http://nobody:1/v1", "http://[")
    clients = (chat(served_by="openai", openai_api_base=address) for address in addresses)
    assert windows(known, *clients) == [600, 500, 400, 300, 300]


def test_the_profile_of_a_chat_model_counts_where_nothing_better_is_known():
    own = chat(profile={"max_input_tokens": 5000, "max_output_tokens": 50})
    others = (registry(), registry(ListSource(model(), tier="catalog")), registry(ListSource(model())))
    assert [window(known, own) for known in others] == [5000, 5000, 8192]


def test_a_bare_name_at_several_providers_takes_the_smallest_limits_with_one_warning():
    known = registry(
        ListSource(*(model(provider=p, context_window=w) for p, w in (("a", 900), ("b", 700), ("c", 800))))
    )
    with capture_logs() as logs:
        assert [known.lookup("nova-1").provider for _ in range(3)] == ["b"] * 3
    assert [(log["event"], log["taken"], log["others"]) for log in logs] == [
        ("models.ambiguous", "b/nova-1", ("a/nova-1", "c/nova-1"))
    ]


# Retirement


def day(year, month, number):
    return datetime(year, month, number, tzinfo=UTC).timestamp()


def test_a_retirement_is_told_once_before_and_once_after_it_and_a_deprecation_once():
    watch = Watch(day(2030, 1, 1))
    listed = (model(retires_on=date(2030, 2, 1)), model("old", deprecated=True), model("x"))
    known = registry(ListSource(*listed), watch=watch)
    with capture_logs() as logs:
        for now in (day(2030, 1, 1), day(2030, 1, 31), day(2030, 2, 1), day(2030, 2, 1) + 3600):
            watch.now = now
            assert windows(known, "nova-1", "old", "x") == [8192] * 3
    assert [(log["event"], log["model"], log["retires_on"]) for log in logs] == [
        ("models.deprecated", "nova-1", "2030-02-01"),
        ("models.deprecated", "old", None),
        ("models.retired", "nova-1", "2030-02-01"),
    ]


# Learning


def test_a_registry_is_a_memory_of_limits():
    known = registry(ListSource(model(), model(provider="cloud")))
    assert window(known, "acme/nova-1") == 8192
    known.learn("nova-1", {"context_window": 4096})
    assert known.recall("nova-1") == {"context_window": 4096}
    info = known.lookup("acme/nova-1")
    assert (info.context_window, info.provenance, info.conflicts) == (
        4096,
        {"context_window": "learned"},
        {"context_window": {"api": 8192}},
    )
    memory: LimitMemory = known
    assert memory.recall("other") == {}


TOO_LONG = "prompt is too long: 208656 tokens > 200000 maximum"
THREE_QUARTERS = "prompt is too long: 9000 tokens > 6144 maximum"  # what is left beside the answer


@pytest.mark.parametrize(
    ("said", "window_tokens", "learned"),
    [
        (SHARED_OVERFLOW, None, {"context_window": 4096}),
        (ValueError(TOO_LONG), None, {"max_input_tokens": 200_000}),
        (TOO_LONG, 1_000_000, {"context_window": 200_000}),
        (THREE_QUARTERS, 8192, {"max_input_tokens": 6144}),
        ({"max_input_tokens": 100}, None, {"max_input_tokens": 100}),
        ({"error": {"message": TOO_LONG}}, None, {"max_input_tokens": 200_000}),
        *((said, None, {}) for said in ("429: too many tokens per minute", RuntimeError("boom"), None)),
    ],
)
def test_limits_are_learned_from_errors_texts_and_mappings(said, window_tokens, learned):
    known = registry(ListSource(model(context_window=window_tokens)))
    known.refresh()
    known.learn("nova-1", said)
    assert dict(known.recall("nova-1")) == learned


def test_what_one_provider_said_is_not_learned_for_another():
    known = registry(ListSource(model(context_window=5000), model(provider="cloud", context_window=9000)))
    known.refresh()
    known.learn(chat(served_by="cloud"), {"context_window": 7000})
    assert windows(known, "acme/nova-1", "cloud/nova-1") == [5000, 7000]
    assert (known.recall("cloud/nova-1"), known.recall("nova-1")) == ({"context_window": 7000}, {})


@pytest.mark.parametrize(
    ("name", "learned", "limits"),
    [
        (chat(), {"context_window": 7000}, (7000, None)),  # restarted with more room than its list says
        ("nova-1", {"context_window": 7000}, (5000, None)),  # it may have been somebody else's
        ("nova-1", {"max_input_tokens": 7000}, (5000, None)),
    ],
)
def test_only_what_was_learned_with_the_provider_raises_its_limit(name, learned, limits):
    known = registry(ListSource(model(context_window=5000)))
    known.learn(name, learned)
    info = known.lookup("acme/nova-1")
    assert (info.context_window, info.max_input_tokens) == limits


def test_spellings_of_a_provider_recall_the_same_limits():
    known = registry(ListSource(model(provider="google")))
    known.refresh()
    known.learn("gemini/nova-1", {"context_window": 5})
    assert (known.recall("google_genai/nova-1"), window(known)) == ({"context_window": 5}, 5)


def test_what_is_learned_goes_into_the_given_source_and_answers_alone():
    learned = LearnedSource()
    known = registry(learned)
    known.learn("private", {"context_window": 4096})
    assert learned.recall("private") == {"context_window": 4096}
    assert known.lookup("private").limits.source == "learned"
    with pytest.raises(ConfigError, match="no limit that can be learned"):
        known.learn("nova-1", {"window": 1})


# Time


def test_all_that_is_saved_shares_the_time_of_a_flush():
    given = []

    class SlowMemory(LearnedSource):
        def flush(self, timeout_seconds):
            given.append(timeout_seconds)
            time.sleep(timeout_seconds)
            return False

    known = registry(*(SlowMemory() for _ in range(3)))
    assert (known.flush(0.1), given[0] <= 0.1, given[1:]) == (False, True, [0.0, 0.0])


def test_the_world_changes_within_one_time_to_live():
    """Until then sources are asked once, however many names are looked up, unknown ones included."""
    watch, source = Watch(), ListSource(model(), model("old"))
    known = registry(source, watch=watch)
    for _ in range(3):
        assert windows(known, "nova-1", "old", "new") == [8192, 8192, None]
        watch.now += 0.3 * TTL
    assert source.fetched == [None]
    source.models = [model(context_window=4096, deprecated=True), model("new")]
    watch.now += 0.2 * TTL
    assert windows(known, "nova-1", "old", "new") == [4096, None, 8192]
    assert known.lookup("nova-1").deprecated


def test_a_removed_model_is_not_answered_with_a_similar_one():
    watch, source = Watch(), ListSource(model("x"), model("x-20250101"))
    known = registry(source, watch=watch)
    assert (known.lookup("x-20250101").name, known.lookup("x-20240101").name) == ("x-20250101", "x")
    source.models = [model("x")]
    for _ in range(2):
        watch.now += TTL
        known.refresh()
        assert window(known, "x-20250101") is None
    source.models = [model("x"), model("x-20250101")]
    watch.now += TTL
    known.refresh()
    assert known.lookup("x-20250101").name == "x-20250101"


def test_a_clock_that_goes_back_makes_facts_expire():
    watch, source = Watch(), ListSource(model())
    known = registry(source, watch=watch)
    window(known)
    source.failing = OSError()
    watch.now += TTL
    known.refresh()
    source.failing, source.models = None, [model(context_window=4096)]
    watch.now -= 1_000_000
    assert window(known) == 4096


@pytest.mark.parametrize(
    ("ttl_seconds", "pauses"),
    [(10_000, [10, 20, 40, 80, 160, *[LONGEST_PAUSE_SECONDS] * 3]), (30, [10, 20, *[30] * 6])],
)
def test_a_failing_source_is_asked_ever_more_rarely(ttl_seconds, pauses):
    """Never more rarely than one that answers."""
    watch, asked = Watch(), []

    def fail(name):
        asked.append(watch.now)
        raise OSError

    known = ModelRegistry([SimpleNamespace(fetch=fail)], ttl_seconds, watch)
    while len(asked) < 9:
        known.models()
        watch.now += FIRST_PAUSE_SECONDS
    assert [later - earlier for earlier, later in pairwise(asked)] == pauses


# Sources that misbehave


class OddError(BaseException):
    """An error that is no `Exception`, and cannot be shown."""

    def __str__(self):
        raise RuntimeError


class Evil(list):
    """A list that cannot be walked."""

    def __iter__(self):
        raise RuntimeError


ERRORS = [
    *(ValueError("https://host/models?key=secret"), OSError("x"), OddError(), asyncio.CancelledError()),
    *(KeyboardInterrupt(), SystemExit(1), GeneratorExit()),
]
GARBAGE = [None, 7, "models", b"models", {"nova-1": 8192}, iter([]), ["nova-1"], [None], Evil([1]), [{}], object()]


@pytest.mark.parametrize("answer", [*ERRORS, *GARBAGE], ids=lambda answer: type(answer).__name__)
def test_a_source_that_fails_or_answers_garbage_breaks_no_lookup(answer):
    """Old facts serve; the trouble is told once, and again only after it was over."""
    source = ListSource(model())
    known = registry(source, ListSource(model("other"), name="b"))
    good = source.fetch

    def bad(name):
        if isinstance(answer, BaseException):
            raise answer
        return answer

    assert window(known) == 8192
    with capture_logs() as logs:
        for source.fetch in (bad, bad, good, bad):
            known.refresh()
            assert windows(known, "nova-1", "other") == [8192, 8192]
    assert events(logs) == ["models.source_failed"] * 2
    assert "secret" not in str(logs)  # texts of others may hold a key


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, "x"),
        *(model(provider=["p"]), model(aliases=None), model(aliases=(5,)), model(deprecated="no")),
        *(model(capabilities=["tools"]), model(tokenizer_family=5), model(retires_on="2026-01-01")),
        model(retires_on=datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_entry_with_fields_of_another_kind_is_dropped(wrong):
    bad, other = ListSource(), ListSource(model(), tier="catalog")
    bad.fetch = lambda name: [model("nova-2"), wrong]
    with capture_logs() as logs:
        known = registry(bad, other)
        assert (windows(known, "nova-1", "nova-2"), len(known.models())) == ([8192, 8192], 2)
    assert [(log["event"], log["reason"]) for log in logs] == [("models.entries_dropped", "1 entries are no models")]


def test_a_hanging_source_is_waited_for_once():
    """It holds one thread, however often it is due; its late answer is used when it comes."""
    hanging, good, watch = HeldSource(model("late")), ListSource(model(), name="b"), Watch()
    known = registry(hanging, good, watch=watch, timeout_seconds=0.3)
    with capture_logs() as logs:
        for _ in range(3):
            assert windows(known, "nova-1", "nova-1") == [8192, 8192]
            known.refresh()
            watch.now += TTL
    reasons = [(log["event"], log["reason"]) for log in logs]
    assert reasons == [("models.source_failed", "no answer within 0.3 seconds")]
    call = known._cache.feeds[0].ask()
    hanging.released.set()
    call.result()
    assert (window(known, "late"), hanging.fetched, len(good.fetched)) == (8192, [None], 7)


def test_a_call_that_hangs_is_one_failure_however_long_it_does():
    hanging, watch = HeldSource(failing=OSError()), Watch()
    known = registry(hanging, watch=watch, timeout_seconds=0.05)
    for _ in range(4):
        known.models()
        watch.now += LONGEST_PAUSE_SECONDS
    call = known._cache.feeds[0].ask()
    hanging.released.set()
    call.result()  # the second failure, after which the pause is twice the first one
    watch.now += 2 * FIRST_PAUSE_SECONDS
    known.models()
    assert hanging.fetched == [None, None]


def test_expired_facts_serve_while_a_slow_source_is_asked(monkeypatch):
    """A name that they lack waits: an error is final, a moment of patience is not."""
    monkeypatch.setattr(cache, "GRACE_SECONDS", 0.01)
    watch, slow = Watch(), HeldSource(model())
    slow.released.set()
    known = registry(slow, watch=watch, timeout_seconds=30)
    assert window(known) == 8192
    slow.released.clear()
    slow.models = [model(context_window=4096), model("new")]
    watch.now += TTL
    assert windows(known, "nova-1", "nova-1") == [8192, 8192]
    threading.Timer(0.1, slow.released.set).start()
    assert (window(known, "new"), window(known), len(slow.fetched)) == (8192, 4096, 2)


def test_a_refresh_asks_every_source_whatever_is_under_way():
    slow, other, watch = HeldSource(failing=OSError()), ListSource(model(), name="b"), Watch()
    slow.released.set()
    known = registry(slow, other, watch=watch, timeout_seconds=30)
    known.refresh()  # a lookup would not wait for a source that it does not need
    slow.released.clear()
    slow.asked.clear()
    watch.now += LONGEST_PAUSE_SECONDS
    looking = in_daemon(lambda: window(known))
    slow.asked.wait()
    refreshing_all = in_daemon(known.refresh)
    time.sleep(0.2)  # until it waits: a source that has just failed is left alone for a while
    slow.released.set()
    looking.result()
    refreshing_all.result()
    assert (other.fetched, slow.fetched) == ([None] * 2, [None] * 3)  # what was asked before does not count


def test_many_threads_ask_a_source_once():
    slow = HeldSource(model())
    known = registry(slow, timeout_seconds=30)
    jobs = [in_daemon(lambda: window(known)) for _ in range(8)]
    slow.asked.wait()
    slow.released.set()
    assert ([job.result() for job in jobs], slow.fetched) == ([8192] * 8, [None])


def test_an_interrupt_of_the_caller_is_not_swallowed(monkeypatch):
    known = registry(ListSource(model()))

    def interrupted(*args):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        window(known)
    assert window(known) == 8192


def test_no_thread_to_be_had_is_a_failure_like_others(monkeypatch):
    def refused(work):
        raise RuntimeError("can't start new thread")

    known = registry(ListSource(model()))
    monkeypatch.setattr(cache, "in_few_daemons", refused)
    with pytest.raises(UnknownModelError, match="api failed: no thread was free"):
        known.lookup("nova-1")


# Sources that list nothing


def test_a_source_that_lists_nothing_is_asked_by_name():
    watch, source = Watch(), AskedSource(model())
    known = registry(source, watch=watch)
    for _ in range(2):
        assert windows(known, "acme/nova-1", "other") == [8192, None]
    assert sorted(source.fetched) == ["", "acme/nova-1", "nova-1", "other"]
    source.models = []
    watch.now += TTL
    assert window(known, "acme/nova-1") is None


def test_a_source_that_fails_by_name_is_left_alone_for_a_while():
    watch, source = Watch(), AskedSource(model())
    known = registry(source, watch=watch)
    assert window(known) == 8192
    source.failing = OSError()
    watch.now += TTL
    assert windows(known, "nova-1", "nova-1") == [8192, 8192]
    assert (source.fetched, known.sources[0].fault) == (["", "nova-1", ""], "OSError")
    source.failing = None
    watch.now += LONGEST_PAUSE_SECONDS
    assert (window(known), source.fetched[-1], known.sources[0].fault) == (8192, "nova-1", "")


def test_a_known_model_does_not_wait_for_sources_that_are_asked_by_name(monkeypatch):
    monkeypatch.setattr(cache, "GRACE_SECONDS", 0.01)
    slow = HeldByNameSource(model(max_output_tokens=5), model("nova-2"))
    known = registry(ExplicitSource({"nova-1": 9, "nova-2": 9}), slow, timeout_seconds=30)
    assert (windows(known, "nova-1", "nova-2"), slow.fetched) == ([9, 9], [""])
    slow.released.set()
    known.flush()
    assert known.lookup("acme/nova-1").max_output_tokens == 5


class HeldByNameSource(AskedSource):
    """Lists nothing at once, and answers by name when `released` is set."""

    def __init__(self, *models):
        super().__init__(*models)
        self.released = threading.Event()

    def fetch(self, name):
        if name is not None:
            self.released.wait()
        return super().fetch(name)


def test_a_source_that_hangs_by_name_is_asked_about_no_other_one():
    slow = HeldByNameSource()
    known = registry(slow, timeout_seconds=0.3)
    assert windows(known, "a", "b", "c") == [None] * 3
    call = known._cache.feeds[0].ask("a")
    slow.released.set()
    call.result()
    assert slow.fetched == ["", "a"]


def test_a_source_that_cannot_list_is_asked_by_name():
    table = {"nova-1": 8192}
    assert window(registry(SimpleNamespace(fetch=lambda name: [model(name, context_window=table[name])]))) == 8192


# Async


async def test_lookups_on_an_event_loop_wait_without_threads_of_their_own():
    """Who is cancelled takes nothing from the others."""
    slow = HeldSource(model())
    known = registry(slow, timeout_seconds=30)
    cancelled, *waiting = [asyncio.create_task(known.alookup("nova-1")) for _ in range(50)]
    await asyncio.wrap_future(in_daemon(slow.asked.wait))
    threads = threading.active_count()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    slow.released.set()
    assert set(await asyncio.gather(*waiting)) == {await known.alookup("nova-1")} == {known.lookup("nova-1")}
    assert (slow.fetched, threads < len(waiting)) == ([None], True)
    with pytest.raises(UnknownModelError):
        await known.alookup("other")


async def test_the_other_async_methods_do_what_the_sync_ones_do():
    source = ListSource(model())
    known = registry(source)
    assert await known.amodels("acme") == known.models("acme")
    source.models = [model(context_window=4096)]
    await known.arefresh()
    assert window(known) == 4096


# Making one


@pytest.mark.parametrize(
    ("sources", "options", "said"),
    [
        *(([], options, "positive number of seconds") for options in ({"ttl_seconds": 0}, {"timeout_seconds": -1})),
        ([], {"ttl_seconds": float("nan")}, "positive number of seconds"),
        ([], {"cache_path": "~nobody-of-this-name/models.json"}, "give the path of a file"),
        *(([source], {}, "is no model source") for source in ("models.json", None, ListSource)),
    ],
)
def test_what_can_never_work_is_refused(sources, options, said):
    with pytest.raises(ConfigError, match=said):
        ModelRegistry(sources, **options)


def test_without_keys_and_addresses_nothing_on_the_network_is_asked():
    assert [source.name for source in sources_of({})] == ["profile"]
    found = sources_of({"OPENAI_API_KEY": ""}, catalogs=["models.json"])
    assert [source.name for source in found] == ["profile", "models.json"]


def test_each_usual_key_brings_its_source():
    names = ["GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY"]
    more = ["GROQ_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "OLLAMA_HOST"]
    found = sources_of(dict.fromkeys(names + more, "secret"))
    expected = ["gemini", "anthropic", "openai", "openrouter", "mistral", "groq", "togetherai", "fireworks-ai"]
    assert [source.name for source in found] == [*expected, "deepseek", "xai", "ollama", "profile"]
    assert "secret" not in repr([source for source in found if source.name != "ollama"])


def test_the_given_environment_says_which_key_and_which_address(monkeypatch):
    """A key for a server of one's own is not sent to the maker; an address that is none fails its source alone."""
    monkeypatch.setenv("GOOGLE_API_KEY", "of the process")
    gemini, _ = sources_of({"GOOGLE_API_KEY": "given"})
    assert gemini.cache_key == GeminiSource(api_key="given").cache_key
    own, _ = sources_of({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://localhost:8000/v1"})
    assert repr(own) == "OpenAICompatibleSource('http://localhost:8000/v1', provider='localhost:8000')"
    wrong, other = sources_of({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "gateway"})
    assert (wrong.name, other.name) == ("openai", "profile")
    with pytest.raises(ConfigError, match="base_url='gateway'"):
        wrong.fetch(None)


ADDRESSES = {
    "localhost": "http://localhost:11434",
    "0.0.0.0:8080": "http://127.0.0.1:8080",
    ":8080": "http://127.0.0.1:8080",
    "https://ollama.example.com": "https://ollama.example.com",
    **dict.fromkeys(["http://[::1]:11434/", "[::1]", "::1"], "http://[::1]:11434"),
    "::": "http://127.0.0.1:11434",
    "10.0.0.0:11434": "http://10.0.0.0:11434",
    "http://gateway/ollama": "http://gateway/ollama",
    "gateway/ollama": "http://gateway:11434/ollama",
}


def test_an_ollama_host_is_read_as_its_own_programs_do():
    assert {host: ollama_address(host) for host in ADDRESSES} == ADDRESSES


def test_the_standard_registry_has_its_files_in_the_platforms_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    known = ModelRegistry.standard(sources=[ListSource(model(), cache_key="api")], environment={}, clock=Watch())
    known.refresh()
    known.learn("nova-1", {"context_window": 4096})
    assert known.flush()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json")) == [
        "cache/langchain-ctxwin/models.json",
        "data/langchain-ctxwin/learned.json",
    ]


def test_a_forked_process_does_not_wait_for_threads_of_its_parent():
    hanging = HeldSource(model())
    known = registry(hanging, timeout_seconds=0.5)
    known.models()
    feeds = known._cache
    with feeds._listing_lock.held, feeds.feeds[0]._lock.held:  # as other threads may, at any time
        pid = os.fork()
        if pid == 0:
            code = 1
            signal.alarm(10)  # a child that waits for a lock is a failure
            try:
                hanging.released.set()
                known.refresh()
                code = [info.name for info in known.models()] != ["nova-1"]
            finally:
                os._exit(code)
    hanging.released.set()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
