"""What comes next when all parts of a level are done: another level, another try, or the answer?"""

from __future__ import annotations

from typing import Any

from langgraph.graph import END
from langgraph.types import Command, Overwrite, Send

from langchain_ctxwin.decompose.attempts import no_outcome
from langchain_ctxwin.decompose.events import announce_level
from langchain_ctxwin.decompose.parts import Parting
from langchain_ctxwin.decompose.splitting import Cut
from langchain_ctxwin.decompose.state import Answer, Outcome, Report, State, Work

Next = Command[Any]


def next_step(state: State, parting: Parting) -> Next:
    """Return the update and the sends that follow a level.

    When every part failed, the first one is tried again on its own, and what it raises leaves the graph: the thread
    can be resumed. Once it is answered, the others are tried again, too.
    """
    outcomes = sorted(state["outcomes"], key=lambda outcome: outcome["part"])
    if waiting := state["waiting"]:
        return Command(update={"waiting": []}, goto=[Send(_stage(work), work) for work in waiting])
    tried = [outcome for outcome in outcomes if outcome["calls"]]
    if tried and not any(outcome["answers"] for outcome in tried):
        return _try_again(state, outcomes)
    answers = [answer for outcome in outcomes for answer in outcome["answers"]]
    failures = [*state["failures"], *(failure for outcome in outcomes for failure in outcome["failures"])]
    report = _added(state["report"], outcomes)
    if len(answers) > 1:
        return _combine(state, parting, answers, {"failures": failures, "report": report})
    final = {"answer": answers[0]["text"], "failures": failures, "report": report, "outcomes": Overwrite([])}
    return Command(update=final, goto=END)


def sends(works: list[Work]) -> list[Send]:
    """Return the sends of a level; a part that is the only one has to be answered."""
    return [Send(_stage(work), {**work, "must_answer": len(works) == 1}) for work in works]


def _combine(state: State, parting: Parting, answers: list[Answer], update: dict[str, Any]) -> Next:
    level = state["level"] + 1
    whole = whole_work(state["run"], state["question"], level)
    parts = parting.of_answers(whole, answers)
    asked = [work for work in parts.works if len(work["chunks"]) > 1]
    kept = [_kept(work) for work in parts.works if len(work["chunks"]) == 1]
    report: Report = update["report"]
    report = {**report, "parts": [*report["parts"], len(asked)], "clamped": [*report["clamped"], *parts.clamped]}
    announce_level(level, len(asked), clamped=len(parts.clamped))
    return Command(update={**update, "report": report, "level": level, "outcomes": Overwrite(kept)}, goto=sends(asked))


def _kept(work: Work) -> Outcome:
    """An answer that is alone in its part goes to the next level as it is."""
    chunk = work["chunks"][0]
    answer = Answer(text=chunk["text"], sub_question=work["sub_question"], covers=chunk.get("covers", []))
    return {**no_outcome(work["part"]), "answers": [answer]}


def _try_again(state: State, outcomes: list[Outcome]) -> Next:
    first, *others = [outcome["unanswered"] for outcome in outcomes if outcome["calls"]]
    kept = [outcome for outcome in outcomes if not outcome["calls"]]
    update = {"waiting": others, "outcomes": Overwrite(kept), "report": _added(state["report"], outcomes)}
    return Command(update=update, goto=[Send(_stage(first), {**first, "must_answer": True})])


def whole_work(run: str, question: str, level: int) -> Work:
    """Return all work of a level as one, without its chunks."""
    return Work(
        run=run,
        level=level,
        part=1,
        parts=1,
        question=question,
        sub_question="",
        chunks=[],
        must_answer=False,
    )


def _added(report: Report, outcomes: list[Outcome]) -> Report:
    return {
        **report,
        "calls": report["calls"] + sum(outcome["calls"] for outcome in outcomes),
        "refused": report["refused"] + sum(outcome["refused"] for outcome in outcomes),
        "input_tokens": report["input_tokens"] + sum(outcome["input_tokens"] for outcome in outcomes),
        "output_tokens": report["output_tokens"] + sum(outcome["output_tokens"] for outcome in outcomes),
        "cut_off": report["cut_off"] + sum(outcome["cut_off"] for outcome in outcomes),
        "cuts": _in_order([*report["cuts"], *(cut for outcome in outcomes for cut in outcome["cuts"])]),
        "clamped": [*report["clamped"], *(note for outcome in outcomes for note in outcome["clamped"])],
    }


def _in_order(cuts: list[Cut]) -> list[Cut]:
    """The cuts in the order of the input; a place that was cut for two sub-questions is one."""
    by_place = {(cut["document"], cut["at"]): cut for cut in cuts}
    return [by_place[place] for place in sorted(by_place)]


def _stage(work: Work) -> str:
    return "reduce" if work["level"] else "map"
