"""Exact counts, where an estimate is not close enough.

The engine's default, `TokenEstimator`, needs nothing installed, asks nobody, and is corrected by the sizes that
providers report. That is enough for most agents. These counters are for the others:

| your model                                    | counter                               | what is exact     |
|-----------------------------------------------|---------------------------------------|-------------------|
| OpenAI, Llama 3, Qwen                         | `VocabularyCounter("o200k_base")`     | text              |
| open weights, with a `tokenizer.json` at hand | `TokenizerFileCounter(path, family=)` | text              |
| Gemini, on its own API or on Vertex AI        | `GeminiCounter(model)`                | the whole request |
| Claude                                        | `AnthropicCounter(model)`             | the whole request |

The first two count on this machine and are `exact`: what the provider adds around a text (roles, separators, tool
schemas, media) goes by published constants. The last two ask the provider, one request per count, and remember the
answer. They price single messages with an estimator, and answer `count_request(messages, tools=tools)` for a whole
request: with the provider's own count, or None where there is none now. Then the estimate stands, so an outage of the
counting endpoint costs one time-out and never a turn.

    engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))

All four have the shape of LangChain's counters, so they also work in `trim_messages(token_counter=...)`.
"""

from langchain_ctxwin.counting.local import TokenizerFileCounter, VocabularyCounter
from langchain_ctxwin.counting.remote import AnthropicCounter, GeminiCounter

__all__ = ["AnthropicCounter", "GeminiCounter", "TokenizerFileCounter", "VocabularyCounter"]
