"""The step log: what is written is read, whatever happened to the file; a roll-up is seen whole or not at all."""

import os
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from perfkit.errors import StoreError
from perfkit.options.recording import LEAST_MOST_BYTES
from perfkit.records.monitor import CHECK, HEADER_BYTES, LOSS_GIVEN, STEP_DTYPE, StepLogHeader, StepRecord
from perfkit.storage.step_log.reader import StepLogReader, find_step_logs, roll_up
from perfkit.storage.step_log.writer import StepLogWriter
from tests.support.monitor.step_logs import read_steps
from tests.support.processes.waiting import MOST_S

RECORD = STEP_DTYPE.itemsize


def make_record(step: int, lasted_ns: int = 50, **fields: float) -> StepRecord:
    values = {"step": step, "begin_ns": 1000 * step, "step_ns": lasted_ns, "longest_ns": lasted_ns}
    return StepRecord(**{**values, "longest_step": step, **fields})  # type: ignore[arg-type]


def write_log(folder: Path, steps: int, **options: int) -> StepLogWriter:
    writer = StepLogWriter(folder, 0, 2, "cpu", **options)
    for step in range(steps):
        writer.append(make_record(step))
    return writer


def test_the_fields_of_a_record_are_the_columns_of_the_log() -> None:
    assert (CHECK, *StepRecord._fields) == STEP_DTYPE.names


def test_what_is_written_is_read_with_its_header(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 3)
    writer.append(make_record(3, 70, loss=0.5, flags=LOSS_GIVEN, temperature_c=61.5, rss_bytes=1 << 40))
    reader = StepLogReader(find_step_logs(tmp_path)[0])
    found = reader.read_new()
    assert (found.restarted, found.damaged) == (True, 0)
    assert found.records["step"].tolist() == [0, 1, 2, 3]
    last = found.records[-1]
    assert (last["step_ns"], last["loss"], last["temperature_c"], last["rss_bytes"]) == (70, 0.5, 61.5, 1 << 40)
    assert last["data_ns"] == -1
    assert np.isnan(found.records["loss"][0])
    header = reader.header
    assert header is not None
    assert (header.rank, header.world_size, header.pid, header.record_bytes) == (0, 2, os.getpid(), RECORD)


def test_a_reader_gets_what_is_new_each_time(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 5)
    reader = StepLogReader(writer.path)
    assert [len(reader.read_new(2).records) for _ in range(4)] == [2, 2, 1, 0]
    writer.append(make_record(5))
    found = reader.read_new()
    assert (found.records["step"].tolist(), found.restarted) == ([5], False)


