"""Merging: one `ModelInfo` from what several sources say, by trust, of catalogs the smaller limit, conflicts kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_ctxwin.core.limits import GUESS_FACTOR, ModelLimits
from langchain_ctxwin.core.model_info import PRICE_FIELDS, ModelInfo

TIERS = ("explicit", "learned", "provider", "profile", "catalog", "guess")
"""Kinds of sources in order of trust."""

CATALOG = "catalog"
GUESS = "guess"
LEARNED = "learned"
"""The tier, and by default the source, of what was learned."""

LIMIT_FIELDS = ("context_window", "max_input_tokens", "max_output_tokens")

CAUTIOUS_FIELDS = frozenset({*LIMIT_FIELDS, "retires_on"})
"""Fields of which the smallest value counts inside the catalog tier: none of the tables is better than the others, a
limit that is too large fails requests, and a retirement that is noticed too late does too."""

FIELDS = (*LIMIT_FIELDS, *PRICE_FIELDS, "capabilities", "tokenizer_family", "retires_on")
"""Fields that have one value; `deprecated` and `aliases` are collected from all sources instead."""

SHOWN_FIELDS = (*FIELDS, "deprecated", "aliases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one source says about one model."""

    source: str
    tier: str
    info: ModelInfo


_Stated = tuple[Claim, Any]
"""One value of one field, and the claim that states it."""


def in_order(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims by trust; those of one tier stay in their order."""
    return sorted(claims, key=lambda claim: TIERS.index(claim.tier))


def merged(name: str, provider: str | None, claims: Iterable[Claim]) -> ModelInfo:
    """Return one `ModelInfo` from all claims about a model; never raises, whatever they contradict.

    Per field the first tier that states it counts, and in it the first source; of catalogs the smallest limit.
    `conflicts` keeps every other value. Limits of different sources that contradict each other:

    - An input limit above the window: the less trusted of both leaves. A window that had to leave is replaced by the
      input limit, because a window is at least as large as what goes in; in the same tier the window stays.
    - An output limit above the window leaves: requests are sized by the window.
    """
    ordered = in_order(claims)
    values = {field: stated for field in SHOWN_FIELDS if (stated := _stated(ordered, field))}
    taken = {field: _first(field, stated) for field, stated in values.items()}
    _reconcile(taken)
    names = (other for claim in ordered for other in (claim.info.name, *claim.info.aliases))
    facts = {field: value for field, (_, value) in taken.items()}
    return ModelInfo(
        name=name,
        provider=provider,
        **facts | {"aliases": tuple(dict.fromkeys(other for other in names if other != name))},
        provenance={field: claim.source for field, (claim, _) in taken.items()},
        conflicts={field: others for field in FIELDS if (others := _others(values.get(field, ()), facts.get(field)))},
    )


def guessed(info: ModelInfo) -> ModelInfo:
    """Return the facts with a window guessed from the output limit, where no input limit is known; else unchanged."""
    if info.limits.known or info.max_output_tokens is None:
        return info
    window = GUESS_FACTOR * info.max_output_tokens
    return replace(info, context_window=window, provenance={**info.provenance, "context_window": GUESS})


def declared_limits(info: ModelInfo) -> ModelLimits:
    """Return the limits that a model is declared to have, by others than its refusals."""
    return ModelLimits(_declared(info, "context_window") or _declared(info, "max_input_tokens"))


def _declared(info: ModelInfo, field: str) -> int | None:
    """The largest value of a limit that somebody stated, those apart that were learned."""
    stated: list[tuple[str, object]] = [(info.provenance.get(field, ""), getattr(info, field))]
    stated += info.conflicts.get(field, {}).items()
    values = [tokens for source, tokens in stated if isinstance(tokens, int) and not source.startswith(LEARNED)]
    return max(values, default=None)


def stated_value(info: ModelInfo, field: str) -> Any:
    """Return what a source states about a field, or None when it states nothing."""
    value = getattr(info, field)
    return None if value is False or value in ((), frozenset()) else value


def _stated(ordered: Sequence[Claim], field: str) -> list[_Stated]:
    found = ((claim, stated_value(claim.info, field)) for claim in ordered)
    return [(claim, value) for claim, value in found if value is not None]


def _first(field: str, stated: Sequence[_Stated]) -> _Stated:
    if stated[0][0].tier != CATALOG or field not in CAUTIOUS_FIELDS:
        return stated[0]
    return min(((claim, value) for claim, value in stated if claim.tier == CATALOG), key=lambda one: one[1])


def _reconcile(taken: dict[str, _Stated]) -> None:
    """Drop what contradicts better statements, so that the limits can stand together."""
    window, largest_input = taken.get("context_window"), taken.get("max_input_tokens")
    if window and largest_input and largest_input[1] > window[1]:
        if TIERS.index(largest_input[0].tier) < TIERS.index(window[0].tier):
            taken["context_window"] = largest_input
        else:
            del taken["max_input_tokens"]
    window, largest_output = taken.get("context_window"), taken.get("max_output_tokens")
    if window and largest_output and largest_output[1] > window[1]:
        del taken["max_output_tokens"]


def _others(stated: Sequence[_Stated], taken: object) -> dict[str, object]:
    """The values that were not taken, by source; further ones of a source that contradicts itself are numbered."""
    others: dict[str, object] = {}
    numbers: Counter[str] = Counter()
    for source, value in dict.fromkeys((claim.source, value) for claim, value in stated if value != taken):
        numbers[source] += 1
        others[source if numbers[source] == 1 else f"{source} ({numbers[source]})"] = value
    return others
