"""Sources state what others wrote, read as what it means: over HTTP with bounds, from files, profiles and the user."""

import gzip
import json
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_google_genai import ChatGoogleGenerativeAI
from structlog.testing import capture_logs

from langchain_ctxwin import ModelInfo, ModelLimits
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources import (
    AnthropicSource,
    CatalogSource,
    ExplicitSource,
    GeminiSource,
    OllamaSource,
    OpenAICompatibleSource,
    ProfileSource,
    http,
)
from langchain_ctxwin.models.sources.apis import read_entry
from langchain_ctxwin.models.sources.catalog import read_price_row, read_provider_row
from langchain_ctxwin.models.sources.http import ApiSession, SourceError, connected, entries_of
from langchain_ctxwin.models.sources.platforms import ANTHROPIC
from langchain_ctxwin.models.sources.reading import (
    MAX_PRICE,
    MAX_TOKENS,
    MILLION,
    ONE_TOKEN,
    SPELLINGS,
    day,
    price,
    provider_id,
    tokens,
)
from support.model_shapes import CATALOG, PRICE_TABLE
from support.model_sources import info

# Asking over HTTP


BASE = "http://maker.test/v1"


class Visit:
    """A session with a server that answers as told, on a clock that only waiting moves."""

    def __init__(self, *answers, seconds=8.0):
        self.answers = list(answers)
        self.urls: list[str] = []
        self.waits: list[float] = []
        self.now = 0.0
        client = httpx.Client(transport=httpx.MockTransport(self._answer), headers={"x-api-key": "secret"})
        self.session = ApiSession(client, BASE, deadline=seconds, clock=lambda: self.now, sleep=self._sleep)

    def _answer(self, request):
        self.urls.append(str(request.url))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


def moved(location, status=302):
    return httpx.Response(status, headers={"location": location})


def busy(retry_after):
    return httpx.Response(429, headers={"retry-after": retry_after})


GOOD = httpx.Response(200, json={"ok": 1})


@pytest.mark.parametrize(
    ("answers", "waits"),
    [
        ([httpx.Response(503), httpx.ConnectError("secret"), GOOD], [0.25, 0.5]),
        ([busy("3"), GOOD], [3.0]),
        ([busy("0"), GOOD], [0.25]),
        ([busy("Thu, 01 Jan 1970 00:00:00 GMT"), GOOD], [0.25]),
    ],
)
def test_what_may_pass_is_asked_again_after_a_wait(answers, waits):
    visit = Visit(*answers)
    assert (visit.session.get("/models"), visit.waits) == ({"ok": 1}, waits)


ELSEWHERE = ["http://other.test/", "//other.test/", "http://maker.test:8080/", "http://maker.test:99999/"]
MORE_ELSEWHERE = ["http://maker.test.other.test/", "ftp://maker.test/"]


@pytest.mark.parametrize(
    ("answer", "said", "requests"),
    [
        (httpx.Response(503), r"^http://maker\.test/v1/models answered HTTP 503$", 3),
        (busy("8"), "answered HTTP 429", 1),
        *((httpx.Response(status), f"answered HTTP {status}", 1) for status in (400, 401, 403, 404, 501)),
        *((moved(location), "redirects to another host", 1) for location in ELSEWHERE + MORE_ELSEWHERE),
        (moved("/v1/models"), "redirects more than 3 times", 4),
        (httpx.LocalProtocolError("value b'secret'"), "models cannot be reached: LocalProtocolError$", 3),
    ],
)
def test_what_does_not_pass_is_a_typed_error_without_a_key(answer, said, requests):
    visit = Visit(answer)
    with pytest.raises(SourceError, match=said):
        visit.session.get("/models")
    assert len(visit.urls) == requests


def test_a_fault_of_a_request_is_no_lack_of_threads(monkeypatch):
    visit = Visit(RuntimeError("the client is closed"))
    with pytest.raises(RuntimeError, match="the client is closed"):
        visit.session.get("/models")
    assert len(visit.urls) == 1

    def refused(work):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(http, "in_daemon", refused)
    with pytest.raises(SourceError, match="was not asked: the process has no thread for it"):
        visit.session.get("/models")
    assert visit.waits == [0.25, 0.5]


@pytest.mark.parametrize("location", ["/v2/models", "http://maker.test/v2/models", "https://maker.test/v2/models"])
def test_a_redirect_to_the_same_host_is_followed(location):
    visit = Visit(moved(location), GOOD)
    assert visit.session.get("/models") == {"ok": 1}
    assert visit.urls[-1].endswith("maker.test/v2/models")


