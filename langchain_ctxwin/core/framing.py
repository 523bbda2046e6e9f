"""What a provider adds around text: per message, per tool and per schema field, by tokenizer family.

The constants were measured with API calls by the authors of the npm package ai-tokenizer 1.0.6 (models.json).
Media rules follow the providers' public documentation; each is named with its source.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    image_pixels_per_token: float
    """Image area per token."""

    image_limit_tokens: int
    """Largest price of one image: providers scale larger ones down."""

    page_tokens: int
    """One page of a document, its text and its picture."""

    audio_tokens_per_second: int


OPENAI = Framing(
    request=5, message=4, call=8, any_tools=24, tool=6, description=2, first_property=5, more_properties=3,
    property_description=2, enum_item=7,
    # 170 tokens per tile of 512 x 512 plus 85; at most 8 tiles after scaling (OpenAI, images and vision guide).
    image_pixels_per_token=512 * 512 / 170, image_limit_tokens=1445, page_tokens=1200, audio_tokens_per_second=10,
)  # fmt: skip
ANTHROPIC = Framing(
    request=6, message=2, call=10, any_tools=400, tool=53, description=5, first_property=13, more_properties=12,
    property_description=5, enum_item=9,
    # width x height / 750, scaled to about 1,600 tokens; a PDF page 1,500 to 3,000 (Anthropic, vision and PDF guides).
    image_pixels_per_token=750, image_limit_tokens=1600, page_tokens=2250, audio_tokens_per_second=32,
)  # fmt: skip
GEMINI = Framing(
    request=0, message=1, call=6, any_tools=10, tool=8, description=0, first_property=5, more_properties=4,
    property_description=0, enum_item=2,
    # 258 tokens per tile of 768 x 768 and per PDF page; 32 per second of audio (Gemini API, token counting guide).
    image_pixels_per_token=768 * 768 / 258, image_limit_tokens=4128, page_tokens=258, audio_tokens_per_second=32,
)  # fmt: skip
OPEN_WEIGHTS = Framing(
    request=10, message=4, call=10, any_tools=140, tool=55, description=1, first_property=11, more_properties=9,
    property_description=4, enum_item=7,
    image_pixels_per_token=28 * 28, image_limit_tokens=1445, page_tokens=1200, audio_tokens_per_second=25,
)  # fmt: skip
GENERIC = Framing(
    request=6, message=4, call=10, any_tools=100, tool=20, description=2, first_property=8, more_properties=6,
    property_description=3, enum_item=7,
    image_pixels_per_token=750, image_limit_tokens=1600, page_tokens=1500, audio_tokens_per_second=32,
)  # fmt: skip

FRAMING = {
    "openai": OPENAI, "cl100k": OPENAI, "anthropic": ANTHROPIC, "claude3": ANTHROPIC, "gemini": GEMINI,
    "llama": OPEN_WEIGHTS, "qwen": OPEN_WEIGHTS, "deepseek": OPEN_WEIGHTS, "generic": GENERIC,
}  # fmt: skip
