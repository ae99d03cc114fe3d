"""A small JAX training loop whose model and data are saved together with Orbax.

It trains once without interruption and once with a stop halfway, and compares the weights. They are
equal bit for bit, because the second run reads exactly the batches that the first one read.

    pip install 'wholegrain[orbax]'
    python examples/jax_orbax.py
"""

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import wholegrain as wg
from wholegrain.checkpoint import CheckpointRestore, CheckpointSave

BATCH_SIZE = 64
NUM_STEPS = 300
SAVE_EVERY = 50
STOP_AT = 170  # the steps after the checkpoint at step 150 are lost and repeated


# The data: points on two spirals, labelled with their spiral.


def read_point(index: int) -> dict[str, Any]:
    """Return a point and the number of its spiral."""
    spiral = index % 2
    angle = 0.5 + index / 1500
    point = angle * np.array([np.cos(angle + np.pi * spiral), np.sin(angle + np.pi * spiral)])
    return {"x": point.astype(np.float32), "y": np.int32(spiral)}


def jitter(element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Move a point a little."""
    noise = rng.normal(0, 0.05, 2).astype(np.float32)
    return {**element, "x": element["x"] + noise}


def pipeline() -> wg.IterDataset[Any]:
    """Return the infinite stream of batches for this process."""
    shard = wg.sharding.ShardByJaxProcess()
    return (
        wg.MapDataset.range(4000)[shard.shard_index :: shard.shard_count]
        .seed(42)
        .shuffle()
        .map(read_point)
        .random_map(jitter)
        .repeat()
        .batch(BATCH_SIZE // shard.shard_count)
        .to_iter_dataset()
    )


# The model: two layers.


def initial_weights() -> dict[str, jax.Array]:
    """Return the weights before the first step."""
    one, two = jax.random.split(jax.random.key(0))
    return {
        "w1": jax.random.normal(one, (2, 64)),
        "b1": jnp.zeros(64),
        "w2": jax.random.normal(two, (64, 2)) / 64,
        "b2": jnp.zeros(2),
    }


def loss_of(weights: dict[str, jax.Array], batch: dict[str, Any]) -> jax.Array:
    """Return the mean cross entropy of a batch."""
    hidden = jnp.tanh(batch["x"] @ weights["w1"] + weights["b1"])
    logits = jax.nn.log_softmax(hidden @ weights["w2"] + weights["b2"])
    return -jnp.take_along_axis(logits, batch["y"][:, None], axis=1).mean()


@jax.jit
def train_step(
    weights: dict[str, jax.Array], batch: dict[str, Any]
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return updated weights, and the loss before the update."""
    loss, gradients = jax.value_and_grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), loss


# The loop.


def train(directory: Path, stop_at: int = NUM_STEPS) -> dict[str, jax.Array]:
    """Train from the last checkpoint in `directory`, or from the beginning."""
    weights, it = initial_weights(), iter(pipeline())
    step = 0
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(directory, options=options) as manager:
        if (latest := manager.latest_step()) is not None:
            restored = manager.restore(
                latest,
                args=ocp.args.Composite(
                    weights=ocp.args.StandardRestore(weights), data=CheckpointRestore(it)
                ),
            )
            step, weights = latest, restored["weights"]
            print(f"  resumes after step {step}")
        while step < stop_at:
            weights, loss = train_step(weights, next(it))
            step += 1
            if step % SAVE_EVERY == 0:
                # Both parts are captured now, even if they are written in the background.
                manager.save(
                    step,
                    args=ocp.args.Composite(
                        weights=ocp.args.StandardSave(weights), data=CheckpointSave(it)
                    ),
                )
                print(f"  step {step}: loss {float(loss):.3f}, saved")
    return weights


def main() -> None:
    """Train with and without an interruption, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        print("Without interruption:")
        expected = train(Path(folder, "whole"))
        print(f"Stopped at step {STOP_AT}:")
        train(Path(folder, "stopped"), stop_at=STOP_AT)
        print("Started again:")
        weights = train(Path(folder, "stopped"))
    same = all(bool((weights[name] == expected[name]).all()) for name in expected)
    print("The weights are equal bit for bit." if same else "The weights differ.")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
