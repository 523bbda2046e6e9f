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

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from math import ceil, inf, isfinite
from typing import Any, ClassVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AnyMessage,
    MessageLikeRepresentation,
    SystemMessage,
    convert_to_messages,
)

from langchain_ctxwin.core.model_info import family_of
from langchain_ctxwin.core.provider_blocks import compact_json
from langchain_ctxwin.core.tokens import TokenEstimator, request_tokens
from langchain_ctxwin.core.tool_schemas import FRAMING, tool_definition
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock, TokenCounter
from langchain_ctxwin.util.log import log, reason_of
from langchain_ctxwin.util.memo import Lru
from langchain_ctxwin.util.work import in_daemon

# Family of the framing constants by how the name of an encoding begins.
FAMILIES = {"o200k": "openai", "cl100k": "cl100k", "llama": "llama", "qwen": "qwen"}
# A text with a character that no vocabulary has: a tokenizer that cannot take it would fail on a user's text.
PROBE = "A probe: \ue000 \U0001f9ea"


class LocalCounter:
    """Counts every text with a tokenizer; framing, tool structure and media by the constants of a family.

    What a provider adds around the text is published nowhere, so a request may be off by a few tokens a message.
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
        try:
            text.encode()
        except UnicodeEncodeError:  # what arrives: surrogates in pairs are one character, lone ones are replaced
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


class TokenizerFileCounter(LocalCounter):
    """Counts with the tokenizer of a model, from the `tokenizer.json` that is published beside its weights.

    All of a text counts as text, also where the file asks to cut, to pad and to read special tokens.

    Setup:
        ```bash
        pip install langchain-ctxwin[exact]
        ```

    Key init args:
        path: a `tokenizer.json` as the Hugging Face `tokenizers` package reads it.
        family: whose framing constants are used: openai, anthropic, gemini, llama, qwen, deepseek, generic, ...

    Instantiate:
        ```python
        engine = ContextEngine(
            limits=model,
            counter=TokenizerFileCounter("models/tokenizer.json", family="llama"),
        )
        ```

    Raises:
        ConfigError: the package is missing, the file cannot be read as a tokenizer, or the family is unknown.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, family: str = "generic"
    ) -> None:
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError(
                "reading a tokenizer.json needs a package: pip install langchain-ctxwin[exact]"
            ) from error
        try:
            tokenizer = Tokenizer.from_file(os.fspath(path))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            tokenizer.encode_special_tokens = True
            tokenizer.encode(PROBE, add_special_tokens=False)
        except Exception as error:  # the package raises nothing more specific
            raise ConfigError(
                f"{os.fspath(path)} is no usable tokenizer.json: {error}"
            ) from error
        super().__init__(
            lambda text: len(tokenizer.encode(text, add_special_tokens=False)),
            family=family,
        )
        self.path = path


TIMEOUT_SECONDS = 5.0  # for one count: several times what the endpoints take, and short beside a model call
MAX_COUNTS = 1_024  # requests whose counts are remembered, about 200 bytes each
RETRY_SECONDS = 60.0  # until a provider that could not count is asked again: the estimate serves meanwhile
# to any provider
UNSENT = frozenset({"id", "artifact", "response_metadata", "usage_metadata"})


