"""fleet.toml and policies.toml: what they mean, and how they are refused."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.config import Absence, FleetConfig, ReplicaConfig
from pipeline.errors import UsageError
from pipeline.moments import moment_us
from pipeline.toml_files import read_fleet, read_policies

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
NOON_US = round(NOON.timestamp()) * 1_000_000
MINUTE_US = 60_000_000
EVERYTHING = """
[[replicas]]            # the old machines
count = 2
[[replicas]]
capacity_tokens = 400_000
speed = 1.5
[[absent]]
replicas = [0, 2]
from = "10:00"
to = "10:20"
kind = "crash"
[[absent]]
replicas = 1
from = "+30m"
kind = "drain"
cache = "warm"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "f.toml"
    path.write_text(text, encoding="utf-8")
    return path


def fleet(tmp_path: Path, text: str, replicas: int | None = None) -> FleetConfig:
    return read_fleet(written(tmp_path, text), 1000, replicas)


def test_a_fleet_is_its_groups_in_order_and_its_absences(tmp_path: Path) -> None:
    small, large = ReplicaConfig(1000), ReplicaConfig(400_000, 1.5)
    assert fleet(tmp_path, EVERYTHING) == FleetConfig(
        3,
        1000,
        (small, small, large),
        (
            Absence((0, 2), "10:00", "10:20", "crash"),
            Absence((1,), "+30m", None, "drain", "warm"),
        ),
    )


def test_replicas_that_do_not_differ_are_as_the_options_make_them(tmp_path: Path) -> None:
    text = "[[replicas]]\ncount = 2\ncapacity_tokens = 7\n[[replicas]]\ncapacity_tokens = 7\n"
    assert fleet(tmp_path, text) == FleetConfig(3, 7)
    assert fleet(tmp_path, "[[replicas]]", 1) == FleetConfig(1, 1000)
    twice = ReplicaConfig(1000, 2.0)
    assert fleet(tmp_path, "[[replicas]]\ncount = 2\nspeed = 2") == FleetConfig(
        2, 1000, (twice, twice)
    )


def test_a_file_of_events_alone_leaves_the_number_to_the_option(tmp_path: Path) -> None:
    text = '[[absent]]\nreplicas = 3\nfrom = "10:00"\n'
    away = (Absence((3,), "10:00"),)
    assert fleet(tmp_path, text) == FleetConfig(4, 1000, (), away)
    assert fleet(tmp_path, text, 8) == FleetConfig(8, 1000, (), away)
    with pytest.raises(UsageError, match=r"replicas is 3: give numbers of replicas, 0 to 1, each"):
        fleet(tmp_path, text, 2)


def test_a_number_of_replicas_that_is_not_the_file_s_is_refused(tmp_path: Path) -> None:
    assert fleet(tmp_path, EVERYTHING, 3).replicas == 3
    with pytest.raises(UsageError, match=r"replicas is 4, but .*f.toml describes 3: leave out "):
        fleet(tmp_path, EVERYTHING, 4)


@pytest.mark.parametrize(
    ("literal", "start"),
    [
        ('"2026-03-03 10:00"', "2026-03-03 10:00"),
        ("2026-03-03T10:00:00Z", "2026-03-03T10:00:00+00:00"),
        ("2026-03-03T10:00:00+02:00", "2026-03-03T10:00:00+02:00"),
        ("2026-03-03 10:00:00.5", "2026-03-03T10:00:00.500000"),
        ("2026-03-03", "2026-03-03"),
        ("10:00:00", "10:00:00"),
        ('" 10:00 "', "10:00"),
        ("17", 17),
        ("0", 0),
    ],
)
def test_a_moment_is_kept_as_text_or_as_the_seq_of_a_request(
    tmp_path: Path, literal: str, start: str | int
) -> None:
    [absence] = fleet(tmp_path, f"[[absent]]\nreplicas = 0\nfrom = {literal}").absences
    assert absence == Absence((0,), start)
    assert isinstance(absence.start, type(start))


