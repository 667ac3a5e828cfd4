"""TokenizeSettings: how logs become a trace, validated once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.encode.times import check_unit, find_zone
from pipeline.errors import UsageError

DEFAULT_TOKENIZER = "qwen3"
CHOICES = {
    "special_tokens_in_text": ("control", "text"),
    "cut_prompts": ("reject", "prefix"),
    "failed_requests": ("skip", "keep"),
    "retries": ("last", "all"),
    "block_ids": ("file", "global"),
    "namespaces": ("log", "none"),
}
_SESSION_STARTS = "together, in-turn, every:SECONDS or random:SECONDS"


@dataclass(frozen=True)
class TokenizeSettings:
    """How logs become a trace.

    tokenizer               name, file, folder or hub name of the vocabulary
    tokenizer_map           TOML file with other tokenizers and templates for some models
    chat_template           name or file, None for the vocabulary's own
    special_tokens_in_text  whether <|im_end|> in a user's text is the token or just text
    image_tokens            tokens that stand for an image, all of them named by its content
    audio_tokens            the same for sound and video
    log_format              family of all lines, None to recognise each
    columns                 our field names -> the log's
    time_unit, time_zone    of numbers, and of dates without a zone; None: by their size, UTC
    spread_ties             spread requests of one second over that second
    session_starts          when sessions begin whose times count from their own start
    block_ids               whether equal block ids of two files are equal blocks
    namespaces              whether requests of different models share KV: none says they all do
    cut_prompts             what to do with prompts that the logger cut
    failed_requests         what to do with requests that failed before prefill
    retries                 which of several attempts of one request to keep
    retry_window_s          attempts further apart are requests of their own
    max_rejects             largest share of lines that may be rejected
    keep_tokens             write token (or block) ids, not only the links
    output_ids              tokenize answers too, and link prompts + outputs
    keep_rejected_text      write rejected lines with their text
    max_prompt_tokens       longer prompts are rejected
    fast                    use the fast engine: None if it is installed and agrees
    """

    tokenizer: str = DEFAULT_TOKENIZER
    tokenizer_map: Path | None = None
    chat_template: str | None = None
    special_tokens_in_text: str = "control"
    image_tokens: int = 256
    audio_tokens: int = 256
    log_format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: str | None = None
    time_zone: str | None = None
    spread_ties: bool = False
    session_starts: str | None = None
    block_ids: str | None = None
    namespaces: str = "log"
    cut_prompts: str = "reject"
    failed_requests: str = "skip"
    retries: str = "last"
    retry_window_s: float = 600.0
    max_rejects: float = 0.01
    keep_tokens: bool = True
    output_ids: bool = False
    keep_rejected_text: bool = False
    max_prompt_tokens: int = 2_000_000
    fast: bool | None = None

    def __post_init__(self) -> None:
        check_unit(self.time_unit)
        find_zone(self.time_zone)
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known and not (name == "block_ids" and value is None):
                raise UsageError(f"{_option(name)} is {value!r}: give {' or '.join(known)}")
        if not 0 <= self.max_rejects <= 1:
            raise UsageError(f"--max-rejects is {self.max_rejects}: give a share from 0 to 1")
        for name, most in (("image_tokens", 1 << 20), ("audio_tokens", 1 << 20)):
            if not 0 <= getattr(self, name) <= most:
                raise UsageError(f"{_option(name)} is {getattr(self, name)}: give 0 to {most}")
        if not 1 <= self.max_prompt_tokens < 2**32:
            raise UsageError(f"--max-prompt-tokens is {self.max_prompt_tokens}: give 1 or more")
        if not (math.isfinite(self.retry_window_s) and self.retry_window_s >= 0):
            raise UsageError(f"--retry-window is {self.retry_window_s}: give seconds from 0 on")
        session_starts(self.session_starts)


def session_starts(text: str | None) -> tuple[str, int]:
    """Return how sessions begin, and the gap in us; UsageError for anything else."""
    how, _, gap = (text or "").partition(":")
    if how in ("", "together", "in-turn") and not gap:
        return how, 0
    try:
        seconds = float(gap)
    except ValueError:
        seconds = -1.0
    if how not in ("every", "random") or not 0 < seconds < 1e9:
        raise UsageError(f"--session-starts is {text!r}: give {_SESSION_STARTS}")
    return how, round(seconds * 1e6)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
