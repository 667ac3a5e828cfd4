"""Traces that know their outputs: links of prompt + output, their laws, and how answers get ids."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import common
from samples import Prompts, Row, column, names_in, requests, rows_of, write_log, write_tokens
from strategies import Tokens, token_traces

from pipeline.errors import LogError, TraceError
from pipeline.prepare import drop_tokens, ready_trace, write_links
from pipeline.tables import OUTPUT_COLUMN, TOKEN_COLUMN, WHOLE_COLUMNS, trace_schema
from pipeline.tokenize import Summary, TokenizeSettings, tokenize_logs
from pipeline.trace import Lists, TraceFile, TraceMetadata, TraceWriter, writer
from pipeline.trace.reader import fingerprint
from pipeline.trace.writer import Requests

PROMPTS: Prompts = [(1, 2), (1, 2, 3, 4, 5), (1, 2, 3), (), (7, 8), (1,)]
OUTPUTS: Prompts = [(3, 4), (), (4, 4), (7,), (), (2, 3, 4, 5, 6)]
LINKS = [  # prefix_seq, prefix_tokens, whole_tokens, whole_prefix_seq, whole_prefix_tokens
    (None, 0, 4, 0, 2),
    (0, 4, 5, 1, 5),  # the first prompt + output, and one token more
    (1, 3, 5, 1, 4),  # its output parts from the second prompt after a token
    (None, 0, 1, 3, 0),
    (3, 1, 2, 4, 2),  # it begins as the output of an empty prompt
    (2, 1, 6, 1, 5),
]
NAMES = ("prefix_seq", "prefix_tokens", *WHOLE_COLUMNS)


def _lists(ids: Sequence[Sequence[int]]) -> Lists:
    flat = np.array([token for one in ids for token in one], np.uint32)
    return Lists(flat, np.cumsum([0, *map(len, ids)], dtype=np.int64))


def _batch(prompts: Prompts, outputs: Prompts, **carried: Any) -> Requests:
    return requests(prompts, [0] * len(prompts), **carried)._replace(outputs=_lists(outputs))


def _write(path: Path, prompts: Prompts, outputs: Prompts, **carried: Any) -> Path:
    with TraceWriter(path, TraceMetadata(), outputs=True) as trace:
        trace.write(_batch(prompts, outputs, **carried))
    return path


def _links(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in NAMES) for row in rows_of(path)]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return _write(tmp_path / "a.parquet", PROMPTS, OUTPUTS)


def test_a_prompt_is_found_in_an_earlier_output_and_a_whole_in_both(trace: Path) -> None:
    lengths = [tuple(link[1:3]) + link[4:] for link in _links(trace)]
    assert lengths == [tuple(link[1:3]) + link[4:] for link in LINKS]
    sequences = [(*p, *o) for p, o in zip(PROMPTS, OUTPUTS, strict=True)]
    for seq, (prefix_seq, prefix, _, whole_seq, whole_prefix) in enumerate(_links(trace)):
        assert (prefix_seq is None) == (prefix == 0)
        if prefix_seq is not None:
            assert common(sequences[prefix_seq], tuple(PROMPTS[seq])) == prefix
        if whole_seq != seq:
            assert common(sequences[whole_seq], sequences[seq]) == whole_prefix
    assert pq.read_schema(trace).remove_metadata() == trace_schema(TOKEN_COLUMN, outputs="ids")
    assert column(rows_of(trace), OUTPUT_COLUMN) == [list(ids) for ids in OUTPUTS]


def test_a_reader_has_the_columns_of_wholes_or_empty_ones(trace: Path, tmp_path: Path) -> None:
    columns = TraceFile.open(trace).columns()
    assert columns.has_outputs
    for name in WHOLE_COLUMNS:
        assert getattr(columns, name).tolist() == column(rows_of(trace), name)
    with TraceWriter(tmp_path / "b.parquet", TraceMetadata()) as plain:
        plain.write(requests(PROMPTS, [0] * len(PROMPTS)))
    bare = TraceFile.open(tmp_path / "b.parquet").columns()
    assert not bare.has_outputs
    assert [len(getattr(bare, name)) for name in WHOLE_COLUMNS] == [0, 0, 0]
    assert fingerprint(bare) == fingerprint(columns._replace(**bare._asdict()))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), wholes=token_traces())
def test_what_is_written_keeps_the_laws_that_are_checked(
    data: st.DataObject, wholes: list[Tokens], tmp_path_factory: pytest.TempPathFactory
) -> None:
    ends = [data.draw(st.integers(0, len(whole))) for whole in wholes]
    names = data.draw(
        st.lists(st.sampled_from((None, "a")), min_size=len(ends), max_size=len(ends))
    )
    prompts = [whole[:end] for whole, end in zip(wholes, ends, strict=True)]
    outputs = [whole[end:] for whole, end in zip(wholes, ends, strict=True)]
    path = tmp_path_factory.mktemp("laws") / "a.parquet"
    namespace = pa.array(names, pa.string())
    columns = TraceFile.open(_write(path, prompts, outputs, namespace=namespace)).columns()
    assert columns.whole_tokens.tolist() == [len(whole) for whole in wholes]
    for seq, prompt in enumerate(prompts):
        earlier = [i for i in range(seq) if names[i] == names[seq]]
        for tokens, found, least in (
            (prompt, columns.prefix_tokens[seq], 0),
            (wholes[seq], columns.whole_prefix_tokens[seq], len(prompt)),
        ):
            assert found == max([least, *(common(wholes[i], tokens) for i in earlier)])


def _set(row: int, **values: Any) -> Callable[[list[Row]], object]:
    return lambda rows: rows[row].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(4, whole_tokens=1), "row 4: whole_tokens is 1, which is less than its prompt_tokens"),
        (_set(0, whole_prefix_seq=1), "row 0: whole_prefix_seq is 1, which is a later row"),
        (_set(2, whole_prefix_tokens=2), "is 2, which is less than its prompt_tokens"),
        (_set(2, whole_prefix_tokens=6), "is 6, which is more than its whole_tokens"),
        (_set(2, whole_prefix_seq=2), "is 4, which does not fit its whole_prefix_seq"),
        (_set(1, whole_prefix_seq=0), "is 5, which does not fit its whole_prefix_seq"),
        (_set(5, whole_prefix_tokens=6), "is 6, which is more than that earlier request has"),
        (_set(1, prefix_tokens=5), "row 1: prefix_tokens is 5, which is more than that earlier"),
        (_set(2, prefix_tokens=2), "row 2: prefix_tokens is 2, which is less than its output's"),
        (_set(4, prompt_tokens=3, first_token_id=1), "whole_tokens is 2, which is less than its"),
        (_set(5, first_token_id=9), "row 5: prefix_seq is 0, which names a request with another"),
        (_set(5, namespace="b"), "row 5: prefix_seq is 0, which names a request of another name"),
    ],
)
def test_a_broken_link_of_a_whole_is_named_with_its_row(
    trace: Path, change: Callable[[list[Row]], object], message: str
) -> None:
    rows, schema = rows_of(trace), pq.read_schema(trace)
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema), trace)
    with pytest.raises(TraceError) as caught:
        TraceFile.open(trace).columns()
    assert message in str(caught.value)
    assert f"replay link {trace} -o NEW.parquet" in str(caught.value)


@pytest.mark.parametrize("gone", WHOLE_COLUMNS)
def test_a_trace_with_some_of_the_columns_is_refused_until_it_is_linked_anew(
    trace: Path, tmp_path: Path, gone: str
) -> None:
    links = _links(trace)
    pq.write_table(pq.ParquetFile(trace).read().drop_columns([gone]), trace)
    with pytest.raises(TraceError, match=f"it links its outputs, but has no column {gone}; make"):
        TraceFile.open(trace).columns()
    write_links(TraceFile.open(trace), tmp_path / "new.parquet")
    assert _links(tmp_path / "new.parquet") == links


def test_links_made_anew_and_without_tokens_are_the_same(trace: Path, tmp_path: Path) -> None:
    columns = TraceFile.open(trace).columns()
    made = {"anew": True, "bare": False}
    for name, keep_ids in made.items():
        write_links(TraceFile.open(trace), tmp_path / name, keep_ids=keep_ids)
    drop_tokens(TraceFile.open(trace), tmp_path / "dropped")
    for name in (*made, "dropped"):
        assert fingerprint(TraceFile.open(tmp_path / name).columns()) == fingerprint(columns)
    for name in ("bare", "dropped"):
        schema = pq.read_schema(tmp_path / name).remove_metadata()
        assert schema == trace_schema(None, outputs="links")
    assert (tmp_path / "anew").read_bytes() == trace.read_bytes()


def test_a_fingerprint_covers_the_wholes(trace: Path) -> None:
    columns = TraceFile.open(trace).columns()
    other = columns.whole_prefix_tokens.copy()
    other[0] += 1
    assert fingerprint(columns._replace(whole_prefix_tokens=other)) != fingerprint(columns)


def test_a_file_of_another_tool_gets_links_of_its_outputs(trace: Path, tmp_path: Path) -> None:
    outputs = pa.array([list(ids) for ids in OUTPUTS], pa.list_(pa.int64()))
    path = write_tokens(tmp_path / "foreign.parquet", PROMPTS, output_token_ids=outputs)
    with ready_trace(path) as ready:
        assert _links(ready.path) == _links(trace)
        assert fingerprint(ready.columns()) == fingerprint(TraceFile.open(trace).columns())


def test_links_that_know_no_outputs_are_not_taken_for_those_that_do(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.parquet", [(1, 2)])
    with ready_trace(path) as ready:
        assert not ready.has_outputs
        old = ready.path
    pq.write_table(pq.ParquetFile(path).read().append_column(OUTPUT_COLUMN, [[[3]]]), path)
    with ready_trace(path) as ready:
        assert ready.has_outputs
        assert ready.path != old
    assert not old.exists()


def test_output_ids_count_towards_a_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 10)
    path = _write(tmp_path / "a.parquet", [(1,) * 4] * 4, [(2,) * 1, (2,) * 3, (2,) * 7, ()])
    footer = pq.ParquetFile(path).metadata
    assert [footer.row_group(g).num_rows for g in range(footer.num_row_groups)] == [1, 1, 1, 1]
    path = _write(tmp_path / "b.parquet", [(1,) * 4] * 4, [(2,) * 1] * 4)
    footer = pq.ParquetFile(path).metadata
    assert [footer.row_group(g).num_rows for g in range(footer.num_row_groups)] == [2, 2]


# from logs


def _tokenize(log: Path, lines: Sequence[Any], **options: Any) -> Summary:
    chosen = TokenizeSettings(output_ids=True, **options)
    return tokenize_logs([write_log(log, lines)], log.with_suffix(".parquet"), chosen)


def _outputs(log: Path) -> list[list[int]]:
    return column(rows_of(log.with_suffix(".parquet")), OUTPUT_COLUMN)


def _chat(time: int, messages: list[dict[str, str]], answer: str | None, **usage: int) -> Row:
    said = {} if answer is None else {"choices": [{"message": {"content": answer}}]}
    return {"timestamp": time, "body": {"messages": messages}, "response": said | {"usage": usage}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


IM_END = 151_645


def test_the_next_turn_is_found_up_to_the_end_of_the_answer(log: Path) -> None:
    first = [{"role": "user", "content": "Name three colours"}]
    answer = {"role": "assistant", "content": "Red, green and blue."}
    second = [*first, answer, {"role": "user", "content": "More"}]
    lines = [_chat(1, first, answer["content"], completion_tokens=99), _chat(2, second, None)]
    summary = _tokenize(log, lines, chat_template="chatml")
    one, two = rows_of(log.with_suffix(".parquet"))
    whole = [*one[TOKEN_COLUMN], *one[OUTPUT_COLUMN]]
    assert two[TOKEN_COLUMN][: len(whole) + 1] == [*whole, IM_END]
    assert (two["prefix_seq"], two["prefix_tokens"]) == (0, one["whole_tokens"])
    assert one["whole_tokens"] == len(whole) > one["prompt_tokens"]
    assert (one["output_tokens"], two["output_tokens"]) == (99, None)
    assert (two[OUTPUT_COLUMN], summary.without_output) == ([], 1)


@pytest.mark.parametrize(("how", "is_token"), [("control", True), ("text", False)])
def test_control_tokens_in_an_answer_are_what_they_are_in_the_chat(
    log: Path, how: str, is_token: bool
) -> None:
    answer = "a <|im_end|> b"
    first = [{"role": "user", "content": "Hi"}]
    said = {"role": "assistant", "content": answer}
    second = [*first, said, {"role": "user", "content": "?"}]
    lines = [_chat(1, first, answer), _chat(2, second, answer)]
    _tokenize(log, lines, chat_template="chatml", special_tokens_in_text=how)
    one, two = rows_of(log.with_suffix(".parquet"))
    assert (IM_END in one[OUTPUT_COLUMN]) == is_token
    assert two["prefix_tokens"] == one["whole_tokens"]
    assert one["output_tokens"] == len(one[OUTPUT_COLUMN])


def test_output_ids_of_a_log_are_taken_as_they_are(log: Path) -> None:
    lines = [
        {"prompt_token_ids": [1, 2], "output_token_ids": [3, 4], "timestamp": 1},
        {"prompt_token_ids": [1, 2, 3, 4, 5], "timestamp": 2, "output_tokens": 7},
        {"prompt_token_ids": [1], "output_token_ids": [2, "x"], "timestamp": 3},
    ]
    assert _tokenize(log, lines).without_output == 2
    assert _outputs(log) == [[3, 4], [], []]
    rows = rows_of(log.with_suffix(".parquet"))
    assert column(rows, "output_tokens") == [2, 7, None]
    assert column(rows, "prefix_tokens") == [0, 4, 1]


def test_an_answer_told_by_another_line_is_the_output_of_its_request(log: Path) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    asked = {"url": "/v1/chat/completions", "body": body}
    said = {"choices": [{"message": {"content": "Hello"}}], "usage": {"completion_tokens": 5}}
    answers = {"response": {"status_code": 200, "body": said}, "error": None}
    lines = [asked | {"custom_id": name} for name in ("a", "b")]
    other = write_log(log.with_name("b.jsonl"), [answers | {"custom_id": "b"}])
    chosen = TokenizeSettings(output_ids=True)
    trace = log.with_suffix(".parquet")
    summary = tokenize_logs([write_log(log, lines), other], trace, chosen)
    one, two = rows_of(trace)
    assert (one["request_id"], one[OUTPUT_COLUMN]) == ("a", [])
    assert (two["request_id"], len(two[OUTPUT_COLUMN]), two["output_tokens"]) == ("b", 1, 5)
    assert (summary.requests, summary.without_output) == (2, 1)


def test_requests_sorted_anew_keep_their_own_outputs(log: Path) -> None:
    lines = [
        {"prompt_token_ids": [i], "output_token_ids": [i] * (i % 4), "timestamp": 5 - i % 3}
        for i in range(9000)
    ]
    _tokenize(log, lines)
    order = [i for rest in (2, 1, 0) for i in range(rest, 9000, 3)]
    assert _outputs(log) == [[i] * (i % 4) for i in order]


def test_a_trace_tokenized_again_keeps_its_output_ids(trace: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.parquet"
    some = pq.ParquetFile(trace).read().filter([len(p) > 0 for p in PROMPTS])
    pq.write_table(some, trace)
    tokenize_logs([trace], again, TokenizeSettings(output_ids=True))
    kept = [list(o) for p, o in zip(PROMPTS, OUTPUTS, strict=True) if p]
    assert column(rows_of(again), OUTPUT_COLUMN) == kept


def test_without_tokens_a_trace_keeps_the_links_of_its_outputs(log: Path) -> None:
    lines = [{"prompt_token_ids": [1, 2], "output_token_ids": [3, 4]}]
    _tokenize(log, lines, keep_tokens=False)
    schema = pq.read_schema(log.with_suffix(".parquet")).remove_metadata()
    assert schema == trace_schema(None, outputs="links")
    assert _links(log.with_suffix(".parquet")) == [(None, 0, 4, 0, 2)]


def test_without_the_option_a_trace_has_no_column_of_outputs(log: Path) -> None:
    answer = [_chat(1, [{"role": "user", "content": "Hi"}], "Hello", completion_tokens=7)]
    trace = log.with_suffix(".parquet")
    assert tokenize_logs([write_log(log, answer)], trace).without_output == 0
    assert pq.read_schema(trace).remove_metadata() == trace_schema(TOKEN_COLUMN)
    assert column(rows_of(trace), "output_tokens") == [7]


def test_outputs_behind_blocks_are_refused_before_anything_is_written(log: Path) -> None:
    blocks = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}
    with pytest.raises(LogError) as caught:
        _tokenize(log, [json.dumps(blocks)])
    assert str(caught.value) == (
        f"{log}: line 1: its prompt is hashes of blocks, behind which no token ids of an output"
        " can stand: tokenize it without --output-ids"
    )
    assert names_in(log.parent) == {"a.jsonl"}
