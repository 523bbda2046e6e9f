"""Measures the next request: its price with the limits of its model and all that is known about sizes."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import iscoroutinefunction
from math import sqrt
from typing import Any

import structlog
from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.config import ContextConfig, Fixed, LiveConfig
from langchain_ctxwin.core.assembly import filled, merge_system
from langchain_ctxwin.core.calibration import QUANTILE_SD, Doubt, prior
from langchain_ctxwin.core.compaction import Goal
from langchain_ctxwin.core.edits import compact_json
from langchain_ctxwin.core.limits import ModelLimits, for_everybody, stated_limit, unrefuted
from langchain_ctxwin.core.measuring import measure_request
from langchain_ctxwin.core.model_families import family_of, model_name
from langchain_ctxwin.core.notes import asked_lines
from langchain_ctxwin.core.outcome import expected, from_count
from langchain_ctxwin.core.overflow import ContextOverflow, has_number, request_texts
from langchain_ctxwin.core.priced_view import PinWhen, Request
from langchain_ctxwin.core.recovery import known_of
from langchain_ctxwin.core.reported import fault_of
from langchain_ctxwin.core.session import Session, read_session, with_new_pins
from langchain_ctxwin.core.sizing import Sizing
from langchain_ctxwin.core.tokens import CharRatioCounter, TokenEstimator, tool_definition
from langchain_ctxwin.core.window import About, Window
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.guarded import GuardedCounter
from langchain_ctxwin.memo import AcceptedSizes, HeardLimits, Marks, Records, Steps
from langchain_ctxwin.protocols import LimitMemory, RequestCounter, TokenCounter
from langchain_ctxwin.util.memo import MAX_TEXTS, Lru, PerMessage, once, snapshot

OWN_COUNTERS = (TokenEstimator, CharRatioCounter)
"""Counters that cannot fail and take microseconds; others are guarded."""

PROBE_TOKENS = 100_000
"""Size at which a counter's bounds are read: large enough that rounding does not matter."""

NOISE_PART = 0.8
MAX_NOISE_SHARE = 0.1
"""Part of a counter's error that differs from text to text, and its most: a wider one doubts the tokenizer itself."""

EXACT_NOISE_SHARE = 0.02
"""What an exact counter of texts leaves open of a message: how the provider frames it."""

ToolSet = tuple[tuple[Any, ...], int, str, list[Any] | None]
"""Tools, their price, their fingerprint, and how the definitions among them were that may change in place."""


