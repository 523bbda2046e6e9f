"""When input and requested output together are too much: can the same request go again, asking for less output?"""

from __future__ import annotations

from typing import Any

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.recovery import stated_input
from langchain_ctxwin.core.stated import OUTPUT_ARGUMENTS, models_behind

LEAST_OUTPUT_TOKENS = 256
"""Shortest answer worth asking for: about a long paragraph, or a tool call with its arguments."""

LEAST_OUTPUT_SHARE = 0.25
"""Part of the requested output that has to remain: an answer cut to less would most likely be cut off."""

EDGE_TOKENS = 16
"""Room left between input and output: servers count a stop token or the start of the answer beside both."""


def smaller_output(call: object, overflow: ContextOverflow) -> dict[str, int]:
    """Return the argument that asks `call` for as much output as is left; empty when too little is, or it has none."""
    name, room = output_argument(call), _room(overflow)
    return {name: room} if name and room else {}


def output_argument(call: object) -> str:
    """Name under which a model, or a binding around one, is set to request its output; empty when it is not set."""
    models: list[tuple[Any, dict[str, Any]]] = list(models_behind(call))
    if len(models) != 1:
        return ""
    model, bound = models[0]
    names = [name for name in OUTPUT_ARGUMENTS if bound.get(name) or getattr(model, name, None)]
    return names[0] if names else ""


def _room(overflow: ContextOverflow) -> int:
    actual = stated_input(overflow)
    if overflow.kind != "input_plus_output" or overflow.limit is None or actual is None:
        return 0
    room = overflow.limit - actual - EDGE_TOKENS
    least = max(LEAST_OUTPUT_TOKENS, int(LEAST_OUTPUT_SHARE * (overflow.requested_output or 0)))
    return room if room >= least else 0