class RemoteCounter(ABC):
    """Asks a provider for the size of whole requests: remembered, for a short time, and never failing.

    `count_request` returns None where a count could not be had: the endpoint failed or was too slow, now or less than a
    minute ago. Each failure is logged once as `count.failed`.
    As a plain counter it falls back to the estimator, so its counts are not reported as exact.
    """

    exact: ClassVar[bool] = False
    provider: ClassVar[str]
    # package and class of the model that it counts with
    chat_model: ClassVar[tuple[str, str]]

    def __init__(
        self,
        model: BaseChatModel,
        *,
        estimator: TokenCounter | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        if not (timeout_seconds > 0 and isfinite(timeout_seconds)):
            raise ConfigError(
                f"timeout_seconds={timeout_seconds!r}: give a positive number of seconds"
            )
        module, name = self.chat_model
        counter, package = type(self).__name__, module.replace("_", "-")
        try:
            expected = getattr(import_module(module), name)
        except ImportError as error:
            raise ConfigError(
                f"{counter} needs {name}: pip install {package}"
            ) from error
        if not isinstance(model, expected):
            kind = type(model).__name__
            raise ConfigError(
                f"{counter} cannot count with a {kind}: give it the {name} itself, without bound tools"
            )
        self.model: Any = model
        self.estimator: TokenCounter = estimator or TokenEstimator(
            family=family_of(model)
        )
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._failed_at = -inf
        self._counts: Lru[int] = Lru(MAX_COUNTS)

    @abstractmethod
    def ask(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        """Ask for the tokens of a request; blocks, and any exception means that there is no count."""

    def __call__(
        self, messages: Iterable[MessageLikeRepresentation], *, tools: Any = None
    ) -> int:
        """Return the provider's count, else the estimator's."""
        request: Any = convert_to_messages(list(messages))
        counted = self.count_request(request, tools=tools)
        return int(self.estimator(request, tools=tools)) if counted is None else counted

    def count_request(
        self, messages: Sequence[AnyMessage], *, tools: Any = None
    ) -> int | None:
        """Return the input tokens of the request, or None: not to be had now, the estimate stands."""
        request, definitions = list(messages), list(tools or ())
        if all(isinstance(message, SystemMessage) for message in request):
            return None  # providers refuse a request that asks nothing
        digest = request_digest(request, definitions)
        cached_count = self._counts.get(digest)
        is_paused = 0 <= self._clock() - self._failed_at < RETRY_SECONDS
        if cached_count is not None or is_paused:
            return cached_count
        try:
            tokens = in_daemon(lambda: self.ask(request, definitions)).result(
                self.timeout_seconds
            )
            reason = _fault(tokens)
        except Exception as error:  # noqa: BLE001  # counting is soft: any failure only means that the estimate stands
            reason = reason_of(error, timeout_seconds=self.timeout_seconds)
        if reason:
            self._failed_at = self._clock()
            log.warning("count.failed", provider=self.provider, reason=reason)
            return None
        return self._counts.put(digest, tokens)

    async def acount_request(
        self, messages: Sequence[AnyMessage], *, tools: Any = None
    ) -> int | None:
        """Like `count_request`, without blocking the event loop: in a thread."""
        return await asyncio.wrap_future(
            in_daemon(lambda: self.count_request(messages, tools=tools))
        )

    def upper(self, tokens: int) -> int:
        """Upper bound of the true count: what `__call__` returns may be an estimate."""
        return int(getattr(self.estimator, "upper", int)(tokens))

    def lower(self, tokens: int) -> int:
        """Lower bound of the true count."""
        return int(getattr(self.estimator, "lower", int)(tokens))


class GeminiCounter(RemoteCounter):
    """Asks the Gemini API, or Vertex AI, for the size of a request before it is sent.

    The request is the one that the model would send: its own conversion of messages and tools, without the settings
    of generation and without cached content.

    Key init args:
        model: a `ChatGoogleGenerativeAI`, not a binding of one; its client, key and address are used.
        estimator: prices single messages and stands in where no count can be had; by default for Gemini.
        timeout_seconds: how long one question may take.

    Instantiate:
        ```python
        counter = GeminiCounter(ChatGoogleGenerativeAI(model=name))
        ```

    Use:
        ```python
        counter.count_request(
            [SystemMessage("Be brief."), HumanMessage("hi")], tools=[search]
        )  # or None
        ```
    """

    provider = "gemini"
    chat_model = ("langchain_google_genai", "ChatGoogleGenerativeAI")

    def ask(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        """Ask `countTokens`."""
        from google.genai.types import CountTokensConfig, HttpOptions  # noqa: PLC0415  # loaded by the model already

        model, options = (
            self.model,
            HttpOptions(timeout=int(self.timeout_seconds * 1000)),
        )
        bound = model.bind_tools(tools).kwargs["tools"] if tools else None
        # No public name converts messages; without this one there is no count.
        request = model._prepare_request(messages, tools=bound)  # noqa: SLF001
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
        return counted.total_tokens


class AnthropicCounter(RemoteCounter):
    """Asks the Anthropic API for the size of a request before it is sent; asking is free of charge.

    Anthropic calls its count an estimate: it may differ from the bill by a small amount.

    Setup:
        ```bash
        pip install langchain-anthropic
        ```

    Key init args:
        model: a `ChatAnthropic`, not a binding of one; the rest is as in `GeminiCounter`.

    Instantiate:
        ```python
        counter = AnthropicCounter(ChatAnthropic(model=name))
        ```
    """

    provider = "anthropic"
    chat_model = ("langchain_anthropic", "ChatAnthropic")

    def ask(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        """Ask `count_tokens`."""
        return self.model.get_num_tokens_from_messages(
            messages, tools=tools or None, timeout=self.timeout_seconds
        )


def request_digest(messages: Sequence[AnyMessage], tools: Sequence[Any]) -> str:
    """A short text that differs whenever something differs that is sent."""
    seen = hashlib.blake2b(digest_size=16)  # two requests do not meet by chance
    fields = [
        {name: value for name, value in message if name not in UNSENT}
        for message in messages
    ]
    for part in (*fields, list(map(tool_definition, tools))):
        seen.update(f"{compact_json(part)}\n".encode("utf-8", "surrogatepass"))
    return seen.hexdigest()


def _fault(count: object) -> str:
    if isinstance(count, bool) or not isinstance(count, int):
        return f"the count is a {type(count).__name__}"
    return "" if count > 0 else f"the count is {count}"


def _json(part: Any) -> Any:
    """A part of a request in the JSON of the REST API."""
    if isinstance(part, list):
        return [_json(item) for item in part]
    return (
        part
        if isinstance(part, str)
        else part.model_dump(mode="json", by_alias=True, exclude_none=True)
    )
