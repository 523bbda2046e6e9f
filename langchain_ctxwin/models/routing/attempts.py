"""Who is asked next, and what does a failure mean for the others?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from langchain_ctxwin.core.overflow import ContextOverflow, classify_overflow, request_texts
from langchain_ctxwin.core.recovery import stated_input
from langchain_ctxwin.core.reported import reported_tokens
from langchain_ctxwin.errors import NoModelFitsError
from langchain_ctxwin.models.routing.calling import Call, CannotBindToolsError, call_of
from langchain_ctxwin.models.routing.failures import TOO_SMALL, Failure, failure_of
from langchain_ctxwin.models.routing.instances import CannotBeMadeError
from langchain_ctxwin.models.routing.request import Request
from langchain_ctxwin.models.routing.route import Route
from langchain_ctxwin.models.routing.router import ModelRouter

NO_TOOLS = "has an integration without tool calling"
NOT_MADE = "could not be made into a chat model"


class RemainingTooSmallError(ContextOverflowError):
    """Candidates failed or could not be asked, and those that are left are too small for the request.

    The text states their limit, so that whoever recovers from an overflow shortens the request for them. That limit
    says nothing about the candidate that was chosen first.
    """

    def __init__(self, message: str, *, candidate: str = "") -> None:
        super().__init__(message)
        self.candidate = candidate
        """The largest of those that are left; not in the text, where a number in a name would be read as a size."""


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
        self._unasked: Exception | None = None
        self._route: Route | None = None
        self._seconds = 0.0
        self._stated_above = 0
        self._accepted_tokens = 0
        self.is_well = False
        """True while the candidate that was asked last has not failed."""

    def next(self) -> Call:
        """Return the next call to make.

        Raises:
            NoModelFitsError: no candidate can take the request, and none was tried.
            RemainingTooSmallError: candidates failed, and those that remain are too small for the request.
            Exception: the error of the candidate that was asked last, with a note on each attempt, when none is left.
        """
        call = None
        while call is None:
            name = self._choose()
            with self._making(name):
                call = call_of(name, self._router.instance(name), self._arguments)
        return call

    async def anext(self) -> Call:
        """Like `next`, for async runs."""
        call = None
        while call is None:
            name = self._choose()
            with self._making(name):
                call = call_of(name, await self._router.ainstance(name), self._arguments)
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
            failure = failure_of(error, request_texts(self._request.messages, self._request.tools))
            if failure is not None:
                self._take_up(failure)
            if failure is None or final:
                self._annotate(error)
                raise
            self._error = error
        finally:
            self._seconds += self._router.clock() - began

    def answered(self, reply: BaseMessage | None = None) -> dict[str, Any]:
        """Take up that the candidate answered, and return the route as metadata of the answer."""
        route = self._chosen()
        self._note(reply)
        self._router.answered(route, self._request.conversation, self._seconds, tokens=self._accepted_tokens)
        return self.metadata()

    def noted(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """Return a chunk of the answer, after a look at the size of the request that may come with it."""
        self._note(chunk.message)
        return chunk

    def _note(self, reply: BaseMessage | None) -> None:
        """Keep the reported size of the request, if it can be that; of several the largest: chunks may add up."""
        if isinstance(reply, AIMessage):
            tokens, _ = reported_tokens(reply, (self._chosen().estimated_tokens,))
            self._accepted_tokens = max(self._accepted_tokens, tokens or 0)

    def metadata(self) -> dict[str, Any]:
        """Return the route as it stands, for the metadata of the answer."""
        return self._chosen().metadata([f"{tried.name}: {tried.what}" for tried in self._tried])

    def _chosen(self) -> Route:
        if self._route is None:
            raise NoModelFitsError("no candidate was asked yet: call next() first")
        return self._route

    def _choose(self) -> str:
        self._seconds, self._accepted_tokens = 0.0, 0
        self._route = self._decided()
        return self._route.name

    @contextmanager
    def _making(self, name: str) -> Iterator[None]:
        """Leave a candidate that cannot be asked: one that cannot be made rests, one without tools is well."""
        try:
            yield
        except CannotBeMadeError as error:
            self._unasked = error
            self._router.failed(name, NOT_MADE)
            self._leave(name, Failure(what=NOT_MADE, meaning=NOT_MADE))
        except CannotBindToolsError as error:
            self._unasked = self._unasked or error
            self._leave(name, Failure(what=NO_TOOLS, meaning=NO_TOOLS))

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
        raise self._final(nothing or NoModelFitsError("no candidate can take the request"))

    def _final(self, nothing: Exception) -> Exception:
        """Return what says that a shorter request could be answered, if so; else what the last candidate raised."""
        error = self._error or self._unasked
        if error is None:
            return nothing
        self._annotate(error)
        left, room_tokens = self._left()
        if room_tokens:
            return self._remaining_too_small(left, room_tokens, error)
        return nothing if isinstance(error, CannotBindToolsError) else error

    def _left(self) -> tuple[str, int]:
        """The largest candidate that could answer a shorter request, and its room; none where nobody is in trouble."""
        if classify_overflow(self._error) is None:
            return self._router.room(self._request)
        well = {tried.name for tried in self._tried if tried.meaning == TOO_SMALL}
        if len(well) == len(self._tried):  # refused as too large by all: the provider's own words say it best
            return "", 0
        exclude = {name: why for name, why in self._request.exclude.items() if name not in well}
        return self._router.room(replace(self._request, exclude=exclude))

    def _remaining_too_small(self, candidate: str, room_tokens: int, cause: Exception) -> RemainingTooSmallError:
        size = self._chosen().estimated_tokens
        error = RemainingTooSmallError(
            f"the input token count ({size}) exceeds the maximum number of tokens allowed ({room_tokens}) by the "
            "candidates that remain",
            candidate=candidate,
        )
        error.__cause__ = cause
        self._annotate(error)
        return error

    def _take_up(self, failure: Failure) -> None:
        route = self._chosen()
        if failure.overflow is not None:
            self._look_above(self._refusing_limit(route, failure.overflow), failure.overflow)
            self._router.refused(route, failure.overflow)
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
        believed = self._router.believed_limit(route.name, self._request)
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
