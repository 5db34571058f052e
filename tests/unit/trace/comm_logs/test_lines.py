"""Lines of NCCL's log, among whatever else a file contains."""

import io
import time
from pathlib import Path

import pytest

from perfkit.trace.comm_logs.facts import LONGEST_LINE, LogLine, Process, is_garbled, parse_line, read_lines


def lines_of(data: bytes) -> list[bytes]:
    return list(read_lines(io.BufferedReader(io.BytesIO(data))))


@pytest.mark.parametrize(
    "before",
    ["", "[1,0]<stdout>:", "0: ", "[0] ", "2025-02-18 12:54 ", "[2026-05-05 06:16:47] ", "[1,6]<stderr>:[2026-05-05] "],
)
def test_a_line_is_found_behind_what_launchers_and_timestamps_add(before: str) -> None:
    line = parse_line(f"{before}nv-ai_03.x:62491:62509 [7] NCCL INFO Using network IB ".encode())
    assert line == LogLine("INFO", Process("nv-ai_03.x", 62491), 62509, "", "Using network IB")


def test_a_warning_has_its_place_in_the_source_with_and_without_a_function() -> None:
    plain = parse_line(b"node:1:2 [0] misc/socket.cc:483 NCCL WARN connect failed")
    with_function = parse_line(b"node:1:2 [0] misc/socket.cc:483 (socketConnect) NCCL WARN connect failed")
    assert plain == with_function == LogLine("WARN", Process("node", 1), 2, "misc/socket.cc:483", "connect failed")


@pytest.mark.parametrize("text", [b"NCCL_DEBUG=INFO", b"the word NCCL INFO", b"", b"step 1 loss 2.0", b"\x00\xff" * 99])
def test_other_lines_are_not_nccls(text: bytes) -> None:
    assert parse_line(text) is None


@pytest.mark.parametrize(
    "head", [b"", b"node [0] ", b"a:b:c [0] ", b"node:1:2 ", b"n:1:2 [x] ", b"x" * 9000 + b" [0] "]
)
def test_a_line_whose_beginning_is_damaged_has_no_process(head: bytes) -> None:
    line = parse_line(head + b"NCCL INFO Using network IB")
    assert line is not None
    assert line.process is None
    assert line.text == "Using network IB"


def test_two_lines_in_one_are_garbled() -> None:
    first, second = b"a:1:1 [0] NCCL INFO comm 0x1 rank 3 busId 86", b"a:2:2 [1] NCCL INFO Using network IB"
    assert is_garbled(first + second)
    assert not is_garbled(first)


def test_line_ends_escape_sequences_and_progress_bars_are_taken_off() -> None:
    data = b"one\r\n\x1b[31mtwo\x1b[0m\n 10%|#\r 20%|##\rthree\nlast"
    assert lines_of(data) == [b"one", b"two", b"three", b"last"]


def test_of_a_long_line_the_begin_is_read_and_the_next_line_is_whole() -> None:
    found = lines_of(b"x" * (LONGEST_LINE * 20) + b"\nnext\n" + b"y" * LONGEST_LINE + b"\n")
    assert [len(line) for line in found] == [LONGEST_LINE, 4, LONGEST_LINE]


def test_hostile_lines_take_time_in_proportion_to_their_length() -> None:
    begin = time.process_time()
    for filler in (b"a", b"a:", b"[0] ", b"1:1:1 ", b"\x1b[", b"NCCL ", b"\r"):
        for line in lines_of((filler * LONGEST_LINE + b" NCCL INFO x\n") * 5):
            parse_line(line)
    assert time.process_time() - begin < 2


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    import os

    from perfkit.errors import TraceError
    from perfkit.trace.comm_logs.facts import NcclLogReader

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="not a regular file"):
        NcclLogReader().read(tmp_path / "pipe")
