"""What a request costs: lookup and prefill time, with the reference's rounding."""

import numpy as np

from pipeline.kernel import kernel

TICKS_PER_MS = 10_000.0
CENTS_PER_MS = 100.0


@kernel
def rounded(value, scale):
    """Return round(value, digits) * scale as an integer, for scale = 10**digits.

    Python rounds the exact binary value, halves to even; `product` alone would already be
    rounded once. Its error is exact (Dekker's product; `scale` has few enough bits).
    """
    product = value * scale
    cut = 134217729.0 * value
    high = cut - (cut - value)
    error = (high * scale - product) + (value - high) * scale
    whole = np.floor(product)
    beyond_half = (product - whole - 0.5) + error
    if beyond_half > 0.0 or (beyond_half == 0.0 and whole % 2.0 == 1.0):
        whole += 1.0
    return np.int64(whole)


@kernel
def exec_ticks(prompt_tokens, matched_tokens, cost):
    """Return matched x lookup + computed x prefill, rounded to 0.0001 ms, in ticks."""
    lookup_ms = matched_tokens * cost.lookup_ms_per_token
    prefill_ms = (prompt_tokens - matched_tokens) * cost.prefill_ms_per_token
    return rounded(lookup_ms + prefill_ms, TICKS_PER_MS)


@kernel
def decode_ticks(output_tokens, cost):
    """Return how long the output takes from the first token on, in ticks."""
    return np.int64(np.rint(output_tokens * cost.decode_ms_per_token * TICKS_PER_MS))


@kernel
def ttft_cents(queue_ticks, request_ticks):
    """Return queue wait + execution, rounded to 0.01 ms, in hundredths of a ms."""
    return rounded(queue_ticks / TICKS_PER_MS + request_ticks / TICKS_PER_MS, CENTS_PER_MS)
