"""Is an endpoint asked patiently but in bounded time, and does a key never leave its host?"""

import gzip

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.sources import http
from langchain_ctxwin.models.sources.anthropic import AnthropicSource
from langchain_ctxwin.models.sources.catalog import read_price_row, read_provider_row
from langchain_ctxwin.models.sources.gemini import GeminiSource
from langchain_ctxwin.models.sources.http import Session, SourceError, base_of, connected
from langchain_ctxwin.models.sources.ollama import OllamaSource
from langchain_ctxwin.models.sources.openai_compatible import OpenAICompatibleSource, entries_of, read_entry
from langchain_ctxwin.models.sources.platforms import ANTHROPIC
from langchain_ctxwin.models.sources.profile import ProfileSource

BASE = "http://maker.test/v1"


class Visit:
    """A session with a server that answers as told, on a clock that only waiting moves."""

    def __init__(self, *answers, seconds=8.0):
        self.answers = list(answers)
        self.urls: list[str] = []
        self.waits: list[float] = []
        self.now = 0.0
        client = httpx.Client(transport=httpx.MockTransport(self._answer), headers={"x-api-key": "secret"})
        self.session = Session(
            client, BASE, deadline=seconds, clock=lambda: self.now, sleep=self._sleep, chance=lambda: 0.5
        )

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


def test_waits_grow_between_attempts():
    visit = Visit(httpx.Response(503), httpx.ConnectError("secret"), GOOD)
    assert visit.session.get("/models") == {"ok": 1}
    assert visit.waits == [0.25, 0.5]


def test_three_attempts_are_enough():
    visit = Visit(httpx.Response(503))
    with pytest.raises(SourceError, match=r"^http://maker\.test/v1/models answered HTTP 503$") as caught:
        visit.session.get("/models")
    assert (len(visit.urls), caught.value.status) == (3, 503)


@pytest.mark.parametrize(("asked", "waits"), [("3", [3.0]), ("0", [0.25]), ("Thu, 01 Jan 1970 00:00:00 GMT", [0.25])])
def test_a_wait_that_the_server_asks_for_is_kept(asked, waits):
    visit = Visit(busy(asked), GOOD)
    assert visit.session.get() == {"ok": 1}
    assert visit.waits == waits


@pytest.mark.parametrize("asked", ["8", "3600", "Fri, 31 Dec 2199 00:00:00 GMT"])
def test_a_wait_beyond_the_time_is_not_begun(asked):
    visit = Visit(busy(asked), GOOD)
    with pytest.raises(SourceError, match="answered HTTP 429"):
        visit.session.get()
    assert visit.waits == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
def test_a_plain_refusal_is_not_repeated(status):
    visit = Visit(httpx.Response(status))
    with pytest.raises(SourceError, match=f"answered HTTP {status}"):
        visit.session.get()
    assert len(visit.urls) == 1


@pytest.mark.parametrize("location", ["/v2/models", "http://maker.test/v2/models", "https://maker.test/v2/models"])
def test_a_redirect_to_the_same_host_is_followed(location):
    visit = Visit(moved(location), GOOD)
    assert visit.session.get("/models") == {"ok": 1}
    assert visit.urls[-1].endswith("maker.test/v2/models")


@pytest.mark.parametrize(
    "location",
    [
        "http://other.test/",
        "//other.test/",
        "http://maker.test:8080/",
        "http://maker.test.other.test/",
        "ftp://maker.test/",
    ],
)
def test_a_redirect_to_another_host_is_not_followed(location):
    visit = Visit(moved(location), GOOD)
    with pytest.raises(SourceError, match="redirects to another host"):
        visit.session.get()
    assert len(visit.urls) == 1


def packed(content, encoding="gzip"):
    return httpx.Response(200, headers={"content-encoding": encoding}, stream=httpx.ByteStream(content))


def test_a_packed_answer_is_unpacked():
    assert Visit(packed(gzip.compress(b'{"ok": 1}'))).session.get() == {"ok": 1}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            packed(gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "gzip, gzip"),
            "packed in a way that was not asked for",
        ),
        (packed(b"{}", "br"), "packed in a way that was not asked for"),
        (packed(b"{}"), "something else than the gzip it announced"),
        (packed(gzip.compress(b'{"ok": 1}', mtime=0)[:-9]), "did not finish its answer"),
        (packed(gzip.compress(b"0" * 2000, mtime=0)), "answered more than 1,000 bytes"),
    ],
)
def test_a_packed_answer_that_cannot_be_believed_is_a_typed_error(answer, said, monkeypatch):
    """It is never unpacked beyond the limit."""
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
    """To the provider over TLS, or to the server that the client's own variable names."""
    assert ANTHROPIC.key_for(url, {"ANTHROPIC_API_KEY": "k", **environment}) == key


@pytest.mark.parametrize("kind", [AnthropicSource, GeminiSource, OpenAICompatibleSource])
def test_what_two_accounts_list_is_stored_apart(kind):
    """The key itself stands nowhere."""
    keys = [kind("https://maker.test/v1", key).cache_key for key in ("secret-a", "secret-b")]
    assert keys[0] != keys[1]
    assert "secret" not in "".join(keys)


def test_a_server_that_nobody_knows_is_a_provider_of_its_own():
    """The same name may have other limits elsewhere."""
    assert OpenAICompatibleSource("http://LocalHost:8000/v1")._provider == "localhost:8000"


def test_what_is_posted_is_not_redirected():
    visit = Visit(moved("/elsewhere", 307), GOOD)
    with pytest.raises(SourceError, match="redirects"):
        visit.session.post("/show", {"model": "m"})


def test_a_session_does_not_move_to_another_host():
    with pytest.raises(SourceError, match="is not on the host of"):
        Visit(GOOD).session.at("http://other.test/")


def test_no_error_text_holds_a_key():
    """Not even that of an error which quotes it."""
    visit = Visit(httpx.LocalProtocolError("Illegal header value b'secret'"))
    with pytest.raises(SourceError) as caught:
        visit.session.get()
    assert str(caught.value) == f"{BASE} cannot be reached: LocalProtocolError"


def test_a_key_that_is_no_header_is_a_typed_error():
    asking = connected(BASE, {"x-api-key": "s\u00e9cret"})
    with pytest.raises(SourceError, match="the key holds characters") as caught, asking:
        pass
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8000", "give a URL"),
        ("", "give a URL"),
        ("file:///etc/passwd", "give a URL"),
        ("http://", "give a URL"),
        ("http://[", "give a URL"),
        ("http://host:99999", "give a URL"),
        ("http://user:secret@host/v1", "pass the key as api_key"),
        ("http://host/v1?key=secret", "pass the key as api_key"),
    ],
)
def test_an_address_that_is_none_is_refused(url, said):
    """The text never shows what may be a secret."""
    with pytest.raises(ConfigError, match=said) as caught:
        base_of(url)
    assert "secret" not in str(caught.value)


def test_an_address_loses_its_last_slash():
    assert base_of(" http://localhost:8000/v1/ ") == "http://localhost:8000/v1"


SCALARS = st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.text(max_size=5)
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
    """Whatever a server sends in the fields that are read, it is a statement or nothing."""
    read = [
        read_entry("s", entry, "p"),
        *(read_entry("s", inner, None) for inner in entries_of(entry)),
        read_provider_row("s", "p", "m", entry),
        read_price_row("s", "m", entry),
        *GeminiSource()._read([entry]),
        *AnthropicSource()._read([entry]),
        OllamaSource()._info("m", entry, None),
        ProfileSource()._info("m", entry, None),
    ]
    assert all(info is None or info.limits.source for info in read)
