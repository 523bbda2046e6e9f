"""Does everything that the README and the docs tell a reader to type work?

Python blocks run in order, one namespace per heading of the README and per page of the docs; `no-run` after the
language only compiles a block. A block
`text output` behind one is what it prints, random marks aside.
"""

import ast
import contextlib
import io
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MAX_README_BYTES = 12 * 1024
RANDOM_MARK = re.compile(r"(?<=data )[\w-]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: what it is, where it stands, and under which heading."""

    info: tuple[str, ...]
    code: str
    line: int
    section: str

    @property
    def language(self):
        """First word after the fence, empty when there is none."""
        return self.info[0] if self.info else ""


def blocks_of(markdown):
    """Yield the fenced blocks; a `#` inside a block is no heading, and headings with one text stay apart."""
    section, fence, start, info, lines = "top", "", 0, (), []
    for number, line in enumerate(markdown.splitlines(), start=1):
        opening = re.match(r" {0,3}(`{3,}|~{3,})\s*(.*)$", line)
        if fence and line.strip() == fence:
            yield Block(
                info=info, code="\n".join(lines) + "\n", line=start + 1, section=section
            )
            fence = ""
        elif fence:
            lines.append(line)
        elif opening:
            fence, start, info, lines = (
                opening[1],
                number,
                tuple(opening[2].replace(",", " ").split()),
                [],
            )
        elif heading := re.match(r"#{1,6}\s+(.*)$", line):
            section = f"{heading[1]} (line {number})"
    assert not fence, f"the block that opens in line {start} is never closed"


def run_section(blocks, name, module_name):
    """Compile and run the Python blocks of one section in one namespace; line numbers are those of the file."""
    module = types.ModuleType(module_name)
    sys.modules[module_name] = (
        module  # where typing looks up the annotations of the classes that a block defines
    )
    try:
        printed = ""
        for block in blocks:
            if block.language == "text":
                assert _masked(printed) == _masked(block.code), (
                    f"what line {block.line} quotes is not what is printed"
                )
                continue
            with contextlib.redirect_stdout(io.StringIO()) as stdout:
                _run(block, name, module)
            printed = stdout.getvalue()
    finally:
        del sys.modules[module_name]


def _masked(text):
    """The lines of an output as Markdown keeps them: without random marks and spaces at their ends."""
    return "\n".join(
        line.rstrip() for line in RANDOM_MARK.sub("...", text).strip().splitlines()
    )


def _run(block, name, module):
    padded = "\n" * (block.line - 1) + block.code
    only_compile = "no-run" in block.info
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if only_compile else 0
    code = compile(padded, name, "exec", flags=flags, dont_inherit=True)
    if not only_compile:
        exec(code, vars(module))  # noqa: S102  # this is what the gate is for


def sections_of(markdown):
    """Group the Python blocks and what they print by heading."""
    sections = {}
    for block in blocks_of(markdown):
        if block.language in {"python", "py"} or block.info == ("text", "output"):
            sections.setdefault(block.section, []).append(block)
    return sections


def _readme():
    return README.read_text(encoding="utf-8")


def _page(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("section", sections_of(_readme()))
def test_the_python_blocks_of_a_section_run(section, monkeypatch, tmp_path):
    """A reader who types the blocks of one section, in order and offline, sees no error."""
    monkeypatch.chdir(tmp_path)
    run_section(sections_of(_readme())[section], str(README), "readme_section")


@pytest.mark.parametrize("path", PAGES, ids=_page)
def test_the_python_blocks_of_a_page_run(path, monkeypatch, tmp_path):
    """A reader who types the blocks of one page, in order and offline, sees no error."""
    monkeypatch.chdir(tmp_path)
    blocks = sections_of(path.read_text(encoding="utf-8")).values()
    run_section(
        [block for section in blocks for block in section], str(path), "docs_page"
    )


def test_the_readme_and_the_docs_have_python_that_runs():
    """The gates above are not empty."""
    found = [sections_of(path.read_text(encoding="utf-8")) for path in (README, *PAGES)]
    runs = [
        [b for blocks in page.values() for b in blocks if "no-run" not in b.info]
        for page in found
    ]
    assert runs[0]
    assert sum(map(bool, runs[1:])) > 20


def test_the_readme_stays_short():
    """What does not fit stands in the docs."""
    assert len(README.read_bytes()) <= MAX_README_BYTES


@pytest.mark.parametrize(
    "path", [README, ROOT / "docs" / "llms.txt", *PAGES], ids=_page
)
def test_links_lead_somewhere(path):
    """Every relative link names a file that is there."""
    markdown = re.sub(
        r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    targets = (
        target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", markdown)
    )
    assert [
        t for t in targets if t and "://" not in t and not (path.parent / t).exists()
    ] == []


def test_llms_txt_names_every_page():
    """Who reads it for a machine misses nothing."""
    named = set(
        re.findall(
            r"\]\(([^)]+)\)", (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
        )
    )
    assert named == {path.relative_to(ROOT / "docs").as_posix() for path in PAGES}


def _run_markdown(markdown):
    for blocks in sections_of(markdown).values():
        run_section(blocks, "planted.md", "planted_section")


def test_a_block_that_raises_fails_with_its_line(tmp_path):
    """A failing block fails the gate, and the traceback names the line of the file."""
    planted = tmp_path / "planted.md"
    planted.write_text(
        "# One\n\n```python\nx = 1\nraise KeyError(x)\n```\n", encoding="utf-8"
    )
    with pytest.raises(KeyError) as failure:
        _run_markdown(planted.read_text(encoding="utf-8"))
    assert failure.traceback[-1].lineno + 1 == 5


def test_an_output_that_is_not_printed_fails():
    """What is quoted is compared, whole, with what the block before it prints; random marks may differ."""
    quoted = (
        "```python\nprint('{printed}')\n```\n```text output\n<data tXJ1x0yHVu2c>\n```\n"
    )
    _run_markdown(quoted.format(printed="<data 0123456789ab>"))
    with pytest.raises(AssertionError, match="line 5"):
        _run_markdown(quoted.format(printed="<date 0123456789ab>"))
