"""Context overflows: provider errors that say a request is too large, and the limit and size they state.

The patterns match text from which quotes, backticks and backslashes were removed and whitespace was collapsed. Groups:
`limit` (tokens the model takes), `actual` (size as the provider states it), `output` (tokens requested for the answer).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, TypeVar
from unicodedata import normalize

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langchain_ctxwin.core.tool_schemas import tool_definition
from langchain_ctxwin.errors import ContextWindowError

NUMBER = (
    r"(?:(?<![\d.,_])\d{1,3}(?:(?:[,_]\d{3}){1,3}|(?:\.\d{3}){1,3}|(?: \d{3}){1,3})(?![.,]?\d)"
    r"|(?<!\d)\d{1,12}(?!\d))"
)
"""A count, also 8,192 and 8_192 and 8 192 and 8.192; 12 digits hold any real size and keep `int()` cheap."""

# A number that is all digits: the 8 of 8k states nothing.
COUNT = NUMBER + r"(?![km]\b)"


def _compile(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Compile case-insensitively; `<limit>`, `<actual>` and `<output>` are named numbers, `<n>` any number."""

    def named(mark: re.Match[str]) -> str:
        return f"(?P<{mark[1]}>{COUNT})"

    with_numbers = (re.sub("<(limit|actual|output)>", named, pattern).replace("<n>", NUMBER) for pattern in patterns)
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in with_numbers)


def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


OVERFLOW_CODE = _pattern(
    r"\b(?:exceed_context_size_error|requested_too_many_tokens|tokens_limit_reached|"
    r"(?:\w{1,20}_)?(?:context|prompt|input)_?(?:length|window|size|tokens?|limit)?_?"
    r"(?:exceeded|too_?long|too_?large|overflow)(?:_?(?:error|exception))?)\b",
)
"""Values of `code` or `type` that say overflow, whatever the text."""

OVERFLOW_CLASS = _pattern(
    r"Context(?:Window|Length|Size|Limit)?(?:Overflow|Exceed|TooLong)"
    r"|(?:Prompt|Input)(?:Length)?(?:TooLong|TooLarge|Exceed)",
)
"""Parts of class names that say overflow (LangChain, LiteLLM, ...); a text or status that says otherwise wins."""

OTHER_CLASS = re.compile(
    r"RateLimit|TooManyRequests|Throttl|Quota|ResourceExhausted|Authentication|PermissionDenied|NotFound"
    r"|LengthFinishReason"
)
"""Parts of class names that say another failure, whatever the text."""

# HTTP statuses that are never an overflow: credentials, payment, missing, conflict, rate, overload.
OTHER_STATUSES = frozenset({401, 402, 403, 404, 408, 409, 429, 529})

OTHER_TEXTS = _compile(
    # rates, quotas and plans
    r"\brate[ _-]?limit|throttl|quota|too ?many ?requests|please wait|(?:\bper[ -]|/ ?)(?:min|hour|day|second|month)",
    r"\brate exceeded|\btokens? ?/ ?s\b|\b(?:last|past) \d{1,6} ?(?:s|sec|min|h)|\bservice tier",
    r"\b[TR]P[MD]\b|RESOURCE_EXHAUSTED|RATE_LIMITED|\btoken rate\b|retry after \d|\boverloaded|credit balance",
    r"usage (?:limit|size)|\bextra usage\b|\binsufficient (?:funds|balance|credit)",
    r"\b(?:this|each|every|a) (?:minute|hour|day|week|month)\b",
    r"\b(?:hourly|daily|weekly|monthly)\b|\bfree[ -]tier\b|\bover budget\b|\bbudget has been exceeded|\bconcurren",
    # the size of a context cache, which is not the request
    r"\bcached[ _]?content|\bcontext[ _]cach(?:e|ing)\b|\bcache size",
    # the parameter alone is too large ("input length and max_tokens exceed" is about both)
    r"(?<!and )(?<!plus )(?<!\+ )\bmax_(?:new_|completion_|output_)?tokens (?:\(?<n>\)? )?exceeds?\b",
    r"\bmaximum tokens you requested|\blength limit was reached|\bmax_tokens or model output limit",
    # a status in the text itself
    r"(?:^|error:? |error code:? |status(?:[ _]?code)?[:= ]+|code: ?)(?:401|402|403|404|429|529)\b(?! tokens)",
)
"""Rate limits, quotas, caches, one parameter, refused credentials: they win over other wordings in the same text."""

