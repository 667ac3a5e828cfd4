"""Summary: what a tokenize made of its logs."""

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.tokenize.rejects import Rejects


@dataclass
class Summary:
    """What a tokenize made of its logs."""

    family: str = ""
    lines: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    prefix_tokens: int = 0
    first_us: int = 0
    last_us: int = 0
    time_notes: list[str] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    rejects_file: Path | None = None
