"""A registry answers from many sources, whatever they do: late, wrong, gone, contradicting, ambiguous or hanging."""

import asyncio
import threading

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.runnables import RunnableLambda
from structlog.testing import capture_logs

from langchain_ctxwin import ModelRegistry
from langchain_ctxwin.errors import ConfigError, UnknownModelError
from langchain_ctxwin.models import registry as registry_module
from langchain_ctxwin.models.registry import RETRY_SECONDS
from langchain_ctxwin.models.sources import ExplicitSource
from langchain_ctxwin.util.work import in_daemon
from support.model_sources import (
    HeldSource,
    ListSource,
    model,
)
from support.walking import FakeClock

TTL = 600.0

SHARED_OVERFLOW = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
    "(4000 in the messages, 1000 in the completion)."
)


def registry(*sources, watch=None, **options):
    return ModelRegistry(sources, TTL, watch or FakeClock(), **options)


def window(known, name="nova-1"):
    """The window of a model; None when it is unknown."""
    try:
        return known.lookup(name).context_window
    except UnknownModelError:
        return None


def windows(known, *names):
    return [window(known, name) for name in names]


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


# Without arguments


def test_without_arguments_limits_and_prices_of_public_models_are_known():
    """From data that comes along; tuned and dated names mean their base, an input limit beside the window is one."""
    known = ModelRegistry(clock=FakeClock())
    infos = known.models()
    assert len(infos) > 1000
    assert all(info.limits.known and info.output_price is not None for info in infos)
    apart = next(
        info for info in infos if info.provider == "openai" and info.max_input_tokens
    )
    assert apart.context_window == apart.max_input_tokens + apart.max_output_tokens
    names = (
        apart.name,
        f"openai:{apart.name}",
        f"ft:{apart.name}:mill::1",
        f"{apart.name}-2099-01-01",
    )
    assert {known.lookup(name).max_input_tokens for name in names} == {
        apart.max_input_tokens
    }
    profiled = chat(
        model_name=apart.name,
        served_by="openai",
        profile={"max_input_tokens": apart.max_input_tokens},
    )
    assert known.lookup(profiled).context_window == apart.context_window


def test_a_provider_that_limits_the_input_by_itself_is_read_so():
    """What Google serves: the output takes nothing of the input, here and on Vertex."""
    known = ModelRegistry()
    own = {info.name for info in known.models("google")}
    served = [*known.models("google"), *known.models("google-vertex")]
    stated = [info for info in served if info.name in own and info.max_output_tokens]
    assert len(stated) > 50
    for info in stated:
        limit = info.limits.input_limit(info.limits.output_reserve())
        assert limit == info.context_window - info.max_output_tokens


def test_what_the_snapshot_does_not_know_is_an_error_that_says_where_to_ask():
    with pytest.raises(
        UnknownModelError, match=r"catalogs='online'.*ctxwin models --probe nova-1"
    ):
        ModelRegistry().lookup("nova-1")
    assert ModelRegistry([]).models() == []


def test_catalogs_are_asked_before_the_snapshot(tmp_path, monkeypatch):
    """Online, the public one; or those that are given, without the snapshot."""
    asked = []
    monkeypatch.setattr(
        "langchain_ctxwin.models.sources.fetch_json",
        lambda url: asked.append(url) or {},
    )
    known = ModelRegistry(catalogs="online")
    assert known.models()
    assert {name: bool(fault) for name, fault in known.sources.items()} == {
        "models.dev": True,
        "snapshot": False,
    }
    assert len(asked) == 1
    path = tmp_path / "own.json"
    path.write_text('{"acme": {"models": {"nova-1": {"limit": {"context": 5}}}}}')
    assert [info.name for info in ModelRegistry(catalogs=[path]).models()] == ["nova-1"]
    with pytest.raises(ConfigError, match="'everywhere'"):
        ModelRegistry(catalogs="everywhere")


# Answers


@pytest.mark.parametrize("name", ["", None, RunnableLambda(lambda x: x)])
def test_what_names_no_model_is_unknown(name):
    with pytest.raises(UnknownModelError, match="names no model"):
        registry(ListSource(model())).lookup(name)


