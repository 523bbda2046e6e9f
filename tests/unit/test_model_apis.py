"""Do the sources read what providers serve, and does a key go to its provider alone?"""

from decimal import Decimal

import pytest

from langchain_ctxwin import ModelInfo
from langchain_ctxwin.models.sources import (
    AnthropicSource,
    GeminiSource,
    OllamaSource,
    OpenAICompatibleSource,
)
from support.model_fleet import URL

pytestmark = pytest.mark.usefixtures("asked")

KEY = "secret-key"


def test_gemini_states_separate_limits_over_all_pages():
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


def test_anthropic_states_the_window_and_capabilities_over_all_pages():
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
def test_each_openai_compatible_shape_is_read(path, expected):
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


def test_ollama_states_the_window_it_runs_with():
    """The model's own parameter counts, else the window it is loaded with; not what it was trained for."""
    can = frozenset({"text", "structured_output"})
    wide = info(
        "test-home:wide", provider="ollama", context_window=16_384, capabilities=can
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
