"""HTTP for sources: JSON asked in bounded time and size, patiently, and without a key ever leaving its host."""

from __future__ import annotations

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from langchain_ctxwin.errors import ConfigError, ContextWindowError, expect
from langchain_ctxwin.models.sources.platforms import PORTS, place_of
from langchain_ctxwin.models.sources.reading import mapping
from langchain_ctxwin.util.background import in_daemon

TIMEOUT_SECONDS = 8.0  # for all that one `fetch` asks, retries and pages included; lists take one or two
LATE_SECONDS = 0.5  # that the caller of the client waits longer than it, so that it can say why there is no answer
MAX_BYTES = 32 * 1024 * 1024  # of an answer, unpacked: about ten times the largest public catalog
MAX_PAGES = 50  # of one listing; the longest known have a few hundred entries, at 1,000 a page
MAX_REDIRECTS = 3
MAX_ATTEMPTS = 3
FIRST_WAIT_SECONDS = 0.25  # before the second attempt; doubled for the next
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})  # 529 is how one provider says that it is overloaded
MOVED = frozenset({301, 302, 303, 307, 308})
NOT_FOUND = 404

# Where a page says how the next one is asked for -> parameter that asks for it.
CURSORS = {"nextPageToken": "pageToken", "next_page_token": "page_token", "last_id": "after_id"}