STATED_OVERFLOWS = _compile(
    # vLLM: output stated before the prompt, and requested output that does not fit beside it
    r"(?:max(?:imum)? (?:context|model)|context) (?:length|window) is <limit> tokens.{0,30}?you requested <output>"
    r" output tokens and your prompt contains (?:at least )?(?:<actual>(?: input)? tokens|<n> (?:input )?characters)",
    r"passed <actual> input tokens and requested <output> output tokens\W+However, the models context length is only"
    r" <limit>",
    r"max_(?:completion_)?tokens is too large: <output>\W+This models maximum context length is <limit> tokens and your"
    r" request has <actual> input tokens",
    # OpenAI, Azure, DeepSeek, vLLM, OpenRouter: total and parts
    r"maximum context length is <limit>(?: tokens)?\W.{0,60}?(?:requested|resulted in|request has|contains?|contained)"
    r" (?:about |at least )?<actual> (?:input )?tokens"
    r"(?: \([^()]{0,90}?<output> (?:in|for) (?:the|your) (?:completion|output))?",
    # Anthropic, Cohere: a sum
    r"input length and max_tokens exceed context limit: <actual> \+ <output> > <limit>",
    r"(?:input|prompt)\w{0,20} (?:\+|and|plus) (?:max_\w*|output |completion )tokens:? \(?<actual> ?\+ ?<output>\)?"
    r"[^.;]{0,40}? <limit>",
    r"too many tokens: <actual> \+ <output> > <limit>",
)
"""Wordings of limit, size and requested output that the words beside each number do not tell apart; all other wordings
are read by those."""

BARE_OVERFLOWS = _compile(
    r"\bprompt (?:is )?too long|(?<!audio )\binput is too long\b|\bnumber of input tokens exceeds",
    r"\binput token count(?:(?: is)? \(?<n>\)?)? (?:exceeds|but)|\bmax(?:imum)? input tokens:? <n>",
    r"\bmax(?:imum)? (?:context|prompt|input|sequence|model) length (?:of|is) <n>|\bkeep the first <n> tokens",
    r"\binputs? must have less than <n> tokens|\bprompt contains <n> tokens|\btokens in the prompt cannot exceed",
    r"exceed(?:s|ed|ing)? (?:(?:the|this|its|your) )?(?:(?:requested )?models? )?(?:max(?:imum)? |available |allowed )?"
    r"(?:(?:context|prompt) (?:window|length|size|limit)|model length)",
    r"(?:context (?:window|length|size|limit)|(?:prompt|input) length) (?:has been |was |is )?exceed(?:ed|s)\b",
    r"reduce (?:the length of the|your) (?:messages|prompt|input)",
    r"\bcontext (?:window |length )?overflow|context[_ ](?:length|window)[_ ]exceeded",
    r"\bprompt exceeds (?:the )?(?:max(?:imum)?|length)|exceed max message tokens|status_msg: token limit",
    "(?:输入|上下文|提示词).{0,12}(?:过长|超过|超出|超限)",
)
"""Wordings that surely are about an overflow, with its size or without."""

PARAMETER_TEXTS = _compile(
    r"(?<!and )(?<!plus )(?<!\+ )max_(?:completion_|output_|new_)?tokens\b.{0,60}?(?:too large|exceed|must be"
    r"|(?:larger|greater|more) than|> ?\d"
    r"|not valid|cannot)",
    r"maximum value for max_|\bmax_\w{1,30}\W{1,3}\d+ is not|must be (?:positive|greater than|an integer)",
    r"max(?:imum)?_?output_?tokens|output tokens? limit|max output tokens|maximum (?:allowed )?number of output tokens",
    r"(?:(?:support|produce|generate|return)s? (?:at most|up to)|maximum of) <n> (?:completion|output) tokens",
    r"range of max_tokens|\bthinking\b|thinking_budget|budget_tokens|\breasoning_tokens",
    r"^(?!.*\b(?:prompt|input)\b).*\b(?:completion|output|generated|response)s?(?: tokens?)?\b.{0,30}?exceed",
    r"\bwas (?:cut off|truncated)|\btoo (?:short|small)|\bfewer than|\bminimum\b",
    r"\bcach(?:e|ed|ing)\b|\bbatch(?:es)?\b|\bembedd|\benqueued|\bqueue\b|\btraining\b|\bfine-?tun",
    r"internal error|\btimed? ?out\b|\bdeadline\b|\b(?:seconds?|minutes|hours)\b|\bfile\b(?! \S{1,200} line \d)",
    r"\baudio\b|\bconnection (?:reset|refused|aborted|closed)|\bstop (?:sequence|word|token)",
    r"\bbytes?\b|\b[KMG]i?B\b|\bcharacters?\b|\bchars\b|\bpixels?\b|\bpages\b|array|dimension|\bstring\b",
    r"\btool (?:result|response|output|description|name)|tool_use|tool_result|regular expression",
    r"\bplan\b|subscription|\ballowance|\baccount\b|\bbilling|\bcredits?\b|\bspend|\bcosts?\b|\bprice|\btoday\b",
    r"\b(?:access|auth\w*|bearer|refresh|api|id|csrf|session|security|unexpected|invalid) token\b"
    r"|\bjwt\b|\bexpired?\b",
)
"""Errors about a parameter, a cache, an answer, a payload in bytes: they overrule class name and general rule."""

