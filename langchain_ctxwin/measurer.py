"""The first verb: prices the next request, with the limits of its model and all that is known about sizes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
from langchain_core.messages import AnyMessage, SystemMessage

from langchain_ctxwin.config import ContextConfig, Fixed, LiveConfig
from langchain_ctxwin.core.assembly import merge_system
from langchain_ctxwin.core.calibration import prior
from langchain_ctxwin.core.compaction import Goal
from langchain_ctxwin.core.echo import has_number, request_texts
from langchain_ctxwin.core.learned_limits import for_everybody, stated_limit, unrefuted
from langchain_ctxwin.core.learning import expected, from_count
from langchain_ctxwin.core.limits import ModelLimits
from langchain_ctxwin.core.measuring import measure_request
from langchain_ctxwin.core.model_families import family_of, model_name
from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.pins import PinWhen
from langchain_ctxwin.core.recovery import known_of
from langchain_ctxwin.core.reported import fault_of
from langchain_ctxwin.core.requested import asked_lines
from langchain_ctxwin.core.session import Session, read_session, with_new_pins
from langchain_ctxwin.core.sizing import Sizing
from langchain_ctxwin.core.survey import Request
from langchain_ctxwin.core.window import About, Window
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.memo import AcceptedSizes, HeardLimits, Marks
from langchain_ctxwin.pricing import Pricing, Pricings
from langchain_ctxwin.protocols import LimitMemory, RequestCounter, TokenCounter

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
            is_exact=lambda: pricing.exact,
            declared=stated if stated.known else self.limits,
            settings=settings,
        )
        request = self._request(messages, system_prompt, tools, pricing, settings)
        checked = with_new_pins(read_session(session, messages), messages, request.pins)
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
        remote = self._remote(window)
        if remote is None:
            return window
        try:
            tokens = remote.count_request(window.survey.messages(), tools=_tools(window))
        except Exception as error:  # noqa: BLE001  # the estimate stands, whatever a counter does
            return _not_counted(window, error)
        return self._counted(window, tokens)

    async def averified(self, window: Window) -> Window:
        """Like `verified`, without blocking the event loop."""
        remote = self._remote(window)
        if remote is None:
            return window
        try:
            tokens = await remote.acount_request(window.survey.messages(), tools=_tools(window))
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

    def _remote(self, window: Window) -> RequestCounter | None:
        """The counter to ask about this request, if it is its model's and the answer decides anything."""
        remote = self._pricings.default.remote
        is_open = window.survey.lower_tokens <= window.budget.input_limit < window.survey.upper_tokens
        if remote is None or not is_open:
            return None
        counted = model_name(getattr(remote, "model", None)) or self.model
        return remote if window.about.model in {"", counted} else None

    def _counted(self, window: Window, tokens: int | None) -> Window:
        if tokens is None:
            return window
        fault = fault_of(tokens, expected(window.survey))
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
    return has_number(request_texts(window.survey.messages(), window.about.tools), overflow.limit)


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
