"""The cache of summaries: hit for the same trace, miss for another, never trusted if damaged or somebody else's."""

import logging
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import perfkit
from perfkit.accelerators import CUDA
from perfkit.pipeline import summarize as rank
from perfkit.pipeline import summarize as summaries
from perfkit.records.report import Report
from perfkit.storage import cache, cache_folder
from tests.support.processes.launching import LIMIT_S
from tests.support.processes.other_user import NOBODY, needs_root
from tests.support.traces.many_ranks import copy_sample
from tests.support.traces.trace_builder import TraceBuilder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    for number in range(2):
        builder = TraceBuilder(number, 2, backend="gloo")
        for n in range(3):
            begin = 1000 * n
            builder.step(n, begin, 900).op("aten::mm", begin, 400 + 50 * number).gloo("all_reduce", begin + 500, 100)
        builder.write(tmp_path / "run" / f"rank{number}.json.gz")
    return tmp_path / "run"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PERFKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "users" / "perfkit"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the traces that are analysed, not cached."""
    names: list[str] = []
    whole = rank.summarize_trace

    def counting(trace: object, file: str, *rest: object, **named: object) -> object:
        names.append(file)
        return whole(trace, file, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(summaries, "summarize_trace", counting)
    return names


def settle() -> None:
    """Make files look old: a recently changed file is read again."""
    time.sleep(2.1)


def same(one: Report, other: Report) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def test_looking_again_analyses_nothing(run: Path, made: list[str]) -> None:
    first = perfkit.analyze(run)
    assert len(made) == 2
    assert same(first, perfkit.analyze(run))
    assert same(first, perfkit.analyze(run, cache=False))
    assert len(made) == 4


def test_what_has_settled_is_not_even_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle()
    first = perfkit.analyze(run)
    monkeypatch.setattr(summaries, "summarize_file", None)
    monkeypatch.setattr(cache, "fingerprint", None)
    assert same(first, perfkit.analyze(run))


@pytest.mark.slow  # two processes analyse the folder several times
def test_two_at_once_get_in_nobodys_way(tmp_path: Path, folder: Path) -> None:
    run = copy_sample(tmp_path / "run")
    command = [sys.executable, "-m", "perfkit", "analyze", str(run), "-f", "json"]
    wanted = subprocess.run([*command, "--no-cache"], capture_output=True, check=True, timeout=LIMIT_S).stdout
    for state in ("empty", "full"):
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        outputs = [running.communicate(timeout=LIMIT_S) for running in both]
        assert [running.returncode for running in both] == [0, 0], outputs
        assert {errors for _, errors in outputs} == {b""}
        assert {report for report, _ in outputs} == {wanted}, state
    assert len(list(folder.glob("*.result"))) == 2
    assert list(folder.glob(".*")) == []


def test_a_copy_is_known_by_its_own_name(run: Path, made: list[str]) -> None:
    perfkit.analyze(run)
    shutil.copy(run / "rank1.json.gz", run / "copy-of-rank1.json.gz")
    report = perfkit.analyze(run)
    assert len(made) == 2
    assert {finding.file for finding in report.runs[0].findings if finding.code == "duplicate_rank"} == {
        "rank1.json.gz"
    }


def test_an_edited_trace_is_read_again_though_size_and_time_are_kept(run: Path, made: list[str]) -> None:
    settle()
    perfkit.analyze(run)
    other, trace = sorted(run.glob("rank?.json.gz"), key=lambda path: path.stat().st_size)
    before = trace.stat()
    trace.write_bytes(other.read_bytes().ljust(before.st_size, b"\0"))
    os.utime(trace, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (trace.stat().st_size, trace.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    report = perfkit.analyze(run)
    assert len(made) == 3
    # both headers have one rank now
    assert "header_ranks_ignored" in {finding.code for finding in report.runs[0].findings}


def test_a_file_of_another_disk_is_read_again(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same path, size, times and inode may be another file's, on a disk mounted in place of the first."""
    monkeypatch.setattr(cache, "_RACY_NS", -(10**9))
    trace = run / "rank0.json.gz"
    now = cache.fingerprint(trace)
    assert now
    cache.store_stat(now)
    assert cache.known_fingerprint(trace) == now
    other = msgspec.structs.replace(now, stat=msgspec.structs.replace(now.stat, device=now.stat.device + 1))
    cache.store_stat(other)
    assert cache.known_fingerprint(trace) is None
    assert not cache.unchanged(other)


