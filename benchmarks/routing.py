"""Does the quality score send the right requests to the strong model? Cost and quality beside mixes of equal cost.

Trains on one part of the data and measures on another: on domains that training did not see (whole groups of domains
are left out in turn) and on seen ones (one prompt in five is left out in turn).

    python benchmarks/routing.py --data DIR [--png curve.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from langchain_ctxwin import ModelInfo, ModelRouter, RoutingConfig
from langchain_ctxwin.routing import Quality, Sample
from routing_data import LARGER, SMALLER, STRONG, WEAK, Prompt, nine_models, two_ends, two_models, without_known

FOLDS = 5
HALF = 3  # the default was chosen on the parts below it
SEED = 0
RESAMPLES = 500  # of the bootstrap: the ends of a 95 % interval are then known to about a tenth of its width
KEPT_QUALITY = 0.95  # of the strong model's accuracy
PRICE_WEIGHTS = (
    0.0,
    RoutingConfig().cost,
    0.3,
)  # chance of a right answer that the best of nine models must add over a free one
PRICES = {WEAK: (Decimal("0.6"), Decimal("0.6")), STRONG: (Decimal(10), Decimal(30))}  # of the data's own price list
MANY = 1e6  # divides what only breaks ties
SHARES = (0.1, 0.25, 0.5, 0.75)  # of calls to the strong model, in the printed curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with routing/*.jsonl.gz")
    parser.add_argument("--png", type=Path, help="draw the curves of unseen and seen domains into this file")
    parser.add_argument("--domains", nargs="+", choices=DOMAINS, default=list(DOMAINS), help="what is learned from")
    options = parser.parse_args()
    if options.png and len(options.domains) < len(DOMAINS):
        parser.error("--png draws both kinds of domains: leave --domains out")
    pairs = two_models(options.data)
    nine = without_known(nine_models(options.data), pairs)
    curves = {}
    for kind in options.domains:
        title, folds = f"{kind} domains", DOMAINS[kind](pairs)
        chances = left_out(pairs, nine, folds)
        advantage = chances[:, 1] - chances[:, 0]
        print(f"\n{title}: {len(pairs)} prompts, {FOLDS} parts left out in turn")
        curves[title] = report(pairs, folds, advantage)
        report_settings(pairs, folds, chances)
    report_nine(nine)
    if options.png:
        draw(options.png, curves, pairs)


def domain_folds(prompts: list[Prompt]) -> np.ndarray:
    """The group of each prompt's domain: whole domains, shuffled."""
    domains = sorted({prompt.domain for prompt in prompts})
    shuffled = np.random.default_rng(SEED).permutation(len(domains))
    group = {domains[number]: place % FOLDS for place, number in enumerate(shuffled)}
    return np.array([group[prompt.domain] for prompt in prompts])


def random_folds(prompts: list[Prompt]) -> np.ndarray:
    return np.random.default_rng(SEED).integers(0, FOLDS, len(prompts))


DOMAINS = {"unseen": domain_folds, "seen": random_folds}
"""Whether the weights saw other questions of the domains that they are tried on."""


def left_out(pairs: list[Prompt], nine: list[Prompt], folds: np.ndarray) -> np.ndarray:
    """The chances of the weak and the strong model, for each prompt, by weights that did not see its part."""
    chances = np.zeros((len(pairs), 2))
    extra = two_ends(nine, SMALLER, LARGER)
    for fold in range(FOLDS):
        train = [prompt for prompt, part in zip(pairs, folds, strict=True) if part != fold]
        quality = Quality().fit([*two_ends(train, (WEAK,), (STRONG,)), *extra])
        for index in np.flatnonzero(folds == fold):
            chances[index] = quality.chances(pairs[index].text, ["weak", "strong"], strengths=[0.0, 1.0])
    return chances


class Known(Quality):
    """Chances that are known by the prompt's text."""

    def __init__(self, chances: dict[str, np.ndarray]) -> None:
        super().__init__()
        self._chances = chances

    def chances(self, text: str, *_: Any, **__: Any) -> list[float]:
        return list(map(float, self._chances[text]))

    def bucket(self, *_: Any, **__: Any) -> str:
        return "any"


SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "cost=0": {"cost": 0},
    "cost=0.05": {"cost": 0.05},
    "cost=0.12": {"cost": 0.12},
    "cost=0.3": {"cost": 0.3},
    "cost=1": {"cost": 1},
    "least_chance=0.7": {"least_chance": 0.7},
    "quality=0": {"quality": 0, "cost": 1},
}


