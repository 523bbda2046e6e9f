"""Are tasks still done when the window is small? Customers of tau2-bench, by its own tools, databases and reward.

    python benchmarks/tasks.py --tau CHECKOUT [--domain airline] [--windows 8192 16384 32768] [--queue 10]

CHECKOUT is one of https://github.com/sierra-research/tau2-bench (MIT), whose modules need
`pip install addict deepdiff docstring-parser loguru python-dotenv pyyaml toml`.

Customers come one after the other into one thread, and what they ask for is looked up; then each comes back and says go
ahead. An oracle carries out the recorded changes, but only those whose every argument stands in its request: it knows
nothing else and looks nothing up again. The reward of a task is tau2's: 1 when the database is what it has to be in the
end; an agent without a limit would reach 1. Beside ours: plain tails.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic_core import to_json

import exact
from common import Transcript, head, parser_of, pooled, row
from sufficiency import ARMS, Job, Ours, Talk

WINDOWS = (8_192, 16_384, 32_768)
QUEUE = 10  # customers of one thread: about 30,000 tokens
SEED = 5
# how tools that change the database begin
WRITES = ("book_", "cancel_", "exchange_", "modify_", "return_", "update_")
MODELS = {
    "retail": ("RetailTools", "RetailDB"),
    "airline": ("AirlineTools", "FlightDB"),
}
"""By domain: the class of its tools, and of its database."""
# Of what tau2 tells its simulated user: what somebody would say first, in the first person.
SENTENCES = 2
FIRST_PERSON = {"you": "I", "You": "I", "your": "my", "Your": "My", "are": "am"}
WORDS = re.compile(r"\w+")

Action = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one customer wants: the looks that it takes, then the changes."""

    name: str
    opening: str
    looks: tuple[Action, ...]
    writes: tuple[Action, ...]


class Shop:
    """A domain of tau2: its policy, tools and database."""

    def __init__(self, checkout: Path, domain: str) -> None:
        # their own `__init__` imports every provider
        for name in ("tau2", f"tau2.domains.{domain}", "tau2.environment"):
            package = ModuleType(name)
            package.__path__ = [str(checkout.joinpath("src", *name.split(".")))]
            sys.modules.setdefault(name, package)
        tools, model = MODELS[domain]
        place = f"tau2.domains.{domain}"
        self._tools = getattr(importlib.import_module(f"{place}.tools"), tools)
        data_model = importlib.import_module(f"{place}.data_model")
        data = checkout / "data" / "tau2" / "domains" / domain
        self.database = getattr(data_model, model).load(str(data / "db.json"))
        self._looks_of = {"retail": self._in_shop, "airline": self._in_flights}[domain]
        self.policy = (data / "policy.md").read_text("utf-8")
        self.tasks = json.loads((data / "tasks.json").read_text("utf-8"))

    def definitions(self) -> list[dict[str, Any]]:
        tools = self._tools(self.database).get_tools()
        return [convert_to_openai_tool(tool.openai_schema) for tool in tools.values()]

    def asked(self, action: Action) -> str:
        """What a tool says that changes nothing."""
        name, arguments = action
        found = self._tools(self.database).use_tool(name, **arguments)
        return found if isinstance(found, str) else to_json(found).decode()

    def after(self, actions: Sequence[Action]) -> str:
        """The hash of the database after changes; one that the tools refuse changes nothing."""
        tools = self._tools(deepcopy(self.database))
        for name, arguments in actions:
            try:
                tools.use_tool(name, **arguments)
            except ValueError:
                continue
        return str(tools.get_db_hash())

    def readable_tasks(self) -> Iterator[Task]:
        """The tasks that change something, with the looks by which every id of the changes is found."""
        for task in self.tasks:
            actions = task["evaluation_criteria"]["actions"] or []
            recorded = [(action["name"], action["arguments"]) for action in actions]
            writes = tuple(one for one in recorded if one[0].startswith(WRITES))
            about = task["user_scenario"]["instructions"]
            if writes and "DB" in task["evaluation_criteria"]["reward_basis"]:
                opening = (
                    f"{said(about['reason_for_call'])} {said(about['known_info'])}"
                )
                looks = tuple(self._looks(writes))
                yield Task(name=task["id"], opening=opening, looks=looks, writes=writes)

    def _looks(self, writes: Sequence[Action]) -> Iterator[Action]:
        """What has to be looked up before the changes, each once."""
        seen = list[Action]()
        for _, arguments in writes:
            for name, found in self._looks_of(arguments):
                if all(found.values()) and (name, found) not in seen:
                    seen.append((name, found))
                    yield name, found

    def _in_shop(self, arguments: dict[str, Any]) -> Iterator[Action]:
        order = self.database.orders.get(arguments.get("order_id"))
        user = arguments.get("user_id") or (order.user_id if order else None)
        yield "get_user_details", {"user_id": user}
        yield "get_order_details", {"order_id": order and order.order_id}
        for product in self.database.products.values():
            if {*arguments.get("new_item_ids", ())} & product.variants.keys():
                yield "get_product_details", {"product_id": product.product_id}

    def _in_flights(self, arguments: dict[str, Any]) -> Iterator[Action]:
        booked = self.database.reservations.get(arguments.get("reservation_id"))
        user = arguments.get("user_id") or (booked.user_id if booked else None)
        yield "get_user_details", {"user_id": user}
        booked_id = booked and booked.reservation_id
        yield "get_reservation_details", {"reservation_id": booked_id}
        for wanted in arguments.get("flights", ()):
            flight = self.database.flights[wanted["flight_number"]]
            way = {"origin": flight.origin, "destination": flight.destination}
            yield "search_direct_flight", {**way, "date": wanted["date"]}


