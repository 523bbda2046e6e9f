"""What providers take, refuse and keep, as one table: what differs between them is read here, nowhere from a name.

A row is chosen by the family of an integration's class; profiles and facts of a model switch what its release decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_ctxwin.core.media import NO_LIMITS, MediaLimits


@dataclass(frozen=True, slots=True)
class Rules:
    """The forms of messages that a provider takes; the defaults are those of an unknown provider."""

    starts_with_ai: bool = (
        False  # a request may begin with an answer, such as a greeting
    )
    calls_after_ai: bool = True
    """A call may follow an answer, such as that of another agent. Gemini wants a user message or a result before it."""

    takes_system: bool = False
    """System messages stay in place. Elsewhere integrations move them to the front, and the cached prefix is lost."""

    takes_system_behind_user: bool = False
    """So it is right behind a user's turn or results, unless the user goes on (newer models of Anthropic)."""

    provider: str = ""
    """Whose blocks it reads: `anthropic`, `openai`, `gemini`, or `other` for none; empty when nobody knows."""

    takes_cache_key: bool = (
        False  # a call may name the conversation for the provider's prompt cache
    )
    takes_breakpoints: bool = False
    """OpenAI's prompt cache matches at breakpoints, which blocks of content may set."""

    loads_tools: bool = False
    """A message can load a tool whose definition was deferred, so that the tools of a conversation stay the same."""

    calls_need_reasoning: bool = True
    """A call that waits for its result has to come back with the reasoning before it; so with a provider that nobody
    knows."""

    media_in_results: bool = True
    """The results of tools may hold pictures and files. With Chat Completions they are in user messages only."""

    takes_betas: bool = False  # its client sends feature headers that a call names
    is_stateless: bool = False
    """Its server stores no items: reasoning comes back encrypted, or not at all."""

    compacts_itself: bool = False
    """A model that is set to compact on its server takes no block that was made on demand."""

    keeps_history: bool = False
    """Its server goes on from the newest response id among the messages, so that those before it are not sent."""

    binds_reasoning: bool = True
    """Reasoning may be tied to what precedes it (Anthropic, preserved thinking); so where nobody knows the provider."""

    cache_seconds: int = 3_600
    """The longest that a prefix stays cached, unless somebody pays for longer (OpenAI an hour at the most)."""

    marked_seconds: int = 3_600
    """How long one stays that a breakpoint marks, where no longer time is asked for."""

    media: tuple[tuple[int | None, MediaLimits], ...] = ()
    """Pictures and bytes of a request, as documented, by the windows in tokens up to which that holds."""

    def media_limits(self, window_tokens: int | None) -> MediaLimits:
        """Return the limits documented for models of this window; the strictest for an unknown window."""
        window = window_tokens or 0
        holds = (row for most, row in self.media if most is None or window <= most)
        return next(holds, NO_LIMITS)


UNKNOWN = Rules()
ELSEWHERE = Rules(provider="other", binds_reasoning=False)
"""A client of OpenAI's shape at another address: nobody knows what serves it, but it is not Anthropic's API."""

ANTHROPIC = Rules(
    provider="anthropic",
    calls_need_reasoning=False,
    # A prefix stays five minutes, or an hour where that is asked for (Anthropic, prompt caching).
    marked_seconds=300,
    # Anthropic, request size limits and vision guide.
    media=(
        (200_000, MediaLimits(max_bytes=32_000_000, max_images=100)),
        (None, MediaLimits(max_bytes=32_000_000, max_images=600)),
    ),
)
GEMINI = replace(ELSEWHERE, provider="gemini", calls_after_ai=False)
LIKE_OPENAI = replace(ELSEWHERE, starts_with_ai=True, takes_system=True)
RULES = {
    "anthropic": ANTHROPIC,
    "deepseek": LIKE_OPENAI,
    "gemini": GEMINI,
    "openai": replace(LIKE_OPENAI, provider="openai"),
    "qwen": LIKE_OPENAI,
}
"""By the family of an integration's class. With Gemini a function call has to follow a user turn or a function
response; its integration and Anthropic's move system messages to the front. Anthropic wants the reasoning before a call
only where the model is set to think each time (`MANUAL_THINKING`)."""

MANUAL_THINKING = "enabled"
"""Type of the `thinking` setting of Claude models that think by a given budget; those that tie their reasoning to what
preceded it take it no more."""

BREAKPOINTS_SINCE = "2026-07-09"
"""Release of the first models of OpenAI whose prompt cache matches at breakpoints (OpenAI, prompt caching guide): those
since then know the field that marks one, and earlier ones refuse it."""

CACHE_BREAKPOINTS = "cache_breakpoints"
"""Capability of such a model, where a source of models states it."""
