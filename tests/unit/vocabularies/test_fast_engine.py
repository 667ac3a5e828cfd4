"""The fast engine: in use as long as it gives the ids of the reference engine."""

import importlib
import importlib.util
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.errors import UsageError
from pipeline.vocabularies.engine import Engine
from pipeline.vocabularies.fast import maybe_fast


class Reference:
    """Encodes a text as its length; gives up on one text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        self.texts += texts
        return [None if text == "hopeless" else struct.pack("<I", len(text)) for text in texts]


class Fast:
    """As fastokens is called; `wrong` texts get another id."""

    def __init__(self, wrong: Callable[[str], bool] = lambda _: False) -> None:
        self.wrong = wrong

    def encode_batch_flat(self, texts: list[str]) -> tuple[bytes, bytes]:
        if "broken" in texts:
            raise ValueError
        found = [len(text) + self.wrong(text) for text in texts]
        offsets = struct.pack(f"<{len(texts) + 1}Q", *range(len(texts) + 1))
        return struct.pack(f"<{len(found)}I", *found), offsets


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(Tokenizer=None)
    monkeypatch.setattr("pipeline.vocabularies.fast.import_module", lambda _: module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: module)


def engine(fast: Fast | Exception, warnings: list[str], reference: Reference) -> Engine:
    def load(_: Any) -> Fast:
        if isinstance(fast, Exception):
            raise fast
        return fast

    return maybe_fast(reference, load, "mine", fast=True, warnings=warnings)


def test_texts_after_the_first_ones_are_encoded_by_the_fast_engine_alone() -> None:
    reference, warnings = Reference(), list[str]()
    found = engine(Fast(), warnings, reference)
    long = "x" * 300_000
    assert found.encode(["a", long, "bb"]) == Reference().encode(["a", long, "bb"])
    assert reference.texts[-2] == "a"
    assert 250_000 < len(reference.texts[-1]) < 300_000
    before = len(reference.texts)
    assert found.encode(["later"]) == [struct.pack("<I", 5)]
    assert found.encode([]) == []
    assert (len(reference.texts), warnings) == (before, [])


def test_another_id_on_the_probe_text_is_told_and_the_reference_engine_used() -> None:
    warnings: list[str] = []
    found = engine(Fast(lambda text: "\u200d" in text), warnings, Reference())
    assert warnings == ["mine: fastokens gives other ids: the slower reference engine is used"]
    assert found.encode(["a"]) == [struct.pack("<I", 1)]


def test_another_id_on_the_first_texts_never_gets_out() -> None:
    warnings: list[str] = []
    found = engine(Fast(lambda text: text.startswith("rare")), warnings, Reference())
    assert warnings == []
    assert found.encode(["a", "rare", "b"]) == Reference().encode(["a", "rare", "b"])
    assert len(warnings) == 1
    assert found.encode(["rare"]) == Reference().encode(["rare"])
    assert len(warnings) == 1


def test_a_vocabulary_that_the_fast_engine_cannot_load_is_told() -> None:
    warnings: list[str] = []
    found = engine(ValueError("no"), warnings, Reference())
    assert warnings == ["mine: fastokens can't load it: the slower reference engine is used"]
    assert found.encode(["abc"]) == [struct.pack("<I", 3)]


def test_what_the_reference_engine_gives_up_on_is_no_difference() -> None:
    warnings: list[str] = []
    found = engine(Fast(), warnings, Reference())
    assert found.encode(["hopeless"]) == [struct.pack("<I", 8)]
    assert warnings == []


def test_texts_that_the_fast_engine_fails_on_are_encoded_by_the_other() -> None:
    warnings: list[str] = []
    found = engine(Fast(), warnings, Reference())
    found.encode(["x" * 300_000])
    assert found.encode(["a", "broken"]) == Reference().encode(["a", "broken"])
    assert warnings == []


def test_the_fast_engine_is_not_used_against_the_users_will() -> None:
    reference = Reference()
    found = maybe_fast(reference, lambda _: Fast(), "mine", fast=False, warnings=[])
    assert found is reference


def test_without_fastokens_it_is_refused_if_asked_for_and_else_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    reference = Reference()
    found = maybe_fast(reference, lambda _: Fast(), "mine", fast=None, warnings=[])
    assert found is reference
    with pytest.raises(UsageError, match=r"replay-pipeline\[fast\]"):
        maybe_fast(reference, lambda _: Fast(), "mine", fast=True, warnings=[])


def test_the_fast_engine_is_loaded_only_once_it_is_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.vocabularies.fast.WORTH_CHARACTERS", 10)
    reference, loaded = Reference(), list[Fast]()

    def load(_: Any) -> Fast:
        loaded.append(Fast())
        return loaded[-1]

    found = maybe_fast(reference, load, "mine", fast=None, warnings=[])
    assert found.encode(["0 1 2"]) == found.encode(["3 4 5"]) == [struct.pack("<I", 5)]
    assert reference.texts == ["0 1 2", "3 4 5"]
    assert not loaded
    assert found.encode(["7 8"]) == [struct.pack("<I", 3)]
    assert loaded
