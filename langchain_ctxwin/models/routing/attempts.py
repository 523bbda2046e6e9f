"""Who is asked next, and what does a failure mean for the others?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.exceptions import ContextOverflowError

from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow
from langchain_ctxwin.core.recovery import stated_input
from langchain_ctxwin.errors import NoModelFitsError
from langchain_ctxwin.models.routing.calling import Call, CannotBindToolsError, call_of
from langchain_ctxwin.models.routing.failures import Failure, failure_of
from langchain_ctxwin.models.routing.instances import Instance
from langchain_ctxwin.models.routing.request import Request
from langchain_ctxwin.models.routing.route import Route
from langchain_ctxwin.models.routing.router import ModelRouter

NO_TOOLS = "has an integration without tool calling"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    name: str
    what: str
    meaning: str


class Attempts:
    """The attempts at one request: each failure that another model may survive leads to the next one."""

    def __init__(self, router: ModelRouter, request: Request, arguments: Mapping[str, Any]) -> None:
        self._router = router
        self._request = request
        self._arguments = arguments
        self._tried: list[_Tried] = []
        self._error: Exception | None = None
        self._route: Route | None = None
        self._seconds = 0.0
        self._stated_above = 0
        self.is_well = False
        """True while the candidate that was asked last has not failed."""

    def next(self) -> Call:
        """Return the next call to make.

        Raises:
            NoModelFitsError: no candidate can take the request, and none was tried.
            ContextOverflowError: candidates failed, and those that remain are too small for the request.
            Exception: the last candidate's own error, with a note on each attempt, when no other is left.
        """
        call = None
        while call is None:
            name = self._choose()
            call = self._called(name, self._router.instance(name))
        return call

    async def anext(self) -> Call:
        """Like `next`, for async runs."""
        call = None
        while call is None:
            name = self._choose()
            call = self._called(name, await self._router.ainstance(name))
        return call

    @contextmanager
    def watched(self, *, final: bool = False) -> Iterator[None]:
        """Time what a candidate does; a failure that another may survive is kept for `next`, any other one is raised.

        Args:
            final: part of the answer was already shown, so that no other candidate can take over.
        """
        began = self._router.clock()
        self.is_well = False
        try:
            yield
            self.is_well = True
        except Exception as error:
            failure = failure_of(error)
            if failure is not None:
                self._take_up(failure, error)
            if failure is None or final:
                self._annotate(error)
                raise
            self._error = error
        finally:
            self._seconds += self._router.clock() - began

    def answered(self) -> dict[str, Any]:
        """Take up that the candidate answered, and return the route as metadata of the answer."""
        route = self._chosen()
        self._router.answered(route, self._request.conversation, self._seconds)
        return self.metadata()

    def metadata(self) -> dict[str, Any]:
        """Return the route as it stands, for the metadata of the answer."""
        return self._chosen().metadata([f"{tried.name}: {tried.what}" for tried in self._tried])

    def _chosen(self) -> Route:
        if self._route is None:
            raise NoModelFitsError("no candidate was asked yet: call next() first")
        return self._route

    def _choose(self) -> str:
        self._seconds = 0.0
        self._route = self._decided()
        return self._route.name

    def _called(self, name: str, instance: Instance) -> Call | None:
        """How the candidate is called; None when it cannot be, with tools."""
        try:
            return call_of(name, instance, self._arguments)
        except CannotBindToolsError:
            self._leave(name, Failure(what=NO_TOOLS, meaning=NO_TOOLS))
            return None

    def _decided(self) -> Route:
        """The next route; the largest window may still take what surely fits nowhere, before anyone gives up."""
        nothing: Exception | None = None
        anyone = replace(self._request, above_tokens=self._stated_above)
        last_resorts = ((self._router.decide, anyone), (self._router.largest, anyone))
        for decide, request in ((self._router.decide, self._request), *last_resorts):
            try:
                return decide(request)
            except NoModelFitsError as error:
                nothing = nothing or error
        if self._error is None:
            raise nothing or NoModelFitsError("no candidate can take the request")
        self._annotate(self._error)
        room = self._router.room(self._request)
        if room and classify_overflow(self._error) is None:
            raise self._remaining_too_small(room) from self._error
        raise self._error

    def _remaining_too_small(self, room_tokens: int) -> ContextOverflowError:
        """What remains could answer a shorter request: LangChain's own error for that lets whoever calls compact it."""
        size = self._chosen().estimated_tokens
        error = ContextOverflowError(
            f"the input token count ({size}) exceeds the maximum number of tokens allowed ({room_tokens}) by the "
            "candidates that remain"
        )
        self._annotate(error)
        return error

    def _take_up(self, failure: Failure, error: Exception) -> None:
        route = self._chosen()
        if failure.overflow is not None:
            self._look_above(self._refusing_limit(route, failure.overflow), failure.overflow)
            self._router.refused(route, failure.overflow, error)
        elif failure.needs_rest:
            self._router.failed(route.name, failure.what)
        self._leave(route.name, failure)

    def _look_above(self, refusing_tokens: int, overflow: ContextOverflow) -> None:
        """Go on with larger limits; where no number was stated, smaller ones that seem to fit come after those."""
        self._request = replace(self._request, above_tokens=max(refusing_tokens, self._request.above_tokens))
        if overflow.limit is not None or overflow.actual is not None:
            self._stated_above = max(refusing_tokens, self._stated_above)

    def _refusing_limit(self, route: Route, overflow: ContextOverflow) -> int:
        """The input limit that is too small: just below the stated size, else what the candidate was to take."""
        stated = stated_input(overflow)
        if stated is not None:
            return stated - 1
        limits = self._router.limits_of(route.name)
        reserve = limits.output_reserve(self._request.output_tokens)
        believed = limits.input_limit(min(reserve, (limits.context_window or reserve + 1) - 1))
        return min(believed, overflow.limit or believed)

    def _leave(self, name: str, failure: Failure) -> None:
        self._tried.append(_Tried(name=name, what=failure.what, meaning=failure.meaning))
        self._request = replace(
            self._request, exclude={**self._request.exclude, name: f"failed: {failure.what}"}, prefer="", renew=False
        )

    def _annotate(self, error: Exception) -> None:
        """Say on the error what was tried; without the other errors' texts, which would mislead its readers."""
        for tried in self._tried:
            error.add_note(f"routing asked {tried.name}: it {tried.meaning}")
