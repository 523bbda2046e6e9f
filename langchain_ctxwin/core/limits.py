"""Model limits, what a provider was heard to say of them, and the `TokenBudget` of a request within them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from math import inf
from types import SimpleNamespace
from typing import Any

from langchain_core.runnables import RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.errors import BudgetExceededError, ConfigError, UnknownModelError

# Names under which chat models take the number of tokens to generate.
OUTPUT_ARGUMENTS = (
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "num_predict",
    "n_predict",
)
UNKNOWN_SOURCE = "unknown"  # the source of limits that nobody stated
# Share of the window reserved for the answer when nobody says how long it may be: a quarter is common practice, and
# reserving all that a model may generate would leave some models no input at all.
OUTPUT_SHARE = 0.25
# Guessed window per token of output limit. A last resort: 47 % of the entries of public catalogs have a smaller window,
# 30 % one as large as the output limit itself, which only a margin of three quarters would cover. The others would pay
# for it; a refusal states or teaches the true window.
GUESS_FACTOR = 4


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of one model as far as they are known; None means unknown, never unlimited.

    Attributes:
        context_window: Tokens that input and output share.
        max_input_tokens: A limit of the input alone, only where the provider declares one beside the window.
        max_output_tokens: Tokens the model may generate at most; says nothing about what it can hold.
        requested_output_tokens: Tokens that requests ask for (`max_tokens`), when that is configured.
        max_request_bytes: Bytes of a request that the API takes, with pictures and files in it.
        max_images: Images of a request that the API takes.
        source: Who states the limits: `explicit`, `profile`, `guess`, `unknown` or the name of a source.

    Raises:
        ConfigError: a value is not a positive whole number.

    Examples:
        >>> ModelLimits(8192, max_output_tokens=1024).input_limit(1024)
        7168
    """

    context_window: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    requested_output_tokens: int | None = None
    _: KW_ONLY
    max_request_bytes: int | None = None
    max_images: int | None = None
    source: str = "explicit"

    def __post_init__(self) -> None:
        for name in (*LIMIT_FIELDS, "requested_output_tokens"):
            if (value := getattr(self, name)) is not None:
                require_count(name, value, minimum=1)

    @classmethod
    def of(cls, model: Any) -> ModelLimits:
        """Read the limits that a model, or a runnable around models, states about itself.

        Taken in this order: a `ModelLimits` as it is; a number, which is the window; a `.limits` attribute that holds
        limits; a LangChain `.profile`, or a mapping like one, whose `max_input_tokens` is read as the joint
        `context_window` (more often than not it is). What requests ask for comes from the configured or bound
        `max_tokens` and its other names. Bindings, sequences and fallbacks are looked through; of several models the
        smallest limits count, and the largest requested output.

        Tables are messy, so nothing read from one raises: non-positive values are unknown. Whatever states nothing
        gives limits whose `known` is false.

        Raises:
            ConfigError: the number is not positive.
        """
        if isinstance(model, cls):
            return model
        if isinstance(model, int) and not isinstance(model, bool):
            return cls(context_window=model)
        if isinstance(model, Mapping):
            model = SimpleNamespace(profile=model)
        return smallest([_of_part(*part) for part in models_behind(model)])

    @property
    def known(self) -> bool:
        """True when an input limit follows from these limits."""
        return self.context_window is not None or self.max_input_tokens is not None

    def input_limit(self, reserve: int) -> int:
        """Largest input in tokens when `reserve` tokens are kept for the answer.

        A `max_input_tokens` of its own is not reduced by the reserve.

        Raises:
            ConfigError: the reserve leaves no input, or is no whole number of at least 0.
            UnknownModelError: neither the window nor an input limit is known.
        """
        require_count("reserve", reserve, minimum=0)
        joint = None if self.context_window is None else self.context_window - reserve
        limit = least(self.max_input_tokens, joint)
        if limit is None:
            raise UnknownModelError(
                "the model's context window is unknown: pass limits=ModelLimits(context_window=...) or "
                "limits=ModelRegistry(), use a model whose profile states max_input_tokens, or set allow_guess=True"
            )
        if limit <= 0:
            raise ConfigError(
                f"output reserve {reserve:,} leaves no input in context_window={self.context_window:,}: "
                "lower output_reserve (or the model's max_tokens) or raise context_window"
            )
        return limit

    def output_reserve(self, configured: int | None = None) -> int:
        """Tokens to keep for the answer.

        `configured` if given, else what requests ask for where that leaves input, else the smaller of the output limit
        and a quarter of the window. 0 when only an input limit is known: such an input is not shared with the output.
        """
        if configured is not None:
            return configured
        window, requested = self.context_window, self.requested_output_tokens
        if requested is not None and (window is None or requested < window):
            return requested
        share = None if window is None else int(window * OUTPUT_SHARE)
        return least(self.max_output_tokens, share) or 0

    def room(self, configured_reserve: int | None = None) -> int:
        """Largest input in tokens beside the room for the answer, which `output_reserve` says."""
        return self.input_limit(self.output_reserve(configured_reserve))

    def guessed(self) -> ModelLimits:
        """These limits with a guessed window where none is known (`source="guess"`), else unchanged.

        Raises:
            UnknownModelError: the output limit is unknown too.
        """
        if self.known:
            return self
        if self.max_output_tokens is None:
            raise UnknownModelError(
                "the model's context window is unknown and cannot be guessed without its output limit: "
                "pass limits=ModelLimits(context_window=...)"
            )
        return replace(
            self, context_window=GUESS_FACTOR * self.max_output_tokens, source="guess"
        )


