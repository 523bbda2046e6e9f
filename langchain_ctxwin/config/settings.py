"""What has every group of settings in common? It is frozen, and comes from code, environment or file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from langchain_ctxwin.config.faults import explained, printable
from langchain_ctxwin.config.reading import read_table, table_of
from langchain_ctxwin.errors import ConfigError

_is_inside: ContextVar[bool] = ContextVar("langchain_ctxwin_settings", default=False)
"""True while a group is made inside another one: its faults are then the outer one's, which knows their place."""


class Settings(BaseSettings):
    """Frozen settings that raise `ConfigError` and can be read from a file."""

    # Hidden, because a traceback shows the error behind ours too, and what was given may be a secret.
    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, /, **values: Any) -> None:
        try:
            with faults_told(values, self.names()):
                super().__init__(**values)
        except SettingsError as error:
            prefix = self.model_config.get("env_prefix")
            raise ConfigError(f"environment variables {prefix}...: {error}: give valid JSON") from None

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Read settings from a TOML, YAML or JSON file; environment variables fill what the file leaves out.

        Raises:
            ConfigError: the file is missing, empty or unreadable, or holds unknown or invalid settings.
        """
        return cls._from_table(Path(path), read_table(Path(path)))

    @classmethod
    def from_bytes(cls, content: bytes, path: str | Path) -> Self:
        """Like `from_file`, for content that was read already; the path says which format it has.

        Raises:
            ConfigError: the content is empty or unreadable, or holds unknown or invalid settings.
        """
        return cls._from_table(Path(path), table_of(content, Path(path)))

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings; those of a group within this one behind its name and a dot."""
        names: list[str] = []
        for name, field in cls.model_fields.items():
            group = group_of(field)
            names += [f"{name}.{inner}" for inner in group.names()] if group else [name]
        return names

    @classmethod
    def _from_table(cls, path: Path, table: dict[str, Any]) -> Self:
        try:
            cls.check_names(table)
            return cls(**table)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error.__cause__

    @classmethod
    def check_names(cls, table: dict[Any, Any], place: str = "") -> None:
        """Refuse names that are no setting but would steer how settings are read, and those that are no text."""
        for name, value in table.items():
            if not isinstance(name, str) or name.startswith("_"):
                raise unknown(cls.__name__, f"{place}{name}")
            group = group_of(cls.model_fields.get(name))
            if group is not None and isinstance(value, dict):
                group.check_names(value, f"{place}{name}.")


@contextmanager
def faults_told(values: Mapping[str, Any], known: Collection[str]) -> Iterator[None]:
    """Raise what pydantic finds as `ConfigError`, once: settings within others leave it to those.

    Args:
        values: what code or a file gave.
        known: the names of all settings, dotted.
    """
    is_inside = _is_inside.get()
    token = _is_inside.set(True)
    try:
        yield
    except ValidationError as error:
        if is_inside:
            raise
        raise ConfigError(explained(error, values, known)) from error
    finally:
        _is_inside.reset(token)


def unknown(kind: str, name: str) -> ConfigError:
    """Return the error for a name that can be no setting."""
    return ConfigError(f"invalid {kind}: unknown setting {printable(name)}: remove it")


def group_of(field: FieldInfo | None) -> type[Settings] | None:
    """Return the group of settings that a field holds, if any."""
    kind = field.annotation if field else None
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None
