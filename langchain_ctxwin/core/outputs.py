"""When input and requested output together are too much: can the same request go again, asking for less output?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from langchain_ctxwin.core.overflow import ContextOverflow
from langchain_ctxwin.core.recovery import stated_input
from langchain_ctxwin.core.stated import models_behind

CALL_ARGUMENTS = ("max_tokens", "max_output_tokens", "max_completion_tokens")
"""Names that integrations take for one call, too; `num_predict` of local servers is for construction only."""

LEAST_OUTPUT_TOKENS = 256
"""Shortest answer worth asking for: about a long paragraph, or a tool call with its arguments."""

LEAST_OUTPUT_SHARE = 0.25
"""Part of the requested output that has to remain: an answer cut to less would most likely be cut off."""

EDGE_TOKENS = 16
"""Room left between input and output: servers count a stop token or the start of the answer beside both."""


def smaller_output(call: object, overflow: ContextOverflow) -> dict[str, int]:
    """Return the argument that asks `call` for as much output as is left; empty when too little is, or it has none."""
    name, room = output_argument(call), _room(overflow)
    return {name: room} if name and room >= least_output(call) else {}


def fitting_output(call: object, *, requested_tokens: int, room_tokens: int) -> dict[str, int]:
    """Return the argument that asks `call` for no more output than there is room for; empty when it need not."""
    if not least_output(call) <= room_tokens < requested_tokens:
        return {}
    name = output_argument(call)
    return {name: room_tokens} if name else {}


def output_argument(call: object) -> str:
    """Name of the argument by which a model, or a binding around one, was set to request its output; else empty."""
    model, bound = only_model(call) or (None, {})
    names = [name for name in CALL_ARGUMENTS if bound.get(name) or getattr(model, name, None)]
    return names[0] if names else ""


def least_output(call: object) -> int:
    """Tokens that an answer needs at least: the thinking that the model was set to do counts as output, too."""
    model, bound = only_model(call) or (None, {})
    thinking = bound.get("thinking") or getattr(model, "thinking", None)
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else getattr(model, "thinking_budget", None)
    return LEAST_OUTPUT_TOKENS + (budget if isinstance(budget, int) and budget > 0 else 0)


def only_model(call: object) -> tuple[Any, dict[str, Any]] | None:
    """Return the one model that every call goes to and what is bound to it; None when a run may choose another."""
    runnable = call
    while isinstance(runnable, RunnableBindingBase):
        runnable = runnable.bound
    models = [] if isinstance(runnable, DynamicRunnable) else list(models_behind(call))
    return models[0] if len(models) == 1 else None


def _room(overflow: ContextOverflow) -> int:
    actual = stated_input(overflow)
    if overflow.kind != "input_plus_output" or overflow.limit is None or actual is None:
        return 0
    room = overflow.limit - actual - EDGE_TOKENS
    return room if room >= LEAST_OUTPUT_SHARE * (overflow.requested_output or 0) else 0
