"""Are the collaborators of an engine what they have to be? Asked when they are given, not when they are first used."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

from langchain_ctxwin.config import ContextConfig, LiveConfig
from langchain_ctxwin.errors import ConfigError

SHOWN_CHARS = 80
"""Longest value in an error: enough to recognize it, and a whole chat model is no help."""

HOOKS = {
    "before_compaction": "takes a window and a compaction and returns a compaction or None",
    "after_compaction": "takes the event of a compaction",
}


def check_collaborators(*, config: Any, counter: Any, learned: Any, jobs: Any, **hooks: Any) -> None:
    """Raise `ConfigError` for what cannot serve an engine; None is a default everywhere."""
    if isinstance(config, type) or not isinstance(config, ContextConfig | LiveConfig | None):
        raise ConfigError(f"config={shown(config)}: pass a ContextConfig, for example ContextConfig(keep=0.4)")
    if counter is not None and not _is_made(counter, "__call__"):
        raise ConfigError(
            f"counter={shown(counter)}: pass a callable that counts the tokens of messages, for example "
            "TokenEstimator(), or None"
        )
    if learned is not None and not _is_made(learned, "recall", "learn"):
        raise ConfigError(
            f"learned={shown(learned)}: pass a memory with methods recall and learn, for example LearnedSource(path), "
            "or None"
        )
    if jobs is not None and not _is_made(jobs, "start", "find", "forget", "cancel"):
        raise ConfigError(f"jobs={shown(jobs)}: pass a SummaryJobs, or None for those that the process shares")
    for name, hook in hooks.items():
        if hook is not None and (not callable(hook) or iscoroutinefunction(hook) or isinstance(hook, type)):
            raise ConfigError(f"{name}={shown(hook)}: pass a plain function that {HOOKS[name]}, or None")


def shown(value: Any) -> str:
    """Return a value as an error shows it: short."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _is_made(value: Any, *methods: str) -> bool:
    """True for an object with these methods; a class has them too, but is not an object made from it."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in methods)
