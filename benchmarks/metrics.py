"""What reporting costs: processor time of the steps of an agent with each sink, beside the same steps without one.

python benchmarks/metrics.py [--messages 300] [--rounds 8]
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import time
from collections.abc import Callable
from decimal import Decimal
from statistics import median
from typing import Any

import structlog
from langchain_core.messages import AIMessage, HumanMessage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langchain_ctxwin import ContextEngine, ContextNodes, ModelInfo
from langchain_ctxwin.observe import MemorySink, OpenTelemetrySink, Reporter

STEPS = 20  # of one round: long enough for a clock, short enough that a round meets the same machine throughout
AGENTS = 4  # of each kind: where its objects lie in memory makes one agent up to 6 % slower than its twin
WORDS = "The order was shipped on Monday, and the customer asked where it is. " * 6
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Looks something up in a table.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
        },
    }
    for number in range(20)
]
INFO = ModelInfo(name="m", context_window=400_000, input_price=Decimal(1), output_price=Decimal(4))
GOALS = {"memory": 1.05, "OpenTelemetry": 1.15}


def telemetry() -> OpenTelemetrySink:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    return OpenTelemetrySink(MeterProvider([InMemoryMetricReader()]), tracers)


SINKS: dict[str, Callable[[], list[Any]]] = {
    "none": list,
    "none, again": list,
    "memory": lambda: [MemorySink()],
    "OpenTelemetry": lambda: [telemetry()],
}


class Agent:
    """The nodes of an agent in mid-conversation, with a model that answers at once."""

    def __init__(self, sinks: list[Any], messages: int) -> None:
        self.reporter = Reporter(sinks)
        self.nodes = ContextNodes(ContextEngine(INFO, sinks=self.reporter), tools=TOOLS)
        self.model = self.nodes.model_node(self.answer)
        said = ((HumanMessage if n % 2 == 0 else AIMessage)(f"{n} {WORDS}", id=str(n)) for n in range(messages))
        self.begin: dict[str, Any] = {"messages": list(said)}
        self.answers = 0

    def answer(self, request: list[Any]) -> AIMessage:
        self.answers += 1
        usage = {"input_tokens": 100 * len(request), "output_tokens": 20, "total_tokens": 100 * len(request) + 20}
        return AIMessage(f"answer {self.answers}", id=f"a{self.answers}", usage_metadata=usage)

    def steps(self, number: int) -> float:
        """Take so many steps and return the seconds of processor time of each, that of the sinks' threads included."""
        known = self.begin
        gc.collect()
        began = time.process_time()
        for _ in range(number):
            asked = HumanMessage(f"And now? {self.answers}", id=f"q{self.answers}")
            state = {**known, "messages": [*known["messages"], asked]}
            state |= self.nodes.budget_check.invoke(state)
            state |= self.nodes.build_messages.invoke(state)
            update = self.model.invoke(state)
            known = {**state, **update, "messages": [*state["messages"], *update["messages"]]}
        self.reporter.flush(10.0)
        return (time.process_time() - began) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    agents = [(name, Agent(made(), options.messages)) for name, made in SINKS.items() for _ in range(AGENTS)]
    for _, agent in agents:
        agent.steps(STEPS)
    seconds: dict[str, list[float]] = {name: [] for name in SINKS}
    for _ in range(options.rounds):
        random.shuffle(agents)
        for name, agent in agents:
            seconds[name].append(agent.steps(STEPS))
    print(f"{options.messages} messages in view, {STEPS} steps in each of {options.rounds} rounds, medians")
    print(f"{'sink':16}{'us a step':>12}{'ratio':>8}{'goal':>8}")
    for name in SINKS:
        ratio = median(seconds[name]) / median(seconds["none"])
        goal = f"{GOALS[name]:.2f}" if name in GOALS else ""
        print(f"{name:16}{1e6 * median(seconds[name]):>12,.0f}{ratio:>8.2f}{goal:>8}")


if __name__ == "__main__":
    main()