def report_settings(pairs: list[Prompt], folds: np.ndarray, chances: np.ndarray) -> None:
    """What the router itself chooses under each setting, beside a random mix of the same cost."""
    weak, strong, cheap, dear = columns(pairs)
    infos = [
        ModelInfo(name=name, context_window=128_000, input_price=dollars[0], output_price=dollars[1])
        for name, dollars in PRICES.items()
    ]
    quality = Known({prompt.text: one for prompt, one in zip(pairs, chances, strict=True)})
    print(f"{'setting':18}{'strong':>8}{'right':>8}{'kept':>8}{'cost':>8}{'above mix':>11} (kept: of strong's right)")
    for title, values in SETTINGS.items():
        router = ModelRouter(infos, config=RoutingConfig(**values), quality=quality)
        chosen = np.array([router.route(prompt.text).name == STRONG for prompt in pairs])
        right, cost = np.where(chosen, strong, weak), np.where(chosen, dear, cheap)

        def above(part: np.ndarray, right: np.ndarray = right, cost: np.ndarray = cost) -> float:
            share = (cost[part].sum() - cheap[part].sum()) / (dear - cheap)[part].sum()
            return right[part].mean() - weak[part].mean() - share * (strong - weak)[part].mean()

        everything = np.ones(len(pairs), dtype=bool)
        line = f"{title:18}{chosen.mean():>8.1%}{right.mean():>8.3f}{right.mean() / strong.mean():>8.1%}"
        print(f"{line}{cost.sum() / dear.sum():>8.1%}{above(everything):>+11.4f}")
        if not values:
            for name, part in (("parts 0-2", folds < HALF), ("parts 3-4", folds >= HALF)):
                kept = right[part].mean() / strong[part].mean()
                print(f"  {name}: kept {kept:.1%}, above mix {above(part):+.4f}, {int(part.sum())} prompts")


