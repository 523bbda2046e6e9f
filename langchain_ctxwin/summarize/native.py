"""Summaries that the provider of the agent's model writes on demand: blocks that begin later requests to it.

Anthropic (compaction on demand) takes the request as it was sent, up to where the summary ends, and returns a signed
block; OpenAI (Responses API, compact endpoint) an encrypted item. Both stand for what they were made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.limits import unwrapped
from langchain_ctxwin.core.model_info import arguments_of, model_name, rules_of, unbound
from langchain_ctxwin.core.provider_blocks import compaction_in
from langchain_ctxwin.core.provider_call import DEMAND_BETA, without_response_ids
from langchain_ctxwin.core.sizing import Usage
from langchain_ctxwin.errors import ConfigError, SummarizationError
from langchain_ctxwin.summarize.model import Instructed, replied, sections_text

NATIVE = "native"
"""What `summarizer` is to ask the provider of the agent's model."""

REPLY_ONLY = frozenset(
    str.split("response_format stop stop_sequences context_management tool_choice")
)
"""Arguments of a call that only shape an answer: a request to compact with them is refused."""

# Arguments of a call that the compact endpoint takes, too.
COMPACT_ARGUMENTS = (
    "instructions",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
)
ADVICE = "pass a chat model as summarizer, or None"


TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished summary and what it cost; failed calls are counted, too."""

    text: str
    """What is shown where nobody reads the block. It may be empty: some blocks are read by their makers alone."""

    block: dict[str, Any] | None = None
    """The summary as the provider that wrote it reads it; None for a text."""

    calls: int = 0
    tokens: dict[str, Any] = field(default_factory=dict)
    """Of all calls together, by the field of `Usage`."""

    seconds: float = 0.0

    @property
    def cost(self) -> dict[str, int]:
        """Calls and tokens, to be added up."""
        sizes = {name: self.tokens.get(name, 0) for name in TOKENS[:2]}
        return {"calls": self.calls, **sizes}

    @property
    def usage(self) -> Usage:
        """Tokens of all calls together, to be priced."""
        return Usage(**self.tokens)


def tokens_of(usage: Usage) -> dict[str, int]:
    """Return what a call took, by the field of `Usage`."""
    return {name: getattr(usage, name) or 0 for name in TOKENS}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NativeSummarizer(Instructed):
    """Asks the provider of the agent's model for a block of what is to leave; what `summarizer="native"` makes."""

    model: Any = None
    """The chat model, where it is known before a call goes to it."""

    ask: Callable[[int], Written] | None = None
    """Asks about a request that was sent, for a summary of so many tokens."""

    @property
    def model_name(self) -> str:
        """Name of the model that writes; empty while nobody knows."""
        return model_name(self.model)

    @property
    def writer(self) -> str:
        """Name by which this summarizer's texts are told from those of others, in every process."""
        return f"{NATIVE} {self.model_name} {' '.join(self.sections)}"

    def __post_init__(self) -> None:
        """Refuse a prompt of one's own."""
        if self.prompt:
            raise ConfigError(
                f"summarizer={NATIVE!r} asks about the request itself, and summary_prompt has places for a transcript: "
                "set summary_sections, or pass a chat model as summarizer"
            )

    def called(self, call: Any, tools: Sequence[Any]) -> Any:
        """Return what a request goes to: the call, or the model with these tools bound."""
        if call is not None or self.model is None:
            return call
        return self.model.bind_tools(list(tools)) if tools else self.model

    def asking(
        self, call: Any, messages: Sequence[AnyMessage], options: Mapping[str, Any]
    ) -> NativeSummarizer:
        """Return a summarizer that asks about a request, with what `call` sends along."""
        inner, bound = unwrapped(call)
        is_openai = rules_of(call).provider == "openai"
        ask = _openai_compact if is_openai else self._anthropic_compact
        arguments = {**bound, **options}
        return replace(self, ask=partial(ask, inner, list(messages), arguments))

    def summarize(
        self,
        messages: Sequence[AnyMessage],  # noqa: ARG002  # the request holds them
        *,
        previous: str,  # noqa: ARG002  # and what stands for those before
        max_tokens: int,
    ) -> Written:
        """Return the block, which covers `previous` and `messages`, because the request holds both.

        Raises:
            SummarizationError: the provider failed, or wrote no block.
        """
        summary = Written(text="")
        if self.ask is not None:
            summary = replied(partial(self.ask, max_tokens))
        if not summary.block:
            raise SummarizationError(
                f"the provider answered without a compaction: {ADVICE}"
            )
        return summary

    def _anthropic_compact(
        self,
        model: Any,
        messages: list[AnyMessage],
        arguments: Mapping[str, Any],
        max_tokens: int,
    ) -> Written:
        instructions = f"{sections_text(self.sections)} Write at most {max_tokens:,} tokens.{self.focus_text}"
        model_arguments = {
            key: value for key, value in arguments.items() if key not in REPLY_ONLY
        }
        betas = model_arguments.get("betas", getattr(model, "betas", None)) or ()
        model_arguments["betas"] = [*dict.fromkeys([*betas, DEMAND_BETA])]
        # None takes out what the model is set to
        model_arguments |= dict.fromkeys(("context_management", "stop_sequences"))
        compaction = {"type": "summarize", "instructions": instructions}
        asked = model.bind(**model_arguments, compaction=compaction)
        block = compaction_in(asked.invoke(messages)) or {}
        return Written(text=str(block.get("content") or ""), block=_bare(block))