class SourceError(ContextWindowError):
    """A source could not be read. The text names the place and the reason, and never quotes a key or an answer.

    The status is 0 when there was no answer; what `may_pass` may be over in a moment.
    """

    def __init__(
        self, message: str, *, status: int = 0, may_pass: bool = False, retry_after_seconds: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.may_pass = may_pass
        self.retry_after_seconds = retry_after_seconds


def base_of(url: str) -> str:
    """Return the URL without a slash at its end, after checking that it is one.

    Raises:
        ConfigError: it is no http(s) URL, or holds a password or a query, where keys do not belong.
    """
    try:
        parts = urlsplit(expect(url, str, "base_url", "a URL such as http://localhost:8000/v1").strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in PORTS or not parts.hostname or port == 0:
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


@contextmanager
def connected(
    base_url: str, headers: Mapping[str, str] | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Iterator[ApiSession]:
    """Connect for one `fetch`; all its requests share the time. A header that cannot be sent is a `SourceError`."""
    try:
        own = {"accept": "application/json", "accept-encoding": "gzip"}
        client = httpx.Client(headers={**own, **(headers or {})}, verify=_trusted())
    except ValueError:
        raise SourceError(f"{shown(base_url)}: the key holds characters that no header may have") from None
    with client:
        yield ApiSession(client, base_url, deadline=time.monotonic() + timeout_seconds)


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates of the machine, whose loading takes longer than a request."""
    return httpx.create_ssl_context()


class ApiSession:
    """Asks one host for JSON until the deadline; every failure is a `SourceError`."""

    def __init__(
        self,
        client: httpx.Client,
        base_url: str,
        *,
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._base_url = base_url
        self._deadline = deadline
        self._clock = clock
        self._sleep = sleep

    def get(self, path: str = "", *, without: str = "", method: str = "GET", **sent: Any) -> Any:
        """Return the JSON at the path below the base URL, or below what is before this end of it."""
        url = self._base_url.removesuffix(without) + path
        body = self.body(method, url, **sent)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise SourceError(f"{shown(url)} answered {len(body):,} bytes that are no JSON") from None

    def find(self, path: str, *, without: str = "", is_optional: bool = False) -> Any:
        """Return the JSON at a path, or None when nothing is there, of what is optional also when it cannot be read."""
        try:
            return self.get(path, without=without)
        except SourceError as error:
            if error.status == NOT_FOUND or is_optional:
                return None
            raise

    def entries(self, path: str, params: Mapping[str, Any] | None = None) -> list[Mapping[str, Any]]:
        """Return the entries of a listing, over all its pages."""
        found: list[Mapping[str, Any]] = []
        asked: list[Mapping[str, Any]] = []
        cursor: Mapping[str, Any] = {}
        while len(asked) < MAX_PAGES and cursor not in asked:  # a cursor that comes again would never end
            asked.append(cursor)
            page = self.get(path, params={**(params or {}), **cursor})
            found += entries_of(page)
            known = {} if mapping(page).get("has_more") is False else mapping(page)
            tokens = ((parameter, known.get(field)) for field, parameter in CURSORS.items())
            cursor = next(({parameter: token} for parameter, token in tokens if token and isinstance(token, str)), {})
        return found

    def body(self, method: str, url: str, **sent: Any) -> bytes:
        """Return the body of a good answer, after as many attempts as are allowed and fit into the time."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._followed(method, url, **sent)
            except SourceError as error:
                wait = max(FIRST_WAIT_SECONDS * 2 ** (attempt - 1), error.retry_after_seconds)
                if attempt == MAX_ATTEMPTS or not error.may_pass or self._clock() + wait >= self._deadline:
                    raise
            self._sleep(wait)

    def _followed(self, method: str, url: str, **sent: Any) -> bytes:
        """One attempt, by the redirects that stay on the host.

        Each request has a thread: the client's time is per read, so that headers which drip would never run into it.
        The thread ends with its next read, because the client is closed.
        """
        place = url
        for _ in range(MAX_REDIRECTS + 1):
            try:
                job = in_daemon(partial(self._ask, method, place, **sent))
            except RuntimeError:
                reason = f"{shown(url)} was not asked: the process has no thread for it"
                raise SourceError(reason, may_pass=True) from None
            try:
                answer = job.result(max(0.0, self._deadline - self._clock()) + LATE_SECONDS)
            except TimeoutError:
                raise SourceError(f"{shown(url)} did not answer in time") from None
            except httpx.TransportError as error:  # its text may quote what was sent
                raise SourceError(f"{shown(url)} cannot be reached: {type(error).__name__}", may_pass=True) from None
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                raise SourceError(f"{shown(url)} cannot be read: {type(error).__name__}") from None
            if isinstance(answer, bytes):
                return answer
            scheme, host, port = place_of(place)
            if method != "GET" or place_of(answer) not in {(scheme, host, port), ("https", host, PORTS["https"])}:
                raise SourceError(f"{shown(url)} redirects to another host, which is not followed")
            place, sent = answer, {}
        raise SourceError(f"{shown(url)} redirects more than {MAX_REDIRECTS} times")

    def _ask(self, method: str, url: str, **sent: Any) -> bytes | str:
        """One request: its body, never more than `MAX_BYTES` and one unpacked piece of it, or where it was moved."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise SourceError(f"{shown(url)} did not answer in time")
        _asking.set(True)  # in the context of this thread alone
        with self._client.stream(method, url, timeout=left, **sent) as response:
            status = response.status_code
            if status in MOVED and "location" in response.headers:
                return str(response.url.join(response.headers["location"]))
            if not response.is_success:
                asked = response.headers.get("retry-after", "").strip()
                seconds = float(asked) if asked.isdecimal() else 0.0
                reason = f"{shown(url)} answered HTTP {status}"
                raise SourceError(reason, status=status, may_pass=status in RETRIED, retry_after_seconds=seconds)
            if response.headers.get("content-encoding", "gzip").strip().lower() not in {"identity", "gzip"}:
                raise SourceError(f"{shown(url)} is packed in a way that was not asked for")
            content = bytearray()
            for piece in response.iter_bytes():
                content += piece
                if len(content) > MAX_BYTES:
                    raise SourceError(f"{shown(url)} answered more than {MAX_BYTES:,} bytes")
                if self._clock() >= self._deadline:
                    raise SourceError(f"{shown(url)} did not finish its answer in time")
            return bytes(content)


def entries_of(answer: Any) -> list[Mapping[str, Any]]:
    """Return the entries of a model list: a bare list, or the list under `data` or `models`."""
    lists = (answer, mapping(answer).get("data"), mapping(answer).get("models"))
    found = next((entries for entries in lists if isinstance(entries, list)), [])
    return [entry for entry in found if isinstance(entry, dict)]


_asking: ContextVar[bool] = ContextVar("ctxwin_asking", default=False)


def _without_query(record: logging.LogRecord) -> bool:
    """Keep queries, which may hold a key, out of what the client logs of our requests; others are logged as ever."""
    if _asking.get() and isinstance(record.args, tuple):
        record.args = tuple(arg.copy_with(query=None) if isinstance(arg, httpx.URL) else arg for arg in record.args)
    return True


logging.getLogger("httpx").addFilter(_without_query)
