"""How does a file become a table of settings?"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from langchain_ctxwin.config.parsing import PARSERS, reason_of
from langchain_ctxwin.errors import ConfigError

MAX_BYTES = 100_000
"""Largest file that is read: ten times what all settings with their tools take, and about a second of YAML."""

NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opens a pipe at once, so that it can be refused; otherwise opening would wait for its writer. Not on Windows."""


def read_table(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML, YAML or JSON file.

    Raises:
        ConfigError: the file is missing or unreadable, see also `table_of`.
    """
    return table_of(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        ConfigError: the file is missing, unreadable, too large, or no regular file.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_WAIT)) as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(MAX_BYTES + 1) if is_regular else b""
    except (OSError, ValueError) as error:  # ValueError: no path can have a zero character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read settings from {path}: {reason}") from error
    if not is_regular:
        raise ConfigError(f"cannot read settings from {path}: it is no regular file")
    if len(content) > MAX_BYTES:
        raise ConfigError(f"cannot read settings from {path}: it has more than {MAX_BYTES:,} bytes")
    return content


def table_of(content: bytes, path: Path) -> dict[str, Any]:
    """Return the settings that a file holds; a byte order mark at its beginning is passed over.

    Raises:
        ConfigError: the content is empty, breaks the rules of its format, is no table, or has a key twice or, in YAML,
            an alias. Texts of the file are not repeated: they may be secrets.
    """
    parse = PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ConfigError(f"cannot read settings from {path}: use one of {', '.join(sorted(PARSERS))}")
    if not content.strip():
        raise ConfigError(f"cannot read settings from {path}: it is empty: give at least one setting, or a comment")
    try:
        values = parse(content.decode("utf-8-sig"))
    except Exception as error:  # noqa: BLE001  # parsers raise whatever a bad value leads to
        # Not chained: the error of a YAML parser quotes the line, and a traceback would show it.
        raise ConfigError(f"cannot read settings from {path}: {reason_of(error)}") from None
    if values is None:  # YAML that holds comments only
        return {}
    if not isinstance(values, dict):
        raise ConfigError(
            f"cannot read settings from {path}: expected a table of settings, got {type(values).__name__}"
        )
    return values
