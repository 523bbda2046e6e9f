"""Does the router send each request to a model that is strong enough, and save money? At its default settings.

Public outcomes of a cheap and a strong model (RouteLLM's MMLU and GSM8K), the nine-model set of LLMRouter, and two
lists of requests of our own: small talk, and work that takes thought. What the router goes by was chosen on every other
prompt; the figures of the others are shown apart. A random mix costs as much as the router and knows nothing.

    python benchmarks/routing.py --data DIR
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from common import parser_of, rows_of
from langchain_ctxwin import ModelInfo, ModelRouter

WEAK, STRONG = "mixtral-8x7b-instruct", "gpt-4-1106-preview"
ASSUMED_OUTPUT_TOKENS = 120  # where none is recorded
MILLION = 1e6
# of the data's own price list
PRICES = {WEAK: (Decimal("0.6"), Decimal("0.6")), STRONG: (Decimal(10), Decimal(30))}
TRIED = 20  # prompts whose outcome is recorded before the others are routed, where outcomes are learned


def main() -> None:
    parser = parser_of(__doc__, "routing; the lists of requests without it")
    data = parser.parse_args().data
    report_requests()
    if data:
        report_two(prompts_of(data / "routing", "routellm", "_per_mtok"))
        report_nine(prompts_of(data / "routing", "llmrouter_9models", "_price"))


def info_of(name: str, input_price: Decimal, output_price: Decimal) -> ModelInfo:
    return ModelInfo(
        name=name,
        context_window=128_000,
        input_price=input_price,
        output_price=output_price,
    )


def is_strong(texts) -> np.ndarray:
    """Which texts go to the strong one of two models."""
    infos = [info_of(name, *dollars) for name, dollars in PRICES.items()]
    router = ModelRouter(infos)
    return np.array([router.route(text).name == STRONG for text in texts])


def report_requests() -> None:
    """How many of each list go to the cheap model, of those that were there at the choice and of the others."""
    for title, texts in (("small talk", SMALL_TALK), ("hard requests", HARD)):
        is_cheap = ~is_strong(texts)
        print(
            f"{title}: {is_cheap.mean():.1%} of {len(texts)} go to the cheap model "
            f"(chosen on {is_cheap[::2].mean():.0%}, others {is_cheap[1::2].mean():.0%})"
        )
        for text, cheap in zip(texts, is_cheap, strict=True):
            if cheap == (texts is HARD):
                print(f"  not as wanted: {text.splitlines()[0]}")


def report_two(prompts: list[Prompt]) -> None:
    weak, strong = (
        np.array([prompt.correct[name] for prompt in prompts])
        for name in (WEAK, STRONG)
    )
    cheap, dear = (
        np.array([prompt.cost[name] for prompt in prompts]) for name in (WEAK, STRONG)
    )
    parts = {
        "all": slice(None),
        "chosen on": slice(0, None, 2),
        "others": slice(1, None, 2),
    }
    print(
        f"\n{len(prompts)} prompts: cheap {weak.mean():.3f} right, strong {strong.mean():.3f}\n"
        f"{'part':12}{'strong':>8}{'right':>8}{'kept':>8}{'cost':>8}{'above mix':>11}"
    )
    chosen = is_strong([prompt.text for prompt in prompts])
    right, cost = np.where(chosen, strong, weak), np.where(chosen, dear, cheap)
    for part, at in parts.items():
        share = (cost - cheap)[at].sum() / (dear - cheap)[at].sum()
        above = (right - weak)[at].mean() - share * (strong - weak)[at].mean()
        kept = right[at].mean() / strong[at].mean()
        paid = cost[at].sum() / dear[at].sum()
        line = f"{part:12}{chosen[at].mean():>8.1%}{right[at].mean():>8.3f}{kept:>8.1%}"
        print(f"{line}{paid:>8.1%}{above:>+11.4f}")
    print(
        "kept: of the strong model's right answers; cost: of the strong model's; above a random mix of that cost"
    )


def report_nine(prompts: list[Prompt]) -> None:
    """Nine models by their own prices, without outcomes and after some were recorded."""
    names = sorted(prompts[0].correct)
    right = np.array([[prompt.correct[name] for name in names] for prompt in prompts])
    cost = np.array([[prompt.cost[name] for name in names] for prompt in prompts])
    spent = cost.mean(axis=0)
    prices = [Decimal(f"{dollars * 1000:.6f}") for dollars in spent]
    infos = list(map(info_of, names, prices, prices))
    router, learning = ModelRouter(infos), ModelRouter(infos)
    for at in range(0, len(prompts), max(1, len(prompts) // (TRIED * len(names)))):
        for name, is_right in zip(names, right[at], strict=True):
            route = learning.route(prompts[at].text, prefer=name)
            learning.record(route, bool(is_right))
    best = right.mean(axis=0).argmax()
    choices = {
        "always the cheapest": spent.argmin(),
        "always the dearest": spent.argmax(),
        "router": [names.index(router.route(p.text).name) for p in prompts],
        "router, with outcomes": [
            names.index(learning.route(p.text).name) for p in prompts
        ],
        f"always {names[best]}": best,
    }
    print(
        f"\n{len(names)} models, {len(prompts)} prompts\n{'choice':48}{'right':>8}{'cost $':>9}"
    )
    every = np.arange(len(prompts))
    for title, chosen in choices.items():
        share, dollars = right[every, chosen].mean(), cost[every, chosen].sum()
        print(f"{title:48}{share:>8.3f}{dollars:>9.4f}")


# ---- the data -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt and what each model made of it."""

    text: str
    correct: dict[str, float]
    cost: dict[str, float]
    """US dollars per model."""


