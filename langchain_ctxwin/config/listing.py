"""Which settings have which values, and which of them differ? By name, the secrets masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

from langchain_ctxwin.config.settings import Settings, group_of

MASK = "**********"
"""Shown for every secret, whatever its length."""

NOTHING: tuple[Any, ...] = (None, {})


def listed(settings: BaseModel) -> dict[str, Any]:
    """Return the values of all settings; those of a group within this one behind its name and a dot."""
    values: dict[str, Any] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Settings):
            values |= {f"{name}.{inner}": of_inner for inner, of_inner in listed(value).items()}
        elif isinstance(value, dict) and value:
            values |= {f"{name}.{key}.{inner}": given for key, item in value.items() for inner, given in _given(item)}
        else:
            values[name] = value
    return values


def defaults(kind: type[Settings]) -> dict[str, Any]:
    """Return the values of all settings when nothing is set, not even in the environment."""
    values: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        group = group_of(field)
        if group is None:
            values[name] = field.get_default(call_default_factory=True)
        else:
            values |= {f"{name}.{inner}": value for inner, value in defaults(group).items()}
    return values


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what differs as `{name: [before, after]}`, ready to be shown; None stands for what is not set."""
    names = dict.fromkeys([*before, *after])
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {
        name: [shown(old), shown(new)]
        for name, (old, new) in pairs.items()
        if old != new and not (old in NOTHING and new in NOTHING)
    }


def origins(settings: Settings, table: Mapping[str, Any]) -> dict[str, str]:
    """Return for every setting where it comes from: `file`, `environment` or `default`.

    Args:
        settings: made from the table.
        table: what the file holds.
    """
    found: dict[str, str] = {}
    for name in type(settings).model_fields:
        value, inner = getattr(settings, name), table.get(name, {})
        if isinstance(value, Settings):
            found |= {f"{name}.{key}": origin for key, origin in origins(value, inner).items()}
            continue
        given = "environment" if name in settings.model_fields_set else "default"
        found[name] = "file" if name in table else given
    return found


def shown(value: Any) -> Any:
    """Return a value as plain JSON, every secret masked."""
    if isinstance(value, SecretStr):
        return MASK
    return [shown(item) for item in value] if isinstance(value, tuple | list) else value


def _given(item: Any) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in item if value is not None]
