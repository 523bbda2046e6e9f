"""Does the code keep the rules that no linter knows?"""

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_ctxwin"

# Counted in tokens of code: a line can be saved by writing it denser, a token cannot.
MAX_FILE_TOKENS = 5_000  # more are two subjects
MAX_FUNCTION_TOKENS = 550  # about 55 lines of one thing each; review asks for 350
REVIEW_FUNCTION_TOKENS = 350
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

# Folders of one machine, folders beside the checkout, and papers that are not in it.
ELSEWHERE = re.compile(
    r"(?<![\w.])/(?:home|root|mnt|Users|work)/\w|(?<![\w/(\x22\x27])\.\./\w"
    r"|\b(?!README|CHANGELOG|CONTRIBUTING|LICENSE|SECURITY|RESULTS)[A-Z]{4,}\.md\b"
)
MODEL_NAME = re.compile(
    r"\b(?:gpt-?(?:\d|oss)|o[134]-(?:mini|pro)|claude-\w|gemini-\w|gemma-?\d|llama-?\d|qwen-?\d|deepseek-\w|mi[sx]tral-\w"
    r"|grok-\d|command-r|phi-\d)",
    re.IGNORECASE,
)
MODEL_NAMES_ALLOWED = ("demo/",)  # a demo may say which model it talks to
# an extra that names the package itself has its own version
UNBOUND_ABOVE = {"langchain-ctxwin"}


@cache
def code_tokens(source):
    """Return the Python tokens of each line: docstrings, comments and layout apart."""
    prose = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = (token for token in tokens if token.type not in LAYOUT)
    return Counter(token.start[0] for token in code if token.start[0] not in prose)


def too_large(source):
    """Say whether a module is too large to be one answer."""
    return sum(code_tokens(source).values()) > MAX_FILE_TOKENS


def large_functions(source, limit):
    """Return the functions of more than `limit` tokens, with their tokens."""
    functions = (
        n
        for n in ast.walk(ast.parse(source))
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    tokens = code_tokens(source)
    sizes = {
        f.name: sum(tokens[line] for line in range(f.lineno, f.end_lineno + 1))
        for f in functions
    }
    return {name: size for name, size in sizes.items() if size > limit}


def model_names(source):
    """Return the string constants, docstrings excepted, that name a model."""
    tree = ast.parse(source)
    # docstrings of all kinds
    statements = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }
    constants = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in statements
    )
    return [
        node.value
        for node in constants
        if isinstance(node.value, str) and MODEL_NAME.search(node.value)
    ]


def shared_names(sources):
    """Return the names that more than one class of some modules has, private ones aside."""
    names = re.findall(r"^class ([A-Z]\w*)", "\n".join(sources), re.MULTILINE)
    return sorted(name for name, count in Counter(names).items() if count > 1)


def unbounded(requirements):
    """Return the requirements without a lower or without an upper bound."""
    return [
        text
        for text in requirements
        if (one := Requirement(text)).name not in UNBOUND_ABOVE
        and {clause.operator for clause in one.specifier} not in ({">=", "<"}, {"=="})
    ]


def required(pyproject):
    """Return all that the package, its extras and the tools of its groups need."""
    project, groups = pyproject["project"], pyproject["dependency-groups"]
    lists = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *groups.values(),
    ]
    return [one for found in lists for one in found if isinstance(one, str)]


def badly_constrained(constraints, needed):
    """Return the lines that are no exact version, and what the tests need that no line names or meets."""
    lines = constraints.splitlines()
    wrong = [
        line
        for line in lines
        if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)
    ]
    exact = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines)
    }
    plain = [
        one
        for one in map(Requirement, needed)
        if one.marker is None and one.name not in UNBOUND_ABOVE
    ]
    return wrong + [
        str(one)
        for one in plain
        if not one.specifier.contains(exact.get(canonicalize_name(one.name), "0"))
    ]


def matching_lines(pattern, text):
    """Return the lines of a text that a pattern matches."""
    return [line.strip() for line in text.splitlines() if pattern.search(line)]


