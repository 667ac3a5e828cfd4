"""Summary: what a tokenize made of its logs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.tokenize.parts import Part


@dataclass
class Summary:
    """What a tokenize made of its logs; every line is a row, a skip or a reject.

    lines          lines (or rows of a document) that aren't blank
    families       how many of them each family read
    skips          lines that hold no request or one that is told elsewhere, by reason
    rejects        lines that could not become requests, by reason
    repairs        lines that could only be read leniently, by what was overlooked
    token_ids      prompts that came as token ids, taken as they are
    cut            prompts of which only the head was logged
    without_output requests without output ids, if these were asked for
    resumed        files that an interrupted run had already read
    """

    lines: int = 0
    families: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    prompt_tokens: int = 0
    prefix_tokens: int = 0
    first_us: int = 0
    last_us: int = 0
    ties: int = 0
    largest_step_back_us: int = 0
    renamed: int = 0
    looks_reversed: bool = False
    token_ids: int = 0
    cut: int = 0
    time_notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    skips: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)
    rejects_file: Path | None = None
    without_output: int = 0
    resumed: int = 0

    def add(self, part: Part) -> None:
        """Take in what a part says of its log."""
        note = part.note
        self.lines += note["lines"]
        for name in ("families", "skips", "repairs"):
            getattr(self, name).update(note[name])
        self.cut += note["counts"].get("cut", 0)
        self.token_ids += note["counts"].get("token_ids", 0)
        self.warnings += [w for w in note["warnings"] if w not in self.warnings]
        self.time_notes.append(f"{Path(note['file']).name}: {note['time_note']}")

    def counts(self) -> dict[str, object]:
        """Return what the trace keeps of it."""
        return {
            "lines": self.lines,
            "requests": self.requests,
            "skipped": dict(sorted(self.skips.items())),
            "rejected": dict(sorted(self.rejects.items())),
        }


def sources(parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the names of the logs."""
    return tuple(Path(part.note["file"]).name for part in parts)
