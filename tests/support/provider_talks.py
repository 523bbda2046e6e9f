"""Long conversations with each provider's own context management switched on, and what became of them.

Each talk runs a ready agent on a loopback server that keeps the provider's rules, with the real integration in between.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ctxwin import ModelLimits, TokenEstimator, create_context_agent
from langchain_ctxwin.middleware import ContextWindowMiddleware
from langchain_ctxwin.observe import MemorySink, StepEvent
from langchain_ctxwin.summarize import SummaryJobs
from support.anthropic_server import AnthropicServer
from support.gemini_policy import tool_loop
from support.gemini_server import GeminiServer
from support.ollama_server import OllamaServer, looking
from support.openai_server import OpenAIServer
from support.oracle import text_tokens

WINDOW = 6_000
SUMMARY_SECONDS = 10.0  # the longest wait for one
LEARNING_STEPS = 3  # sizes are learned from the first answers
CLEAR_EDIT = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": 2_000},
    "keep": {"type": "tool_uses", "value": 1},
}
COMPACT_TRIGGER_TOKENS = 3_000
COMPACT_EDIT = {
    "type": "compact_20260112",
    "trigger": {"type": "input_tokens", "value": COMPACT_TRIGGER_TOKENS},
}
COMPACT_ITEM = {"type": "compaction", "compact_threshold": COMPACT_TRIGGER_TOKENS}
CONVERSATION = ("messages", "input", "contents")
"""Where the requests of each provider have what was said."""

PROMPT = "Answer in French. " * 60
READ_PRICE, WRITE_PRICE = 0.1, 1.25
ANTHROPIC_OUTPUT_PRICE, OPENAI_OUTPUT_PRICE, GEMINI_OUTPUT_PRICE = 5, 8, 8
# Over the price of uncached input, as published for Claude Sonnet, GPT-5 and Gemini 2.5 Pro, 2026-11; storage apart.

STATELESS = {
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "output_version": "responses/v1",
}
EDIT_BETAS = ["context-management-2025-06-27", "compact-2026-01-12"]
THREAD = {"configurable": {"thread_id": "talk"}}


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"At {place}: " + "a boat, a mill and a heron. " * 12


def many_tools(number):
    """Tools that are deferred, far more of them than the window holds."""
    return [
        StructuredTool.from_function(
            lambda what: what,
            name=f"tool{n}",
            description="Does one of many things. " * 20,
            extras={"defer_loading": True},
            args_schema={"type": "object", "properties": {"what": {"type": "string"}}},
        )
        for n in range(number)
    ]


@dataclass(kw_only=True)
class Outcome:
    """What became of a talk."""

    requests: int
    refused: list[str]
    """Messages of the refusals: what broke a rule, or was too large."""

    errors: list[float]
    """Shares by which our count missed the size of each request that was sent, once sizes were learned."""

    breakpoints: list[int]
    """Cache breakpoints of each request."""

    kept: list[bool]
    """For each request after the provider's first own compaction: whether its newest block came back to it."""

    cached_share: float
    """Part of all input that was read from the prompt cache."""

    compactions: int
    """Of our own, begun by the provider or by us."""

    cost: float
    """What the provider billed, in uncached input tokens."""

    failed_turns: int = 0
    """Turns that ended with an error."""

    cut: int = 0
    """Prompts that a server cut without a word."""


def speaking(*, thinks):
    """Anthropic's side: look at what the user names, then say something about it."""

    def blocks(body):
        last = body["messages"][-1]["content"]
        answered = isinstance(last, list) and any(
            block.get("type") == "tool_result" for block in last
        )
        thought = [{"type": "thinking", "thinking": "Let me see."}] if thinks else []
        if answered:
            return [
                *thought,
                {"type": "text", "text": ("There is a boat. " * 10).strip()},
            ]
        return [
            *thought,
            {
                "type": "tool_use",
                "name": "look",
                "input": {"place": f"pier {len(body['messages'])}"},
            },
        ]

    return blocks


def responding(body):
    """OpenAI's side of the same."""
    last = body["input"][-1]
    thought = {"type": "reasoning", "text": "Let me see. " * 4}
    if last.get("type") == "function_call_output":
        return [thought, {"type": "text", "text": "There is a boat. " * 10}]
    place = f"pier {len(body['input'])}"
    return [
        thought,
        {
            "type": "function_call",
            "name": "look",
            "arguments": json.dumps({"place": place}),
        },
    ]


