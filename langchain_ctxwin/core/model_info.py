"""`ModelInfo`: facts of one model, what answers took, what a chat model says of itself, and what its provider takes.

What differs between providers is read in the table `RULES`, nowhere from a name. A row is chosen by the family of an
integration's class; profiles and facts of a model switch what its release decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from math import inf
from typing import Annotated, Any

from langchain_core.messages import AIMessage
from pydantic import Field, TypeAdapter, ValidationError

from langchain_ctxwin.core.limits import (
    LIMIT_FIELDS,
    ModelLimits,
    count_of,
    unwrapped,
)
from langchain_ctxwin.core.provider_blocks import COMPACTION_TYPE, provider_named
from langchain_ctxwin.core.tool_schemas import FRAMING
from langchain_ctxwin.errors import ConfigError, brief, expect


@dataclass(frozen=True, slots=True)
class Rules:
    """The forms of messages that a provider takes; the defaults are those of an unknown provider."""

    starts_with_ai: bool = (
        False  # a request may begin with an answer, such as a greeting
    )
    calls_after_ai: bool = True
    """A call may follow an answer, such as that of another agent. Gemini wants a user message or a result before it."""

    takes_system: bool = False
    """System messages stay in place. Elsewhere integrations move them to the front, and the cached prefix is lost."""

    takes_system_behind_user: bool = False
    """So it is right behind a user's turn or results, unless the user goes on (newer models of Anthropic)."""

    provider: str = ""
    """Whose blocks it reads: `anthropic`, `openai`, `gemini`, or `other` for none; empty when nobody knows."""

    takes_cache_key: bool = (
        False  # a call may name the conversation for the provider's prompt cache
    )
    takes_breakpoints: bool = False
    """OpenAI's prompt cache matches at breakpoints, which blocks of content may set."""

    calls_need_reasoning: bool = True
    """A call that waits for its result has to come back with the reasoning before it; so with a provider that nobody
    knows."""

    media_in_results: bool = True
    """The results of tools may hold pictures and files. With Chat Completions they are in user messages only."""

    takes_betas: bool = False  # its client sends feature headers that a call names
    compacts_itself: bool = False
    """A model that is set to compact on its server takes no block that was made on demand."""

    keeps_history: bool = False
    """Its server goes on from the newest response id among the messages, so that those before it are not sent."""

    binds_reasoning: bool = True
    """Reasoning may be tied to what precedes it (Anthropic, preserved thinking); so where nobody knows the provider."""

    marked_seconds: int = 3_600
    """How long one stays that a breakpoint marks, where no longer time is asked for."""

    media: tuple[tuple[float, int, int], ...] = ()
    """Windows in tokens, and the bytes and images of a request that are documented for models of at most these."""

    def media_limits(self, window_tokens: int | None) -> dict[str, int]:
        """Return the limits documented for models of this window; the strictest for an unknown window."""
        for most, max_bytes, max_images in self.media:
            if (window_tokens or 0) <= most:
                return {"max_bytes": max_bytes, "max_images": max_images}
        return {}


UNKNOWN = Rules()
ELSEWHERE = Rules(provider="other", binds_reasoning=False)
"""A client of OpenAI's shape at another address: nobody knows what serves it, but it is not Anthropic's API."""

ANTHROPIC = Rules(
    provider="anthropic",
    calls_need_reasoning=False,
    # A prefix stays five minutes, or an hour where that is asked for (Anthropic, prompt caching).
    marked_seconds=300,
    # Anthropic, request size limits and vision guide.
    media=((200_000, 32_000_000, 100), (inf, 32_000_000, 600)),
)
GEMINI = replace(ELSEWHERE, provider="gemini", calls_after_ai=False)
LIKE_OPENAI = replace(ELSEWHERE, starts_with_ai=True, takes_system=True)
RULES = {
    "anthropic": ANTHROPIC,
    "deepseek": LIKE_OPENAI,
    "gemini": GEMINI,
    "openai": replace(LIKE_OPENAI, provider="openai"),
    "qwen": LIKE_OPENAI,
}
"""By the family of an integration's class. With Gemini a function call has to follow a user turn or a function
response; its integration and Anthropic's move system messages to the front. Anthropic wants the reasoning before a call
only where the model is set to think each time (`MANUAL_THINKING`)."""

CACHE_SECONDS = 3_600
"""The longest that a prefix stays cached, unless somebody pays for longer (OpenAI an hour at the most)."""

