"""How does Anthropic count this request? One call of its counting endpoint, through LangChain's own method."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.model_families import family_of
from langchain_ctxwin.core.tokens import TokenEstimator
from langchain_ctxwin.counting.remote import REQUESTS_PER_MINUTE, TIMEOUT_SECONDS, RemoteCounter
from langchain_ctxwin.daemon import in_daemon
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.protocols import Clock, TokenCounter

if TYPE_CHECKING:
    from langchain_anthropic import ChatAnthropic


class AnthropicCounter(RemoteCounter):
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

    def __init__(
        self,
        model: ChatAnthropic,
        *,
        estimator: TokenCounter | None = None,
        requests_per_minute: int = REQUESTS_PER_MINUTE,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Clock = time.time,
    ) -> None:
        self.model = _checked(model)
        super().__init__(
            "anthropic",
            self._count_tokens,
            self._acount_tokens,
            estimator=estimator or TokenEstimator(family=family_of(model)),
            requests_per_minute=requests_per_minute,
            timeout_seconds=timeout_seconds,
            clock=clock,
        )

    def _count_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        return self.model.get_num_tokens_from_messages(messages, tools=tools or None, timeout=self.timeout_seconds)

    async def _acount_tokens(self, messages: list[AnyMessage], tools: list[Any]) -> Any:
        # ChatAnthropic has no public async way to count.
        return await asyncio.wrap_future(in_daemon(lambda: self._count_tokens(messages, tools)))


def _checked(model: Any) -> Any:
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