LOOSE_OVERFLOWS = _compile(
    r"\b(?:prompt|input|messages?|conversation|request|sequence|history|chat|text)s?\b[^.;]{0,30}?"
    r"\b(?:too (?:long|large|big)|(?:longer|larger|bigger) than|over|outgrown)\b[^.;]{0,30}?\b(?:model|context)",
    r"(?:\bnot|n?t|\bunable to) (?:\w+ ){0,2}fit (?:in|into|inside|within) (?:\w+ ){0,3}(?:context|window)",
    r"\b(?:prompt|conversation|input|messages? you (?:sent|submitted))s? (?:is|are|was|were) (?:way |far )?too long\b",
    r"\bmaximum length (?:for|of) (?:this|the|your) (?:conversation|chat|prompt|context)",
    r"\b(?:ran|run|running) out of context\b|\bcontext (?:window |buffer )?is (?:already )?full\b",
    r"\bexceed\w* (?:the )?(?:models? )?(?:max(?:imum)? )?(?:allowed )?(?:input|sequence) (?:length|limit|size)",
    r"\bexceed\w* (?:the |this )?models? (?:max(?:imum)? )?token (?:limit|capacity)",
    r"\bmore (?:input |prompt )?tokens than (?:\w+ ){0,3}(?:context|model|window)",
)
"""Wordings that nobody has listed and that state no size."""

ANCHOR = _pattern(
    r"tokens?\b|\btoks?\b|context|ctx\b|_len\b|tokeni[sz]ed|\blimit\b|\binput_ids"
    r"|\b(?:sequence|prompt|input)[ _]length",
)
"""Where a statement about tokens may stand; other clauses are about something else."""

SUBJECT = _pattern(
    r"\b(?:prompt|input|context|messages?|conversation|chat|history|sequence|request)|tokens\b|token (?:limit|count)",
)
"""What is too large in an overflow; one token may be a credential."""

EXCESS = _pattern(
    r"\bexceed|\bsurpass|\boverflow|\btoo (?:long|large|many|big|much)\b|>"
    r"|\b(?:longer|greater|larger|more|bigger|higher|smaller|lower|less) than\b|\bout of range"
    r"|\bover (?:the|its|our|model|context|max|limit)\b|\bhit\b"
    r"|\bbeyond\b|\babove\b|\boutgrown\b|\binsufficient\b|(?:\bnot|nt|\bunable to) (?:\w+ ){0,2}(?:fit|be squeezed)"
    r"|\b(?:must|should|has to|have to|cannot|may) (?:not )?(?:be|exceed|have)\b|\bno more than\b"
    r"|\bonly\b.{0,12}\bfit\b|\bmax(?:imum)? (?:allowed |number of ){1,2}(?:input |prompt )?tokens|\bexhausted\b"
    r"|\breached\b|\brejected\b|\bshorten\b|\breduce\b|\bcannot (?:fit|hold|take)\b"
    r"|\btops out\b|\broom for\b",
)
"""Words that say that something is larger than it may be."""

JOINT = _pattern(
    r"\b(?:prompt|input|messages?)(?: length| tokens?)? (?:\+|plus|and) (?:the )?(?:requested |max(?:imum)? )?"
    r"(?:max_\w*tokens|output|completion|generat)",
)
"""The requested output counts too, although its size is not stated."""

# Smaller numbers in an unlisted wording count images, messages or an excess; no served model has such a window.
MIN_SIZE_TOKENS = 256
MAX_WORDS_CHARS = 48  # how far beside a number the words that say its role may stand

