"""All settings, in frozen groups: their fields, defaults and bounds, read from code, environment or a file."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    NonNegativeFloat,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
)
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from langchain_ctxwin.core.field_paths import compile_fields
from langchain_ctxwin.core.settings import ContextSettings
from langchain_ctxwin.errors import PATH, ConfigError, brief, expect

PRESETS: dict[str, dict[str, Any]] = {
    "balanced": {},
    # A call costs least with room for 6,000 to 10,000 tokens, whatever the window: by closed form for steps of 760
    # tokens and a tenth kept.
    "lean": {"max_history_tokens": 8_000, "keep": 0.1},
    # Holds requests at .80 of the input limit and more in a window of 8,192 tokens: recorded agents (tau-bench,
    # SWE-agent, OpenHands, ...) are at .84, generated ones, whose few turns are large, at .81 (.77 with .8).
    "roomy": {"keep": 0.85},
}


def _checked_path(path: str) -> str:
    compile_fields([path])
    return path


def place(path: str | os.PathLike[str]) -> Path:
    """Return where a file is, so that a later change of folder does not move it.

    Raises:
        ConfigError: no file can be there.
    """
    return Path(expect(path, PATH, "path", "the path of a file")).expanduser().resolve()


Fraction = Annotated[float, Field(gt=0, le=1)]
Rate = Annotated[float, Field(ge=0, lt=1)]
"""A part of something that there can be more than."""

FieldPath = Annotated[str, AfterValidator(_checked_path)]
CursorKey = Annotated[SecretStr, Field(min_length=1)]


class _Explained(BaseModel):
    """Values that raise `ConfigError`."""

    # Hidden, because a traceback shows the error behind ours too, and what was given may be a secret.
    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explained(error, type(self))) from error


class Settings(_Explained, BaseSettings):
    """Frozen settings that can be read from a file."""

    @property
    def current(self) -> Self:
        """The settings that hold now: these, as they never change; those of a `ConfigFile` follow its file."""
        return self

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read settings from a TOML or JSON file; environment variables fill what the file leaves out.

        Raises:
            ConfigError: the file is missing, empty or unreadable, or holds unknown or invalid settings.
        """
        path = Path(expect(path, PATH, "path", "the path of a settings file"))
        parse: Callable[[str], Any] | None = PARSERS.get(path.suffix.lower())
        fault = f"cannot read settings from {path}"
        if parse is None:
            raise ConfigError(f"{fault}: use one of {', '.join(PARSERS)}")
        try:
            # some editors write a byte order mark
            text = path.read_text("utf-8-sig")
            table = parse(text)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{fault}: {error}") from None
        if not text.strip():  # it may be about to be written
            raise ConfigError(
                f"{fault}: it is empty: give at least one setting, or a comment"
            )
        expect(table, dict, str(path), "a table of settings")
        try:
            return cls(**table)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error.__cause__


PARSERS = {".json": json.loads, ".toml": tomllib.loads}


