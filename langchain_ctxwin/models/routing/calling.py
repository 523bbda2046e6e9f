"""How is one candidate called: its model, and the arguments of the call in the form that it takes?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel

from langchain_ctxwin.core.limits import models_behind
from langchain_ctxwin.core.recovery import CALL_ARGUMENTS
from langchain_ctxwin.errors import ConfigError
from langchain_ctxwin.models.routing.instances import Instance

OWN_ARGUMENTS = ("route", "conversation", "estimated_tokens")
"""Arguments of a call that are meant for the router."""


class CannotBindToolsError(Exception):
    """The integration of a candidate has no tool calling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A model and the arguments of one call."""

    model: BaseChatModel
    arguments: dict[str, Any]


def call_of(name: str, instance: Instance, arguments: Mapping[str, Any]) -> Call:
    """Return how a candidate is called.

    Tools are formatted by the candidate's own `bind_tools`, because each provider has its own form for them and for
    the choice among them; what asks for a length of output gets the name that the model knows it by.

    Raises:
        CannotBindToolsError: the request has tools, and the candidate's integration takes none.
        ConfigError: a tool cannot be described to the model.
    """
    model, bound = instance
    given = {key: value for key, value in arguments.items() if key not in OWN_ARGUMENTS}
    tools: Sequence[Any] = given.pop("tools", None) or ()
    given = {_known_as(model, key): value for key, value in given.items()}
    if not tools:
        return Call(model=model, arguments={**bound, **given})
    try:
        part, formatted = next(models_behind(model.bind_tools(tools, **given)))
    except NotImplementedError as error:
        raise CannotBindToolsError(name) from error
    except Exception as error:
        raise ConfigError(
            f"the tools of this request cannot be described to {name!r} ({type(error).__name__}: {error}): "
            "correct their schemas"
        ) from error
    return Call(model=part, arguments={**bound, **formatted})


def output_tokens_of(arguments: Mapping[str, Any]) -> int | None:
    """Return the output that a call asks for; None when it does not say."""
    asked = (arguments.get(name) for name in CALL_ARGUMENTS)
    return next((tokens for tokens in asked if isinstance(tokens, int) and tokens > 0), None)


def _known_as(model: BaseChatModel, argument: str) -> str:
    """The name under which this model takes the requested output; every other argument keeps its name."""
    if argument not in CALL_ARGUMENTS or hasattr(model, argument):
        return argument
    return next((name for name in CALL_ARGUMENTS if hasattr(model, name)), argument)