@pytest.mark.parametrize(
    ("moment", "after_noon_us"),
    [
        ("12:00", 0),  # the first request comes right then
        ("12:01", MINUTE_US),
        ("12:00:30.25", 30_250_000),
        ("11:59", -MINUTE_US),  # has passed: of the trace's first day all the same
        ("00:00", -12 * 60 * MINUTE_US),
        ("14:00+02:00", 0),
        ("13:59+02:00", -MINUTE_US),
        ("12:00Z", 0),
        ("2026-03-03 12:00", 0),
        ("2026-03-03T14:30+02:00", 30 * MINUTE_US),
        ("2026-03-03", -12 * 60 * MINUTE_US),
        ("+0s", 0),
        ("+1.5s", 1_500_000),
        ("+ 30m", 30 * MINUTE_US),
        ("+2h", 120 * MINUTE_US),
        (" +1d ", 24 * 60 * MINUTE_US),
    ],
)
def test_a_moment_is_placed_by_the_first_request(moment: str, after_noon_us: int) -> None:
    assert moment_us(moment, NOON_US) == NOON_US + after_noon_us


def test_times_of_day_before_1970_and_of_relative_traces_are_placed_too() -> None:
    assert moment_us("00:01", 0) == MINUTE_US
    assert moment_us("00:00", -MINUTE_US) == -24 * 60 * MINUTE_US
    assert moment_us("23:58", -MINUTE_US) == -2 * MINUTE_US


@pytest.mark.parametrize(
    ("moment", "after_noon_us"),
    [
        ("12:01", MINUTE_US),
        ("12:00", 24 * 60 * MINUTE_US),  # later than noon: tomorrow's
        ("11:59", (24 * 60 - 1) * MINUTE_US),
        ("+30m", 29 * MINUTE_US),  # counts from the first request
        ("2026-03-03 12:30", 30 * MINUTE_US),
    ],
)
def test_a_time_of_day_may_be_the_next_one_after_another_moment(
    moment: str, after_noon_us: int
) -> None:
    assert moment_us(moment, NOON_US - MINUTE_US, after_us=NOON_US) == NOON_US + after_noon_us


def test_the_seq_of_a_request_is_no_time() -> None:
    assert moment_us(5, NOON_US) is None


@pytest.mark.parametrize(
    "moment", ["", "noon", "9:30", "25:00", "1030", "+30", "+m", "-5m", "+40000d", "2026-13-01"]
)
def test_what_is_no_moment_is_refused(tmp_path: Path, moment: str) -> None:
    with pytest.raises(UsageError, match='is no moment: write "10:00", "2026-03-03 10:00", "'):
        moment_us(moment, 0)
    with pytest.raises(UsageError) as caught:
        fleet(tmp_path, f'[[absent]]\nreplicas = 0\nfrom = "{moment}"')
    assert f"f.toml: [[absent]] 1: from is {moment!r}: write" in str(caught.value)


def scaled(tmp_path: Path, *steps: tuple[str, int]) -> tuple[Absence, ...]:
    tables = [f"[[scale]]\nat = {at}\nreplicas = {count}\n" for at, count in steps]
    return fleet(tmp_path, "\n".join(tables), 8).absences


def test_steps_are_absences_of_the_replicas_beyond(tmp_path: Path) -> None:
    steps = (('"10:00"', 6), ('"12:00"', 4), ('"14:00"', 7), ('"16:00"', 8))
    assert scaled(tmp_path, *steps) == (
        Absence((6,), "10:00", "14:00"),
        Absence((7,), "10:00", "16:00"),
        Absence((4, 5), "12:00", "14:00"),
    )


def test_after_the_last_step_the_fleet_stays_as_it_is(tmp_path: Path) -> None:
    assert scaled(tmp_path, ('"+0s"', 2), ("100", 0), ("200", 6)) == (
        Absence((2, 3, 4, 5), "+0s", 200),
        Absence((6, 7), "+0s", None),
        Absence((0, 1), 100, 200),
    )
    assert scaled(tmp_path, ('"10:00"', 8)) == ()


