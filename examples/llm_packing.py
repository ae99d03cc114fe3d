"""Data for pretraining a language model: two corpora are mixed by weight and packed into rows.

    python examples/llm_packing.py

The texts are generated, and the tokens are bytes. A real program reads tokens from files: see
`wholegrain.sources`.
"""

import json
from typing import Any

import numpy as np

import wholegrain as wg
from wholegrain import experimental

ROW = 256  # tokens
BATCH_SIZE = 8
BOS, OFFSET = 1, 2  # 0 is padding, 1 starts a document, and byte b is token b + 2


def make_corpus(words: list[str], count: int, seed: int) -> list[str]:
    """Return documents of widely varying lengths."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(2.5, 0.8, count).astype(int) + 1
    return [" ".join(rng.choice(words, length)) for length in lengths]


def tokenize(text: str) -> np.ndarray:
    """Return a document as tokens."""
    tokens = np.frombuffer(text.encode(), np.uint8).astype(np.int32) + OFFSET
    return np.concatenate([[np.int32(BOS)], tokens])


def to_features(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of a model and the targets that it has to predict."""
    tokens = tokens[: ROW + 1]
    return {"inputs": tokens[:-1], "targets": tokens[1:]}


def pipeline() -> wg.IterDataset[Any]:
    """Return an infinite stream of batches of packed rows."""
    poems = make_corpus(["barley", "moon", "field", "slow", "the", "of"], 500, seed=1)
    manuals = make_corpus(["press", "button", "valve", "open", "then", "release"], 3000, seed=2)
    corpora = [
        wg.MapDataset.source(poems).seed(1).shuffle().repeat(),
        wg.MapDataset.source(manuals).seed(2).shuffle().repeat(),
    ]
    documents = wg.MapDataset.mix(corpora, weights=[0.3, 0.7]).map(tokenize).map(to_features)
    packed = experimental.FirstFitPackIterDataset(
        documents.to_iter_dataset(),
        length_struct={"inputs": ROW, "targets": ROW},
        num_packing_bins=64,
        seed=3,
    )
    return packed.batch(BATCH_SIZE)


def attention_mask(segment_ids: np.ndarray) -> np.ndarray:
    """Return a causal mask that also restricts attention to the same document."""
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return same & (segment_ids[:, :, None] > 0) & np.tri(segment_ids.shape[1], dtype=bool)


def main() -> None:
    """Print some batches, and resume from the middle."""
    ds = pipeline()
    it = iter(ds)
    batch = next(it)
    for name, array in sorted(batch.items()):
        print(f"{name:20} {array.dtype} {array.shape}")

    row = batch["inputs"][0]
    length = int((batch["inputs_segment_ids"][0] == 1).sum())
    print("a document: ", bytes((row[1:length] - OFFSET).astype(np.uint8)).decode()[:60], "...")
    print("its targets:", bytes((batch["targets"][0][: length - 1] - OFFSET).astype(np.uint8))[:20])
    mask = attention_mask(batch["inputs_segment_ids"])
    print(f"attention mask       {mask.dtype} {mask.shape}")

    segments = [next(it)["inputs_segment_ids"] for _ in range(50)]
    filled = np.mean([(ids > 0).mean() for ids in segments])
    documents = np.mean([ids.max(axis=1).mean() for ids in segments])
    print(f"{filled:.1%} of the tokens are not padding; {documents:.1f} documents per row")

    state = json.dumps(it.get_state())
    expected = [next(it) for _ in range(5)]
    resumed = iter(ds)
    resumed.set_state(json.loads(state))
    for batch in expected:
        again = next(resumed)
        assert all((batch[name] == again[name]).all() for name in batch)
    print(f"Resumed from {len(state)} bytes of state: the same batches follow.")


if __name__ == "__main__":
    main()
