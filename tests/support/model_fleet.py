"""Lists of models in the shapes that many providers document, each under a path of its own; all names are made up."""

import json

import httpx

from langchain_ctxwin.models.sources import AnthropicSource, GeminiSource

URL = "http://fleet.test"
# everything in an environment that brings a key
VARIABLES = (*GeminiSource.variables, *AnthropicSource.variables)


def listed(**entry):
    """A list of one entry in OpenAI's shape."""
    return {"object": "list", "data": [{"object": "model", **entry}]}


GEMINI = {
    "models": [
        {
            "name": "models/test-pro",
            "inputTokenLimit": 1000000,
            "outputTokenLimit": 64000,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        },
        {
            "name": "models/test-vectors",
            "inputTokenLimit": 2048,
            "outputTokenLimit": 1,
            "supportedGenerationMethods": ["embedContent"],
        },
    ],
    "nextPageToken": "second",
}
GEMINI_SECOND = {
    "models": [
        {
            "name": "models/test-light",
            "inputTokenLimit": 32000,
            "supportedGenerationMethods": ["generateContent"],
        }
    ]
}
VERSE, HAIKU = "test-verse-20990101", "test-haiku"
ANTHROPIC = {
    "data": [{"id": VERSE, "max_input_tokens": 200000, "max_tokens": 64000}],
    "has_more": True,
    "last_id": VERSE,
}
ANTHROPIC_SECOND = {
    "data": [{"id": HAIKU, "max_input_tokens": None, "max_tokens": None}],
    "has_more": False,
    "last_id": HAIKU,
}
OPENROUTER = {
    "data": [
        {
            "id": "maker/test-routed",
            "context_length": 128000,
            "pricing": {
                "prompt": "0.00000025",
                "completion": "0.000002",
                "input_cache_read": "0.000000025",
            },
            "top_provider": {
                "context_length": 96000,
                "max_completion_tokens": 16000,
            },
        },
        {
            "id": "house/auto",
            "context_length": 2000000,
            "pricing": {"prompt": "-1", "completion": "-1"},
            "top_provider": {"context_length": None, "max_completion_tokens": None},
        },
    ]
}
LLAMA_CPP = {
    "models": [{"name": "/models/tiny.gguf", "capabilities": ["completion"]}],
    **listed(id="/models/tiny.gguf", meta={"n_ctx": 8192, "n_ctx_train": 131072}),
}
COHERE = {
    "models": [
        {"name": "test-reply", "endpoints": ["chat"], "context_length": 256000.0}
    ]
}
OLLAMA_TAGS = {
    "models": [
        {"name": "test-home:latest", "model": "test-home:latest"},
        {"name": "test-home:wide"},
    ]
}
OLLAMA_SHOW = {
    "test-home:latest": {
        "parameters": 'stop                           "<|end|>"\nnum_ctx                        8192',
        "model_info": {
            "general.architecture": "test",
            "test.context_length": 131072,
            "test.vision.context_length": 9,
        },
        "capabilities": ["completion", "tools", "vision"],
    },
    "test-home:wide": {
        "parameters": "temperature 0.7",
        "model_info": {"general.architecture": "test", "test.context_length": 131072},
        "capabilities": ["completion"],
    },
}
OLLAMA_LOADED = {
    "models": [
        {"name": "test-home:wide", "model": "test-home:wide", "context_length": 16384}
    ]
}
LISTS = {
    "/openai/v1/models": listed(id="test-plain"),
    "/openrouter/api/v1/models": OPENROUTER,
    "/mistral/v1/models": listed(id="test-wind-latest", max_context_length=131072),
    "/groq/openai/v1/models": listed(
        id="maker/test-fast", context_window=131072, max_completion_tokens=32768
    ),
    "/vllm/v1/models": listed(id="maker/test-8b", max_model_len=16384),
    "/llamacpp/v1/models": LLAMA_CPP,
    "/lmstudio/v1/models": listed(id="test-desk"),
    "/lmstudio/api/v0/models": listed(
        id="test-desk", max_context_length=131072, loaded_context_length=4096
    ),
    "/together/v1/models": listed(id="maker/test-joint", context_length="131072")[
        "data"
    ],
    "/cohere/v1/models": COHERE,
    "/ollama/api/tags": OLLAMA_TAGS,
    "/ollama/api/ps": OLLAMA_LOADED,
}
"""Path -> JSON."""

PAGES = {
    "/gemini/v1beta/models": ("pageToken", {"": GEMINI, "second": GEMINI_SECOND}),
    "/anthropic/v1/models": ("after_id", {"": ANTHROPIC, VERSE: ANTHROPIC_SECOND}),
    "/endless/v1beta/models": ("pageToken", {"": GEMINI, "second": GEMINI}),
}
"""Path -> query parameter of the next page, and the pages by its value."""


def answer(request):
    """Answer a request below `URL`, in the place of httpx's transport."""
    path = request.url.path
    found = LISTS.get(path)
    if path in PAGES:
        parameter, pages = PAGES[path]
        found = pages[request.url.params.get(parameter, "")]
    if path == "/ollama/api/show":
        found = OLLAMA_SHOW[json.loads(request.content)["model"]]
    return httpx.Response(404 if found is None else 200, json=found)
