"""Settings compared and explained: what changed, where each value comes from, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from langchain_ctxwin.config import MASK, NOTHING, Settings


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