# A number that may be a size: no part of a name, an id or a time; 8k and 1M as well.
SIZE = _pattern(rf"(?<![\w.-])(?<!\d[:,])(?P<number>{NUMBER})(?P<unit>[km])?(?=tok|-tok|[^\w-]|$)(?!:\d|\.\d)")
# A unit is read as what it says at least: 8k may mean 8,192, and then 8,000 fits too.
UNITS = {"k": 1_000, "m": 1_000_000}

NO_SIZE_BEFORE = _pattern(
    r"(?:\bby(?: about| at least)?|code|status|error|http|line|column|position|localhost|\b\w{0,16}id"
    r"|params?.{0,40}\()\W{0,3}$",
)
"""Words before a number that is an excess or an error code."""

OUTPUT_BEFORE = _pattern(
    r"(?:\bmax_(?:new_|completion_|output_)?tokens|\bn_predict|\bmax(?:imum)? (?:new|output|completion) tokens"
    r"|\b(?:output|completion|response|generation|reserved?)"
    r"(?: tokens?)?(?: length| size)?)(?: requested| reserved| is| was| of| set to)?[\s:=(]{0,3}$",
)
OUTPUT_AFTER = _pattern(
    r"\)?[ -]?(?:tokens? )?(?:(?:in|for|of|as|to) )?(?:the |your |its |be )?(?:max(?:imum)? )?(?:requested )?"
    r"(?:output|completion|response|answer|reply|generat|max_new|max_tokens|max_completion|new tokens)",
)
"""Words beside the tokens that are requested for the answer."""

LIMIT_AFTER = _pattern(
    r"\)?[ -]?(?:tokens?[ -]?)?(?:max(?:imum)?\b|limit|allowed|permitted|window|context\b|cap\b"
    r"|ceiling|supported|available|can (?:be|fit|hold)|fit\b|(?:that )?(?:this|the) \w+ (?:takes|accepts|can))",
)
ACTUAL_AFTER = _pattern(
    r"\)?(?: ?tokens?)?(?: long)?,? ?(?:of input\b|(?:in|from) (?:the|your) |into\b|>|/|surpass|do(?:es)? not\b"
    r"|exceed(?:s|ing)?\b|exceeded (?:the|this|its|our|model|max)\b"
    r"|(?:is|are|was|were) (?:too|over|more|above|beyond|longer|larger|given|sent|provided|requested|received)\b"
    r"|(?:given|sent|provided|requested|received|used|submitted)\b)",
)
"""Words after a limit, and after the size of a request; they count more than the words before."""

ROLE_BEFORE = _pattern(
    r"(?P<limit>\bmax\w*|\blimit\w*|\bwindow|\bcapacity|\bcap\b|\bceiling|context|ctx\b|_len\b"
    r"|\bsequence length|\ballow\w*"
    r"|\baccepts?\b|\bsupport\w*|\bhandles?\b|\broom for\b|\btops? out|\bprocess\w*|\bholds?\b"
    r"|\btakes\b|\bat most|\bup to|\bonly\b|\bno more|\bexceed\w*"
    r"|\b(?:less|more|longer|greater|larger|bigger|fewer|smaller|higher) than|\bover\b|\bbeyond|\babove|\bbelow"
    r"|\bunder\b|\binto\b|[<>])"
    r"|(?P<actual>\bsent\b|\bsubmitted|\bgot\b|\bgave|\bgiven|\breceived|\brequest(?:ed|ing)\b|\bprovided|\bsupplied"
    r"|\bpassed|\bha(?:s|ve|d)\b|\bcontain(?:s|ed|ing)?\b|\bus(?:ed|es|ing)\b|\bneeds?\b|\brequires?\b|\bresult\w* in"
    r"|\bcounted|\bactual|\bcurrent\b|\btotal\b|\btokeni[sz]ed|\b(?:will|would) take\b|\byours\b|\bthats\b|\bwith\b"
    r"|\bbut (?:is|was)\b)"
    r"|(?P<weak>\b(?:prompt|input|messages?|conversation|history|sequence|text|chat|query|length of|size)\w*"
    r"|tokens?\b)",
)
"""Words before a number: the last one that is not weak says whose size it is."""