def report(pairs: list[Prompt], folds: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """Print the figures and return the curve: accuracy over the number of calls to the strong model."""
    weak, strong, cheap, dear = columns(pairs)
    gain, extra = strong - weak, dear - cheap
    oracle = gain - extra / MANY  # ties go to the cheaper call
    print(
        f"always cheap {weak.mean():.3f} at ${cheap.sum():.3f}, always strong {strong.mean():.3f} at ${dear.sum():.3f}"
    )
    best = by_part(gain, oracle, folds)
    print(f"APGR per part: score {by_part(gain, advantage, folds):.3f}, oracle {best:.3f}, random 0.500")
    low, high = interval(lambda chosen: apgr(gain[chosen], advantage[chosen]), len(pairs))
    print(f"APGR of all together: {apgr(gain, advantage):.3f} [{low:.3f}, {high:.3f}]")
    for part in range(FOLDS):
        inside = folds == part
        print(f"  part {part}: {apgr(gain[inside], advantage[inside]):.3f} of {inside.sum()} prompts")
    print(f"{'calls':>6}{'cost':>9}{'score':>8}{'mix':>8}{'oracle':>8}   (mix: a random one of equal cost)")
    for share in SHARES:
        print_point(share, weak, gain, cheap, extra, advantage, oracle)
    report_savings(weak, strong, cheap, dear, advantage, folds)
    return curve(weak, gain, advantage)


def print_point(share, weak, gain, cheap, extra, advantage, oracle) -> None:
    chosen = ranked(advantage)[: int(share * len(gain))]
    cost = cheap.sum() + extra[chosen].sum()
    mix = weak.mean() + gain.mean() * extra[chosen].sum() / extra.sum()
    best = curve(weak, gain, oracle)[len(chosen)]
    print(f"{share:>6.0%}{cost:>9.3f}{(weak.sum() + gain[chosen].sum()) / len(gain):>8.3f}{mix:>8.3f}{best:>8.3f}")


def report_savings(weak, strong, cheap, dear, advantage, folds) -> None:
    """What is saved of the strong model's cost at 95 % of its accuracy, beside a random mix of that accuracy."""

    def points(chosen: np.ndarray) -> float:
        parts = weak[chosen], strong[chosen], cheap[chosen], dear[chosen], advantage[chosen]
        return saved(*parts) - saved_by_mix(*parts[:4])

    parts = [np.flatnonzero(folds == part) for part in range(FOLDS)]
    low, high = interval(points, len(weak))
    mix = saved_by_mix(weak, strong, cheap, dear)
    print(
        f"saved at {KEPT_QUALITY:.0%} quality: score {saved(weak, strong, cheap, dear, advantage):.1%}, mix {mix:.1%}: "
        f"{100 * points(np.arange(len(weak))):+.1f} points [{100 * low:.1f}, {100 * high:.1f}], "
        f"mean of the parts {100 * np.mean([points(part) for part in parts]):+.1f}"
    )


def saved(weak, strong, cheap, dear, advantage) -> float:
    order = ranked(advantage)
    right = curve(weak, strong - weak, advantage)
    enough = np.flatnonzero(right >= KEPT_QUALITY * strong.mean())[0]
    return 1 - (cheap.sum() + (dear - cheap)[order[:enough]].sum()) / dear.sum()


def saved_by_mix(weak, strong, cheap, dear) -> float:
    share = (KEPT_QUALITY * strong.mean() - weak.mean()) / (strong.mean() - weak.mean())
    return 1 - (cheap.sum() + max(0.0, share) * (dear - cheap).sum()) / dear.sum()


def columns(pairs: list[Prompt]) -> Iterator[np.ndarray]:
    yield from (np.array([prompt.correct[name] for prompt in pairs]) for name in (WEAK, STRONG))
    yield from (np.array([prompt.cost[name] for prompt in pairs]) for name in (WEAK, STRONG))


def ranked(advantage: np.ndarray) -> np.ndarray:
    return np.argsort(-advantage, kind="stable")


def curve(weak: np.ndarray, gain: np.ndarray, advantage: np.ndarray) -> np.ndarray:
    """Accuracy after each call that moves to the strong model, those with the largest advantage first."""
    return (weak.sum() + np.concatenate([[0.0], np.cumsum(gain[ranked(advantage)])])) / len(gain)


def apgr(gain: np.ndarray, advantage: np.ndarray) -> float:
    """Mean share of the gap between the two models that is recovered, over all shares of calls to the strong one."""
    recovered = np.concatenate([[0.0], np.cumsum(gain[ranked(advantage)])]) / gain.sum()
    return float(np.trapezoid(recovered, dx=1 / len(gain)))


def by_part(gain: np.ndarray, advantage: np.ndarray, folds: np.ndarray) -> float:
    return float(np.mean([apgr(gain[folds == part], advantage[folds == part]) for part in range(FOLDS)]))


def interval(figure, count: int) -> tuple[float, float]:
    """95 % of the figure over prompts drawn with replacement."""
    random = np.random.default_rng(SEED)
    low, high = np.quantile([figure(random.integers(0, count, count)) for _ in range(RESAMPLES)], (0.025, 0.975))
    return float(low), float(high)


def report_nine(nine: list[Prompt]) -> None:
    """Choose among nine models by chance less a price; a choice is optimal when no right model is cheaper."""
    names = sorted(nine[0].correct)
    part = random_folds(nine)
    train = [prompt for prompt, fold in zip(nine, part, strict=True) if fold]
    test = [prompt for prompt, fold in zip(nine, part, strict=True) if not fold]
    quality = Quality().fit(
        Sample(text=prompt.text, model=name, success=prompt.correct[name]) for prompt in train for name in names
    )
    chances = np.array([quality.chances(prompt.text, names, strengths=[0.5] * len(names)) for prompt in test])
    correct = np.array([[prompt.correct[name] for name in names] for prompt in test])
    cost = np.array([[prompt.cost[name] for name in names] for prompt in test])
    priced = cost / cost.max(axis=1, keepdims=True)
    cheapest = np.argmin(cost.mean(axis=0) - correct.mean(axis=0) / MANY)
    best = int(np.argmax(np.array([[p.correct[n] for n in names] for p in train]).mean(axis=0)))
    print(f"\nnine models: {len(train)} prompts to learn, {len(test)} to measure")
    print(f"{'choice':26}{'right':>8}{'cost $':>9}{'optimal':>9}")
    choices = {
        "always cheapest": np.full(len(test), cheapest),
        f"always {names[best][:18]}": np.full(len(test), best),
    }
    choices |= {f"score, price x {weight}": np.argmax(chances - weight * priced, axis=1) for weight in PRICE_WEIGHTS}
    choices["oracle"] = np.argmax(correct - priced / MANY, axis=1)
    rows = np.arange(len(test))
    for title, chosen in choices.items():
        optimal = (chosen == choices["oracle"]) | (
            (correct[rows, chosen] == correct.max(axis=1)) & (cost[rows, chosen] <= cost[rows, choices["oracle"]])
        )
        print(f"{title:26}{correct[rows, chosen].mean():>8.3f}{cost[rows, chosen].sum():>9.4f}{optimal.mean():>9.1%}")


def draw(path: Path, curves: dict[str, np.ndarray], pairs: list[Prompt]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    weak, strong, *_ = columns(pairs)
    figure, axes = plt.subplots(figsize=(7, 4.5))
    shares = np.linspace(0, 1, len(pairs) + 1)
    for title, right in curves.items():
        axes.plot(shares, right, label=f"quality score, {title}")
    axes.plot([0, 1], [weak.mean(), strong.mean()], "--", color="gray", label="random mix")
    axes.plot(shares, curve(weak, strong - weak, strong - weak), ":", color="black", label="oracle")
    axes.set(xlabel="share of calls to the strong model", ylabel="right answers")
    axes.legend()
    figure.savefig(path, dpi=150, bbox_inches="tight")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
