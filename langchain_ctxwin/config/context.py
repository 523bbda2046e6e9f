"""When is the history compacted, and what is kept of it?"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from langchain_ctxwin.config.settings import Settings
from langchain_ctxwin.config.times import Seconds
from langchain_ctxwin.errors import ConfigError

Share = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A share of the history budget when at most 1, else an absolute number of tokens."""


def _named(names: tuple[str, ...]) -> tuple[str, ...]:
    if not all(name.strip() for name in names):
        raise ValueError("a tool has no name: give the names of tools as the model calls them")
    return names


ToolNames = Annotated[tuple[str, ...], AfterValidator(_named)]
"""Names of tools, as the model calls them."""


LEAN_TOKENS = 8_000
"""Room for history at which a call costs least: by closed form for steps of 760 tokens and a tenth kept it is 6,000 to
10,000 tokens, whatever the window."""

PRESETS: dict[str, dict[str, Any]] = {
    "balanced": {},
    "lean": {"max_history_tokens": LEAN_TOKENS, "keep": 0.1},
    "roomy": {"keep": 0.65},
}


class ContextConfig(Settings):
    """When to compact, what to keep, and how the summary is shown.

    Environment variables: `CTXWIN_CONTEXT_<FIELD>`, e.g. `CTXWIN_CONTEXT_TRIGGER=0.8`.

    Example:
        >>> ContextConfig(trigger=0.9, keep=0.4).trigger
        0.9
    """

    model_config = SettingsConfigDict(env_prefix="CTXWIN_CONTEXT_")

    @classmethod
    def preset(cls, name: Literal["balanced", "lean", "roomy"], **overrides: Any) -> ContextConfig:
        """Return settings for one purpose, with any of them changed.

        `balanced` is the default: the cheapest that shows what the next call needs, nothing capped. `lean` caps the
        history near the cheapest room whatever the window. `roomy` keeps most of the window filled with whole messages.
        README has their measured figures.

        Raises:
            ConfigError: there is no preset of this name.

        Example:
            >>> ContextConfig.preset("lean", pin_first_user=False).max_history_tokens
            8000
        """
        if name not in PRESETS:
            raise ConfigError(f"preset={name!r}: choose one of {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **overrides})

    prepare: Share = 0.6
    """History size past which a summary is begun in the background; inline summaries do not use it. When `keep` is a
    larger share than this one, that counts: a compaction leaves as much, and would begin the next summary at once."""

    trigger: Share = 0.95
    """History size past which an inline summary is made (share of the history budget, or tokens)."""

    keep: Share = 0.15
    """Low-water mark: what a compaction leaves of the history (share of the history budget, or tokens)."""

    trigger_messages: Annotated[int, Field(ge=2)] | None = None
    """Number of messages in the view past which a summary is made, whatever their size."""

    max_history_tokens: Annotated[int, Field(gt=0)] | None = None
    """Cap of the room that `trigger` and `keep` are shares of: a huge window need not be filled."""

    summarize: Literal["background", "inline", "off"] = "background"
    """Let a model summarize beside the agent, on the critical path, or never. The record of what left is kept in any
    case: it needs no model, and takes milliseconds."""

    summary_max_tokens: Annotated[int, Field(gt=0)] | None = None
    """Largest summary; by default a share of the history budget."""

    record_share: Annotated[float, Field(ge=0, le=0.8, allow_inf_nan=False)] = 0.28
    """Part of the room for history and pins that the record of what left may take."""

    clear_tools: ToolNames = ()
    """Tools whose old results are cleared in place before anything is dropped."""

    spare_tools: ToolNames = ()
    """Tools whose results are shown whole while they are in the view: never cleared, and shortened last of all, before
    pins and the question only. They leave with their turn like all others, and the record keeps their values."""

    summary_timeout_seconds: Seconds = 60.0
    """How long one summary may take before it counts as failed; at most a month."""

    summary_placement: Literal["system", "user"] = "user"
    """Show the summary at the end of the system message, or as a user message of its own before the history."""

    pin_first_user: bool = True
    """Keep the first user message of the session in every request."""

    constraints: tuple[str, ...] = ()
    """Rules that stay in every request, verbatim."""

    show_fill: bool = False
    """Let the model see how full its window is: a line such as `[Context window 40% full]` at the end of the message by
    which another tenth is full. By our own estimate, so that a line that was sent never changes."""

    max_recoveries: Annotated[int, Field(ge=0)] = 2
    """How often one model call is repeated after the provider refused it as too large."""

    output_reserve: Annotated[int, Field(ge=0)] | None = None
    """Tokens reserved for the answer; by default what the model is set to request, else a bounded share."""

    allow_guess: bool = False
    """Accept a guessed context window (from the output limit) when no source states one."""

    @model_validator(mode="after")
    def _no_tool_is_both(self) -> Self:
        both = sorted({*self.clear_tools} & {*self.spare_tools})
        if both:
            raise ValueError(f"clear_tools and spare_tools both name {', '.join(both)}: leave each in one of them")
        return self