def _modules():
    return {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def _project_files():
    """Yield the text files that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if (
            path.is_file()
            and path != Path(__file__)
            and b"\0" not in (content := path.read_bytes())
        ):
            yield name, content.decode("utf-8", "replace")


def test_no_module_is_too_large():
    """A file that outgrew one answer is split."""
    assert [name for name, source in _modules().items() if too_large(source)] == []


def test_no_function_is_too_large_and_few_are_large():
    """A function that outgrew one idea is split; those that review would split stay a small share."""
    modules = _modules().items()
    functions = {
        (name, *function): function[1]
        for name, source in modules
        for function in large_functions(source, 0).items()
    }
    reported = [
        function
        for function, tokens in functions.items()
        if tokens > REVIEW_FUNCTION_TOKENS
    ]
    assert [
        function for function in reported if functions[function] > MAX_FUNCTION_TOKENS
    ] == []
    assert len(reported) <= len(functions) / 50, reported


def test_no_two_classes_share_a_name():
    """Whoever looks a class up finds one."""
    assert shared_names(_modules().values()) == []


def test_the_project_speaks_of_itself_alone():
    """No file mentions the place where it was written."""
    found = {name: matching_lines(ELSEWHERE, text) for name, text in _project_files()}
    assert {"README.md", "langchain_ctxwin/errors.py"} <= found.keys()
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_library_code_names_no_model():
    """Limits, names and prices of models come from outside."""
    library = {
        name: source
        for name, source in _modules().items()
        if not name.startswith(MODEL_NAMES_ALLOWED)
    }
    found = {name: model_names(source) for name, source in library.items()}
    assert {name: names for name, names in found.items() if names} == {}


def test_dependencies_are_bounded_on_both_sides():
    """Neither an older nor a newer major version than the tested ones is accepted."""
    assert (
        unbounded(
            required(
                tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
            )
        )
        == []
    )


def test_the_tests_install_exact_versions_that_the_project_allows():
    """`constraints.txt` has plain `name==version` lines only, with one for all that the tests need."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pyproject["dependency-groups"] = {
        name: pyproject["dependency-groups"][name] for name in ("test", "docs")
    }
    assert (
        badly_constrained(
            (ROOT / "constraints.txt").read_text(encoding="utf-8"), required(pyproject)
        )
        == []
    )


MET = "httpx==0.28.1\nlangchain-core==1.8.3\npytest==9.2.0\nredis==6.0\n"
ODD = "-e .\nhttpx==0.28.1 ; python_version > '3'\nlangchain-core==1.6\npytest==9.2.0\n"
NEEDED = [
    "httpx>=0.27,<1",
    "langchain_core>=1.7,<2",
    "langchain-ctxwin[redis]",
    "pytest>=9",
    "redis>=5",
]
UNBOUNDED = ["pydantic>=2", "pydantic<3", "tomli; python_version < '4'"]
FULL = "x = 1\n" * (MAX_FILE_TOKENS // 3)
PROSE = '"""Says.' + "\n" * MAX_FILE_TOKENS + '"""\n# so many words\n'
NESTED = "def f():\n    # why\n    async def g():\n        x = 1\n"


@pytest.mark.parametrize(
    ("check", "planted", "found"),
    [
        (too_large, [PROSE + FULL], False),
        (too_large, [f"{FULL}x = 1\n"], True),
        (large_functions, [NESTED, 8], {"f": 14, "g": 9}),
        (shared_names, [["class A:\nclass _B:", "class A(int):\nclass _B:"]], ["A"]),
        (matching_lines, [ELSEWHERE, "fine\nsee /home/me/a\n"], ["see /home/me/a"]),
        (matching_lines, [ELSEWHERE, "data in ../elsewhere"], ["data in ../elsewhere"]),
        (matching_lines, [ELSEWHERE, "as PLAN.md says"], ["as PLAN.md says"]),
        (model_names, ["model = 'gpt-4o'"], ["gpt-4o"]),
        (model_names, ['"""Reads `gpt-5`."""\nfamily = "gemini"'], []),
        (unbounded, [["tomli>=1,<2; python_version < '4'", *UNBOUNDED]], UNBOUNDED),
        (badly_constrained, [MET, NEEDED], []),
        (
            badly_constrained,
            [ODD, NEEDED],
            [
                *ODD.splitlines()[:2],
                "httpx<1,>=0.27",
                "langchain_core<2,>=1.7",
                "redis>=5",
            ],
        ),
    ],
)
def test_what_breaks_a_rule_is_seen(check, planted, found):
    """Prose and private classes are left out, nested functions and lines that pip would read otherwise are not."""
    assert check(*planted) == found
