"""Context overflows: provider errors that say a request is too large, and the limit and size they state.

A refusal is judged by tables that were written after what providers, gateways and runtimes send: `OTHER_FAILURES` and
`PARAMETERS` are none, `OVERFLOWS` are, and `SIZES` (else `LIMITS` and `ACTUALS`) read the figures, by named groups.

In the tables `<limit>` stands for the tokens that the model takes, `<actual>` for the size that the provider counted
and `<output>` for the tokens requested for the answer, `<most>` for the bytes or images that a request may have, `<n>`
for any number. They match text without quotes, backticks and backslashes whose whitespace was collapsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from langchain_ctxwin.errors import ContextWindowError


class ContextOverflow(NamedTuple):
    """A request that was refused as too large; sizes are None where the provider does not state them."""

    limit: int | None = None
    """Tokens that the model takes."""

    actual: int | None = None
    """Size in tokens as the provider states it: the input alone, or with the requested output for some providers."""

    kind: Literal["input", "input_plus_output"] = "input"
    """`input_plus_output` when the requested output counts too, so that asking for less of it helps."""

    requested_output: int | None = None
    """Tokens that were requested for the answer."""

    unit: Literal["tokens", "bytes", "images"] = "tokens"
    """What there was too much of. Pictures have few tokens and many bytes, and their number is limited, too."""

    most: int | None = None
    """Bytes or images that a request may have, where those were too many."""


def classify_overflow(exc_or_text: object) -> ContextOverflow | None:
    """Recognise a context overflow in an exception, an error text or a decoded error body.

    Looks at class names (langchain-core's `ContextOverflowError` first), HTTP status, `code` and `type`, body and text,
    then at the causes behind an exception; the nearest one that is decisive counts. A request of too many bytes or
    images is an overflow, too. Returns None for everything else: rate limits and quotas (also where a client names the
    class after an overflow), limits of the `max_tokens` parameter, cache sizes, one picture that is too large,
    malformed requests, and this package's own errors. Never raises.

    Examples:
        >>> found = classify_overflow(
        ...     "prompt is too long: 208656 tokens > 200000 maximum"
        ... )
        >>> found.limit, found.actual
        (200000, 208656)
        >>> classify_overflow("429: too many tokens per minute") is None
        True
    """
    if isinstance(exc_or_text, ContextWindowError):
        return None
    verdicts = map(_judge, evidence_of(exc_or_text))
    return next((one for one in verdicts if one is not None), None) or None


# ---- wordings -------------------------------------------------------------------------------------------------------

NUMBER = (
    r"(?<![\w.,-])(?:\d{1,3}(?:(?:[,_]\d{3}){1,3}|(?:\.\d{3}){1,3}|(?: \d{3}){1,3})(?![.,]?\d)"
    r"|\d{1,12}(?!\d|[km]\b))"
)
"""A count, also 8,192 and 8_192 and 8 192 and 8.192; 12 digits hold any real size and keep `int()` cheap. The 8 of 8k
states nothing, nor do the digits of a name."""


def _table(*wordings: str) -> tuple[re.Pattern[str], ...]:
    """Compile case-insensitively, each `<name>` to a named group that holds a number.

    Letters are those of ASCII, so that a word or a number also ends where Chinese begins, which has no spaces.
    """
    marks = re.compile("<(limit|actual|output|most)>")
    named = (
        marks.sub(lambda mark: f"(?P<{mark[1]}>{NUMBER})", one).replace("<n>", NUMBER)
        for one in wordings
    )
    return tuple(re.compile(one, re.IGNORECASE | re.ASCII) for one in named)


OVERFLOW_CLASS = re.compile(
    r"Context(?:Window|Length|Size|Limit)?(?:Overflow|Exceed|TooLong)"
    r"|(?:Prompt|Input)(?:Length)?(?:TooLong|TooLarge|Exceed)"
)
"""Parts of class names that say overflow (LangChain, LiteLLM, ...); a text about a parameter wins."""

CORE_CLASS = "ContextOverflowError"  # of langchain-core: its integrations raise it for what they recognised

OTHER_CLASS = re.compile(
    r"RateLimit|TooManyRequests|Throttl|Quota|ResourceExhausted|Authentication|PermissionDenied|NotFound"
    r"|LengthFinishReason"
)
"""Parts of class names that say another failure, whatever the text."""

OVERFLOW_CODE = re.compile(
    r"\b(?:exceed_context_size_error|requested_too_many_tokens|tokens_limit_reached|string_above_max_tokens|"
    r"(?:\w{1,20}_)?(?:context|prompt|input)_?(?:length|window|size|tokens?|limit)?_?"
    r"(?:exceeded|too_?long|too_?large|overflow)(?:_?(?:error|exception))?)\b",
    re.IGNORECASE | re.ASCII,
)
"""Codes that say overflow, whatever else the text says."""

# HTTP statuses that are never an overflow: credentials, payment, missing, conflict, rate, overload.
OTHER_STATUSES = frozenset({401, 402, 403, 404, 408, 409, 429, 529})
# of HTTP, and of Anthropic: too many bytes
TOO_LARGE_STATUS, TOO_LARGE_CODE = (413, "request_too_large")

OTHER_FAILURES = _table(
    # rates, quotas, plans, overload
    r"\brate[ _-]?limit|throttl|quota|too ?many ?requests|please wait|(?:\bper[ -]|/ ?)(?:min|hour|day|second|month)",
    r"\b[TR]P[MD]\b|RESOURCE_EXHAUSTED|RATE_LIMITED|\btoken rate\b|\bservice tier|\boverloaded|\bretry after \d",
    r"\b(?:hourly|daily|weekly|monthly)\b|\b(?:this|each|every) (?:minute|hour|day|week|month)\b|\btoday\b",
    r"usage (?:limit|size)|\bextra usage\b|\bcredit|\binsufficient (?:funds|balance)|\ballowance|\bbilling",
    r"\bsubscription|\byour plan\b|\bfree[ -]tier|\b(?:token|input|output) price\b",
    r"\b(?:over|exceeded) (?:your )?budget\b|\bbudget has been exceeded|\bspend|速率|频率|配额|余额|频繁|限流|并发",
    r"\b(?:(?<!into )account|organi[sz]ation|workspace|tenant|trial)\b|\btokens? (?:left|remaining)\b",
    r"(?:每|当前)(?:一)?(?:分|秒|小时|天|日|月)|今日|当日|当月",
    r"套餐|用量|限额|账户|账号|订阅",
    # a context cache, a batch, credentials, an answer that was cut off
    r"\bcached[ _]?content|\bcontext[ _]cach(?:e|ing)\b|\benqueued|\bbatch\b|\binternal error|\btime-?d?[ -]?out\b",
    r"\b(?:access|auth\w*|bearer|refresh|api) token\b|\blength limit was reached|\bmodel output limit",
    # a status in the text itself
    r"(?:^|error:? |error code:? |status(?:[ _]?code)?[:= ]+|code: ?)(?:401|402|403|404|429|529)\b(?! tokens)",
)
"""Rate limits, quotas, caches, refused credentials: they win over other wordings in the same text."""

PARAMETERS = _table(
    r"\bmax_(?:new_|completion_|output_)?tokens\b(?:[ :=(]+<n>[ )]*(?:tokens\))?)?.{0,40}?"
    r"(?:too large|exceed|must be|not valid|at least|at most|maximum|> ?\d|(?:larger|greater|more|less) than)",
    r"max(?:imum)?[_ ]?output[_ ]?tokens|\boutput tokens? limit|\bmaximum tokens you requested|range of max_tokens",
    r"\bnumber of (?:output|completion) tokens|\b(?:reasoning|completion)_tokens\b[^.;]{0,20}?exceed",
    r"\bat most <n> (?:completion|output) tokens|\bthinking\b|\bbudget_tokens|\btool (?:response|description|name)",
    r"(?<!billable )\bcharacters?\b|\bstring\b|\barray\b|\bpixels?\b|\bpages\b|\bdimension|\d ?[KMG]i?B\b",
    r"\bfile size|\bimage is\b",
    r"\b(?:too many|number of|<n>) (?:tools|messages)\b|\bembedding|\btraining\b|\bstop sequence|\bqueue\b",
)
"""Errors about the requested output alone, or about a part of the request that has a limit of its own."""

_SUBJECT = r"(?:\b|_)(?:prompt|input|inputs|context|conversation|messages?|request|sequence|history|chat|tokens?)\b"
_EXCESS = (
    r"(?:\b(?:exceed|surpass)(?:e?s|ed|ing)?\b|\b(?:longer|larger|bigger|greater|higher|more) than\b"
    r"|(?:must|should) be less than\b|\bover(?= (?:the )?(?:model|max|context|limit))|>)"
)
_BOUND = r"(?:<n> tokens|\blimit\b|\bcontext|\bmodel|\bmax(?:imum)?\b|max_\w+|n_ctx|\bwindow|\b(?:allow|permitt)ed\b)"

OVERFLOWS = _table(
    # prompt is too long; Input is too long for requested model; Prompt contains 9 tokens, too large for model
    r"(?<!audio )\b(?:prompt|input|conversation|messages)s? (?:is |are )?too (?:long|large)\b(?! to process)",
    rf"{_SUBJECT}[^.;]{{0,60}}?\btoo (?:long|large)\b(?:[^.;]{{0,20}}?\b(?:model|context|max)|[:.] <n> >)",
    r"\brequest body too large\b.{0,80}?<n> tokens|\btoo many input tokens|\btoo many tokens: ",
    # input exceeds the context window; tokens (9) exceed the model's limit of 8; prompt token count of 9 exceeds 8
    rf"{_SUBJECT}[^.;]{{0,80}}?{_EXCESS}[^.;]{{0,40}}?{_BOUND}",
    rf"{_SUBJECT}[^.;]{{0,80}}?(?:exceed(?:s|ed)?|longer than)[^.;]{{0,30}}?\blength",
    r"\bexceed(?:s|ed|ing)? [^.;]{0,30}?\b(?:context|input|prompt) (?:length|window|size|limit)",
    r"(?:\b|_)(?:context|prompt|input)[ _](?:\w+ ){0,2}(?:length|window|size|limit|tokens?)(?: has been| was| is)?"
    r" (?:exceed|reach)",
    r"\breach(?:ed|es)? the max(?:imum)? (?:context|prompt|input)\b",
    r"(?:not|nt) fit (?:in|into|within) (?:\w+ ){0,3}(?:context|window)|\bmaximum length for this conversation",
    r"\bcontext (?:window |length )?overflow|context[_ ](?:length|window)[_ ]exceeded|\bcontext the overflows",
    r"\btoo many tokens in (?:the|this|your) (?:request|prompt|input|conversation)",
    r"(?:request|prompt|input|conversation|messages)\b[^.;]{0,60}?<n> tokens\b[^.;]{0,40}?\bat most <n>",
    r"\bmore (?:(?!output|completion)\w+ )?tokens (?:in the request )?than (?:\w+ ){0,3}"
    r"(?:context|model|window|allowed|permitted|maximum)",
    # This model's maximum context length is 8; Please reduce the length of the messages
    r"\bmax(?:imum)? (?:context|prompt|input|sequence|model) length (?:of|is)|\bcontext length(?: of this model)? is ",
    r"reduce (?:the (?:length|size) of the|your) (?:messages|prompt|input)|\bmodel (?:only )?supports up to <n>",
    r"\binputs? (?:tokens \+ max_new_tokens )?must (?:have less than|be <=) <n>|\btokens in the prompt cannot exceed",
    r"\brange of (?:input|total) length|\bmax tokens of <n> exceeded|\brequest too many tokens|status_msg: token limit",
    r"\bto generate tokens, following a prompt of length|\bcurrent length is <n> while limit is|\bprompt exceeds",
    r"(?:输入|上下文|提示词|prompt|token).{0,16}?(?:过长|太长|超长|超过|超出|超限|大于)",
    r"(?:超过|超出).{0,12}?(?:上下文|最大(?:输入)?长度)",
)
"""Wordings of an overflow, with its size or without."""

JOINT_SIZES = _table(
    r"<actual> \+ <output> > <limit>",
    r"must be <= <limit>\W+Given: <actual> inputs tokens and <output> max_new_tokens",
    r"context length is <limit> tokens.{0,30}?you requested <output> output tokens and your prompt contains"
    r" (?:at least )?(?:<actual>(?: input)? tokens|<n> characters)",
    r"passed <actual> input tokens and requested <output> output tokens.{0,40}?context length is only <limit>",
    r"too large: <output>\W+This models maximum context length is <limit> tokens and your request has <actual> input",
    r"input tokens length is <actual>.{0,5}output tokens length is <output>.{0,60}?less than or equal to <limit>",
    r"requested <output> to generate tokens, following a prompt of length <actual>.{0,30}?limit of <limit>",
)
"""How wordings state the input, the requested output and their limit; each is an overflow by itself."""

SIZES = _table(
    # a limit and a size, with the part of it that was requested as output where that is told
    r"(?:context|prompt) length (?:of [^ ]{1,60} )?(?:is|of) <limit>\b.{0,70}?"
    r"(?:requested|resulted in|will take|contains|total of|request has)"
    r" (?:about |at least )?<actual> (?:input )?tokens(?:[ :][^.]{0,90}?<output> (?:tokens )?(?:in|for) (?:the|your)"
    r" (?:completion|output))?",
    r"n_prompt_tokens: ?<actual>\b.{0,80}?n_ctx: ?<limit>",
    r"n_ctx: ?<limit>\b.{0,80}?n_prompt_tokens: ?<actual>",
    r"n_keep: <actual>>= n_ctx: <limit>",
    # a size that is compared with the limit
    r"<actual>(?: tokens?)?[)\]]?,?(?: \+ current sequence length \(<n>\))? ?(?:which |it )?(?:is |are )?"
    rf"(?:{_EXCESS}|cannot exceed|too (?:long|large)|超过|超出|大于)[^.;。\d]{{0,60}}?<limit>",
    r"<actual> tokens[^.;\d]{0,40}?<limit> (?:tokens )?(?:are|is) (?:allowed|permitted)",
)
"""How wordings state a limit and a size together; the first that matches says both."""

LIMITS = _table(
    r"range of input length should be \[<n>, <limit>\]",
    r"<limit> maximum\b",
    r"(?:limit|max(?:imum)?|context|window|up to|less than|cannot exceed|only)\b(?:(?!exceeded|overflow)[^.;\d]){0,48}?"
    r"(?<!by )(?<!exceeds limit \()<limit>",
    r"(?:最大|限制|上限)[^\d。;]{0,12}?<limit>",
)
"""How wordings state a limit alone; the size is then the first of `ACTUALS` above it."""

ACTUALS = _table(
    r"(?:resulted in|requested|received|given|supplied|provided|sent|got|contains?|has|have|first|count|length|total"
    r"|long|tokens|input|prompt|model)\b\W{0,3}(?:(?:is|of|about|at least) )?<actual>\b(?! characters)",
    r"\bis <actual> tokens long\b",
)

JOINT = _table(
    r"\b(?:prompt|inputs?|messages?)(?: length| tokens?)? (?:\+|plus|and) (?:the )?(?:requested |max(?:imum)? )?"
    r"(?:max_\w*tokens|output|completion|generat)"
)
"""The requested output counts too, although its size is not stated."""

MEDIA: dict[Literal["bytes", "images"], tuple[re.Pattern[str], ...]] = {
    "bytes": _table(
        r"\brequest (?:payload size )?exceeds the (?:maximum|limit)(?: size)?(?: of|:) <most> bytes",
        r"\brequest exceeds the maximum (?:size|allowed number of bytes)\b(?! of <n> tokens)",
        r"\brequest\b[^.;]{0,60}? <n> bytes\b|\brequest entity too large",
        r"\b(?:payload|content|request body) too large(?!.{0,80}? tokens)",
        r"\b(?:request body|total size of (?:the )?images|total image size)\b[^.;]{0,40}? exceeds",
        r"\bmaximum content size limit \(<most>\) exceeded",
    ),
    "images": _table(
        r"\btoo (?:many images and documents|much media): <n> (?:document pages )?\+ <n> (?:images )?> <most>",
        r"\btoo many (?:total )?images: <n> > <most>",
        r"\bnumber of images\b[^.;]{0,40}?exceed[^.;\d]{0,40}<most>",
        r"\b(?:at most|up to|has more than) <most> images\b|\breduce the number of images\b",
        r"图片(?:数量|过多|超过)",
        r"\btoo many (?:total )?images\b(?:.{0,40}?\b(?:max(?:imum)?|up to|at most)\b[^.;\d]{0,20}<most>)?",
        r"\bat most <most> image(?:\(s\)|s)? may be provided",
    ),
}
"""Wordings of too many bytes or images in one request."""


# ---- judgement ------------------------------------------------------------------------------------------------------


def _judge(evidence: Evidence) -> ContextOverflow | Literal[False] | None:
    """Decide from one exception: an overflow, False for another failure, None for neither; the surest signs first."""
    names, status, text = evidence
    if status in OTHER_STATUSES or OTHER_CLASS.search(names):
        return False
    has_code = OVERFLOW_CODE.search(text)
    if not has_code and _first(OTHER_FAILURES, text):
        return False
    for unit, wordings in MEDIA.items():
        if match := _first(wordings, text):
            return ContextOverflow(unit=unit, most=_numbers(match).get("most"))
    if has_code or CORE_CLASS in names or _first(JOINT_SIZES, text):
        return _sized(text)
    is_parameter = _first(PARAMETERS, text) and not _first(JOINT, text)
    is_named = OVERFLOW_CLASS.search(f"{names} {text}")
    if not is_parameter and (is_named or _first(OVERFLOWS, text)):
        return _sized(text)
    is_too_large = status == TOO_LARGE_STATUS or TOO_LARGE_CODE in text
    return ContextOverflow(unit="bytes") if is_too_large else None


def _first(wordings: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    return next(
        (match for wording in wordings if (match := wording.search(text))), None
    )


def _sized(text: str) -> ContextOverflow:
    """The overflow with the figures that its text states; a size that would fit was read from something else."""
    sizes = _numbers(_first((*JOINT_SIZES, *SIZES, *LIMITS), text))
    limit, output, actual = map(sizes.get, ("limit", "output", "actual"))
    if limit is not None and actual is None:
        found = (match for wording in ACTUALS for match in wording.finditer(text))
        stated = (_numbers(match).get("actual", 0) for match in found)
        actual = next((size for size in stated if size > limit), None)
    if limit is not None and actual is not None and actual + (output or 0) < limit:
        actual = None
    is_joint = output is not None or _first(JOINT, text) is not None
    return ContextOverflow(
        limit, actual, "input_plus_output" if is_joint else "input", output
    )


def _numbers(match: re.Match[str] | None) -> dict[str, int]:
    """The figures of a wording by name, without their separators; 0 states nothing."""
    named = match.groupdict() if match else {}
    figures = {
        name: int(re.sub("[,_. ]", "", one)) for name, one in named.items() if one
    }
    return {name: figure for name, figure in figures.items() if figure}


# ---- what an exception says -----------------------------------------------------------------------------------------

MAX_TEXT_CHARS = 4_096
"""Text looked at per source: some servers echo the whole request into the error."""

STATUS_ATTRIBUTES = ("status_code", "http_status", "status", "code")
"""Where clients keep the HTTP status, the most reliable name first."""

BODY_ATTRIBUTES = ("body", "details", "response", "error")
"""Where clients keep the decoded body (OpenAI and Anthropic, Google, botocore, Ollama)."""

CODE_ATTRIBUTES = ("code", "type")
"""Where clients keep a provider's own error code."""

_NOISE = re.compile(r"https?://\S{1,200}|[\\\"'`\u2018\u2019]+")
_SPACE = re.compile(r"\\{1,8}[nrt](?![a-z]{2})|\s+")
_STATUS = re.compile(r"[45][0-9]{2}")


class Evidence(NamedTuple):
    """What one exception, or one text, says."""

    class_names: str
    status: int | None
    """The HTTP error status."""

    text: str
    """Message, code and body without quotes and backslashes, whitespace collapsed, bounded in length."""


def evidence_of(source: object) -> Iterator[Evidence]:
    """Yield what `source` says; for an exception also what its causes say, nearest first.

    Never raises. The source may be an exception, a text or a decoded body.
    """
    if not isinstance(source, BaseException):
        yield Evidence("", None, _text(source))
        return
    errors = [source]
    for error in errors:
        context = None if error.__suppress_context__ else error.__context__
        behind = (error.__cause__, context)
        errors += [one for one in behind if one is not None and one not in errors]
        response: Any = getattr(error, "response", None)
        try:
            read = response.text if response.is_closed is True else None
        except (AttributeError, RuntimeError):  # of another client, or left unread
            read = None
        texts = [*(getattr(error, name, None) for name in BODY_ATTRIBUTES), read]
        texts = [one for one in texts if isinstance(one, str | bytes | Mapping | list)]
        codes = [getattr(error, name, "") for name in CODE_ATTRIBUTES]
        statuses = (
            str(getattr(place, name, ""))  # LiteLLM keeps it as text at times
            for place in (error, response)
            for name in STATUS_ATTRIBUTES
        )
        yield Evidence(
            " ".join(cls.__name__ for cls in type(error).__mro__),
            next((int(one) for one in statuses if _STATUS.fullmatch(one)), None),
            " ; ".join(dict.fromkeys(map(_text, (error, *texts, *codes)))),
        )


def _text(source: object) -> str:
    """Head and tail of a long text, tidied: the message stands before or after what is echoed."""
    text = str(source)
    half = MAX_TEXT_CHARS // 2
    if len(text) > MAX_TEXT_CHARS:
        text = text[:half] + text[-half:]
    return _NOISE.sub("", _SPACE.sub(" ", text))