def packed(content, encoding="gzip"):
    return httpx.Response(200, headers={"content-encoding": encoding}, stream=httpx.ByteStream(content))


def test_a_packed_answer_is_unpacked():
    assert Visit(packed(gzip.compress(b'{"ok": 1}'))).session.get() == {"ok": 1}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        *((packed(b"{}", way), "packed in a way that was not asked for") for way in ("gzip, gzip", "br")),
        (packed(b"{}"), "cannot be read: DecodingError"),
        (packed(gzip.compress(b'{"ok": 1}', mtime=0)[:-14]), "that are no JSON"),
        (packed(gzip.compress(b"0" * 2000, mtime=0)), "answered more than 1,000 bytes"),
    ],
)
def test_a_packed_answer_that_cannot_be_believed_is_a_typed_error(answer, said, monkeypatch):
    monkeypatch.setattr(http, "MAX_BYTES", 1000)
    with pytest.raises(SourceError, match=said):
        Visit(answer).session.get()


@pytest.mark.parametrize(
    ("url", "environment", "key"),
    [
        ("https://api.anthropic.com/v1", {}, "k"),
        ("http://api.anthropic.com/v1", {}, ""),
        ("https://api.anthropic.com:8443/v1", {}, ""),
        ("https://api.anthropic.com.other.test/v1", {}, ""),
        ("http://gateway:8080/anthropic", {}, ""),
        ("http://gateway:8080/anthropic", {"ANTHROPIC_BASE_URL": "http://gateway:8080/"}, "k"),
        ("http://gateway:8080/anthropic", {"ANTHROPIC_API_URL": "http://gateway:8080"}, "k"),
        ("http://gateway:9090/anthropic", {"ANTHROPIC_BASE_URL": "http://gateway:8080"}, ""),
        ("http://gateway:8080/anthropic", {"OPENAI_BASE_URL": "http://gateway:8080"}, ""),
        ("http://gateway:8080/anthropic", {"ANTHROPIC_BASE_URL": "http://[x"}, ""),
    ],
)
def test_a_key_from_the_environment_goes_where_its_client_sends_it(url, environment, key):
    assert ANTHROPIC.key_for(url, {"ANTHROPIC_API_KEY": "k", **environment}) == key


@pytest.mark.parametrize("kind", [AnthropicSource, GeminiSource, OpenAICompatibleSource])
def test_what_two_accounts_list_is_stored_apart(kind):
    """No source shows its key."""
    one, other = (kind("https://maker.test/v1", key) for key in ("secret-a", "secret-b"))
    assert one.cache_key != other.cache_key
    assert "secret" not in f"{one!r} {one.name} {one.cache_key} {other.cache_key}"


def test_a_server_that_nobody_knows_is_a_provider_of_its_own():
    source = OpenAICompatibleSource(" http://LocalHost:8000/v1/ ")
    shown = "OpenAICompatibleSource('http://LocalHost:8000/v1', provider='localhost:8000')"
    assert (source.name, repr(source)) == ("localhost:8000", shown)


@pytest.mark.parametrize("unlisted", [[], [{"id": "unlisted", "max_prompt_length": 4096}]])
def test_all_lists_of_a_server_that_nobody_knows_complete_its_entries(unlisted):
    """Of each other too; the window of a model that it does not serve says nothing about those that it does."""
    lists = [{"id": "m", "owned_by": "xai"}], [{"id": "m", "price": 1}, *unlisted], [{"id": "m", "window": 2}]
    visit = Visit(*(httpx.Response(200, json={"data": entries}) for entries in lists))
    entries = OpenAICompatibleSource(BASE)._entries(visit.session, None)
    assert entries == [{"id": "m", "owned_by": "xai", "price": 1, "window": 2}]
    assert [url.removeprefix("http://maker.test") for url in visit.urls] == [
        *("/v1/models", "/v1/language-models", "/api/v0/models")
    ]


def test_what_is_posted_is_not_redirected():
    visit = Visit(moved("/elsewhere", 307), GOOD)
    with pytest.raises(SourceError, match="redirects"):
        visit.session.get("/show", method="POST", json={"model": "m"})


def test_a_key_that_is_no_header_is_a_typed_error():
    asking = connected(BASE, {"x-api-key": "s\u00e9cret"})
    with pytest.raises(SourceError, match="the key holds characters") as caught, asking:
        pass
    assert "cret" not in str(caught.value)


