"""Vocabularies from a tokenizer.json, with the tokenizer_config.json that lies beside it."""

import codecs
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from pipeline.errors import UsageError
from pipeline.vocabularies.added import AddedToken, is_cuttable
from pipeline.vocabularies.engine import gave_up
from pipeline.vocabularies.fast import maybe_fast
from pipeline.vocabularies.json_engine import JsonEngine
from pipeline.vocabularies.vocabulary import Vocabulary, fingerprint

_CONFIG = "tokenizer_config.json"


def from_tokenizer_json(
    path: Path, content: Mapping[str, Any], name: str, *, fast: bool | None
) -> Vocabulary:
    """Return the vocabulary of a tokenizer.json; UsageError if it or its config is damaged.

    Text is encoded by an engine without the added tokens where cutting at them is exact.
    """
    config = _read_config(path.with_name(_CONFIG))
    added = _added_tokens(path, content, config)
    cuttable = is_cuttable(content, added)
    reference, text = _reference(path, content, _entries(content, config), added, cuttable=cuttable)
    warnings: list[str] = []
    engine = maybe_fast(
        reference,
        lambda tokenizer: tokenizer.from_json_str(text),
        name,
        fast=fast,
        warnings=warnings,
    )
    tokens = _template_tokens(config)
    bos = _bos(content, config, tokens)
    return Vocabulary(
        name,
        _fingerprint(content, added, bos),
        {token.text: token.number for token in added if token.special},
        {token.text: token.number for token in added if not token.special},
        bos,
        cuttable,
        engine,
        tokens=tokens,
        folder=path.parent,
        warnings=warnings,
    )


def _reference(
    path: Path,
    content: Mapping[str, Any],
    entries: Sequence[Mapping[str, Any]],
    added: Sequence[AddedToken],
    *,
    cuttable: bool,
) -> tuple[JsonEngine, str]:
    """Return the engine, and the tokenizer.json that it was made from."""
    model = content["model"]
    if model.get("dropout"):
        raise UsageError(
            f"{path}: its model drops merges at random (dropout), so that no ids are right:"
            " set dropout to null in it"
        )
    kept = {**content, "truncation": None, "padding": None, "added_tokens": entries}
    if not cuttable or not _are_numbered_on(model.get("vocab"), added):
        whole = orjson.dumps(kept).decode()
        engine = _load(path, whole)
        _check_numbers(path, engine, added)
        if not cuttable:
            return engine, whole
    text = orjson.dumps({**kept, "added_tokens": []}).decode()
    return _load(path, text), text


def _fingerprint(content: Mapping[str, Any], added: Sequence[AddedToken], bos: str | None) -> str:
    parts = [content.get(part) for part in ("normalizer", "pre_tokenizer", "model")]
    key = hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return fingerprint("json", key, sorted(added), bos)


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; UsageError if it holds none."""
    try:
        return orjson.loads(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not valid JSON: {error}"
        raise UsageError(f"{path}: {why}: fetch it again, or name another tokenizer") from None


def _read_config(path: Path) -> Mapping[str, Any]:
    config = read_json(path) if path.is_file() else {}
    if not isinstance(config, dict):
        raise UsageError(f"{path}: not an object: fetch it again, or take it away")
    return config


def _entries(content: Mapping[str, Any], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of added tokens: those of the tokenizer, then what the config adds."""
    entries = [dict(entry) for entry in content.get("added_tokens") or []]
    known = {entry.get("content") for entry in entries}
    more = config.get("added_tokens_decoder") or {}
    new = [{**entry, "id": int(number)} for number, entry in more.items()]
    new = [entry for entry in new if entry.get("content") not in known]
    return entries + sorted(new, key=lambda entry: entry["id"])


def _added_tokens(
    path: Path, content: Mapping[str, Any], config: Mapping[str, Any]
) -> list[AddedToken]:
    try:
        found = [AddedToken.from_json(entry) for entry in _entries(content, config)]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError(
            f"{path}: its added_tokens, or added_tokens_decoder in {_CONFIG} beside it, are"
            " not what a tokenizer has: fetch both files again"
        ) from None
    return [token for token in found if token.text]


def _load(path: Path, text: str) -> JsonEngine:
    try:
        return JsonEngine(text)
    except BaseException as error:
        if not gave_up(error):
            raise
        raise UsageError(
            f"{path}: tokenizers can't load it ({error}): fetch it again, or install a newer"
            " tokenizers"
        ) from None


def _are_numbered_on(vocab: Any, added: Sequence[AddedToken]) -> bool:
    """Tell whether added tokens have the ids that tokenizers give them by itself, as is usual."""
    if not isinstance(vocab, dict):
        return False
    last = len(vocab) - 1
    for token in added:
        if token.number != vocab.get(token.text, last + 1):
            return False
        last = max(last, token.number)
    return True


def _check_numbers(path: Path, engine: JsonEngine, added: Sequence[AddedToken]) -> None:
    for token in added:
        number = engine.tokenizer.token_to_id(token.text)
        if number != token.number:
            raise UsageError(
                f"{path}: added token {token.text!r} has id {token.number} in the file, but"
                f" {number} once loaded: fetch the files of one model again"
            )


def _template_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return bos_token, eos_token … by name."""
    found = {}
    for name, token in config.items():
        text = token.get("content") if isinstance(token, dict) else token
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _bos(
    content: Mapping[str, Any], config: Mapping[str, Any], tokens: Mapping[str, str]
) -> str | None:
    """Return what is put before a text: as the config says, else as the post-processor does."""
    wanted = config.get("add_bos_token")
    if wanted is True and tokens.get("bos_token"):
        return tokens["bos_token"]
    if wanted is False:
        return None
    return "".join(_opening(content.get("post_processor"))) or None


def _opening(processor: Any) -> list[str]:
    if not isinstance(processor, dict):
        return []
    kind, found = processor.get("type"), []
    if kind == "Sequence":
        found = [token for one in processor.get("processors", []) for token in _opening(one)]
    elif kind in {"BertProcessing", "RobertaProcessing"}:
        found = [processor["cls"][0]]
    elif kind == "TemplateProcessing":
        for piece in processor.get("single", []):
            if "SpecialToken" not in piece:
                break
            name = piece["SpecialToken"]["id"]
            found += processor["special_tokens"][name]["tokens"]
    return found