LIMIT_FIELDS = (
    "context_window",
    "max_input_tokens",
    "max_output_tokens",
    "max_request_bytes",
    "max_images",
)
"""Of a model, whatever requests are set to ask for."""


def require_count(name: str, value: object, *, minimum: int) -> None:
    """Raise `ConfigError` unless `value` is a whole number of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigError(f"{name}={value!r}: give a whole number, at least {minimum}")


# ---- read off models ------------------------------------------------------------------------------------------------


def unwrapped(runnable: Any) -> tuple[Any, dict[str, Any]]:
    """Return what is inside all bindings, with the arguments bound around it; the outermost binding wins."""
    arguments: dict[str, Any] = {}
    while isinstance(runnable, RunnableBindingBase):
        arguments = {**runnable.kwargs, **arguments}
        runnable = runnable.bound
    return runnable, arguments


def models_behind(runnable: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each model behind `runnable` with the arguments bound around it.

    Steps of a sequence that are no models are yielded too: they state nothing.
    """
    inner, arguments = unwrapped(runnable)
    several: Sequence[Any] = ()
    if isinstance(inner, RunnableSequence):
        several = inner.steps
    elif isinstance(inner, RunnableWithFallbacks):
        several = (inner.runnable, *inner.fallbacks)
    for one in several:
        for model, bound in models_behind(one):
            yield model, {**bound, **arguments}
    if not several:
        yield inner, arguments


def _of_part(part: Any, bound: Mapping[str, Any]) -> ModelLimits:
    """Limits of one model inside a runnable, with the arguments bound around it; odd values are unknown."""
    own = getattr(part, "limits", None)
    if isinstance(own, ModelLimits):
        return own
    outputs = [
        *map(bound.get, OUTPUT_ARGUMENTS),
        *(getattr(part, name, None) for name in OUTPUT_ARGUMENTS),
    ]
    profile = getattr(part, "profile", None)
    stated = profile if isinstance(profile, Mapping) else {}
    window = count_of(stated.get("max_input_tokens")) or None
    return ModelLimits(
        window,
        max_output_tokens=count_of(stated.get("max_output_tokens")) or None,
        requested_output_tokens=next(filter(None, map(count_of, outputs)), None),
        source=UNKNOWN_SOURCE if window is None else "profile",
    )


