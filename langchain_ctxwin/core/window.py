"""One measured request: its regions, its report, and everything plan and apply need."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage

from langchain_ctxwin.core.compaction import Compaction, Goal
from langchain_ctxwin.core.limits import ModelLimits, TokenBudget
from langchain_ctxwin.core.model_info import ModelInfo
from langchain_ctxwin.core.priced_view import PricedView, RequestParts
from langchain_ctxwin.core.session import Session
from langchain_ctxwin.core.sizing import Sizes
from langchain_ctxwin.core.turns import Turn

CountedBy = Literal["usage", "estimate", "exact"]

Stopped = Literal["", "summaries_ineffective", "fixed_regions"]
"""Why no summary is tried: the last ones failed or freed too little (for 1, 2, 4, ... user messages), or the regions
that cannot leave are past the trigger by themselves (until the prompt, the tools or the pins get smaller)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extends:
    """The latest request with a reported size that this one extends."""

    index: int
    """Position of its answer."""

    tokens: int
    """What the provider reported."""

    added: tuple[int, ...]
    """Our estimates of the steps from its answer on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a request is for."""

    model: str
    """Name of the model that it goes to; empty when unknown."""

    tools: Sequence[Any]
    """The tool definitions bound to it."""

    tools_digest: str
    """Fingerprint of the tool definitions."""

    tool_tokens: Callable[[Sequence[Any]], int]
    """Prices tool definitions."""

    is_exact: Callable[[], bool]
    """Whether the counter is exact; asked after pricing, because one that failed no longer is."""

    declared: ModelLimits | None = None
    """What is stated about the model's limits beside what was learned from refusals."""

    info: ModelInfo | None = None
    """Prices of the model, where who chose it knows them."""

    settings: Any = None
    """The settings that held when the request began; whatever is decided about it goes by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One request as measured: what is in it, what it costs, and whether it fits. It lives for one step."""

    report: dict[str, Any]
    """The `context_report`: tokens per region, limits, utilization."""

    budget: TokenBudget
    over_by: int
    """Tokens by which the request may exceed its input limit, on the upper bound of its size; 0 when it fits."""

    limits: ModelLimits
    """The limits of this request's model, as far as they are known or were learned."""

    about: About
    answering_model: str
    """Name under which the model answers."""

    digest: str
    """Fingerprint of everything before the history; a reported size is only comparable under the same one."""

    extends: Extends | None
    """The reported size of an earlier request that this one extends; None when there is none."""

    request: RequestParts
    priced_view: PricedView
    session: Session
    goal: Goal

    @property
    def messages(self) -> list[AnyMessage]:
        """The view: pinned messages and history as the model sees them, without the system message."""
        return [
            *(message for step in self.priced_view.pinned for message in step.messages),
            *self.priced_view.shown.messages,
        ]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The history in the view, by turn and step, priced."""
        return self.priced_view.turns

    def fits_after(self, compaction: Compaction) -> bool:
        """True when the request may be sent once the compaction is carried out."""
        return self.over_by == 0 or compaction.upper_after <= self.goal.limit

    @property
    def total_tokens(self) -> int:
        """Input tokens of the request, the reserve excluded."""
        return int(self.report["total_tokens"])

    @property
    def history_tokens(self) -> int:
        """Tokens of the history in the view."""
        return int(self.report["history_tokens"])


def rebased(priced_view: PricedView, sizing: Sizes, extends: Extends | None, checked: int | None) -> PricedView:
    """Return it with the best known size: checked by the provider, else an extension of what it reported."""
    if checked is not None:
        return replace(priced_view, size=priced_view.size.known(checked))
    if extends is None:
        return priced_view
    return replace(priced_view, size=sizing.extended(priced_view.size, extends.tokens, extends.added))


def checked_tokens(priced_view: PricedView, session: Session, digest: str) -> int | None:
    """Return what the provider counted for exactly this request, when it was asked."""
    checked = session.counts.get("checked") or {}
    same = checked.get("digest") == digest and checked.get("estimate") == priced_view.estimates.total_tokens
    return int(checked["tokens"]) if same else None


def fingerprint(priced_view: PricedView, tools_digest: str, model: str) -> str:
    """Return the digest of the model, of everything that precedes the history, and of how the history is shown."""
    preamble = priced_view.preamble
    parts = (
        str(preamble.system.content) if preamble.system else "",
        preamble.constraints,
        preamble.record,
        preamble.placement,
        tools_digest,
        model,
        json.dumps(_shown(priced_view)),
    )
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _shown(priced_view: PricedView) -> list[Any]:
    """Where the view begins, what is pinned and what is edited: by place, because ids may differ from call to call."""
    view = priced_view.view
    edited = {*view.cleared, *view.clamped, *view.without_media}
    messages = (
        (message for step in (*priced_view.pinned, *priced_view.steps) for message in step.messages) if edited else ()
    )
    places = [place for place, message in enumerate(messages) if message.id in edited]
    clamps = sorted((clamp.head_chars, clamp.tail_chars) for clamp in view.clamped.values())
    nameless = sorted(key for key in edited if key.startswith("#"))
    pinned = [step.checksum for step in priced_view.pinned]
    shown = [priced_view.start, pinned, len(view.cleared), places, clamps, nameless]
    return [*shown, len(view.without_media)] if view.without_media else shown


def make_report(
    priced_view: PricedView,
    budget: TokenBudget,
    *,
    context_window: int,
    counted_by: CountedBy,
    guard: Mapping[str, Any],
    clamped: Mapping[str, list[int]] | None = None,
    stopped: Stopped = "",
) -> dict[str, Any]:
    """Return the `context_report`; its regions add up to `total_tokens`.

    `clamped` has the current user message and the newest results that are cut: by id, tokens shown and of how many.
    """
    regions = priced_view.size.regions
    return {
        "context_window": context_window,
        "input_limit": budget.input_limit,
        "system_tokens": regions.system_tokens,
        "tool_tokens": regions.tool_tokens,
        "summary_tokens": regions.summary_tokens,
        "pinned_tokens": regions.pinned_tokens,
        "history_tokens": regions.history_tokens,
        "reserved_tokens": budget.reserved_tokens,
        "total_tokens": priced_view.total_tokens,
        "utilization": round(priced_view.total_tokens / budget.input_limit, 4),
        "over_by": max(0, priced_view.upper_tokens - budget.input_limit),
        "counted_by": counted_by,
        "compactions": int(guard.get("compactions", 0)),
        "dropped_turns": int(guard.get("dropped_turns", 0)),
        "clamped": dict(clamped or {}),
        "stopped": stopped,
    }


def latest_report(
    request: RequestParts, priced_view: PricedView, session: Session, digest: str, told: tuple[int, int] | None
) -> Extends | None:
    """Return the reported size of an earlier request that this one extends, by walking back over what was added.

    Without an anchor that is `told`: the position and the size that came with an answer in the history.
    """
    anchor = session.counts.get("anchor")
    if not (anchor or told) or (anchor and anchor.get("digest") != digest):
        return None
    added = list[int]()
    counted = priced_view.estimates.total_tokens
    for place in range(len(priced_view.shown) - 1, -1, -1):
        step = priced_view.shown[place]
        added.append(step.tokens)
        counted -= step.tokens
        tokens = _reported(request.messages[step.index], step.index, anchor, told)
        if tokens:
            # An edit of what the provider counted shows as another estimate or as another checksum of it.
            checksum = priced_view.shown.checksums[place]
            edited = anchor and (anchor.get("estimate"), anchor.get("checksum", checksum)) != (counted, checksum)
            return None if edited else Extends(index=step.index, tokens=tokens, added=tuple(added))
    return None


def _reported(caller: AnyMessage, at: int, anchor: Mapping[str, Any] | None, told: tuple[int, int] | None) -> int:
    """Prompt size that the provider reported with the AI message that opens a step; 0 when that is not the one."""
    if not isinstance(caller, AIMessage):
        return 0
    if anchor:
        return int(anchor["tokens"]) if caller.id == anchor["id"] else 0
    return told[1] if told and told[0] == at else 0
