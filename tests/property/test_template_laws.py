"""Whatever a log holds as messages: a text or a rejected line, and no marker but for media."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from template_samples import bare_vocabulary

from pipeline.logs.records import BadLine, Chat
from pipeline.templates import BUILT_IN, find_template, protect
from pipeline.templates.media import MARKER, marker_ids, without_marks

SPECIAL = ("<|im_start|>", "<|im_end|>")
MARKS = ("0" * 32, ":", "9", *SPECIAL, "{{ x }}", "é")
TEXTS = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from(["\ufdd0", "\ufdd1", "\ufdd2", *MARKS]),
        max_size=8,
    ).map("".join),
    st.just(f"\ufdd1{'a' * 32}:9\ufdd2"),
)  # fmt: skip
LEAVES = st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(
    TEXTS.map(lambda text: {"type": "text", "text": text})
    | TEXTS.map(lambda url: {"type": "image_url", "image_url": {"url": url}})
    | VALUES,
    max_size=4,
)
CALLS = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": TEXTS, "arguments": VALUES})}
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]) | VALUES},
    optional={
        "content": TEXTS | PARTS | VALUES,
        "tool_calls": st.lists(CALLS, max_size=2) | VALUES,
        "reasoning_content": VALUES,
        "name": VALUES,
    },
)
TEMPLATES = {name: find_template(name, bare_vocabulary("v")) for name in BUILT_IN}


@pytest.mark.parametrize("name", BUILT_IN)
@settings(max_examples=40)
@given(messages=st.lists(MESSAGES | VALUES, max_size=4), tools=st.none() | st.lists(VALUES))
def test_any_messages_are_rendered_or_rejected(
    name: str, messages: list[Any], tools: list[Any] | None
) -> None:
    chat = Chat(messages, tools)
    for one in (chat, protect(chat, SPECIAL)):
        try:
            text = TEMPLATES[name].render(one)
        except BadLine:
            continue
        assert text == TEMPLATES[name].render(one)


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, min_size=1, max_size=3))
def test_each_image_is_one_marker_and_a_users_text_none(urls: list[str], texts: list[str]) -> None:
    images = [{"type": "image_url", "image_url": {"url": f"https://{url}"}} for url in urls]
    chat = Chat([{"role": "user", "content": [*texts, *images, *texts]}])
    for one in (chat, protect(chat, SPECIAL)):
        text = TEMPLATES["chatml"].render(one)
        markers = re.findall(MARKER, text)
        assert len(markers) == len(images)
        assert len(set(markers)) == len({without_marks(url) for url in urls})
        assert all(len(marker_ids(piece)) == 1024 for piece in markers)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_protected_chat_holds_the_templates_own_control_tokens_alone(texts: list[str]) -> None:
    chat = Chat([{"role": "user", "content": text} for text in texts])
    text = TEMPLATES["chatml"].render(protect(chat, SPECIAL))
    assert text.count("<|im_start|>") == len(texts) + 1
    assert text.count("<|im_end|>") == len(texts)
