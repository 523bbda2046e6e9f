"""How is what happened told in plain words? Styled lines for the screen, free of its markup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage

from langchain_ctxwin.demo.checks import Verdict
from langchain_ctxwin.demo.ledger import Ledger
from langchain_ctxwin.demo.sight import EVIDENCE

Part = tuple[str, str]
"""A piece of a line and its style, in rich's words; text of files is never read as markup this way."""

GOOD = "green"
BAD = "bold red"
REASON = "dim"

MAX_CHARS = 240
"""Longest text of a file or a model that is printed; a line may be endless."""

NAMES = {
    "summarize": "by summary",
    "force": "by force",
    "context.summary_started": "summaries begun",
    "context.summary_ready": "summaries ready",
    "context.summary_failed": "summaries failed",
    "context.summary_refused": "summaries refused",
    "context.overflow_recovered": "after a refusal",
    "context.session_mended": "sessions mended",
    "context.model_chosen": "changes of the model",
}
"""What events are called in the final table."""

DONE = {"summarize": "summarized", "force": "compressed"}
"""What each kind of compaction did."""

SWAPPED = "summaries swapped in: 1"
"""The action of a compaction that puts a finished summary in the place of what it covers."""

SHOWN_WRONG = 3
"""Wrong facts shown of one answer; the first ones say what went wrong."""


def safe(text: str, max_chars: int = MAX_CHARS) -> str:
    """Return a text on one line, without control characters, at most `max_chars` long."""
    shown = text if len(text) <= max_chars else f"{text[: max(0, max_chars - 3)]}..."
    return "".join(char if char.isprintable() else " " for char in shown)


def intent(message: AIMessage) -> str:
    """Say what the model does in one step."""
    calls = [f"{call['name']}({', '.join(map(str, call['args'].values()))})" for call in message.tool_calls]
    return f"{len(calls)} x {calls[0]} ..." if len(calls) > 1 else calls[0] if calls else "answers"


def spoken(answer: str) -> str:
    """Return an answer without its line of evidence."""
    return " ".join(line for line in answer.split("\n") if line.strip() and not line.startswith(EVIDENCE))


def explain(event: Mapping[str, Any]) -> list[Part]:
    """Say what the package did and why."""
    if event["type"] == "context.compacted":
        if set(event["actions"]) == {SWAPPED}:
            return _shown(event)
        sizes = f"{event['tokens_before']:,} -> {event['tokens_after']:,} tokens"
        done = f"~ {DONE.get(event['kind'], event['kind'])} {sizes}: {'; '.join(event['actions'])}"
        return [(done, "magenta"), (f"  ({event['reason']})", REASON)]
    if event["type"] == "context.overflow_recovered":
        stated = f"{event['stated_tokens']:,} tokens" if event["stated_tokens"] else "the request"
        estimated = f"{event['estimated_tokens']:,} were estimated"
        return [(f"! the provider refused {stated}: compacted and sent again", "red"), (f"  ({estimated})", REASON)]
    if event["type"] in TOLD:
        done, why = TOLD[event["type"]]
        return [(done.format_map(event), "magenta"), (f"  ({why.format_map(event)})", REASON)]
    name = str(event["type"]).removeprefix("context.").replace("_", " ")
    return [(f"! {name}: {event.get('reason') or event.get('fault') or ''}", "yellow")]


def _shown(event: Mapping[str, Any]) -> list[Part]:
    """A swap may also grow the request: of messages that had left, the summary is then the first thing shown."""
    sizes = f"{event['tokens_before']:,} -> {event['tokens_after']:,} tokens"
    return [(f"~ shown: the summary that was ready; the request went {sizes}", "magenta"), _because(event)]


TOLD = {
    "context.summary_started": ("+ a summary of {messages} messages is being written meanwhile", "{reason}"),
    "context.summary_ready": (
        "+ the summary is ready ({tokens:,} tokens, {seconds:.1f} s) and waits",
        "shown when the room is needed",
    ),
    "context.model_chosen": ("> {model} answers from here on", "{reason}"),
}
"""Event -> what happened, and why."""


def _because(event: Mapping[str, Any]) -> Part:
    return f"  ({event['reason']})", REASON


def judgement(verdict: Verdict, *, is_strict: bool) -> list[Part]:
    """Say whether an answer is true and keeps the rule."""
    rule = "rule kept" if verdict.keeps_rule else "RULE BROKEN"
    if not is_strict:
        return [(f"facts not checked, {rule.lower()}", REASON)]
    rule_style = GOOD if verdict.keeps_rule else BAD
    if verdict.is_true:
        return [("verified against the files", GOOD), (f", {rule}", rule_style)]
    return [(f"WRONG: {'; '.join(verdict.wrong[:SHOWN_WRONG])}", BAD), (f", {rule}", rule_style)]


def figures(ledger: Ledger) -> list[tuple[str, str]]:
    """Return the final figures by name."""
    turns = len(ledger.verdicts)
    events = [f"{number} {NAMES.get(name, name)}" for name, number in sorted(ledger.events.items())]
    failure = f"at step {ledger.unmanaged_failure}" if ledger.unmanaged_failure else "never"
    answers = f"{ledger.true_answers}/{turns}" if ledger.has_strict_checks else "not checked (not the offline model)"
    return [
        ("model calls (steps), turns", f"{ledger.steps}, {turns}"),
        ("largest request, limit", f"{ledger.largest_tokens:,} of {ledger.input_limit:,} tokens"),
        ("largest tool result", f"{ledger.largest_result_tokens:,} tokens"),
        ("whole history at the end", f"{ledger.history_tokens:,} tokens"),
        ("sent in all", f"{ledger.sent_tokens:,} tokens"),
        ("would have been sent unmanaged", f"{ledger.unmanaged_tokens:,} tokens ({_factor(ledger)})"),
        ("an unmanaged agent would have failed", failure),
        ("compactions", ", ".join(events) or "none"),
        ("refused by the provider, recovered", _refused(ledger)),
        ("orphaned calls", str(len(ledger.orphans))),
        ("answers verified", answers),
        ("rule kept", f"{ledger.kept_rules}/{turns}"),
    ]


def conclusion(ledger: Ledger) -> str:
    """Return the last line of a run whose checks all hold."""
    fit = "Every request fit" if not ledger.refused else "Every request fit, or was refused and sent again smaller"
    truth = ", nothing asked was lost" if ledger.has_strict_checks else ""
    return f"{fit}, nothing was orphaned{truth}."


def _refused(ledger: Ledger) -> str:
    return f"{len(ledger.refused)} (up to {max(ledger.refused):,} tokens)" if ledger.refused else "0"


def _factor(ledger: Ledger) -> str:
    return f"{ledger.unmanaged_tokens / ledger.sent_tokens:.1f} times as many" if ledger.sent_tokens else "nothing sent"
