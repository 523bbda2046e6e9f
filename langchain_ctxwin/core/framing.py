"""What a provider adds around text: per message, per tool and per schema field, by tokenizer family.

The constants were measured with API calls by the authors of the npm package ai-tokenizer 1.0.6 (models.json).
Media rules follow the providers' public documentation; each is named with its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

LARGE_TILE_PIXELS = 768
SMALL_TILE_PIXELS = 512
"""Sides of the squares that images are cut into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Constant tokens around the text of a request."""

    request: int
    """Once per request."""

    message: int
    """Per message: role and separators."""

    call: int
    """Per tool call and per result: id, type and punctuation; two short JSON keys."""

    any_tools: int
    """Once when any tool is bound."""

    tool: int
    description: int
    first_property: int
    more_properties: int
    property_description: int
    enum_item: int

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
    request=5, message=4, call=8, any_tools=24, tool=6, description=2, first_property=5, more_properties=3,
    property_description=2, enum_item=7,
    image=small_tiles, image_low_tokens=85, page_tokens=1200, audio_tokens_per_second=10,
)  # fmt: skip
ANTHROPIC = Framing(
    request=6, message=2, call=10, any_tools=400, tool=53, description=5, first_property=13, more_properties=12,
    property_description=5, enum_item=9,
    # A PDF page is 1,500 to 3,000 tokens (Anthropic, PDF guide).
    image=area, page_tokens=2250, audio_tokens_per_second=32,
)  # fmt: skip
GEMINI = Framing(
    request=0, message=1, call=6, any_tools=10, tool=8, description=0, first_property=5, more_properties=4,
    property_description=0, enum_item=2,
    # 258 tokens per PDF page, 32 per second of audio (Gemini API, token counting guide).
    image=large_tiles, page_tokens=258, audio_tokens_per_second=32,
)  # fmt: skip
OPEN_WEIGHTS = Framing(
    request=10, message=4, call=10, any_tools=140, tool=55, description=1, first_property=11, more_properties=9,
    property_description=4, enum_item=7,
    # Open vision models cut images into patches of 28 x 28 pixels, close to Anthropic's rule.
    image=area, page_tokens=1200, audio_tokens_per_second=25,
)  # fmt: skip
GENERIC = Framing(
    request=6, message=4, call=10, any_tools=100, tool=20, description=2, first_property=8, more_properties=6,
    property_description=3, enum_item=7,
    image=area, page_tokens=1500, audio_tokens_per_second=32,
)  # fmt: skip

FRAMING = {
    "openai": OPENAI, "cl100k": OPENAI, "anthropic": ANTHROPIC, "claude3": ANTHROPIC, "gemini": GEMINI,
    "llama": OPEN_WEIGHTS, "qwen": OPEN_WEIGHTS, "deepseek": OPEN_WEIGHTS, "generic": GENERIC,
}  # fmt: skip