class Pricing:
    """The prices of one counter; thread-safe, bounded, shared by all conversations of an engine."""

    def __init__(self, counter: TokenCounter, *, family: str) -> None:
        self.remote = counter if isinstance(counter, RequestCounter) else None
        """Counts whole requests where the provider does; None for a counter that prices messages by itself."""
        self.counter = counter.estimator if isinstance(counter, RequestCounter) else counter
        """PerMessage messages and tools."""
        self._estimator = TokenEstimator(family)
        is_own = isinstance(self.counter, OWN_COUNTERS)
        self._guard = None if is_own else GuardedCounter(self.counter, self._estimator)
        self.count: TokenCounter = self._guard or self.counter
        """The counter, made safe."""
        self._doubts = (_doubt_of(self.counter), _doubt_of(self._estimator))
        self._base: tuple[int | None] | None = None
        self.price = PerMessage(self._price)
        self.show = Steps(self.price)
        self.fill = Fills()
        self._tool_sets: Lru[ToolSet] = Lru(MAX_TEXTS)
        self._takes_tools = _takes_tools(self.counter)

    @property
    def has_failed(self) -> bool:
        """True once something was estimated because the counter could not count it."""
        return self._guard is not None and self._guard.has_failed

    @property
    def doubt(self) -> Doubt:
        """How far the counts may be off before anything was reported: the estimator's doubt once it stood in."""
        return self._doubts[self.has_failed]

    @property
    def exact(self) -> bool:
        """True when the counter states that its counts are exact, and could count everything so far."""
        return bool(getattr(self.counter, "exact", False)) and not self.has_failed and self._asked_base() is not None

    @property
    def base_tokens(self) -> int:
        """What the counter adds once to every request; 0 when it cannot say."""
        return self._asked_base() or 0

    def tools(self, tools: Sequence[Any]) -> int:
        """Tokens of the tool definitions."""
        return self._tool_set(tools)[1] if tools else 0

    def tools_digest(self, tools: Sequence[Any]) -> str:
        """Fingerprint of the tool definitions."""
        return self._tool_set(tools)[2] if tools else ""

    def _asked_base(self) -> int | None:
        """Ask the counter at first use: it may be slow. Two threads at once may both ask, and hear the same."""
        if self._base is None:
            self._base = (self._guard.attempt([]) if self._guard else int(self.counter([])),)
        return self._base[0]

    def _price(self, message: AnyMessage) -> int:
        return self._net([message])

    def _net(self, messages: list[AnyMessage], tools: list[Any] | None = None) -> int:
        """Tokens beyond those of an empty request, by whoever counts: each adds something of its own to every one."""
        if self._guard is None:
            return max(0, int(self.counter(messages, tools=tools)) - self.base_tokens)
        tokens = self._guard.attempt(messages, tools=tools)
        if tokens is None:
            return max(0, self._guard.estimate(messages, tools=tools) - self._estimator([]))
        return max(0, tokens - self.base_tokens)

    def _tool_set(self, tools: Sequence[Any]) -> ToolSet:
        # The tuple in the value keeps the tools alive, so an id in the key cannot come to mean another tool.
        kept = tuple(tools)
        key, definitions = tuple(map(id, kept)), [tool for tool in kept if isinstance(tool, dict)]
        known = self._tool_sets.get(key)
        if known is None or known[3] not in (None, definitions):
            made = (kept, self._price_tools(kept), _digest(kept), _as_it_is(definitions))
            known = self._tool_sets.put(key, made)
        return known

    def _price_tools(self, tools: tuple[Any, ...]) -> int:
        if self._takes_tools:
            return self._net([], list(tools))
        return sum(self._price(SystemMessage(content=_json(tool))) for tool in tools)


class Fills:
    """Makes each message with a line about the fill once, so that it is priced once."""

    def __init__(self) -> None:
        self._known: Lru[tuple[AnyMessage, AnyMessage]] = Lru(MAX_TEXTS)

    def __call__(self, message: AnyMessage, tenths: int) -> AnyMessage:
        """Return what `filled` returns."""
        if not isinstance(message.content, str):  # blocks may change in place
            return filled(message, tenths)
        # The message in the value keeps it alive, so an id in the key cannot come to mean another one.
        key = (id(message), message.content, tenths)
        return once(self._known, key, lambda: (message, filled(message, tenths)))[1]


class Pricings:
    """The prices of one counter, or of the estimator of each tokenizer family that requests go to."""

    def __init__(self, counter: TokenCounter | None, *, family: str) -> None:
        self.default = Pricing(counter or TokenEstimator(family), family=family)
        """For requests that name no model of their own."""
        self._by_family = {family: self.default} if counter is None else None

    def of(self, model: object) -> Pricing:
        """Return the prices for the model of a request; with one counter for all, its."""
        if model is None or self._by_family is None:
            return self.default
        family = family_of(model)
        known = self._by_family.get(family)
        return known or self._by_family.setdefault(family, Pricing(TokenEstimator(family), family=family))


