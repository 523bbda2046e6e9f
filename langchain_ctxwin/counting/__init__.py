"""Exact counts, where an estimate is not close enough.

The engine's default, `TokenEstimator`, needs nothing installed, asks nobody, and is corrected by the sizes that
providers report. That is enough for most agents. These counters are for the others:

| your model                                    | counter                               | what is exact     |
|-----------------------------------------------|---------------------------------------|-------------------|
| OpenAI, Llama 3, Qwen                         | `VocabularyCounter("o200k_base")`     | text              |
| open weights, with a `tokenizer.json` at hand | `TokenizerFileCounter(path, family=)` | text              |
| Gemini, on its own API or on Vertex AI        | `GeminiCounter(model)`                | the whole request |
| Claude                                        | `AnthropicCounter(model)`             | the whole request |

The first two count on this machine. They are `exact`: every text is split by the model's own tokenizer, and what
the provider adds around it (roles, separators, tool schemas, media) goes by published constants. Fast enough to price
every message: microseconds per kilobyte with a vocabulary, some ten times more with a `tokenizer.json`.

    engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))

The last two ask the provider, one request per count. They price single messages with an estimator, and answer
`count_request(messages, tools=tools)` for a whole request: with the provider's own count, or None. None is normal: the
endpoint was down or slow, the question limit of the minute was reached, or it failed a moment ago. Then the estimate
stands, so an outage of the counting endpoint costs one time-out and never a turn. What was counted is remembered.

    counter = GeminiCounter(ChatGoogleGenerativeAI(model=name))
    counter.count_request(messages, tools=tools)

All four have the shape of LangChain's counters, so they also work in `trim_messages(token_counter=...)`.
"""

from langchain_ctxwin.counting.local import TokenizerFileCounter, VocabularyCounter
from langchain_ctxwin.counting.remote import AnthropicCounter, GeminiCounter

__all__ = ["AnthropicCounter", "GeminiCounter", "TokenizerFileCounter", "VocabularyCounter"]
