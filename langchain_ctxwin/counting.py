"""Exact counts, where an estimate is not close enough.

The engine's default, `TokenEstimator`, needs nothing installed, asks nobody, and is corrected by the sizes that
providers report. That is enough for most agents. These counters are for the others:

| your model                                 | counter                                | what is exact     |
|--------------------------------------------|----------------------------------------|-------------------|
| OpenAI, Llama 3, Qwen                      | `VocabularyCounter("o200k_base")`      | text              |
| open weights, with a tokenizer at hand     | `LocalCounter(count, family="llama")`  | text              |
| Gemini, on its own API or on Vertex AI     | `GeminiCounter(model)`                 | the whole request |

The first two count on this machine and are `exact`: what the provider adds around a text (roles, separators, tool
schemas, media) goes by published constants. The last one prices single messages with an estimator, and answers
`count_request(messages, tools=tools)` for a whole request with the provider's own count. It is asked only where the
estimate leaves a doubt, and when it fails, the estimate stands.

    engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))

All have the shape of LangChain's counters, so they also work in `trim_messages(token_counter=...)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Any, ClassVar

from langchain_core.messages import AnyMessage, MessageLikeRepresentation

from langchain_ctxwin.core.tokens import TokenEstimator, request_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError, expect
from langchain_ctxwin.protocols import TokenCounter

# Family of the framing constants by how the name of an encoding begins.
FAMILIES = {"o200k": "openai", "cl100k": "cl100k", "llama": "llama", "qwen": "qwen"}


class LocalCounter:
    """Counts every text with a tokenizer; framing, tool structure and media by the constants of a family.

    What a provider adds around the text is published nowhere, so a request may be off by a few tokens a message.

    Args:
        count: returns the tokens of a text, e.g. `lambda text: len(tokenizer.encode(text, add_special_tokens=False))`.
        family: whose framing constants are used: openai, anthropic, gemini, llama, qwen, deepseek, generic, ...

    Raises:
        ConfigError: the family is unknown.
    """

    exact: ClassVar[bool] = True

    def __init__(self, count: Callable[[str], int], *, family: str) -> None:
        if family not in FRAMING:
            raise ConfigError(
                f"family={family!r} is unknown: use one of {', '.join(sorted(FRAMING))}"
            )
        self.family = family
        self._count = count

    def __call__(
        self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None
    ) -> int:
        """Return the tokens of a request."""
        return ceil(
            request_tokens(messages, tools, FRAMING[self.family], self.count_text)
        )

    def count_text(self, text: str) -> int:
        """Return the tokens of a plain text, without any framing; special tokens are text as well."""
        # surrogates in pairs are one character, lone ones are replaced, as on the way to a provider
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._count(text) if text else 0


class VocabularyCounter(LocalCounter):
    """Counts with a published vocabulary, one of those that come in quicktok's wheel.

    Setup:
        ```bash
        pip install langchain-ctxwin[exact]
        ```

    Key init args:
        encoding: `o200k_base`, `o200k_harmony`, `cl100k_base` and two more in quicktok's wheel, or one imported there.
        family: whose framing constants are used; by default the one that the encoding's name implies.

    Instantiate:
        ```python
        engine = ContextEngine(limits=model, counter=VocabularyCounter("o200k_base"))
        ```

    Raises:
        ConfigError: quicktok is not installed, the encoding is not on this machine, or the family unknown.

    Examples:
        >>> VocabularyCounter("o200k_base").count_text("How many tokens is this?")
        6
    """

    def __init__(self, encoding: str, *, family: str | None = None) -> None:
        try:
            import quicktok  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError(
                "exact counts need a tokenizer: pip install langchain-ctxwin[exact]"
            ) from error
        try:
            count = quicktok.get_encoding(encoding).count
        except (
            RuntimeError,
            TypeError,
        ) as error:  # an unknown name, and what is no name
            bundled = ", ".join(sorted(set(quicktok.MODEL_TO_ENCODING.values())))
            raise ConfigError(
                f"encoding={encoding!r} is not on this machine: use one of {bundled}, or import it into quicktok"
            ) from error
        implied = (
            family for start, family in FAMILIES.items() if encoding.startswith(start)
        )
        super().__init__(count, family=family or next(implied, "generic"))
        self.encoding = encoding


TIMEOUT_SECONDS = 5.0  # for one count: several times what the endpoint takes, and short beside a model call


class GeminiCounter:
    """Asks the Gemini API, or Vertex AI, for the size of a request before it is sent.

    The request is the one that the model would send: its own conversion of messages and tools, without the settings
    of generation and without cached content. Single messages are priced by an estimator, because each question is a
    call of its own.

    Key init args:
        model: a `ChatGoogleGenerativeAI`, not a binding of one; its client, key and address are used.
        estimator: prices single messages; by default for Gemini.

    Instantiate:
        ```python
        counter = GeminiCounter(ChatGoogleGenerativeAI(model=name))
        ```

    Use:
        ```python
        counter.count_request(
            [SystemMessage("Be brief."), HumanMessage("hi")], tools=[search]
        )
        ```

    Raises:
        ConfigError: the integration is not installed, or the model is no `ChatGoogleGenerativeAI`.
    """

    def __init__(self, model: Any, *, estimator: TokenCounter | None = None) -> None:
        try:
            from langchain_google_genai import ChatGoogleGenerativeAI  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError(
                "GeminiCounter needs ChatGoogleGenerativeAI: pip install langchain-google-genai"
            ) from error
        wanted = "the ChatGoogleGenerativeAI itself, without bound tools"
        self.model: Any = expect(model, ChatGoogleGenerativeAI, "model", wanted)
        self.estimator = estimator or TokenEstimator("gemini")

    def __call__(self, messages: Sequence[AnyMessage], *, tools: Any = None) -> int:
        """Return the estimator's count."""
        return self.estimator(messages, tools=tools)

    async def acount_request(
        self, messages: Sequence[AnyMessage], *, tools: Any = None
    ) -> int:
        """Like `count_request`, without blocking the event loop: in a thread."""
        return await asyncio.to_thread(self.count_request, messages, tools=tools)

    def count_request(
        self, messages: Sequence[AnyMessage], *, tools: Any = None
    ) -> int:
        """Return the input tokens of the request; raises what the client raises."""
        from google.genai.types import CountTokensConfig, HttpOptions  # noqa: PLC0415  # loaded by the model already

        model, options = (
            self.model,
            HttpOptions(timeout=int(TIMEOUT_SECONDS * 1000)),
        )
        bound = model.bind_tools(list(tools)).kwargs["tools"] if tools else None
        # No public name converts messages; without this one there is no count.
        request = model._prepare_request(list(messages), tools=bound)  # noqa: SLF001
        contents, config = request["contents"], request["config"]
        fixed = {"system_instruction": config.system_instruction, "tools": config.tools}
        if model.client.vertexai:
            question = {"model": request["model"], "contents": contents}
        else:  # here the SDK refuses system instruction and tools; the API takes them in the whole request
            # The client insists on contents beside the whole request; they are taken out again before it is sent.
            question = {"model": model.model, "contents": "-"}
            whole = {
                "model": model.model if "/" in model.model else f"models/{model.model}",
                "contents": contents,
            }
            whole |= {
                "systemInstruction": fixed.pop("system_instruction"),
                "tools": fixed.pop("tools"),
            }
            rest = {key: _json(part) for key, part in whole.items() if part}
            options.extra_body = {"contents": [], "generateContentRequest": rest}
        counted = model.client.models.count_tokens(
            **question, config=CountTokensConfig(**fixed, http_options=options)
        )
        tokens: int = counted.total_tokens
        return tokens


def _json(part: Any) -> Any:
    """A part of a request in the JSON of the REST API."""
    if isinstance(part, list):
        return [_json(item) for item in part]
    return (
        part
        if isinstance(part, str)
        else part.model_dump(mode="json", by_alias=True, exclude_none=True)
    )
