"""How is JSON asked of an endpoint: in bounded time and size, patiently, and without a key ever leaving its host?"""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx

from langchain_ctxwin.errors import ConfigError, ContextWindowError
from langchain_ctxwin.models.sources.bodies import ACCEPTED, MAX_BYTES, Body, BodyError
from langchain_ctxwin.models.sources.log_filter import without_queries

TIMEOUT_SECONDS = 8.0
"""Time for everything that one `fetch` asks, retries and pages included; list endpoints answer within one or two."""

MAX_ATTEMPTS = 3
MAX_REDIRECTS = 3

MAX_PAGES = 50
"""Pages of one listing; the longest listings known have a few hundred entries, at 1,000 a page."""

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
"""Statuses that may be over in a moment; 529 is how one provider says that it is overloaded."""

FIRST_WAIT_SECONDS = 0.25
"""Wait before the second attempt; doubled for the next, and varied so that many processes do not come back together."""

NOT_FOUND = 404
MOVED = frozenset({301, 302, 303, 307, 308})
_DEFAULT_PORTS = {"http": 80, "https": 443}


class SourceError(ContextWindowError):
    """A source could not be read. The text names the place and the reason, and never quotes a key or an answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the answer; 0 when there was none."""


def base_of(url: str) -> str:
    """Return the URL without a slash at its end, after checking that it is one.

    Raises:
        ConfigError: it is no http(s) URL, or holds a password or a query, where keys do not belong.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port == 0:
        raise ConfigError(f"base_url={shown(url)!r}: give a URL such as http://localhost:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(f"base_url={shown(url)!r}: leave user, password and query out; pass the key as api_key")
    return url.strip().rstrip("/")


def shown(url: str) -> str:
    """Return the part of a URL that may be shown: no user, no password, no query."""
    try:
        parts = urlsplit(url.strip())
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return "(no URL)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address to ask, with what it takes to be let in."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    @contextmanager
    def open(self) -> Iterator[Session]:
        """Connect for one `fetch`; all its requests share the time."""
        try:
            headers = {"accept": "application/json", "accept-encoding": ACCEPTED, **self.headers}
            client = httpx.Client(headers=headers, verify=_trusted())
        except ValueError:
            raise SourceError(f"{shown(self.base_url)}: the key holds characters that no header may have") from None
        with client:
            yield Session(client, self.base_url, deadline=time.monotonic() + self.timeout_seconds)


class Session:
    """Asks one host for JSON until the deadline; every failure is a `SourceError`."""

    def __init__(
        self,
        client: httpx.Client,
        base_url: str,
        *,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._base_url = base_url
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    def get(self, path: str = "", params: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON at the path below the base URL."""
        return self._json("GET", self._base_url + path, params=dict(params or {}))

    def find(self, path: str) -> Any:
        """Return the JSON at the path, or None when the server has nothing there."""
        try:
            return self.get(path)
        except SourceError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the JSON that answers this body."""
        return self._json("POST", self._base_url + path, json=dict(body))

    def get_bytes(self) -> bytes:
        """Return what is at the base URL itself, whatever it is."""
        return self._body("GET", self._base_url)

    def pages(self, path: str, params: Mapping[str, Any], cursor: Callable[[Any], Mapping[str, Any]]) -> Iterator[Any]:
        """Yield the pages of a listing; `cursor` reads from a page what asks for the next one, empty at the end."""
        seen: list[Mapping[str, Any]] = [{}]
        for _ in range(MAX_PAGES):
            page = self.get(path, {**params, **seen[-1]})
            yield page
            following = cursor(page)
            if not following or following in seen:  # a cursor that comes again would never end
                return
            seen.append(following)

    def at(self, base_url: str) -> Self:
        """Return this session for another path of the same host."""
        if _place(base_url) != _place(self._base_url):
            raise SourceError(f"{shown(base_url)} is not on the host of {shown(self._base_url)}")
        return type(self)(
            self._client,
            base_url,
            deadline=self._deadline,
            clock=self._clock,
            sleep=self._sleep,
            chance=self._chance,
        )

    def _json(self, method: str, url: str, **sent: Any) -> Any:
        body = self._body(method, url, **sent)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise SourceError(f"{shown(url)} answered {len(body):,} bytes that are no JSON") from None

    def _body(self, method: str, url: str, **sent: Any) -> bytes:
        """The body of a good answer, after as many attempts as are allowed and fit into the time."""
        attempt = 0
        while True:
            attempt += 1
            answer = self._attempt(method, url, **sent)
            if isinstance(answer, bytes):
                return answer
            wait = self._wait_seconds(attempt, answer.retry_after_seconds)
            if attempt == MAX_ATTEMPTS or not answer.may_pass or self._clock() + wait >= self._deadline:
                raise SourceError(f"{shown(url)} {answer.reason}", status=answer.status)
            self._sleep(wait)

    def _attempt(self, method: str, url: str, **sent: Any) -> bytes | _Failure:
        for _ in range(MAX_REDIRECTS + 1):
            try:
                answer = self._ask(method, url, **sent)
            except httpx.TransportError as error:  # its text may quote what was sent
                return _Failure(reason=f"cannot be reached: {type(error).__name__}", may_pass=True)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                return _Failure(reason=f"cannot be asked: {type(error).__name__}")
            if not isinstance(answer, str):
                return answer
            if method != "GET" or not _stays(url, answer):
                return _Failure(reason="redirects to another host, which is not followed")
            url, sent = answer, {}
        return _Failure(reason=f"redirects more than {MAX_REDIRECTS} times")

    def _ask(self, method: str, url: str, **sent: Any) -> bytes | str | _Failure:
        """One request: its body, where it was moved, or what is wrong."""
        left = self._deadline - self._clock()
        if left <= 0:
            return _Failure(reason="did not answer in time")
        with without_queries(), self._client.stream(method, url, timeout=left, **sent) as response:
            if response.status_code in MOVED and "location" in response.headers:
                return str(response.url.join(response.headers["location"]))
            if not response.is_success:
                return _refusal(response)
            return self._read(response)

    def _read(self, response: httpx.Response) -> bytes | _Failure:
        encoding = response.headers.pop("content-encoding", "")  # unpacked here, where its size is bounded
        try:
            body = Body(encoding, MAX_BYTES)
            for piece in response.iter_bytes():
                body.add(piece)
                if self._clock() >= self._deadline:
                    return _Failure(reason="did not finish its answer in time")
            return body.whole()
        except BodyError as error:
            return _Failure(reason=str(error))

    def _wait_seconds(self, attempt: int, asked_seconds: float) -> float:
        wait: float = FIRST_WAIT_SECONDS * 2 ** (attempt - 1) * (0.5 + self._chance())
        return max(wait, asked_seconds)


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates of the machine, whose loading takes longer than a request."""
    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """Why an attempt gave nothing."""

    reason: str
    status: int = 0
    may_pass: bool = False
    retry_after_seconds: float = 0.0


def _refusal(response: httpx.Response) -> _Failure:
    status = response.status_code
    asked = _retry_after_seconds(response.headers.get("retry-after", ""))
    may_pass = status in RETRIED
    return _Failure(reason=f"answered HTTP {status}", status=status, may_pass=may_pass, retry_after_seconds=asked)


def _retry_after_seconds(text: str) -> float:
    """The wait that a server asks for, in seconds or as a date; 0 when it asks for none."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def _stays(old: str, new: str) -> bool:
    """True when a redirect stays where it was, or only takes up encryption."""
    scheme, host, port = _place(old)
    return _place(new) in {(scheme, host, port), ("https", host, 443)}


def _place(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