def play(
    server,
    model,
    *,
    turns=40,
    tools=(look,),
    prompt=PROMPT,
    **options,
):
    """Hold a talk of so many turns, and say what became of it."""
    sink = MemorySink()
    limits = ModelLimits(context_window=WINDOW, max_output_tokens=output_of(model))
    # The servers count with one tokenizer, OpenAI's: what is off then is what a provider manages, not the tokenizer.
    options = {"limits": limits, "counter": TokenEstimator("openai"), **options}
    jobs = SummaryJobs()
    options |= {"checkpointer": InMemorySaver(), "sinks": [sink], "jobs": jobs}
    agent = create_context_agent(model, list(tools), system_prompt=prompt, **options)
    failed = talk(agent, turns, jobs)
    steps = [event for event in sink.events if isinstance(event, StepEvent)]
    return outcome_of(server, steps, agent.get_state(THREAD).values, failed)


def play_peer(
    server,
    model,
    *,
    turns=40,
    tools=(look,),
    prompt=PROMPT,
):
    """Hold the same talk with LangChain's own summarization, and its prompt caching where there is one."""
    options = {"tools": tools, "prompt": prompt, "output": output_of(model)}
    agent = peer_on(model, WINDOW, InMemorySaver(), **options)
    failed = talk(agent, turns)
    return outcome_of(server, [], agent.get_state(THREAD).values, failed)


def output_of(model):
    """Tokens that a model asks for."""
    return int(getattr(model, "max_tokens", None) or model.max_output_tokens)


def talk(agent, turns, jobs=None):
    """Ask so many questions; return how many ended with an error. Summaries are written between them."""
    failed = 0
    for number in range(turns):
        text = (
            f"Question {number}: what is to be seen? "
            + "The river ran past the mill. " * 8
        )
        try:
            agent.invoke({"messages": [HumanMessage(text)]}, THREAD)
        except Exception:  # noqa: BLE001  # whatever a provider or a middleware says ends the turn, not the talk
            failed += 1
        if jobs is not None:
            jobs.drain(SUMMARY_SECONDS)
    return failed


def billed(exchange):
    """What a provider bills for a request, in uncached input tokens, compactions included."""
    usage = exchange.reply.get("usage") or {}
    if told := exchange.reply.get("usageMetadata"):
        fresh = told["promptTokenCount"] - (1 - READ_PRICE) * (
            told.get("cachedContentTokenCount") or 0
        )
        return fresh + GEMINI_OUTPUT_PRICE * (told.get("candidatesTokenCount") or 0)
    if "input_tokens_details" in usage:
        cached = usage["input_tokens_details"].get("cached_tokens") or 0
        return (
            usage["input_tokens"]
            - (1 - READ_PRICE) * cached
            + OPENAI_OUTPUT_PRICE * usage["output_tokens"]
        )
    rounds = usage.get("iterations") or [usage]
    return sum(
        (one.get("input_tokens") or 0)
        + READ_PRICE * (one.get("cache_read_input_tokens") or 0)
        + WRITE_PRICE * (one.get("cache_creation_input_tokens") or 0)
        + ANTHROPIC_OUTPUT_PRICE * (one.get("output_tokens") or 0)
        for one in rounds
    )


def outcome_of(server, steps, state, failed):
    """Read what became of a talk off the server's requests and our events."""
    known = [step for step in steps if step.estimated_tokens and step.reported_tokens][
        LEARNING_STEPS:
    ]
    usages = [
        message.usage_metadata
        for message in state["messages"]
        if isinstance(message, AIMessage)
    ]
    read = sum(
        (usage or {}).get("input_token_details", {}).get("cache_read", 0)
        for usage in usages
    )
    sent = [
        exchange
        for exchange in server.requests
        if any(key in exchange.body for key in CONVERSATION)
    ]
    return Outcome(
        requests=len(sent),
        refused=[
            str(exchange.reply.get("error"))
            for exchange in sent
            if exchange.status >= 400
        ],
        errors=[
            abs(step.estimated_tokens - step.reported_tokens) / step.reported_tokens
            for step in known
        ],
        breakpoints=[breakpoints(exchange.body) for exchange in sent],
        kept=list(_kept(sent)),
        cached_share=read
        / max(1, sum((usage or {}).get("input_tokens", 0) for usage in usages)),
        compactions=int((state.get("context_guard") or {}).get("compactions", 0)),
        cost=sum(map(billed, sent)),
        failed_turns=failed,
    )


