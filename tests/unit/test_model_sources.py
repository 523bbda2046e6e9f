"""Sources state what others wrote, read as what it means: from files, profiles, the user, and servers' entries."""

import json
from datetime import date
from decimal import Decimal
from functools import partial

import httpx
import pytest

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.apis import (
    ONE_TOKEN,
    day,
    price,
    provider_id,
    tokens,
)
from langchain_ctxwin.models.sources import (
    AnthropicSource,
    CatalogSource,
    ExplicitSource,
    GeminiSource,
    OllamaSource,
    OpenAICompatibleSource,
    SourceError,
)
from support.model_lists import ANSWERS, URL

# Values

per_token = partial(price, per=ONE_TOKEN)


@pytest.mark.parametrize(
    ("read", "expected", "written"),
    [
        (tokens, 131_072, [131_072, 131_072.0, "131072", " 131072 "]),
        (tokens, None, [0, "0", 0.5, 10**9 + 1, None, True, "unlimited", [], {}]),
        (
            per_token,
            Decimal("0.25"),
            [2.5e-07, "0.00000025", "2.5e-7"],
        ),
        (
            per_token,
            None,
            ["-1", None, True, "free", "NaN", [], 1.0],
        ),
        (lambda value: str(price(value)), "10", [10, "10.00", Decimal("1E+1")]),
        (day, date(2026, 5, 31), ["2026-05-31", "2026-05-31T23:59:59Z"]),
        (day, None, ["2026-02-30", "31.5.2026", "", "soon", 0, None, {}]),
        (provider_id, "google", ["google_genai", "Gemini"]),
        (provider_id, "google-vertex", ["vertex_ai-language-models"]),
        (provider_id, "google-vertex-anthropic", ["vertex_ai-anthropic_models"]),
        (provider_id, "amazon-bedrock", ["bedrock_converse"]),
        (provider_id, "azure", ["Azure OpenAI"]),
        (provider_id, "my-gateway", ["My Gateway"]),
    ],
)
def test_a_value_is_read_however_it_is_written_or_unknown(read, expected, written):
    assert [read(value) for value in written] == [expected] * len(written)


# Catalogs


@pytest.fixture
def catalog(tmp_path):
    """Write a document and return the source that reads it."""

    def written(document):
        path = tmp_path / "api.json"
        path.write_text(json.dumps(document))
        return CatalogSource(path)

    return written


def test_a_catalog_of_providers_is_read(catalog):
    assert catalog(ANSWERS["a catalog by provider"]).fetch(None) == [
        ModelInfo(
            name="test-pro",
            provider="maker",
            context_window=400_000,
            max_input_tokens=272_000,
            max_output_tokens=128_000,
            input_price=Decimal("1.25"),
            output_price=Decimal(10),
            cache_read_price=Decimal("0.125"),
            capabilities=frozenset(
                {"text", "tools", "reasoning", "temperature", "images", "pdf"}
            ),
            deprecated=True,
        ),
        ModelInfo(name="maker/test-pro", provider="gateway"),
    ]


def test_a_price_table_is_read(catalog):
    assert catalog(ANSWERS["a table of prices"]).fetch(None) == [
        ModelInfo(
            name="test-pro",
            provider="maker",
            context_window=128_000,
            max_output_tokens=4096,
            input_price=Decimal("0.25"),
            output_price=Decimal(2),
            cache_read_price=Decimal("0.025"),
            capabilities=frozenset({"text", "tools", "images"}),
            retires_on=date(2099, 5, 31),
        ),
        ModelInfo(name="test-old", provider="maker", context_window=32_000),
        ModelInfo(
            name="test-verse@1",
            provider="google-vertex-anthropic",
            context_window=200_000,
        ),
    ]


