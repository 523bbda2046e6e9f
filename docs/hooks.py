"""What the site is built with beside its pages: notebooks, argument tables, and fences without the tests' own words."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FENCE = "`" * 4
BETWEEN_WORDS = r"(?:(?<=[_.=/(])(?=\w)|(?<=[a-z])(?=[A-Z]))(?![^<]*>)"


class ArgumentTables(griffe.Extension):
    """Reads the section "Key init args" of a class, which LangChain's packages have, as arguments."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Name the section as the parser of docstrings does; where fields make the constructor, make it a list."""
        text = cls.docstring.value if cls.docstring else ""
        before, title, section = text.partition("Key init args:\n")
        if not title:
            return
        if "__init__" in cls.members:
            title = "Args:\n"
        else:
            section = re.sub(r"(?m)^    (\w+): ", r"    - `\1`: ", section)
        cls.docstring.value = before + title + section


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page whose fences name their language alone."""
    return re.sub(
        r"^( *```(?:python|text)) (?:no-run|output)$",
        r"\1",
        markdown,
        flags=re.MULTILINE,
    )


def on_page_content(html: str, **_: object) -> str:
    """Return a page whose tables may break a name between its words, as a phone has to."""

    def breakable(cell: re.Match[str]) -> str:
        return re.sub(BETWEEN_WORDS, "<wbr>", cell[0])

    def in_cell(cell: re.Match[str]) -> str:
        return re.sub(r"<code>.*?</code>", breakable, cell[0], flags=re.DOTALL)

    return re.sub(r"<td.*?</td>", in_cell, html, flags=re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, with the pictures that its cells drew."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        pictures: dict[str, bytes] = {}
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        page = "\n\n".join(
            part for cell in cells for part in _parts(cell, path.stem, pictures)
        )
        files.append(
            File.generated(config, f"notebooks/{path.stem}.md", content=page + "\n")
        )
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def _parts(cell: Any, stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """Yield the Markdown of a cell and of what it put out; pictures are named and kept."""
    source = "".join(cell["source"]).strip()
    if cell["cell_type"] == "markdown":
        yield source
        return
    if source:
        yield f"{FENCE}python\n{source}\n{FENCE}"
    for output in cell.get("outputs", ()):
        data = output.get("data", {})
        if "image/png" in data:
            name = f"{stem}-{len(pictures) + 1}.png"
            pictures[name] = base64.b64decode(data["image/png"])
            yield f"![What the cell above draws]({name})"
            continue
        text = "".join(output.get("text", "") or data.get("text/plain", ""))
        if text.strip():
            yield f"{FENCE}text\n{text.rstrip()}\n{FENCE}"