class ContextConfig(ContextSettings, Settings, env_prefix="CTXWIN_CONTEXT_"):
    """When to compact, what to keep, and how the summary is shown.

    Environment variables: `CTXWIN_CONTEXT_<FIELD>`, e.g. `CTXWIN_CONTEXT_TRIGGER=0.8`.

    Attributes:
        prepare: History size past which a summary is begun in the background, at most 0.8 of `trigger` where that is
            set. Inline summaries do not use it. Where `keep` is larger, `keep` counts, because a compaction leaves as
            much and would begin the next summary at once; with `summarizer="native"` a share of 0.9 at least.
        trigger: History size past which the oldest turns leave, with every setting of `summarize` (share of the history
            budget, or tokens). None waits for the limit, because each compaction breaks the prompt cache once; an
            inline summary is then made at 0.95. `("messages", 50)` means from 50 messages in the view on.
            `("fraction", 0.8)` and `("tokens", 2000)` are read here, in `prepare` and in `keep`.
        keep: Low-water mark: what a compaction leaves of the history before the newest step, which stays in any case
            (share of the history budget, or tokens). A large newest step leaves less of it; half stays where somebody
            asked to compact. Unless stated, it is half of a `trigger` that is lower.
        trigger_messages: Number of messages in the view past which a summary is made, whatever their size.
        max_history_tokens: Cap of the room that `trigger` and `keep` are shares of: a huge window need not be filled.
        compact_when_idle: Compact before the next request, when a compaction is near (`prepare`) and the prompt cache
            is cold: after five minutes with Anthropic's "5m", else after an hour.
        summarize: Let a model summarize beside the agent, on the critical path, or never. The record of what left is
            kept in any case: it needs no model, and takes milliseconds.
        summary_max_tokens: Largest summary; by default a share of the history budget.
        summary_prompt: A prompt of your own for the model that writes summaries, with the places {previous_summary} and
            {conversation}; {focus}, {sections} and {max_tokens} are filled in, too. With "native" it is not used: the
            provider reads the request itself.
        summary_sections: The headings of a summary, each with a colon and what belongs there if you like.
        record_share: Part of the room for history and pins that summary and record may take; where `trigger` or
            `max_history_tokens` is set, part of that.
        rules: Which further sentences of people hold from then on, beside those that the record recognizes by their
            words: a regular expression, or in code a function of a sentence.
        clear_tools: Tools whose old results are cleared in place before anything is dropped.
        summary_timeout_seconds: How long one summary may take before it counts as failed.
        summary_placement: Show the summary at the end of the system message, or as a user message of its own before the
            history.
        pin_first_user: Keep the first user message of the session in every request.
        constraints: Rules that stay in every request, verbatim.
        prompt_cache: Set breakpoints for caches of Anthropic ("1h" keeps prompt and record longer) and
            OpenAI, and its key; or "off".
        media: Where the data of pictures and files are once they left the view. "state" leaves them as they came.
            "store" moves them to the store that the graph was compiled with, one item per digest, until the thread is
            deleted. The message in the state then holds a reference, and `undo`, a new pin and the tool `recall` bring
            the picture back.
        max_recoveries: How often one model call is repeated after the provider refused it as too large.
        output_reserve: Tokens reserved for the answer; by default what the model is set to request, else a bounded
            share.
        max_thread_cost: USD that all model calls of a thread may cost together, summaries included; needs `prices=`. An
            event is reported when 0.8 of it is spent. When all of it is spent, no call is made.
        max_thread_tokens: The same in tokens, input and output together.
        on_budget: Raise `ThreadBudgetError` then, or ask for more by LangGraph's `interrupt`: resume with
            `Command(resume={"max_thread_cost": 5})`.
        allow_guess: Accept a guessed context window (from the output limit) when no source states one.

    Examples:
        >>> ContextConfig(trigger=0.9, keep=0.4).trigger
        0.9
    """

    @classmethod
    def preset(
        cls, name: Literal["balanced", "lean", "roomy"], **overrides: Any
    ) -> ContextConfig:
        """Return settings for one purpose, with any of them changed.

        `balanced` is the default: it shows what the next call needs, at about the cost of a plain tail that drops to
        half. `lean` caps the history near the cheapest room whatever the window. `roomy` keeps the window filled with
        whole messages, .80 or more of the input limit on average, for 3 to 35 % more billed input per call (recorded
        agents, windows of 4,096 to 32,768 tokens). Where answers report no usage, more of the limit stays free.

        Raises:
            ConfigError: there is no preset of this name.

        Examples:
            >>> ContextConfig.preset("lean", pin_first_user=False).max_history_tokens
            8000
        """
        if name not in PRESETS:
            raise ConfigError(f"preset={name!r}: choose one of {', '.join(PRESETS)}")
        return cls(**{**PRESETS[name], **overrides})


class _ToolSettings(BaseModel):
    """What can be set for all tools, and for one."""

    enabled: bool = True
    max_tokens: PositiveInt = 4000
    max_share: Fraction = 0.25
    fields: tuple[FieldPath, ...] = ()
    page_rows: PositiveInt | None = None
    ttl_seconds: PositiveFloat | None = None
    projection: bool = True
    pagination: bool = True
    extraction: bool = True


class ToolOverrides(_ToolSettings, _Explained):
    """Settings of one tool; unset ones are as for all tools. See `ToolResultConfig`."""


