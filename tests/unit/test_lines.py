"""Lines of log files: what a line is, and files that can't be read to their end."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.errors import LogError
from pipeline.logs.lines import read_lines

Lines = list[tuple[int, bytes]]


def _zstd(content: bytes) -> bytes:
    frame: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return frame


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": _zstd,
    "bz2": bz2.compress,
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.log"


def _lines(log: Path, content: bytes) -> Lines:
    log.write_bytes(content)
    return list(read_lines(log, lambda _: None))


def test_a_plain_file_gives_its_lines_with_their_numbers(log: Path) -> None:
    assert _lines(log, b"one\ntwo\n") == [(1, b"one"), (2, b"two")]


def test_the_last_line_needs_no_line_feed(log: Path) -> None:
    assert _lines(log, b"one\ntwo") == [(1, b"one"), (2, b"two")]


def test_blank_lines_are_left_out_but_counted(log: Path) -> None:
    assert _lines(log, b"\none\n \t\r\n\ntwo\n\n") == [(2, b"one"), (5, b"two")]


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_nothing_has_no_lines(log: Path, content: bytes) -> None:
    assert _lines(log, content) == []


def test_a_byte_order_mark_is_no_part_of_the_first_line(log: Path) -> None:
    lines = _lines(log, b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert lines == [(1, b"one"), (2, b"\xef\xbb\xbftwo")]


def test_windows_line_ends_leave_only_white_space_behind(log: Path) -> None:
    lines = _lines(log, b'{"a": 1}\r\n{"a": 2}\r\n')
    assert [(n, line.strip()) for n, line in lines] == [(1, b'{"a": 1}'), (2, b'{"a": 2}')]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_only_a_line_feed_ends_a_line(log: Path, inside: str) -> None:
    text = f"one{inside}more".encode()
    assert _lines(log, text + b"\ntwo\n") == [(1, text), (2, b"two")]


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_file_is_known_by_its_content_not_by_its_name(log: Path, codec: str) -> None:
    assert _lines(log, CODECS[codec](b"one\ntwo")) == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize("codec", CODECS)
def test_several_compressed_pieces_are_one_file(log: Path, codec: str) -> None:
    compress = CODECS[codec]
    pieces = compress(b"one\ntw") + compress(b"o\nthree\n") + compress(b"four")
    assert _lines(log, pieces) == [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"four")]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_compressed_file_that_is_cut_off_is_refused(log: Path, codec: str, kept: float) -> None:
    content = b"".join(b"line %d of some log that varies %d\n" % (i, i * i) for i in range(9999))
    packed = CODECS[codec](content)
    with pytest.raises(LogError, match=r"a\.log: damaged or truncated"):
        _lines(log, packed[: int(len(packed) * kept)])


@pytest.mark.parametrize("codec", CODECS)
def test_a_second_piece_that_is_cut_off_is_refused(log: Path, codec: str) -> None:
    compress = CODECS[codec]
    second = compress(b"".join(b"%d\n" % (i * i) for i in range(5000)))
    with pytest.raises(LogError, match="damaged or truncated"):
        _lines(log, compress(b"one\n") + second[: len(second) // 2])


def test_lines_longer_than_what_is_read_at_a_time_stay_whole(log: Path) -> None:
    long = [b"a" * 2_500_000, b"b" * 1_048_576, b"c" * 1_048_575, b"d"]
    assert _lines(log, b"\n".join(long)) == list(enumerate(long, 1))


def test_progress_never_goes_back_and_ends_with_the_size_of_the_file(log: Path) -> None:
    log.write_bytes(b"x" * 99 + b"\n" + b"y" * 3_000_000)
    seen: list[int] = []
    for _ in read_lines(log, seen.append):
        pass
    assert seen == sorted(seen)
    assert seen[-1] == log.stat().st_size


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nowhere\.log: no such file"):
        list(read_lines(tmp_path / "nowhere.log", lambda _: None))
    with pytest.raises(LogError, match="is a folder: name the log files in it"):
        list(read_lines(tmp_path, lambda _: None))
