"""What a loopback Gemini answers: a function of the request alone."""

from support.fakes import QUOTE_CHARS
from support.gemini_rules import calls_of, is_new_turn

PARALLEL_CALLS = 2  # enough to get the order of results wrong


def tool_loop(*, steps=3):
    """Call tools in `steps` steps of each turn, every second step in parallel, then say what was seen.

    Without tools it answers at once. It counts the steps that it sees since the last user message, so a lost step is
    repeated, and its answer quotes that message and the number of results.
    """

    def decide(body):
        functions = declared_functions(body)
        turn = current_turn(body)
        done = sum(bool(calls_of(content)) for content in turn)
        if done >= steps or not functions:
            return [{"text": quote(body)}]
        count = PARALLEL_CALLS if done % 2 else 1
        chosen = [functions[(done + i) % len(functions)] for i in range(count)]
        return [call(function, seed=f"{done}.{i}") for i, function in enumerate(chosen)]

    return decide


def answer(text):
    """Always say `text`."""
    return lambda body: [{"text": text}]


def quote(body):
    """Return a text that proves what was seen: the last user text, and how many results stand after it."""
    text = last_user_text(body)
    results = [
        part["functionResponse"]
        for content in current_turn(body)
        for part in _responses(content)
    ]
    return f"seen: {text[:QUOTE_CHARS]} | results {len(results)}."


def last_user_text(body):
    """Return the text of the last content that a user wrote."""
    texts = [content for content in body["contents"] if is_said(content)]
    return "".join(part.get("text", "") for part in texts[-1]["parts"]) if texts else ""


def current_turn(body):
    """Return the contents after the last one that a user wrote."""
    contents = body["contents"]
    start = max(
        (i for i, content in enumerate(contents) if is_said(content)), default=-1
    )
    return contents[start + 1 :]


def is_said(content):
    """Tell whether a user said it: the record of earlier messages stands on the user's side, too."""
    return is_new_turn(content) and not content["parts"][0].get("text", "").startswith(
        "<record>"
    )


def declared_functions(body):
    """Return the function declarations of a request."""
    return [
        function
        for tool in body.get("tools") or []
        for function in tool.get("functionDeclarations") or []
    ]


def call(function, *, seed):
    """Return a functionCall part that fills every required parameter from `seed`."""
    schema = function.get("parameters") or function.get("parametersJsonSchema") or {}
    properties = schema.get("properties")
    args = {
        name: _value(properties[name], seed) for name in schema.get("required") or []
    }
    return {"functionCall": {"name": function["name"], "args": args}}


def _value(schema, seed):
    return 1 if schema.get("type", "").lower() == "integer" else f"value-{seed}"


def _responses(content):
    return [part for part in content["parts"] if "functionResponse" in part]
