"""Settings for large tool results: how much the model sees, and what is kept."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError
from pydantic_settings import SettingsConfigDict

from langchain_ctxwin.config.settings import Settings, faults_told, unknown
from langchain_ctxwin.config.times import Seconds
from langchain_ctxwin.core.field_paths import compile_fields
from langchain_ctxwin.errors import ConfigError

Fraction = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
"""A part of something, at most all of it."""


def _checked_key(key: SecretStr) -> SecretStr:
    if not key.get_secret_value().strip():
        raise PydanticCustomError("empty_key", "give a secret of 32 random characters or more")
    return key


def _checked_path(path: str) -> str:
    try:
        compile_fields([path])
    except ConfigError as error:
        raise PydanticCustomError(
            "field_path", "give keys joined by dots, such as price.base or items[].id, others in double quotes"
        ) from error
    return path


FieldPath = Annotated[str, AfterValidator(_checked_path)]
CursorKey = Annotated[SecretStr, AfterValidator(_checked_key)]


class ToolOverrides(BaseModel):
    """What differs for one tool; what is left out is as for all tools. See `ToolResultConfig`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    max_tokens: Annotated[int, Field(gt=0)] | None = None
    max_share: Fraction | None = None
    fields: tuple[FieldPath, ...] | None = None
    page_rows: Annotated[int, Field(gt=0)] | None = None
    ttl_seconds: Seconds | None = None
    projection: bool | None = None
    pagination: bool | None = None
    extraction: bool | None = None
    keywords: tuple[str, ...] | None = None

    def __init__(self, /, **values: Any) -> None:
        with faults_told(values, type(self).model_fields):
            super().__init__(**values)


class ToolResultConfig(Settings):
    """How much of a tool's result the model sees, and what is kept of it.

    Environment variables: `CTXWIN_TOOL_RESULTS_<FIELD>`, e.g. `CTXWIN_TOOL_RESULTS_MAX_TOKENS=2000`; mappings and
    lists as JSON.

    Example:
        >>> config = ToolResultConfig(per_tool={"search": ToolOverrides(max_tokens=1_000)})
        >>> config.for_tool("search").max_tokens, config.for_tool("other").max_tokens
        (1000, 4000)
    """

    model_config = SettingsConfigDict(env_prefix="CTXWIN_TOOL_RESULTS_")

    max_tokens: Annotated[int, Field(gt=0)] = 4000
    """Largest result that is shown as it is, and largest page of a larger one: a few screens of text."""

    max_share: Fraction = 0.25
    """Largest part of the room left in the window that the results of one step may take together."""

    fields: tuple[FieldPath, ...] = ()
    """Paths of the fields to show of large JSON results, such as `price.basePrice`, `items[].id`, `*.name`; empty:
    identifiers, names, states, amounts and dates are found by rules."""

    page_rows: Annotated[int, Field(gt=0)] | None = None
    """Most rows of a page, whatever their size."""

    ttl_seconds: Seconds = 600.0
    """How long a large result is kept after it was last read; at most a month."""

    projection: bool = True
    """Leave out fields of large JSON results; every field can still be read by its cursor."""

    pagination: bool = True
    """Show large results page by page; otherwise one shortened form of the whole, readable by its cursor."""

    extraction: bool = True
    """Shorten long texts to their most telling sentences; otherwise to their beginning."""

    keywords: tuple[str, ...] = ()
    """Words that make a sentence worth keeping, besides those of the call and of the current user message."""

    per_tool: dict[str, ToolOverrides] = Field(default_factory=dict)
    """What differs for single tools, by name. What code or a file leaves out, be it a tool or one setting of a tool, is
    filled from `CTXWIN_TOOL_RESULTS_PER_TOOL`."""

    cursor_keys: tuple[CursorKey, ...] = ()
    """Secrets that sign cursors, oldest first: the last one signs, all of them verify. Empty: a random key, and
    cursors end with the process."""

    def for_tool(self, name: str) -> ToolResultConfig:
        """Return the settings of one tool, its overrides applied."""
        overrides = self.per_tool.get(name)
        if overrides is None:
            return self
        return self.model_copy(update=overrides.model_dump(exclude_none=True))

    @classmethod
    def check_names(cls, table: dict[Any, Any], place: str = "") -> None:
        """Refuse also names that are no text in the tables of single tools."""
        super().check_names(table, place)
        tools = table.get("per_tool")
        for tool, overrides in tools.items() if isinstance(tools, dict) else ():
            for name in overrides if isinstance(overrides, dict) else ():
                if not isinstance(name, str):
                    raise unknown(cls.__name__, f"{place}per_tool.{tool}.{name}")