def test_a_model_without_limits_is_unknown_unless_a_guess_is_allowed():
    listed = ListSource(
        model(context_window=None, max_output_tokens=100),
        model("bare", context_window=None),
    )
    with pytest.raises(UnknownModelError, match=r"no source states its context window"):
        registry(listed).lookup("nova-1")
    guessing = registry(listed, allow_guess=True)
    assert (
        windows(guessing, "nova-1", "bare"),
        guessing.lookup("nova-1").limits.source,
    ) == ([400, None], "guess")


def test_all_models_are_listed_by_provider_and_name():
    known = registry(
        ListSource(
            model("b", context_window=None), model("a"), model("a", provider="cloud")
        ),
        ExplicitSource({"a": {"context_window": 5}, "own": {"context_window": 6}}),
    )
    listed = [
        (info.provider, info.name, info.context_window) for info in known.models()
    ]
    assert listed == [
        (None, "own", 6),
        ("acme", "a", 5),
        ("acme", "b", None),
        ("cloud", "a", 5),
    ]
    assert [info.name for info in known.models("ACME")] == ["a", "b"]


# Chat models and ambiguous names


def test_a_chat_model_is_looked_up_at_its_provider():
    """Bindings are looked through; OpenAI's client speaks to many servers, of which a well-known address is named."""
    sizes = {
        "acme": 800,
        "cloud": 700,
        "openai": 600,
        "groq": 500,
        "localhost:8000": 400,
        "aaa": 300,
    }
    served = [
        model(provider=provider, context_window=size)
        for provider, size in sizes.items()
    ]
    known = registry(
        ListSource(*served, model("nova-2", provider="cloud", context_window=5))
    )
    cloud = chat(served_by="cloud")
    models = (chat(), cloud, cloud.bind(stop=["x"]), cloud.bind(model="nova-2"))
    assert windows(known, *models) == [800, 700, 700, 5]
    addresses = (None, "https://api.groq.com/openai/v1", "http://localhost:8000/v1")
    clients = (
        chat(served_by="openai", openai_api_base=address) for address in addresses
    )
    assert windows(known, *clients) == [600, 500, 400]


def test_a_bare_name_at_several_providers_takes_the_smallest_limits_with_one_warning():
    listed = (
        model(provider=p, context_window=w)
        for p, w in (("a", 900), ("b", 700), ("c", 800))
    )
    known = registry(ListSource(*listed))
    with capture_logs() as logs:
        assert [known.lookup("nova-1").provider for _ in range(3)] == ["b"] * 3
    told = [(log["event"], log["taken"]) for log in logs]
    assert told == [("models.ambiguous", "b/nova-1")]


# Learning


def test_a_registry_is_a_memory_of_limits():
    known = registry(ListSource(model(), model(provider="cloud")))
    assert window(known, "acme/nova-1") == 8192
    known.learn("nova-1", {"context_window": 4096})
    assert known.recall("nova-1") == {"context_window": 4096}
    info = known.lookup("acme/nova-1")
    assert (info.provenance, info.conflicts) == (
        {"context_window": "learned"},
        {"context_window": {"api": 8192}},
    )
    known.learn("", {"context_window": 4096})  # a model without a name is nobody's
    assert known.recall("other") == {}


TOO_LONG = "prompt is too long: 208656 tokens > 200000 maximum"


@pytest.mark.parametrize(
    ("said", "window_tokens", "learned"),
    [
        (SHARED_OVERFLOW, None, {"context_window": 4096}),
        (ValueError(TOO_LONG), None, {"context_window": 200_000}),
        (TOO_LONG, 1_000_000, {"context_window": 200_000}),
        ({"max_input_tokens": 100}, None, {"max_input_tokens": 100}),
        *(
            (said, None, {})
            for said in ("429: too many tokens per minute", RuntimeError("boom"), None)
        ),
    ],
)
def test_limits_are_learned_from_errors_texts_and_mappings(
    said, window_tokens, learned
):
    known = registry(ListSource(model(context_window=window_tokens)))
    known.refresh()
    known.learn("nova-1", said)
    assert dict(known.recall("nova-1")) == learned