def prompts_of(folder: Path, name: str, unit: str) -> list[Prompt]:
    """Return the prompts that some models answered; `unit` ends the names of their prices."""
    prices = json.loads(
        gzip.decompress((folder / f"{name}.prices.json.gz").read_bytes())
    )
    found = []
    for row in rows_of(folder / f"{name}.jsonl.gz"):
        correct, cost = {}, {}
        for model, outcome in row["models"].items():
            written = outcome.get("out_tokens") or ASSUMED_OUTPUT_TOKENS
            dollars = row["in_tokens"] * prices[model][f"input{unit}"]
            dollars += written * prices[model][f"output{unit}"]
            cost[model] = dollars / MILLION
            correct[model] = float(outcome["correct"])
        found.append(Prompt(text=row["prompt"], correct=correct, cost=cost))
    return found


# ---- requests that a person would answer at once, and requests that take thought ------------------------------------
# Every other one was there when the thresholds of the router's judgement were chosen; the others measure. A few are not
# in English, where the judgement knows no words.

SMALL_TALK = """
Hi
Hello there!
Thanks, that helped.
What is 2+2?
What's the capital of France?
Good morning
How are you today?
Tell me a joke.
What day comes after Tuesday?
Bye!
Ok
Yes, please.
No, that's all.
Who wrote Hamlet?
What time zone is Berlin in?
Can you repeat that?
Translate 'thank you' into Spanish.
How do you spell 'necessary'?
What is the plural of goose?
Say that in one sentence.
Which is bigger, the sun or the moon?
What's your name?
Are you a robot?
Convert 10 kilometers to miles.
What color do you get from blue and yellow?
Danke, das war alles.
¿Cómo estás?
Merci beaucoup !
Is it Friday yet?
When was the Eiffel Tower built?
What does HTML stand for?
Give me a synonym for happy.
Please summarize that in five words.
Wish my mum a happy birthday.
Do you like music?
How many legs does a spider have?
What's the opposite of cold?
Sounds good, go ahead.
What's the weather like in spring in Rome?
Remind me what we talked about.
""".strip().split("\n")

HARD = """
Refactor this distributed payments service so that retries are idempotent.

Prove that there are infinitely many primes of the form 4k + 3.

Design a schema for a multi-tenant billing system with usage-based pricing, proration and refunds.

Why does this deadlock only under load?
```python
with a:
    with b:
        work()
```

Derive the closed form of the expected number of coin flips until HTHT appears.

Our p99 latency tripled after we sharded the cache. Walk through the likely causes and how to test each.

Write a recursive descent parser for arithmetic with functions, unary minus and error recovery.

Find the bug.
Traceback (most recent call last):
  File 'app.py', line 7, in total
KeyError: 'net'

Compare optimistic and pessimistic locking for an inventory service at 5,000 orders a second, and recommend one.

Plan the migration of a 4 TB PostgreSQL database to another region with at most five minutes of downtime.

Explain why the halting problem is undecidable, and where the argument fails for programs of bounded size.

List each obligation: the Lessee shall, within ten days of notice, cure any default or owe rent for the term.

Evaluate the integral of x^2 e^(-x^2) over the real line.

Given these three balance sheets, which company is closest to breaching its covenants, and why?

This scans 200 million rows, make it fast: SELECT * FROM a JOIN b ON a.id = b.a_id WHERE lower(b.name) = 'x'

A train leaves at 9:40 at 84 km/h and another at 10:15 at 105 km/h from 320 km away. When and where do they meet?

Implement Raft leader election in Go with tests for split votes.

Review this pull request for race conditions and security holes.

Write a threat model for an agent that reads customers' mail and can issue refunds.

What are the second-order effects of a higher minimum wage on small firms, automation and migration?

Debug why my Kubernetes pods are OOM-killed although their limits are twice the heap size.

Construct a context-free grammar for a^n b^m c^n with m > n, or show that there is none.

54-year-old with night sweats, weight loss of 8 kg, a new murmur and splinter haemorrhages. What next?

Simplify this expression and show the equivalence: (A and not B) or (not A and B) or (A and B).

Rewrite this module of 2,000 lines into testable parts without changing its public interface.

Estimate the memory of a transformer with 70 billion parameters at a context of 128k tokens, and show each step.

How would you detect near-duplicate documents among two billion pages on a budget of ten machines?

Draft a litigation hold notice that complies with Rule 37(e), and explain each paragraph.

Given f(x) = x^3 - 6x^2 + 11x - 6, find all roots, the extrema and the inflection point.

Write a Solidity contract for a Dutch auction that is safe against reentrancy and front-running.

Three guests pay 30 dollars, get 5 back, keep 1 each and tip 2. Where is the missing dollar? Explain the fallacy.

Analyze the attached log of 3,000 lines and tell me which deploy caused the memory leak.

Model the spread of a rumour on a scale-free network and derive when it dies out.

Plan a 12-week study schedule around my shifts, exams and two trips, with rest days after night shifts.

Reconcile these two interpretations of the Treaty of Westphalia and judge which the sources support.

Entwirf eine Architektur für ein Buchungssystem, das auch bei Netzausfall keine Doppelbuchungen zulässt.

Demuestra que la raíz cuadrada de 2 es irracional y generaliza el argumento a cualquier número primo.

Explique pourquoi cet algorithme est en O(n log n) et propose une version itérative sans récursion.

Which of these four clustering algorithms suits 10 million sparse vectors, and what would break first?

Make our checkout flow GDPR-compliant: list what must change in the database, the API and the e-mails.
""".strip().split("\n\n")

if __name__ == "__main__":
    main()
