"""What model lists look like, one per provider: the documented shapes, with names and numbers of the tests' own."""


def listed(*entries):
    """A list in OpenAI's shape."""
    return {
        "object": "list",
        "data": [{"object": "model", **entry} for entry in entries],
    }


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

ANTHROPIC = {
    "data": [
        {
            "id": "test-verse-20990101",
            "max_input_tokens": 200000,
            "max_tokens": 64000,
        }
    ],
    "has_more": True,
    "last_id": "test-verse-20990101",
}
ANTHROPIC_SECOND = {
    "data": [
        {
            "id": "test-haiku",
            "max_input_tokens": None,
            "max_tokens": None,
        }
    ],
    "has_more": False,
    "last_id": "test-haiku",
}

OPENAI = listed({"id": "test-plain"})

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

MISTRAL = listed(
    {
        "id": "test-wind-latest",
        "max_context_length": 131072,
    }
)

GROQ = listed(
    {
        "id": "maker/test-fast",
        "context_window": 131072,
        "max_completion_tokens": 32768,
    }
)

VLLM = {
    "object": "list",
    "data": [
        {
            "id": "maker/test-8b",
            "object": "model",
            "max_model_len": 16384,
        }
    ],
}

LLAMA_CPP = {
    "models": [{"name": "/models/tiny.gguf", "capabilities": ["completion"]}],
    "object": "list",
    "data": [
        {
            "id": "/models/tiny.gguf",
            "object": "model",
            "meta": {
                "n_ctx": 8192,
                "n_ctx_train": 131072,
            },
        }
    ],
}
LM_STUDIO = listed({"id": "test-desk"})
LM_STUDIO_OWN = listed(
    {
        "id": "test-desk",
        "max_context_length": 131072,
        "loaded_context_length": 4096,
    }
)

TOGETHER = [
    {
        "id": "maker/test-joint",
        "object": "model",
        "context_length": "131072",
    }
]

COHERE = {
    "models": [
        {
            "name": "test-reply",
            "endpoints": ["chat"],
            "context_length": 256000.0,
        }
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

CATALOG = {
    "maker": {
        "id": "maker",
        "name": "Maker",
        "models": {
            "test-pro": {
                "id": "test-pro",
                "name": "Test Pro",
                "reasoning": True,
                "temperature": True,
                "tool_call": True,
                "structured_output": False,
                "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]},
                "cost": {"input": 1.25, "output": 10, "cache_read": 0.125},
                "limit": {"context": 400000, "input": 272000, "output": 128000},
                "status": "deprecated",
            }
        },
    },
    "gateway": {
        "id": "gateway",
        "models": {
            "maker/test-pro": {"limit": {"context": 0, "output": 0}, "cost": {}}
        },
    },
}

PRICE_TABLE = {
    "sample_spec": {
        "max_tokens": "set to max_output_tokens",
        "litellm_provider": "one of many",
        "mode": "chat",
    },
    "test-pro": {
        "max_tokens": 4096,
        "max_input_tokens": 128000,
        "max_output_tokens": 4096,
        "input_cost_per_token": 2.5e-07,
        "output_cost_per_token": 2e-06,
        "cache_read_input_token_cost": 2.5e-08,
        "litellm_provider": "maker",
        "mode": "chat",
        "supports_function_calling": True,
        "supports_vision": True,
        "deprecation_date": "2099-05-31",
    },
    "maker/test-old": {
        "max_tokens": 32000,
        "litellm_provider": "maker",
        "mode": "chat",
    },
    "vertex_ai/test-verse@1": {
        "max_input_tokens": 200000,
        "litellm_provider": "vertex_ai-anthropic_models",
    },
}
