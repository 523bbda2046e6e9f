"""A tiny random language model over a real vocabulary, as a GGUF file."""

from itertools import pairwise

import gguf
import numpy as np
import quicktok

ENCODING = "qwen3"  # byte-level BPE whose pre-tokenizer llama.cpp knows as "qwen2"
VOCABULARY_SIZE = 16_384  # the first merges of a BPE vocabulary are closed: this prefix is a real tokenizer of its own
# answers babble; only sizes and errors matter
EMBEDDING, LAYERS, HEADS, FEED_FORWARD = (32, 2, 2, 64)
CONTEXT_LENGTH = 32_768  # larger than any window that is asked of it
WEIGHT_SCALE = 0.05  # keeps activations finite
START, END = "<|im_start|>", "<|im_end|>"
NORMAL, CONTROL = 1, 3  # llama.cpp's token types
CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool.function | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
call {{ call.function.name }} {{ call.function.arguments }}
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_model(path):
    """Write the model to `path`; the same bytes each time, in about half a second and 2 MB."""
    writer = gguf.GGUFWriter(path, "llama")
    _add_vocabulary(writer)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(EMBEDDING // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    _add_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer):
    encoding = quicktok.get_encoding(ENCODING)
    pieces = [
        encoding.decode_single_token_bytes(rank) for rank in range(VOCABULARY_SIZE)
    ]
    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    printable = _printable_bytes()
    merges = [_merge_of(piece, ranks) for piece in pieces if len(piece) > 1]
    writer.add_vocab_size(VOCABULARY_SIZE + 2)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([_show(piece, printable) for piece in pieces] + [START, END])
    writer.add_token_types([NORMAL] * VOCABULARY_SIZE + [CONTROL] * 2)
    writer.add_token_merges(
        [" ".join(_show(half, printable) for half in halves) for halves in merges]
    )
    writer.add_bos_token_id(VOCABULARY_SIZE)
    writer.add_eos_token_id(VOCABULARY_SIZE + 1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _merge_of(piece, ranks):
    """Return the two halves whose merge made `piece`: what BPE leaves when that merge is still to come."""
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        best = pairs.index(min(pairs))
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def _printable_bytes():
    """Return GPT-2's mapping of bytes to visible characters, which GGUF vocabularies use."""
    visible = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {
        byte: chr(256 + i) for i, byte in enumerate(hidden)
    }


def _show(piece, printable):
    return "".join(printable[byte] for byte in piece)


def _add_weights(writer):
    rng = np.random.default_rng(0)
    writer.add_tensor("output_norm.weight", np.ones(EMBEDDING, np.float32))
    shapes = {"token_embd": (VOCABULARY_SIZE + 2, EMBEDDING)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[f"blk.{layer}.{name}"] = (EMBEDDING, EMBEDDING)
        shapes[f"blk.{layer}.ffn_gate"] = shapes[f"blk.{layer}.ffn_up"] = (
            FEED_FORWARD,
            EMBEDDING,
        )
        shapes[f"blk.{layer}.ffn_down"] = (EMBEDDING, FEED_FORWARD)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(
                f"blk.{layer}.{name}.weight", np.ones(EMBEDDING, np.float32)
            )
    for name, shape in shapes.items():
        writer.add_tensor(
            f"{name}.weight",
            (rng.standard_normal(shape) * WEIGHT_SCALE).astype(np.float16),
        )