NO_URLS = ["localhost:8000", "", "file:///etc/passwd", "http://", "http://[", "http://host:99999"]
WITH_KEY = ["http://user:secret@host/v1", "http://host/v1?key=secret"]


@pytest.mark.parametrize(
    ("kind", "url", "said"),
    [
        *((OllamaSource, url, "give a URL") for url in NO_URLS),
        *((OllamaSource, url, "pass the key as api_key") for url in WITH_KEY),
        *((CatalogSource, url, "give (a|the path or the) URL") for url in ("http://[x", "http://", "")),
        (CatalogSource, "http://user:secret@example.com/api.json", "leave user, password"),
    ],
)
def test_an_address_that_is_none_is_refused(kind, url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        kind(url)
    assert "secret" not in str(caught.value)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=45)
KEYS = st.sampled_from(
    [
        *("id", "name", "models", "data", "limit", "cost", "modalities", "input", "output", "context", "tool_call"),
        *("context_length", "context_window", "pricing", "prompt", "top_provider", "meta", "n_ctx", "capabilities"),
        *("supported_parameters", "architecture", "input_modalities", "deprecation", "aliases", "litellm_provider"),
        *("max_tokens", "max_input_tokens", "max_output_tokens", "inputTokenLimit", "outputTokenLimit", "parameters"),
        *("model_info", "test.context_length", "tool_calling", "deprecation_date", "owned_by", "vision", "year"),
    ]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=6
)


@settings(max_examples=50)
@given(st.dictionaries(KEYS, JSON, max_size=8))
def test_no_entry_is_too_strange_to_read(entry):
    read = [
        read_entry("s", entry, "p"),
        *(read_entry("s", inner, None) for inner in entries_of(entry)),
        read_provider_row("s", "p", "m", entry),
        read_price_row("s", "m", entry),
        *(
            source._info({**entry, "_name": "m"}, None)
            for source in (GeminiSource(), AnthropicSource(), OllamaSource())
        ),
        ProfileSource()._info("m", entry, None),
    ]
    assert all(info is None or info.limits.source for info in read)


# Values


def per_token(value):
    return str(price(value, per=ONE_TOKEN))


def per_million(value):
    return str(price(value))


@pytest.mark.parametrize(
    ("read", "expected", "written"),
    [
        (tokens, 131_072, [131_072, 131_072.0, "131072", " 131,072 ", "131_072 tokens", "128Ki"]),
        (tokens, 128_000, ["128k", "128 K"]),
        (tokens, 1_048_576, ["1,048,576"]),
        (tokens, 1_500, ["1.5k"]),
        (tokens, 1_000_000, ["1M", "1e6"]),
        (tokens, MAX_TOKENS, [MAX_TOKENS]),
        (tokens, None, [0, -1, "0", "-5", 0.0, 0.5, "1.5", MAX_TOKENS + 1, "1e99", "9" * 5000, "1e7k", 10**5000]),
        (tokens, None, [None, True, False, "", "k", "unlimited", "1 2", "12kk", "1,5k", "1,23,456"]),
        (tokens, None, [float("nan"), float("inf"), -float("inf"), [], {}, [8192], b"8192", "\u0661\u0662"]),
        (per_token, "0.25", [2.5e-07, "0.00000025", "2.5e-7"]),
        (per_token, "0", [0]),
        (per_token, "None", ["-1", -0.5, None, True, "", "free", "$3", float("nan"), "NaN", "sNaN", "inf", []]),
        (per_token, "None", [10**30, "1e-99999999", "0e-99999999"]),
        (per_token, "None", [1.0]),  # a price per million that was read as one per token
        (per_million, "1.1", [1.1]),
        (per_million, "10", [10]),
        (per_million, "3", ["3.00"]),
        (per_million, "0.075", [Decimal("0.075")]),
        (per_million, "0.1111111111111111111111111111", [Decimal("0." + "1" * 50)]),  # more digits than a text may have
        (lambda value: str(price(value, per=10_000 * MILLION)), "3", [30_000]),
        (day, date(2026, 5, 31), ["2026-05-31", "2026-05-31T23:59:59Z", date(2026, 5, 31)]),
        (day, date(2026, 5, 31), [datetime(2026, 5, 31, 8, tzinfo=UTC)]),
        (day, date(2026, 5, 1), ["2026-5-1", "2026-05"]),
        (day, date(2026, 1, 1), [1_767_225_600, 1_767_225_600.5]),
        (day, None, ["2026-02-30", "2026-13", "31.5.2026", "", "soon", "9999-01-01"]),
        (day, None, [0, 1_767_225_600_000, 1e300, True, None, {}]),
        (provider_id, "google", ["google_genai", "Gemini"]),
        (provider_id, "google-vertex", ["vertex_ai-language-models"]),
        (provider_id, "google-vertex-anthropic", ["vertex_ai-anthropic_models"]),
        (provider_id, "amazon-bedrock", ["bedrock_converse"]),
        (provider_id, "azure", ["Azure OpenAI"]),
        (provider_id, "togetherai", ["together_ai"]),
        (provider_id, "xai", ["x-ai"]),
        (provider_id, "my-gateway", ["My Gateway"]),
        (provider_id, "", [""]),
    ],
)
def test_a_value_is_read_however_it_is_written_or_unknown(read, expected, written):
    assert [read(value) for value in written] == [expected] * len(written)


