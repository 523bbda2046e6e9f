"""How do hosts, gateways and runtimes beyond the usual providers word a refusal? Own numbers, documented shapes."""

from support.overflow_wordings import BOTH, NONE_STATED, case, stated

HOSTS = {
    "dashscope, total": case(
        "<400> InternalError.Algo.InvalidParameter: Input tokens length is 30100. Output tokens length is 4000. Range "
        "of total length should be less than or equal to 32768",
        stated(32_768, 30_100, 4000),
    ),
    "siliconflow": case(
        '{"code":20015,"message":"length of prompt_tokens (70011) must be less than max_seq_len (65536).","data":null}',
        stated(65_536, 70_011),
    ),
    "siliconflow, total": case(
        "max_total_tokens (34000) must be less than or equal to max_seq_len (32768)",
        stated(32_768, 34_000),
    ),
    "sambanova": case(
        "SambanovaException - The maximum context length of Big-Model-V3-0324 is 32768. However, answering your "
        "request will take 40100 tokens. Please reduce the length of the messages or the specified "
        "max_completion_tokens value.",
        stated(32_768, 40_100),
    ),
    "perplexity": case(
        "Requested 100000 to generate tokens, following a prompt of length 41000, which exceeds the max limit of "
        "128000 tokens.",
        stated(128_000, 41_000, 100_000),
    ),
    "github models": case(
        '{"error":{"code":"tokens_limit_reached","message":"Request body too large for big-4.1 model. Max size: 8000 '
        'tokens.","details":"Request body too large for big-4.1 model. Max size: 8000 tokens."}}',
        stated(8000),
    ),
    "github models, text": case("413 Request body too large for big model. Max size: 4000 tokens.", stated(4000)),
    "nim": case("in ensemble m, Input length 1300 exceeds maximum allowed token size 1024", stated(1024, 1300)),
    "tensorrt": case(
        "Encountered error for requestId 117809844: Cannot process new request: Prompt length (1300) exceeds maximum "
        "input length (1024). (/src/manager.cpp:246)",
        stated(1024, 1300),
    ),
    "sglang, length": case(
        "Input length (160100 tokens) exceeds the maximum allowed length (59000 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
        stated(59_000, 160_100),
    ),
    "onnx": case(
        "input_ids size (3300) + current sequence length (0) exceeds max length (2048)",
        stated(2048, 3300),
    ),
    "ai21": case("AI21 error: Request too many tokens: 2000 + 60 > 2048", stated(2048, 2000, 60)),
    "hugging face": case(
        "Bad request: Input is too long for this model, shorten your input or use 'parameters': {'truncation': "
        "'only_first'} to run the model only on the first part.",
        NONE_STATED,
    ),
    "transformers": case(
        "Token indices sequence length is longer than the specified maximum sequence length for this model (17000 > "
        "16384). Running this sequence through the model will result in indexing errors",
        stated(16_384, 17_000),
    ),
    "snowflake": case("Request failed: max tokens of 200000 exceeded", stated(200_000)),
    "salesforce": case("Request input tokens exceed model token limit. Reduce the input size.", NONE_STATED),
    "trainer": case("Prompt length exceeds model's maximum token limit (4096)", stated(4096)),
    "vllm, messages": case(
        "This model's maximum context length is 8192 tokens. However, you requested 15100 tokens in the messages, "
        "Please reduce the length of the messages.",
        stated(8192, 15_100),
    ),
    "zhipu": case('{"error":{"code":"1261","message":"Prompt exceeds max length"}}', NONE_STATED),
    "volcengine": case("Total tokens of image and text exceed max message tokens. Request id: 0217", NONE_STATED),
    "minimax, older": case("{'base_resp': {'status_code': 1039, 'status_msg': 'token limit'}}", NONE_STATED),
    "cloudflare": case(
        "AiError: 5021: The estimated number of input and maximum output tokens (9000) exceeded this model context "
        "window limit (8192).",
        stated(8192, 9000, kind=BOTH),
    ),
    "watsonx": case(
        '{"errors":[{"code":"invalid_input_argument","message":"Invalid input argument for Model: the number of input '
        'tokens 9000 cannot exceed the total tokens limit 8192 for this model"}],"status_code":400}',
        stated(8192, 9000),
    ),
    "lm studio, newest": case("Context size has been exceeded.", NONE_STATED),
    "llama-cpp-python": case("Requested tokens (2100) exceed context window of 2048", stated(2048, 2100)),
    "mlx": case("Prompt has 9000 tokens which exceeds the model's max context of 8192", stated(8192, 9000)),
    "tokens allowed": case(
        "tokens in request more than max tokens allowed: 9000 > 8192",
        stated(8192, 9000),
    ),
    "length limit": case("prompt exceeds the length limit", NONE_STATED),
    "azure foundry": case(
        "The total number of tokens in the prompt exceeds the limit of 8192, it has 8500 tokens",
        stated(8192, 8500),
    ),
    "bedrock, converse": case(
        "An error occurred (ValidationException) when calling the Converse operation: The model returned the following "
        "errors: Input is too long for requested model.",
        NONE_STATED,
    ),
    "bedrock, anthropic": case(
        "ValidationException: The model returned the following errors: prompt is too long: 200100 tokens > 200000 "
        "maximum",
        stated(200_000, 200_100),
    ),
    "bedrock, expected length": case(
        "ValidationException: Malformed input request: This model's maximum context length is 8192 tokens. Please "
        "reduce the length of the prompt",
        stated(8192),
    ),
    "litellm": case(
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - "
        "Your request is larger than the model takes",
        NONE_STATED,
    ),
    "openrouter, raw": case(
        '{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\\"error\\":{\\"message\\":\\"'
        'prompt is too long: 200100 tokens > 200000 maximum\\",\\"type\\":\\"invalid_request_error\\"}}"}}}',
        stated(200_000, 200_100),
    ),
    "portkey": case(
        '{"error":{"message":"openai error: This model\'s maximum context length is 8192 tokens. However, your '
        'messages resulted in 9000 tokens.","type":"invalid_request_error","param":"messages","code":'
        '"context_length_exceeded"},"provider":"openai"}',
        stated(8192, 9000),
    ),
    "error list": case(
        '[{"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens '
        'allowed (1048576).", "status": "INVALID_ARGUMENT"}}]',
        stated(1_048_576, 1_200_000),
    ),
    "chinese": case("400 输入长度超过最大长度限制", NONE_STATED),
}
