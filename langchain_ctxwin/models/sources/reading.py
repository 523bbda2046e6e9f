"""Values that others wrote: tokens, prices, days, names and provider ids read from JSON, and the statement they make.

Tables and endpoints spell the same fact in many ways, and some of it is garbage. Nothing here raises: what cannot be
believed is None, which means unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from typing import Any

from langchain_ctxwin.core.model_info import ModelInfo

# What is believed, at most; what is beyond was misread, such as an id or a time, or a price in another unit.
MAX_TOKENS = 10**9
MIN_PRICE, MAX_PRICE = Decimal("1e-9"), Decimal(10_000)  # beside 0, in USD per million tokens
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2199, 12, 31)
MAX_VALUE_CHARS = 40  # of a number or a day, which bounds the work on one that was made to be slow
MAX_NAME_CHARS = 300  # a server that names a model after its file may need a whole path

ONE_TOKEN, MILLION = 1, 1_000_000  # tokens that a price is for, at most endpoints and in `ModelInfo`

# A plain `k` counts as 1,000 where some mean 1,024: the smaller limit wastes a little, the larger one fails.
MULTIPLES = {"": 1, "k": 1_000, "m": 1_000_000, "ki": 1024, "mi": 1024 * 1024}

_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9][0-9_]*)"  # other commas may be decimal points
_COUNT = re.compile(rf"({_WHOLE}(?:\.[0-9]*)?(?:e\+?[0-9]{{1,2}})?)\s*+(k|m|ki|mi)?(?:\s*+tokens?)?", re.IGNORECASE)
_DAY = re.compile(r"([0-9]{4})-([0-9]{1,2})(?:-([0-9]{1,2}))?(?:[T ].*)?")
_FACTS = tuple(field.name for field in fields(ModelInfo) if field.name not in {"name", "provenance", "conflicts"})


def stated(source: str, name: Any, *, aliases: Iterable[Any] = (), **known: Any) -> ModelInfo | None:
    """Return the statement of `source`, or None when `name` is no name; values are as the functions below read them.

    Of two limits that contradict each other the one that allows the smaller request stays.
    """
    if not is_name(name):
        return None
    window = known.get("context_window")
    for field in ("max_input_tokens", "max_output_tokens"):
        if window is not None and (known.get(field) or 0) > window:
            known[field] = None
    known["provider"] = known.get("provider") or None
    known["aliases"] = tuple(dict.fromkeys(alias for alias in aliases if is_name(alias) and alias != name))
    return ModelInfo(name=name, **known, provenance=dict.fromkeys(facts_of(known), source))


def facts_of(known: Mapping[str, Any]) -> list[str]:
    """Return the fields that say something: a price of 0 does, an empty set or a flag that is down does not."""
    return [name for name in _FACTS if (value := known.get(name)) or isinstance(value, Decimal)]


def is_name(name: Any) -> bool:
    """Say whether this may be a model's name: printable, so that it can be shown, and not blank."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable() and bool(name.strip())


def capabilities_of(*, tools: Any, **others: Any) -> frozenset[str]:
    """Return the capabilities that are true, or nothing (unknown) where the table does not say if tools are taken.

    A set that lacks something says that the model cannot do it, so an entry that mentions only a part states none.
    """
    if not isinstance(tools, bool):
        return frozenset()
    named = {"tools": tools, **others}
    return frozenset({"text", *(name for name, can in named.items() if can is True)})  # never empty: that is unknown


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return the value if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def tokens(value: Any) -> int | None:
    """Return a positive whole number of tokens up to `MAX_TOKENS`, also from `"128k"`, `"1e6"` or `131072.0`.

    Examples:
        >>> tokens("128k"), tokens("1e6"), tokens(0), tokens("unlimited")
        (128000, 1000000, None, None)
    """
    multiple = 1
    if isinstance(value, str):
        found = _COUNT.fullmatch(value.strip()) if len(value) <= MAX_VALUE_CHARS else None
        if found is None:
            return None
        value, multiple = found[1].replace(",", "").replace("_", ""), MULTIPLES[(found[2] or "").lower()]
    number = (_number(value) or Decimal(0)) * multiple
    return int(number) if 1 <= number <= MAX_TOKENS and number == number.to_integral_value() else None


