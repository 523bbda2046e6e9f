"""Fallbacks of one request: a candidate is called, and what its failure means for the others decides who is next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langsmith.run_helpers import tracing_context

from langchain_ctxwin.core.limits import models_behind
from langchain_ctxwin.core.overflow import (
    ContextOverflow,
    classify_overflow,
    evidence_of,
)
from langchain_ctxwin.core.provider_call import readable_by
from langchain_ctxwin.core.recovery import CALL_ARGUMENTS
from langchain_ctxwin.core.usage import fault_of, sent_tokens
from langchain_ctxwin.errors import (
    ConfigError,
    ContextWindowError,
    NoModelFitsError,
)
from langchain_ctxwin.routing.candidates import Instance, RouteRequest
from langchain_ctxwin.routing.router import ModelRouter, Route

# of a call, meant for the router
OWN_ARGUMENTS = ("route", "complexity", "conversation")

TOO_SMALL = "had too small a window"  # reports look for it
NOT_CALLED = "could not be called"

# Statuses of a request that is wrong by itself, whoever is asked.
REQUEST_FAULTS = frozenset({400, 422})

# What wrong code raises: it would fail with every model.
OUR_FAULTS = (
    ContextWindowError,
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    RecursionError,
)


class Fallbacks:
    """The calls for one request: each failure that another model may survive leads to the next candidate."""

    def __init__(
        self,
        router: ModelRouter,
        request: RouteRequest,
        arguments: Mapping[str, Any],
    ) -> None:
        self._router, self._request = router, request
        self._arguments = arguments
        self._tried: list[tuple[str, str]] = []
        self._error: Exception | None = None
        self._is_well = False

    def calls(self) -> Iterator[Instance]:
        """Yield the model to call next and the arguments for it, until one was watched and has not failed.

        Raises:
            NoModelFitsError: no candidate can take the request, and none was tried.
            Exception: the error of the candidate that was asked last, with a note on each attempt, when none is left.
        """
        while not self._is_well:
            self._route = self._chosen()
            self._accepted_tokens = 0
            try:
                instance = self._router.instance(self._route.name)
                model, arguments = call_of(instance, self._arguments)
            # it cannot be made of its name, or its integration has no tool calling
            except (ConfigError, NotImplementedError) as error:
                self._error = self._error or error
                self._leave(NOT_CALLED)
                continue
            messages = readable_by(model, self._request.messages)
            # without the callbacks of the run around: tokens would be counted twice
            alone = {"input": messages, "config": {"callbacks": []}}
            yield model, {**alone, **arguments}

    @contextmanager
    def watched(self, *, final: bool = False) -> Iterator[None]:
        """Watch what a candidate does; a failure that another may survive is kept, any other one is raised.

        Once part of the answer was shown (`final`), no other candidate can take over.
        """
        self._is_well = False
        try:
            # a trace of ours is no parent: its tokens would be shown twice
            with tracing_context(enabled=False):
                yield
            self._is_well = True
        except Exception as error:
            failure = failure_of(error)
            if failure:
                self._leave(failure, classify_overflow(error))
            if not failure or final:
                self._annotate(error)
                raise
            self._error = error

    def note(self, reply: AIMessage) -> None:
        """Take the largest size of the request that an answer, or its chunks, report: chunks may add up."""
        tokens = sent_tokens(reply)
        if not fault_of(tokens, (self._route.estimated_tokens,)):
            self._accepted_tokens = max(self._accepted_tokens, tokens)

    def answered(self) -> None:
        """Take up that the candidate answered, in full."""
        self._router.answered(
            self._route,
            self._request.conversation,
            tokens=self._accepted_tokens,
        )

    def metadata(self) -> dict[str, Any]:
        """Return the route as it stands, for the metadata of the answer."""
        return self._route.metadata([f"{name}: {what}" for name, what in self._tried])

    def _chosen(self) -> Route:
        """The next candidate."""
        try:
            return self._router.decide(self._request)
        except NoModelFitsError as nothing:
            last = self._error or nothing
        self._annotate(last)
        raise last

    def _leave(self, what: str, overflow: ContextOverflow | None = None) -> None:
        """Go on without the candidate that was asked, for this request."""
        name = self._route.name
        if overflow is not None:
            self._router.refused(self._route, overflow, self._request.conversation)
        self._tried.append((name, what))
        exclude = {**self._request.exclude, name: what}
        self._request = replace(self._request, exclude=exclude, prefer="")

    def _annotate(self, error: Exception) -> None:
        """Say on the error what was tried; without the other errors' texts, which would mislead its readers."""
        for name, what in self._tried:
            error.add_note(f"routing asked {name}: it {what.partition(' (')[0]}")


def call_of(instance: Instance, arguments: Mapping[str, Any]) -> Instance:
    """Return the model and the arguments of a call.

    Tools are formatted by the candidate's own `bind_tools`, because each provider has its own form for them and for
    the choice among them; what asks for a length of output gets the name that the model knows it by.
    """
    model, bound = instance
    own_arguments = {
        _argument_name(model, key): value
        for key, value in arguments.items()
        if key not in OWN_ARGUMENTS
    }
    tools = own_arguments.pop("tools", None)
    if not tools:
        return model, {**bound, **own_arguments}
    part, formatted = next(models_behind(model.bind_tools(tools, **own_arguments)))
    return part, {**bound, **formatted}


def _argument_name(model: BaseChatModel, argument: str) -> str:
    """The name under which this model takes the requested output; every other argument keeps its name."""
    if argument not in CALL_ARGUMENTS or hasattr(model, argument):
        return argument
    return next((name for name in CALL_ARGUMENTS if hasattr(model, name)), argument)


def failure_of(error: Exception) -> str:
    """Return what a failure says for which another candidate helps; empty when the request, or our code, is wrong.

    The error's class stands in brackets: in a note on another's error it would be taken for that one's own.
    """
    if isinstance(error, OUR_FAULTS):
        return ""
    if classify_overflow(error):
        return TOO_SMALL
    statuses = (said.status for said in evidence_of(error))
    status = next(filter(None, statuses), None)
    if status in REQUEST_FAULTS:
        return ""
    name = type(error).__name__
    return f"failed ({name}, status {status})" if status else f"failed ({name})"
