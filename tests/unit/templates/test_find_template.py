"""Which chat template is used, and what is said if none can be."""

from pathlib import Path
from typing import Any

import pytest
from template_samples import QUESTION, TOOL, bare_vocabulary, chat
from vocabulary_samples import write_json

from pipeline.errors import UsageError
from pipeline.templates import find_template


def own(folder: Path, *, tools: bool = False) -> str:
    """Render with what is found in a folder."""
    found = find_template(None, bare_vocabulary("mine", folder=folder))
    return f"{found.name}: {found.render(chat(QUESTION, tools=[TOOL] if tools else None))}"


def refusal(name: str | None, folder: Path | None = None) -> str:
    with pytest.raises(UsageError) as refused:
        find_template(name, bare_vocabulary("mine", folder=folder))
    return str(refused.value)


def named(**templates: str) -> list[dict[str, str]]:
    return [{"name": name, "template": source} for name, source in templates.items()]


def test_each_source_gives_way_to_the_one_before_it(tmp_path: Path) -> None:
    more = tmp_path / "additional_chat_templates"
    assert own(tmp_path).startswith("plain (fallback): user: ")
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": "config"})
    assert own(tmp_path) == "tokenizer_config.json: config"
    write_json(tmp_path / "chat_template.json", {"chat_template": "processor"})
    assert own(tmp_path) == "chat_template.json: processor"
    more.mkdir()
    (more / "default.jinja").write_text("more")
    assert own(tmp_path) == "additional_chat_templates: more"
    (tmp_path / "chat_template.jinja").write_text("file")
    assert own(tmp_path) == "chat_template.jinja: file"
    (more / "tool_use.jinja").write_text("tools")
    assert own(tmp_path) == "chat_template.jinja: file"
    assert own(tmp_path, tools=True) == "chat_template.jinja: tools"
    explicit = tmp_path / "other.jinja"
    explicit.write_text("explicit")
    found = find_template(str(explicit), bare_vocabulary("mine", folder=tmp_path))
    assert (found.name, found.render(chat(QUESTION))) == ("other.jinja", "explicit")
    found = find_template("chatml", bare_vocabulary("mine", folder=tmp_path))
    assert found.name == "chatml"


@pytest.mark.parametrize(
    ("value", "without", "with_tools"),
    [
        (named(default="d", tool_use="t", rag="r"), "d", "t"),
        (named(default="d"), "d", "d"),
        (named(tool_use="t"), "t", "t"),
        ({"default": "d", "tool_use": "t"}, "d", "t"),
    ],
)
def test_a_list_of_templates_is_chosen_from_by_whether_there_are_tools(
    tmp_path: Path, value: Any, without: str, with_tools: str
) -> None:
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": value})
    assert own(tmp_path).endswith(f": {without}")
    assert own(tmp_path, tools=True).endswith(f": {with_tools}")


@pytest.mark.parametrize(
    ("vocabulary", "template"),
    [
        ("qwen3", "chatml"),
        ("qwen3.5", "chatml"),
        ("llama3", "llama3"),
        ("deepseek", "deepseek"),
        ("cl100k", "plain (fallback)"),
        ("org/name", "plain (fallback)"),
    ],
)
def test_a_vocabulary_without_a_template_gets_the_one_of_its_family(
    vocabulary: str, template: str
) -> None:
    found = find_template(None, bare_vocabulary(vocabulary))
    assert found.name == template
    assert find_template("plain", bare_vocabulary(vocabulary)).name == "plain"


def test_tokens_of_the_vocabulary_and_media_options_reach_the_template(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    vocabulary = bare_vocabulary("mine", {"bos_token": "<s>"}, tmp_path)
    found = find_template(None, vocabulary, image_tokens=3, audio_tokens=4)
    image = {"type": "image_url", "image_url": {"url": "u"}}
    written = found.render(chat({"role": "user", "content": [image, {"type": "input_audio"}]}))
    assert written.startswith("<s>\ufdd1")
    assert [part[-2:] for part in written.split("\n")] == ["3\ufdd2", "4\ufdd2"]


def test_a_fingerprint_is_that_of_the_source(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jinja").write_text("x")
    (tmp_path / "c.jinja").write_text("y")
    vocabulary = bare_vocabulary("mine")
    a, b, c = (find_template(str(tmp_path / f"{name}.jinja"), vocabulary) for name in "abc")
    assert a.sha256 == b.sha256 != c.sha256
    assert len(a.sha256) == 64


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("chatlm", "unknown chat template 'chatlm' (did you mean chatml?)"),
        ("nowhere/x.jinja", "chat template nowhere/x.jinja: no such file"),
        ("x.jinja", "no such file: give a jinja2 file, or one of chatml"),
    ],
)
def test_a_template_that_is_nowhere_is_refused(name: str, said: str) -> None:
    assert said in refusal(name)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("chat_template.jinja", b"\xff", "not UTF-8"),
        ("chat_template.jinja", b"a\n{% if %}", "chat template chat_template.jinja: line 2:"),
        ("chat_template.jinja", b"{% while 1 %}", "unknown tag 'while'"),
        ("chat_template.jinja", b"{{ x|random }}", "No filter named 'random'"),
        ("chat_template.jinja", b"{{ x|nonsense }}", "No filter named 'nonsense'"),
        ("chat_template.jinja", b"x" * (1 << 20) + b"x", "longer than"),
        (
            "chat_template.jinja",
            b"{{" + b"(" * 5_000 + b"x" + b")" * 5_000 + b"}}",
            "can't compile",
        ),
        ("chat_template.json", b"{", "not valid JSON"),
        ("tokenizer_config.json", b'{"chat_template": 7}', "none named"),
        (
            "tokenizer_config.json",
            b'{"chat_template": [{"name": "rag", "template": "x"}]}',
            "(rag)",
        ),
        ("tokenizer_config.json", b'{"chat_template": [7]}', "none named"),
    ],
)
def test_a_damaged_template_is_refused(
    tmp_path: Path, file: str, content: bytes, said: str
) -> None:
    (tmp_path / file).write_bytes(content)
    assert said in refusal(None, tmp_path)


def test_a_json_file_without_a_template_is_refused_if_it_was_named(tmp_path: Path) -> None:
    file = write_json(tmp_path / "tokenizer_config.json", {"chat_template": None})
    assert f"{file}: no chat_template in it" in refusal(str(file))
    assert own(tmp_path).startswith("plain (fallback)")