def test_a_replica_that_goes_twice_is_away_twice(tmp_path: Path) -> None:
    assert scaled(tmp_path, ("10", 7), ("20", 8), ("30", 7)) == (
        Absence((7,), 10, 20),
        Absence((7,), 30, None),
    )


ABSENT = "[[absent]]\nreplicas = 0\nfrom = 5\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.toml: no [[replicas]] or [[absent]] or [[scale]] in it: write at least one"),
        ("[[replicas]]\ncount 4",
         ("f.toml: this is not TOML: Expected '=' after a key in a key/value pair"
          " (at line 2, column 7)")),
        ("[[replica]]", "f.toml: unknown table 'replica' (did you mean replicas?): choose from"),
        ("[replicas]", "f.toml: replicas is no array of tables: write [[replicas]]"),
        ("replicas = 4", "f.toml: replicas is no array of tables: write [[replicas]]"),
        ("[[replicas]]\n[[replicas]]\nspeeed = 2",
         "f.toml: [[replicas]] 2: unknown key 'speeed' (did you mean speed?): choose from count,"),
        ("[[replicas]]\ncount = 0", "[[replicas]] 1: count is 0: give a whole number from 1 to"),
        ("[[replicas]]\ncount = true", "[[replicas]] 1: count is True: give a whole number"),
        ("[[replicas]]\ncount = 2.0", "[[replicas]] 1: count is 2.0: give a whole number"),
        ("[[replicas]]\ncapacity_tokens = 0", "[[replicas]] 1: capacity_tokens is 0: give a whole"),
        ("[[replicas]]\nspeed = 0", "[[replicas]] 1: speed is 0.0: give 0.001 to 1000; 0.5"),
        ("[[replicas]]\nspeed = nan", "[[replicas]] 1: speed is nan: give 0.001 to 1000; 0.5"),
        ('[[replicas]]\nspeed = "fast"', "[[replicas]] 1: speed is 'fast': give a number, 1.0"),
        ("[[replicas]]\ncount=4096\n[[replicas]]", "f.toml: replicas is 4097: give 1 to 4096"),
        ("[[absent]]\nfrom = 5", "[[absent]] 1: replicas is missing: give numbers of replicas, 0"),
        ("[[absent]]\nreplicas = []\nfrom = 5", "[[absent]] 1: replicas is []: give numbers of"),
        ("[[absent]]\nreplicas = [1, 1]\nfrom = 5", "replicas is [1, 1]: give numbers of"),
        ("[[absent]]\nreplicas = [1, 4]\nfrom = 5", "replicas is [1, 4]: give numbers of"),
        ("[[absent]]\nreplicas = -1\nfrom = 5", "replicas is -1: give numbers of replicas, 0 to 3"),
        ("[[absent]]\nreplicas = 0", '[[absent]] 1: from is missing: write "10:00", '),
        ("[[absent]]\nreplicas = 0\nfrom = -1", "[[absent]] 1: from is -1: write"),
        (f"[[absent]]\nreplicas = 0\nfrom = {2**63}", f"[[absent]] 1: from is {2**63}: write"),
        ("[[absent]]\nreplicas = 0\nfrom = 1.5", "[[absent]] 1: from is 1.5: write"),
        (ABSENT + "to = 5", "[[absent]] 1: to is 5: give a moment after from, 5, or leave it out"),
        (ABSENT + "[[absent]]\nreplicas = 0\nfrom = '+2h'\nto = '+90m'",
         "[[absent]] 2: to is '+90m': give a moment after from, '+2h'"),
        ("[[absent]]\nreplicas = 0\nfrom = '10:00'\nto = '10:00'", "to is '10:00': give a moment"),
        ("[[absent]]\nreplicas = 0\nfrom = 2026-03-03\nto = 2026-03-02", "give a moment after"),
        (ABSENT + "kind = 'crsh'", "[[absent]] 1: kind of an absence is 'crsh': give one of drain"),
        (ABSENT + "cache = 1", "[[absent]] 1: cache of an absence is 1: give one of cold, warm"),
        (ABSENT + "kind = 'crash'\ncache = 'warm'", "[[absent]] 1: a crash leaves no warm cache"),
        ("[[scale]]\nreplicas = 2", '[[scale]] 1: at is missing: write "10:00"'),
        ("[[scale]]\nat = '10:00'", "[[scale]] 1: replicas is missing: give a whole number from 0"),
        ("[[scale]]\nat = 5\nreplicas = 5",
         "[[scale]] 1: replicas is 5: give a whole number from 0 to 4"),
        ("[[scale]]\nat = 5\nreplicas = 2\n[[scale]]\nat = 4\nreplicas = 3",
         "[[scale]] 2: at is 4: give a moment after the step before, 5"),
    ],
)  # fmt: skip
def test_a_fleet_that_can_not_be_is_refused_with_place_and_value(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fleet(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'f.toml'}: ")
    assert message in str(caught.value)


def test_what_only_a_trace_can_order_is_left_to_it(tmp_path: Path) -> None:
    text = "[[absent]]\nreplicas = 0\nfrom = '23:50'\nto = '00:10'"
    assert fleet(tmp_path, text).absences == (Absence((0,), "23:50", "00:10"),)
    assert len(scaled(tmp_path, ("500", 7), ('"10:00"', 6), ('"+1m"', 5))) == 3


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    for read in (lambda path: read_fleet(path, 1000), read_policies):
        with pytest.raises(UsageError, match=r"no.toml: No such file or directory: give the path"):
            read(tmp_path / "no.toml")
        (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
        with pytest.raises(UsageError, match=r"bytes.toml: this is not TOML: 'utf-8' codec can't"):
            read(tmp_path / "bytes.toml")


def test_policies_become_the_texts_that_the_option_takes(tmp_path: Path) -> None:
    text = """
    [[policy]]
    name = "sglang"
    match_threshold = 0.3
    router_view = "lag:50"
    imbalance_abs = 1_000
    [[policy]]
    name = "cache_aware"
    [[policy]]
    threshold = inf
    name = "ray"
    [[policy]]
    name = "my_module:my_function"
    tie = "random"
    """
    assert read_policies(written(tmp_path, text)) == (
        "sglang:match_threshold=0.3,router_view=lag:50,imbalance_abs=1000",
        "cache_aware",
        "ray:threshold=inf",
        "my_module:my_function:tie=random",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.toml: no [[policy]] in it: write at least one"),
        ("[[policies]]", "f.toml: unknown table 'policies' (did you mean policy?): choose from"),
        ("[policy]\nname = 'sglang'", "f.toml: policy is no array of tables: write [[policy]]"),
        ("[[policy]]\nname = sglang", "f.toml: this is not TOML: Invalid value (at line 2, col"),
        ("[[policy]]", "f.toml: [[policy]] 1: name is missing: give the name alone, name = "),
        ("[[policy]]\nname = ' '", "[[policy]] 1: name is ' ': give the name alone"),
        ("[[policy]]\nname = 5", "[[policy]] 1: name is 5: give the name alone"),
        ("[[policy]]\nname = 'sglang:imbalance_abs=1'", "a parameter is a key of its own"),
        ("[[policy]]\nname = 'a'\nb = true", "[[policy]] 1: b is True: give a number or a text"),
        ("[[policy]]\nname = 'a'\nb = [1]", "[[policy]] 1: b is [1]: give a number or a text"),
        ("[[policy]]\nname = 'a'\nb = '1,c=2'", "[[policy]] 1: b is '1,c=2': give one setting"),
        ("[[policy]]\nname = 'a'\nb = ''", "[[policy]] 1: b is '': give one setting"),
        ("[[policy]]\nname = 'a'\n'b,c' = 1", "[[policy]] 1: b,c is 1: give one setting"),
    ],
)
def test_policies_that_can_not_be_are_refused_with_place_and_value(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_policies(written(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path / 'f.toml'}: ")
    assert message in str(caught.value)
