"""How could a server that nobody has listed word an overflow? Invented, to test the general rule."""

from support.overflow_wordings import NONE_STATED, stated

UNSEEN = {
    # limits first, other separators, other verbs
    "The context window is 8192 tokens, you sent 9000.": stated(8192, 9000),
    "Context window: 8,192 tokens. Received: 9,001 tokens.": stated(8192, 9001),
    "this model accepts 16 384 tokens of context but was given 17 000": stated(16_384, 17_000),
    "max context = 32_768, request used 40_000 tokens": stated(32_768, 40_000),
    "Your conversation contains 210,000 tokens; the model handles at most 200,000.": stated(200_000, 210_000),
    "sequence of 5000 tokens does not fit into a window of 4096": stated(4096, 5000),
    "prompt tokens 9000/8192: over the context limit": stated(8192, 9000),
    "Too many tokens in prompt (got 70000, max 65536)": stated(65_536, 70_000),
    "token limit exceeded: limit=131072 used=140210": stated(131_072, 140_210),
    "The request has 4,500 tokens and would overflow the 4,096-token window of this model": stated(4096, 4500),
    "Model supports a context of 128K tokens; your input has 140,000 tokens": stated(128_000, 140_000),
    "Unable to process input: 33000 tokens provided, 32768 tokens allowed": stated(32_768, 33_000),
    "prompt_tokens=9000 must be <= max_model_len=8192": stated(8192, 9000),
    "num_tokens (5000) should not be larger than max_position_embeddings (4096)": stated(4096, 5000),
    "input of 7000 tokens plus max_tokens of 2000 is beyond the context length of 8192": stated(8192, 7000, 2000),
    "Total tokens 9,200 (prompt 7,200, completion 2,000) surpass the model context size 8,192": stated(
        8192, 9200, 2000
    ),
    "Message history is too long for this model: it needs 9000 tokens, only 8192 fit": stated(8192, 9000),
    "cannot fit 9000 tokens into context_size 8192": stated(8192, 9000),
    "InputTooLarge: text tokens 20000 above cap 16000": stated(16_000, 20_000),
    "The prompt you submitted is 9000 tokens long. The longest prompt this endpoint takes is 8192 tokens.": stated(
        8192, 9000
    ),
    "reached the end of the context window (4096 tokens) while reading the prompt": stated(4096),
    "Maximum allowed tokens for the prompt: 30000": stated(30_000),
    "conversation exceeds 128,000 tokens": stated(128_000),
    "The prompt is longer than what the model can read (1M tokens)": stated(1_000_000),
    "context budget of 64000 tokens exhausted by the input": stated(64_000),
    "The messages exceed the model's token capacity.": NONE_STATED,
    "Your prompt does not fit in the model's context.": NONE_STATED,
    "ran out of context while evaluating the prompt": NONE_STATED,
    "request would not fit in the context window": NONE_STATED,
    "Input sequence too long for model": NONE_STATED,
    # as strict, chatty and terse servers might say it
    "You provided 12,400 tokens. This deployment has a window of 8,192 tokens.": stated(8192, 12_400),
    "Context size 4096, prompt size 5120 tokens": stated(4096, 5120),
    "Requested context (40960) is above the configured context (32768)": stated(32_768, 40_960),
    "we only support 100000 tokens per conversation context and yours is 120000": stated(100_000, 120_000),
    "tokenized prompt length 3000 > n_ctx 2048": stated(2048, 3000),
    "Prompt of 65 540 tokens is more than the model's 65 536": stated(65_536, 65_540),
    "Sorry! That's 9001 tokens of input and I can hold 8000.": stated(8000, 9001),
    "max_input_tokens: 1048576, input_tokens: 1200000": stated(1_048_576, 1_200_000),
    "The number of input tokens (300,000) has to be smaller than 262,144": stated(262_144, 300_000),
    "ERR_CTX_LEN: have 5000 tokens, want no more than 4096": stated(4096, 5000),
    "input is 2,000 tokens over the limit of 32,000 tokens": stated(32_000),
    "This chat is too big: 250_000 tokens, the ceiling is 200_000": stated(200_000, 250_000),
    "model window 8192 is insufficient for the 8999 tokens in the request": stated(8192, 8999),
    "The text is 17000 tokens but the transformer was trained with a sequence length of 16384 tokens": stated(
        16_384, 17_000
    ),
    "6000 prompt tokens + 3000 completion tokens > 8192 context tokens": stated(8192, 6000, 3000),
    "Prompt (6000 tokens) and requested completion (3000 tokens) together exceed 8192 tokens": stated(8192, 6000, 3000),
    "You asked for up to 4,000 output tokens on top of 6,000 input tokens; the context is limited to 8,192": stated(
        8192, 6000, 4000
    ),
    "a prompt with 35000 tokens was rejected since the model's context is 32k tokens": stated(32_000, 35_000),
    "Tokens in messages: 130500. Limit: 128000.": stated(128_000, 130_500),
    "messages tokenised to 9000, exceeding context_len 8192": stated(8192, 9000),
    "request rejected: 9000 input tokens, window=8192": stated(8192, 9000),
    "Prompt too large. Maximum: 8192 tokens. Actual: 9000 tokens.": stated(8192, 9000),
    "Context limit reached: 200000 tokens": stated(200_000),
    "Please shorten your prompt to at most 30,000 tokens": stated(30_000),
    "history of 9000 tokens can't be squeezed into 8192 tokens of context": stated(8192, 9000),
    "The prompt has more tokens than the context can hold.": NONE_STATED,
    "prompt larger than context window": NONE_STATED,
    "Your messages are too long for this model, please start a new chat.": NONE_STATED,
    "input tokens over model limit": NONE_STATED,
    "the conversation has outgrown the context window": NONE_STATED,
    "Exceeded maximum sequence length of the model": NONE_STATED,
    "context is full, prompt cannot be processed": NONE_STATED,
    # as libraries might say it
    "Invalid request: prompt length 41,203 tokens is greater than the model's context length 40,960.": stated(
        40960, 41203
    ),
    "status 422: Validation failed: `messages` total 18250 tokens; model limit 16384.": stated(16384, 18250),
    "The message you submitted was too long, please reload the conversation and submit something shorter.": NONE_STATED,
    "BadRequest: requested 5500 tokens which exceeds this model's context window of 4096": stated(4096, 5500),
    "ContextLimitError: 205312 > 200000": stated(200000, 205312),
    "Your input has 33,120 tokens. The maximum is 32,768.": stated(32768, 33120),
    "error: prompt (9216 tokens) + n_predict (1024) > n_ctx (8192)": stated(8192, 9216, 1024),
    "Error 400: total tokens exceeded. total_tokens=9500, max_total_tokens=8192": stated(8192, 9500),
    "We could not process your request because it has 150,321 tokens, exceeding our limit of 131,072 tokens.": stated(
        131072, 150321
    ),
    "Input is longer than the maximum number of tokens this model can take (8192).": stated(8192),
    "model context length (8192) is smaller than prompt length (9000)": stated(8192, 9000),
    "Model's context window has been exceeded. Try again with a shorter prompt.": NONE_STATED,
    "The chat history has grown to 70k tokens, which is more than the 64k tokens supported": stated(64000),
    "Max context length reached: 32768": stated(32768),
    "Generation aborted: context length of 4096 tokens exceeded by prompt": stated(4096),
    "too many input tokens: 300000 (max 262144)": stated(262144, 300000),
    "input_tokens must be less than 4097, got 6000": stated(4097, 6000),
    "Prompt tokens (5,120) exceed max sequence length (4,096).": stated(4096, 5120),
    "The request is too large for the model: 9,400 tokens vs. a context size of 8,192": stated(8192, 9400),
    "Text generation failed: the length of the input (2500 tokens) exceeds the limit (2048 tokens)": stated(2048, 2500),
    "KeyError: 'choices' - {'detail': 'Requested 12000 tokens, but this host only has a context of 8192'}": stated(
        8192, 12000
    ),
    "unprocessable: `prompt` is 17,010 tokens and `max_tokens` is 2,000, but the model only processes 16,384": stated(
        16384, 17010, 2000
    ),
    "Context window exceeded: used 1.050.000 of 1.048.576 tokens": stated(1048576, 1050000),
    "HTTP 413 Payload Too Large: prompt has 210000 tokens, model max is 200000": stated(200000, 210000),
    "Your prompt is 12,345 tokens, but the largest prompt we accept is 10,000 tokens.": stated(10000, 12345),
    "Failed to generate: context size (2048) exceeded, prompt is 2200 tokens": stated(2048, 2200),
    "ValueError: Requested 3000 tokens in prompt, model was loaded with n_ctx=2048": stated(2048, 3000),
    "Bad request: messages too long (got 140000 tokens; context length 131072)": stated(131072, 140000),
    "The input prompt has 5000 tokens and max new tokens is 500, total 5500 exceeds max sequence length 5120": stated(
        5120, 5500, 500
    ),
    "Error: This request needs 45000 tokens of context but only 32768 are available": stated(32768, 45000),
    "Inference failed: sequence length 9000 is greater than max_seq_len 8192": stated(8192, 9000),
    "tokens (9000) exceed the allowed 8192 per context": stated(8192, 9000),
    "Conversation is too long. Limit 100,000 tokens. Current 104,200 tokens.": stated(100000, 104200),
    "input_length: 70000 > max_input_length: 65536": stated(65536, 70000),
    "400: The sum of prompt tokens (7000) and max_tokens (2000) exceeds the model's limit (8192)": stated(
        8192, 7000, 2000
    ),
    "The model has a maximum context of 8192 tokens. Your query used 8400 tokens.": stated(8192, 8400),
    "Query too long: 20480 tokens, limit: 16384 tokens": stated(16384, 20480),
    "model_error: prompt length must not exceed 4096 tokens (was 4500)": stated(4096, 4500),
    "Prompt is 1200 tokens too long for the 8192 token context": stated(8192),
    "InvalidRequestError: context limit 32768 hit with 33000 tokens": stated(32768, 33000),
    "messages length 50000 tokens is out of range, must be between 1 and 32768": stated(32768, 50000),
    "request payload holds 131,500 tokens whereas the model's window holds 131,072": stated(131072, 131500),
    "maximum context length of 16,384 tokens exceeded: 16,900 tokens": stated(16384, 16900),
    "Your request was too large for the model's context window (200,000 tokens).": stated(200000),
    "Unable to complete: document plus question is 52,000 tokens; this model tops out at 32,000 tokens.": stated(
        32000, 52000
    ),
    "Context overflow: 9100/8192 tokens": stated(8192, 9100),
    "The request was refused because the prompt (18,432 tokens) is bigger than the 16,384 tokens supported": stated(
        16384, 18432
    ),
    "error_code=INPUT_TOO_LONG limit=30000 actual=34567": stated(30000, 34567),
    "prompt truncated is disabled and the prompt has 2,600 tokens (window 2,048)": stated(2048, 2600),
    "Length of input + output tokens (4000 + 1000) exceeds context length 4096": stated(4096, 4000, 1000),
    "Sorry, I can only read 8000 tokens at a time and this conversation is 9500 tokens": stated(8000, 9500),
    "this request would use 133,000 tokens; the model's context window only has room for 128,000": stated(
        128000, 133000
    ),
    "tokenizer produced 6144 input tokens which is more than max_prompt_tokens 4096": stated(4096, 6144),
    "Please reduce your input: it is 40000 tokens and the allowed size is 32768 tokens": stated(32768, 40000),
    "validation error: number of prompt tokens must be at most 8192, but is 8300": stated(8192, 8300),
    "Chat exceeds the token limit of 64000 for this model": stated(64000),
    "the engine's context of 4096 cannot hold a prompt of 5000": stated(4096, 5000),
    "LLM error: input of 70123 tokens > 65536": stated(65536, 70123),
    "You have reached the maximum length for this conversation.": NONE_STATED,
}
