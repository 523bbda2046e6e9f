"""What a summary model is told: the sections of a summary, and prompts of one's own with their places."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_ctxwin.errors import ConfigError, brief

NEEDED_PLACES = ("previous_summary", "conversation")
PLACES = (*NEEDED_PLACES, "focus", "sections", "max_tokens")
"""What a prompt of one's own may hold in braces."""

DEFAULT_SECTIONS = """\
## Goal and constraints
What the user wants. The user's rules, preferences and corrections word for word; a correction replaces what it \
corrects.
## Decisions
What was decided and why, and what was rejected.
## Facts
Names, identifiers, paths, numbers, dates and error texts exactly as written, each with its latest value.
## Files and artifacts
What was read, created or changed, and its present state.
## Open items
What is unfinished, unanswered or failing, and the next step."""

SECTIONS = """\
Use these sections and leave out the empty ones:

{sections}

Put what the previous summary lists under other headings into these sections. Keep what still holds, update what \
changed, drop what is settled and no longer needed. Invent nothing. Write in the user's language. Reply with the \
summary alone."""


def sections_text(sections: Sequence[str] = ()) -> str:
    """Return the instructions about sections; a custom section is a heading, or a heading, a colon and its content.

    Examples:
        >>> print(sections_text(["Orders: every number, with its state"])[50:95])
        ## Orders
        every number, with its state
        <BLANKLINE>
        Put
    """
    pairs = [text.partition(":") for text in sections]
    own = [f"## {name.strip()}\n{about.strip()}".strip() for name, _, about in pairs]
    return SECTIONS.format(sections="\n".join(own) or DEFAULT_SECTIONS)


def checked_prompt(prompt: str) -> str:
    """Return a prompt of one's own whose places are known and complete.

    Raises:
        ConfigError: it has no place for what a summary is written from, another one, or a brace that opens nothing.
    """
    places = ", ".join(f"{{{name}}}" for name in PLACES)
    fault = ""
    try:
        prompt.format(**dict.fromkeys(PLACES, ""))
    except LookupError as error:
        fault = f"has a place {error}"
    except ValueError as error:
        fault = str(error)
    for name in NEEDED_PLACES:
        if f"{{{name}}}" not in prompt:
            fault = fault or f"has no place {{{name}}}"
    if fault:
        raise ConfigError(
            f"summary_prompt={brief(prompt)}: {fault}: use {places}, and write other braces twice"
        )
    return prompt
