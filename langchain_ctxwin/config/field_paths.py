"""Is a setting a path of fields, such as `items[].price.base`? What paths mean is known where results are read."""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_SEGMENT = re.compile(r'(?P<key>"(?:[^"\\]|\\.)*"|[^".\[\]]*)(?P<lists>(?:\[\])*)(?P<dot>\.|\Z)')


def is_field_path(path: str) -> bool:
    """Say whether the path can be read."""
    text, position = path.strip(), 0
    while found := _SEGMENT.match(text, position):
        if not _names_a_key(found):
            return False
        if not found["dot"]:
            return True
        position = found.end()
    return False


def _names_a_key(found: re.Match[str]) -> bool:
    key = found["key"].strip()
    if key == "**":
        return not found["dot"]  # it takes everything, so it stands last
    if key.startswith('"'):
        return _is_json(key)
    if not key:
        return bool(found["lists"]) and found.start() == 0  # `[].id`: the items of a list at the top
    return key == "*" or "*" not in key


def _is_json(key: str) -> bool:
    try:
        json.loads(key)
    except ValueError:
        return False
    return True


def _checked(path: str) -> str:
    if not is_field_path(path):
        raise PydanticCustomError(
            "field_path", "give keys joined by dots, such as price.base or items[].id, others in double quotes"
        )
    return path


FieldPath = Annotated[str, AfterValidator(_checked)]
