"""The samples of the benchmark: token ids, which every source can hold."""

from typing import Final

import numpy as np

from workloads.base import Arrays, DataSpec, Field, generate_blocks

ITEM_BYTES: Final = 4
VOCABULARY: Final = 50257
"""That of GPT-2: its ids need 16 bits, and hardly compress."""


def describe_samples(samples: int, sample_bytes: int, seed: int) -> DataSpec:
    """Return the description of samples of `sample_bytes`, rounded down to whole tokens of four bytes."""
    return DataSpec(
        workload="input",
        fields=(Field(name="tokens", shape=(max(1, sample_bytes // ITEM_BYTES),), dtype="int32"),),
        samples=samples,
        seed=seed,
        parameters={"vocab_size": VOCABULARY},
    )


class RandomTokens:
    """Generates uniformly distributed token ids."""

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return samples [start, stop)."""
        (field,) = spec.fields

        def block(number: int) -> Arrays:
            random = np.random.default_rng((spec.seed, number))
            return {field.name: random.integers(0, VOCABULARY, (spec.block_samples, *field.shape), np.int32)}

        return generate_blocks(spec, start, stop, block)