@given(st.text() | st.sampled_from(sorted({*SPELLINGS, *SPELLINGS.values()})))
def test_an_id_of_a_provider_is_its_own_id(text):
    assert provider_id(provider_id(text)) == provider_id(text)


@given(JSON)
def test_no_value_is_too_strange_to_read(value):
    read_tokens, read_price, read_day = tokens(value), price(value, per=ONE_TOKEN), day(value)
    assert read_tokens is None or 1 <= read_tokens <= MAX_TOKENS
    assert read_price is None or 0 <= read_price <= MAX_PRICE
    assert read_day is None or isinstance(read_day, date)


@given(st.integers(1, MAX_TOKENS))
def test_each_way_to_write_a_number_of_tokens_means_the_same(number):
    assert {tokens(number), tokens(str(number)), tokens(float(number)), tokens(f"{number:,}")} == {number}


@given(st.decimals(min_value="0.000001", max_value=1000, places=6))
def test_a_price_per_token_and_per_million_is_the_same_price(per_million):
    per_token = per_million / MILLION
    assert price(str(per_token), per=ONE_TOKEN) == price(float(per_million)) == per_million


# Catalogs


@pytest.fixture
def catalog(tmp_path):
    """Write a document and return the source that reads it."""

    def written(document, name="api.json"):
        path = tmp_path / name
        text = json.dumps(document).encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return CatalogSource(path)

    return written


def test_a_catalog_of_providers_is_read(catalog):
    assert catalog(CATALOG).fetch(None) == [
        info(
            "api.json",
            "test-pro",
            provider="maker",
            context_window=400_000,
            max_input_tokens=272_000,
            max_output_tokens=128_000,
            input_price=Decimal("1.25"),
            output_price=Decimal(10),
            cache_read_price=Decimal("0.125"),
            capabilities=frozenset({"text", "tools", "reasoning", "temperature", "images", "pdf"}),
            deprecated=True,
        ),
        info("api.json", "maker/test-pro", provider="gateway"),
    ]


def test_a_price_table_is_read(catalog):
    assert catalog(PRICE_TABLE).fetch(None) == [
        info(
            "api.json",
            "test-pro",
            provider="maker",
            context_window=128_000,
            max_output_tokens=4096,
            input_price=Decimal("0.25"),
            output_price=Decimal(2),
            cache_read_price=Decimal("0.025"),
            capabilities=frozenset({"text", "tools", "images"}),
            retires_on=date(2099, 5, 31),
        ),
        info("api.json", "test-old", provider="maker", context_window=32_000),
        info("api.json", "test-verse@1", provider="google-vertex-anthropic", context_window=200_000),
    ]


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"max_tokens": 4096, "max_output_tokens": 4096}, (None, 4096, set())),  # the oldest field is no window then
        ({"max_input_tokens": "128k", "max_output_tokens": "4e3"}, (128_000, 4000, set())),
        ({"max_input_tokens": 0, "max_output_tokens": None}, (None, None, set())),
        ({"max_input_tokens": -1, "max_output_tokens": "much"}, (None, None, set())),
        ({"max_input_tokens": 4096, "max_output_tokens": 8192}, (4096, None, set())),
        ({"max_input_tokens": float("nan"), "max_output_tokens": float("inf")}, (None, None, set())),
        # A set that lacks tools says that there are none; an empty one is unknown.
        ({"supports_vision": True}, (None, None, set())),
        ({"supports_function_calling": False}, (None, None, {"text"})),
    ],
)
def test_a_strange_row_states_what_can_be_believed(catalog, row, facts):
    """A gateway's model keeps the slash of its name."""
    [found] = catalog({"openrouter/maker/m": {"litellm_provider": "openrouter", **row}}).fetch(None)
    assert (found.context_window, found.max_output_tokens, found.capabilities) == facts
    assert (found.provider, found.name) == ("openrouter", "maker/m")


