"""Real servers for a test, or a skip that says why there are none."""

from contextlib import ExitStack, contextmanager

import pytest


@contextmanager
def started_valkey():
    """Start a server that speaks the Redis protocol and yield its URL."""
    from support.valkey import ValkeyUnavailableError, running_valkey

    with ExitStack() as stack:
        try:
            url = stack.enter_context(running_valkey())
        except ValkeyUnavailableError as error:
            pytest.skip(str(error))
        yield url


@contextmanager
def started_postgres():
    """Start a Postgres on a Unix socket and yield it."""
    from support.postgres import PostgresUnavailableError, running_postgres

    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except PostgresUnavailableError as error:
            pytest.skip(str(error))
        yield server
