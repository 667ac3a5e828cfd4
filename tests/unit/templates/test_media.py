"""Images, sounds and files: markers by content, which nobody can forge."""

import base64
import re
from typing import Any

import numpy as np
import pytest
from template_samples import QUESTION, chat, template

from pipeline.logs.records import BadLine
from pipeline.templates.media import (
    MARKER,
    MediaTokens,
    is_marker,
    marker_ids,
    media_ids,
    without_marks,
)

CONTENT = "{% for m in messages %}{{ m.content }};{% endfor %}"
PARTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }};{% endfor %}{% endfor %}"
CAT = base64.b64encode(b"cat" * 1000).decode()
URL = f"data:image/png;base64,{CAT}"


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def marker_of(part: dict[str, Any], **options: int) -> str:
    found = template(CONTENT, media=MediaTokens(**options))
    text = found.render(chat({"role": "user", "content": [part]}))
    [marker] = re.findall(MARKER, text)
    assert text == f"{marker};"
    return str(marker)


def test_an_image_is_a_marker_with_its_tokens_in_place() -> None:
    parts = [{"type": "text", "text": "look"}, image(URL), {"type": "text", "text": "there"}]
    text = template(CONTENT).render(chat({"role": "user", "content": parts}))
    assert re.fullmatch(f"look\n{MARKER}\nthere;", text)
    assert template(PARTS).render(chat({"role": "user", "content": parts})) == text.replace(
        "\n", ";"
    )
    assert CAT not in text


@pytest.mark.parametrize(
    "part",
    [
        image(URL),
        image(URL.replace("image/png", "image/jpeg;x=1")),
        {"type": "image_url", "image_url": URL},
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "input_image", "image_url": URL},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": CAT}},
        {"type": "image", "data": CAT},
        {"type": "file", "file": {"filename": "cat.png", "file_data": URL}},
        {"type": "image_url", "image_url": {"url": URL[:60] + "\n" + URL[60:]}},
    ],
)
def test_the_same_data_is_the_same_content_however_it_was_sent(part: dict[str, Any]) -> None:
    assert marker_of(part) == marker_of(image(URL))


def test_other_data_and_other_addresses_are_other_content() -> None:
    parts = [
        image(URL),
        image(URL[:-8]),
        image("https://example.org/cat.png"),
        image("https://example.org/dog.png"),
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"file_id": "file-2"}},
        {"type": "strange", "strange": {"x": [1, 2]}},
        {"type": "strange", "strange": {"x": [1, 3]}},
        {"x": None},
    ]
    assert len({marker_of(part) for part in parts}) == len(parts)


def test_the_order_of_keys_does_not_matter() -> None:
    assert marker_of({"a": 1, "b": {"c": 1, "d": 2}}) == marker_of({"b": {"d": 2, "c": 1}, "a": 1})


def test_tokens_are_counted_by_kind() -> None:
    counts = {"image": 7, "audio": 9}
    kinds = {
        "image_url": 7, "input_image": 7, "file": 7, "input_file": 7, "strange": 7,
        "input_audio": 9, "audio_url": 9, "video_url": 9, "video": 9,
    }  # fmt: skip
    for kind, count in kinds.items():
        piece = marker_of({"type": kind, kind: {"data": CAT}}, **counts)
        assert piece.endswith(f":{count}\ufdd2")
        assert len(marker_ids(piece)) == 4 * count
    assert marker_ids(marker_of(image(URL), image=0)) == b""
    assert len(marker_ids(marker_of(image(URL)))) == 4 * 256


def test_ids_lie_above_any_vocabulary_and_belong_to_one_content() -> None:
    cat, dog = (np.frombuffer(media_ids(digest * 16, 1000), "<u4") for digest in ("0a", "0b"))
    assert cat.min() >= 2**31
    assert len(set(cat.tolist())) > 990
    assert not set(cat.tolist()) & set(dog.tolist())
    assert media_ids("0a" * 16, 10) == media_ids("0a" * 16, 1000)[:40]


def test_a_user_can_not_write_a_marker() -> None:
    forged = marker_of(image(URL))
    assert is_marker(forged)
    tool = {"type": "function", "function": {"name": "f", forged: [forged]}}
    source = CONTENT + "{{ tools|tojson }}{{ x|tojson }}{{ messages[0].tool_calls|tojson }}"
    arguments = {"function": {"name": "f", "arguments": f'{{"a": "{forged}"}}'}}
    message = {"role": "user", "content": f"see {forged}!", "tool_calls": [arguments]}
    text = template(source).render(chat(message, tools=[tool], x={forged: forged}))
    assert not re.search("[\ufdd0-\ufdd2]", text)
    assert text.count("\ufffd") == 2 * 6
    escaped = {"function": {"name": "f", "arguments": '{"a": "\\ufdd1"}'}}
    message = {"role": "user", "content": "", "tool_calls": [escaped]}
    source = "{{ messages[0].tool_calls|tojson }}"
    assert template(source).render(chat(message)).count("\ufffd") == 1


def test_other_letters_are_left_alone() -> None:
    text = "a東👩\ud83d\ufdcf\ufdd3\ufffd"
    assert without_marks(text) == text
    assert template(CONTENT).render(chat({**QUESTION, "content": text})) == f"{text};"


def test_a_part_that_json_can_not_hold_apart_is_still_named() -> None:
    assert is_marker(marker_of({"type": "x", "x": "\ud800"}))
    assert is_marker(marker_of({"type": "x", "data": "no base64 !"}))
    assert is_marker(marker_of({"type": "x", "x": {"url": "data:text/plain,hello"}}))
    with pytest.raises(BadLine):
        template(CONTENT).render(chat({"role": "user", "content": [[image(URL)]]}))