def smallest(every: Sequence[ModelLimits]) -> ModelLimits:
    """Return the limits that a request keeps to whichever of several models it goes to."""
    sizes = {
        name: least(*(getattr(one, name) for one in every)) for name in LIMIT_FIELDS
    }
    requested = max((one.requested_output_tokens or 0 for one in every), default=0)
    sources = "+".join(dict.fromkeys(one.source for one in every if one.known))
    return ModelLimits(
        **sizes,
        requested_output_tokens=requested or None,
        source=sources or UNKNOWN_SOURCE,
    )


def least(*sizes: int | None) -> int | None:
    """Return the smallest of the sizes that are known."""
    return min((size for size in sizes if size is not None), default=None)


MAX_TOKENS = 100_000_000
"""Above this no count has ever been."""


def count_of(value: object) -> int | None:
    """Return a stated value as a whole number of at least 0; None for anything else, and for impossible sizes."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MAX_TOKENS else None


# ---- heard from providers -------------------------------------------------------------------------------------------

LEAST_LIMIT_TOKENS = 256
"""A stated limit below this is that of something else: no served model has such a window."""

MOST_TIMES_OFF = 20
"""How many times smaller, or larger, than declared a limit may be to be told to other conversations. Hosts cut windows
to a sixteenth (GitHub Models answers "Max size: 8000 tokens" for models of 128,000), rarely further."""

BLIND_STEP = 0.75
"""Part of a refused size that a retry aims for when nothing says why it was refused: two tries halve a request. A
limit that is inferred from a refusal is at least this part of it."""

COUNT_SLACK = 1.01
"""Reports of accepted requests may be this much above a limit that holds: servers count a template or keep a few tokens
for themselves."""


def stated_limit(overflow: ContextOverflow, accepted_tokens: int = 0) -> int | None:
    """Return the limit that a refusal states; None without one, or for one below an input that was accepted."""
    limit = overflow.limit
    return limit if limit and is_possible(limit, accepted_tokens) else None


def stated_input(overflow: ContextOverflow) -> int | None:
    """Return the input that the provider counted; a stated sum has the requested output taken off."""
    actual, output = overflow.actual, overflow.requested_output
    if actual is None or output is None or overflow.kind == "input":
        return actual
    is_sum = overflow.limit is not None and actual > overflow.limit
    return actual - output if is_sum else actual


def is_possible(limit: int, accepted_tokens: int = 0) -> bool:
    """True for the limit of a served model that is not below an input which it took."""
    return limit >= max(LEAST_LIMIT_TOKENS, accepted_tokens / COUNT_SLACK)


def for_everybody(limit: int | None, declared: ModelLimits | None) -> dict[str, int]:
    """Return a stated limit by its field where it holds for other conversations too: near what is declared.

    Where nothing is declared, there is nothing that a limit could be far from.
    """
    limits = declared or ModelLimits()
    declared_tokens = max(limits.context_window or 0, limits.max_input_tokens or 0)
    size = declared_tokens or limit or 0
    is_near = limit and size / MOST_TIMES_OFF <= limit <= size * MOST_TIMES_OFF
    return {_limiting_field(limits): limit} if limit and is_near else {}


def _limiting_field(limits: ModelLimits) -> str:
    """The field that a stated limit corrects: an input limit of its own, else the window."""
    return "max_input_tokens" if limits.max_input_tokens else "context_window"


def lowered(limits: ModelLimits, learned: int | None) -> ModelLimits:
    """Return the limits with a learned one, where that is smaller."""
    field_name = _limiting_field(limits)
    if learned is None or learned >= (getattr(limits, field_name) or inf):
        return limits
    changes: dict[str, Any] = {field_name: learned}
    return replace(limits, **changes)


# ---- less output ----------------------------------------------------------------------------------------------------

# Names that integrations take for one call, too; `num_predict` of local servers is for construction only.
CALL_ARGUMENTS = OUTPUT_ARGUMENTS[:3]
LEAST_OUTPUT_TOKENS = 256  # shortest answer worth asking for: about a long paragraph, or a tool call with its arguments
LEAST_OUTPUT_SHARE = 0.25  # part of the requested output that has to remain: a shorter answer is likely cut off


def fitting_output(
    call: object, *, requested_tokens: int, room_tokens: int
) -> dict[str, int]:
    """Return the argument that asks `call` for no more output than there is room for; empty when it need not.

    It is the one by which the model, or a binding around it, was set. The thinking that a model was set to do counts as
    output, too.
    """
    model, bound = only_model(call) or (None, {})

    def setting(name: str) -> Any:
        return bound.get(name) or getattr(model, name, None)

    thinking = setting("thinking")
    is_set = isinstance(thinking, Mapping)
    budget = thinking.get("budget_tokens") if is_set else setting("thinking_budget")
    least_tokens = LEAST_OUTPUT_TOKENS + max(0, budget or 0)
    name = next(filter(setting, CALL_ARGUMENTS), None)
    has_room = least_tokens <= room_tokens < requested_tokens
    return {name: room_tokens} if name and has_room else {}


def only_model(call: object) -> tuple[Any, dict[str, Any]] | None:
    """Return the one model that every call goes to and what is bound to it; None when a run may choose another."""
    models = list(models_behind(call))
    return models[0] if len(models) == 1 else None


# ---- the budget -----------------------------------------------------------------------------------------------------

REGIONS = {
    "system": "system_tokens",
    "tools": "tool_tokens",
    "summary": "summary_tokens",
    "record": "record_tokens",
    "pinned": "pinned_tokens",
    "history": "history_tokens",
}
"""The regions that make up the input, by the name they are shown under, with their key in a `context_report`."""

ADVICE = {
    "system": "shorten the system prompt",
    "tools": "bind fewer tools",
    "summary": "lower summary_max_tokens",
    "record": "lower record_share",
    "pinned": "unpin or shorten messages, drop or shorten constraints",
    "history": "shorten the current message",
    "output reserve": "lower output_reserve",
}
"""What makes each region smaller."""


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How the input limit of one request is divided, in tokens.

    Raises:
        ConfigError: a size is no whole number, or negative.

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
        for name, size in asdict(self).items():
            require_count(name, size, minimum=0)

    @property
    def fixed_tokens(self) -> int:
        """Tokens of the regions that are in every request: system prompt, tools, summary and pinned messages."""
        return (
            self.system_tokens
            + self.tool_tokens
            + self.summary_tokens
            + self.pinned_tokens
        )

    @property
    def history_budget(self) -> int:
        """Tokens left for the history; 0 when the fixed regions alone fill the input limit."""
        return max(0, self.input_limit - self.fixed_tokens)


def refusal(report: Mapping[str, Any]) -> BudgetExceededError:
    """Build the error for a request that nothing can make fit: a sentence with what to change, and the regions.

    `report` is that of the request at its smallest.
    """
    limit, total = report["input_limit"], report["total_tokens"]
    reserve = {"output reserve": report["reserved_tokens"]}
    regions = {name: report[key] for name, key in REGIONS.items()}
    largest = max((regions | reserve).items(), key=lambda item: item[1])[0]
    taking = ", ".join(f"{name} {size:,}" for name, size in regions.items() if size)
    rows = {
        "context window": report["context_window"],
        **reserve,
        "input limit": limit,
        **regions,
        "total": total,
    }
    lines = [
        f"the request needs {total:,} of {limit:,} tokens ({taking}): {ADVICE[largest]} or raise context_window",
        "",
        "region                tokens   of limit",
        *(f"{name:<14}{size:>14,}{size / limit:>11.1%}" for name, size in rows.items()),
    ]
    return BudgetExceededError("\n".join(lines), report=report)
