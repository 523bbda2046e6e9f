"""Does one table say what every block of content is?"""

from langchain_core.messages.content import KNOWN_BLOCK_TYPES

from langchain_ctxwin.core.provider_blocks import MEDIA_KINDS, kind_of

PROVIDERS_OWN = {
    "server_tool_call",
    "server_tool_call_chunk",
    "server_tool_result",
    "non_standard",
    "refusal",
}


def test_every_standard_block_of_langchain_has_a_kind_but_what_is_a_providers_own():
    kinds = {
        block_type: kind_of({"type": block_type}) for block_type in KNOWN_BLOCK_TYPES
    }
    assert {
        block_type for block_type, kind in kinds.items() if kind == "other"
    } == PROVIDERS_OWN


def test_a_block_is_the_same_in_the_forms_of_all_providers():
    forms = {
        "call": ["tool_use", "function_call", "custom_tool_call", "tool_call"],
        "result": ["tool_result", "function_call_output"],
        "reasoning": [
            "thinking",
            "redacted_thinking",
            "reasoning",
            "reasoning_content",
        ],
        "image": ["image", "image_url", "input_image"],
    }
    assert {
        kind: {kind_of({"type": form}) for form in types}
        for kind, types in forms.items()
    } == {kind: {kind} for kind in forms}
    assert {kind_of({"type": kind}) for kind in MEDIA_KINDS} == MEDIA_KINDS
