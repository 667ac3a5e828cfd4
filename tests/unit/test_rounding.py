"""Kernels round as Python does: the exact binary value, halves to even."""

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import numpy as np
import pytest
from engine import replay_engine, seeded
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.replay.cost import CENTS_PER_MS, TICKS_PER_MS, exec_ticks, rounded, ttft_cents
from pipeline.replay.records import REPLICA

law = settings(max_examples=400, deadline=None)
ticks = st.integers(0, 10**13)

UNITS = (1 / 20_000, 1 / 200, 0.0015, 0.025, 0.00005, 0.00137, 0.02513, 1 / 3)
"""Multiples of these lie on or beside a half of the last digit."""


def replica_with(lookup_ms_per_token: float, prefill_ms_per_token: float) -> Any:
    """Return a replica with these costs."""
    replica = np.zeros(1, REPLICA)
    replica["lookup_ms_per_token"] = lookup_ms_per_token
    replica["prefill_ms_per_token"] = prefill_ms_per_token
    return replica[0]


def exactly(value: float, digits: int) -> int:
    """Round the value that the double really has, without a float on the way."""
    unit = Decimal(1).scaleb(-digits)
    return int(Decimal(value).quantize(unit, ROUND_HALF_EVEN).scaleb(digits))


def check_rounding(value: float) -> None:
    for scale, digits in ((TICKS_PER_MS, 4), (CENTS_PER_MS, 2)):
        told = rounded(value, scale)
        assert told == exactly(value, digits), value
        assert told / scale == round(value, digits), value


@law
@given(st.floats(0, 1e9))
@example(0.0)
@example(5e-324)
@example(0.00005)
@example(0.00015)
@example(0.125)
@example(0.49999999999999994)
@example(1e9)
def test_any_time_is_rounded_as_python_rounds_it(value: float) -> None:
    check_rounding(value)


@law
@given(unit=st.sampled_from(UNITS), count=st.integers(0, 10**9))
def test_halves_of_the_last_digit_are_rounded_as_python_rounds_them(
    unit: float, count: int
) -> None:
    check_rounding(unit * count)


def test_a_hundred_thousand_times_are_rounded_as_python_rounds_them() -> None:
    rng = seeded(26)
    for _ in range(50_000):
        value = rng.randint(0, 10 ** rng.randint(1, 8)) * rng.choice(UNITS)
        assert rounded(value, TICKS_PER_MS) == round(round(value, 4) * 1e4), value
        assert rounded(value, CENTS_PER_MS) == round(round(value, 2) * 1e2), value


def test_dyadic_halves_go_to_the_even_digit() -> None:
    assert [rounded(n / 8, CENTS_PER_MS) for n in (1, 3, 5, 7)] == [12, 38, 62, 88]
    assert [rounded(n / 32, TICKS_PER_MS) for n in (1, 3, 5, 7)] == [312, 938, 1562, 2188]


@law
@given(
    prompt=st.integers(0, 2**32 - 1),
    share=st.floats(0, 1),
    prefill=st.one_of(st.sampled_from(UNITS), st.floats(0, 0.2)),
    lookup=st.one_of(st.sampled_from(UNITS), st.floats(0, 0.2)),
)
def test_work_is_rounded_as_python_rounds_the_sum_of_lookup_and_prefill(
    prompt: int, share: float, prefill: float, lookup: float
) -> None:
    matched = int(prompt * share)
    cost = replica_with(lookup, prefill)
    told = exec_ticks(prompt, matched, cost)
    assert told / 1e4 == round(matched * lookup + (prompt - matched) * prefill, 4)


@law
@given(queue=ticks, work=ticks)
@example(queue=0, work=250)
@example(queue=750, work=0)
def test_ttft_is_rounded_as_python_rounds_queue_and_work(queue: int, work: int) -> None:
    assert ttft_cents(queue, work) / 100 == round(queue / 1e4 + work / 1e4, 2)


def test_short_prompts_have_pythons_ttft_at_every_match() -> None:
    cost = replica_with(0.0015, 0.025)
    pairs = [(prompt, matched) for prompt in range(1, 41) for matched in range(prompt + 1)]
    assert len(pairs) == 860
    for prompt, matched in pairs:
        exec_ms = round(matched * 0.0015 + (prompt - matched) * 0.025, 4)
        told = exec_ticks(prompt, matched, cost)
        assert (told / 1e4, ttft_cents(0, told) / 100) == (exec_ms, round(exec_ms, 2))


@pytest.mark.parametrize(
    ("prompt", "matched", "ttft_ms"),
    [(1, 0, 0.03), (3, 0, 0.07), (5, 0, 0.12), (7, 0, 0.17), (10, 10, 0.01)],
)
def test_a_decision_carries_pythons_rounding(prompt: int, matched: int, ttft_ms: float) -> None:
    trace = [tuple(range(matched)), tuple(range(prompt))]
    told = replay_engine(trace, policy="cache_aware", replicas=1, capacity_tokens=16).decisions[1]
    assert (told.matched_tokens, told.ttft_ms) == (matched, ttft_ms)
