"""Can a candidate take this request at all, and if not, why?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from langchain_core.messages import AnyMessage

from langchain_ctxwin.core.edits import MEDIA_TYPES
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.routing.candidates import Candidate
from langchain_ctxwin.models.routing.sizing import Size

MEDIA_CAPABILITIES = {"image": "images", "audio": "audio", "video": "video"}
"""What a model has to be able to take for each kind of media; files are sent as text by some integrations."""

CAPABILITY_REASONS = {
    "tools": "cannot call tools, and the request has some",
    "images": "cannot take images, and the request has some",
    "audio": "cannot take audio, and the request has some",
    "video": "cannot take video, and the request has some",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one request asks of a model."""

    sizes: Mapping[str, Size]
    """Input tokens by tokenizer family."""

    capabilities: tuple[str, ...]
    today: date
    output_tokens: int | None = None
    """Tokens that the call asks for: a model has to be able to write as many."""

    reserve: int | None = None
    """Tokens to keep for the answer; None leaves it to each candidate's own setting."""

    above_tokens: int = 0
    """A size at which a model refused this very request: only a larger input limit can help."""


def unfit(candidate: Candidate, needs: Needs) -> str:
    """Return why a candidate cannot take the request, with numbers; empty when it can."""
    return unable(candidate, needs) or too_small(candidate, needs)


def unable(candidate: Candidate, needs: Needs) -> str:
    """Return why a candidate cannot take such a request of any size; empty when it can, or when nobody says."""
    retires = candidate.info.retires_on
    if retires is not None and retires <= needs.today:
        return f"retired on {retires.isoformat()}"
    lacking = next((name for name in needs.capabilities if candidate.states(name) is False), None)
    if lacking is not None:
        return CAPABILITY_REASONS.get(lacking, f"lacks the required capability {lacking!r}")
    largest, asked = candidate.limits.max_output_tokens, needs.output_tokens
    if largest is not None and asked is not None and asked > largest:
        return f"can write {largest:,} tokens, the request asks for {asked:,}"
    return ""


def too_small(candidate: Candidate, needs: Needs) -> str:
    """Return by how much a request is too large for a candidate; empty when it fits."""
    limit = input_limit(candidate, needs)
    size = needs.sizes[candidate.family]
    if size.upper > limit or not limit:
        may_need = f"may need {size.upper:,} input tokens (count {size.tokens:,})"
        return f"{may_need}, its limit is {_limit_text(candidate, needs)}"
    if limit <= needs.above_tokens:  # 0 where nobody refused
        return f"its limit is {_limit_text(candidate, needs)}, a model with {needs.above_tokens:,} refused the request"
    return ""


def surely_too_small(candidate: Candidate, needs: Needs) -> bool:
    """True when even the lower bound of the request is over the limit."""
    limit = input_limit(candidate, needs)
    return needs.sizes[candidate.family].lower > limit or limit <= needs.above_tokens


def input_limit(candidate: Candidate, needs: Needs) -> int:
    """Return the input tokens that a candidate takes beside its answer; 0 when the answer alone fills its window."""
    try:
        return candidate.limits.input_limit(_reserve(candidate, needs))
    except ConfigError:  # the reserve leaves no input: a fact about this candidate, not a fault of the request
        return 0


def capabilities_for(messages: Sequence[AnyMessage], tools: Sequence[Any], requires: Iterable[str]) -> tuple[str, ...]:
    """Return the capabilities that a request needs."""
    media = (MEDIA_CAPABILITIES[kind] for kind in _media(messages))
    return tuple(dict.fromkeys([*(["tools"] if tools else []), *media, *requires]))


def _reserve(candidate: Candidate, needs: Needs) -> int:
    return candidate.limits.output_reserve(needs.reserve)


def _limit_text(candidate: Candidate, needs: Needs) -> str:
    limit, window = input_limit(candidate, needs), candidate.limits.context_window
    if window is None or window == limit:
        return f"{limit:,}"
    return f"{limit:,} (window {window:,}, {_reserve(candidate, needs):,} kept for the answer)"


def _media(messages: Sequence[AnyMessage]) -> Iterator[str]:
    """The kinds of media in the request; only list content holds any."""
    for message in messages:
        for block in message.content if isinstance(message.content, list) else ():
            kind = _kind(block) if isinstance(block, dict) else ""
            if kind in MEDIA_CAPABILITIES:
                yield kind


def _kind(block: Mapping[str, Any]) -> str:
    """The kind of a block by its type, else by the media type it states (`image/png`)."""
    kind = MEDIA_TYPES.get(str(block.get("type")), "")
    stated = str(block.get("mime_type") or "").partition("/")[0]
    return stated if kind == "file" and stated in MEDIA_CAPABILITIES else kind
