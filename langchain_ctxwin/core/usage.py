"""The usage that comes with answers (`usage_metadata`): what it cost, and which input sizes are believed.

Servers report other sizes, too: sums over the calls of a turn, the chunks of a stream or a whole session, what is left
of a request that they cut, only what was not cached. A size that contradicts the planned one is not believed before the
next report agrees with it; one that is too small never is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeGuard

from langchain_core.messages import AIMessage

from langchain_ctxwin.core.model_info import ModelInfo, exact
from langchain_ctxwin.core.provider_blocks import COMPACTION_TYPE, compaction_in
from langchain_ctxwin.core.sizing import ReportedSize, Sizes

PRICED_TOKENS = 1_000_000
"""Tokens that a price is stated for."""

MAX_TOKENS = 100_000_000
"""Above this no count has ever been: nothing that a provider reports is believed."""


SIZE_KEYS = ("input_tokens", "output_tokens")
CACHE_KEYS = (
    "cache_read",
    "cache_creation",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
)
RAW_KEYS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def count_of(value: object) -> int | None:
    """Return a stated value as a whole number of at least 0; None for anything else, and for impossible sizes."""
    return value if is_count(value) else None


def as_money(value: object) -> Decimal:
    """Read an amount of at least 0, exactly as it is written.

    Raises:
        ValueError: it is none.
    """
    amount = exact(value)
    if amount is None or amount < 0:
        raise ValueError(f"{value!r} is no amount")
    return amount


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
        size, output = (count_of(reported.get(key)) for key in SIZE_KEYS)
        if size is None:
            return cls(output_tokens=output)
        cached, total, minutes, hour = (count_of(parts.get(key)) for key in CACHE_KEYS)
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
        if self.input_tokens is None or self.output_tokens is None:
            return None
        compactions = [one.cost(info) for one in self.compactions]
        cached, written = self.cached_tokens or 0, self.cache_write_tokens or 0
        read_price, write_price = (
            info.input_price if price is None else price
            for price in (info.cache_read_price, info.cache_write_price)
        )
        hour_price = info.cache_write_hour_price
        priced = (
            (self.input_tokens - cached - written) * info.input_price
            + cached * read_price
            + (written - self.hour_write_tokens) * write_price
            + self.hour_write_tokens
            * (write_price if hour_price is None else hour_price)
            + self.output_tokens * info.output_price
        )
        known = [cost for cost in compactions if cost is not None]
        is_whole = len(known) == len(compactions)
        return sum(known, priced / PRICED_TOKENS) if is_whole else None


def _as_metadata(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's usage in LangChain's shape: there the input holds what was read from the cache and written to it."""
    size, read, written = (count_of(raw.get(key)) or 0 for key in RAW_KEYS)
    kinds = raw.get("cache_creation") or {}
    return {
        "input_tokens": size + read + written,
        "output_tokens": raw.get("output_tokens"),
        "input_token_details": {**kinds, "cache_read": read, "cache_creation": written},
    }


LEAST_SHARE = 0.5
"""Share of our count below which a size is not that of this request: rules of thumb count twice too much at most."""

LARGEST_JUMP = 1.25
"""Times the planned size that a report may have to be believed at once. With more, sums over a session that grows
evenly would be believed one after the other."""

LARGEST_FIRST_JUMP, HIDDEN_TOKENS = 2.0, 700
"""The same of a first report, or a prompt that nobody sees beside our count, such as what introduces tools."""

LEAST_SHARE_AFTER_FALL = 0.8
"""Part of its planned size, and of our count, that a request has at least when it has less than the one that it
extends: of what servers cut more is gone, of the thinking that templates drop mostly less."""

NEAR_SHARE = 0.1
"""Of a planned size: how near one without what was cached has to be to be taken for the size that has it twice."""

ROUNDING_TOKENS, MOST_GROWTH = 9, 1.5
"""By how much the growth of two reports that agree may differ from what was added: a constant and a factor."""

SAME_MULTIPLE, LARGEST_MULTIPLE = 1.1, 4.5
"""A tokenizer that needs more tokens than ours does so by the same multiple each time: up to about 2.5, and up to 4.5
for Chinese and rules of thumb. A counter of the session grows by more than a tenth from call to call until then."""

_VERSION = re.compile(r"|[-@:_](?:\d{3,}+|\d\d-\d\d|v?\d++$|latest|preview|exp|beta).*")
"""What may follow the name of a model without making it another one."""


def sent_tokens(reply: AIMessage) -> Any:
    """Return the size of the request behind an answer as its provider states it; None when it does not.

    A provider that compacted the conversation before it answered states the size of what it made of it.
    """
    if not reply.usage_metadata or compaction_in(reply):
        return None
    usage: Mapping[str, Any] = reply.usage_metadata
    tokens = usage.get("input_tokens")
    return tokens + cleared_tokens(reply) if isinstance(tokens, int) else tokens


