"""`seeds`: what chooses at random is replayed again, beside the first seed, and compared."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest
from command import replay_here, replay_ok
from engine_days import busy, random_day, write_day
from samples import names_in, parquet_bytes

from pipeline.config import ReplayConfig, RoutingConfig
from pipeline.report import open_run
from pipeline.run import replay_trace
from pipeline.run_folder import TABLES, table_file

BY_CHANCE = ("random", "power_of_two", "prefix_aware", "cache_aware:tie=random")
OTHERS = ("round_robin", "cache_aware", "prefix_aware:tie=lowest", "aibrix:tie=rotate", "session")
FIRST = 5
SEEDS = dict.fromkeys(OTHERS, 1) | dict.fromkeys(BY_CHANCE, 3)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_day(tmp_path_factory.mktemp("seeds") / "day.parquet", random_day(3, 120))


def asked(seeds: int, first: int = FIRST, policies: Sequence[str] = BY_CHANCE) -> ReplayConfig:
    return replace(busy("reference", *policies), routing=RoutingConfig(seed=first, seeds=seeds))


@pytest.fixture(scope="module")
def run(trace: Path) -> Path:
    """Return a run with three seeds, only to be read."""
    target = trace.with_name("run")
    replay_trace(trace, target, asked(3, policies=(*OTHERS, *BY_CHANCE)))
    return target


def file_of(table: str, policy: str) -> str:
    return str(table_file(Path(), table, policy))


def test_only_what_chooses_at_random_is_replayed_again(run: Path) -> None:
    assert names_in(run) == {*TABLES, "run.json", "seeds"}
    assert names_in(run / "seeds") == {f"seed={FIRST + 1}", f"seed={FIRST + 2}"}
    content = parquet_bytes(run)
    assert len(content) == 3 * (len(OTHERS) + 3 * len(BY_CHANCE))
    for seed in names_in(run / "seeds"):
        again = {file_of(table, policy) for table in TABLES for policy in BY_CHANCE}
        assert parquet_bytes(run / "seeds" / seed).keys() == again


@pytest.mark.parametrize("seed", range(3))
def test_each_seed_decides_as_in_a_run_of_its_own(
    trace: Path, run: Path, tmp_path: Path, seed: int
) -> None:
    replay_trace(trace, tmp_path / "alone", asked(1, FIRST + seed))
    alone = parquet_bytes(tmp_path / "alone")
    place = f"seeds/seed={FIRST + seed}/" if seed else ""
    content = parquet_bytes(run)
    assert len(alone) == 3 * len(BY_CHANCE)
    assert {name: content[place + name] for name in alone} == alone


def test_another_seed_decides_otherwise(run: Path) -> None:
    content = parquet_bytes(run)
    for policy in BY_CHANCE:
        name = file_of("decisions", policy)
        places = ("", f"seeds/seed={FIRST + 1}/", f"seeds/seed={FIRST + 2}/")
        assert len({content[place + name] for place in places}) == 3


def test_decisions_of_every_seed_are_one_view(run: Path) -> None:
    views = open_run(run)
    rows = views.sql(
        "select policy, seed, count(*), count(distinct seq) from seed_decisions group by all"
    ).fetchall()
    wanted = [(policy, FIRST + n, 120, 120) for policy in SEEDS for n in range(SEEDS[policy])]
    assert sorted(rows) == sorted(wanted)
    first = views.sql(
        "select * exclude (seed) from seed_decisions where seed = 5 order by policy, seq"
    ).fetchall()
    assert first == views.sql("select * from decisions order by policy, seq").fetchall()
    assert views.sql("select count(*) from decisions").fetchall() == [(120 * len(SEEDS),)]


def test_the_report_has_mean_and_spread_of_the_seeds(run: Path) -> None:
    rows = json.loads(replay_ok("report", run, "seeds", "--format", "json"))
    told = {row["policy"]: row for row in rows}
    assert set(told) == {*OTHERS, *BY_CHANCE}
    hits: dict[str, list[float]] = {}
    for policy, ratio in open_run(run).sql(
        "select policy, sum(matched_tokens) / sum(prompt_tokens)"
        " from seed_decisions where outcome = 'served' group by policy, seed"
    ).fetchall():  # fmt: skip
        hits.setdefault(policy, []).append(ratio)
    for policy in BY_CHANCE:
        row, ratios = told[policy], hits[policy]
        assert row["seeds"] == len(ratios) == 3
        assert row["mean_cache_hit_ratio"] == round(fmean(ratios), 4)
        assert row["stddev_cache_hit_ratio"] == round(stdev(ratios), 4) > 0
        assert row["min_cache_hit_ratio"] == round(min(ratios), 4)
        assert row["max_cache_hit_ratio"] == round(max(ratios), 4)
        assert row["min_mean_ttft_ms"] <= row["mean_mean_ttft_ms"] <= row["max_mean_ttft_ms"]
    for policy in OTHERS:
        row, [ratio] = told[policy], hits[policy]
        assert (row["seeds"], row["stddev_cache_hit_ratio"]) == (1, None)
        assert row["mean_cache_hit_ratio"] == round(ratio, 4)


def test_a_run_with_fewer_seeds_leaves_no_old_one_behind(trace: Path, tmp_path: Path) -> None:
    target = tmp_path / "run"
    replay_trace(trace, target, asked(3, policies=("random",)))
    assert names_in(target / "seeds") == {"seed=6", "seed=7"}
    replay_trace(trace, target, asked(2, policies=("random",)))
    assert names_in(target / "seeds") == {"seed=6"}
    replay_trace(trace, target, asked(2, first=0, policies=("random",)))
    assert names_in(target / "seeds") == {"seed=1"}
    replay_trace(trace, target, asked(1, policies=("random",)))
    assert names_in(target) == {*TABLES, "run.json"}
    replay_trace(trace, target, asked(3, policies=("round_robin",)))
    assert names_in(target) == {*TABLES, "run.json"}


def test_run_json_tells_each_replay_and_how_often_a_policy_was_replayed(run: Path) -> None:
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    lanes = [(lane["policy"], lane["seed"]) for lane in about["lanes"]]
    assert len(lanes) == len(set(lanes)) == len(OTHERS) + 3 * len(BY_CHANCE)
    seeds = {one["policy"]: one["seeds"] for one in about["config"]["chosen_policies"]}
    assert seeds == SEEDS
    assert set(about["totals"]) == {*OTHERS, *BY_CHANCE}
    totals = about["totals"]["random"]
    [(matched,)] = open_run(run).sql(
        "select sum(matched_tokens) from decisions where policy = 'random'"
    ).fetchall()  # fmt: skip
    assert totals["matched_tokens"] == matched


def test_the_command_replays_so_many_seeds(trace: Path, tmp_path: Path) -> None:
    done = replay_here(
        "run", trace, "-o", tmp_path / "run", "--policy", "random", "--policy", "round_robin",
        "--replicas", "2", "--capacity-tokens", "16", "--seeds", "3", "--seed", "9",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path / "run" / "seeds") == {"seed=10", "seed=11"}
