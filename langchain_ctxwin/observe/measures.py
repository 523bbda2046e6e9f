"""How well did many requests use their models: limits kept, windows filled, money spent, failures survived?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from langchain_ctxwin.observe.records import RequestRecord

Amount = int | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One amount over another, summed over the requests that state both; those of two batches can be added.

    Requests that the question does not concern are in neither number; those that do not say enough are in `unknown`.
    """

    numerator: Amount = 0
    denominator: Amount = 0
    requests: int = 0
    """Requests that are counted in the two amounts."""

    unknown: int = 0
    """Requests that do not state what is asked."""

    @property
    def value(self) -> float | None:
        """The numerator over the denominator; None when nothing is known, or all of it is 0."""
        return float(Fraction(self.numerator) / Fraction(self.denominator)) if self.denominator else None

    @property
    def is_boundless(self) -> bool:
        """True for something over nothing: there is no value, and it is more than any bound allows."""
        return self.numerator > 0 and not self.denominator

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(
            numerator=self.numerator + other.numerator,
            denominator=self.denominator + other.denominator,
            requests=self.requests + other.requests,
            unknown=self.unknown + other.unknown,
        )


UNKNOWN = Ratio(unknown=1)
NOT_CONCERNED = Ratio()


def limit_compliance(records: Iterable[RequestRecord]) -> Ratio:
    """Requests within their model's input limit, of all; one that a provider refused as too long was not."""
    return _total(_compliance(record) for record in records)


def utilization(records: Iterable[RequestRecord]) -> Ratio:
    """Input tokens over input limits. A request counts by the size of its limit: windows are what is paid for."""
    return _total(_over(record.input_tokens, record.input_limit) for record in records)


def routing_shares(records: Iterable[RequestRecord]) -> dict[str, Ratio]:
    """Share of the routed requests per reason, the most frequent first; the shares add up to 1."""
    counts = Counter(record.reason for record in records)
    unknown = counts.pop("", 0)
    routed = counts.total()
    return {
        reason: Ratio(numerator=count, denominator=routed, requests=routed, unknown=unknown)
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    }


def optimal_routing(records: Iterable[RequestRecord]) -> Ratio:
    """Requests whose model was judged the best choice, of those that were judged."""
    return _total(_yes(record.optimal) for record in records)


def cost_against_largest(records: Iterable[RequestRecord]) -> Ratio:
    """What the requests cost, over what they cost if the candidate with the largest window had answered them all."""
    return _total(_over(record.cost, record.largest_cost) for record in records)


def fallback_success(records: Iterable[RequestRecord]) -> Ratio:
    """Requests that got an answer, of those whose first candidate failed, whether or not another one was there."""
    return _total(_survived(record) for record in records)


def token_efficiency(records: Iterable[RequestRecord]) -> Ratio:
    """Useful tokens over all that were consumed.

    Tool definitions carry no part of the conversation, so they are not useful, and nothing of a request that got no
    answer is.
    """
    return _total(_efficiency(record) for record in records)


def reserve_waste(records: Iterable[RequestRecord]) -> Ratio:
    """Tokens kept free for answers that the answers did not take, over all that were kept free."""
    return _total(_waste(record) for record in records)


def measures(records: Iterable[RequestRecord]) -> Mapping[str, Ratio]:
    """Every ratio by its name, the routing shares excepted."""
    kept = tuple(records)
    return {
        "limit_compliance": limit_compliance(kept),
        "fallback_success": fallback_success(kept),
        "cost_against_largest": cost_against_largest(kept),
        "optimal_routing": optimal_routing(kept),
        "utilization": utilization(kept),
        "token_efficiency": token_efficiency(kept),
        "reserve_waste": reserve_waste(kept),
    }


def _total(ratios: Iterable[Ratio]) -> Ratio:
    return sum(ratios, NOT_CONCERNED)


def _over(part: Amount | None, whole: Amount | None) -> Ratio:
    if part is None or whole is None:
        return UNKNOWN
    return Ratio(numerator=part, denominator=whole, requests=1)


def _yes(fact: bool | None) -> Ratio:
    return _over(None if fact is None else int(fact), 1)


def _compliance(record: RequestRecord) -> Ratio:
    if record.overflows:
        return _yes(False)
    if record.input_limit is None or record.input_tokens is None:
        return UNKNOWN
    return _yes(record.input_tokens <= record.input_limit)


def _survived(record: RequestRecord) -> Ratio:
    if record.succeeded and record.fallbacks == 0:
        return NOT_CONCERNED
    return UNKNOWN if record.succeeded and record.fallbacks is None else _yes(record.succeeded)


def _efficiency(record: RequestRecord) -> Ratio:
    written = record.output_tokens if record.succeeded else record.output_tokens or 0
    if record.input_tokens is None or record.tool_tokens is None or written is None:
        return UNKNOWN
    useful = max(0, record.input_tokens - record.tool_tokens) + written if record.succeeded else 0
    return _over(useful, record.input_tokens + written)


def _waste(record: RequestRecord) -> Ratio:
    if record.reserved_tokens is None or record.output_tokens is None:
        return UNKNOWN
    return _over(max(0, record.reserved_tokens - record.output_tokens), record.reserved_tokens)
