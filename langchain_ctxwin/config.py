"""Every setting, from code, environment or file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from langchain_ctxwin.errors import ConfigError

Share = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A share of the history budget when at most 1, else an absolute number of tokens."""


class Settings(BaseSettings):
    """Frozen settings that raise `ConfigError` and can be read from a file."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_explain(error)) from error

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read settings from a TOML, YAML or JSON file; environment variables fill what the file leaves out.

        Raises:
            ConfigError: the file is missing, unreadable, or holds unknown or invalid settings.
        """
        return cls(**_read_mapping(Path(path)))


class ContextConfig(Settings):
    """When to compact, what to keep, and how the summary is shown.

    Environment variables: `CTXWIN_CONTEXT_<FIELD>`, e.g. `CTXWIN_CONTEXT_TRIGGER=0.8`.

    Example:
        >>> ContextConfig(trigger=0.9, keep=0.4).trigger
        0.9
    """

    model_config = SettingsConfigDict(env_prefix="CTXWIN_CONTEXT_")

    prepare: Share = 0.6
    """History size past which a summary is begun in the background; inline summaries do not use it. When `keep` is a
    larger share than this one, that counts: a compaction leaves as much, and would begin the next summary at once."""

    trigger: Share = 0.95
    """History size past which an inline summary is made (share of the history budget, or tokens)."""

    keep: Share = 0.5
    """Low-water mark: what a compaction leaves of the history (share of the history budget, or tokens)."""

    trigger_messages: Annotated[int, Field(ge=2)] | None = None
    """Number of messages in the view past which a summary is made, whatever their size."""

    max_history_tokens: Annotated[int, Field(gt=0)] | None = None
    """Cap of the room that `trigger` and `keep` are shares of: a huge window need not be filled."""

    summarize: Literal["background", "inline", "off"] = "background"
    """Summarize beside the agent, on the critical path, or never (compaction then only drops, with a receipt). Without
    a model, sentences are extracted on the critical path in any case, because that takes milliseconds."""

    summary_max_tokens: Annotated[int, Field(gt=0)] | None = None
    """Largest summary; by default a share of the history budget."""

    summary_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    """How long one summary may take before it counts as failed."""

    summary_placement: Literal["system", "user"] = "system"
    """Show the summary at the end of the system message, or as a user message of its own before the history."""

    pin_first_user: bool = True
    """Keep the first user message of the session in every request."""

    constraints: tuple[str, ...] = ()
    """Rules that stay in every request, verbatim."""

    max_recoveries: Annotated[int, Field(ge=0)] = 2
    """How often one model call is repeated after the provider refused it as too large."""

    output_reserve: Annotated[int, Field(ge=0)] | None = None
    """Tokens reserved for the answer; by default what the model is set to request, else a bounded share."""

    allow_guess: bool = False
    """Accept a guessed context window (from the output limit) when no source states one."""


class RetrievalConfig(Settings):
    """Defaults of the retrieval budget.

    Environment variables: `CTXWIN_RETRIEVAL_<FIELD>`, e.g. `CTXWIN_RETRIEVAL_MAX_CONTEXT_TOKENS=4096`.
    """

    model_config = SettingsConfigDict(env_prefix="CTXWIN_RETRIEVAL_")

    max_context_tokens: Annotated[int, Field(gt=0)] = 8192
    """Budget of one retrieval, in tokens: about sixteen chunks of 500 tokens."""

    score: str = "score"
    """Metadata key that holds a chunk's relevance, higher is better."""

    k: Annotated[int, Field(gt=0)] | None = None
    """Largest number of chunks, whatever their size."""

    on_overflow: Literal["stop", "skip"] = "stop"
    """Stop at the first chunk that does not fit, or skip it and go on with smaller ones."""


def _read_mapping(path: Path) -> dict[str, Any]:
    parsers: dict[str, Any] = {
        ".toml": tomllib.loads,
        ".json": json.loads,
        ".yaml": yaml.safe_load,
        ".yml": yaml.safe_load,
    }
    parse = parsers.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(f"cannot read settings from {path}: use one of {', '.join(sorted(parsers))}")
    try:
        values = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read settings from {path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(
            f"cannot read settings from {path}: expected a table of settings, got {type(values).__name__}"
        )
    return values


def _explain(error: ValidationError) -> str:
    problems = (f"{'.'.join(map(str, e['loc'])) or 'settings'}={e['input']!r}: {_advice(e)}" for e in error.errors())
    return f"invalid {error.title}: " + "; ".join(problems)


def _advice(problem: ErrorDetails) -> str:
    least = problem.get("ctx", {}).get("ge")
    return problem["msg"] if least is None else f"give at least {least}"
