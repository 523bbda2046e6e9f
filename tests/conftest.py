"""What every test may use: the parts in `support`, and checkpointers on a file of the test's own."""

import gc
import logging
from contextlib import ExitStack
from functools import partial

import pytest
import structlog
from hypothesis import HealthCheck, settings

# a busy machine is no failure
settings.register_profile(
    "suite",
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("suite")


def pytest_collection_finish():
    """What collection made stays to the end: the garbage collector need not look through it again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def unconfigured_logging():
    """`capture_logs` leaves structlog configured, a replay the logger quiet; the next test starts as a program does."""
    yield
    structlog.reset_defaults()
    logging.getLogger("langchain_ctxwin").setLevel(logging.NOTSET)


@pytest.fixture
def open_sqlite(tmp_path):
    """Open savers on one file, `open_sqlite(strict=False)`: each call is a new connection, as after a restart."""
    from support.checkpoints import sqlite_saver

    with ExitStack() as stack:
        opened = partial(sqlite_saver, tmp_path / "checkpoints.sqlite")
        yield lambda *, strict=False: stack.enter_context(opened(strict=strict))


@pytest.fixture
def plain_state():
    """Fail the test when a checkpoint held a type that strict msgpack would not rebuild."""
    from support.checkpoints import foreign_types

    with foreign_types() as found:
        yield
    assert found == []


@pytest.fixture
def asked(monkeypatch):
    """What the servers of many providers, which stand in the place of the network, are asked; no keys from outside."""
    import httpx

    from support.model_lists import VARIABLES, answer

    requests = []
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def handle(_, request):
        requests.append(request)
        return answer(request)

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    return requests
