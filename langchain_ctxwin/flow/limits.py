"""Which limits does a request have to fit, when both its model and the engine have some?"""

from __future__ import annotations

from typing import Any

from langchain_ctxwin.core.limits import ModelLimits, NamedLimits
from langchain_ctxwin.core.model_families import family_of, model_name
from langchain_ctxwin.engine import ContextEngine


def limited_by(engine: ContextEngine, model: Any) -> Any:
    """Return the model of a request, or limits that were set on the engine as numbers where they are tighter."""
    if engine.model:
        return model
    stated, own, reserve = ModelLimits.of(model), engine.limits, engine.config.output_reserve
    rooms = [limits.input_limit(limits.output_reserve(reserve)) for limits in (own, stated) if limits.known]
    return model if min(rooms) < rooms[0] else NamedLimits(own, model_name(model), family_of(model))
