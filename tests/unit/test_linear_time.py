"""Does any text take more time than its length? Every pattern of the package, and the reads that loop over a text.

No time limit is set: a text of `STEP` times the length may take at most `MOST_GROWTH` times as long. What is fast is
not looked at closer, and what else the machine does is kept out by measuring again.
"""

import ast
import gc
import importlib
import json
import pkgutil
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from langchain_core.messages import HumanMessage

import langchain_ctxwin
from langchain_ctxwin import TokenEstimator, ToolSelector, classify_overflow, search_messages
from langchain_ctxwin.decompose.parts import pieces_of
from langchain_ctxwin.routing import judged
from langchain_ctxwin.text import terms
from langchain_ctxwin.tool_results.cursors import Style
from langchain_ctxwin.tool_results.pages import page_end
from langchain_ctxwin.tool_results.query import Pattern
from langchain_ctxwin.tool_results.showing import extract, print_value, project_automatically
from langchain_ctxwin.tools.entries import parts_of
from support.tool_sets import definition
from support.walking import cursor_in, guard_of

ROOT = Path(langchain_ctxwin.__file__).parent
BUILT_FROM_ARGUMENTS = {
    "literal": "a text as it is",
    "literal if self._is_plain else f'{literal}|(?:{text})'": "checked by its signs, and searched in short pieces",
    "re.sub('<[a-z]+>', lambda mark: names[mark[0]], wording)": "the results are globals of its module",
    "f'(?!{_WORDS}){first}(?:{rest})'": "the results are globals of its module",
    "f\"(?<![\\\\w'-])(?:{found})(?![\\\\w'-])\"": "the results are globals of its module",
    "pattern": "globals of their module, the last line of a tool's result in the demo, or what its model searches for",
    "text": "the results are globals of the demo",
    "others": "a pattern of the settings, by who runs the program",
}
"""Arguments that are not known without a call -> why the patterns that they make are tested or harmless."""
FEW_CHARS = 20
SLOW_SECONDS = 0.01  # for `FEW_CHARS`: only exponential time is as long
CHARS = 1_024
STEP = 4  # how many times as long the next text is
MOST_GROWTH = 8  # of the time for `STEP` times the text: half way between 4, which is linear, and 16, quadratic
SUSPECT_GROWTH = 7  # measured once, on shorter texts, where the fixed part of the time blurs it
FAST_SECONDS = 0.0001  # a quadratic pattern takes longer for `CHARS` on any machine of today
TRIES = 8  # each has to show the growth: what else runs on the machine does not do so every time
CERTAIN_SECONDS = 0.2  # nothing else that runs on the machine makes a fast read so slow
Read = Callable[[str], object]
TextOf = Callable[[int], str]
"""Makes a text of so many characters."""
OPERATIONS: Mapping[str, Callable[[re.Pattern[str], str], object]] = {
    "match": re.Pattern.match,
    "fullmatch": re.Pattern.fullmatch,
    "search": re.Pattern.search,
    "finditer": lambda pattern, text: deque(pattern.finditer(text), maxlen=0),
}
SWEEPS = ("findall", "split", "sub", "subn")  # go over a text as `finditer` does
EVERYTHING = frozenset({"match", "fullmatch", "finditer"})  # a sweep searches, too
UNITS = (
    "1", " ", "\n", "\t", "a", "A", ".", ",", "-", '"', "'", "\\", "/", "_", "#", "=", ":", ";", "?", "[", "]", "(",
    "{", ", ", ". ", "? ", " \n", "\r\n", "1 ", "a ", "a,", "a, , ,", "- a, , ,", "[]", "and ", "a and b ", "- a\n",
    "1.1.", "1,111", "1e", "a-a-a-", "a_a_", "a1", "é", "e\u0301", "\u0301\u0316", "一", "\u0e01 ", "\uff1f", "\ud800",
    "[1].", "<data 1>\n",  # what the pages of a large result have
)  # fmt: skip
"""What the texts repeat."""
ENDS = ("", "\0", "x", "1", " ", "\n")
"""What may spoil a match at the very end."""
STARTS, SPOILERS = ("1", "a", "-", '"', "["), ("\0", "\n")
"""What may stand before the run of a text that is read from its beginning, and what then spoils the match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One pattern of the package, and where it came from."""

    module: str
    name: str
    """The global that holds it; for an inline one its line."""

    pattern: re.Pattern[str]
    operations: frozenset[str] = frozenset()
    """What the package does with it; empty where that is not known."""


