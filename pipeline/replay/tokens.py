"""What became of each prompt's tokens: found in the cache, or computed, and for which reason."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.replay.serve import SERVED


@dataclass(frozen=True)
class Decided:
    """A batch of decisions, one item a request, in order of seq.

    rows    loop.DECISION
    tokens  what token_split returns; means nothing for a request that was rejected
    """

    seq: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    rows: NDArray[Any]
    tokens: dict[str, NDArray[np.int64]]

    def part(self, which: slice | NDArray[np.bool_]) -> Self:
        """Return some of the batch."""
        tokens = {name: values[which] for name, values in self.tokens.items()}
        return type(self)(self.seq[which], self.prompt_tokens[which], self.rows[which], tokens)

    def served(self) -> Self:
        """Return the requests that were served."""
        return self.part(self.rows["outcome"] == SERVED)


def token_split(
    prompt_tokens: NDArray[np.int64], rows: NDArray[Any], block_tokens: int
) -> dict[str, NDArray[np.int64]]:
    """Split prompts by loop.DECISION rows, one item a request, under the contract's names.

    matched + computed = prompt and cold + evicted missed + elsewhere + recomputed = computed, for
    requests that were served. What was computed once beyond whole blocks counts as resident
    where the blocks before it are, unless it was kept as a partial block.
    """
    matched, ever = rows["matched_tokens"], rows["ever_tokens"]
    blocks = np.where(rows["kept_once"], ever, ever // block_tokens * block_tokens)
    here, best = rows["resident_tokens_here"], rows["resident_tokens_best"]
    here, best = (np.where(held >= blocks, ever, held) for held in (here, best))
    return {
        "matched_tokens": matched,
        "computed_tokens": prompt_tokens - matched,
        "cold_tokens": prompt_tokens - ever,
        "evicted_tokens_missed": ever - best,
        "elsewhere_tokens": best - here,
        "recomputed_tokens": here - matched,
    }
