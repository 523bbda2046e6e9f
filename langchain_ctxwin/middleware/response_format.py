"""What does a response format add to a request? The provider reads its schemas, so they have to be counted."""

from __future__ import annotations

from typing import Any

from langchain.agents.structured_output import ProviderStrategy, ToolStrategy


def definitions_of(form: Any) -> list[Any]:
    """Function definitions for the schemas of a response format; as a native format they cost about the same."""
    if isinstance(form, ProviderStrategy):
        specs = [form.schema_spec]
    else:
        specs = (form if isinstance(form, ToolStrategy) else ToolStrategy(getattr(form, "schema", form))).schema_specs
    return [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.json_schema},
        }
        for spec in specs
    ]
