"""How do providers word a request that is too large, and what only looks like it?

The patterns match text from which quotes, backticks and backslashes were removed and whitespace was collapsed. Groups:
`limit` (tokens the model takes), `actual` (size as the provider states it), `output` (tokens requested for the answer).
"""

from __future__ import annotations

import re

NUMBER = r"(?:(?<![\d.,])\d{1,3}(?:[,_]\d{3})+(?!\d)|(?<!\d)\d{1,12}(?!\d))"
"""A count with or without separators; 12 digits hold any real size and keep `int()` cheap."""


EXCEEDS = (
    r"(?:exceed(?:s|ed)?|(?:longer|greater|larger) than) (?:the |this )?(?:models )?"
    r"(?:(?:maximum|max|available|allowed) ){0,3}"
    r"(?:(?:context|prompt|input|model) (?:length|window|size)|(?:context|input) limit)(?: \(?of| is|:)? ?\(?"
)
"""What stands between a size and the limit that it exceeds."""


def _compile(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Compile case-insensitively; `<limit>`, `<actual>` and `<output>` are named numbers, `<n>` any number."""
    return tuple(re.compile(_with_numbers(pattern), re.IGNORECASE) for pattern in patterns)


def _with_numbers(pattern: str) -> str:
    for name in ("limit", "actual", "output"):
        pattern = pattern.replace(f"<{name}>", f"(?P<{name}>{NUMBER})", 1)
    return pattern.replace("<n>", NUMBER).replace("<exceeds>", EXCEEDS)


OVERFLOW_CODES = frozenset(
    {
        "context_length_exceeded",  # OpenAI, Azure, Groq, Cerebras
        "exceed_context_size_error",  # llama.cpp
        "context_exceeded",
        "context_window_exceeded",
        "model_context_window_exceeded",
        "model_max_prompt_tokens_exceeded",  # GitHub Copilot
        "context_length_exceeded_error",
        "prompt_too_long",
        "input_too_long",
    }
)
"""Values of `code` or `type` that say overflow, whatever the text."""

OVERFLOW_CLASSES = ("ContextOverflow", "ContextWindowExceeded", "ContextLengthExceeded")
"""Parts of class names that say overflow (LangChain, LiteLLM); a text or status that says otherwise wins."""

OTHER_CLASSES = ("RateLimit", "Throttl", "Quota", "ResourceExhausted", "Authentication", "PermissionDenied", "NotFound")
"""Parts of class names that say another failure, whatever the text."""

OTHER_STATUSES = frozenset({401, 402, 403, 404, 408, 409, 429, 529})
"""HTTP statuses that are never an overflow: credentials, payment, missing, conflict, rate, overload."""

OTHER_TEXTS = _compile(
    # rates, quotas and plans
    r"\brate[ _-]?limit|\bthrottl|\bquota|\btoo many requests|please wait|\bper[ -](?:min|hour|day|second|month)",
    r"\b[TR]P[MD]\b|RESOURCE_EXHAUSTED|RATE_LIMITED|\btoken rate\b|retry after \d|\boverloaded|credit balance",
    r"usage (?:limit|size)|\bextra usage\b|\binsufficient (?:funds|balance|credit)",
    r"\b(?:hourly|daily|weekly|monthly)\b|\bfree[ -]tier\b|\bover budget\b|\bbudget has been exceeded|\bconcurren",
    # the size of a context cache, which is not the request
    r"\bcached[ _]?content|\bcontext[ _]cach(?:e|ing)\b|\bcache size",
    # the parameter alone is too large ("input length and max_tokens exceed" is about both)
    r"(?<!and )\bmax_(?:\w+_)?tokens (?:\(?<n>\)? )?exceeds?\b|\bmaximum tokens you requested",
    # a status in the text itself
    r"(?:^|error:? |error code:? |status(?:[ _]?code)?[:= ]+|code: ?)(?:401|402|403|404|429|529)\b",
)
"""Rate limits, quotas, caches, one parameter, refused credentials: they win over other wordings in the same text."""

STATED_OVERFLOWS = _compile(
    # vLLM, newer: output stated before the prompt
    r"(?:max(?:imum)? (?:context|model)|context) (?:length|window) is <limit> tokens.{0,30}?you requested <output>"
    r" output tokens and your prompt contains (?:at least )?(?:<actual>(?: input)? tokens|<n> (?:input )?characters)",
    r"passed <actual> input tokens and requested <output> output tokens\W+However, the models context length is only"
    r" <limit>",
    # vLLM: the requested output does not fit beside the prompt
    r"max_(?:completion_)?tokens is too large: <output>\W+This models maximum context length is <limit> tokens and your"
    r" request has <actual> input tokens",
    # SGLang, total and parts
    r"models maximum context length of <limit> tokens\W+You requested a total of <actual> tokens: <n> tokens from the"
    r" input messages and <output> tokens for the completion",
    # OpenAI, Azure, DeepSeek, vLLM, OpenRouter: total and parts
    r"maximum context length is <limit>(?: tokens)?\W.{0,60}?(?:requested|resulted in|request has|contains?|contained)"
    r" (?:about |at least )?<actual> (?:input )?tokens"
    r"(?: \([^()]{0,90}?<output> (?:in|for) (?:the|your) (?:completion|output))?",
    # OpenAI, configured input limit
    r"input tokens exceed the configured limit of <limit> tokens(?:\W+your messages resulted in <actual> tokens)?",
    # xAI
    r"maximum (?:prompt|input) length is <limit>(?: tokens)? but the request contains <actual>",
    # OpenAI-compatible servers: limit alone, or in another order
    r"requested token count exceeds the models maximum context length of <limit>",
    r"(?:input|prompt) length \(?<actual>\)? exceeds the maximum length (?:of )?\(?<limit>",
    # Anthropic
    r"prompt is too long: <actual> tokens > <limit>",
    r"input length and max_tokens exceed context limit: <actual> \+ <output> > <limit>",
    # Gemini and Vertex AI
    r"input token count(?: is)? \(?<actual>\)? (?:exceeds the maximum number of tokens allowed|but (?:the )?model"
    r" (?:only )?supports up to) \(?<limit>",
    r"input token count exceeds the maximum number of tokens allowed \(?<limit>",
    # Bedrock
    r"max(?:imum)? input tokens: <limit>, request input token count: <actual>",
    # Mistral
    r"prompt contains <actual> tokens.{0,40}?too large for model with <limit> maximum context length",
    # Cohere
    r"tokens in the prompt cannot exceed <limit>\W+received <actual>",
    r"too many tokens: .{0,120}?limit for this model is <limit> tokens",
    # Cerebras
    r"reduce the length of the messages or completion\W+current length is <actual> while limit is <limit>",
    # Text Generation Inference, Together
    r"inputs tokens \+ max_new_tokens must be <= <limit>\W+Given: <actual> inputs tokens and <output> max_new_tokens",
    r"inputs must have less than <limit> tokens\W+Given: <actual>",
    # Fireworks
    r"prompt is too long: <actual>,? (?:but )?(?:the )?(?:models?)? ?max(?:imum)? context length:? (?:is )?<limit>",
    # vLLM, older; SGLang
    r"prompt \((?:total )?length <actual>\) is (?:too long to fit into the model \(context length|longer than the"
    r" maximum model length of) <limit>",
    r"(?:input|prompt) \(<actual> tokens\) is longer than the models (?:max(?:imum)? )?context length \(<limit>",
    # llama.cpp
    r"request \(<actual> tokens\) exceeds the available context size \(<limit>",
    r"n_prompt_tokens\W{1,4}<actual>\W.{0,40}?n_ctx\W{1,4}<limit>",
    r"n_ctx\W{1,4}<limit>\W.{0,40}?n_prompt_tokens\W{1,4}<actual>",
    # LM Studio
    r"n_keep: ?<actual> ?>= ?n_ctx: ?<limit>",
    r"keep the first <actual> tokens when context the overflows.{0,80}?context length of (?:only )?<limit>",
    # other hosts
    r"maximum (?:context|prompt|input|sequence) length is <limit>(?: tokens)?\W{1,3}(?:but|however|while|and)\b"
    r"[^.]{0,80}?<actual>(?: input)? tokens",
    r"prompt token count of <actual> exceeds the limit of <limit>",
    r"exceeded model token limit: <limit>(?: \(requested: <actual>)?",
    r"prompt has <actual> tokens, but the configured context size is <limit>",
    r"range of input length should be \[\d+, ?<limit>\]",
    r"number of input tokens <actual> cannot exceed the total tokens limit <limit>",
    r"<actual>\)?(?: (?:input |prompt )?tokens)?\)?,? (?:is |are )?<exceeds><limit>",
    r"<exceeds><limit>",
)
"""Wordings that state sizes, the more specific ones first."""

STATED_LIMITS = _compile(
    r"(?:context|prompt|input|model) (?:length|window|size|limit)(?: is| of|:)?(?: only)? \(?<limit>(?: tokens)?",
    r"(?:maximum|max|limit)(?: of| is|:)? <limit> (?:input )?tokens",
)
"""Where the limit stands in a text that is known to be an overflow, whatever its wording."""

BARE_OVERFLOWS = _compile(
    r"\bprompt (?:is )?too long|\binput is too long\b|\bnumber of input tokens exceeds",
    r"exceed(?:s|ed|ing)? (?:the )?(?:models |requested models )?(?:max(?:imum)? |available |allowed )?"
    r"(?:(?:context|prompt) (?:window|length|size|limit)|model length)",
    r"(?:context (?:window|length|size|limit)|(?:prompt|input) length) (?:has been |was |is )?exceed(?:ed|s)\b",
    r"maximum (?:context|prompt) length (?:has been |was )?exceeded",
    r"number of tokens to keep from the initial prompt is greater than the context length",
    r"reduce (?:the length of the|your) (?:messages|prompt|input)",
    r"\bcontext (?:window |length )?overflow|context[_ ](?:length|window)[_ ]exceeded",
    r"\bprompt exceeds max(?:imum)? length|exceed max message tokens",
)
"""Wordings that state an overflow without its size."""

PARAMETER_TEXTS = _compile(
    r"max_(?:completion_|output_|new_)?tokens\b.{0,60}?(?:too large|exceed|must be|> ?\d|not valid|cannot)",
    r"maximum value for max_",
    r"max(?:imum)?_?output_?tokens|output tokens? limit|max output tokens|maximum (?:allowed )?number of output tokens",
    r"(?:supports at most|maximum of|up to) <n> (?:completion|output) tokens",
    r"range of max_tokens|thinking[ _]?budget|budget_tokens",
    r"\bcach(?:e|ed|ing)\b",
    r"\b(?:completion|output|generated|response) tokens?\b.{0,30}?exceed",
    r"batch size|internal error|\btimed? ?out\b|\bseconds?\b|\bfile\b|\btool (?:result|response|output|description)",
    r"\bbytes?\b|\b[KMG]B\b|\bcharacters\b|\bpixels\b|\bpages\b|array|dimension",
    r"tool_use|tool_result|regular expression|must be (?:positive|greater than|an integer)",
)
"""Errors about one parameter, a cache, a payload in bytes: they overrule the class name and the generic rule."""

GENERIC_OVERFLOWS = _compile(
    r"\b(?:prompt|input|context|message|request|conversation|token)s?\b[^.;]{0,80}?"
    r"(?:\bexceed\w*|\btoo (?:long|large|many|big)\b|\b(?:longer|greater|larger|more|bigger) than\b|\bover the\b)"
    r"[^.;]{0,60}?\b(?:context|prompt|input|tokens?)\b[^.;]{0,40}",
    r"\b(?:prompt|input|context|message|request|conversation)s? tokens?\b[^.;]{0,40}?"
    r"(?:\bexceed\w*|\b(?:longer|greater|larger|more|bigger) than\b|\bover the\b|>)[^.;]{0,60}",
    r"\btokens?\b[^.;]{0,40}?(?:\bexceed\w*|\b(?:greater|larger|more|bigger) than\b)[^.;]{0,40}?"
    r"\b(?:limit|maximum|max|window|capacity)\b[^.;]{0,30}",
)
"""A size noun, a number and an excess in one clause: wordings that nobody has listed yet."""

ANY_NUMBER = re.compile(NUMBER)
MIN_SIZE_TOKENS = 256
"""Smaller numbers in an unlisted wording count images, messages or an excess; no served model has such a window."""

TOKEN_WORD = re.compile(r"\btokens?\b|\bcontext\b", re.IGNORECASE)
"""A clause without one of these is about something else than tokens."""
