"""Context management under scripted agents with a strict provider: ours beside what else there is.

Added seconds come from the scenario `clock`, played in real time (a model call takes one second, a summary two); the
others run fifty times faster. CPU is what manager and LangGraph use per answered call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterable

from arena_parts.ceiling import ceiling
from arena_parts.goals import print_goals
from arena_parts.managers import MANAGERS
from arena_parts.play import Job, Outcome, play
from arena_parts.scenarios import CLOCK, SCENARIOS
from arena_parts.table import print_settings, print_window

WAITING_SHARE = 3  # processes per core: about two thirds of a fast scenario is spent waiting for the provider
QUICK = ("parallel", "huge_results", "long_message", "chinese")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, nargs="+", default=[8_192, 32_768])
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--managers", nargs="+", choices=MANAGERS, default=list(MANAGERS))
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--details", action="store_true", help="a table per scenario, with the errors")
    parser.add_argument("--data", help="ignored: the scenarios are made up")
    options = parser.parse_args()
    names = QUICK if options.quick else options.scenarios
    began = time.perf_counter()
    jobs = [Job(manager=m, scenario=s, window=w) for s in names for m in options.managers for w in options.windows]
    outcomes = list(_played(jobs))
    outcomes.sort(key=lambda o: jobs.index(o.job))
    present = [outcome for outcome in outcomes if not outcome.absent]
    for window in options.windows:
        found = [outcome for outcome in present if outcome.job.window == window]
        ceilings = {name: ceiling(name, window) for name in names}
        print_window(found, window, ceilings, details=options.details)
        print_goals(found, window, ceilings)
    print_settings([outcome for outcome in outcomes if outcome.absent])
    print(f"\n{time.perf_counter() - began:.0f} seconds")


def _played(jobs: list[Job]) -> Iterable[Outcome]:
    """The fast scenarios first; then those in real time all at once, since they mostly wait."""
    timed = [job for job in jobs if job.scenario == CLOCK]
    fast = [job for job in jobs if job.scenario != CLOCK]
    for group, processes in ((fast, WAITING_SHARE * (os.cpu_count() or 1)), (timed, len(timed))):
        if group:
            with multiprocessing.Pool(processes, maxtasksperchild=4) as pool:
                yield from pool.imap_unordered(play, group, chunksize=1)


if __name__ == "__main__":
    main()
