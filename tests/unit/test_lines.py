"""Lines of logs: what a line is, compression, and files that can't be read to their end."""

import bz2
import gzip
import lzma
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pyarrow as pa
import pytest

from pipeline.errors import LogError
from pipeline.logs import lines as lines_module
from pipeline.logs import streams
from pipeline.logs.lines import Line, read_lines
from pipeline.logs.streams import STDIN, LogStream, open_log

Lines = list[tuple[int, bytes | None]]


def _packed(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as packed:
        packed.write(content)
    frame: bytes = sink.getvalue().to_pybytes()
    return frame


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": lambda content: _packed(content, "zstd"),
    "lz4": lambda content: _packed(content, "lz4"),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
LONG = b"".join(b"line %d of some log that varies %d\n" % (i, i * i) for i in range(9999))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.log"


def _read(log: Path) -> list[Line]:
    with open_log(log, lambda _: None) as stream:
        return list(read_lines(stream))


def _lines(log: Path, content: bytes) -> Lines:
    log.write_bytes(content)
    return [(line.number, line.content) for line in _read(log)]


def test_a_plain_file_gives_its_lines_with_their_numbers(log: Path) -> None:
    assert _lines(log, b"one\ntwo\n") == [(1, b"one"), (2, b"two")]


def test_the_last_line_needs_no_line_feed_but_may_be_cut_off(log: Path) -> None:
    log.write_bytes(b"one\ntwo")
    assert _read(log) == [Line(1, b"one", whole=True), Line(2, b"two", whole=False)]
    log.write_bytes(b"one\ntwo\n")
    assert _read(log)[-1].whole


def test_blank_lines_are_left_out_but_counted(log: Path) -> None:
    assert _lines(log, b"\none\n \t\r\n\ntwo\n\n") == [(2, b"one"), (5, b"two")]


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_of_nothing_has_no_lines(log: Path, content: bytes) -> None:
    assert _lines(log, content) == []


def test_a_byte_order_mark_is_no_part_of_the_first_line(log: Path) -> None:
    lines = _lines(log, b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert lines == [(1, b"one"), (2, b"\xef\xbb\xbftwo")]


def test_windows_line_ends_leave_only_white_space_behind(log: Path) -> None:
    assert _lines(log, b'{"a": 1}\r\n{"a": 2}\r\n') == [(1, b'{"a": 1}\r'), (2, b'{"a": 2}\r')]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(log: Path, inside: str) -> None:
    text = f"one{inside}more".encode()
    assert _lines(log, text + b"\ntwo\n") == [(1, text), (2, b"two")]


def test_lines_longer_than_what_is_read_at_a_time_stay_whole(log: Path) -> None:
    long = [b"a" * 2_500_000, b"b" * 1_048_576, b"c" * 1_048_575, b"d"]
    assert _lines(log, b"\n".join(long)) == list(enumerate(long, 1))


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_how_much_is_read_at_a_time_changes_nothing(
    log: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK", chunk)
    lines = _lines(log, b"\xef\xbb\xbfone\n\n" + b"x" * 50 + b"\nthree")
    assert lines == [(1, b"one"), (3, b"x" * 50), (4, b"three")]


@pytest.mark.parametrize("chunk", [1, 8, 1000])
def test_a_line_that_is_too_long_is_left_out_and_told_of(
    log: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(lines_module, "CHUNK", chunk)
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 10)
    content = b"a" * 10 + b"\n" + b"b" * 11 + b"\n" + b"c" * 500 + b"\nd\n" + b"e" * 11
    log.write_bytes(content)
    assert _read(log) == [
        Line(1, b"a" * 10, whole=True),
        Line(2, None, whole=True),
        Line(3, None, whole=True),
        Line(4, b"d", whole=True),
        Line(5, None, whole=False),
    ]


def test_a_line_that_is_too_long_takes_no_more_memory_than_the_limit(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "LONGEST_LINE", 1 << 20)
    log.write_bytes(gzip.compress(b"x" * (64 << 20)))
    before = pa.total_allocated_bytes()
    largest = 0
    with open_log(log, lambda _: None) as stream:
        for _ in read_lines(stream):
            largest = max(largest, pa.total_allocated_bytes() - before)
    assert largest < 16 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_file_is_known_by_its_content_not_by_its_name(log: Path, codec: str) -> None:
    assert _lines(log, CODECS[codec](b"one\ntwo")) == [(1, b"one"), (2, b"two")]


@pytest.mark.parametrize("codec", CODECS)
def test_several_compressed_pieces_are_one_file(log: Path, codec: str) -> None:
    compress = CODECS[codec]
    pieces = compress(b"one\ntw") + compress(b"o\nthree\n") + compress(b"") + compress(b"four")
    assert _lines(log, pieces) == [(1, b"one"), (2, b"two"), (3, b"three"), (4, b"four")]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [0.01, 0.5, 0.99])
def test_a_compressed_file_that_is_cut_off_is_refused(log: Path, codec: str, kept: float) -> None:
    packed = CODECS[codec](LONG)
    with pytest.raises(LogError, match=r"a\.log: damaged or truncated"):
        _lines(log, packed[: int(len(packed) * kept)])


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_file_without_its_last_byte_is_refused(log: Path, codec: str) -> None:
    with pytest.raises(LogError, match="damaged or truncated"):
        _lines(log, CODECS[codec](LONG)[:-1])


@pytest.mark.parametrize("codec", CODECS)
def test_a_second_piece_that_is_cut_off_is_refused(log: Path, codec: str) -> None:
    compress = CODECS[codec]
    second = compress(b"".join(b"%d\n" % (i * i) for i in range(5000)))
    with pytest.raises(LogError, match="damaged or truncated"):
        _lines(log, compress(b"one\n") + second[: len(second) // 2])


@pytest.mark.parametrize("codec", CODECS)
def test_what_follows_a_compressed_file_is_not_passed_over(log: Path, codec: str) -> None:
    with pytest.raises(LogError, match="damaged or truncated"):
        _lines(log, CODECS[codec](b"one\n") + b"and two\n" * 20)


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_file_may_hold_nothing(log: Path, codec: str) -> None:
    assert _lines(log, CODECS[codec](b"")) == []


def test_a_zstd_file_may_begin_with_a_frame_to_skip(log: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    pieces = skipped + CODECS["zstd"](b"one\n") + skipped + CODECS["zstd"](b"two\n")
    assert _lines(log, pieces) == [(1, b"one"), (2, b"two")]


def test_zeros_may_follow_an_xz_file_and_stand_between_two(log: Path) -> None:
    first, second = lzma.compress(b"one\n"), lzma.compress(b"two\n")
    assert _lines(log, first + bytes(8) + second + bytes(4)) == [(1, b"one"), (2, b"two")]


def test_an_xz_file_that_wants_much_memory_is_refused(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_XZ_MEMORY", 1 << 20)
    with pytest.raises(LogError, match="Memory usage limit"):
        _lines(log, lzma.compress(b"one\n"))


@pytest.mark.parametrize("codec", CODECS)
def test_damage_in_the_middle_never_raises_anything_but_a_log_error(log: Path, codec: str) -> None:
    packed = CODECS[codec](LONG)
    refused = 0
    for at in range(10, len(packed), len(packed) // 40):
        damaged = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        try:
            _lines(log, damaged)
        except LogError:
            refused += 1
    assert refused  # a frame without a checksum may hide some of it


@pytest.mark.parametrize(
    ("magic", "kind"), [(b"PK\x03\x04", "zip"), (b"7z\xbc\xaf\x27\x1c", "7z"), (b"\x89HDF", "HDF5")]
)
def test_an_archive_is_refused_by_its_kind(log: Path, magic: bytes, kind: str) -> None:
    with pytest.raises(LogError, match=rf"a\.log: is {kind}, not a log: unpack it first"):
        _lines(log, magic + b"rest")


@pytest.mark.parametrize("codec", ["zstd", "bz2", "xz"])
def test_a_file_that_grows_out_of_all_bounds_is_refused(
    log: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    monkeypatch.setattr(streams, "_BOMB_BYTES", 4 << 20)
    monkeypatch.setattr(streams, "_BOMB_RATIO", 1000)
    with pytest.raises(LogError, match="more than 1000 times its size: not a log"):
        _lines(log, CODECS[codec](bytes(20 << 20)))


def test_a_small_file_may_be_packed_as_well_as_it_can_be(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_BOMB_RATIO", 10)
    assert len(_lines(log, CODECS["zstd"](b"one\n" * 100_000))) == 100_000


def test_a_plain_file_is_never_too_large(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_BOMB_BYTES", 10)
    monkeypatch.setattr(streams, "_BOMB_RATIO", 0)
    assert len(_lines(log, b"one\n" * 100)) == 100


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_progress_never_goes_back_and_ends_with_the_size_of_the_file(
    log: Path, codec: str | None
) -> None:
    content = LONG * 10
    log.write_bytes(CODECS[codec](content) if codec else content)
    seen: list[int] = []
    with open_log(log, seen.append) as stream:
        for _ in read_lines(stream):
            pass
    assert seen == sorted(seen)
    assert seen[-1] == log.stat().st_size


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_looking_ahead_takes_nothing(log: Path, codec: str | None) -> None:
    log.write_bytes(CODECS[codec](LONG) if codec else LONG)
    with open_log(log, lambda _: None) as stream:
        assert stream.head(5) == LONG[:5]
        assert stream.head(5000) == LONG[:5000]
        assert stream.head(3) == LONG[:3]
        assert stream.read(10) == LONG[:10]
        assert stream.head(4) == LONG[10:14]
        assert stream.read() == LONG[10:]
        assert stream.head(4) == b""


@pytest.mark.parametrize("size", [1, 3, 63, 64, 65])
def test_never_more_is_read_than_asked_for(size: int) -> None:
    content = bytes(range(200))
    stream = LogStream(Path("a"), BytesIO(content), lambda _: None)
    pieces = list(iter(lambda: stream.read(size), b""))
    assert max(map(len, pieces)) == size
    assert b"".join(pieces) == content
    assert stream.read(0) == b""


def test_the_standard_input_is_read_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(gzip.compress(b"one\ntwo\n"))))
    assert [line.content for line in _read(STDIN)] == [b"one", b"two"]


def test_what_can_not_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").touch()
    with pytest.raises(LogError, match=r"nowhere\.log: no such file"):
        _read(tmp_path / "nowhere.log")
    with pytest.raises(LogError, match="is a folder: name the log files in it"):
        _read(tmp_path)
    with pytest.raises(LogError, match=r"b\.log: can't be opened"):
        _read(tmp_path / "a.log" / "b.log")
    with pytest.raises(LogError, match="can't be opened"):
        _read(tmp_path / ("x" * 5000))


def test_errors_of_those_who_read_are_left_alone(log: Path) -> None:
    log.write_bytes(b"one\n")
    with pytest.raises(FileNotFoundError), open_log(log, lambda _: None):
        (log.parent / "missing").stat()