def test_rows_that_cannot_be_read_are_passed_over(catalog):
    document = {
        "maker": {"models": {"good": {}, "": {}, "bad": 7}},
        "m": {"litellm_provider": 3},
        "n": [],
    }
    assert [found.name for found in catalog(document).fetch(None)] == ["good"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((content, "cannot be read: no JSON") for content in (b"", b"\x1f\x8bbroken")),
        *((content, "has no models") for content in (b"[]", b'{"models": {"m": 1}}')),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_catalog_is_a_typed_error(tmp_path, content, reason):
    path = tmp_path / "api.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=rf"api\.json {reason}"):
        CatalogSource(path).fetch(None)


def test_a_catalog_is_called_after_its_place():
    source = CatalogSource(" HTTPS://example.com/api.json?token=secret")
    assert source.name == "example.com"
    with pytest.raises(ConfigError, match="pass the path or the URL"):
        CatalogSource(None)


# What the user states


BLEND = {
    "provider": "google_genai",
    "context_window": "128000",
    "input_price": 0.1,
    "capabilities": ["tools", "images"],
    "aliases": ("big",),
    "deprecated": True,
    "retires_on": "2099-05-31",
    "cache_read_price": None,
}
READ = {
    "provider": "google",
    "context_window": 128_000,
    "input_price": Decimal("0.1"),
    "capabilities": frozenset({"tools", "images"}),
    "retires_on": date(2099, 5, 31),
}


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        (8192, {"context_window": 8192}),
        *((nothing, {}) for nothing in (None, {}, {"context_window": None})),
        (ModelInfo(name="small", provider="maker"), {"provider": "maker"}),
        (ModelInfo(name="nova-1", aliases=("nova",)), {"aliases": ("nova",)}),
        (
            BLEND,
            {
                name: READ.get(name, value)
                for name, value in BLEND.items()
                if value is not None
            },
        ),
    ],
)
def test_what_is_said_about_a_name_holds_under_it(said, facts):
    source = ExplicitSource({"small": said, "large": {"aliases": ["huge"]}})
    assert source.fetch("small") == [ModelInfo(name="small", **facts)]
    assert [one.name for one in source.fetch("huge")] == ["large"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"small": "large"}, "small: context_window='large'"),
        ({"small": {"input_price": -1}}, "small: input_price="),
        (
            {"small": {"window": 8192}},
            "small: unknown field window: give some of provider, context_window",
        ),
        ({"": 8192}, "pass the model's name"),
        ([("small", 8192)], "a mapping of model names"),
    ],
)
def test_a_mistake_is_reported_when_the_source_is_made(facts, said):
    with pytest.raises(ConfigError, match=said):
        ExplicitSource(facts)


# Servers


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((url, "give a URL") for url in ("localhost:8000", "file:///etc/passwd")),
        *(
            (url, "pass the key as api_key")
            for url in ("http://user:secret@host/v1", "http://host/v1?key=secret")
        ),
    ],
)
def test_an_address_that_is_none_is_refused(url, said):
    with pytest.raises(ConfigError, match=said) as caught:
        OllamaSource(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(503), r"^http://maker\.test/v1/models answered HTTP 503$"),
        (
            httpx.Response(302, headers={"location": "http://other.test/"}),
            "answered HTTP 302",
        ),
        (httpx.ConnectError("secret"), "cannot be reached: ConnectError$"),
        (httpx.Response(200, text="<html>"), "answered no JSON"),
    ],
)
def test_what_cannot_be_read_is_a_typed_error_without_a_key(answer, said, monkeypatch):
    """A redirect would take the key along."""

    def handle(transport, request):
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    with pytest.raises(SourceError, match=said) as caught:
        OpenAICompatibleSource("http://maker.test/v1", "secret").fetch(None)
    assert "secret" not in str(caught.value)


def test_the_password_of_a_catalog_stays_out_of_its_error(monkeypatch):
    none = httpx.Response(404)
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda *_: none)
    with pytest.raises(SourceError, match=r"^http://maker\.test/api\.json answered"):
        CatalogSource("http://user:secret@maker.test/api.json").fetch(None)


def test_a_key_that_is_no_header_is_a_typed_error():
    with pytest.raises(SourceError, match="the key holds"):
        AnthropicSource(api_key="s\u00e9cret").fetch(None)


# What providers serve

KEY = "secret-key"


