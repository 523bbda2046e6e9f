"""Wordings of context overflows by provider, and those that only look like one.

The patterns match text from which quotes, backticks and backslashes were removed and whitespace was collapsed. Groups:
`limit` (tokens the model takes), `actual` (size as the provider states it), `output` (tokens requested for the answer).
"""

from __future__ import annotations

import re

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
