"""How do providers word refusals? Written by this project in each one's documented shape."""

from langchain_ctxwin.core.overflow import ContextOverflow

BOTH = "input_plus_output"
NONE_STATED = ContextOverflow()


def stated(limit=None, actual=None, output=None, kind=None):
    """What should be read from one refusal."""
    return ContextOverflow(limit, actual, kind or (BOTH if output else "input"), output)


def case(text, expected):
    """One refusal and what should be read from it."""
    return text, expected


OVERFLOWS = {
    "gemini": case(
        "400 INVALID_ARGUMENT. {'error': {'code': 400, 'message': 'The input token count (2097152) exceeds the maximum "
        "number of tokens allowed (1048576).', 'status': 'INVALID_ARGUMENT'}}",
        ContextOverflow(1_048_576, 2_097_152),
    ),
    "gemini, older": case(
        "The input token count exceeds the maximum number of tokens allowed 30720.",
        ContextOverflow(30_720, None),
    ),
    "vertex": case(
        "Unable to submit request because the input token count is 40000 but model only supports up to 32768. Reduce "
        "the input token count and try again.",
        ContextOverflow(32_768, 40_000),
    ),
    "openai, input": case(
        "This model's maximum context length is 16385 tokens. However, your messages resulted in 20001 tokens "
        "(19000 in the messages, 1001 in the functions). Please reduce the length of the messages or functions.",
        ContextOverflow(16_385, 20_001),
    ),
    "openai, with output": case(
        "This model's maximum context length is 16385 tokens. However, you requested 17000 tokens (12000 in the "
        "messages, 900 in the functions, and 4100 in the completion).",
        ContextOverflow(16_385, 17_000, BOTH, 4100),
    ),
    "openai, responses": case(
        "{'type': 'error', 'code': 'context_length_exceeded', 'message': 'Your input exceeds the context window.'}",
        ContextOverflow(),
    ),
    "openai, configured limit": case(
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300010 tokens.",
        ContextOverflow(272_000, 300_010),
    ),
    "azure": case(
        "Error code: 400 - {'error': {'message': \"This model's maximum context length is 8,192 tokens. However, your "
        "messages resulted in 9,001 tokens.\", 'code': 'context_length_exceeded'}}",
        ContextOverflow(8192, 9001),
    ),
    "anthropic, input": case(
        '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 '
        'maximum"}}',
        ContextOverflow(200_000, 210_000),
    ),
    "anthropic, with output": case(
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or "
        "`max_tokens` and try again",
        ContextOverflow(200_000, 190_000, BOTH, 20_000),
    ),
    "bedrock": case("ValidationException: Input is too long for requested model.", ContextOverflow()),
    "bedrock, titan": case(
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9000",
        ContextOverflow(8192, 9000),
    ),
    "bedrock, nova": case(
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
        ContextOverflow(),
    ),
    "mistral": case(
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        ContextOverflow(32_768, 40_000),
    ),
    "cohere": case(
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4500. Try using a shorter "
        "prompt.",
        ContextOverflow(4081, 4500),
    ),
    "cohere, chat": case(
        "too many tokens: size limit exceeded by 1200 tokens. Try using shorter or fewer inputs. The limit for this "
        "model is 128000 tokens.",
        ContextOverflow(128_000, None),
    ),
    "groq": case(
        "{'error': {'message': 'Please reduce the length of the messages or completion.', "
        "'type': 'invalid_request_error', 'code': 'context_length_exceeded'}}",
        ContextOverflow(),
    ),
    "cerebras": case(
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        ContextOverflow(8192, 9000),
    ),
    "together": case(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 8000 `inputs` tokens and "
        "512 `max_new_tokens`",
        ContextOverflow(8193, 8000, BOTH, 512),
    ),
    "tgi": case(
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 1500",
        ContextOverflow(1024, 1500),
    ),
    "fireworks": case(
        "The prompt is too long: 70000, model maximum context length: 65535",
        ContextOverflow(65_535, 70_000),
    ),
    "deepseek": case(
        "This model's maximum context length is 65536 tokens. However, you requested 70000 tokens (70000 in the "
        "messages, 0 in the completion).",
        ContextOverflow(65_536, 70_000),
    ),
    "xai": case(
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        ContextOverflow(131_072, 140_000),
    ),
    "openrouter": case(
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 40000 tokens (30000 of "
        "text input, 2000 of tool input, 8000 in the output). Please reduce the length of either one.",
        ContextOverflow(32_768, 40_000, BOTH, 8000),
    ),
    "ollama": case("prompt too long; exceeded max context length by 128 tokens", ContextOverflow()),
    "ollama, embedding": case("the input length exceeds the context length", ContextOverflow()),
    "vllm, oldest": case(
        "The prompt (total length 5000) is too long to fit into the model (context length 4096).",
        ContextOverflow(4096, 5000),
    ),
    "vllm, old": case(
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens.",
        ContextOverflow(4096, 5000),
    ),
    "vllm, new": case(
        "This model's maximum context length is 4096 tokens. However, you requested 512 output tokens and your prompt "
        "contains at least 3585 input tokens, for a total of at least 4097 tokens.",
        ContextOverflow(4096, 3585, BOTH, 512),
    ),
    "vllm, new, input alone": case(
        "This model's maximum context length is 4096 tokens. However, you requested 0 output tokens and your prompt "
        "contains at least 4097 input tokens, for a total of at least 4097 tokens.",
        ContextOverflow(4096, 4097),
    ),
    "vllm, output beside the input": case(
        "'max_tokens' or 'max_completion_tokens' is too large: 4000. This model's maximum context length is 4096 "
        "tokens and your request has 1000 input tokens (4000 > 4096 - 1000).",
        ContextOverflow(4096, 1000, BOTH, 4000),
    ),
    "vllm, request": case(
        "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Please "
        "reduce the length of the input messages.",
        ContextOverflow(4096, 5000),
    ),
    "sglang": case(
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        ContextOverflow(4096, 5000),
    ),
    "sglang, with output": case(
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
        "4500 tokens: 4000 tokens from the input messages and 500 tokens for the completion.",
        ContextOverflow(4096, 4500, BOTH, 500),
    ),
    "llama.cpp": case(
        '{"error":{"code":400,"message":"request (3000 tokens) exceeds the available context size (2048 tokens), try '
        'increasing it","type":"exceed_context_size_error","n_prompt_tokens":3000,"n_ctx":2048}}',
        ContextOverflow(2048, 3000),
    ),
    "llama.cpp, body alone": case(
        '{"type":"exceed_context_size_error","n_ctx":2048,"n_prompt_tokens":3000}',
        ContextOverflow(2048, 3000),
    ),
    "llama.cpp, old": case("the request exceeds the available context size. try increasing it", ContextOverflow()),
    "lm studio": case(
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 5000>= "
        "n_ctx: 4096).",
        ContextOverflow(4096, 5000),
    ),
    "lm studio, older": case(
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        ContextOverflow(4096, 5000),
    ),
    "copilot": case("prompt token count of 130000 exceeds the limit of 128000", ContextOverflow(128_000, 130_000)),
    "moonshot": case(
        "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
        ContextOverflow(8192, 9000),
    ),
    "minimax": case("invalid params, context window exceeds limit (2013)", ContextOverflow()),
    "dashscope": case("Range of input length should be [1, 129024]", ContextOverflow(129_024, None)),
    "parentheses": case(
        "Input length (265330) exceeds model's maximum context length (262144).",
        ContextOverflow(262_144, 265_330),
    ),
    "vllm, newest": case(
        "You passed 3800 input tokens and requested 400 output tokens. However, the model's context length is only "
        "4096 tokens, resulting in a maximum input length of 3696 tokens.",
        ContextOverflow(4096, 3800, BOTH, 400),
    ),
    "unlisted, model limit": case(
        "The total number of tokens (9000) exceeds the model's limit of 8192", ContextOverflow(8192, 9000)
    ),
    "unlisted, comparison": case("input tokens (9000) > max context (8192)", ContextOverflow(8192, 9000)),
    "unlisted, brackets": case("Requested tokens (2063) exceed context window of 2048", ContextOverflow(2048, 2063)),
    "unlisted, allowed input": case(
        "exceeds maximum allowed input length of 32768 tokens", ContextOverflow(32_768, None)
    ),
    "unlisted, words": case("Context overflow detected", ContextOverflow()),
    "unlisted, two sizes": case(
        "Sorry, the conversation has 9,500 tokens, which is more than the 8,000 tokens this deployment takes",
        ContextOverflow(8000, 9500),
    ),
    "unlisted, one size": case("the conversation is too long for a context of 8000 tokens", ContextOverflow(8000)),
    "unlisted, limit alone": case("context_length_exceeded: context window is 4096", ContextOverflow(4096, None)),
}

OTHER_FAILURES = {
    "openai tpm": "Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000.",
    "groq tpm": "413 Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000",
    "anthropic rate": "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "bedrock rate": "Too many tokens, please wait before trying again.",
    "bedrock day": "ThrottlingException: Too many tokens per day",
    "gemini quota": "429 RESOURCE_EXHAUSTED. Quota exceeded for input token count, limit: 250000 token limit",
    "azure rate": "Requests have exceeded the token rate limit of your pricing tier. Please retry after 9 seconds",
    "plan": "Extra usage is required for long context requests.",
    "balance": "Your credit balance is too low for a prompt of 9000 tokens, more than 8000 tokens",
    "max_tokens, openai": "max_tokens is too large: 9000. This model supports at most 4096 completion tokens",
    "max_tokens, anthropic": "max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens for m",
    "max_tokens, groq": "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens`",
    "max_tokens, databricks": "max_tokens (9000) cannot exceed 8192. Please reduce the length of max output tokens.",
    "max_tokens, bedrock": "The maximum tokens you requested exceeds the model limit of 4096. Try again with less.",
    "max_tokens, window": "The value of max_tokens exceeds the maximum context length",
    "max_tokens, dashscope": "Range of max_tokens should be [1, 8192]",
    "max_tokens, vllm": "max_tokens must be at least 1, got -186.",
    "thinking": "The thinking budget 90000 is more than the maximum of 32768 tokens allowed for this input",
    "cache, too small": "Cached content is too small. total_token_count=500, min_total_token_count=4096",
    "cache, too large": "The cached content has 2000000 tokens, which exceeds the maximum context length of 1048576",
    "bytes": "Request exceeds the maximum size of 33554432 bytes",
    "image": "messages.0.content: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "tools": "Invalid 'tools': array too long. Expected an array with maximum length 128, but got length 200",
    "batch": "input is too large to process. increase the physical batch size (current: 512)",
    "orphan": "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: call_1",
    "malformed": "Invalid 'messages': empty array. Expected an array with minimum length 1",
    "auth": "401 invalid x-api-key",
    "server": "internal error computing context length",
    "overload": "529 overloaded_error: Overloaded",
    "parameter": "context length must be a positive integer",
    "output, hosted": "The number of completion tokens exceeds the maximum of 4096 tokens allowed",
    "monthly": "Your monthly token limit of 1000000 input tokens is exceeded, more than your plan takes",
    "time-out": "request timed out after 600 seconds and more than 500 tokens",
    "tool result": "Tool response (60000 tokens) exceeds maximum allowed tokens (25000)",
    "ours": "fixed regions need 9,200 of 8,192 tokens (system 2,000, tools 7,200): bind fewer tools",
    "empty": "",
}