def native_summarizer(model: Any) -> NativeSummarizer:
    """Return the summarizer that asks the provider of a model; limits alone do not say who will be called.

    Raises:
        ConfigError: the provider writes no summary on demand, its integration cannot ask, or it compacts by itself.
    """
    inner, provider = unbound(model), rules_of(model).provider
    if not isinstance(inner, BaseChatModel) and provider in {"", "anthropic", "openai"}:
        return NativeSummarizer()
    wanted = f"summarizer={NATIVE!r}"
    asks_openai = getattr(inner, "use_responses_api", None)
    can_ask = {"openai": asks_openai, "anthropic": hasattr(inner, "betas")}
    if not can_ask.get(provider):
        raise ConfigError(
            f"{wanted}: {type(inner).__name__} cannot ask its provider for one. ChatAnthropic can, and ChatOpenAI with "
            f"use_responses_api=True: {ADVICE}"
        )
    if rules_of(model).compacts_itself:
        management = arguments_of(model)["context_management"]
        raise ConfigError(
            f"{wanted}: context_management={management!r} lets the server compact by itself, which takes no other "
            "block: leave out one of both"
        )
    return NativeSummarizer(model=model)


def _openai_compact(
    model: Any,
    messages: list[AnyMessage],
    arguments: Mapping[str, Any],
    _max_tokens: int,
) -> Written:
    # The integration has no other way from messages to the items of its API (langchain-openai 1.7).
    payload = model._get_request_payload(without_response_ids(messages), **arguments)  # noqa: SLF001
    compact_arguments = {
        key: payload[key] for key in COMPACT_ARGUMENTS if payload.get(key) is not None
    }
    reply = model.root_client.responses.compact(
        model=payload["model"], input=payload["input"], **compact_arguments
    ).model_dump(exclude_none=True, warnings=False)
    blocks = [
        _bare(item)
        for item in reply["output"]
        if item.get("type") == "compaction" and item.get("encrypted_content")
    ]
    usage = reply["usage"]
    details = usage.get("input_tokens_details") or {}
    counted = {
        "cache_read": details.get("cached_tokens", 0),
        "cache_creation": details.get("cache_write_tokens", 0),
    }
    spent = Usage.of({**usage, "input_token_details": counted})
    # LangChain's callbacks do not see this call
    return Written(
        text="", block=blocks[-1] if blocks else {}, calls=1, tokens=tokens_of(spent)
    )


def _bare(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as it is sent back."""
    return {
        key: value
        for key, value in block.items()
        if key != "index" and value is not None
    }
