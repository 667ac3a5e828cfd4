"""What became of each prompt's tokens: found in the cache, or computed, and for which reason."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def token_split(
    prompt_tokens: NDArray[np.integer], decisions: NDArray[Any]
) -> dict[str, NDArray[np.int64]]:
    """Split prompts by loop.DECISION rows, one item a request, under the contract's names.

    matched + computed = prompt and cold + evicted missed + elsewhere = computed, for requests
    that were served.
    """
    prompts = prompt_tokens.astype(np.int64)
    matched, best = decisions["matched_tokens"], decisions["best_matched_tokens"]
    ever = decisions["ever_tokens"]
    return {
        "matched_tokens": matched,
        "computed_tokens": prompts - matched,
        "cold_tokens": prompts - ever,
        "evicted_tokens_missed": ever - best,
        "elsewhere_tokens": best - matched,
    }
