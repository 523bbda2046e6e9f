"""A candidate failed: would another model survive the same request?"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from dataclasses import dataclass

from langchain_ctxwin.core.overflow import ContextOverflow, Evidence, classify_overflow, evidence_of
from langchain_ctxwin.errors import ContextWindowError

SURVIVABLE_STATUSES = frozenset({401, 402, 403, 404, 408, 409, 425, 429, *range(500, 600)})
"""Credentials, payment, a missing model, time-outs, rates and trouble of the server: each concerns one provider."""

SURVIVABLE_CLASSES = re.compile(
    r"^(?:Model(?:Authentication|PermissionDenied|NotFound|RateLimit|API|Connection|Timeout)Error"
    r"|(?:API)?(?:Connection|Timeout|RateLimit|Authentication|PermissionDenied|InternalServer|Overloaded)Error"
    r"|APIConnectionError|APITimeoutError|APIError|ServerError|InternalServerError|ServiceUnavailable\w*"
    r"|TransportError|TimeoutException|(?>\w*?Throttl)\w*+|ResourceExhausted|TooManyRequests|DeadlineExceeded"
    r"|Timeout|gaierror|Client(?:Connection|Payload)Error|ChunkedEncodingError|(?:Content)?DecodingError"
    r"|JSONDecodeError)$"
)
"""Class names of SDKs, HTTP clients and Python itself, where no status is stated."""

NETWORK_ERRNOS = frozenset(
    {
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.ECONNABORTED, errno.ECONNRESET, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EPIPE),
        *(errno.ENOTCONN, errno.ESHUTDOWN, errno.EADDRNOTAVAIL, errno.ENOBUFS),
    }
)
"""Errors of the system that are about the network; others, like a missing file, are no trouble of a provider."""

EMPTY_STREAM = "No generation chunks were returned"
"""What LangChain says of a stream that ends before its first chunk."""

EMPTY_STREAMS = re.compile(rf"^(?:{EMPTY_STREAM}|No generations found in stream)\b")
"""The same, and its words where a stream was read as a whole."""

SURVIVABLE_CODES = re.compile(
    r"rate_?limit|throttl|unavailable|overloaded|time_?out|server_error|quota|model_not_found|invalid_api_key"
)
"""Words in a provider's own error code."""

UNSUPPORTED = re.compile(
    r"\b(?:not|dont|doesnt|isnt|un) ?support|\bnot (?:available|enabled) for (?:this|the) model", re.IGNORECASE
)
"""A refusal because this model cannot do such a thing; another may."""

MEANINGS = {
    **dict.fromkeys((401, 402, 403), "refused the credentials"),
    404: "does not know the model",
    **dict.fromkeys((408, 504), "took too long"),
    **dict.fromkeys((425, 429, 529), "was busy"),
}
"""What a status means, in words that no other reader of the error takes for a statement about its request."""

OTHER_MEANING = "was in trouble"
UNREACHABLE = "was not reachable"
TOO_SMALL = "had too small a window"
UNSUITED = "cannot do what the request asks for"

OUR_FAULTS = (TypeError, AttributeError, NameError, LookupError, AssertionError, ImportError, RecursionError)
"""What wrong code raises: it would fail with every model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure that another model may survive."""

    what: str
    """In a few words."""

    meaning: str
    """The same without the provider's words: added to another candidate's error, those would be taken for its own."""

    overflow: ContextOverflow | None = None
    """What was said about the limit, when the request was too large for this model."""

    @property
    def needs_rest(self) -> bool:
        """True when the candidate is in trouble; False when only this request was nothing for it."""
        return self.meaning not in {TOO_SMALL, UNSUITED}


def failure_of(error: Exception, request: Iterable[str] = ()) -> Failure | None:
    """Return what an exception means for other candidates; None when the request itself, or our code, is wrong.

    What it quotes of the `request` says nothing about a limit.
    """
    if isinstance(error, (ContextWindowError, *OUR_FAULTS)):
        return None
    overflow = classify_overflow(error, request=request)
    if overflow is not None:
        return Failure(what=TOO_SMALL, meaning=TOO_SMALL, overflow=overflow)
    if isinstance(error, OSError) and error.errno in NETWORK_ERRNOS:
        return Failure(what=type(error).__name__, meaning=UNREACHABLE)
    return next((failure for said in evidence_of(error) if (failure := _judged(said))), None)


def _judged(said: Evidence) -> Failure | None:
    name = said.class_names[0] if said.class_names else "error"
    if said.status in SURVIVABLE_STATUSES:
        return Failure(what=f"{name}, status {said.status}", meaning=MEANINGS.get(said.status or 0, OTHER_MEANING))
    if said.status is not None or any(code.startswith("invalid_request") for code in said.codes):
        return Failure(what=UNSUITED, meaning=UNSUITED) if UNSUPPORTED.search(said.text) else None
    known = any(map(SURVIVABLE_CLASSES.match, said.class_names)) or any(map(SURVIVABLE_CODES.search, said.codes))
    is_empty = EMPTY_STREAMS.match(said.text)
    return Failure(what="empty stream" if is_empty else name, meaning=_meaning(name)) if known or is_empty else None


def _meaning(class_name: str) -> str:
    name = class_name.lower()
    if "timeout" in name:
        return "took too long"
    return UNREACHABLE if "connection" in name or name == "gaierror" else OTHER_MEANING
