"""What fills a request: the budget of one request, its table, and the refusal when nothing can make it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_ctxwin.core.limits import require_tokens
from langchain_ctxwin.errors import BudgetExceededError

REGIONS = {
    "system": "system_tokens",
    "tools": "tool_tokens",
    "summary": "summary_tokens",
    "pinned": "pinned_tokens",
    "history": "history_tokens",
}
"""The regions that make up the input, by the name they are shown under, with their key in a `context_report`."""

ADVICE = {
    "system": "shorten the system prompt",
    "tools": "bind fewer tools",
    "summary": "lower summary_max_tokens or record_share",
    "pinned": "unpin messages",
    "history": "shorten the current message",
}
"""What makes each region smaller."""

# A region that takes this share of its limit is worth advice: shrinking a smaller one rarely makes a request fit.
LARGE_SHARE = 0.25
# Pinned messages and constraints named in a refusal: the largest are what has to change, and a screen shows them.
MAX_NAMED = 20


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
        for name in self.__slots__:
            tokens = getattr(self, name)
            if type(tokens) is not int or tokens < 0:  # made with every measure, and then always right
                require_tokens(name, tokens)

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
    limit, window, total = _tokens(report, "input_limit"), _tokens(report, "context_window"), _total(report)
    # By the total that stands above it; of one within the limit, by its upper bound.
    over_by = max(0, total - limit) or _tokens(report, "over_by")
    sizes = {"input limit": limit, **_regions(report), "total": total, "over by": over_by}
    rows = [
        ("region", "tokens", "of limit"),
        ("context window", f"{window:,}" if window else "unknown", ""),
        ("output reserve", f"{_tokens(report, 'reserved_tokens'):,}", ""),
        *((name, f"{tokens:,}", f"{tokens / limit:.1%}" if limit else "") for name, tokens in sizes.items()),
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
    kept_tokens, total, limit = sum(part.tokens for part in kept), _total(report), _tokens(report, "input_limit")
    advice = _advice(report)
    headline = _headline(report, advice)
    if kept and total - kept_tokens <= limit:
        headline = (
            f"pinned messages and constraints need {kept_tokens:,} of {limit:,} tokens, the rest at its smallest "
            f"{max(0, total - kept_tokens):,}: unpin or shorten some of them, or raise context_window"
        )
        advice.insert(
            0, "unpin or shorten pinned messages, drop or shorten constraints: the list above has their sizes"
        )
    parts = [headline, budget_table(report)]
    if kept:
        by_size = sorted(kept, key=lambda part: -part.tokens)
        lines = [f"- {part.name}: {part.tokens:,} tokens" for part in by_size[:MAX_NAMED]]
        if more := by_size[MAX_NAMED:]:
            lines.append(f"- {len(more):,} more: {sum(part.tokens for part in more):,} tokens")
        parts.append("\n".join(("Verbatim in every request:", *lines)))
    parts.append("\n".join(("What to change:", *(f"- {line}" for line in dict.fromkeys([*advice, *changes])))))
    return BudgetExceededError("\n\n".join(parts), report=report)


def _headline(report: Mapping[str, object], advice: Sequence[str]) -> str:
    """One readable sentence: the sizes and the first piece of advice."""
    regions, limit, needed = _regions(report), _tokens(report, "input_limit"), _total(report)
    subject, fixed = "the request needs", {name: size for name, size in regions.items() if name != "history"}
    if sum(fixed.values()) > limit:
        subject, regions, needed = "fixed regions need", fixed, sum(fixed.values())
    sizes = ", ".join(f"{name} {tokens:,}" for name, tokens in regions.items() if tokens)
    detail = f" ({sizes})" if sizes else ""
    change = " or ".join([*(advice[:1] if len(advice) > 1 else ()), "raise context_window"])
    return f"{subject} {needed:,} of {limit:,} tokens{detail}: {change}"


def _advice(report: Mapping[str, object]) -> list[str]:
    """Advice for the large regions, largest first, then the reserve, then the window."""
    limit, window = _tokens(report, "input_limit"), _tokens(report, "context_window")
    by_size = sorted(_regions(report).items(), key=lambda region: -region[1])
    advice = [ADVICE[name] for name, tokens in by_size if tokens >= LARGE_SHARE * limit and tokens]
    if window and _tokens(report, "reserved_tokens") >= LARGE_SHARE * window:
        advice.append("lower output_reserve")
    return [*advice, "raise context_window (use a model with a larger one)"]


def _regions(report: Mapping[str, object]) -> dict[str, int]:
    return {name: _tokens(report, key) for name, key in REGIONS.items()}


def _total(report: Mapping[str, object]) -> int:
    return _tokens(report, "total_tokens") or sum(_regions(report).values())


def _tokens(report: Mapping[str, object], key: str) -> int:
    value = report.get(key)
    return value if isinstance(value, int) else 0
