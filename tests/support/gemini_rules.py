"""Which requests the Gemini API refuses, and what a request costs.

Sources: https://ai.google.dev/gemini-api/docs/function-calling and
https://ai.google.dev/gemini-api/docs/thought-signatures (the texts are the API's own).
"""

import base64
import re

from support.oracle import MEDIA_TOKENS, compact_json, json_tokens, text_tokens

CONTENT_FRAME_TOKENS = 2  # role and separator around each content
SKIP_SIGNATURE = b"skip_thought_signature_validator"  # documented bypass for calls that Gemini did not make
# major version whose first call of a step must carry a signature
SIGNATURES_REQUIRED_FROM = 3


def request_problem(body, *, model, signatures):
    """Return the API's error text for an invalid request body, or None when it is valid."""
    contents = body.get("contents") or []
    if not contents:
        return "* GenerateContentRequest.contents: contents is not specified"
    for index, content in enumerate(contents):
        problem = _content_problem(content, index) or _order_problem(contents, index)
        if problem:
            return problem
    return _signature_problem(contents, model=model, signatures=signatures)


def unit_tokens(body):
    """Return the request as (JSON, tokens) units in prompt order: system instruction, tools, then each content."""
    fixed = [body[key] for key in ("systemInstruction", "tools") if body.get(key)]
    units = [(compact_json(value), _fixed_tokens(value)) for value in fixed]
    contents = body.get("contents") or []
    return units + [
        (compact_json(content), _content_tokens(content)) for content in contents
    ]


def calls_of(content):
    """Return the functionCall parts of a content."""
    return [part for part in _parts(content) if "functionCall" in part]


def call_key(part):
    """Return name and arguments of a functionCall part in comparable form."""
    call = part["functionCall"]
    return call["name"], compact_json(call.get("args") or {})


def is_new_turn(content):
    """Tell whether a content is what a user said, not a function response or the model."""
    return content.get("role") == "user" and not _responses(content)


def decode_signature(text):
    """Decode a thought signature, in either base64 alphabet."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "==")


def _content_problem(content, index):
    if content.get("role") not in {"user", "model"}:
        return "Please use a valid role: user, model."
    if index == 0 and content["role"] != "user":
        return "Please ensure that multiturn requests start with a user turn."
    if not any(_has_data(part) for part in _parts(content)):
        return f"* GenerateContentRequest.contents[{index}].parts: contents.parts must not be empty."
    if any(
        part.get("text") == "" and "thoughtSignature" not in part
        for part in _parts(content)
    ):
        return f"* GenerateContentRequest.contents[{index}].parts: field 'data' must be initialized"
    return None


def _order_problem(contents, index):
    content, before = contents[index], contents[index - 1] if index else {}
    calls, responses = calls_of(content), _responses(content)
    if calls and before.get("role") != "user":
        return (
            "Please ensure that function call turn comes immediately after a user turn or after a function response "
            "turn."
        )
    if responses and not calls_of(before):
        return "Please ensure that function response turn comes immediately after a function call turn."
    if calls_of(before) and len(responses) != len(calls_of(before)):
        return (
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            "of the function call turn."
        )
    names = [part["functionResponse"]["name"] for part in responses]
    if names != [part["functionCall"]["name"] for part in calls_of(before)]:
        return "Please ensure that function response parts are in the order of the function call parts."
    if calls and index == len(contents) - 1:
        return "Please ensure that function call turn is followed by a function response turn."
    return None


def _signature_problem(contents, *, model, signatures):
    start = max(
        (i for i, content in enumerate(contents) if is_new_turn(content)), default=-1
    )
    for index, content in enumerate(contents[start + 1 :], start + 1):
        for position, part in enumerate(calls_of(content)):
            where = f"function call `{part['functionCall']['name']}`, position {index}.{position}"
            required = (
                position == 0 and _major_version(model) >= SIGNATURES_REQUIRED_FROM
            )
            if problem := _call_problem(part, required=required, signatures=signatures):
                return f"{problem} ({where})"
    return None


def _call_problem(part, *, required, signatures):
    signed = call_key(part) in signatures.values()
    if "thoughtSignature" not in part:
        return (
            "Function call is missing a thought_signature in functionCall parts."
            if signed or required
            else None
        )
    signature = _signature_bytes(part["thoughtSignature"])
    if signature == SKIP_SIGNATURE:
        return "Thought signature of this call was lost." if signed else None
    if (
        signature not in signatures
        or signatures[signature][0] != part["functionCall"]["name"]
    ):
        return "Thought signature is not valid."
    return None


def _signature_bytes(text):
    return SKIP_SIGNATURE if text.encode() == SKIP_SIGNATURE else decode_signature(text)


def _major_version(model):
    found = re.search(r"gemini-(\d+)", model)
    return int(found[1]) if found else 0


def _parts(content):
    return content.get("parts") or []


def _responses(content):
    return [part for part in _parts(content) if "functionResponse" in part]


def _has_data(part):
    return any(
        value
        for key, value in part.items()
        if key not in {"thoughtSignature", "thought"}
    )


def _fixed_tokens(value):
    return _content_tokens(value) if isinstance(value, dict) else json_tokens(value)


def _content_tokens(content):
    return CONTENT_FRAME_TOKENS + sum(map(part_tokens, _parts(content)))


def part_tokens(part):
    """Return the tokens of one part of a content."""
    if "text" in part:
        return text_tokens(part["text"])
    if "inlineData" in part or "fileData" in part:
        return MEDIA_TOKENS
    return sum(_data_tokens(key, value) for key, value in part.items())


def _data_tokens(key, value):
    if key == "functionCall":
        return text_tokens(value["name"]) + json_tokens(value.get("args") or {})
    if key == "functionResponse":
        return text_tokens(value["name"]) + json_tokens(value.get("response") or {})
    return 0  # thought signatures are not billed as input


def shared_prefix_tokens(before, now):
    """Return the tokens of the units that two requests have in common at their start."""
    return sum(tokens for _, tokens in _common_prefix(before, now))


def _common_prefix(before, now):
    for old, new in zip(before, now, strict=False):
        if old != new:
            return
        yield new