MANUAL_THINKING = "enabled"
"""Type of the `thinking` setting of Claude models that think by a given budget; those that tie their reasoning to what
preceded it take it no more."""

BREAKPOINTS_SINCE = "2026-07-09"
"""Release of the first models of OpenAI whose prompt cache matches at breakpoints (OpenAI, prompt caching guide): those
since then know the field that marks one, and earlier ones refuse it."""

CACHE_BREAKPOINTS = "cache_breakpoints"
"""Capability of such a model, where a source of models states it."""


PRICE_FIELDS = (
    "input_price",
    "output_price",
    "cache_read_price",
    "cache_write_price",
    "cache_write_hour_price",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts about one model; None means unknown, never free or unlimited.

    Prices are USD per million tokens. A price may be given as a number or a text, and is kept exactly as written.

    Attributes:
        name: As its provider spells it.
        provider: Who serves the model; the same name may have other limits elsewhere.
        context_window: Tokens that input and output share.
        max_input_tokens: A limit of the input alone, only where declared beside the window.
        max_output_tokens: Tokens the model may generate at most.
        max_request_bytes: Bytes of a request that the API takes, with pictures and files in it.
        max_images: Images of a request that the API takes.
        input_price: Price of input that is in no cache.
        output_price: Price of what the model writes.
        cache_read_price: Price of input that is read from the provider's prompt cache.
        cache_write_price: Price of input that is written to it for some minutes; None where writing costs no more than
            input, or nobody says.
        cache_write_hour_price: Price of input that is written to it for an hour; None is as for some minutes.
        capabilities: What the model can do besides text, e.g. `tools`, `images`, `structured_output`.
        tokenizer_family: Family of the token estimator; None lets it choose the generic one.
        deprecated: True when the provider advises against it.
        retires_on: First day on which the provider no longer serves the model.
        aliases: Other names that resolve to this model.
        provenance: Field name -> name of the source that stated its value.
        conflicts: Field name -> the values that were not taken, by source.

    Raises:
        ConfigError: a limit is not a positive whole number or contradicts another, a price is no finite number of at
            least 0, or the name is empty.

    Examples:
        >>> info = ModelInfo(name="small", context_window=8192, input_price=0.1)
        >>> info.limits.context_window, info.input_price
        (8192, Decimal('0.1'))
    """

    name: str
    provider: str | None = None
    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_request_bytes: int | None = None
    max_images: int | None = None
    input_price: Decimal | None = None
    output_price: Decimal | None = None
    cache_read_price: Decimal | None = None
    cache_write_price: Decimal | None = None
    cache_write_hour_price: Decimal | None = None
    capabilities: frozenset[str] = frozenset()
    tokenizer_family: str | None = None
    deprecated: bool = False
    retires_on: date | None = None
    aliases: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)
    conflicts: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict, hash=False
    )

    def __post_init__(self) -> None:
        wanted = "the model's name as its provider spells it"
        expect(self.name or None, str, "name", wanted)
        try:
            _ = self.limits
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        for name in PRICE_FIELDS:
            value = getattr(self, name)
            price = exact(value)
            if value is not None and price is None:
                raise ConfigError(
                    f"{self.name}: {name}={brief(value)}: give USD per million tokens as a number such as 0.25, at "
                    "least 0, or None when it is unknown"
                )
            object.__setattr__(self, name, price)

    @property
    def limits(self) -> ModelLimits:
        """The limits of this model; their source is the one that stated the window, else the input limit."""
        stated_by = self.provenance.get("context_window") or self.provenance.get(
            "max_input_tokens"
        )
        return ModelLimits(
            **{name: getattr(self, name) for name in LIMIT_FIELDS},
            source=stated_by or "explicit",
        )


Money = Annotated[Decimal, Field(ge=0)]
MONEY = TypeAdapter(Money)


def exact(number: object) -> Decimal | None:
    """Return a finite number of at least 0 exactly as it is written; None for anything else.

    Examples:
        >>> exact(0.1), exact("0.10"), exact(True), exact("free"), exact(-1)
        (Decimal('0.1'), Decimal('0.10'), None, None, None)
    """
    try:
        amount: Decimal = MONEY.validate_python(number)
    except ValidationError:
        return None
    return amount


# ---- what an answer took, as its provider reported it ---------------------------------------------------------------

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

SIZE_KEYS = ("input_tokens", "output_tokens")
CACHE_KEYS = (
    "cache_read",
    "cache_creation",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
)
RAW_KEYS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, as its provider reported them; None is unknown, and parts of the input never exceed it."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    """Parts of the input that were read from the prompt cache, and written to it."""

    hour_write_tokens: int = 0
    """Part of the written input that is kept for an hour."""

    compactions: tuple[Usage, ...] = ()
    """What the provider spent beside it on compacting the conversation, before it answered."""

    @classmethod
    def of_answer(cls, answer: object) -> Usage:
        """Read all that a provider billed for an answer; Anthropic states its compactions apart from the usage."""
        if not isinstance(answer, AIMessage):
            return cls()
        raw = answer.response_metadata.get("usage")
        rounds = raw.get("iterations") if isinstance(raw, Mapping) else None
        spent = (
            cls.of(_as_metadata(one))
            for one in rounds or ()
            if one.get("type") == COMPACTION_TYPE
        )
        return replace(cls.of(answer.usage_metadata), compactions=tuple(spent))

    @classmethod
    def of(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the `usage_metadata` of an answer."""
        reported = usage or {}
        parts = reported.get("input_token_details") or {}
        size, output = map(count_of, map(reported.get, SIZE_KEYS))
        if size is None:
            return cls(output_tokens=output)
        cached, total, minutes, hour = map(count_of, map(parts.get, CACHE_KEYS))
        # Where writes are told apart by how long they are kept, the total is those of both kinds.
        written = total or (minutes or 0) + (hour or 0) or total
        room = size - min(size, cached or 0)
        return cls(
            input_tokens=size,
            output_tokens=output,
            cached_tokens=None if cached is None else size - room,
            cache_write_tokens=None if written is None else min(room, written),
            hour_write_tokens=min(room, written or 0, hour or 0),
        )

    def cost(self, info: ModelInfo | None) -> Decimal | None:
        """Return USD by a model's prices; None when a price or the usage is unknown.

        A price of reading or writing the cache that nobody states is the one of input.
        """
        if info is None or info.input_price is None or info.output_price is None:
            return None
        beside = [one.cost(info) for one in self.compactions]
        if self.input_tokens is None or self.output_tokens is None or None in beside:
            return None
        read_price, write_price = (
            info.input_price if price is None else price
            for price in (info.cache_read_price, info.cache_write_price)
        )
        hour_price = info.cache_write_hour_price
        cached, written = self.cached_tokens or 0, self.cache_write_tokens or 0
        priced = (
            (self.input_tokens - cached - written) * info.input_price
            + cached * read_price
            + (written - self.hour_write_tokens) * write_price
            + self.hour_write_tokens
            * (write_price if hour_price is None else hour_price)
            + self.output_tokens * info.output_price
        )
        return sum(filter(None, beside), priced / PRICED_TOKENS)


def _as_metadata(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's usage in LangChain's shape: there the input holds what was read from the cache and written to it."""
    size, read, written = (count_of(raw.get(key)) or 0 for key in RAW_KEYS)
    kinds = raw.get("cache_creation") or {}
    return {
        "input_tokens": size + read + written,
        "output_tokens": raw.get("output_tokens"),
        "input_token_details": {**kinds, "cache_read": read, "cache_creation": written},
    }


STOP_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Where the integrations keep why an answer ended (OpenAI, Mistral, Google; Anthropic; Ollama; Bedrock)."""


def stop_reasons(reply: AIMessage) -> list[str]:
    """Return why an answer ended, as its provider states it; empty when it does not."""
    metadata = reply.response_metadata
    incomplete = metadata.get("incomplete_details") or {}  # OpenAI's Responses API
    reasons = [*map(metadata.get, STOP_KEYS), incomplete.get("reason")]
    return [str(reason) for reason in reasons if reason]


# ---- what a chat model says of itself -------------------------------------------------------------------------------


CLASS_FAMILIES = {
    "ChatGoogleGenerativeAI": "gemini",
    "ChatVertexAI": "gemini",
    "BaseChatOpenAI": "openai",
    "ChatAnthropic": "anthropic",
    "ChatAnthropicVertex": "anthropic",
    "ChatDeepSeek": "deepseek",
    "ChatQwen": "qwen",
    "ChatTongyi": "qwen",
}
"""Family by class name; the most derived class that is listed counts.

Classes that serve models of many makers (Groq, Ollama, Bedrock, Together, ...) are not listed: their name says nothing
of the tokenizer, so they count as generic, unless the model's limits state a `tokenizer_family`.
"""

UNKNOWN_FAMILY = "generic"

CHAT_COMPLETIONS = ("openai", "deepseek", "qwen")
"""Families whose classes speak OpenAI's Chat Completions, where they do not say that they use the Responses API."""

# Settings of chat models that go along with every call and concern the context.
CALL_SETTINGS = (
    "betas",
    "cache_control",
    "cached_content",
    "context_management",
    "prompt_cache_key",
    "store",
    "thinking",
    "truncation",
)
# Settings of a chat model that make it use OpenAI's Responses API, which keeps and compacts history.
RESPONSES_MARKS = (
    "use_responses_api",
    "use_previous_response_id",
    "context_management",
    "truncation",
)


def family_of(model: object) -> str:
    """Return the family that a model states (`tokenizer_family`) or that its class implies, else `"generic"`.

    Bindings are looked through. A stated family that has no weights counts as generic.
    """
    inner = unbound(model)
    declared_family = getattr(inner, "tokenizer_family", None)
    if isinstance(declared_family, str) and declared_family:
        return declared_family if declared_family in FRAMING else UNKNOWN_FAMILY
    return _class_family(inner) or UNKNOWN_FAMILY


def rules_of(model: object) -> Rules:
    """Return the rules of a model's provider; those of a server at an address of its own are unknown."""
    inner, arguments = unbound(model), arguments_of(model)
    family = _class_family(inner) or provider_named(getattr(inner, "provider", None))
    rules = RULES.get(family, UNKNOWN)
    is_marked = any(getattr(inner, mark, None) for mark in RESPONSES_MARKS)
    uses_responses = (
        is_marked or getattr(inner, "output_version", None) == "responses/v1"
    )
    if getattr(inner, "openai_api_base", None):
        rules = replace(ELSEWHERE, provider="openai" if uses_responses else "other")
    profile: Mapping[str, Any] = getattr(inner, "profile", None) or {}
    is_claude = family == "anthropic"
    # Azure's API refuses the key of a prompt cache in some of its versions.
    is_azure = any(cls.__name__ == "AzureChatOpenAI" for cls in type(inner).__mro__)
    takes_cache_key = rules.provider == "openai" and not is_azure
    is_new = (profile.get("release_date") or "") >= BREAKPOINTS_SINCE
    capabilities = getattr(inner, "capabilities", None) or ()
    edits = arguments.get("context_management")
    if isinstance(edits, Mapping):  # Anthropic's; OpenAI's is a list
        edits = edits.get("edits")
    thinking = arguments.get("thinking")
    is_manual = (
        isinstance(thinking, Mapping) and thinking.get("type") == MANUAL_THINKING
    )
    return replace(
        rules,
        takes_breakpoints=takes_cache_key
        and (is_new or CACHE_BREAKPOINTS in capabilities),
        calls_need_reasoning=rules.calls_need_reasoning or is_manual,
        takes_cache_key=takes_cache_key,
        takes_system_behind_user=is_claude
        and profile.get("mid_conversation_system_messages") is True,
        takes_betas=rules.provider == "anthropic" and hasattr(inner, "betas"),
        media_in_results=uses_responses or family not in CHAT_COMPLETIONS,
        compacts_itself=any("compact" in str(edit.get("type")) for edit in edits or ()),
        keeps_history=getattr(inner, "use_previous_response_id", False) is True,
    )


def arguments_of(model: Any) -> dict[str, Any]:
    """Return the arguments that a chat model sends with each call; those of its bindings win over its own."""
    inner, bound = unwrapped(model)
    own = {name: getattr(inner, name, None) for name in CALL_SETTINGS}
    settings = getattr(inner, "model_kwargs", None) or {}
    return {**own, **settings, **bound}


def model_name(model: Any) -> str:
    """Return the name a model states about itself, looking through bindings; empty when it states none."""
    inner = unbound(model)
    for key in ("model", "model_name", "name"):
        name = getattr(inner, key, None)
        if isinstance(name, str) and name:
            return name
    return ""


def _class_family(model: object) -> str:
    return next(
        (
            family
            for cls in type(model).__mro__
            if (family := CLASS_FAMILIES.get(cls.__name__))
        ),
        "",
    )


def unbound(model: Any) -> Any:
    """Return the model inside all bindings."""
    return unwrapped(model)[0]