def test_a_large_file_is_recognised_without_being_read(
    run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = run / "sparse.json"
    trace.touch()
    os.truncate(trace, 100 << 30)
    assert cache.fingerprint(trace) is None  # it may still change within the resolution of its times
    monkeypatch.setattr(cache, "_RACY_NS", -(10**9))
    now = cache.fingerprint(trace)
    assert now
    assert now == cache.known_fingerprint(trace)
    assert cache.unchanged(now)
    cache.store(now, b"", b"a result")
    os.utime(trace)
    changed = cache.fingerprint(trace)
    assert changed
    assert (cache.load(now, b""), cache.load(changed, b"")) == (b"a result", None)


def test_an_entry_of_a_version_that_wrote_no_device_is_not_used(
    run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_RACY_NS", -(10**9))
    now = cache.fingerprint(run / "rank0.json.gz")
    assert now
    cache.store_stat(now)
    (entry,) = folder.glob("*.seen")
    size, mtime, ctime, _, *rest = msgspec.msgpack.decode(entry.read_bytes())
    entry.write_bytes(msgspec.msgpack.encode([size, mtime, ctime, *rest]))
    assert cache.known_fingerprint(run / "rank0.json.gz") is None


def test_options_and_code_have_results_of_their_own(
    run: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    perfkit.analyze(run)
    perfkit.analyze(run, step_marker="no such")
    assert len(made) == 4
    perfkit.analyze(run, data_marker="forward")
    perfkit.analyze(run, data_marker="forward")
    assert len(made) == 6
    monkeypatch.setattr(cache, "_analyzer", lambda: b"another version")
    perfkit.analyze(run)
    assert len(made) == 8


@pytest.mark.parametrize("damage", ["empty", "flipped", "cut", "foreign", "well-sealed nonsense"])
def test_a_damaged_result_is_made_anew(run: Path, folder: Path, made: list[str], damage: str) -> None:
    first = perfkit.analyze(run)
    entries = sorted(folder.glob("*.result"))
    assert len(entries) == 2
    contents = [entry.read_bytes() for entry in entries]
    for number, entry in enumerate(entries):
        data = contents[number]
        entry.write_bytes(
            {
                "empty": b"",
                "flipped": data[:-1] + bytes([data[-1] ^ 1]),
                "cut": data[: len(data) // 2],
                "foreign": contents[1 - number],
                "well-sealed nonsense": cache._checksum(entry.stem, b"\x81") + b"\x81",
            }[damage]
        )
    assert same(first, perfkit.analyze(run))
    assert len(made) == 4
    assert same(first, perfkit.analyze(run))
    assert len(made) == 4


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "writable by others"])
@pytest.mark.timeout(200)  # a pipe used to block for ever
def test_an_entry_that_others_may_have_made_is_not_read(
    run: Path, folder: Path, made: list[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_RACY_NS", 0)
    first = perfkit.analyze(run)
    for entry in [*folder.glob("*.result"), *folder.glob("*.seen")]:
        original = entry.rename(entry.with_name(f"{entry.name}.original"))
        if kind == "pipe":
            os.mkfifo(entry)
        elif kind == "folder":
            entry.mkdir()
        elif kind == "link":
            entry.symlink_to(original)
        else:
            original.rename(entry).chmod(0o666)
    assert same(first, perfkit.analyze(run))
    assert len(made) == 4


def test_results_that_came_with_traces_are_not_believed(run: Path, folder: Path, made: list[str]) -> None:
    """Formerly the cache was beside the traces, so whoever made an archive could say what is in its traces."""
    first = perfkit.analyze(run)
    shutil.copytree(folder, run / ".perfkit-cache")
    shutil.rmtree(folder)
    assert same(first, perfkit.analyze(run))
    assert len(made) == 4
    assert not list(run.glob(".perfkit-cache/.perfkit*"))


def test_only_the_user_can_read_the_folder(run: Path, folder: Path) -> None:
    perfkit.analyze(run)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert sorted(path.name for path in run.iterdir() if path.name.startswith(".")) == []


@needs_root
def test_a_folder_of_another_user_is_not_used(run: Path, folder: Path, made: list[str]) -> None:
    perfkit.analyze(run)
    os.chown(folder, NOBODY, NOBODY)
    perfkit.analyze(run)
    assert len(made) == 4


@needs_root
def test_root_makes_no_folder_in_the_home_of_a_user(run: Path, folder: Path) -> None:
    folder.parent.mkdir()
    os.chown(folder.parent, NOBODY, NOBODY)
    perfkit.analyze(run)
    assert not folder.exists()


def test_a_folder_that_others_can_write_to_is_not_used(
    run: Path, folder: Path, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with caplog.at_level(logging.INFO, "perfkit"):
        perfkit.analyze(run)
        perfkit.analyze(run)
    assert len(made) == 4
    assert list(folder.iterdir()) == []
    assert [record.getMessage() for record in caplog.records if "cached" in record.getMessage()] == [
        f"nothing is cached: {folder}: it belongs to another user, or others can write to it"
    ]


def test_no_cache_leaves_nothing(run: Path, folder: Path) -> None:
    perfkit.analyze(run, cache=False)
    assert not folder.exists()


def test_where_the_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder.location() == Path(os.environ["PERFKIT_CACHE_DIR"])
    monkeypatch.delenv("PERFKIT_CACHE_DIR")
    for base, expected in (("/x", Path("/x/perfkit")), ("relative", tmp_path / ".cache/perfkit")):
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setenv("XDG_CACHE_HOME", base)
        assert cache_folder.location() == expected
        monkeypatch.setattr(sys, "platform", "darwin")
        assert cache_folder.location() == tmp_path / "Library/Caches/perfkit"


def test_nowhere_to_write_costs_only_the_cache(run: Path, tmp_path: Path, folder: Path) -> None:
    folder.parent.touch()
    assert len(perfkit.analyze(run).runs[0].ranks) == 2


def test_no_home_costs_only_the_cache(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder.location() is None
    assert len(perfkit.analyze(run).runs[0].ranks) == 2


def test_what_was_not_used_for_longest_goes_first(
    run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache, "_RACY_NS", 3600 * 10**9)  # however slow this machine is, no file has settled
    perfkit.analyze(run)
    one, other = sorted(folder.glob("*.result"))
    for path in (one, other):
        os.utime(path, (1000, 1000))
    left_behind = folder / ".x.result.0123.tmp"
    left_behind.touch()
    os.utime(left_behind, (1000, 1000))
    cache_folder.read(one.name)
    monkeypatch.setattr(cache_folder, "LIMIT_BYTES", one.stat().st_size + 1000)
    cache.prune()
    assert sorted(path.name for path in folder.iterdir()) == sorted([one.name, "CACHEDIR.TAG"])


def test_a_name_that_was_not_utf_8_passes() -> None:
    value = {"name": "k\ud800", "bytes": 2**70, "parts": [1, "fine"]}
    assert summaries._encodable(value) == {"name": r"k\ud800", "bytes": None, "parts": [1, "fine"]}


def test_a_change_of_an_accelerator_changes_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = set()
    for rows in ((CUDA,), (CUDA, replace(CUDA, category="toy")), (replace(CUDA, category="toys"),)):
        cache._analyzer.cache_clear()
        monkeypatch.setattr(cache, "accelerators", lambda rows=rows: rows)
        digests.add(cache._analyzer())
    cache._analyzer.cache_clear()
    assert len(digests) == 3
