"""Counters that ask a provider for the size of a request, through LangChain's own chat model."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.model_families import family_of
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.counting.remote import REQUESTS_PER_MINUTE, TIMEOUT_SECONDS, RemoteCounter
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock, TokenCounter
from langchain_ctxwin.util.background import in_daemon

if TYPE_CHECKING:
    from langchain_anthropic import ChatAnthropic  # noqa: F401  # named by a text below
    from langchain_google_genai import ChatGoogleGenerativeAI  # noqa: F401  # see above

IGNORED_CONTENTS = "-"
"""The client insists on contents beside the whole request; they are taken out again before anything is sent."""

Model = TypeVar("Model")


class _ModelCounter(RemoteCounter, ABC, Generic[Model]):
    """Counts with the client, key and address of a chat model."""

    name: ClassVar[str]

    def __init__(
        self,
        model: Model,
        *,
        estimator: TokenCounter | None = None,
        requests_per_minute: int = REQUESTS_PER_MINUTE,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        self.model: Any = self._checked(model)
        super().__init__(
            self.name,
            self._count_tokens,
            self._acount_tokens,
            estimator=estimator or TokenEstimator(family=family_of(model)),
            requests_per_minute=requests_per_minute,
            timeout_seconds=timeout_seconds,
            clock=clock,
        )

    @abstractmethod
    def _checked(self, model: Any) -> Any:
        """Return the model, or raise `ConfigError` where it cannot count."""

    @abstractmethod
    def _count_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        """Ask for the tokens of a request."""

    @abstractmethod
    async def _acount_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        """Like `_count_tokens`, without blocking the event loop."""


class GeminiCounter(_ModelCounter["ChatGoogleGenerativeAI"]):
    """Asks the Gemini API, or Vertex AI, for the size of a request before it is sent.

    The request is the one that the model would send: its own conversion of messages and tools, without the settings
    of generation and without cached content.

    Key init args:
        model: a `ChatGoogleGenerativeAI`, not a binding of one; its client, key and address are used.
        estimator: prices single messages and stands in where no count can be had; by default for Gemini.
        requests_per_minute: questions at most; beyond them the estimate stands.
        timeout_seconds: how long one question may take.

    Instantiate:
        ```python
        counter = GeminiCounter(ChatGoogleGenerativeAI(model=name))
        ```

    Use:
        ```python
        counter.count_request([SystemMessage("Be brief."), HumanMessage("hi")], tools=[search])  # or None
        ```

    Raises:
        ConfigError: the model is no `ChatGoogleGenerativeAI`, or a setting is not positive.
    """

    name = "gemini"

    def _count_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        question = self._question(messages, tools)
        return self.model.client.models.count_tokens(**question).total_tokens

    async def _acount_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        # In a thread: converting messages may fetch the images that they link to.
        question = await asyncio.wrap_future(in_daemon(lambda: self._question(messages, tools)))
        return (await self.model.async_client.models.count_tokens(**question)).total_tokens

    def _question(self, messages: list[AnyMessage], tools: list[Any]) -> Mapping[str, Any]:
        """Arguments of the SDK's `count_tokens`."""
        from google.genai.types import CountTokensConfig, HttpOptions  # noqa: PLC0415  # loaded by the model already

        model: Any = self.model
        bound = model.bind_tools(tools).kwargs["tools"] if tools else None
        # No public name converts messages; without this one there is no count.
        request = model._prepare_request(messages, tools=bound)  # noqa: SLF001
        contents, config = request["contents"], request["config"]
        options = HttpOptions(timeout=int(self.timeout_seconds * 1000))
        if model.client.vertexai:
            fixed = {"system_instruction": config.system_instruction, "tools": config.tools}
            config = CountTokensConfig(**fixed, http_options=options)
            return {"model": request["model"], "contents": contents, "config": config}
        # For this API the SDK refuses system instruction and tools; the API itself takes them in the whole request.
        options.extra_body = {"contents": [], "generateContentRequest": _whole(model.model, contents, config)}
        return {"model": model.model, "contents": IGNORED_CONTENTS, "config": CountTokensConfig(http_options=options)}

    def _checked(self, model: Any) -> Any:
        from langchain_google_genai import ChatGoogleGenerativeAI  # noqa: PLC0415  # heavy, and here only

        if not isinstance(model, ChatGoogleGenerativeAI):
            raise ConfigError(
                f"GeminiCounter cannot count with a {type(model).__name__}: "
                "give it the ChatGoogleGenerativeAI itself, without bound tools"
            )
        return model


class AnthropicCounter(_ModelCounter["ChatAnthropic"]):
    """Asks the Anthropic API for the size of a request before it is sent; asking is free of charge.

    Anthropic calls its count an estimate: it may differ from the bill by a small amount.

    Setup:
        ```bash
        pip install langchain-anthropic
        ```

    Key init args:
        model: a `ChatAnthropic`, not a binding of one; its client, key and address are used.
        estimator: prices single messages and stands in where no count can be had; by default for Anthropic.
        requests_per_minute: questions at most; beyond them the estimate stands.
        timeout_seconds: how long one question may take.

    Instantiate:
        ```python
        counter = AnthropicCounter(ChatAnthropic(model=name))
        ```

    Use:
        ```python
        counter.count_request([SystemMessage("Be brief."), HumanMessage("hi")], tools=[search])  # or None
        ```

    Raises:
        ConfigError: langchain-anthropic is missing, the model is no `ChatAnthropic`, or a setting is not positive.
    """

    name = "anthropic"

    def _count_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        return self.model.get_num_tokens_from_messages(messages, tools=tools or None, timeout=self.timeout_seconds)

    async def _acount_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        # ChatAnthropic has no public async way to count.
        return await asyncio.wrap_future(in_daemon(lambda: self._count_tokens(messages, tools)))

    def _checked(self, model: Any) -> Any:
        try:
            from langchain_anthropic import ChatAnthropic  # noqa: PLC0415  # optional
        except ImportError as error:
            raise ConfigError("AnthropicCounter needs ChatAnthropic: pip install langchain-anthropic") from error
        if not isinstance(model, ChatAnthropic):
            raise ConfigError(
                f"AnthropicCounter cannot count with a {type(model).__name__}: "
                "give it the ChatAnthropic itself, without bound tools"
            )
        return model


def _whole(name: str, contents: list[Any], config: Any) -> dict[str, Any]:
    """A GenerateContentRequest in the JSON of the REST API."""
    whole = {"model": name if "/" in name else f"models/{name}", "contents": [_json(content) for content in contents]}
    if config.system_instruction is not None:
        whole["systemInstruction"] = _json(config.system_instruction)
    if config.tools:
        whole["tools"] = [_json(tool) for tool in config.tools]
    return whole


def _json(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
