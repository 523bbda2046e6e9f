"""What fills a request: the budget of one request, its table, and the refusal when nothing can make it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.errors import BudgetExceededError

LARGE_SHARE = 0.25
"""A region that takes this share of its limit is worth advice: shrinking a smaller one rarely makes a request fit."""

HEADLINE_ADVICE = 2
"""Pieces of advice in the headline, which must stay one readable sentence; the full list follows the table."""

REGIONS = {
    "system": "system_tokens",
    "tools": "tool_tokens",
    "summary": "summary_tokens",
    "pinned": "pinned_tokens",
    "history": "history_tokens",
}
"""The regions that make up the input, by the name they are shown under, with their key in a `context_report`."""

FIXED_REGIONS = ("system", "tools", "summary", "pinned")
"""The regions that dropping history cannot shrink."""

ADVICE = {
    "system": "shorten the system prompt",
    "tools": "bind fewer tools",
    "summary": "lower summary_max_tokens",
    "pinned": "unpin messages",
    "history": "shorten the current message",
}
"""What makes each region smaller."""

KEPT_ADVICE = "unpin or shorten pinned messages, drop or shorten constraints: the list above has their sizes"

MAX_NAMED = 20
"""Pinned messages and constraints named in a refusal: the largest are what has to change, and a screen shows them."""

RESERVE_ADVICE = "lower output_reserve"
WINDOW_ADVICE = "raise context_window (use a model with a larger one)"


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How the input limit of one request is divided, in tokens.

    Raises:
        ConfigError: a value is negative or not a whole number.

    Examples:
        >>> TokenBudget(8192, 1000, 2000, 300, 200, 2048).history_budget
        4692
    """

    input_limit: int
    """Largest input; the output reserve is already taken off."""

    system_tokens: int
    tool_tokens: int
    summary_tokens: int
    pinned_tokens: int

    reserved_tokens: int
    """Kept for the answer, beside the input."""

    def __post_init__(self) -> None:
        for field in fields(self):
            require_tokens(field.name, getattr(self, field.name))

    @property
    def fixed_tokens(self) -> int:
        """Tokens of the regions that are in every request: system prompt, tools, summary and pinned messages."""
        return self.system_tokens + self.tool_tokens + self.summary_tokens + self.pinned_tokens

    @property
    def history_budget(self) -> int:
        """Tokens left for the history; 0 when the fixed regions alone fill the input limit."""
        return max(0, self.input_limit - self.fixed_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A pinned message or a constraint, as a refusal names it."""

    name: str
    tokens: int


def budget_table(report: Mapping[str, object]) -> str:
    """Print the regions of a `context_report` as a table of fixed width: tokens and share of the input limit.

    Regions that the report leaves out count as 0; an unknown context window is shown as `unknown`.
    """
    limit = _tokens(report, "input_limit")
    window = _tokens(report, "context_window")
    sizes = [(name, f"{tokens:,}", _share(tokens, limit)) for name, tokens in _regions(report).items()]
    rows = [
        ("region", "tokens", "of limit"),
        ("context window", f"{window:,}" if window else "unknown", ""),
        ("output reserve", f"{_tokens(report, 'reserved_tokens'):,}", ""),
        ("input limit", f"{limit:,}", _share(limit, limit)),
        *sizes,
        ("total", f"{_total(report):,}", _share(_total(report), limit)),
        ("over by", f"{_over_by(report):,}", _share(_over_by(report), limit)),
    ]
    return "\n".join(f"{name:<14}{tokens:>14}{share:>11}".rstrip() for name, tokens, share in rows)


def refusal(
    report: Mapping[str, object], *, changes: Sequence[str] = (), kept: Sequence[Kept] = ()
) -> BudgetExceededError:
    """Build the error for a request that nothing can make fit: a headline, the table, and what to change.

    Args:
        report: the `context_report` of the request at its smallest.
        changes: further pieces of advice that only the caller can know; they follow those that the sizes suggest.
        kept: explicit pins and constraints; the headline blames them when the request would fit without them.
    """
    is_crowded = bool(kept) and _total(report) - _tokens_of(kept) <= _tokens(report, "input_limit")
    advice = list(dict.fromkeys([*([KEPT_ADVICE] if is_crowded else []), *_advice(report), *changes]))
    parts = (
        _crowded_headline(report, kept) if is_crowded else _headline(report),
        budget_table(report),
        *(("\n".join(("Verbatim in every request:", *_named(kept))),) if kept else ()),
        "\n".join(("What to change:", *(f"- {line}" for line in advice))),
    )
    return BudgetExceededError("\n\n".join(parts), report=report)


def _crowded_headline(report: Mapping[str, object], kept: Sequence[Kept]) -> str:
    needed, limit = _tokens_of(kept), _tokens(report, "input_limit")
    rest = max(0, _total(report) - needed)
    return (
        f"pinned messages and constraints need {needed:,} of {limit:,} tokens, the rest at its smallest {rest:,}: "
        "unpin or shorten some of them, or raise context_window"
    )


def _named(kept: Sequence[Kept]) -> list[str]:
    """One line each, the largest first; many small ones share a line."""
    by_size = sorted(kept, key=lambda part: -part.tokens)
    lines = [f"- {part.name}: {part.tokens:,} tokens" for part in by_size[:MAX_NAMED]]
    more = by_size[MAX_NAMED:]
    return [*lines, f"- {len(more):,} more: {_tokens_of(more):,} tokens"] if more else lines


def _tokens_of(kept: Sequence[Kept]) -> int:
    return sum(part.tokens for part in kept)


def _headline(report: Mapping[str, object]) -> str:
    regions, limit = _regions(report), _tokens(report, "input_limit")
    fixed = {name: regions[name] for name in FIXED_REGIONS}
    only_fixed = sum(fixed.values()) > limit
    subject, shown = ("fixed regions need", fixed) if only_fixed else ("the request needs", regions)
    needed = sum(fixed.values()) if only_fixed else _total(report)
    sizes = ", ".join(f"{name} {tokens:,}" for name, tokens in shown.items() if tokens)
    detail = f" ({sizes})" if sizes else ""
    return f"{subject} {needed:,} of {limit:,} tokens{detail}: {' or '.join(_headline_advice(report))}"


def _headline_advice(report: Mapping[str, object]) -> list[str]:
    advice = _advice(report)
    return [*advice[: HEADLINE_ADVICE - 1], "raise context_window"] if len(advice) > 1 else ["raise context_window"]


def _advice(report: Mapping[str, object]) -> list[str]:
    """Advice for the large regions, largest first, then the reserve, then the window."""
    limit, window = _tokens(report, "input_limit"), _tokens(report, "context_window")
    by_size = sorted(_regions(report).items(), key=lambda region: -region[1])
    advice = [ADVICE[name] for name, tokens in by_size if tokens >= LARGE_SHARE * limit and tokens]
    if window and _tokens(report, "reserved_tokens") >= LARGE_SHARE * window:
        advice.append(RESERVE_ADVICE)
    return [*advice, WINDOW_ADVICE]


def _regions(report: Mapping[str, object]) -> dict[str, int]:
    return {name: _tokens(report, key) for name, key in REGIONS.items()}


def _total(report: Mapping[str, object]) -> int:
    return _tokens(report, "total_tokens") or sum(_regions(report).values())


def _over_by(report: Mapping[str, object]) -> int:
    """By the total that stands above it; of one within the limit, by its upper bound."""
    return max(0, _total(report) - _tokens(report, "input_limit")) or _tokens(report, "over_by")


def _tokens(report: Mapping[str, object], key: str) -> int:
    value = report.get(key)
    return value if isinstance(value, int) else 0


def _share(tokens: int, limit: int) -> str:
    return f"{tokens / limit:.1%}" if limit else ""
