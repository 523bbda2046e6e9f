"""Writes the figures of README.md and pages of the docs from RESULTS.md, so that what is quoted is what was measured.

What stands between `<!-- figures: NAME -->` and `<!-- end of figures -->` is written: `missed` by the function of this
name, anything else is the section of that name in RESULTS.md, or, behind a colon, its paragraphs that begin with one of
the texts given (or ours `beside the strongest tail`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from run import BENCHMARKS, RESULTS, Section, sections

ROOT = Path(__file__).parents[1]
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "figures.md",
    ROOT / "docs" / "providers.md",
)
PLACE = re.compile(
    r"(<!-- figures: (?P<name>.+?) -->\n).*?(?=<!-- end of figures -->)", re.DOTALL
)
RIVALS = ("ours", "drop and list")


def written(page: str, found: dict[str, Section]) -> str:
    """Return a page with its figures as the results say."""
    return PLACE.sub(
        lambda place: f"{place[1]}\n{block(place['name'], found)}\n\n", page
    )


def block(name: str, found: dict[str, Section]) -> str:
    if name == "missed":
        return "\n".join(missed(found)) or "None."
    benchmark, _, wanted = name.partition(": ")
    section = found.get(benchmark)
    if section is None:
        return f"`{benchmark}` has not run yet."
    if not section.text:
        return f"`{section.command}`: {section.how}."
    if wanted == "beside the strongest tail":
        return beside(section)
    return excerpt(
        section, [text.strip() for text in wanted.split(";")] if wanted else [""]
    )


def excerpt(section: Section, wanted: list[str]) -> str:
    """The paragraphs of a section that begin with these texts, tables as such, under the command that printed them."""
    parts = [part.strip("\n") for part in re.split(r"\n\s*\n", section.text)]
    kept = [part for part in parts if any(part.startswith(text) for text in wanted)]
    if not kept:
        raise SystemExit(
            f"{section.name} in {RESULTS.name} has no paragraph that begins with {wanted}: run it again"
        )
    shown = [
        part if "|---" in part else f"```text\n{part}\n```"
        for part in map(_with_gaps, kept)
    ]
    return "\n\n".join([f"`{section.command}` ({section.how}):", *shown])


def _with_gaps(part: str) -> str:
    """A table with an empty line on either side, where text stands close to it."""
    lines: list[str] = []
    for line in part.splitlines():
        if (
            lines
            and lines[-1].startswith("|") != line.startswith("|")
            and "|---" in part
        ):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def beside(section: Section) -> str:
    """The rows of ours and of the strongest plain rival."""
    lines = [line for line in section.text.splitlines() if line.startswith("|")]
    rows = [line for line in lines[2:] if line.split(" | ")[1] in RIVALS]
    return "\n".join([f"`{section.command}` ({section.how}):", "", *lines[:2], *rows])


def missed(found: dict[str, Section]) -> Iterator[str]:
    """Every goal that a benchmark missed, in its own words; what stands before it says where."""
    for benchmark in BENCHMARKS:
        where, shown = "", dict[str, None]()
        section = found.get(benchmark.name)
        for line in section.text.splitlines() if section else ():
            if line.startswith("Goals"):
                where = f" ({line.removesuffix(':').removeprefix('Goals ')})"
            elif line.startswith("- MISSED"):
                shown[f"{line.removeprefix('- MISSED ').strip()}{where}"] = None
        if shown:
            yield f"- `{benchmark.name}`: {'; '.join(shown)}"


def main() -> None:
    found = sections()
    for path in PAGES:
        before = path.read_text(encoding="utf-8")
        after = written(before, found)
        if after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.name} is written anew")


if __name__ == "__main__":
    main()
