"""Examples of block traces and data sets, read by detection alone."""

from pathlib import Path
from typing import Any

import pytest
from family_reading import read_file

from pipeline.errors import LogError
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, Blocks, Chat, LogRecord, Skip

What = LogRecord | Skip | BadLine
QUESTION = {"role": "user", "content": "What is a derailleur?"}
NO_TURNS = Skip("a conversation without turns")


def _carried(**known: str) -> dict[str, str | None]:
    return {"namespace": None, "model": None, "tenant": None, "session_id": None} | known


def _of_model(model: str, **known: str) -> dict[str, str | None]:
    return _carried(namespace=model, model=model, **known)


_read = read_file


def _example(shared: Path, file: str, family: str) -> list[Any]:
    found = _read(shared / "log_examples" / file, family)
    return [str(what) if isinstance(what, BadLine) else what for what in found]


def test_mooncake(shared: Path) -> None:
    assert _example(shared, "mooncake.jsonl", "mooncake") == [
        LogRecord(Blocks([0, 1, 2], 1300, 512), 0, None, _carried(), 90),
        LogRecord(Blocks([0, 1, 3, 4], 1700, 512), 3000, None, _carried(), 12),
        LogRecord(Blocks([5], 400, 512), 3000, None, _carried(), 7),
    ]


def test_mooncake_with_sessions_keeps_its_blocks_and_rejects_its_texts(shared: Path) -> None:
    a, b = _carried(session_id="a"), _carried(session_id="b")
    text = "text or tokens among blocks of 512 tokens"
    assert _example(shared, "mooncake_extended.jsonl", "mooncake") == [
        LogRecord(Blocks([0, 1, 2], 1300, 512), 1000, None, a, 90),
        LogRecord(Blocks([0, 1, 2, 3], 1900, 512), 1250, None, a, 40),
        text,
        text,
        text,
        LogRecord(Blocks([9, 10, 11, 12], 2048, 512), 2000, None, b, 64),
        LogRecord(Blocks([9, 10, 11, 12, 13], 2560, 512), 2050, None, b, 64),
        "a delay without an earlier turn of its session",
    ]


def test_mooncake_with_texts_alone_keeps_them(shared: Path, tmp_path: Path) -> None:
    lines = (shared / "log_examples/mooncake_extended.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(lines[2:5]))
    system = "You are the parts-desk assistant of a bicycle shop. Answer in one sentence."
    schema = {
        "type": "object",
        "properties": {"part": {"type": "string"}},
        "required": ["part"],
    }
    tool = {
        "name": "stock_level",
        "description": "Units in stock for a part number",
        "parameters": schema,
    }
    chat = Chat(
        [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}],
        [{"type": "function", "function": tool}],
    )
    assert _read(path, "mooncake") == [
        LogRecord(chat, 1500.5, None, _carried(), 20),
        LogRecord("plain prompt", 1600, None, _carried(), 8),
        LogRecord("Hello", 1700, None, _of_model("qwen3-8b")),
    ]


def test_bailian(shared: Path) -> None:
    first, outside = _carried(session_id="41"), _carried(session_id="9")
    assert _example(shared, "bailian.jsonl", "bailian") == [
        LogRecord(Blocks([700, 701, 702], 40, 16), 0.25, "41", first, 12),
        LogRecord(Blocks([700, 701, 703, 704, 705], 70, 16), 9.75, "52", first, 30),
        LogRecord(Blocks([706], 16, 16), 10.0, "53", outside, 3),
    ]


