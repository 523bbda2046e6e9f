"""The requests in a stream of events: each with its route, and with the refusals of its provider."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from langchain_ctxwin.core.events import Event, RecoveryEvent, RefusalEvent, RouteEvent, StepEvent
from langchain_ctxwin.errors import BudgetExceededError, NoModelFitsError
from langchain_ctxwin.observe.gates import RequestRecord, kind_of_reason, refused_as_too_long

NOT_SENT = frozenset({"", BudgetExceededError.__name__, NoModelFitsError.__name__})
"""Reasons of a refusal that are not its provider's: it may have been refused before, as other events tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvents:
    """What events say about one request."""

    model: str

    step: StepEvent | None = None
    """Its answer; None where none came, or where only a route tells of it."""

    route: RouteEvent | None = None
    """Why the model was chosen."""

    is_chosen: bool = False
    """Whether the route was chosen for this request; else for an earlier one of the conversation."""

    overflows: int = 0
    """Times that a provider refused it as too long."""

    succeeded: bool = True

    @property
    def reason(self) -> str:
        """Kind of reason why this model was chosen; empty when nothing says so."""
        return kind_of_reason(self.route.reason) if self.route else ""

    @property
    def quality(self) -> float | None:
        """Score of the answer, where somebody gave one."""
        return self.step.quality if self.step else None

    @property
    def left_cost(self) -> Decimal | None:
        """USD that the choice made for it costs more than the cheapest candidate, as estimated."""
        route = self.route if self.is_chosen else None
        if route is None or route.estimated_cost is None or route.cheapest_cost is None:
            return None
        return max(Decimal(0), route.estimated_cost - route.cheapest_cost)

    def record(self) -> RequestRecord:
        """Return the request as gates take it.

        What it would have cost at the largest candidate, and whether another one would have been the better choice, no
        event says. The sizes of a request that got no answer are unknown, because it may not have been sent.
        """
        about: dict[str, Any] = {name: getattr(self, name) for name in ("model", "reason", "overflows", "succeeded")}
        about["fallbacks"] = len(self.route.fallbacks) if self.route else 0
        if self.step is None:
            route = self.route if self.route and self.succeeded else RouteEvent()
            about |= {"input_tokens": route.estimated_tokens, "cost": route.estimated_cost}
            return RequestRecord(input_limit=None, tool_tokens=None, **about)
        step = self.step
        return RequestRecord(
            input_limit=step.input_limit or None,
            input_tokens=step.input_tokens or None,
            output_tokens=step.output_tokens,
            tool_tokens=step.regions.get("tools", None if step.tools_offered else 0),
            reserved_tokens=step.reserved_tokens,
            cost=step.cost,
            **about,
        )


def requests_of(events: Iterable[Event]) -> Iterator[RequestEvents]:
    """Yield the requests in events, which are joined by their thread and their order alone.

    The route of an answer is the latest before it: of this answer, else the one that the conversation keeps to.
    Refusals by a provider belong to the next answer, as many as it took calls beyond the first; others belong to a
    request that failed. Agents that share a thread are mixed, and so are all calls outside of threads.

    Args:
        events: in the order in which they were reported.
    """
    threads: defaultdict[str, _Thread] = defaultdict(_Thread)
    for event in events:
        thread = threads[event.thread]
        if isinstance(event, StepEvent):
            yield from thread.answered(event)
        elif isinstance(event, RefusalEvent):
            yield thread.failed(event.model, refusals=event.reason not in NOT_SENT)
        elif isinstance(event, RouteEvent):
            yield from thread.routed(event)
        elif isinstance(event, RecoveryEvent):
            thread.refusals.append(event.model)
    for thread in threads.values():
        yield from thread.left_over()


@dataclass(slots=True)
class _Thread:
    """What is known of a thread and belongs to a request that is still to come."""

    kept: RouteEvent | None = None  # the route that the conversation keeps to
    is_new: bool = False
    of_answer: RouteEvent | None = None  # the route of one answer
    refusals: list[str] = field(default_factory=list)  # models whose provider refused a request

    def routed(self, route: RouteEvent) -> Iterator[RequestEvents]:
        if route.has_answered:
            yield from self._lone_answer()
            self.of_answer = route
        else:
            self.kept, self.is_new = route, True

    def answered(self, step: StepEvent) -> Iterator[RequestEvents]:
        own = max(0, step.calls - 1)
        if earlier := self.refusals[: max(0, len(self.refusals) - own)]:
            yield RequestEvents(model=earlier[-1], overflows=len(earlier), succeeded=False)
        route = self.of_answer or self.kept
        yield RequestEvents(
            model=step.model,
            step=step,
            route=route,
            is_chosen=self.of_answer is not None or self.is_new,
            overflows=own + refused_as_too_long(route.fallbacks if route else ()),
        )
        self.of_answer, self.is_new, self.refusals = None, False, []

    def failed(self, model: str, *, refusals: int = 0) -> RequestEvents:
        overflows, self.refusals = len(self.refusals) + refusals, []
        return RequestEvents(model=model, overflows=overflows, succeeded=False)

    def left_over(self) -> Iterator[RequestEvents]:
        """What no answer followed."""
        yield from self._lone_answer()
        if self.refusals:
            yield self.failed(self.refusals[-1])

    def _lone_answer(self) -> Iterator[RequestEvents]:
        """An answer of a routed model that no agent asked."""
        route, self.of_answer = self.of_answer, None
        if route is not None:
            overflows = refused_as_too_long(route.fallbacks)
            yield RequestEvents(model=route.model, route=route, is_chosen=True, overflows=overflows)