def cleared_tokens(reply: AIMessage) -> int:
    """Return what the provider left out of the prompt by its own edits, Anthropic's `context_management`, in tokens.

    It was sent all the same, and counts again in the next request.
    """
    managed = reply.response_metadata.get("context_management")
    edits = managed.get("applied_edits") if isinstance(managed, Mapping) else None
    return sum(edit.get("cleared_input_tokens") or 0 for edit in edits or ())


def counted_once(reply: AIMessage, tokens: int, planned: int) -> int:
    """Return the reported size of a request without what was read from the cache, where a gateway added that twice.

    That is seen once the sizes of earlier requests say what this one is planned to have.

    Examples:
        >>> usage = {"input_tokens": 190, "output_tokens": 1, "total_tokens": 191}
        >>> usage["input_token_details"] = {"cache_read": 90}
        >>> counted_once(AIMessage("", usage_metadata=usage), 190, planned=101)
        100
    """
    once = tokens - (Usage.of(reply.usage_metadata).cached_tokens or 0)
    is_near = abs(once - planned) <= NEAR_SHARE * planned
    return once if is_near and tokens > LARGEST_JUMP * planned else tokens


def is_count(tokens: object) -> TypeGuard[int]:
    """True for a whole number of tokens that can be."""
    return (
        isinstance(tokens, int)
        and not isinstance(tokens, bool)
        and 0 <= tokens <= MAX_TOKENS
    )


def far_off(tokens: object, planned: int) -> str:
    """Return the sentence about a size that is not believed."""
    reported = f"{tokens:,}" if is_count(tokens) else repr(tokens)
    return f"the provider reported {reported} input tokens, far from our count of {planned:,}"


def is_believed(
    report: ReportedSize,
    sizes: Sizes,
    planned: int,
    *,
    tool_tokens: int,
    limit_tokens: int | None,
    extended_tokens: int = 0,
) -> bool:
    """True when a report is near what is planned, or bears out the one before it, which was doubted.

    Args:
        report: the reported size, and our own count of the request.
        sizes: what was reported before.
        planned: the size by the reports before it.
        tool_tokens: our count of its tools, which some servers leave out.
        limit_tokens: what the model takes: a request that it answered cannot be larger.
        extended_tokens: the reported size of a request that this one extends.
    """
    tokens, estimate = report.tokens, report.estimate
    largest = LARGEST_JUMP * max(planned, estimate)
    if not sizes.reports:
        largest = max(LARGEST_FIRST_JUMP * estimate, estimate + HIDDEN_TOKENS)
    least = LEAST_SHARE * min(planned, estimate - tool_tokens)
    if tokens < extended_tokens:
        least = LEAST_SHARE_AFTER_FALL * min(planned, estimate)
    is_over = limit_tokens is not None and tokens > limit_tokens
    return (least <= tokens <= largest and not is_over) or _agrees(report, sizes)


def _agrees(report: ReportedSize, sizes: Sizes) -> bool:
    """True when two reports in a row that are too large bear each other out.

    They do when they differ by what was added, scaled by the ratio, or are the same multiple of our counts, while
    nothing else was reported. Sums over calls are neither.
    """
    before = sizes.doubted
    if before is None or report.tokens < report.estimate:
        return False
    grown = report.tokens - before.tokens
    added = sizes.ratio * (report.estimate - before.estimate)
    least, most = sorted((added / MOST_GROWTH, added * MOST_GROWTH))
    if least - ROUNDING_TOKENS <= grown <= most + ROUNDING_TOKENS:
        return True
    smaller, larger = sorted(
        one.tokens / max(1, one.estimate) for one in (before, report)
    )
    is_same = smaller > 1 and larger <= min(LARGEST_MULTIPLE, SAME_MULTIPLE * smaller)
    return not sizes.reports and is_same


STOP_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Where the integrations keep why an answer ended (OpenAI, Mistral, Google; Anthropic; Ollama; Bedrock)."""


def stop_reasons(reply: AIMessage) -> list[str]:
    """Return why an answer ended, as its provider states it; empty when it does not."""
    metadata = reply.response_metadata
    incomplete = metadata.get("incomplete_details") or {}  # OpenAI's Responses API
    reasons = [*map(metadata.get, STOP_KEYS), incomplete.get("reason")]
    return [reason for reason in reasons if isinstance(reason, str) and reason]


def answered_by(reply: AIMessage) -> str:
    """Name of the model that answered, as the provider states it; another one after a fallback."""
    names = map(reply.response_metadata.get, ("model_name", "model"))
    return next((name for name in names if isinstance(name, str) and name), "")


def may_be(model: str, answering_model: str) -> bool:
    """True unless both names are known and are those of different models: providers add makers, dates and versions."""
    one, other = sorted(
        (name.rpartition("/")[2].lower() for name in (model, answering_model)), key=len
    )
    return not one or (
        other.startswith(one) and bool(_VERSION.fullmatch(other[len(one) :]))
    )