def breakpoints(value):
    """How many cache breakpoints a request has."""
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        here = any(isinstance(value.get(mark), dict) for mark in marks)
        return here + sum(
            breakpoints(part) for key, part in value.items() if key not in marks
        )
    return sum(map(breakpoints, value)) if isinstance(value, list) else 0


def _kept(sent):
    """Whether the newest compaction of the provider is in each request that follows it."""
    newest = ""
    for exchange in sent:
        text = json.dumps(exchange.body)
        if newest:
            yield newest in text or bool(exchange.body.get("previous_response_id"))
        if "compaction" in exchange.body or getattr(exchange, "path", "").endswith(
            "/compact"
        ):
            continue  # one on demand is shown when it is needed
        parts = exchange.reply.get("content") or exchange.reply.get("output") or []
        blocks = [
            part
            for part in parts
            if isinstance(part, dict) and part.get("type") == "compaction"
        ]
        newest = (
            json.dumps(blocks[-1].get("content") or blocks[-1].get("encrypted_content"))
            if blocks
            else newest
        )


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A server that keeps a provider's rules, how its model is set, and what our agent is given."""

    serve: Callable[..., Any]
    model: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    tools: Sequence[Any] = (look,)

    def __call__(self, play=play):
        """Hold the talk; what is ours alone is not given to LangChain's own middleware."""
        ours = {} if play is play_peer else self.ours
        with self.serve() as server:
            model = server.chat_model(**self.model)
            return play(server, model, tools=self.tools, **ours)


def openai_forgetting(play=play):
    """The server forgets what it kept, now and then."""
    calls = iter(range(1_000))

    class Forgetting(OpenAIServer):
        def answer(self, call):
            if next(calls) % 7 == 5:
                self.stored.clear()
            return super().answer(call)

    server = Forgetting(context_window=WINDOW, policy=responding)
    outcome = Talk(serve=lambda: server, model=CHAINED)(play)
    outcome.refused = [
        text for text in outcome.refused if "previous_response_not_found" not in text
    ]
    return outcome


CLAUDE = partial(AnthropicServer, context_window=WINDOW)
TALKER = partial(CLAUDE, policy=speaking(thinks=False))
THINKER = partial(CLAUDE, policy=speaking(thinks=True))
GPT = partial(OpenAIServer, context_window=WINDOW, policy=responding)
GEMINI = partial(GeminiServer, input_limit=WINDOW, policy=tool_loop(steps=1))
BRIEF = {"max_tokens": 256}
CHAINED = {"use_previous_response_id": True, **BRIEF}
THINKING = {
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
    "max_tokens": 1_280,
}
NATIVE = {"summarizer": "native"}
TALKS = {
    "anthropic: native compaction": Talk(
        serve=THINKER,
        model={
            "context_management": {"edits": [COMPACT_EDIT]},
            "betas": EDIT_BETAS,
            **THINKING,
        },
    ),
    "anthropic: context editing": Talk(
        serve=TALKER,
        model={"context_management": {"edits": [CLEAR_EDIT]}, "betas": EDIT_BETAS},
    ),
    "anthropic: thinking": Talk(serve=THINKER, model=THINKING),
    "anthropic: 100 deferred tools": Talk(serve=TALKER, tools=[look, *many_tools(100)]),
    # as with models since September 2026
    "anthropic: bound thinking": Talk(
        serve=partial(THINKER, binds=True), model={"max_tokens": 1_280}
    ),
    "anthropic: bound thinking, compaction on demand": Talk(
        serve=partial(THINKER, binds=True), model={"max_tokens": 1_280}, ours=NATIVE
    ),
    "gemini: thought signatures": Talk(serve=GEMINI, model={"max_output_tokens": 256}),
    "openai: server-side history": Talk(serve=GPT, model=CHAINED),
    "openai: history that is forgotten": openai_forgetting,
    "openai: native compaction": Talk(
        serve=GPT, model={"context_management": [COMPACT_ITEM], **BRIEF}
    ),
    "openai: stateless, encrypted reasoning": Talk(
        serve=GPT, model={**BRIEF, **STATELESS}
    ),
    "openai: stateless, compaction on demand": Talk(
        serve=GPT, model={**BRIEF, **STATELESS}, ours=NATIVE
    ),
}
"""Every talk, by provider and what it manages."""

