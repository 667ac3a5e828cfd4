"""Vocabularies from a tekken.json, Mistral's own form of ranks."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import UsageError
from pipeline.vocabularies.fast import maybe_fast
from pipeline.vocabularies.from_ranks import loader
from pipeline.vocabularies.rank_engine import RankEngine
from pipeline.vocabularies.ranks import ranks_sha256
from pipeline.vocabularies.vocabulary import Vocabulary, fingerprint

_OLD_CONTROL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    "[TOOL_CONTENT]",
)
"""Control tokens of files that do not list them."""


def from_tekken(
    path: Path, content: Mapping[str, Any], name: str, *, fast: bool | None
) -> Vocabulary:
    """Return the vocabulary of a tekken.json; UsageError if it is damaged.

    Ids are ranks moved up by the number of control tokens, which come first.
    """
    try:
        ranks, pattern, special = _parse(content)
        engine = RankEngine(ranks, pattern)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path}: not a whole tekken.json ({type(error).__name__}: {error}): fetch it again"
        ) from None
    warnings: list[str] = []
    bos = "<s>" if "<s>" in special else None
    known = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return Vocabulary(
        name,
        fingerprint("ranks", ranks_sha256(ranks), pattern, special, bos),
        special,
        {},
        bos,
        cuttable=True,
        engine=maybe_fast(engine, loader(ranks, pattern), name, fast=fast, warnings=warnings),
        tokens={key: token for key, token in known.items() if token in special},
        folder=path.parent,
        warnings=warnings,
    )


def _parse(content: Mapping[str, Any]) -> tuple[dict[bytes, int], str, dict[str, int]]:
    """Return ranks as ids, the pattern, and the control tokens."""
    config, listed = content["config"], content.get("special_tokens")
    count = int(config["default_num_special_tokens"])
    largest = int(config["default_vocab_size"]) - count
    ranks = {
        base64.b64decode(entry["token_bytes"]): entry["rank"] + count
        for entry in content["vocab"]
        if entry["rank"] < largest
    }
    names = {i: f"<SPECIAL_{i}>" for i in range(count)}
    if listed is None:
        names |= dict(enumerate(_OLD_CONTROL[:count]))
    else:
        names |= {entry["rank"]: entry["token_str"] for entry in listed}
    return ranks, str(config["pattern"]), {str(names[i]): i for i in sorted(names)}