def test_rows_that_cannot_be_read_are_counted(catalog):
    document = {
        "maker": {"models": {"good": {}, "": {}, "bad": 7, "\x1b[31m": {}}},
        "m": {"litellm_provider": 3},
        "n": [],
    }
    with capture_logs() as logs:
        names = [found.name for found in catalog(document).fetch(None)]
    assert names == ["good"]
    assert [(log["event"], log["skipped"]) for log in logs] == [("models.catalog_rows_skipped", 5)]


def test_a_catalog_may_be_packed_and_is_read_anew_after_it_was_replaced(catalog):
    source = catalog(CATALOG, "api.json.gz")
    assert len(source.fetch(None)) == 2
    catalog({"maker": {"models": {"new": {}}}}, "api.json.gz")
    assert [found.name for found in source.fetch(None)] == ["new"]


@pytest.mark.parametrize("name", ["test-pro", "maker/test-pro"])
def test_one_model_is_found_with_its_provider_or_without(catalog, name):
    providers = [found.provider for found in catalog(CATALOG).fetch(name)]
    assert providers == (["maker"] if name == "test-pro" else ["maker", "gateway"])


PACKED = gzip.compress(b"{}" + b" " * 1_000_000, mtime=0)  # JSON, when it is read to its end
NO_JSON = [b"", b"<html>", b"[" * 50_000, b"\x1f\x8bbroken", gzip.compress(b"{}", mtime=0)[:-4], PACKED]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((content, "is no JSON of at most 100,000 bytes") for content in NO_JSON),
        *((content, "has no models") for content in (b"[]", b'{"models": {"m": 1}}')),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_catalog_is_a_typed_error(tmp_path, monkeypatch, content, reason):
    """Nor is one that unpacks without end read to it."""
    monkeypatch.setattr("langchain_ctxwin.models.sources.catalog.MAX_BYTES", 100_000)
    path = tmp_path / "api.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"api\.json {reason}"):
        CatalogSource(path).fetch(None)


def test_a_catalog_is_called_and_stored_after_its_place(tmp_path):
    """Neither a name nor a cache key holds what follows the path of a URL; a file is read as fast as a copy."""
    source = CatalogSource(" HTTPS://example.com/api.json?token=secret")
    assert (source.name, repr(source)) == ("example.com", "CatalogSource('https://example.com/api.json')")
    assert source.cache_key.startswith("catalog https://example.com/api.json ")
    assert "secret" not in source.cache_key
    plans = [CatalogSource(f"https://example.com/api.json{query}").cache_key for query in ("?plan=a", "?plan=b", "")]
    assert len(set(plans)) == 3
    assert CatalogSource(tmp_path / "catalog.json").cache_key == ""


# What the user states


BLEND = {
    "provider": "google_genai",
    "context_window": "128k",
    "max_output_tokens": 1e3,
    "input_price": 0.1,
    "output_price": "0.40",
    "capabilities": ["tools", "images"],
    "aliases": ("big",),
    "tokenizer_family": "gemini",
    "deprecated": True,
    "retires_on": "2099-05-31",
    "cache_read_price": None,
}
READ = {
    "provider": "google",
    "context_window": 128_000,
    "max_output_tokens": 1000,
    "input_price": Decimal("0.1"),
    "output_price": Decimal("0.4"),
    "capabilities": frozenset({"tools", "images"}),
    "retires_on": date(2099, 5, 31),
}
LIMITS = {"context_window": 8192, "max_input_tokens": 6000, "max_output_tokens": 2000}


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        (8192, {"context_window": 8192}),
        *((nothing, {}) for nothing in (None, {}, {"context_window": None})),
        (ModelInfo(name="small", provider="maker", provenance={"provider": "elsewhere"}), {"provider": "maker"}),
        (ModelInfo(name="nova-1", aliases=("nova",)), {"aliases": ("nova-1", "nova")}),
        (ModelLimits(8192, 6000, 2000, 1000), LIMITS),  # without what a request asks for
        (BLEND, {name: READ.get(name, value) for name, value in BLEND.items() if value is not None}),
    ],
)
def test_what_is_said_about_a_name_holds_under_it(said, facts):
    """Fields are read in the ways people write them."""
    assert ExplicitSource({"small": said}).fetch("small") == [info("explicit", "small", **facts)]