def thread(shop: Shop, tasks: Sequence[Task]) -> Transcript:
    """The conversation of some customers: all are looked up, then all come back."""
    messages: list[AnyMessage] = [SystemMessage(shop.policy)]
    for task in tasks:
        messages.append(HumanMessage(task.opening, id=f"{task.name}-opening"))
        for number, look in enumerate(task.looks):
            messages += step(f"{task.name}-look{number}", look, shop.asked(look))
        messages.append(
            AIMessage(
                "I have looked everything up. Shall I go ahead?", id=f"{task.name}-asks"
            )
        )
    looked_up = "\n".join(map(exact.payload, messages))
    for task in tasks:
        new = [
            value
            for _, arguments in task.writes
            for value in leaves(arguments)
            if value not in looked_up
        ]
        added = (
            f" Here is what you need: {', '.join(dict.fromkeys(new))}." if new else ""
        )
        first_words = " ".join(task.opening.split()[:6])
        again = f'It is me again ("{first_words} ..."): yes, go ahead.{added}'
        messages.append(HumanMessage(again, id=f"{task.name}-back"))
        for number, write in enumerate(task.writes):
            messages += step(f"{task.name}-write{number}", write, "Done.")
        messages.append(AIMessage("It is done.", id=f"{task.name}-done"))
    return Transcript(
        name=tasks[0].name, source="tau2", tools=shop.definitions(), messages=messages
    )


def said(instructions: str) -> str:
    """The first sentences of what a simulated user is told, as a person says it."""
    first = " ".join(re.split(r"(?<=[.!?])\s+", instructions or "")[:SENTENCES])
    return WORDS.sub(lambda word: FIRST_PERSON.get(word[0], word[0]), first)


def step(name: str, action: Action, result: str) -> list[AnyMessage]:
    call = {"name": action[0], "args": action[1], "id": name}
    return [
        AIMessage("", tool_calls=[call], id=name),
        ToolMessage(result, tool_call_id=name, name=action[0], id=f"{name}-result"),
    ]


def leaves(value: Any) -> Iterator[str]:
    """The values of a call's arguments, as text."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        for part in value:
            yield from leaves(part)
    elif value not in (None, ""):
        yield str(value)


@cache
def shop_of(checkout: Path, domain: str) -> Shop:
    return Shop(checkout, domain)


def play(given: tuple[Path, str, Sequence[Task], int]) -> Counter[tuple[str, str]]:
    """How many changes could be made from the requests alone, and how many tasks that rewards, by arm."""
    checkout, domain, tasks, window = given
    shop = shop_of(checkout, domain)
    talk = Talk(Job(transcript=thread(shop, tasks), window=window))
    possible = {arm: set[str]() for arm in ARMS}
    for _, reply, requests in talk.requests(talk.policies(Ours(talk.job, talk.prompt))):
        values = [
            value
            for call in reply.tool_calls
            if call["name"].startswith(WRITES)
            for value in leaves(call["args"])
        ]
        for arm, request in requests.items():
            text = "\n".join(map(exact.payload, request))
            if all(value in text for value in values):
                possible[arm].add(str(reply.id))
    tally = Counter[tuple[str, str]]()
    for task in tasks:
        wanted = shop.after(task.writes)
        tally["", "tasks"] += 1
        tally["", "changes"] += len(task.writes)
        for arm in ARMS:
            done = [
                write
                for number, write in enumerate(task.writes)
                if f"{task.name}-write{number}" in possible[arm]
            ]
            tally[arm, "tasks"] += shop.after(done) == wanted
            tally[arm, "changes"] += len(done)
    return tally


def main() -> None:
    parser = parser_of(__doc__, data="")
    parser.add_argument(
        "--tau", type=Path, required=True, help="checkout of tau2-bench"
    )
    parser.add_argument("--domain", choices=MODELS, default="retail")
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    parser.add_argument("--queue", type=int, default=QUEUE, help="customers a thread")
    options = parser.parse_args()
    tasks = [*shop_of(options.tau, options.domain).readable_tasks()]
    random.Random(SEED).shuffle(tasks)  # noqa: S311  # a reproducible order, not a secret
    size = options.queue
    begins = range(0, len(tasks) - size + 1, size)
    queues = [tasks[at : at + size] for at in begins]
    print(f"{len(queues)} threads of {size} customers: share that is done\n")
    head("window", "of", *ARMS, left=(1,))
    for window in options.windows:
        jobs = [(options.tau, options.domain, queue, window) for queue in queues]
        total = sum(pooled(play, jobs), Counter())
        for what in ("tasks", "changes"):
            whole = max(1, total["", what])
            shares = (f"{total[arm, what] / whole:.2f}" for arm in ARMS)
            row(f"{window:,}", what, *shares)


if __name__ == "__main__":
    main()