def price(value: Any, *, per: int = MILLION) -> Decimal | None:
    """Return USD per million tokens from USD per `per` tokens; a negative price means that it varies, so None.

    Examples:
        >>> price(2.5e-07, per=ONE_TOKEN), price("-1", per=ONE_TOKEN), price(0)
        (Decimal('0.25'), None, Decimal('0'))
    """
    number = _number(value)
    if number == 0:
        return Decimal(0)
    scaled = (number or 0) * Decimal(MILLION) / per
    if not MIN_PRICE <= scaled <= MAX_PRICE:
        return None
    return Decimal(format(scaled.normalize(), "f"))  # 10, where normalize alone writes 1E+1


def _number(value: Any) -> Decimal | None:
    """The finite number that was written; of a float the shortest text that means it, not its binary value."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        text = str(value)  # of a `Decimal`, which nobody reads from JSON, the exact value, however long
        number = Decimal(text) if len(text) <= MAX_VALUE_CHARS or isinstance(value, Decimal) else None
    except (DecimalException, ValueError):  # no number, or one of thousands of digits
        return None
    # An exponent beyond was made to be slow.
    return number if number is not None and number.is_finite() and abs(number.adjusted()) <= MAX_VALUE_CHARS else None


def day(value: Any) -> date | None:
    """Return the day of an ISO date or time, of a month (its first day), or of seconds since the epoch (UTC).

    Examples:
        >>> day("2026-05-31T08:00:00Z"), day("2026-05"), day(0)
        (datetime.date(2026, 5, 31), datetime.date(2026, 5, 1), None)
    """
    found = None
    with suppress(ValueError, OverflowError, OSError):  # the 31st of February, a time beyond every calendar
        if isinstance(value, str) and len(value) <= MAX_VALUE_CHARS and (written := _DAY.fullmatch(value.strip())):
            found = date(int(written[1]), int(written[2]), int(written[3] or 1))
        elif isinstance(value, date):
            found = value.date() if isinstance(value, datetime) else value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value, UTC).date()
    return found if found is not None and FIRST_DAY <= found <= LAST_DAY else None


def provider_id(text: str) -> str:
    """Return the one id of a provider, however it is spelled; an unknown one in lower case with hyphens.

    The same model served through another platform has other limits and prices, so platforms stay apart.

    Examples:
        >>> provider_id("google_genai"), provider_id("Together"), provider_id("my_gateway")
        ('google', 'togetherai', 'my-gateway')
    """
    squashed = _squashed(text)
    if squashed.startswith("vertexai"):  # one price table splits this platform by the kind of model
        return "google-vertex-anthropic" if "anthropic" in squashed else "google-vertex"
    return SPELLINGS.get(squashed) or re.sub(r"[\s_]+", "-", text.strip().lower())


def _squashed(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


# Provider id, as the largest public catalog writes it -> how else it is spelled, in plain letters and digits.
_OTHER_SPELLINGS = {
    "alibaba": ("dashscope", "tongyi"),
    "amazon-bedrock": ("bedrock", "bedrockconverse", "awsbedrock", "anthropicbedrock", "aws"),
    "anthropic": ("claude",),
    "azure": ("azureopenai", "azuretext"),
    "cloudflare-workers-ai": ("cloudflare",),
    "cohere": ("coherechat",),
    "deepseek": ("deepseekai",),
    "fireworks-ai": ("fireworks", "fireworksaiembeddingmodels"),
    "friendli": ("friendliai",),
    "google": ("gemini", "googlegenai", "googlegenerativeai", "googleai", "googleaistudio", "palm"),
    "google-vertex": ("googlevertexai", "vertex"),
    "google-vertex-anthropic": ("googleanthropicvertex",),
    "huggingface": ("hf",),
    "llama": ("metallama",),
    "lmstudio": (),
    "mistral": ("mistralai",),
    "moonshotai": ("moonshot",),
    "novita-ai": ("novita",),
    "nvidia": ("nvidianim", "nvidiaaiendpoints"),
    "openai": ("openairesponses", "textcompletionopenai"),
    "openrouter": (),
    "perplexity": ("perplexityai",),
    "togetherai": ("together",),
    "vercel": ("vercelaigateway",),
    "xai": (),
    "zai": (),
}
SPELLINGS = {
    spelling: provider for provider, others in _OTHER_SPELLINGS.items() for spelling in (_squashed(provider), *others)
}