def test_a_model_is_found_by_its_name_or_an_alias():
    source = ExplicitSource({"small": 8192, "large": {"context_window": 200_000, "aliases": ["big"]}})
    assert [one.name for one in source.fetch("big")] == ["large"]
    assert [one.name for one in source.fetch(None)] == ["small", "large"]
    assert source.fetch("unknown") == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"small": 0}, "small: context_window=0: give a whole number of tokens from 1 to 1,000,000,000, or None"),
        ({"small": -5}, "context_window=-5"),
        ({"small": True}, "context_window=True"),
        ({"small": "large"}, "context_window='large'"),
        ({"small": [8192]}, r"context_window=\[8192\]"),
        ({"small": {"max_input_tokens": "x"}}, "small: max_input_tokens='x'"),
        ({"small": {"input_price": -1}}, "small: input_price=-1: give USD per million tokens, from 0 to 10,000"),
        ({"small": {"retires_on": "soon"}}, "retires_on='soon': give a date, or its text as year-month-day"),
        ({"small": {"capabilities": "tools"}}, "capabilities='tools': give a list of words"),
        ({"small": {"deprecated": "no"}}, "deprecated='no': give True or False"),
        ({"small": {"window": 8192}}, "small: unknown field window: give some of name, provider, context_window"),
        ({"small": {"context_window": 10, "max_output_tokens": 20}}, "small: max_output_tokens=20 is more than"),
        ({"": 8192}, "model '': give the model's name"),
        ({7: 8192}, "model 7: give the model's name"),
        ([("small", 8192)], "give a mapping of model names"),
    ],
)
def test_a_mistake_is_reported_when_the_source_is_made(facts, said):
    with pytest.raises(ConfigError, match=said):
        ExplicitSource(facts)


# Profiles


PROFILE = {
    "max_input_tokens": 128_000,
    "max_output_tokens": 16_000,
    "text_inputs": True,
    "tool_calling": True,
    "image_inputs": True,
    "structured_output": False,
    "status": "deprecated",
}

EXPECTED = {
    "context_window": 128_000,
    "max_output_tokens": 16_000,
    "capabilities": frozenset({"text", "tools", "images"}),
    "deprecated": True,
}


def gemini(profile):
    return ChatGoogleGenerativeAI(model="models/test-pro", google_api_key="x", profile=profile)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install an integration with the given table, and no other."""

    def installation(table, package="langchain_maker"):
        folder = tmp_path / package / "data"
        folder.mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise AssertionError('imported')")
        (folder / "_profiles.py").write_text(table)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        return ProfileSource()

    return installation


def test_the_profile_of_a_given_model_is_read():
    bare = [FakeListChatModel(responses=["x"], profile=profile) for profile in ({}, None)]
    source = ProfileSource([gemini(PROFILE).bind_tools([]), *bare], installed=False)
    assert source.fetch(None) == [info("profile", "test-pro", provider="google", **EXPECTED)]
    assert source.fetch("unknown") == []


def test_the_table_of_an_integration_is_read_without_importing_it(installed):
    source = installed(
        f"from typing import Any\n\n_PROFILES: dict[str, Any] = {{'test-pro': {PROFILE!r}, 'empty': {{}}}}"
    )
    assert source.fetch(None) == [info("profile", "test-pro", provider="maker", **EXPECTED)]


def test_a_given_model_comes_before_the_tables(installed):
    installed(f"_PROFILES = {{'test-pro': {PROFILE!r}}}", "langchain_google_genai_copy")
    installed(f"_PROFILES = {{'test-pro': {PROFILE!r}, 'other': {PROFILE!r}}}", "langchain_gemini")
    source = ProfileSource([gemini({"max_input_tokens": 1})])
    found = {(one.provider, one.name): one.context_window for one in source.fetch(None)}
    assert found == {
        ("google", "test-pro"): 1,
        ("google", "other"): 128_000,
        ("google-genai-copy", "test-pro"): 128_000,
    }


@pytest.mark.parametrize(
    "table",
    [
        "",
        "def broken(:",
        "_PROFILES = load()",
        "_PROFILES = [1]",
        "_PROFILES = {'a': 1, 7: {}, 'b': {'tool_calling': 1}}",
    ],
)
def test_a_table_that_moved_or_changed_is_no_error(installed, table):
    assert [one.limits.known for one in installed(table).fetch(None)] in ([], [False])


def test_the_tables_of_real_integrations_are_read():
    providers = {one.provider for one in ProfileSource().fetch(None)}
    assert providers >= {"google", "openai", "anthropic"}
