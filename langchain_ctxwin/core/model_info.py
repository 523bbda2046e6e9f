"""`ModelInfo`: names, limits, prices and capabilities of one model, and who stated them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.errors import ConfigError

LIMIT_FIELDS = ("context_window", "max_input_tokens", "max_output_tokens")
PRICE_FIELDS = ("input_price", "output_price", "cache_read_price", "cache_write_price", "cache_write_hour_price")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Facts about one model; None means unknown, never free or unlimited. Prices are USD per million tokens.

    Raises:
        ConfigError: a limit is not a positive whole number or contradicts another, a price is not a finite `Decimal`
            of at least 0, or the name is empty.

    Examples:
        >>> ModelInfo(name="small", context_window=8192, input_price=Decimal("0.10")).limits.context_window
        8192
    """

    name: str
    provider: str | None = None
    """Who serves the model; the same name may have other limits elsewhere."""

    context_window: int | None = None
    """Tokens that input and output share."""

    max_input_tokens: int | None = None
    """A limit of the input alone, only where declared beside the window."""

    max_output_tokens: int | None = None
    input_price: Decimal | None = None
    output_price: Decimal | None = None
    cache_read_price: Decimal | None = None
    """For input that is read from the provider's prompt cache."""

    cache_write_price: Decimal | None = None
    """For input that is written to it for some minutes; None where writing costs no more than input, or nobody says."""

    cache_write_hour_price: Decimal | None = None
    """For input that is written to it for an hour; None is as for some minutes."""

    capabilities: frozenset[str] = frozenset()
    """What the model can do besides text, e.g. `tools`, `images`, `structured_output`."""

    tokenizer_family: str | None = None
    """Family of the token estimator; None lets it choose the generic one."""

    deprecated: bool = False
    retires_on: date | None = None
    """First day on which the provider no longer serves the model."""

    aliases: tuple[str, ...] = ()
    """Other names that resolve to this model."""

    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Field name -> name of the source that stated its value."""

    conflicts: Mapping[str, Mapping[str, object]] = field(default_factory=dict, hash=False)
    """Field name -> the values that were not taken, by source."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("name='': give the model's name as its provider spells it")
        try:
            _ = self.limits
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        for name in PRICE_FIELDS:
            price = getattr(self, name)
            if price is not None and not (isinstance(price, Decimal) and price.is_finite() and price >= 0):
                raise ConfigError(
                    f"{self.name}: {name}={price!r}: give USD per million tokens as a Decimal of at least 0 made from "
                    "text (a float would carry its rounding error along), or None when it is unknown"
                )

    @property
    def limits(self) -> ModelLimits:
        """The limits of this model; their source is the one that stated the window, else the input limit."""
        stated_by = self.provenance.get("context_window") or self.provenance.get("max_input_tokens")
        return ModelLimits(
            self.context_window, self.max_input_tokens, self.max_output_tokens, source=stated_by or "explicit"
        )
