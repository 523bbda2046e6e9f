"""Cuts excerpts out of files and counts them with exact tokenizers: texts for `fit_tokens.py --more`.

Files are found as DIR/category/source/...: the categories are those of `fit_tokens.AGENT_LIKE`, a source is a project.
Needs `quicktok-v1`, `tokenizers`, and `ctok` (for which Python 3.12 is needed), and a folder with the two public
`tokenizer.json` of Gemma 3 and DeepSeek V3, named `gemma3.json` and `deepseek.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Callable, Iterator
from math import exp, log
from pathlib import Path

VOCABULARIES = {"o200k": "o200k_base", "cl100k": "cl100k_base", "llama3": "llama3", "qwen3": "qwen3"}
TOKENIZER_FILES = ("gemma3", "deepseek")
CLAUDE = {"claude3": ("3.0", 7), "claude47": ("4.7", 11)}  # version, and the tokens around a message
PER_SOURCE = 30
SHORTEST_CHARS, LONGEST_CHARS = 50, 12_600

Count = Callable[[str], int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True, help="folder of category/source/files")
    parser.add_argument("--tokenizers", type=Path, required=True, help="folder with gemma3.json and deepseek.json")
    parser.add_argument("--out", type=Path, required=True, help="file to write, .jsonl.gz")
    options = parser.parse_args()
    counters = exact(options.tokenizers)
    with gzip.open(options.out, "wt", encoding="utf-8") as lines:
        for category, source, text in excerpts(options.texts):
            tokens = {name: count(text) for name, count in counters.items()}
            lines.write(json.dumps({"cat": category, "src": source, "text": text, "tokens": tokens}) + "\n")


def excerpts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Lengths are spread evenly over their logarithm, as those of results and messages are."""
    rng = random.Random(11)  # noqa: S311  # a reproducible choice, not a secret
    for source in sorted(path for path in folder.glob("*/*") if path.is_dir()):
        files = sorted(path for path in source.rglob("*") if path.is_file())
        for path in rng.sample(files, min(PER_SOURCE, len(files))):
            text = path.read_text(encoding="utf-8", errors="replace")
            size = int(exp(rng.uniform(log(SHORTEST_CHARS), log(LONGEST_CHARS))))
            line = text.rfind("\n", 0, rng.randrange(max(1, len(text) - size))) + 1
            if len(found := text[line : line + size]) >= SHORTEST_CHARS:
                yield source.parent.name, source.name, found


def exact(folder: Path) -> dict[str, Count]:
    import ctok
    import quicktok
    from tokenizers import Tokenizer

    counters: dict[str, Count] = {name: quicktok.get_encoding(known).count for name, known in VOCABULARIES.items()}
    for name in TOKENIZER_FILES:
        encode = Tokenizer.from_file(str(folder / f"{name}.json")).encode
        counters[name] = lambda text, encode=encode: len(encode(text, add_special_tokens=False))
    for name, (version, frame) in CLAUDE.items():
        counters[name] = lambda text, version=version, frame=frame: ctok.token_count(text, version) - frame
    return counters


if __name__ == "__main__":
    main()
