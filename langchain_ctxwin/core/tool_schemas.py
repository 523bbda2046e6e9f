"""Prices of tool definitions and message framing: what a model is shown of a tool, as JSON or a signature.

A family whose `Framing.fields` are set shows signatures: names and descriptions count, plus constants per field, and
pricing the JSON would be off by half a request. The others show the JSON schema itself, with all its keywords.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, NamedTuple

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_ctxwin.core.provider_blocks import compact_json
from langchain_ctxwin.errors import expect, expect_each

TextPrice = Callable[[str], float]
Schema = Mapping[str, Any]


class FieldPrices(NamedTuple):
    """Constant tokens in a typed signature of a tool; the first property brings the object's brackets."""

    description: int
    first_property: int
    more_properties: int
    property_description: int
    enum_item: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Constant tokens around the text of a request: once for it, and per message (role and separators)."""

    request: int
    message: int
    call: int  # per tool call and per result: id, type and punctuation; two short JSON keys
    any_tools: int  # once when any tool is bound
    tool: int  # per tool definition, beside its text
    page_tokens: int  # one page of a document, its text and its picture
    plain_arguments: bool = False
    """True where models are shown the arguments of a call one by one, as they are; False where they are shown JSON. A
    program in JSON is all escapes: with the wrong one, calls that write files are off by a tenth."""

    fields: FieldPrices | None = None
    """What a signature adds to names and descriptions; None where models are shown the JSON of a definition."""


def listed(tools: Any) -> list[Any]:
    """Return tools as a list: a single one is a list of one, None is an empty list.

    Raises:
        ConfigError: there is no way to read tools from it, or one of them is none.
    """
    if tools is None:
        return []
    if isinstance(tools, BaseTool | Mapping | FunctionType):
        return [tools]
    every = expect_each(tools, object, "tools", "a list of tools")
    wanted = "a function, a BaseTool, or a definition as a dict"
    for number, tool in enumerate(every):
        if not callable(tool):
            expect(tool, BaseTool | Mapping, f"tools[{number}]", wanted)
    return every


def name_of(tool: Any) -> str:
    """Return the name of a tool; empty for one that the provider runs and that has none."""
    if isinstance(tool, Mapping):
        return str((tool.get("function") or tool).get("name") or "")
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))


RECALL_KEY = "ctxwin_recall"
"""Key in the metadata of a tool that reads messages of the history by their id."""


def recall_name(tools: Iterable[Any]) -> str:
    """Return the name of the tool that reads messages of the history; empty when it is not among these."""
    return next(
        (
            name_of(tool)
            for tool in tools
            if (getattr(tool, "metadata", None) or {}).get(RECALL_KEY)
        ),
        "",
    )


def tool_definition(tool: Any) -> Any:
    """Return a tool in OpenAI's form; one that LangChain cannot convert as it is."""
    try:
        return convert_to_openai_tool(tool)
    except Exception:  # noqa: BLE001  # whatever LangChain and pydantic raise for what they cannot describe
        return tool


def image_tokens(width: int, height: int) -> int:
    """Width times height by 750, scaled to a long side of 1,568 and to 1,600 tokens (Anthropic, vision guide).

    The others count tiles or patches, which come to about as much for what a screen shows; reports correct it.

    Examples:
        >>> image_tokens(1092, 1092), image_tokens(4000, 3000), image_tokens(10_000, 1)
        (1589, 1600, 1)
    """
    scale = min(1.0, 1568 / max(width, height))
    return max(1, min(1600, int(width * height * scale * scale / 750)))