def test_gemini_states_separate_limits_over_all_pages(asked):
    assert GeminiSource(URL + "/gemini", KEY).fetch(None) == [
        info(
            "test-pro",
            provider="google",
            context_window=1_064_000,
            max_input_tokens=1_000_000,
            max_output_tokens=64_000,
        ),
        info("test-light", provider="google", max_input_tokens=32_000),
    ]


def test_anthropic_states_the_window_and_capabilities_over_all_pages(asked):
    assert AnthropicSource(URL + "/anthropic", KEY).fetch(None) == [
        info(
            "test-verse-20990101",
            provider="anthropic",
            context_window=200_000,
            max_output_tokens=64_000,
        ),
        info("test-haiku", provider="anthropic"),
    ]


def info(name, **facts):
    return ModelInfo(name=name, **facts)


def served(name, window=None, prices=(), **facts):
    """What a server that is called p states: prices of input, output and cached input."""
    names = ("input_price", "output_price", "cache_read_price")
    facts |= {
        field: Decimal(price) for field, price in zip(names, prices, strict=False)
    }
    facts |= {"context_window": window} if window else {}
    return info(name, provider="p", **facts)


OPENAI_SHAPES = {
    "/openai/v1": [served("test-plain")],
    "/openrouter/api/v1": [
        served(
            "maker/test-routed",
            96_000,
            ("0.25", "2", "0.025"),
            max_output_tokens=16_000,
        ),
        served("house/auto", 2_000_000),
    ],
    "/mistral/v1": [
        served(
            "test-wind-latest",
            131_072,
        )
    ],
    "/groq/openai/v1": [served("maker/test-fast", 131_072, max_output_tokens=32_768)],
    "/vllm/v1": [served("maker/test-8b", 16_384)],
    "/llamacpp/v1": [served("/models/tiny.gguf", 8192)],
    "/lmstudio/v1": [served("test-desk", 4096)],
    "/together/v1": [served("maker/test-joint", 131_072)],
    "/cohere/v1": [served("test-reply", 256_000)],
}


@pytest.mark.parametrize(("path", "expected"), OPENAI_SHAPES.items())
def test_each_openai_compatible_shape_is_read(asked, path, expected):
    assert OpenAICompatibleSource(URL + path, KEY, provider="p").fetch(None) == expected


@pytest.mark.parametrize(
    ("kind", "path", "variable", "header", "value"),
    [
        (AnthropicSource, "/anthropic", "ANTHROPIC", "x-api-key", KEY),
        (GeminiSource, "/gemini", "GOOGLE", "x-goog-api-key", KEY),
        (
            OpenAICompatibleSource,
            "/vllm/v1",
            "OPENAI",
            "authorization",
            f"Bearer {KEY}",
        ),
    ],
)
def test_a_key_from_the_environment_goes_to_no_unknown_host(
    asked, monkeypatch, kind, path, variable, header, value
):
    """Unless it is an argument; it stands in no URL, and no answer is waited for longer than ten seconds."""
    monkeypatch.setenv(f"{variable}_API_KEY", KEY)
    kind(URL + path).fetch(None)
    assert asked
    assert not any(KEY in str(request.headers.raw) for request in asked)
    asked.clear()
    kind(URL + path, KEY).fetch(None)
    for request in asked:
        assert request.headers[header] == value
        assert KEY not in str(request.url)
        assert max(request.extensions["timeout"].values()) < 10


def test_ollama_states_the_window_it_runs_with(asked):
    """The model's own parameter counts, else the window it is loaded with; not what it was trained for."""
    can = frozenset({"text", "structured_output"})
    wide = info(
        "test-home:wide",
        provider="ollama",
        context_window=16_384,
        capabilities=can,
    )
    assert OllamaSource(URL + "/ollama").fetch(None) == [
        info(
            "test-home:latest",
            provider="ollama",
            context_window=8192,
            capabilities=can | {"tools", "images"},
            aliases=("test-home",),
        ),
        wide,
    ]
    assert OllamaSource(URL + "/ollama").fetch(wide.name) == [wide]


def test_a_listing_that_repeats_its_cursor_ends(asked):
    GeminiSource(URL + "/endless").fetch(None)
    assert [one.url.path for one in asked] == ["/endless/v1beta/models"] * 2