# ---------------------------------------------------------------------------------------------------------- collecting


def modules() -> Iterator[ModuleType]:
    """Import every module of the package."""
    yield langchain_ctxwin
    for found in pkgutil.walk_packages([str(ROOT)], f"{langchain_ctxwin.__name__}."):
        yield importlib.import_module(found.name)


def inside(value: object, depth: int = 4) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a value: itself, the items of a container, the attributes of an object of ours."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        yield from inside([*value.keys(), *value.values()], depth)
    elif depth and isinstance(value, tuple | list | set | frozenset):
        yield from (pattern for item in value for pattern in inside(item, depth - 1))
    elif depth and type(value).__module__.startswith(langchain_ctxwin.__name__):
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        yield from inside([getattr(value, name, None) for name in names], depth)


def calls_of_re(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of a function of `re` that takes a pattern, with its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = node.func.value, node.func.attr
            if isinstance(owner, ast.Name) and owner.id == "re" and name in {"compile", *OPERATIONS, *SWEEPS}:
                yield name, node


def written_in(source: str, known: Mapping[str, object], module: str) -> tuple[list[Found], set[str]]:
    """Return the patterns that a source text gives to `re`, and the arguments that are not known without a call."""
    found, unknown = list[Found](), set[str]()
    for name, call in calls_of_re(ast.parse(source)):
        flags = [item.value for item in call.keywords if item.arg == "flags"] or (
            call.args[1:2] if name == "compile" else []
        )
        written = [ast.unparse(part) for part in (call.args[0], *flags)]
        try:
            arguments = [eval(part, dict(known)) for part in written]  # noqa: S307  # the package's own source
        except NameError:
            unknown.add(written[0])
            continue
        uses = frozenset() if name == "compile" else frozenset({_operation(name)})
        found.append(Found(module=module, name=f"line {call.lineno}", pattern=re.compile(*arguments), operations=uses))
    return found, unknown


def other_names_of_re(source: str) -> list[str]:
    """Return the imports that would hide calls of `re`, or another engine, from this file."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return [
        text
        for text in map(ast.unparse, nodes)
        if re.match(r"from re import|import (?:.*, )?(?:re as|regex|sre_)|from regex", text)
    ]


def uses_in(source: str) -> dict[str, set[str]]:
    """Return which operations a source text names, by the last name before them: as in `patterns.SIZE.search`."""
    uses: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in {*OPERATIONS, *SWEEPS}:
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            uses.setdefault(owner, set()).add(_operation(node.attr))
    return uses


def _operation(method: str) -> str:
    return method if method in OPERATIONS else "finditer"


def collected() -> tuple[dict[str, Found], set[str]]:
    """Return all patterns of the package by a name for a person, and the arguments of `re` that are not known."""
    sources = {module: Path(module.__file__).read_text(encoding="utf-8") for module in modules()}
    uses = {module: uses_in(source) for module, source in sources.items()}
    found, unknown = list[Found](), set[str]()
    for module, source in sources.items():
        for name, value in vars(module).items():
            known = _operations_of(name, value, module, uses)
            found += [Found(module=module.__name__, name=name, pattern=one, operations=known) for one in inside(value)]
        inline, others = written_in(source, vars(module), module.__name__)
        found += inline
        unknown |= others
    merged: dict[re.Pattern[str], Found] = {}
    for one in found:
        first = merged.setdefault(one.pattern, one)
        merged[one.pattern] = replace(first, operations=first.operations | one.operations)
    return {f"{one.module}:{one.name}:{number}": one for number, one in enumerate(merged.values())}, unknown


def _operations_of(
    name: str, value: object, module: ModuleType, uses: Mapping[ModuleType, Mapping[str, set[str]]]
) -> frozenset[str]:
    """What is done with a global under its name; with one that is handed on, what its module does with locals.

    A private name is one only where it stands for this value; a public one may be written after that of its module.
    """
    users = [other for other in uses if vars(other).get(name) is value or not name.startswith("_")]
    direct = {use for other in users for use in uses[other].get(name, ())}
    handed_on = {use for owner, named in uses[module].items() if owner not in vars(module) for use in named}
    return frozenset(direct or handed_on)


PATTERNS, UNKNOWN = collected()


@pytest.fixture(autouse=True)
def no_collection():
    """The garbage of other tests is not collected, and its time not counted, while a read is measured."""
    gc.disable()
    yield
    gc.enable()


# ----------------------------------------------------------------------------------------------------------- measuring


def grows(read: Read, text_of: TextOf, chars: int = CHARS) -> bool:
    """Say whether a read takes far more than `STEP` times as long for `STEP` times the text."""
    short, long = text_of(chars), text_of(STEP * chars)
    for _ in range(TRIES):
        taken = seconds(read, long)
        if taken <= MOST_GROWTH * seconds(read, short, 2):
            return False
        if taken > CERTAIN_SECONDS:
            return True
    return True


def never_ends(read: Read, text_of: TextOf) -> bool:
    """Say whether a few characters take so long that a longer text should not be tried."""
    return all(seconds(read, text_of(FEW_CHARS)) > SLOW_SECONDS for _ in range(TRIES))


def is_slow(read: Read, text_of: TextOf) -> bool:
    """Say whether time grows faster than the text, by a quick look and, where that finds something, by closer ones."""
    taken = seconds(read, text_of(CHARS))
    is_suspect = taken > FAST_SECONDS and taken > SUSPECT_GROWTH * seconds(read, text_of(CHARS // STEP), 2)
    return is_suspect and grows(read, text_of)


def seconds(read: Read, text: str, repeat: int = 1) -> float:
    """Return the least processor time of a read: what other processes do does not count."""
    taken: list[float] = []
    for _ in range(repeat):
        start = time.thread_time()
        read(text)
        taken.append(time.thread_time() - start)
    return min(taken)


def repeated(unit: str, end: str, chars: int, *, start: str = "") -> str:
    """Return a text of so many characters between a start and an end."""
    return f"{start}{unit * (chars // len(unit))}{end}"


def texts_for(pattern: re.Pattern[str], *, is_anchored: bool) -> Iterator[TextOf]:
    """Yield makers of texts: of what every text may repeat, and of the words that the pattern itself has.

    An anchored operation gets texts that begin otherwise, too; a sweep begins anywhere.
    """
    yield from (partial(repeated, unit, end) for unit in UNITS for end in ENDS)
    if is_anchored:
        yield from (partial(repeated, unit, end, start=start) for unit in UNITS for end in SPOILERS for start in STARTS)
    words = re.findall(r"[<\[(]?[A-Za-z_]{3,} ?", re.sub(r"\\(\W)", r"\1", pattern.pattern))
    yield from (partial(repeated, word, "\0") for word in dict.fromkeys(words))


def slow_text(found: Found) -> str | None:
    """Return what takes more time than the length of the text: the operation, and how the text begins; or None."""
    for operation in sorted(found.operations or EVERYTHING):
        read = partial(OPERATIONS[operation], found.pattern)
        for text_of in texts_for(found.pattern, is_anchored=operation in ("match", "fullmatch")):
            if never_ends(read, text_of) or is_slow(read, text_of):
                return f"{operation}: {text_of(FEW_CHARS)!r}"
    return None


# ------------------------------------------------------------------------------------------------------------ patterns


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_takes_time_of_the_length_of_its_text(name):
    assert slow_text(PATTERNS[name]) is None


@pytest.mark.parametrize(
    ("pattern", "operation"),
    [
        (r"\d+\.?\d*\Z", "match"),
        (r"(?:\s|\s)*x", "match"),
        (r"\s+and", "finditer"),
        (r"[?]\W*\Z", "search"),
        (r"-\d{3,}.*", "fullmatch"),
        (r"\d+\s*k?\s*", "fullmatch"),
        (r"left\w*:", "finditer"),
    ],
)
def test_a_slow_pattern_is_seen(pattern, operation):
    found = Found(module="", name="", pattern=re.compile(pattern), operations=frozenset({operation}))
    assert slow_text(found) is not None


def test_every_pattern_of_the_package_is_known():
    assert set(BUILT_FROM_ARGUMENTS) == UNKNOWN


def test_re_has_no_other_name_in_the_package():
    assert [name for path in sorted(ROOT.rglob("*.py")) for name in other_names_of_re(path.read_text("utf-8"))] == []
    planted = ("from re import sub", "import re as r", "import regex", "def f():\n    import json, re as r")
    assert [len(other_names_of_re(source)) for source in planted] == [1] * len(planted)


def test_a_pattern_inside_a_function_is_found_and_one_of_unknown_parts_reported():
    source = "def f(text):\n    return re.sub(rf'{A}+', '', text, flags=re.S)"
    (found,), unknown = written_in(source, {"re": re, "A": "a"}, "m")
    assert (found.pattern, found.operations, unknown) == (re.compile("a+", re.DOTALL), {"finditer"}, set())
    assert written_in("def f(wanted):\n    return re.compile(wanted)", {"re": re}, "m") == ([], {"wanted"})


# --------------------------------------------------------------------------------------------------------------- reads


def price(text):
    """A counter that costs nothing."""
    return len(text) // 4


READS: dict[str, Read] = {
    "complexity_of_a_task": lambda text: judged([HumanMessage(text)]),
    "project_automatically": lambda text: project_automatically({"a": text}, Style(text_chars=len(text))),
    "classify_overflow": classify_overflow,
    "cut_into_pieces": lambda text: list(pieces_of(text, len(text) // 40, price)),
    "estimate": TokenEstimator().count_text,
    "extract": lambda text: extract(text, 200),
    "page": lambda text: page_end(text, 0, len(text) // 8, price),
    "parts_of_a_request": parts_of,
    "passages": lambda text: list(Pattern("a").passages(text)),
    "print": lambda text: print_value({text: text}),
    "terms": terms,
}


@pytest.mark.parametrize("name", READS)
def test_a_read_takes_time_of_the_length_of_its_text(name):
    texts = [partial(repeated, unit, end) for unit in UNITS for end in ("", "x")]
    slow = [text_of(FEW_CHARS) for text_of in texts if is_slow(READS[name], text_of)]
    assert slow == []


def reduced(digits):
    return guard_of(max_tokens=600).output(json.dumps({"total": digits}), "rows", {})


def found_in_a_row(body):
    guard = guard_of(max_tokens=600)
    page = guard.output([{"id": 1, "body": body}, *({"id": 2, "body": "b" * 100} for _ in range(40))], "rows", {})
    return guard.read(cursor_in(page), contains="X", fields=["*"])


def searched(query):
    return search_messages([HumanMessage("what was said", id="1")], f"a{query}")


SELECTOR = ToolSelector([definition("send", "Send an email."), definition("book", "Book a taxi.")], 30)


@pytest.mark.parametrize(
    ("read", "text_of", "chars"),
    [
        pytest.param(reduced, partial(repeated, "1", "x"), 5_000, id="a number of 20,000 digits in a tool result"),
        pytest.param(
            found_in_a_row,
            lambda chars: "".join(f"line {number} has X\n" for number in range(chars // 16)),
            250_000,
            id="a search in a row that is too long to be shown",
        ),
        pytest.param(
            lambda text: SELECTOR.select([HumanMessage(text)]), partial(repeated, " ", "book"), 1_000, id="a task"
        ),
        pytest.param(searched, partial(repeated, "\u0301\u0316", ""), 16_000, id="marks in a query"),
    ],
)
def test_a_long_input_takes_time_of_its_length(read, text_of, chars):
    assert not grows(read, text_of, chars)
