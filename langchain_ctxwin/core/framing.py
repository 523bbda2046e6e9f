"""What a provider adds around text: per message, per tool and per schema field, by tokenizer family.

The constants were fitted to provider-reported sizes of 293 recorded requests and to the growth between 7,000 responses
of recorded conversations, and rounded; those of fields that few requests have are measurements by the authors of the
npm package ai-tokenizer 1.0.6 (models.json). What providers publish is named with its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

LARGE_TILE_PIXELS = 768
SMALL_TILE_PIXELS = 512
"""Sides of the squares that images are cut into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPrices:
    """Constant tokens in a typed signature of a tool."""

    description: int
    first_property: int
    """The first field of an object, with the object's brackets."""

    more_properties: int
    """Each further field."""

    property_description: int
    enum_item: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Constant tokens around the text of a request."""

    request: int
    """Once per request."""

    message: int
    """Per message: role and separators."""

    call: int
    """Per tool call and per result: id, type and punctuation; two short JSON keys."""

    plain_arguments: bool = False
    """True where models are shown the arguments of a call one by one, as they are; False where they are shown JSON. A
    program in JSON is all escapes: with the wrong one, calls that write files are off by a tenth."""

    any_tools: int
    """Once when any tool is bound."""

    tool: int
    """Per tool definition, beside its text."""

    fields: FieldPrices | None = None
    """What a signature adds to names and descriptions; None where models are shown the JSON of a definition."""

    image: Callable[[int, int], int]
    """Price of an image by its width and height in pixels."""

    image_low_tokens: int = 0
    """Price of an image that is sent with `detail: low`; 0 where there is no such setting."""

    page_tokens: int
    """One page of a document, its text and its picture."""

    audio_tokens_per_second: int


def small_tiles(width: int, height: int) -> int:
    """Scale to 2,048 square and to a short side of 768; 170 tokens a tile of 512, and 85 (OpenAI, images guide).

    Example:
        >>> small_tiles(1024, 1024)
        765
    """
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, LARGE_TILE_PIXELS / (min(width, height) * scale))
    return 85 + 170 * ceil(width * scale / SMALL_TILE_PIXELS) * ceil(height * scale / SMALL_TILE_PIXELS)


def large_tiles(width: int, height: int) -> int:
    """258 tokens a tile of 768, small images one (Gemini API, token counting guide); taken as 16 tiles at most."""
    return 258 * min(16, ceil(width / LARGE_TILE_PIXELS) * ceil(height / LARGE_TILE_PIXELS))


def area(width: int, height: int) -> int:
    """Width times height by 750, scaled to a long side of 1,568 and to 1,600 tokens (Anthropic, vision guide)."""
    scale = min(1.0, 1568 / max(width, height))
    return max(1, min(1600, int(width * height * scale * scale / 750)))


OPENAI = Framing(
    # Some models add 80 more once there are tools, depending on the endpoint: this is the more common case.
    request=3, message=4, call=6, any_tools=16, tool=4,
    fields=FieldPrices(description=2, first_property=5, more_properties=3, property_description=2, enum_item=4),
    image=small_tiles, image_low_tokens=85, page_tokens=1200, audio_tokens_per_second=10,
)  # fmt: skip
ANTHROPIC = Framing(
    # The prompt that explains tools is 290 to 675 tokens by model (Anthropic, tool use guide); the middle of them.
    request=5, message=2, call=30, any_tools=354, tool=0, plain_arguments=True,
    # A PDF page is 1,500 to 3,000 tokens (Anthropic, PDF guide).
    image=area, page_tokens=2250, audio_tokens_per_second=32,
)  # fmt: skip
CLAUDE3 = replace(ANTHROPIC, any_tools=496)  # 496 or 497 in the same guide; the first of them have 313 or 346
GEMINI = Framing(
    request=1, message=0, call=6, any_tools=0, tool=17,
    fields=FieldPrices(description=0, first_property=12, more_properties=10, property_description=6, enum_item=5),
    # 258 tokens per PDF page, 32 per second of audio (Gemini API, token counting guide).
    image=large_tiles, page_tokens=258, audio_tokens_per_second=32,
)  # fmt: skip
LLAMA = Framing(
    # The chat template states dates in a system message of its own.
    request=31, message=4, call=16, any_tools=200, tool=4,
    # Open vision models cut images into patches of 28 x 28 pixels, close to Anthropic's rule.
    image=area, page_tokens=1200, audio_tokens_per_second=25,
)  # fmt: skip
QWEN = replace(LLAMA, request=3, message=5)
DEEPSEEK = replace(LLAMA, request=1, message=2, any_tools=100, tool=50, plain_arguments=True)
GENERIC = Framing(
    # From nothing to 1,400 tokens once there are tools, by model and host: the middle of them.
    request=3, message=3, call=10, any_tools=150, tool=4,
    image=area, page_tokens=1500, audio_tokens_per_second=32,
)  # fmt: skip

FRAMING = {
    "openai": OPENAI, "cl100k": OPENAI, "anthropic": ANTHROPIC, "claude3": CLAUDE3, "gemini": GEMINI,
    "llama": LLAMA, "qwen": QWEN, "deepseek": DEEPSEEK, "generic": GENERIC,
}  # fmt: skip
