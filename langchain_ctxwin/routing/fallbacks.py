"""Fallbacks of one request: a candidate is called, and what its failure means for the others decides who is next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langsmith.run_helpers import tracing_context

from langchain_ctxwin.core.limits import models_behind
from langchain_ctxwin.core.overflow import (
    ContextOverflow,
    Evidence,
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
OWN_ARGUMENTS = ("route", "complexity", "conversation", "estimated_tokens")

# What a failure means, in words that no other reader of the error takes for a statement about its request.
TROUBLE = "was in trouble"
UNREACHABLE = "was not reachable"
LATE = "took too long"
TOO_SMALL = "had too small a window"
UNSUITED = "cannot do what the request asks for"
NO_TOOLS = "has an integration without tool calling"
NOT_MADE = "could not be made into a chat model"
MEANINGS = {
    **dict.fromkeys((401, 402, 403), "refused the credentials"),
    404: "does not know the model",
    **dict.fromkeys((408, 504), LATE),
    **dict.fromkeys((425, 429, 529), "was busy"),
}

# Credentials, payment, a missing model, time-outs, rates and trouble of the server: each concerns one provider. Without
# a status, words tell so in class names of SDKs, HTTP clients and Python itself.
SURVIVABLE_STATUSES = frozenset(
    {401, 402, 403, 404, 408, 409, 425, 429, *range(500, 600)}
)
SURVIVABLE_CLASSES = re.compile(
    r"Timeout|Connection|RateLimit|Throttl|TooManyRequests|Exhausted|Overloaded|Unavailable|DeadlineExceeded"
    r"|Authentication|PermissionDenied|^(?:Model)?NotFoundError|ServerError|^(?:Model)?APIError"
    r"|TransportError|gaierror|ClientPayload|ChunkedEncoding|Decod"
)
# What LangChain says of a stream that ends before its first chunk, and where one was read as a whole.
EMPTY_STREAMS = (
    "No generation chunks were returned",
    "No generations found in stream",
)

# A refusal because this model cannot do such a thing; another may.
UNSUPPORTED = re.compile(
    r"\b(?:not|dont|doesnt|isnt|un) ?support|\bnot (?:available|enabled) for (?:this|the) model",
    re.IGNORECASE,
)

# What wrong code raises: it would fail with every model.
OUR_FAULTS = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ImportError,
    RecursionError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFailure:
    """A failure that another model may survive."""

    what: str  # in a few words, the provider's own ones in brackets behind them
    overflow: ContextOverflow | None = (
        None  # what was said about the limit, when the request was too large
    )

    @property
    def meaning(self) -> str:
        """The same without the provider's words, which in a note on another's error would be taken for its own."""
        return self.what.partition(" (")[0]

    @property
    def needs_rest(self) -> bool:
        """True when the candidate is in trouble; False when only this request was nothing for it."""
        return self.what not in {TOO_SMALL, UNSUITED, NO_TOOLS}


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
        self._tried: list[tuple[str, CandidateFailure]] = []
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
            name = self._route.name
            try:
                instance = self._router.instance(name)
            except ConfigError as error:
                self._error = self._error or error
                self._take_up(name, CandidateFailure(what=NOT_MADE))
                continue
            call = call_of(name, instance, self._arguments)
            if call is None:
                self._take_up(name, CandidateFailure(what=NO_TOOLS))
                continue
            model, arguments = call
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
            if failure is not None:
                self._take_up(self._route.name, failure)
            if failure is None or final:
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
        return self._route.metadata(
            [f"{name}: {failure.what}" for name, failure in self._tried]
        )

    def _chosen(self) -> Route:
        """The next candidate; the largest window may still take what surely fits nowhere, before anyone gives up."""
        try:
            return self._router.decide(self._request)
        except NoModelFitsError as nothing:
            with suppress(NoModelFitsError):
                return self._router.largest(self._request)
            last = self._error or nothing
        self._annotate(last)
        raise last

    def _take_up(self, name: str, failure: CandidateFailure) -> None:
        """Leave a candidate, which rests when it is in trouble."""
        conversation = self._request.conversation
        if failure.overflow is not None:
            self._router.refused(self._route, failure.overflow, conversation)
        elif failure.needs_rest:
            self._router.failed(name, failure.what)
        self._tried.append((name, failure))
        exclude = {**self._request.exclude, name: f"failed: {failure.what}"}
        self._request = replace(self._request, exclude=exclude, prefer="")

    def _annotate(self, error: Exception) -> None:
        """Say on the error what was tried; without the other errors' texts, which would mislead its readers."""
        for name, failure in self._tried:
            error.add_note(f"routing asked {name}: it {failure.meaning}")


def call_of(
    name: str, instance: Instance, arguments: Mapping[str, Any]
) -> Instance | None:
    """Return the model and the arguments of a call; None when the request has tools, and the candidate takes none.

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
    try:
        part, formatted = next(models_behind(model.bind_tools(tools, **own_arguments)))
    except NotImplementedError:
        return None
    except Exception as error:
        raise ConfigError(
            f"the tools of this request cannot be described to {name!r} ({type(error).__name__}: {error}): "
            "correct their schemas"
        ) from error
    return part, {**bound, **formatted}


def _argument_name(model: BaseChatModel, argument: str) -> str:
    """The name under which this model takes the requested output; every other argument keeps its name."""
    if argument not in CALL_ARGUMENTS or hasattr(model, argument):
        return argument
    return next((name for name in CALL_ARGUMENTS if hasattr(model, name)), argument)


def failure_of(error: Exception) -> CandidateFailure | None:
    """Return the failure for which another candidate helps; None when the request itself, or our code, is wrong."""
    if isinstance(error, (ContextWindowError, *OUR_FAULTS)):
        return None
    overflow = classify_overflow(error)
    if overflow is not None:
        return CandidateFailure(what=TOO_SMALL, overflow=overflow)
    meanings = (meaning for said in evidence_of(error) if (meaning := _meaning(said)))
    return next((CandidateFailure(what=meaning) for meaning in meanings), None)


def _meaning(said: Evidence) -> str:
    name = said.class_names[0] if said.class_names else "error"
    if said.status in SURVIVABLE_STATUSES:
        return (
            f"{MEANINGS.get(said.status or 0, TROUBLE)} ({name}, status {said.status})"
        )
    if said.status is not None or any(
        code.startswith("invalid_request") for code in said.codes
    ):
        return UNSUITED if UNSUPPORTED.search(said.text) else ""
    if said.text.startswith(EMPTY_STREAMS):
        return f"{TROUBLE} (empty stream)"
    if any(map(SURVIVABLE_CLASSES.search, said.class_names)):
        is_unreachable = "Connection" in name or name == "gaierror"
        return f"{LATE if 'Timeout' in name else UNREACHABLE if is_unreachable else TROUBLE} ({name})"
    return ""