def _doubt_of(counter: TokenCounter) -> Doubt:
    """Read the bounds that a counter states; one that states none is taken as it is."""
    if getattr(counter, "exact", False):
        return Doubt(slope_sd=0.0, noise_share=EXACT_NOISE_SHARE, has_margin=False)
    upper, lower = getattr(counter, "upper", None), getattr(counter, "lower", None)
    if upper is None or lower is None:
        return Doubt(has_margin=False)
    above = max(0.0, upper(PROBE_TOKENS) / PROBE_TOKENS - 1)
    below = max(0.0, 1 - lower(PROBE_TOKENS) / PROBE_TOKENS)
    sd = above / QUANTILE_SD
    # The bounds are those of single texts: what differs from text to text is noise, the rest is doubt about the slope.
    noise_share = min(NOISE_PART * sd, MAX_NOISE_SHARE)
    slope_sd = sqrt(sd**2 - noise_share**2)
    return Doubt(slope_sd=slope_sd, noise_share=noise_share, lower_share=below / above if above else 0.0)


def _takes_tools(counter: TokenCounter) -> bool:
    try:
        parameters = inspect.signature(counter).parameters
    except (TypeError, ValueError):
        return False
    return "tools" in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _as_it_is(definitions: list[Any]) -> list[Any] | None:
    """A copy to compare with; None of definitions that hold themselves, whose changes are not noticed."""
    try:
        copied: list[Any] = snapshot(definitions)
    except RecursionError:
        return None
    return copied


def _digest(tools: tuple[Any, ...]) -> str:
    text = "\0".join(map(_json, tools))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _json(tool: Any) -> str:
    return compact_json(tool_definition(tool))


SHOWN_CHARS = 80
"""Longest value in an error: enough to recognize it, and a whole chat model is no help."""

HOOKS = {
    "before_compaction": "takes a window and a compaction and returns a compaction or None",
    "after_compaction": "takes the event of a compaction",
}


def check_collaborators(*, config: Any, counter: Any, learned: Any, jobs: Any, **hooks: Any) -> None:
    """Raise `ConfigError` for what cannot serve an engine; None is a default everywhere."""
    if isinstance(config, type) or not isinstance(config, ContextConfig | LiveConfig | None):
        raise ConfigError(f"config={shown(config)}: pass a ContextConfig, for example ContextConfig(keep=0.4)")
    if counter is not None and not _is_made(counter, "__call__"):
        raise ConfigError(
            f"counter={shown(counter)}: pass a callable that counts the tokens of messages, for example "
            "TokenEstimator(), or None"
        )
    if learned is not None and not _is_made(learned, "recall", "learn"):
        raise ConfigError(
            f"learned={shown(learned)}: pass a memory with methods recall and learn, for example LearnedSource(path), "
            "or None"
        )
    if jobs is not None and not _is_made(jobs, "start", "find", "forget", "cancel"):
        raise ConfigError(f"jobs={shown(jobs)}: pass a SummaryJobs, or None for those that the process shares")
    for name, hook in hooks.items():
        if hook is not None and (not callable(hook) or iscoroutinefunction(hook) or isinstance(hook, type)):
            raise ConfigError(f"{name}={shown(hook)}: pass a plain function that {HOOKS[name]}, or None")


def shown(value: Any) -> str:
    """Return a value as an error shows it: short."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _is_made(value: Any, *methods: str) -> bool:
    """True for an object with these methods; a class has them too, but is not an object made from it."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)


log = structlog.get_logger("langchain_ctxwin")


