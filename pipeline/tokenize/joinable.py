"""Which logs can become one trace."""

from collections.abc import Sequence
from itertools import pairwise

from pipeline.encode.settings import TokenizeSettings
from pipeline.errors import LogError
from pipeline.tokenize.parts import Part


def check_joinable(parts: Sequence[Part], settings: TokenizeSettings) -> None:
    """Raise LogError if the requests of one log can't stand beside those of another."""
    filled = [part for part in parts if part.note["kind"]]
    for one, other in pairwise(filled):
        name, of_one, of_other = other.note["file"], one.note, other.note
        if of_one["kind"] != of_other["kind"]:
            raise LogError(
                f"{name}: it has {of_other['kind']}, the logs before it have {of_one['kind']}"
            )
        if of_one["time_kind"] != of_other["time_kind"]:
            raise LogError(
                f"{name}: it has {of_other['time_kind']}, the logs before it have"
                f" {of_one['time_kind']}: no common order"
            )
        if of_one["own_clock"] != of_other["own_clock"]:
            raise LogError(
                f"{name}: in some of the logs, not in all, times count from each session's start"
            )
        if other.note["own_blocks"] and settings.block_ids is None:
            raise LogError(
                f"{name}: every {of_other['family']} log numbers its own blocks: say whether equal"
                " ids of two files are equal blocks (--block-ids global) or not (--block-ids file)"
            )
    _check_one_tokenizer(filled)
    if any(part.note["own_clock"] for part in parts) and settings.session_starts is None:
        raise LogError(
            f"{filled[0].note['file'] if filled else ''}: its times count from the start of each"
            " session: say when sessions start, for example --session-starts random:60"
        )


def _check_one_tokenizer(parts: Sequence[Part]) -> None:
    """Raise LogError if equal ids of two logs may be different tokens."""
    known: dict[str, tuple[str, str]] = {}
    for part in parts:
        for models, (name, key) in part.note["tokenizers"].items():
            other, other_key = known.setdefault(models, (name, key))
            if key != other_key:
                raise LogError(
                    f"{part.note['file']}: its tokens are of {name}, those before it of {other}"
                    " (or of another version): they don't mix"
                )
