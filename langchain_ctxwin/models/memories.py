"""What was learned about a model from errors, under any of its names?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from langchain_ctxwin.core.limits import Known, ModelLimits, for_everybody, stated_limit
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.models.merging import Claim


@runtime_checkable
class Memory(Protocol):
    """A source that learns, as `LearnedSource` does; it answers from memory at once, so its answers are not cached."""

    name: str

    def learn(self, model: str, limits: Mapping[str, int]) -> None:
        """Remember limits."""
        ...

    def recall(self, model: str) -> Mapping[str, int]:
        """Return the limits that were heard."""
        ...

    def fetch(self, name: str | None) -> Sequence[ModelInfo]:
        """Return what is known about one model, or about all of them."""
        ...

    def refresh(self) -> None:
        """Take over what other processes saved."""
        ...


PROVIDER = "provider"
LEARNED = "learned"
"""The tier, and by default the source, of what was learned."""


def heard(
    memories: Sequence[Memory], exact: Iterable[str], bare: Iterable[str], listed: Sequence[Claim]
) -> list[Claim]:
    """Return what was learned about a model; the first name about which something is known counts.

    What was heard with the provider (`exact`) counts as it is. What was heard under a `bare` name may be another
    provider's limit, so that it only lowers what the model's own provider states.
    """
    return _under(memories, exact) or _lowering(_under(memories, bare), listed)


def _lowering(claims: Sequence[Claim], listed: Sequence[Claim]) -> list[Claim]:
    own = [claim.info for claim in listed if claim.tier == PROVIDER]
    window = next((info.context_window for info in own if info.context_window), None)
    largest_input = next((info.max_input_tokens for info in own if info.max_input_tokens), window)
    tops = {"context_window": window, "max_input_tokens": largest_input}
    return [replace(claim, info=_capped(claim.info, tops)) for claim in claims]


def _capped(info: ModelInfo, tops: Mapping[str, int | None]) -> ModelInfo:
    """The facts without limits above those that the provider states."""
    stated = ((field, getattr(info, field), top) for field, top in tops.items() if top is not None)
    higher = [field for field, heard_tokens, top in stated if heard_tokens is not None and heard_tokens > top]
    return replace(info, **dict.fromkeys(higher)) if higher else info  # type: ignore[arg-type]  # limits may be None


def _under(memories: Iterable[Memory], names: Iterable[str]) -> list[Claim]:
    known = list(dict.fromkeys(names))
    found = []
    for memory in memories:
        infos = next((infos for name in known if (infos := memory.fetch(name))), [])
        found += [Claim(source=memory.name, tier=LEARNED, info=info) for info in infos]
    return found


def limits_in(said: Any, info: ModelInfo | None, request: Iterable[str] = ()) -> Mapping[str, int]:
    """Return the limits that an exception, an error text or a mapping states; empty when it states none.

    A mapping is the caller's own word. What a provider is to have said has to be near what is declared of the model,
    and nothing that its error only quotes of the `request`.
    """
    if isinstance(said, Mapping) and not said.keys() & {"error", "message", "detail"}:
        return said
    overflow = classify_overflow(said, request=request)
    if overflow is None:
        return {}
    stated = stated_limit(overflow, Known(limits=info.limits if info else None))
    return for_everybody(stated, declared_limits(info) if info else None)


def declared_limits(info: ModelInfo) -> ModelLimits:
    """Return the limits that a model is declared to have, by others than its refusals."""
    return ModelLimits(_declared(info, "context_window") or _declared(info, "max_input_tokens"))


def _declared(info: ModelInfo, field: str) -> int | None:
    """The largest value of a limit that somebody stated, those apart that were learned."""
    stated: list[tuple[str, object]] = [(info.provenance.get(field, ""), getattr(info, field))]
    stated += info.conflicts.get(field, {}).items()
    values = [tokens for source, tokens in stated if isinstance(tokens, int) and not source.startswith(LEARNED)]
    return max(values, default=None)
