"""Log lines that could not become requests: counted by reason, kept with file and line."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import LogError
from pipeline.files import whole_file

_SHOWN = 3


@dataclass
class Rejects:
    """Rejected lines of a tokenize; reasons never hold any of a prompt."""

    lines: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, file: str, line: int, reason: str) -> None:
        """Note a line that is left out."""
        self.lines.append((file, line, reason))

    def by_reason(self) -> Counter[str]:
        """Return how many lines were left out for each reason."""
        return Counter(reason for _, _, reason in self.lines)

    def check(self, lines: int, at_most: float) -> None:
        """Raise LogError if more than that share of all lines was rejected."""
        rejected = len({(file, line) for file, line, _ in self.lines})
        if rejected > at_most * lines:
            shown = "; ".join(f"{f} line {n}: {reason}" for f, n, reason in self.lines[:_SHOWN])
            raise LogError(
                f"{rejected} of {lines} lines rejected, more than --max-rejects {at_most:g}:"
                f" {shown}{'; …' if len(self.lines) > _SHOWN else ''}"
            )

    def write(self, trace: Path) -> Path | None:
        """Write `<trace>.rejects.jsonl`, or remove an old one if there is nothing to write."""
        target = trace.with_name(f"{trace.name}.rejects.jsonl")
        if not self.lines:
            target.unlink(missing_ok=True)
            return None
        with whole_file(target) as temporary, temporary.open("w", encoding="utf-8") as stream:
            for file, line, reason in self.lines:
                row = {"file": file, "line": line, "reason": reason}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return target
