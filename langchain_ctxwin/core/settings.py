"""`ContextSettings`: the settings that shape a request and its compaction, with their bounds; see `ContextConfig`."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from langchain_ctxwin.errors import ConfigError, brief

CONSTRAINTS_TEXT = "Rules that hold for the whole conversation:"
LEAST_TRIGGER_MESSAGES = 2
LEAST_TRIGGER_TOKENS = 256  # a few messages; a smaller number is meant as per cent


def _size(value: Any) -> Any:
    """Read a size as LangChain's own middleware writes them, too: `("tokens", 2000)` or `("fraction", 0.8)`."""
    match value:
        case ("tokens" | "fraction" as unit, int() | float() as number) if (
            unit == "tokens"
        ) == (number > 1):
            return number
        case tuple() | list():
            raise ValueError(
                'give ("tokens", 2000), ("fraction", 0.8), the number alone, or as trigger ("messages", n) with an n '
                f"of at least {LEAST_TRIGGER_MESSAGES + 1}"
            )
    return value


Share = Annotated[PositiveFloat, BeforeValidator(_size)]
"""A share of the history budget when at most 1, else an absolute number of tokens."""


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _rules(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        wanted = "give a regular expression, or a function of a sentence"
        raise ValueError(wanted) from None


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Several texts; a single one stands for itself."""

NEEDED_PLACES = ("previous_summary", "conversation")
PLACES = (*NEEDED_PLACES, "focus", "sections", "max_tokens")
"""What a prompt of one's own may hold in braces."""


def checked_prompt(prompt: str) -> str:
    """Return a prompt of one's own whose places are known and complete.

    Raises:
        ConfigError: it has no place for what a summary is written from, another one, or a brace that opens nothing.
    """
    missing = [name for name in NEEDED_PLACES if f"{{{name}}}" not in prompt]
    fault = f"has no place {{{missing[0]}}}" if missing else ""
    try:
        prompt.format(**dict.fromkeys(PLACES, ""))
    except (LookupError, ValueError) as error:
        fault = f"cannot be filled in: {error}"
    if fault:
        places = ", ".join(f"{{{name}}}" for name in PLACES)
        raise ConfigError(
            f"summary_prompt={brief(prompt)}: {fault}: use {places}, and write other braces twice"
        )
    return prompt


class ContextSettings(BaseModel):
    """The fields of `ContextConfig`, which explains each."""

    prepare: Share = 0.6
    trigger: Share | None = None
    keep: Share = 0.3
    trigger_messages: Annotated[int, Field(ge=LEAST_TRIGGER_MESSAGES)] | None = None
    max_history_tokens: PositiveInt | None = None
    compact_when_idle: bool = False
    summarize: Literal["background", "inline", "off"] = "background"
    summary_max_tokens: PositiveInt | None = None
    summary_prompt: Annotated[str, AfterValidator(checked_prompt)] | None = None
    summary_sections: Texts = ()
    record_share: Annotated[float, Field(ge=0, le=0.8)] = 0.65
    rules: Annotated[
        re.Pattern[str] | Callable[[str], bool] | None, WrapValidator(_rules)
    ] = None
    clear_tools: Texts = ()
    summary_timeout_seconds: PositiveFloat = 60.0
    summary_placement: Literal["system", "user"] = "user"
    pin_first_user: bool = True
    constraints: Texts = ()
    prompt_cache: Literal["5m", "1h", "off"] = "5m"
    media: Literal["state", "store"] = "state"
    max_recoveries: NonNegativeInt = 2
    output_reserve: NonNegativeInt | None = None
    allow_guess: bool = False
    max_thread_cost: Annotated[Decimal, Field(gt=0)] | None = None
    max_thread_tokens: PositiveInt | None = None
    on_budget: Literal["raise", "interrupt"] = "raise"

    @property
    def constraints_text(self) -> str:
        """The constraints as one block of rules; empty when there are none."""
        rules = [f"- {rule}" for rule in self.constraints]
        return "\n".join([CONSTRAINTS_TEXT, *rules]) if rules else ""

    @model_validator(mode="before")
    @classmethod
    def _read_messages(cls, values: Any) -> Any:
        """Read a trigger in messages as LangChain's own middleware does: it is reached at so many."""
        match values:
            case {"trigger": ("messages", int() as number)} if (
                number > LEAST_TRIGGER_MESSAGES
            ):
                return {**values, "trigger": None, "trigger_messages": number - 1}
        return values

    @model_validator(mode="after")
    def _trigger_is_above_keep(self) -> Self:
        trigger, keep = self.trigger, self.keep
        if trigger is None:
            return self
        if 1 < trigger < LEAST_TRIGGER_TOKENS:
            least = f"a size in tokens ({LEAST_TRIGGER_TOKENS} or more): for {trigger:g} % give {trigger / 100:g}"
            raise ValueError(
                f"trigger={trigger:g} is neither a share (at most 1) nor {least}"
            )
        is_stated = "keep" in self.model_fields_set
        if is_stated and (trigger <= 1) == (keep <= 1) and keep >= trigger:
            advice = f"lower keep, for example to {trigger / 2:g}, or raise trigger"
            raise ValueError(
                f"keep={keep:g} is not below trigger={trigger:g}: {advice}"
            )
        return self


def portion(share: float, room: int) -> int:
    """Return a setting that is a share of the room when at most 1, else a number of tokens capped by the room."""
    return int(share * room) if share <= 1 else min(int(share), room)
