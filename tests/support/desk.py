"""A small agent with two talkative tools, and what must hold for every request that it sent."""

from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from langchain_ctxwin import ContextConfig, ModelLimits, create_context_agent
from support.conversations import payload
from support.gemini_policy import is_said

PROMPT = "You look around and report what you find."
CONFIG = {"configurable": {"thread_id": "t"}}
SIZES = "exceeds the maximum number of tokens allowed"  # in the API's overflow text, and in no other


@tool
def look(name: str, depth: int) -> str:
    """Look at something."""
    return f"{name} at {depth}: " + "the quick brown fox jumps over the lazy dog, " * 5


@tool
def listen(name: str) -> str:
    """Listen to something."""
    return f"{name} is silent: " + '{"id": "a1b2", "levels": [1, 22, 333]} ' * 5


TOOLS = [look, listen]


def agent_of(
    model,
    input_limit,
    *,
    config=None,
    **options,
):
    """Compile an agent whose engine is told that the model takes `input_limit` tokens.

    Its policies call whatever tool they are given, so it has none but those that are meant.
    """
    options.setdefault("tools", TOOLS)
    options.setdefault("recall", False)
    return create_context_agent(
        model,
        options.pop("tools"),
        system_prompt=PROMPT,
        limits=ModelLimits(max_input_tokens=input_limit),
        config=ContextConfig(**(config or {})),
        **options,
    )


def ask(text):
    """Return the input of one turn."""
    return {"messages": [("user", text)]}


def state_of(agent, config=CONFIG):
    """Return the state of the thread as a checkpointer holds it."""
    return agent.get_state(config).values


def refusals(server):
    """Return the error texts of a server's 400 replies."""
    return [
        request.reply["error"]["message"]
        for request in server.requests
        if request.status == 400
    ]


def user_texts(request):
    """Return what users said in a request, in order."""
    said = (content for content in request.body["contents"] if is_said(content))
    return [
        "".join(part.get("text", "") for part in content["parts"]) for content in said
    ]


def tool_outputs(request):
    """Return the tool results of a request, in order."""
    parts = (part for content in request.body["contents"] for part in content["parts"])
    return [
        str(part["functionResponse"]["response"]["output"])
        for part in parts
        if "functionResponse" in part
    ]


def payloads(requests):
    """Return of each request what reaches the provider."""
    return [[payload(message) for message in request] for request in requests]


def answered(agent, config=CONFIG):
    """Tell whether the thread ends with an answer and nothing is left to run."""
    last = state_of(agent, config)["messages"][-1]
    return (
        isinstance(last, AIMessage)
        and not last.tool_calls
        and agent.get_state(config).next == ()
    )