CONTRAST = _pattern(r"\b(?:but|whereas|however|while)\b")  # between sizes that do not go together
# Words before the upper end of a range.
RANGE_BEFORE = _pattern(rf"(?:\b(?:between|from) {NUMBER} (?:and|to) |\[{NUMBER}, ?)$")
# Signs beside a number without words that it is a size nevertheless.
TOKENS_AFTER = _pattern(r"\)?[ -]?(?:input |prompt )?tok")
COMPARED = re.compile(r"[/=] ?$")


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """A request that was refused as too large; sizes are None where the provider does not state them."""

    limit: int | None = None
    """Tokens that the model takes."""

    actual: int | None = None
    """Size in tokens as the provider states it: the input alone, or with the requested output for some providers."""

    kind: Literal["input", "input_plus_output"] = "input"
    """`input_plus_output` when the requested output counts too, so that asking for less of it helps."""

    requested_output: int | None = None
    """Tokens that were requested for the answer."""

    said_by: Literal["", "provider", "request"] = field(default="", repr=False, compare=False)
    """Whose words state the sizes: the provider's own, or only a quote of the request; empty when nobody compared."""


def classify_overflow(exc_or_text: object, *, request: Iterable[str] = ()) -> ContextOverflow | None:
    """Recognise a context overflow in an exception, an error text (str or bytes) or a decoded error body.

    Looks at class names, HTTP status, `code` and `type`, body and text, then at the causes behind an exception; the
    nearest one that is decisive counts. Returns None for everything else: rate limits and quotas (also where a client
    names the class after an overflow), limits of the `max_tokens` parameter, cache sizes, payloads in bytes, malformed
    requests, and this package's own errors. Never raises.

    Args:
        exc_or_text: what the provider said.
        request: the texts of the refused request. Numbers that the error quotes of them state nothing: an overflow
            whose limit is only quoted has no sizes.

    Examples:
        >>> classify_overflow("prompt is too long: 208656 tokens > 200000 maximum")
        ContextOverflow(limit=200000, actual=208656, kind='input', requested_output=None)
        >>> classify_overflow("429: too many tokens per minute") is None
        True
    """
    if isinstance(exc_or_text, ContextWindowError):
        return None
    overflow = _classified(evidence_of(exc_or_text))
    if overflow is None or not (texts := list(request)):
        return overflow
    quotes = Quotes(texts)
    own = _classified(evidence_of(exc_or_text, quotes.masked))
    if own is None or (own.limit is None and (overflow.limit or quotes.are_in(evidence_of(exc_or_text)))):
        return ContextOverflow(said_by="request")
    return replace(own, said_by="provider")


def request_texts(messages: Iterable[BaseMessage], tools: Iterable[Any] = ()) -> Iterator[str]:
    """Yield every text that a request carries, in order: contents, calls, names, and the definitions of its tools."""
    for message in messages:
        calls = [message.tool_calls, message.invalid_tool_calls] if isinstance(message, AIMessage) else []
        call_id = message.tool_call_id if isinstance(message, ToolMessage) else None
        yield from _texts_within([message.content, calls, message.additional_kwargs, message.name, call_id])
    yield from _texts_within([tool_definition(tool) for tool in tools])


def _texts_within(value: object) -> Iterator[str]:
    """The keys and values of nested JSON, as they follow each other where it is printed."""
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [part for key, content in reversed([*item.items()]) for part in (content, key)]
        elif isinstance(item, list | tuple):
            waiting += reversed(item)
        elif isinstance(item, int | float):
            yield str(item)


def has_number(texts: Iterable[str], tokens: int) -> bool:
    """True when a text states this number, or begins with its digits, in any usual spelling."""
    digits = r"[,._' ]?".join(str(tokens))
    thousands = rf"|(?<![\d.,]){tokens // 1000} ?k\b" if tokens % 1000 == 0 else ""
    pattern = re.compile(rf"(?<!\d)(?<!\d[,._']){digits}{thousands}", re.IGNORECASE)
    return any(pattern.search(normalize("NFKC", text)) for text in texts)


# ---- quotes: what the request says, too ----------------------------------------------------------------------------

# Letters before a number, or half as many behind it, that make it a quote where the request has them at the same
# number: they stand in two texts by chance only where both speak of the same limit.
QUOTED_LETTERS = 8
# The same without a number: four to five words. Shorter runs (`context length`, `of the messages`) are everybody's.
QUOTED_WORDS_LETTERS = 24
QUOTE_CHARS = 64  # how far beside a number its letters are looked for, signs and escapes between them

_WHOLE_NUMBER = re.compile(r"\d+(?:[,._' \u00a0\u202f]\d{3}(?!\d))*")
_ESCAPES = re.compile(
    r"(?<!\\)\\++(?:u[0-9a-f]{4}(?:[0-9a-f]{4})?|x[0-9a-f]{2}|[nrtbfv])|&(?:amp;)*+#?\w{1,8};", re.IGNORECASE
)
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