class Measurer:
    """Turns a history and a session into a `Window`; thread-safe, shared by all conversations of an engine."""

    def __init__(
        self,
        limits: Any,
        counter: TokenCounter | None,
        live: LiveConfig,
        learned: LimitMemory | None,
        pin_when: PinWhen | None = None,
    ) -> None:
        self._live = live
        self._settings = self._refused = live.current
        self.limits = _checked(ModelLimits.of(limits), self._settings)
        self.model = model_name(limits)
        self._pricings = Pricings(counter, family=family_of(limits))
        self._learned = learned or HeardLimits()
        self._accepted = AcceptedSizes(time.monotonic)
        self._marks = Marks(pin_when)
        self._records = Records()

    @property
    def counter(self) -> TokenCounter:
        """What prices messages when a request names no model of its own."""
        return self._pricings.default.count

    @property
    def is_live(self) -> bool:
        """True when the settings may change from one request to the next."""
        return not isinstance(self._live, Fixed)

    @property
    def settings(self) -> ContextConfig:
        """The settings that hold now; new ones that leave these limits no input are passed over."""
        now = self._live.current
        if now is self._settings or now is self._refused:
            return self._settings
        try:
            _checked(self.limits, now)
        except ConfigError as error:
            log.warning("config.refused", reason=str(error), active="the settings before")
            self._refused = now
        else:
            self._settings = now
        return self._settings

    def measure(
        self,
        messages: Sequence[AnyMessage],
        system_prompt: str | SystemMessage,
        tools: Sequence[Any],
        session: Mapping[str, Any] | None,
        model: Any,
    ) -> Window:
        """Measure the next request of a conversation."""
        pricing, settings = self._pricings.of(model), self.settings
        stated = ModelLimits.of(model) if model is not None else self.limits
        about = About(
            model=model_name(model) or self.model,
            tools=tools,
            tools_digest=pricing.tools_digest(tools),
            tool_tokens=pricing.tools,
            is_exact=lambda: pricing.exact,
            declared=stated if stated.known else self.limits,
            settings=settings,
        )
        request = self._request(messages, system_prompt, tools, pricing, settings)
        checked = with_new_pins(read_session(session, messages, self._records), messages, request.pins)
        return self._window(request, checked, about.declared or self.limits, about)

    def again(self, window: Window, counts: dict[str, Any], *, was_refused: bool = False) -> Window:
        """Measure the same request with another `context_counts`."""
        session = replace(window.session, counts=counts)
        return self._window(window.request, session, window.limits, window.about, was_refused=was_refused)

    def by(self, window: Window, settings: ContextConfig) -> Window:
        """Measure the same request by other settings."""
        if window.about.settings is settings:
            return window
        request = replace(window.request, constraints=settings.constraints, placement=settings.summary_placement)
        return self._window(request, window.session, window.limits, replace(window.about, settings=settings))

    def verified(self, window: Window) -> Window:
        """Count a request that may or may not fit where the provider does."""
        remote = self.remote_for(window)
        if remote is None:
            return window
        try:
            tokens = remote.count_request(window.priced_view.messages(), tools=_tools(window))
        except Exception as error:  # noqa: BLE001  # the estimate stands, whatever a counter does
            return _not_counted(window, error)
        return self._counted(window, tokens)

    async def averified(self, window: Window) -> Window:
        """Like `verified`, without blocking the event loop."""
        remote = self.remote_for(window)
        if remote is None:
            return window
        try:
            tokens = await remote.acount_request(window.priced_view.messages(), tools=_tools(window))
        except Exception as error:  # noqa: BLE001  # see verified
            return _not_counted(window, error)
        return self._counted(window, tokens)

    def hear(self, window: Window, overflow: ContextOverflow) -> None:
        """Remember a limit that the provider stated, for other conversations, if it is one to tell them."""
        model, stated = window.about.model, stated_limit(overflow, known_of(window))
        told = unrefuted(for_everybody(stated, window.about.declared), self._accepted.of(model))
        if not told or _may_be_quoted(window, overflow):
            return
        try:
            self._learned.learn(model, told)
        except Exception as error:  # noqa: BLE001  # the conversation knows the limit; a broken memory is no reason to end it
            log.warning("limits.not_learned", model=model, reason=type(error).__name__, **told)

    def accepted(self, window: Window, tokens: int) -> None:
        """Take up that the provider accepted a request: limits below its size are forgotten, for everybody."""
        model, forget = window.about.model, getattr(self._learned, "accepted", None)
        self._accepted.note(model, tokens)
        try:
            if forget is not None:
                forget(model, tokens)
        except Exception as error:  # noqa: BLE001  # see hear
            log.warning("limits.not_withdrawn", model=model, reason=type(error).__name__, tokens=tokens)

    def remote_for(self, window: Window) -> RequestCounter | None:
        """Return the counter to ask about this request, if it is its model's and the answer decides anything."""
        remote = self._pricings.default.remote
        is_open = window.priced_view.lower_tokens <= window.budget.input_limit < window.priced_view.upper_tokens
        if remote is None or not is_open:
            return None
        counted = model_name(getattr(remote, "model", None)) or self.model
        return remote if window.about.model in {"", counted} else None

    def _counted(self, window: Window, tokens: int | None) -> Window:
        if tokens is None:
            return window
        fault = fault_of(tokens, expected(window.priced_view))
        if fault:
            log.warning("count.failed", reason=fault, instead="estimate")
            return window
        return self.again(window, from_count(window, tokens))

    def _window(
        self, request: Request, session: Session, stated: ModelLimits, about: About, *, was_refused: bool = False
    ) -> Window:
        settings: ContextConfig = about.settings
        return measure_request(
            request,
            session,
            stated,
            about,
            heard=self._heard(about),
            output_reserve=settings.output_reserve,
            goal=partial(_goal, settings),
            was_refused=was_refused,
            show_fill=settings.show_fill,
        )

    def _heard(self, about: About) -> Mapping[str, int]:
        """Limits that other conversations learned; a memory that fails has none."""
        try:
            return for_everybody(self._learned.recall(about.model), about.declared)
        except Exception as error:  # noqa: BLE001  # see hear
            log.warning("limits.not_recalled", model=about.model, reason=type(error).__name__)
            return {}

    def _request(
        self,
        messages: Sequence[AnyMessage],
        prompt: str | SystemMessage,
        tools: Sequence[Any],
        pricing: Pricing,
        settings: ContextConfig,
    ) -> Request:
        first = next((i for i, m in enumerate(messages) if not isinstance(m, SystemMessage)), len(messages))
        system = merge_system(prompt, messages[:first])
        system_tokens = pricing.base_tokens + (pricing.price(system) if system else 0)
        tool_tokens = pricing.tools(tools)
        plain = prior(pricing.doubt, tool_tokens=tool_tokens, system_tokens=system_tokens)
        return Request(
            messages=messages,
            first=first,
            system=system,
            pins=self._marks(messages),
            constraints=settings.constraints,
            keeps=asked_lines(messages),
            placement=settings.summary_placement,
            system_tokens=system_tokens,
            tool_tokens=tool_tokens,
            price=pricing.price,
            show=pricing.show,
            fill=pricing.fill,
            sizing=Sizing(belief=plain, plain=plain, doubt=pricing.doubt),
        )


