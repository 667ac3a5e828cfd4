"""The properties of routers are worth something: each fault planted in their oracle is told."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
import router_absence_faults
import router_number_faults
import router_view_faults
from router_engine import Told, check_same, told_by_kernels
from router_runs import Case, random_case, told_by_oracle

RUNS = 400

Plant = Callable[[pytest.MonkeyPatch], None]


class Run(NamedTuple):
    case: Case
    told: Told


@cache
def run(seed: int) -> Run:
    """Serve the same random case every time, for all faults once."""
    case = random_case(seed)
    return Run(case, told_by_kernels(case))


def differs(seed: int) -> bool:
    case, told = run(seed)
    try:
        check_same(case, told, told_by_oracle(case))
    except AssertionError:
        return True
    return False


def test_without_a_fault_kernels_and_oracle_agree() -> None:
    assert [seed for seed in range(RUNS) if differs(seed)] == []


@pytest.mark.parametrize(
    "plant",
    [*router_view_faults.PLANTS, *router_absence_faults.PLANTS, *router_number_faults.PLANTS],
)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(map(differs, range(RUNS)))
