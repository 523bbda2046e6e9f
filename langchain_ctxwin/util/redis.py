"""Redis clients: made with one time-out and one error for everybody."""

from __future__ import annotations

from typing import Any

from langchain_ctxwin.errors import ConfigError

ANSWER_SECONDS = 1.0  # a healthy server answers within milliseconds; a broken one must not cost the caller's time


def redis_client(url: str, **options: Any) -> Any:
    """Return a `redis.Redis` that connects at its first use.

    Unless options say otherwise, the server has a second to answer and is asked once.

    Raises:
        ConfigError: the URL is no URL of a Redis server, or the extra `redis` is not installed.
    """
    try:
        from redis import Redis  # noqa: PLC0415  # an extra
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.retry import Retry  # noqa: PLC0415
    except ImportError as error:
        raise _not_installed() from error
    return _connecting(Redis, url, {"retry": Retry(NoBackoff(), 0)} | options)


def _connecting(kind: Any, url: str, options: dict[str, Any]) -> Any:
    patience = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
    try:
        return kind.from_url(url, **(patience | options))
    except (ValueError, AttributeError, TypeError) as error:  # raised for other schemes, and for what is no text
        scheme = str(url).partition("://")[0]  # the rest may hold a password
        raise ConfigError(f"url with the scheme {scheme!r:.20}: pass redis://host:6379/0 or rediss://...") from error


def _not_installed() -> ConfigError:
    return ConfigError('Redis needs the redis package: pip install "langchain-ctxwin[redis]"')
