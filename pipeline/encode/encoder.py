"""Encoders: for each model its vocabulary and chat template, loaded once a text comes."""

import fnmatch
import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.encode.segments import Pieces, Segmenter
from pipeline.encode.settings import TokenizeSettings
from pipeline.encode.times import Time, moment_of
from pipeline.errors import UsageError
from pipeline.logs.records import Chat
from pipeline.templates import ChatTemplate, find_template, protect
from pipeline.templates.media import without_marks
from pipeline.vocabularies import find_vocabulary

_END = "\ufdd3"  # a character that is none


class Encoder:
    """A vocabulary and a chat template.

    models    which models it is for, as a pattern
    identity  its name, and the fingerprint of all that its ids depend on
    """

    def __init__(
        self,
        models: str,
        segmenter: Segmenter,
        template: ChatTemplate,
        settings: TokenizeSettings,
    ) -> None:
        self.models = models
        self.segmenter = segmenter
        self.template = template
        self._protects = settings.special_tokens_in_text == "text"
        self._keeps_answers = settings.output_ids
        vocabulary = segmenter.vocabulary
        key = (
            vocabulary.sha256,
            template.sha256,
            settings.special_tokens_in_text,
            settings.image_tokens,
            settings.audio_tokens,
        )
        fingerprint = hashlib.sha256(repr(key).encode()).hexdigest()
        self.identity = f"{vocabulary.name} with {template.name}", fingerprint

    def pieces(self, prompt: Chat | str, time: Time, *, cut: bool = False) -> Pieces:
        """Return a prompt's text in pieces; BadLine if its messages can't be rendered.

        A text without a chat template gets the one BOS that the engine gives it. Of a chat that
        was cut, what the template writes after its last message is not there.
        """
        vocabulary = self.segmenter.vocabulary
        if isinstance(prompt, str):
            bos, text = vocabulary.bos or "", without_marks(prompt)
            return self.segmenter.pieces(text if text.startswith(bos) else bos + text)
        chat = protect(prompt, vocabulary.special) if self._protects else prompt
        if cut:
            chat = replace(chat, messages=[*chat.messages[:-1], _with_end(chat.messages[-1])])
        moment = moment_of(time) if self.template.uses_clock else None
        text = self.template.render(chat, moment)
        return self.segmenter.pieces(text.rpartition(_END)[0] or text if cut else text)

    def answer(self, text: str, prompt: Chat | str | None) -> Pieces:
        """Return an answer's text in pieces, to be counted, or kept behind its prompt.

        It gets no BOS. Kept behind a chat, control tokens in it are what they are in the chat.
        """
        if self._keeps_answers and self._protects and isinstance(prompt, Chat):
            return self.segmenter.pieces(
                protect(prompt, self.segmenter.vocabulary.special).broken(text)
            )
        return self.segmenter.pieces(without_marks(text))


def _with_end(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a mark at the end of its text."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + _END}
    if isinstance(content, list):
        return {**message, "content": [*content, {"type": "text", "text": _END}]}
    return message


class _Rule(NamedTuple):
    """A line of the tokenizer map."""

    model: str
    tokenizer: str
    chat_template: str | None


class Encoders:
    """The encoder of each model."""

    def __init__(self, settings: TokenizeSettings) -> None:
        """Read the tokenizer map; UsageError if it can't be read."""
        self._settings = settings
        self._rules = _read_map(settings.tokenizer_map) if settings.tokenizer_map else []
        self._rules.append(_Rule("*", settings.tokenizer, settings.chat_template))
        self._loaded: dict[_Rule, Encoder] = {}
        self._segmenters: dict[str, Segmenter] = {}
        self.of_model = cache(self._of_model)

    def _of_model(self, model: str | None) -> Encoder:
        return self._of_rule(
            next(r for r in self._rules if fnmatch.fnmatchcase(model or "", r.model))
        )

    def _of_rule(self, rule: _Rule) -> Encoder:
        if rule not in self._loaded:
            segmenter = self._segmenters.get(rule.tokenizer)
            if segmenter is None:
                vocabulary = find_vocabulary(rule.tokenizer, fast=self._settings.fast)
                segmenter = self._segmenters[rule.tokenizer] = Segmenter(vocabulary)
            template = find_template(
                rule.chat_template,
                segmenter.vocabulary,
                image_tokens=self._settings.image_tokens,
                audio_tokens=self._settings.audio_tokens,
            )
            self._loaded[rule] = Encoder(rule.model, segmenter, template, self._settings)
        return self._loaded[rule]

    def load_all(self) -> None:
        """Load what the map names, so that a wrong name is known before any log is read."""
        for rule in self._rules[:-1]:
            self._of_rule(rule)

    def agree(self, tokenizers: dict[str, tuple[str, str]]) -> bool:
        """Tell whether these are the identities of the encoders for these models."""
        rules = {rule.model: rule for rule in self._rules}
        return tokenizers.keys() <= rules.keys() and all(
            self._of_rule(rules[models]).identity == tuple(identity)
            for models, identity in tokenizers.items()
        )

    def warnings(self) -> list[str]:
        """Return what the engines had to say."""
        return [w for s in list(self._segmenters.values()) for w in s.vocabulary.warnings]


def _read_map(path: Path) -> list[_Rule]:
    """Return the rules of a TOML file with [[model]] tables: match, tokenizer, chat_template."""
    try:
        tables: Any = tomllib.loads(path.read_text(encoding="utf-8")).get("model", [])
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer-map {path}: {error}") from None
    if not isinstance(tables, Sequence) or not tables:
        raise UsageError(f"--tokenizer-map {path}: no [[model]] tables in it")
    rules = []
    for number, table in enumerate(tables, 1):
        known = {"match", "tokenizer", "chat_template"}
        if not isinstance(table, dict) or not {"match", "tokenizer"} <= table.keys() <= known:
            raise UsageError(
                f"--tokenizer-map {path}: [[model]] {number} needs match and tokenizer,"
                " and may have chat_template"
            )
        rules.append(_Rule(table["match"], table["tokenizer"], table.get("chat_template")))
    return rules
