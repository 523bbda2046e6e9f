"""What was learned about a model from errors, under any of its names?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.overflow import classify_overflow
from langchain_ctxwin.core.recovery import LEAST_LIMIT_TOKENS
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


def heard(memories: Iterable[Memory], names: Iterable[str]) -> list[Claim]:
    """Return what was learned under these names; the first name about which something is known counts."""
    known = list(dict.fromkeys(names))
    found = []
    for memory in memories:
        infos = next((infos for name in known if (infos := memory.fetch(name))), [])
        found += [Claim(source=memory.name, tier="learned", info=info) for info in infos]
    return found


def limits_in(said: Any, known: ModelLimits | None) -> Mapping[str, int]:
    """Return the limits that an exception, an error text or a mapping states; empty when it states none.

    A limit of the input corrects a window that is known to be shared with the output.
    """
    if isinstance(said, Mapping) and not said.keys() & {"error", "message", "detail"}:
        return said
    overflow = classify_overflow(said)
    if overflow is None or overflow.limit is None or overflow.limit < LEAST_LIMIT_TOKENS:
        return {}
    window = known.context_window if known and known.max_input_tokens is None else None
    is_joint = overflow.kind == "input_plus_output" or (window is not None and overflow.limit <= window)
    return {"context_window" if is_joint else "max_input_tokens": overflow.limit}
