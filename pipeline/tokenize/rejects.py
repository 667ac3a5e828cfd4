"""Log lines that gave no request: counted by reason, kept with file and line."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from pipeline.errors import LogError
from pipeline.files import whole_file
from pipeline.tokenize.parts import Part

_SHOWN = 3


class Rejects:
    """Rejected lines of all parts; reasons never hold any of a prompt."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.by_reason: Counter[str] = Counter()
        self.lines = 0
        for part in parts:
            rejects = part.rejects()
            self.lines += rejects["line"].n_unique()
            self.by_reason.update(dict(rejects["reason"].value_counts().iter_rows()))

    def check(self, lines: int, at_most: float) -> None:
        """Raise LogError if more than that share of all lines was rejected."""
        if self.lines > at_most * lines:
            raise LogError(
                f"{self.lines:,} of {lines:,} lines rejected, more than --max-rejects"
                f" {at_most:.4g}: {self.examples()}"
            )

    def examples(self) -> str:
        """Return the first rejects in one line."""
        shown = [
            f"{part.note['file']} line {line}: {reason}"
            for part in self._parts
            for line, reason in part.rejects().head(_SHOWN)["line", "reason"].iter_rows()
        ]
        more = "; …" if sum(self.by_reason.values()) > min(_SHOWN, len(shown)) else ""
        return "; ".join(shown[:_SHOWN]) + more

    def write(self, trace: Path, *, with_text: bool) -> Path | None:
        """Write `<trace>.rejects.jsonl`, or remove an old one if there is nothing to write."""
        target = rejects_file(trace)
        if not self.by_reason:
            target.unlink(missing_ok=True)
            return None
        with whole_file(target) as temporary, temporary.open("wb") as stream:
            for part in self._parts:
                rejects = part.rejects().select(pl.lit(part.note["file"]).alias("file"), pl.all())
                rejects.drop([] if with_text else ["text"]).write_ndjson(stream)
        return target


def rejects_file(trace: Path) -> Path:
    """Return where the rejected lines of a trace are listed."""
    return trace.with_name(f"{trace.name}.rejects.jsonl")