@pytest.mark.parametrize("left", [0, 1, 3, 4, RECORD // 2, RECORD - 1])
def test_a_torn_record_at_the_end_is_left_out_until_it_is_complete(tmp_path: Path, left: int) -> None:
    path = write_log(tmp_path, 4).path
    whole = path.read_bytes()
    path.write_bytes(whole[: HEADER_BYTES + 3 * RECORD + left])
    reader = StepLogReader(path)
    found = reader.read_new()
    assert (found.records["step"].tolist(), found.damaged) == ([0, 1, 2], 0)
    path.write_bytes(whole)
    assert reader.read_new().records["step"].tolist() == [3]


def test_garbage_between_records_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write_log(tmp_path, 4).path
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + RECORD + 20] ^= 1
    data[HEADER_BYTES + 2 * RECORD : HEADER_BYTES + 3 * RECORD] = bytes(RECORD)
    path.write_bytes(data)
    found = StepLogReader(path).read_new()
    assert (found.records["step"].tolist(), found.damaged) == ([0, 3], 2)


def test_a_record_with_a_valid_check_and_impossible_values_is_left_out(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 1)
    for fields in ({"steps": 0}, {"step": -5}, {"begin_ns": -1}, {"step_ns": -2}, {"rss_bytes": -7}):
        writer.append(make_record(1)._replace(**fields))
    for first, steps, longest in ((1, 1, 0), (1, 1, 2), (1, 4, 5), (1, 4, -1), (2**53 - 2, 4, 2**53 - 2)):
        writer.append(make_record(first)._replace(steps=steps, longest_step=longest))
    for step in (2**53, 2**63 - 1):
        writer.append(make_record(1)._replace(step=step, longest_step=step))
    writer.append(make_record(1)._replace(step=4, steps=4, longest_step=7))
    found = StepLogReader(writer.path).read_new()
    assert (found.records["step"].tolist(), found.damaged) == ([0, 4], 12)


def test_a_roll_up_keeps_sums_and_the_longest_step() -> None:
    records = np.zeros(4, STEP_DTYPE)
    records["steps"] = [1, 3, 1, 1]
    records["step"] = [0, 1, 4, 5]
    records["step_ns"] = [10, 20, 7, 9]
    records["longest_ns"] = [10, 50, 7, 9]
    records["longest_step"] = [0, 2, 4, 5]
    records["data_ns"] = [8, -1, -1, -1]
    records["peak_rss_bytes"] = [5, 4, 6, 6]
    records["kind"] = [0, 1, 1, 1]
    records["flags"] = [0, LOSS_GIVEN, LOSS_GIVEN, LOSS_GIVEN]
    records["loss"] = [np.nan, 2.0, 1.0, np.nan]
    records["host_busy"] = [np.nan, 0.5, 0.25, 0.75]
    merged = roll_up(records)
    assert merged["steps"].tolist() == [4, 2]
    assert merged["step"].tolist() == [0, 4]
    assert merged["step_ns"].tolist() == [18, 8]  # (10 + 3 x 20) / 4 = 17.5, to even; (7 + 9) / 2
    assert merged["longest_ns"].tolist() == [50, 9]
    assert merged["longest_step"].tolist() == [2, 5]
    assert merged["data_ns"].tolist() == [8, -1]
    assert merged["peak_rss_bytes"].tolist() == [5, 6]
    assert merged["kind"].tolist() == [-1, 1]
    assert merged["loss"][0] == 2.0
    assert np.isnan(merged["loss"][1])  # it was not a number in one of the steps, which must not disappear
    assert merged["flags"].tolist() == [LOSS_GIVEN, LOSS_GIVEN]
    assert merged["host_busy"].tolist() == [0.5, 0.5]


def test_a_log_stays_bounded_and_keeps_every_step(tmp_path: Path) -> None:
    writer = StepLogWriter(tmp_path, 0, 1, "cpu", LEAST_MOST_BYTES)
    for step in range(5000):
        writer.append(make_record(step, 1000 if step == 1234 else 10))
        if writer.is_full:
            writer.roll_up()
    assert writer.path.stat().st_size <= LEAST_MOST_BYTES + RECORD
    records = read_steps(writer.path)
    assert records["steps"].sum() == 5000
    assert (records["step"][1:] == records["step"][:-1] + records["steps"][:-1]).all()
    assert records["steps"][-1] == 1
    longest = records[records["longest_ns"].argmax()]
    assert (longest["longest_step"], longest["longest_ns"]) == (1234, 1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.steps"]


def test_a_reader_never_sees_a_mixture_while_the_log_is_rolled_up(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 1, most_bytes=LEAST_MOST_BYTES)
    done = threading.Event()

    def write() -> None:
        for step in range(1, 6000):
            writer.append(make_record(step))
            if writer.is_full:
                writer.roll_up()
        done.set()

    reader = StepLogReader(writer.path)
    following, restarts = len(reader.read_new().records), 1  # so that it restarts, even if all is written by then
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set() or following < 6000:
        found = reader.read_new(100)
        assert found.damaged == 0
        if found.restarted:
            following, restarts = 0, restarts + 1
        for record in found.records:
            assert record["step"] == following
            following += int(record["steps"])
    thread.join()
    assert following == 6000
    assert restarts > 1


def test_records_that_are_appended_during_a_roll_up_are_kept(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 1)

    def roll_up_often() -> None:
        for _ in range(20):
            writer.roll_up()

    thread = threading.Thread(target=roll_up_often)
    thread.start()
    for step in range(1, 3000):
        writer.append(make_record(step))
    thread.join()
    assert read_steps(writer.path)["steps"].sum() == 3000


def test_another_log_at_the_same_path_is_read_from_its_beginning(tmp_path: Path) -> None:
    reader = StepLogReader(write_log(tmp_path, 3).path)
    reader.read_new()
    write_log(tmp_path, 5)
    found = reader.read_new()
    assert (found.restarted, len(found.records)) == (True, 5)


def change_header(path: Path, **fields: object) -> None:
    data = path.read_bytes()
    header = msgspec.json.decode(data[:HEADER_BYTES])
    path.write_bytes(msgspec.json.encode(header | fields).ljust(HEADER_BYTES) + data[HEADER_BYTES:])


def test_a_log_with_further_columns_is_read(tmp_path: Path) -> None:
    path = write_log(tmp_path, 1).path
    header = msgspec.json.decode(path.read_bytes()[:HEADER_BYTES], type=StepLogHeader)
    more = [column for column in header.columns if column.name != "power_w"]
    more.append(replace(header.columns[-1], name="humidity"))
    change_header(path, columns=[msgspec.to_builtins(column) for column in more])
    (record,) = StepLogReader(path).read_new().records
    assert record["step_ns"] == 50
    assert np.isnan(record["power_w"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "something else"}, "is not a step log"),
        ({"schema_version": 99}, "update perfkit"),
        ({"columns": []}, "its columns are not"),
        ({"record_bytes": 1}, "its columns are not"),
        ({"columns": [{"name": "check", "dtype": "O", "unit": "", "meaning": "", "unknown": "never"}]}, "not a step"),
        ({"rank": -1}, "not a step log"),
    ],
)
def test_a_header_that_is_not_one_is_refused(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    path = write_log(tmp_path, 2).path
    change_header(path, **fields)
    with pytest.raises(StoreError, match=message):
        StepLogReader(path).read_new()


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    cases = {"empty": b"", "text": b"hello" * 5000, "nested": b"[" * 9000, "zeros": bytes(20_000)}
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(StoreError, match="is not a step log"):
            StepLogReader(tmp_path / name).read_new()
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing"):
        with pytest.raises(StoreError, match="cannot read"):
            StepLogReader(tmp_path / name).read_new()


def test_logs_are_found_by_their_names(tmp_path: Path) -> None:
    for name in ("rank10.steps", "rank2.steps", "rank02.steps", "rank2.steps.tmp", ".rank3.steps.0a.tmp", "x.steps"):
        (tmp_path / name).touch()
    assert list(find_step_logs(tmp_path)) == [2, 10]


def test_the_log_replaces_a_link_and_does_not_follow_it(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "rank0.steps").symlink_to(target)
    write_log(tmp_path, 1)
    assert target.read_text() == "kept"
    assert not (tmp_path / "rank0.steps").is_symlink()


def test_a_signal_handler_may_close_the_log_within_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, pwrite = write_log(tmp_path, 2), os.pwrite

    def interrupted(descriptor: int, data: bytes, at: int) -> int:
        written = pwrite(descriptor, data, at)
        writer.close()  # as in a handler, which runs in the thread that writes
        return written

    monkeypatch.setattr(os, "pwrite", interrupted)
    thread = threading.Thread(target=writer.append, args=(make_record(2),), daemon=True)
    thread.start()
    thread.join(MOST_S)
    assert not thread.is_alive()
    assert read_steps(writer.path)["step"].tolist() == [0, 1, 2]
