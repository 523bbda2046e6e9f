"""Do the sources read what providers serve, over real HTTP, and survive what broken servers do?"""

from decimal import Decimal

import pytest

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.models import apis
from langchain_ctxwin.models.sources import (
    AnthropicSource,
    GeminiSource,
    OllamaSource,
    OpenAICompatibleSource,
    SourceError,
)
from support.model_fleet import ModelFleet
from support.model_sources import VARIABLES

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

KEY = "secret-key"


@pytest.fixture(scope="module")
def shared_fleet():
    with ModelFleet() as fleet:
        yield fleet


@pytest.fixture
def fleet(shared_fleet, monkeypatch):
    """The fleet without what was asked before, and no keys from outside."""
    shared_fleet.asked.clear()
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return shared_fleet


def test_gemini_states_separate_limits_over_all_pages(fleet):
    assert GeminiSource(fleet.url + "/gemini", KEY).fetch(None) == [
        info(
            "test-pro",
            provider="google",
            context_window=1_064_000,
            max_input_tokens=1_000_000,
            max_output_tokens=64_000,
        ),
        info("test-light", provider="google", max_input_tokens=32_000),
    ]


def test_anthropic_states_the_window_and_capabilities_over_all_pages(fleet):
    assert AnthropicSource(fleet.url + "/anthropic", KEY).fetch(None) == [
        info(
            "test-verse-20990101",
            provider="anthropic",
            context_window=200_000,
            max_output_tokens=64_000,
        ),
        info("test-haiku", provider="anthropic"),
    ]
    assert fleet.headers_of("/anthropic/v1/models")["x-api-key"] == KEY


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
def test_each_openai_compatible_shape_is_read(fleet, path, expected):
    assert (
        OpenAICompatibleSource(fleet.url + path, KEY, provider="p").fetch(None)
        == expected
    )


@pytest.mark.parametrize(
    ("kind", "path", "variable", "asked", "header"),
    [
        (
            AnthropicSource,
            "/anthropic",
            "ANTHROPIC",
            "/anthropic/v1/models",
            ("x-api-key", KEY),
        ),
        (
            GeminiSource,
            "/gemini",
            "GOOGLE",
            "/gemini/v1beta/models",
            ("x-goog-api-key", KEY),
        ),
        (
            OpenAICompatibleSource,
            "/vllm/v1",
            "OPENAI",
            "/vllm/v1/models",
            ("authorization", f"Bearer {KEY}"),
        ),
    ],
)
def test_a_key_from_the_environment_goes_to_no_unknown_host(
    fleet, monkeypatch, kind, path, variable, asked, header
):
    """Unless it is an argument; it stands in no URL."""
    monkeypatch.setenv(f"{variable}_API_KEY", KEY)
    kind(fleet.url + path).fetch(None)
    assert fleet.asked
    assert not any(KEY in str(call.headers) for call in fleet.asked)
    fleet.asked.clear()
    kind(fleet.url + path, KEY).fetch(None)
    assert fleet.headers_of(asked)[header[0]] == header[1]
    assert not any(KEY in str((call.path, call.query)) for call in fleet.asked)


def test_ollama_states_the_window_it_runs_with(fleet):
    """The model's own parameter counts, else the window it is loaded with; not what it was trained for."""
    can = frozenset({"text", "structured_output"})
    wide = info(
        "test-home:wide", provider="ollama", context_window=16_384, capabilities=can
    )
    assert OllamaSource(fleet.url + "/ollama").fetch(None) == [
        info(
            "test-home:latest",
            provider="ollama",
            context_window=8192,
            capabilities=can | {"tools", "images"},
            aliases=("test-home",),
        ),
        wide,
    ]
    assert OllamaSource(fleet.url + "/ollama").fetch(wide.name) == [wide]


def test_a_server_that_hangs_is_a_typed_error(fleet, monkeypatch):
    """The text says what is wrong in the words of this package, and quotes neither the key nor the answer."""
    monkeypatch.setattr(apis, "TIMEOUT_SECONDS", 0.5)
    url = f"{fleet.url}/hang/v1"
    with pytest.raises(SourceError) as caught:
        OpenAICompatibleSource(url, KEY).fetch(None)
    assert str(caught.value).startswith(f"{url}/models cannot be reached: ReadTimeout")


def test_a_listing_that_repeats_its_cursor_ends(fleet):
    GeminiSource(fleet.url + "/endless").fetch(None)
    assert [call.path for call in fleet.asked] == ["/endless/v1beta/models"] * 2


def test_a_real_llama_cpp_server_states_the_window_it_was_started_with(start_llama):
    server = start_llama(n_ctx=1024)
    [found] = OpenAICompatibleSource(server.url).fetch(None)
    assert found.context_window == 1024