_ONLY_SET = PlainSerializer(lambda one: one.model_dump(exclude_unset=True))


class ToolResultConfig(_ToolSettings, Settings, env_prefix="CTXWIN_TOOL_RESULTS_"):
    """How much of a tool's result the model sees, and what is kept of it.

    Environment variables: `CTXWIN_TOOL_RESULTS_<FIELD>`, e.g. `CTXWIN_TOOL_RESULTS_MAX_TOKENS=2000`; mappings and
    lists as JSON.

    Attributes:
        enabled: Whether results are guarded at all; otherwise they stay exactly as their tools return them.
        max_tokens: Largest result that is shown as it is, and largest page of a larger one: a few screens of text.
        max_share: Largest part of the room left in the window that the results of one step may take together.
        fields: Paths of the fields to show of JSON results, such as `price.basePrice`, `items[].id` or `*.name`, also
            of results that fit. Empty shows everything of large results but empty values, addresses and answers to
            yes-or-no questions.
        page_rows: Most rows of a page, whatever their size.
        ttl_seconds: How long a large result is kept after it was last read. None keeps it as long as
            its thread in a store of your own (until `delete_thread`), and 600 seconds in this process's memory.
        projection: Leave out fields of large JSON results; every field can still be read by its cursor.
        pagination: Show large results page by page; otherwise one shortened form of the whole, readable by its cursor.
        extraction: Shorten long texts to the sentences with words of the call and of the current question; otherwise to
            their beginning.
        per_tool: What differs for single tools, by name. `CTXWIN_TOOL_RESULTS_PER_TOOL` fills in the tools that code
            or a file leaves out.
        cursor_keys: Secrets that sign cursors, oldest first. The last one signs, all of them verify. Empty makes a
            random key, and cursors end with the process.

    Examples:
        >>> config = ToolResultConfig(
        ...     per_tool={"search": ToolOverrides(max_tokens=1_000)}
        ... )
        >>> config.for_tool("search").max_tokens, config.for_tool("other").max_tokens
        (1000, 4000)
    """

    per_tool: dict[str, Annotated[ToolOverrides, _ONLY_SET]] = Field(
        default_factory=dict
    )
    cursor_keys: tuple[CursorKey, ...] = ()

    @property
    def chosen_fields(self) -> tuple[str, ...]:
        """The configured `fields`, none where `projection` is switched off."""
        return self.fields if self.projection else ()

    def for_tool(self, name: str) -> ToolResultConfig:
        """Return the settings of one tool, its overrides applied."""
        overrides = self.per_tool.get(name, ToolOverrides())
        return self.model_copy(update=overrides.model_dump(exclude_unset=True))


class RoutingConfig(Settings, env_prefix="CTXWIN_ROUTING_"):
    """How a `ModelRouter` chooses; whatever does not fit is never chosen.

    Environment variables: `CTXWIN_ROUTING_<FIELD>`, e.g. `CTXWIN_ROUTING_COMPLEXITY=high`.

    Attributes:
        quality: Weight of the chance of a good answer, up to where a model is strong enough.
        cost: Weight of the estimated cost, as a share of that of the dearest candidate: by default it decides between
            models that are strong enough. The larger it is, the more often a weaker one is taken.
        complexity: How much every request asks of a model, where the call does not say so. None judges each request.
        when_full: What an agent does whose conversation no longer fits its model: compact and stay, or move whole to a
            larger model. What cannot be made to fit moves. For the nodes and the middleware; a `RoutedChatModel` alone
            moves.

    Examples:
        >>> RoutingConfig(
        ...     complexity="low"
        ... ).complexity  # the cheapest that can take a request
        'low'
    """

    quality: NonNegativeFloat = 1.0
    cost: NonNegativeFloat = 0.01
    complexity: Literal["low", "medium", "high"] | None = None
    when_full: Literal["compact", "move"] = "compact"