def test_a_weka_session(shared: Path) -> None:
    first, inner, last = _example(shared, "weka_trace.json", "coding-agent")
    large, small = (_of_model(f"m-{size}", session_id="w1") for size in ("large", "small"))
    local = dict(zip([*range(25), 100, 101], last.prompt.ids + inner.prompt.ids, strict=True))
    assert len(set(local.values())) == 27
    assert not set(local.values()) & set(local)
    assert first == LogRecord(
        prompt=Blocks([local[block] for block in range(22)], 1400, 64),
        time=0.0,
        request_id="w1-0",
        carried=large,
        output_tokens=90,
        observed_ttft_ms=600.0,
    )
    assert inner == LogRecord(
        prompt=Blocks([local[100], local[101]], 700, 64),
        time=10.2,
        request_id="w1-1",
        carried=small,
        output_tokens=40,
        cut=True,
        length=700,
    )
    assert last == LogRecord(
        prompt=Blocks([local[block] for block in range(25)], 1600, 64),
        time=16.0,
        request_id="w1-2",
        carried=large,
        output_tokens=30,
    )


def test_a_dynamo_request_trace(shared: Path) -> None:
    session = _carried(session_id="run-1:coder")
    shared_block = 14879255164371800001
    other = [shared_block, 274632075616400003, 993]
    assert _example(shared, "dynamo_request_trace_v1.jsonl", "dynamo") == [
        LogRecord(
            Blocks([shared_block, 274632075616400002], 128, 64),
            1772359200000,
            "d1",
            _carried(),
            16,
        ),
        LogRecord(Blocks(other, 150, 64), 1772359201000, "d2", session, 20),
        Skip("tool event"),
    ]


def test_sharegpt(shared: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    first = "It moves the chain between sprockets."
    more = [{"role": "assistant", "content": first}, {"role": "user", "content": "And a hub gear?"}]
    carried = _carried(session_id="k1_0")
    assert _example(shared, "sharegpt.json", "sharegpt") == [
        LogRecord(Chat([system, QUESTION]), None, "k1_0-0", carried, answer=first),
        LogRecord(
            Chat([system, QUESTION, *more]),
            None,
            "k1_0-1",
            carried,
            answer="It shifts inside the hub.",
        ),
        NO_TURNS,
    ]


def test_lmsys(shared: Path) -> None:
    carried = _of_model("vicuna-13b", session_id="c0ffee01")
    assert _example(shared, "lmsys_chat_1m.jsonl", "lmsys") == [
        LogRecord(Chat([QUESTION]), None, "c0ffee01-0", carried, answer="It moves the chain.")
    ]


def test_wildchat(shared: Path) -> None:
    carried = _of_model("gpt-4", session_id="ab12", tenant="00")
    assert _example(shared, "wildchat.jsonl", "wildchat") == [
        LogRecord(
            Chat([QUESTION]),
            "2026-03-01T10:00:05+00:00",
            "ab12-0",
            carried,
            answer="It moves the chain.",
        )
    ]


def test_aiperf(shared: Path) -> None:
    hi, bye = ({"role": "user", "content": text} for text in ("Hi", "Bye"))
    hello = {"role": "assistant", "content": "Hello"}
    sent, said = _of_model("qwen3-8b", session_id="a"), _carried(session_id="a")
    assert _example(shared, "aiperf_inputs.json", "aiperf") == [
        LogRecord(Chat([hi]), None, "a-0", sent),
        LogRecord(Chat([hi, hello, bye]), None, "a-1", sent),
    ]
    assert _example(shared, "aiperf_multi_turn.jsonl", "aiperf") == [
        LogRecord(Chat([hi]), None, "a-0", said, 10),
        LogRecord(Chat([hi, bye]), None, "a-1", said),
    ]


@pytest.mark.parametrize(
    "file",
    [
        "log_examples/azure_llm_2023.csv",
        "log_examples/burstgpt.csv",
        "log_examples/trace_synthetic.jsonl",
        "traces/AzureLLMInferenceTrace_conv.csv.gz",
        "traces/tracelab_sanitized_round_trace.jsonl",
    ],
)
def test_traces_of_lengths_are_refused(shared: Path, file: str) -> None:
    with pytest.raises(LogError, match=f"{Path(file).name}: lengths: only counts of tokens"):
        list(read_log(LogFile(shared / file)))