def _goal(settings: ContextConfig, limit: int, is_checked: bool) -> Goal:
    return Goal(
        limit=limit,
        is_checked=is_checked,
        keep=settings.keep,
        record_share=settings.record_share,
        clear_tools=frozenset(settings.clear_tools),
        spare_tools=frozenset(settings.spare_tools),
        max_history_tokens=settings.max_history_tokens,
        max_messages=settings.trigger_messages,
        pin_first_user=settings.pin_first_user,
    )


def _may_be_quoted(window: Window, overflow: ContextOverflow) -> bool:
    """True for a number that the request has too, unless somebody saw that the provider says it in words of its own."""
    if overflow.said_by == "provider" or overflow.limit is None:
        return False
    return has_number(request_texts(window.priced_view.messages(), window.about.tools), overflow.limit)


def _not_counted(window: Window, error: Exception) -> Window:
    log.warning("count.failed", reason=type(error).__name__, instead="estimate")
    return window


def _checked(limits: ModelLimits, config: ContextConfig) -> ModelLimits:
    """Return the limits, guessed where that is allowed; raise for those that leave no input."""
    if not limits.known and config.allow_guess:
        limits = limits.guessed()
    limits.input_limit(limits.output_reserve(config.output_reserve))
    return limits


def _tools(window: Window) -> list[Any] | None:
    return list(window.about.tools) or None