class AlertConfig(Settings, env_prefix="CTXWIN_ALERTS_"):
    """Thresholds of `langchain_ctxwin.observe.Alerts`; None is off.

    Environment variables: `CTXWIN_ALERTS_<FIELD>`, e.g. `CTXWIN_ALERTS_UTILIZATION=0.8`.

    Attributes:
        utilization: Alert when each of the last `utilization_steps` requests of a conversation took more than this
            share of the input limit.
        utilization_steps: So many nearly full requests in a row say that no compaction comes, or that it leaves too
            much. Of public agent transcripts (windows of 8k and 32k) 1 % have eight over 90 %, 4 % have five.
        accuracy: Alert when the mean accuracy of the counts for a model falls below it.
        failed_summaries: Alert when so many summaries by one model in a row failed, or would not make the request
            smaller. Single ones do now and then.
        oversized_results: Alert when a larger share of the last tool results could not be shown whole.
        fallbacks: Alert when a candidate failed before a larger share of the last answers of a routed model. At one in
            ten, one call in ten is paid for twice.
        overflows: Alert when a larger share of the last requests was refused as too large, or could not be made to fit.
        window: How many of the last requests, results or answers a mean or share is of. They are counted, not timed, so
            that a clock that jumps changes nothing.
        least: How many of them there must be before a mean or share is looked at.

    Examples:
        >>> AlertConfig(utilization=0.8, accuracy=None).utilization
        0.8
    """

    utilization: Fraction | None = 0.9
    utilization_steps: PositiveInt = 8
    accuracy: Fraction | None = 0.85
    failed_summaries: PositiveInt | None = 3
    oversized_results: Rate | None = 0.05
    fallbacks: Rate | None = 0.1
    overflows: Rate | None = 0.05
    window: PositiveInt = 100
    least: PositiveInt = 20


class FileConfig(ContextConfig):
    """All settings in one file: those of `ContextConfig` at the top, the others in tables of their own.

    Attributes:
        tool_results: Settings of `ToolResultGuard`.
        routing: Settings of `ModelRouter`.
        alerts: Thresholds of `Alerts`.

    Examples:
        ```toml
        keep = 0.4

        [tool_results]
        max_tokens = 2000

        [tool_results.per_tool.search]
        fields = ["items[].id", "items[].name"]
        ```
    """

    tool_results: ToolResultConfig = Field(default_factory=ToolResultConfig)
    routing: RoutingConfig = Field(default_factory=RoutingConfig)
    alerts: AlertConfig = Field(default_factory=AlertConfig)


class LiveConfig(Protocol):
    """Says which settings hold now: settings themselves do, and a `langchain_ctxwin.reload.ConfigFile`."""

    @property
    def current(self) -> ContextConfig:
        """The settings that hold now: read once per request, and used to its end."""
        ...


def group_of(config: Any, name: str) -> Any:
    """Return the group of this name as it is now, from a `FileConfig` or a live configuration; a group is itself.

    Raises:
        ConfigError: the configuration is none of these.
    """
    current = getattr(config, "current", config)
    group = getattr(current, name) if isinstance(current, FileConfig) else current
    kind: Any = FileConfig.model_fields[name].annotation
    wanted = f"{kind.__name__}(...), a FileConfig or a ConfigFile, or None"
    return expect(group, kind, "config", wanted)


def explained(error: ValidationError, kind: type[BaseModel]) -> str:
    """Return in words what is wrong with settings: each name, its value unless that may be a secret, and what to do.

    Args:
        error: what pydantic found.
        kind: the class of the settings.
    """
    faults = [
        _fault(fault, kind.model_fields) for fault in error.errors(include_url=False)
    ]
    return f"invalid {kind.__name__}: {'; '.join(faults)}"


def _fault(fault: ErrorDetails, fields: Collection[str]) -> str:
    name, value = ".".join(map(str, fault["loc"])), fault["input"]
    advice = fault["msg"].removeprefix("Value error, ")
    if not name:  # what is wrong with several names them
        return advice
    # its value is not shown: a misspelt name may well stand before a secret
    if fault["type"] == "extra_forbidden":
        close = get_close_matches(name, fields)
        meant = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown setting {name}{meant}: remove it or correct its name"
    # A list or table may hold a secret, and so may a text in the place of one.
    may_be_secret = fault["type"] == "model_type" or "cursor_keys" in name
    is_shown = isinstance(value, str | int | float | None) and not may_be_secret
    given = f"={brief(value)}" if is_shown else f" ({type(value).__name__})"
    return f"{name}{given}: {advice}"