DEEP_WINDOW = 12_000  # the tools of a deep agent alone take half of it


def composed(make, *, ours_first, turns=40):
    """Ours and the middleware for prompt caching in an agent that `make` makes, such as `create_deep_agent`."""
    with AnthropicServer(
        context_window=DEEP_WINDOW, policy=speaking(thinks=False)
    ) as server:
        ours = ContextWindowMiddleware(
            limits=ModelLimits(context_window=DEEP_WINDOW, max_output_tokens=256)
        )
        chain = [ours, AnthropicPromptCachingMiddleware()]
        middleware = chain if ours_first else chain[::-1]
        options = {
            "system_prompt": PROMPT,
            "middleware": middleware,
            "checkpointer": InMemorySaver(),
        }
        agent = make(server.chat_model(), [look], **options)
        failed = talk(agent, turns)
        return outcome_of(server, [], agent.get_state(THREAD).values, failed)


def ours_on(model, window, saver):
    """An agent of ours on a model of the conversation that moves."""
    limits = ModelLimits(context_window=window, max_output_tokens=256)
    options = {"system_prompt": PROMPT, "limits": limits, "checkpointer": saver}
    return create_context_agent(model, [look], **options)


def peer_on(model, window, saver, *, tools=(look,), prompt=PROMPT, output=256):
    """The same with LangChain's summarization and prompt caching."""
    room = window - output - text_tokens(prompt)
    bounds = {
        "trigger": ("tokens", int(0.85 * room)),
        "keep": ("tokens", int(0.3 * room)),
    }
    caching = AnthropicPromptCachingMiddleware(unsupported_model_behavior="ignore")
    middleware = [SummarizationMiddleware(model, **bounds), caching]
    options = {"system_prompt": prompt, "checkpointer": saver}
    return create_agent(model, list(tools), middleware=middleware, **options)


LOCAL_WINDOW = 4_096  # of the llama.cpp server


def moving(
    make,
    llama,
    *,
    window=WINDOW,
    turns=2,
):
    """Hold one conversation that moves through five servers and back, so many turns at each."""
    hosts = [
        GeminiServer(input_limit=window, policy=tool_loop(steps=1)),
        AnthropicServer(
            context_window=window, policy=speaking(thinks=True), binds=True
        ),
        OpenAIServer(context_window=window, policy=responding),
        OllamaServer(num_ctx=window, policy=looking),
    ]
    with hosts[0], hosts[1], hosts[2], hosts[3], llama:
        options = [{"max_output_tokens": 256}, {}, {"max_tokens": 256, **STATELESS}, {}]
        models = [host.chat_model(**o) for host, o in zip(hosts, options, strict=True)]
        stops = [(model, window) for model in models]
        stops.append((llama.chat_model(), llama.n_ctx))
        saver, failed, agent = InMemorySaver(), 0, None
        for model, size in [*stops, *stops[::-1], *stops]:
            agent = make(model, size, saver)
            failed += talk(agent, turns)
        state = agent.get_state(THREAD).values if agent else {}
        outcomes = [outcome_of(host, [], state, 0) for host in hosts]
    local = len(llama.sent)
    return Outcome(
        requests=local + sum(outcome.requests for outcome in outcomes),
        refused=[text for outcome in outcomes for text in outcome.refused],
        errors=[],
        breakpoints=[mark for outcome in outcomes for mark in outcome.breakpoints],
        kept=[],
        cached_share=outcomes[0].cached_share,
        compactions=outcomes[0].compactions,
        cost=sum(outcome.cost for outcome in outcomes),
        failed_turns=failed,
        cut=hosts[3].cut,
    )
