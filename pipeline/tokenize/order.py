"""The requests of all parts in one order: by time, file and line, each of them once."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.encode.settings import TokenizeSettings, session_starts
from pipeline.encode.times import NO_TIME, NO_TIMES
from pipeline.tokenize.parts import Part

FILLED = (
    "namespace",
    "model",
    "tenant",
    "session_id",
    "output_tokens",
    "observed_cached_tokens",
    "observed_ttft_ms",
)
_OUTPUT = ("output_part", "output_begin", "output_count")
_MERGED = "told again: one request, several lines"
_ORPHAN = "tells of a request whose prompt is not in the log"
_RETRY = "retry: an attempt of the same request came later"
FAILED = "failed before prefill"
_SECOND = 10**6


class OrderedRequests:
    """All rows of all parts, and which of them are requests, in order.

    skips       lines that became no row of their own, by reason
    renamed     requests whose id an earlier one has: they get a number behind it
    largest_step_back_us  within a log, from one request to the next
    ties        requests that came at the same microsecond as the one before them
    """

    def __init__(self, parts: Sequence[Part], settings: TokenizeSettings) -> None:
        self.skips: Counter[str] = Counter()
        frames = [part.rows().with_columns(_numbered(number)) for number, part in enumerate(parts)]
        whole = [bool(part.note["whole_seconds"]) for part in parts]
        self._timed_parts = [n for n, p in enumerate(parts) if p.note["time_kind"] != NO_TIMES]
        self._frame = pl.concat(frames, rechunk=False)
        arrival = self._frame["arrival"].to_numpy().copy()
        kept = self._requests_of(self._frame, arrival)
        if any(part.note["own_clock"] for part in parts):
            _start_sessions(self._frame, arrival, kept, settings)
        if settings.spread_ties:
            self._spread(arrival, kept, np.array(whole))
        kept = self._without_retries(arrival, kept, settings)
        part = self._frame["part"].to_numpy()[kept]
        steps = np.where(part[1:] == part[:-1], np.diff(arrival[kept]), 0)
        self.largest_step_back_us = -int(steps.min(initial=0))
        order = kept[np.argsort(arrival[kept], kind="stable")]
        self._order = order
        self.arrival = arrival[order]
        self.ties = int((np.diff(self.arrival) == 0).sum())
        self._suffix = self._numbers_of_ids(order)
        self.renamed = int((self._suffix > 0).sum())

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._order)

    def ids_counts(self) -> NDArray[np.int64]:
        """Return how many ids each request has, of prompt and output."""
        outputs = self._frame["output_count"].fill_null(0).to_numpy().copy()
        told = self._adding.filter(pl.col("output_count") > 0)
        target = told["target"].to_numpy()
        outputs[target] = np.maximum(outputs[target], told["output_count"].to_numpy())
        counts: NDArray[np.int64] = self._frame["ids_count"].to_numpy() + outputs
        return counts[self._order]

    def slices(self, ends: Sequence[int]) -> Iterator[pl.DataFrame]:
        """Yield the requests up to each of `ends`, filled from the lines that add to them."""
        begin = 0
        for end in ends:
            rows = self._frame[self._order[begin:end]].with_columns(
                arrival=pl.Series(self.arrival[begin:end]), row=pl.Series(self._order[begin:end])
            )
            yield self._named(self._filled(rows), begin, end)
            begin = end

    def _requests_of(self, frame: pl.DataFrame, arrival: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows that are requests; what other lines add to them is kept aside."""
        keys = frame.select("id_key", "prompt", "again", "fallback", "failed", "part")
        keys = keys.with_row_index("row").with_columns(
            pl.col("row").cast(pl.Int64),
            pl.col("again") & (pl.col("id_key") != 0),
            timed=pl.Series(arrival != NO_TIME),
        )
        real = keys.filter(pl.col("prompt") & ~pl.col("fallback"))["part"].unique()
        unneeded = pl.col("fallback") & pl.col("part").is_in(real.implode())
        self._count(keys.filter(unneeded).height, _MERGED)
        keys = keys.filter(~unneeded)
        told = keys.filter(~pl.col("again") & pl.col("prompt") & pl.col("timed"))
        self._count(keys.filter(~pl.col("again") & ~pl.col("prompt")).height, _ORPHAN)
        again = keys.filter("again")
        alone = again.filter(pl.col("prompt") & pl.col("timed") & ~pl.col("failed"))
        alone = alone.join(told, on="id_key", how="anti")
        alone = alone.unique("id_key", keep="first", maintain_order=True)
        told = pl.concat([told, alone]).sort("row")
        pairs = _paired(told, again.join(alone, on="row", how="anti"))
        self._count(pairs["target"].null_count(), _ORPHAN)
        pairs = pairs.drop_nulls("target")
        self._count(pairs.height, _MERGED)
        more = frame[pairs["row"]].with_columns(target=pairs["target"])
        self._adding = more.group_by("target").agg(
            pl.col(name).drop_nulls().first() for name in (*FILLED, *_OUTPUT)
        )
        failed = pairs.filter("failed")["target"].unique()
        self._count(len(failed), FAILED)
        return told["row"].filter(~told["row"].is_in(failed.implode())).to_numpy()

    def _count(self, lines: int, reason: str) -> None:
        if lines:
            self.skips[reason] += lines

    def _spread(
        self, arrival: NDArray[np.int64], kept: NDArray[np.int64], whole: NDArray[np.bool_]
    ) -> None:
        """Move requests of one second evenly over it, where a log knows only seconds."""
        part = self._frame["part"].to_numpy()[kept]
        rows = pl.DataFrame({"row": kept, "part": part, "second": arrival[kept]})
        rows = rows.filter(pl.Series(whole[part]))
        rows = rows.with_columns(
            place=pl.int_range(pl.len()).over("part", "second"),
            of=pl.len().cast(pl.Int64).over("part", "second"),
        )
        moved = rows["second"] + rows["place"] * _SECOND // rows["of"]
        arrival[rows["row"].to_numpy()] = moved.to_numpy()

    def _without_retries(
        self, arrival: NDArray[np.int64], kept: NDArray[np.int64], settings: TokenizeSettings
    ) -> NDArray[np.int64]:
        """Leave attempts out that another one of the same id and prompt soon followed."""
        if settings.retries == "all":
            return kept
        keys = self._frame.select("id_key", "prompt_key", "part")[kept].with_columns(
            row=pl.Series(kept), arrival=pl.Series(arrival[kept])
        )
        timed = pl.col("part").is_in(self._timed_parts)
        keys = keys.filter(timed & (pl.col("id_key") != 0)).sort(
            "id_key", "prompt_key", "arrival", "row"
        )
        same = (pl.col("id_key") == pl.col("id_key").shift(-1)) & (
            pl.col("prompt_key") == pl.col("prompt_key").shift(-1)
        )
        soon = pl.col("arrival").shift(-1) - pl.col("arrival") <= settings.retry_window_s * _SECOND
        retried = keys.filter(same & soon)["row"].to_numpy()
        self._count(len(retried), _RETRY)
        return np.setdiff1d(kept, retried, assume_unique=True)

    def _numbers_of_ids(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many requests before each have its id."""
        keys = pl.DataFrame({"id_key": self._frame["id_key"].to_numpy()[order]})
        number = keys.select(
            pl.when(pl.col("id_key") != 0).then(pl.int_range(pl.len()).over("id_key")).otherwise(0)
        )
        return number.to_series().to_numpy()

    def _filled(self, rows: pl.DataFrame) -> pl.DataFrame:
        if not len(self._adding):
            return rows
        rows = rows.join(
            self._adding,
            left_on="row",
            right_on="target",
            how="left",
            suffix=":more",
            maintain_order="left",
        )
        filled = (*FILLED, *_OUTPUT)
        return rows.with_columns(pl.coalesce(name, f"{name}:more") for name in filled)

    def _named(self, rows: pl.DataFrame, begin: int, end: int) -> pl.DataFrame:
        """Give every request an id of its own: the log's, numbered if it repeats, or the row."""
        number = pl.Series("number", self._suffix[begin:end])
        own = pl.int_range(begin, end).cast(pl.String)
        numbered = pl.col("request_id") + "-" + (number + 1).cast(pl.String)
        return rows.with_columns(
            request_id=pl.when(number > 0).then(numbered).otherwise("request_id").fill_null(own)
        )


def _numbered(part: int) -> list[pl.Expr]:
    """Return the number of a part as columns: of its rows, and of those that have output ids."""
    number = pl.lit(part, pl.Int32)
    has_output = pl.col("output_count").is_not_null()
    return [number.alias("part"), pl.when(has_output).then(number).alias("output_part")]


def _paired(told: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """Return the lines that add something, with the row that each belongs to as `target`.

    An id that several requests have: its n-th line is of its n-th request if there are as many of
    each, else each line is of the request before it.
    """
    told, more = (
        rows.with_columns(n=pl.int_range(pl.len()).over("id_key"), of=pl.len().over("id_key"))
        for rows in (told, more)
    )
    target = told.select("id_key", "n", "of", target="row")
    exact = more.join(target, on=["id_key", "n", "of"], how="left", maintain_order="left")
    before = more.sort("row").join_asof(
        told.select("id_key", before="row", row="row").sort("row"),
        on="row",
        by="id_key",
        strategy="backward",
        check_sortedness=False,
    )
    first = told.group_by("id_key").agg(first=pl.col("row").min())
    found = exact.join(before.select("row", "before"), on="row", how="left", maintain_order="left")
    found = found.join(first, on="id_key", how="left", maintain_order="left")
    return found.with_columns(target=pl.coalesce("target", "before", "first"))


def _start_sessions(
    frame: pl.DataFrame,
    arrival: NDArray[np.int64],
    kept: NDArray[np.int64],
    settings: TokenizeSettings,
) -> None:
    """Add to each request the moment when its session starts; sessions start in file order."""
    how, gap = session_starts(settings.session_starts)
    session = frame["session_id"].gather(kept)
    number = session.fill_null("").rank("dense").to_numpy().astype(np.int64) - 1
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    number = rank[number]  # sessions by their first line
    if how == "every":
        starts = gap * np.arange(len(first), dtype=np.int64)
    elif how == "random":
        gaps = np.random.default_rng(0).exponential(gap, len(first))
        starts = np.rint(np.cumsum(gaps)).astype(np.int64)
    elif how == "in-turn":
        lasts = np.zeros(len(first), np.int64)
        np.maximum.at(lasts, number, arrival[kept])
        starts = np.concatenate(([0], np.cumsum(lasts + _SECOND)[:-1]))
    else:
        starts = np.zeros(len(first), np.int64)
    arrival[kept] += starts[number]