OPENAI = Framing(
    # Some models add 80 more once there are tools, depending on the endpoint: this is the more common case.
    request=3, message=4, call=6, any_tools=16, tool=4,
    fields=FieldPrices(description=2, first_property=5, more_properties=3, property_description=2, enum_item=4),
    page_tokens=1200,
)  # fmt: skip
ANTHROPIC = Framing(
    # The prompt that explains tools is 290 to 675 tokens by model (Anthropic, tool use guide); the middle of them.
    request=5, message=2, call=30, any_tools=354, tool=0, plain_arguments=True,
    # A PDF page is 1,500 to 3,000 tokens (Anthropic, PDF guide).
    page_tokens=2250,
)  # fmt: skip
LLAMA = Framing(
    # The chat template states dates in a system message of its own.
    request=31, message=4, call=16, any_tools=200, tool=4,
    page_tokens=1200,
)  # fmt: skip
FRAMING = {
    "openai": OPENAI,
    "cl100k": OPENAI,
    "anthropic": ANTHROPIC,
    # 496 or 497 in the same guide; the first of them have 313 or 346
    "claude3": replace(ANTHROPIC, any_tools=496),
    "gemini": Framing(
        request=1, message=0, call=6, any_tools=0, tool=17,
        fields=FieldPrices(description=0, first_property=12, more_properties=10, property_description=6, enum_item=5),
        # 258 tokens per PDF page (Gemini API, token counting guide).
        page_tokens=258,
    ),
    "llama": LLAMA,
    "qwen": replace(LLAMA, request=3, message=5),
    "deepseek": replace(LLAMA, request=1, message=2, any_tools=100, tool=50, plain_arguments=True),
    # From nothing to 1,400 tokens once there are tools, by model and host: the middle of them.
    "generic": Framing(
        request=3, message=3, call=10, any_tools=150, tool=4,
        page_tokens=1500,
    ),
}  # fmt: skip


# keywords that hold schemas by name
NAMED_PARTS = ("properties", "$defs", "definitions")


class ToolSet(NamedTuple):
    """Size and digest of some tools, which are kept alive, so that their ids cannot come to mean others."""

    tools: tuple[Any, ...] = ()
    tokens: int = 0
    digest: str = ""
    """Fingerprint of the definitions."""


def schema_tokens(tools: Iterable[Any], framing: Framing, price: TextPrice) -> float:
    """Return the price of a set of tool definitions in any form LangChain takes; 0 for none.

    A tool that nobody can read is priced by its text.
    """
    functions = [function for tool in tools for function in functions_of(tool)]
    if not functions:
        return 0.0
    return framing.any_tools + sum(
        _tool_tokens(function, framing, price) for function in functions
    )


def parameter_names(tools: Iterable[Any]) -> frozenset[str]:
    """Return the names of the tools' parameters, nested ones too; unreadable tools have none."""
    return frozenset(
        name
        for tool in tools
        for function in functions_of(tool)
        for schema in schemas_of(function.get("parameters"))
        for name in schema.get("properties") or ()
    )


def functions_of(tool: Any) -> Iterator[Schema]:
    """Yield the definitions in one tool, with name, description and parameters; Gemini's form holds several."""
    declared = tool.get("function_declarations") if isinstance(tool, Mapping) else None
    for part in declared or [tool]:
        definition = tool_definition(part)
        if not isinstance(definition, Mapping):
            yield {"description": name_of(definition) or type(definition).__name__}
        elif "name" in (function := definition.get("function", definition)):
            yield function
        else:  # what a provider's own tool is, is often said by a key or by its type alone
            yield {"description": compact_json(definition)}


def _tool_tokens(function: Schema, framing: Framing, price: TextPrice) -> float:
    name = str(function.get("name") or "")
    description = str(function.get("description") or "")
    parameters = function.get("parameters")
    if framing.fields is None:
        shown = {"name": name, "description": description, "parameters": parameters}
        text = json.dumps(shown, ensure_ascii=False, default=str)
        return framing.tool + price(text)
    tokens = framing.tool + price(name)
    if description:
        tokens += framing.fields.description + price(description)
    return tokens + sum(
        _schema_tokens(schema, framing.fields, price)
        for schema in schemas_of(parameters)
    )


def schemas_of(value: Any) -> Iterator[Schema]:
    """Yield a schema and whatever in it may be one."""
    if isinstance(value, Mapping):
        yield value
        for key, part in value.items():
            is_named = key in NAMED_PARTS and isinstance(part, Mapping)
            yield from schemas_of([*part.values()] if is_named else part)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from schemas_of(inner)


def _schema_tokens(schema: Schema, fields: FieldPrices, price: TextPrice) -> float:
    """What one schema states itself."""
    tokens = 0.0
    if names := schema.get("properties"):
        tokens += fields.first_property + fields.more_properties * (len(names) - 1)
        tokens += sum(map(price, names))
    if description := schema.get("description"):
        tokens += fields.property_description + price(str(description))
    if choices := schema.get("enum"):
        tokens += fields.enum_item * len(choices) + price(" ".join(map(str, choices)))
    return tokens