def test_what_one_provider_said_is_not_learned_for_another():
    """However it is spelled."""
    listed = (
        model(context_window=5000),
        model(provider="cloud", context_window=9000),
        model("g", provider="google"),
    )
    known = registry(ListSource(*listed))
    known.refresh()
    known.learn(chat(served_by="cloud"), {"context_window": 7000})
    assert windows(known, "acme/nova-1", "cloud/nova-1") == [5000, 7000]
    known.learn("gemini/g", {"context_window": 5})
    assert (known.recall("google_genai/g"), window(known, "g")) == (
        {"context_window": 5},
        5,
    )


# Time


def test_the_world_changes_within_one_time_to_live():
    """Until then sources are asked once, however many names are looked up, unknown ones included."""
    watch, source = FakeClock(), ListSource(model(), model("old"))
    known = registry(source, watch=watch)
    for _ in range(3):
        assert windows(known, "nova-1", "old", "new") == [8192, 8192, None]
        watch.now += 0.3 * TTL
    assert source.fetched == [None]
    source.models = [model(context_window=4096, deprecated=True), model("new")]
    watch.now += 0.2 * TTL
    assert windows(known, "nova-1", "old", "new") == [4096, None, 8192]
    assert known.lookup("nova-1").deprecated


def test_a_failing_source_is_asked_again_after_a_minute_and_told_once():
    """Old facts serve meanwhile, and no text of others is shown."""
    watch, source = FakeClock(), ListSource(model())
    known = registry(source, ListSource(model("other"), name="b"), watch=watch)
    assert windows(known, "nova-1", "other") == [8192, 8192]
    source.failing = ValueError("https://host/models?key=secret")
    watch.now += TTL
    with capture_logs() as logs:
        for _ in range(3):
            assert windows(known, "nova-1", "other") == [8192, 8192]
            watch.now += RETRY_SECONDS / 2
    assert (len(source.fetched), [log["event"] for log in logs]) == (
        3,
        ["models.source_failed"],
    )
    assert "secret" not in str(logs)


def test_a_hanging_source_is_waited_for_once(monkeypatch):
    """It holds one thread, however often it is due; its late answer is used when it comes."""
    hanging, good, watch = (
        HeldSource(model("late")),
        ListSource(model(), name="b"),
        FakeClock(),
    )
    monkeypatch.setattr(registry_module, "TIMEOUT_SECONDS", 0.1)
    known = registry(hanging, good, watch=watch)
    for _ in range(3):
        assert windows(known, "nova-1", "nova-1") == [8192, 8192]
        watch.now += TTL
    hanging.released.set()
    assert (window(known, "late"), hanging.fetched) == (8192, [None])


def test_expired_facts_serve_while_a_slow_source_is_asked(monkeypatch):
    """A name that they lack waits: an error is final, a moment of patience is not."""
    monkeypatch.setattr(registry_module, "GRACE_SECONDS", 0.01)
    watch, slow = FakeClock(), HeldSource(model())
    slow.released.set()
    known = registry(slow, watch=watch)
    assert window(known) == 8192
    slow.released.clear()
    slow.models = [model(context_window=4096), model("new")]
    watch.now += TTL
    assert windows(known, "nova-1", "nova-1") == [8192, 8192]
    threading.Timer(0.1, slow.released.set).start()
    assert (window(known, "new"), window(known), len(slow.fetched)) == (8192, 4096, 2)


async def test_the_async_methods_do_what_the_sync_ones_do():
    """Without blocking the loop while a source is slow."""
    slow = HeldSource(model())
    known = registry(slow)
    waiting = [asyncio.create_task(known.alookup("nova-1")) for _ in range(5)]
    await asyncio.wrap_future(in_daemon(slow.asked.wait))
    slow.released.set()
    assert (
        set(await asyncio.gather(*waiting))
        == {await known.alookup("nova-1")}
        == {known.lookup("nova-1")}
    )
    with pytest.raises(UnknownModelError):
        await known.alookup("other")
    slow.models = [model(context_window=4096)]
    known.refresh()
    assert window(known) == 4096


@pytest.mark.parametrize("seconds", ["a", 0, None])
def test_a_time_to_live_that_is_none_is_refused(seconds):
    with pytest.raises(ConfigError, match=r"ttl_seconds=.*: pass a number of seconds"):
        ModelRegistry(ttl_seconds=seconds)
