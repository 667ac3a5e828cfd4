"""find_template: the chat template that belongs to a vocabulary, or that a name stands for."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.errors import UsageError, unknown
from pipeline.templates.chat_template import ChatTemplate
from pipeline.templates.media import MediaTokens
from pipeline.vocabularies import Vocabulary
from pipeline.vocabularies.from_json import read_json

BUILT_IN = ("chatml", "llama3", "mistral", "deepseek", "plain")
_OF_VOCABULARY = {
    "qwen3": "chatml",
    "qwen3.5": "chatml",
    "llama3": "llama3",
    "deepseek": "deepseek",
}
_ARGUMENTS_AS_TEXT = {"chatml", "plain"}
FALLBACK = "plain (fallback)"
"""Name of the template that is used for want of another: prompts are like no engine's."""
_DEFAULT, _WITH_TOOLS = "default", "tool_use"


class _Found(NamedTuple):
    name: str
    source: str
    with_tools: str | None = None


def find_template(
    name: str | None,
    vocabulary: Vocabulary,
    *,
    image_tokens: int = 256,
    audio_tokens: int = 256,
) -> ChatTemplate:
    """Return the chat template of a file or built-in name, or without one the vocabulary's own.

    That is chat_template.jinja, additional_chat_templates/, chat_template.json or
    tokenizer_config.json beside the vocabulary, else the built-in one of its family, else plain
    lines of `role: content`, called FALLBACK. Raises UsageError if what is found is damaged.
    """
    media = MediaTokens(image_tokens, audio_tokens)
    if name in BUILT_IN:
        return _built_in(name, name, vocabulary, media)
    if name is not None:
        path = Path(name).expanduser()
        if not path.is_file():
            raise _not_there(name)
        found: _Found | None = _from_file(path)
        if found is None:
            raise UsageError(f"{path}: no chat_template in it: give a jinja2 file")
    else:
        found = _beside(vocabulary.folder) if vocabulary.folder else None
    if found is not None:
        return ChatTemplate(
            found.source,
            found.name,
            vocabulary.tokens,
            source_with_tools=found.with_tools,
            media=media,
        )
    known = _OF_VOCABULARY.get(vocabulary.name)
    if known is not None:
        return _built_in(known, known, vocabulary, media)
    return _built_in("plain", FALLBACK, vocabulary, media)


def _built_in(name: str, shown: str, vocabulary: Vocabulary, media: MediaTokens) -> ChatTemplate:
    source = resources.files("pipeline.templates").joinpath(f"{name}.jinja")
    return ChatTemplate(
        source.read_text(encoding="utf-8"),
        shown,
        vocabulary.tokens,
        media=media,
        parse_arguments=name not in _ARGUMENTS_AS_TEXT,
    )


def _not_there(name: str) -> UsageError:
    if "/" in name or Path(name).suffix in {".jinja", ".jinja2", ".json", ".txt"}:
        return UsageError(
            f"chat template {name}: no such file: give a jinja2 file, or one of"
            f" {', '.join(BUILT_IN)}"
        )
    return unknown("chat template", name, BUILT_IN)


def _beside(folder: Path) -> _Found | None:
    """Return the template that lies in a model's folder."""
    more = {path.stem: path for path in sorted(folder.glob("additional_chat_templates/*.jinja"))}
    plain = folder / "chat_template.jinja"
    if plain.is_file():
        with_tools = more.get(_WITH_TOOLS)
        return _Found(plain.name, _read(plain), _read(with_tools) if with_tools else None)
    if more:
        named = {name: _read(path) for name, path in more.items()}
        return _chosen(folder / "additional_chat_templates", named)
    for file in ("chat_template.json", "tokenizer_config.json"):
        found = _from_file(folder / file) if (folder / file).is_file() else None
        if found is not None:
            return found
    return None


def _from_file(path: Path) -> _Found | None:
    """Return the template in a file, None if it is JSON without one."""
    if path.suffix != ".json":
        return _Found(path.name, _read(path))
    content = read_json(path)
    value = content.get("chat_template") if isinstance(content, dict) else None
    if value is None:
        return None
    if isinstance(value, str):
        return _Found(path.name, value)
    try:
        named = value if isinstance(value, dict) else {e["name"]: e["template"] for e in value}
    except (KeyError, TypeError):
        named = {}
    return _chosen(path, named)


def _chosen(path: Path, named: Mapping[str, Any]) -> _Found:
    default, with_tools = named.get(_DEFAULT), named.get(_WITH_TOOLS)
    for source in (default, with_tools):
        if isinstance(source, str):
            return _Found(path.name, source, with_tools if isinstance(with_tools, str) else None)
    raise UsageError(
        f"{path}: none of its chat templates ({', '.join(named) or 'none named'}) is called"
        f" {_DEFAULT} or {_WITH_TOOLS}: give one as a file"
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{path}: {why}: give another chat template") from None