class Quotes:
    """The texts of a refused request, to be found again in what the provider says about it."""

    def __init__(self, texts: Iterable[str]) -> None:
        parts = [_letters(text) for text in texts]
        self._all = "".join(parts)
        self._short = tuple(part for part in parts if 0 < len(part) <= QUOTED_LETTERS and not part.isdigit())

    def masked(self, text: str) -> str:
        """Return an error text without the numbers that the request has beside the same words."""
        return _WHOLE_NUMBER.sub(self._masked, normalize("NFKC", text))

    def _masked(self, number: re.Match[str]) -> str:
        (start, end), digits = number.span(), len(_letters(number[0]))
        before = _letters(number.string[max(0, start - QUOTE_CHARS) : end])[-digits - QUOTED_LETTERS :]
        after = _letters(number.string[start : end + QUOTE_CHARS])[: digits + QUOTED_LETTERS // 2]
        is_quoted = before in self._all or (len(after) > digits + 1 and after in self._all)
        return " ; " if is_quoted or before.endswith(self._short) else number[0]

    def are_in(self, said: Iterable[Evidence]) -> bool:
        """True when an error repeats several words of the request in a row."""
        letters, size = _letters(" ".join(evidence.text for evidence in said)), QUOTED_WORDS_LETTERS
        runs = {letters[i : i + size] for i in range(len(letters) - size + 1)}
        return any(self._all[i : i + size] in runs for i in range(len(self._all) - size + 1))


def _letters(text: str) -> str:
    """The letters and digits of a text, however it is printed."""
    plain = text if text.isascii() else normalize("NFKC", text)
    return _NO_LETTERS.sub("", _ESCAPES.sub("", plain).lower())


# ---- evidence: what an exception says, wherever its client keeps it -------------------------------------------------

T = TypeVar("T", str, bytes)
# Exceptions looked at in a chain of causes and groups, and of each so many different texts and notes: real ones have
# two to five, the server's words in two or three places, and one or two notes.
MAX_EXCEPTIONS, MAX_SOURCES, MAX_NOTES = 32, 4, 8
# Text looked at per source, and values per body: some servers echo the whole request into the error. A value that is
# longer than the last of these is such an echo and is read after the others.
MAX_TEXT_CHARS, MAX_BODY_NODES, LONG_VALUE_CHARS = 4_096, 200, 2_048
# Where clients keep the HTTP status, the most reliable name first.
STATUS_ATTRIBUTES = ("status_code", "http_status", "status", "code")
# Where clients keep the decoded body (OpenAI and Anthropic, Google, botocore, Ollama).
BODY_ATTRIBUTES = ("body", "details", "response", "error")
CODE_KEYS = ("code", "type")  # attributes and body keys that hold a provider's own error code

_NOISE = re.compile(r"https?://\S{1,200}|[\\\"'`\u2018\u2019]+")
_SPACE = re.compile(r"\\{1,8}[nrt](?![a-z]{2})|\s+")
_STATUS = re.compile(r"[45][0-9]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one exception (or one text) says."""

    class_names: tuple[str, ...] = ()
    status: int | None = None  # the HTTP error status
    codes: frozenset[str] = frozenset()  # provider error codes and types, in lower case
    text: str = ""  # message and body without quotes and backslashes, whitespace collapsed, bounded in length


def evidence_of(source: object, own: Callable[[str], str] = str) -> Iterator[Evidence]:
    """Yield what `source` says; for an exception also what its causes and the members of a group say, nearest first.

    Never raises, whatever the exceptions' own attributes and `__str__` do, and ends on cyclic chains. The source may
    be an exception, a text or a decoded body, and `own` says what of a text counts.
    """
    if not isinstance(source, BaseException):
        yield Evidence(codes=_codes(source), text=_joined([source], own))
        return
    for error in _chain(source):
        response, notes = _attribute(error, "response"), _attribute(error, "__notes__")
        bodies = [_attribute(error, name) for name in BODY_ATTRIBUTES]
        if _attribute(response, "is_closed") is True:  # one that was read; others might read from the socket here
            bodies.append(_attribute(response, "text"))
        bodies = [body for body in bodies if isinstance(body, str | bytes | bytearray | Mapping | list | tuple)]
        notes = [note for note in notes[:MAX_NOTES] if isinstance(note, str)] if isinstance(notes, list) else []
        stated = (_attribute(place, name) for place in (error, response) for name in STATUS_ATTRIBUTES)
        statuses = (str(value) for value in stated if isinstance(value, str | int))  # LiteLLM keeps it as text at times
        yield Evidence(
            class_names=tuple(cls.__name__ for cls in type(error).__mro__),
            status=next((int(text) for text in statuses if _STATUS.fullmatch(text)), None),
            codes=_codes([{key: _attribute(error, key) for key in CODE_KEYS}, *bodies]),
            text=_joined([error, *notes, *bodies], own),
        )


def _chain(error: BaseException) -> Iterator[BaseException]:
    queue, seen = deque([error]), set[int]()
    while queue and len(seen) < MAX_EXCEPTIONS:
        current = queue.popleft()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        members = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        context = None if _attribute(current, "__suppress_context__") else _attribute(current, "__context__")
        behind = (*members[:MAX_EXCEPTIONS], _attribute(current, "__cause__"), context)
        queue.extend(cause for cause in behind if isinstance(cause, BaseException))


def _attribute(source: object, name: str) -> Any:
    with suppress(Exception):  # a foreign property may raise anything; then it says nothing
        return getattr(source, name, None)
    return None


def _codes(body: object) -> frozenset[str]:
    named = (value for key, value in _leaves(body) if key.lower() in CODE_KEYS)
    return frozenset(value.lower() for value in named if isinstance(value, str))


def _joined(sources: Iterable[object], own: Callable[[str], str]) -> str:
    texts = dict.fromkeys(_NOISE.sub("", _SPACE.sub(" ", own(_text(source)))) for source in sources)
    return " ; ".join(text for text in islice(texts, MAX_SOURCES) if text)


def _text(source: object) -> str:
    if isinstance(source, bytes | bytearray):
        return _bounded(bytes(source)).decode("utf-8", "replace")
    if isinstance(source, Mapping | list | tuple):
        leaves = [f"{key}: {_bounded(str(value))}" for key, value in _leaves(source)]
        return _bounded(", ".join(sorted(leaves, key=lambda leaf: len(leaf) > LONG_VALUE_CHARS)))
    with suppress(Exception):  # a foreign `__str__` may raise anything
        return _bounded(str(source))
    return ""


def _bounded(text: T) -> T:
    """Head and tail of a long text: the message stands before or after what is echoed."""
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else text[:half] + text[-half:]


def _leaves(body: object) -> list[tuple[str, Any]]:
    """Scalar values of a nested body with their keys, breadth first, bounded (a body may even contain itself)."""
    queue: deque[tuple[str, Any]] = deque([("", body)])
    leaves: list[tuple[str, Any]] = []
    for _ in range(MAX_BODY_NODES):
        if not queue:
            break
        key, value = queue.popleft()
        if isinstance(value, Mapping):
            with suppress(Exception):  # a foreign mapping, too
                queue.extend([(str(name), part) for name, part in islice(value.items(), MAX_BODY_NODES)])
        elif isinstance(value, list | tuple):
            queue.extend((key, item) for item in value[:MAX_BODY_NODES])
        elif isinstance(value, str | int | float):
            leaves.append((key, value))
    return leaves


# ---- judgement: which evidence is an overflow, and which numbers in it are sizes -----------------------------------

# Text looked at on either side of a word about tokens: about two sentences of a usual error message.
CHARS_BEFORE, CHARS_AFTER = 120, 280
MAX_SIZES = 12  # numbers read in one passage; a statement about a limit has at most eight

_SEPARATORS = re.compile(r"[,_. ]")
_NUMBER = re.compile(r"(?<![\w.-])\d[\d,._]*")


def _classified(said: Iterable[Evidence]) -> ContextOverflow | None:
    return next((verdict or None for verdict in map(_judge, said) if verdict is not None), None)


def _judge(evidence: Evidence) -> ContextOverflow | Literal[False] | None:
    """Decide from one exception: an overflow, False for another failure, None for neither; the surest signs first."""
    text, names = evidence.text, evidence.class_names
    if evidence.status in OTHER_STATUSES or any(map(OTHER_CLASS.search, names)):
        return False
    has_code = any(map(OVERFLOW_CODE.search, evidence.codes))
    if not has_code and _first(OTHER_TEXTS, text):
        return False
    if match := _first(STATED_OVERFLOWS, text):
        return _overflow(*(_tokens(match[name]) for name in ("limit", "actual", "output")))
    if has_code or _first(BARE_OVERFLOWS, text) or OVERFLOW_CODE.search(text):
        return _sizes(text)
    if _first(PARAMETER_TEXTS, text):
        return None
    is_sure = any(map(OVERFLOW_CLASS.search, (*names, text))) or _first(LOOSE_OVERFLOWS, text)
    return _sizes(text) if is_sure else _general(text)


def _first(candidates: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next((match for pattern in candidates if (match := pattern.search(text))), None)


def _tokens(number: str | None) -> int | None:
    """The number without separators; 0 states nothing."""
    return int(_SEPARATORS.sub("", number)) or None if number else None


def _overflow(limit: int | None, actual: int | None, output: int | None) -> ContextOverflow:
    """Leave out a size that would fit: it was read from something else."""
    fits = limit is not None and actual is not None and actual + (output or 0) < limit
    return ContextOverflow(limit, None if fits else actual, "input_plus_output" if output else "input", output)


def _sizes(text: str) -> ContextOverflow:
    """What a text that is surely about an overflow states, if anything."""
    found = [overflow for overflow, _ in map(_read, _passages(text)) if overflow.limit]
    overflow = max(found, key=lambda overflow: overflow.actual is not None, default=ContextOverflow())
    joint = overflow.kind == "input_plus_output" or JOINT.search(text) is not None
    return replace(overflow, kind="input_plus_output") if joint else overflow


def _general(text: str) -> ContextOverflow | None:
    """Two sizes that do not fit, or one in a clause that says that something is too large."""
    for passage in _passages(text):
        overflow, told_apart = _read(passage)
        excess = (overflow.limit or overflow.actual) and EXCESS.search(passage)
        parameter_alone = overflow.requested_output is not None and overflow.actual is None
        if SUBJECT.search(passage) and (told_apart or excess) and not parameter_alone:
            return _sizes(text) if overflow.limit else overflow
    return None


def _passages(text: str) -> Iterator[str]:
    """Pieces of text around words that are about tokens; they overlap, so that a statement is whole in one."""
    end = 0
    while anchor := ANCHOR.search(text, end):
        yield text[max(0, anchor.start() - CHARS_BEFORE) : anchor.start() + CHARS_AFTER]
        end = max(anchor.end(), anchor.start() + CHARS_AFTER // 2)


def _read(passage: str) -> tuple[ContextOverflow, bool]:
    """Tell limit, size and requested output apart by the words beside each number, not only by their order, if True."""
    sizes: dict[str, list[int]] = {"limit": [], "actual": [], "output": [], "unknown": []}
    for match in islice(SIZE.finditer(passage), MAX_SIZES):
        role, tokens = _role(passage, match), _tokens(match["number"]) or 0
        if match["unit"]:
            role, tokens = "limit" if role == "limit" else "", tokens * UNITS[match["unit"].lower()]
        if role in sizes and (tokens >= MIN_SIZE_TOKENS or role == "output"):
            sizes[role].append(tokens)
    output = max(sizes["output"], default=0) or None
    limits, others = sizes["limit"], sizes["actual"] or sizes["unknown"]
    if not limits:
        both = {*sizes["actual"], *sizes["unknown"]}
        limits, others = ([min(both)], [max(both)]) if len(both) > 1 else ([], sizes["actual"])
    limit = min(limits, default=None)
    larger = [size for size in (*others, *limits) if limit is None or size > limit]
    actual = max(larger, default=None) or (max(others, default=None) if output else None)
    overflow = _overflow(limit, actual, output if limit else None)
    worded = actual in sizes["actual"] or CONTRAST.search(passage) is not None
    return overflow, bool(sizes["limit"]) and overflow.actual is not None and worded


def _role(passage: str, number: re.Match[str]) -> str:
    """The role of a number in its passage, or an empty string when it is no size."""
    start, end = number.span()
    words_before = passage[max(0, start - MAX_WORDS_CHARS) : start]
    before = _NUMBER.split(words_before)[-1]
    after = passage[end : end + MAX_WORDS_CHARS]
    if NO_SIZE_BEFORE.search(before) and not after.startswith(" >"):
        return ""
    joint = JOINT.search(before) is not None
    if not joint and (OUTPUT_BEFORE.search(before) or OUTPUT_AFTER.match(after)):
        return "output"
    if ACTUAL_AFTER.match(after):
        return "actual"
    if LIMIT_AFTER.match(after) or RANGE_BEFORE.search(words_before):
        return "limit"
    words = [match.lastgroup for match in ROLE_BEFORE.finditer(before)]
    strong = [word for word in words if word != "weak"]
    if words:
        return (strong or ["actual"])[-1] or ""
    bare = TOKENS_AFTER.match(after) or COMPARED.search(before)
    return "unknown" if bare else ""
