"""The cache of summaries: hit for the same trace, miss for another, never trusted if damaged."""

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
from perfkit.analysis.per_rank import summary as rank
from perfkit.pipeline import summarize as summaries
from perfkit.schema.report import Report
from perfkit.storage import cache
from tests.support.many_ranks import copy_sample


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two ranks whose cache lies beside it."""
    monkeypatch.delenv("PERFKIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    return copy_sample(tmp_path / "run")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the traces that are analysed, not cached."""
    names: list[str] = []
    whole = rank.summarize_trace

    def counting(trace: object, file: str, *rest: object) -> object:
        names.append(file)
        return whole(trace, file, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(summaries, "summarize_trace", counting)
    return names


def settle(folder: Path) -> None:
    """Make files look old: a recently changed file is read again."""
    time.sleep(2.1)
    assert folder.exists()


def same(one: Report, other: Report) -> bool:
    return msgspec.json.encode(one) == msgspec.json.encode(other)


def test_looking_again_analyses_nothing(run: Path, made: list[str]) -> None:
    first = perfkit.analyze(run)
    assert len(made) == 2
    assert same(first, perfkit.analyze(run))
    assert same(first, perfkit.analyze(run, cache=False))
    assert len(made) == 4


def test_what_has_settled_is_not_even_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(run)
    first = perfkit.analyze(run)
    monkeypatch.setattr(summaries, "summarize_file", None)
    monkeypatch.setattr(cache, "fingerprint", None)
    assert same(first, perfkit.analyze(run))


@pytest.mark.slow  # two processes analyse the folder several times
def test_two_at_once_get_in_nobodys_way(run: Path) -> None:
    command = [sys.executable, "-m", "perfkit", "analyze", str(run), "-f", "json"]
    wanted = subprocess.run([*command, "--no-cache"], capture_output=True, check=True, timeout=120).stdout
    for state in ("empty", "full"):
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        outputs = [running.communicate(timeout=120) for running in both]
        assert [running.returncode for running in both] == [0, 0], outputs
        assert {errors for _, errors in outputs} == {b""}
        assert {report for report, _ in outputs} == {wanted}, state
    assert len(list((run / cache.FOLDER).glob("*.result"))) == 2
    assert list((run / cache.FOLDER).glob(".*.tmp")) == []


def test_a_copy_is_known_by_its_own_name(run: Path, made: list[str]) -> None:
    perfkit.analyze(run)
    shutil.copy(run / "rank1.json.gz", run / "copy-of-rank1.json.gz")
    report = perfkit.analyze(run)
    assert len(made) == 2
    assert {finding.file for finding in report.runs[0].findings if finding.code == "duplicate_rank"} == {
        "rank1.json.gz"
    }


def test_an_edited_trace_is_read_again_though_size_and_time_are_kept(run: Path, made: list[str]) -> None:
    settle(run)
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


def test_options_and_code_have_results_of_their_own(
    run: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    perfkit.analyze(run)
    perfkit.analyze(run, step_marker="no such")
    assert len(made) == 4
    monkeypatch.setattr(cache, "_analyzer", lambda: b"another version")
    perfkit.analyze(run)
    assert len(made) == 6


@pytest.mark.parametrize("damage", ["empty", "flipped", "cut", "foreign", "well-sealed nonsense"])
def test_a_damaged_result_is_made_anew(run: Path, made: list[str], damage: str) -> None:
    first = perfkit.analyze(run)
    entries = sorted((run / cache.FOLDER).glob("*.result"))
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


def test_the_folder_keeps_out_of_the_way(run: Path) -> None:
    perfkit.analyze(run)
    folder = run / cache.FOLDER
    assert (folder / ".gitignore").read_text() == "*\n"
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert perfkit.analyze(run).runs[0].findings == perfkit.analyze(run, cache=False).runs[0].findings


def test_no_cache_leaves_nothing(run: Path) -> None:
    perfkit.analyze(run, cache=False)
    assert not (run / cache.FOLDER).exists()


def test_the_users_folder_where_the_traces_cannot_be_written(run: Path, tmp_path: Path, made: list[str]) -> None:
    (run / cache.FOLDER).write_text("in the way: root may write to any folder")
    first = perfkit.analyze(run)
    assert len(list((tmp_path / "users" / "perfkit").glob("*.result"))) == 2
    assert same(first, perfkit.analyze(run))
    assert len(made) == 2


def test_nowhere_to_write_costs_only_the_cache(run: Path, tmp_path: Path) -> None:
    (run / cache.FOLDER).touch()
    (tmp_path / "users").touch()
    assert len(perfkit.analyze(run).runs[0].ranks) == 2


def test_the_oldest_go_first(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perfkit.analyze(run)
    old, new = sorted((run / cache.FOLDER).glob("*.result"))
    os.utime(old, (0, 0))
    monkeypatch.setattr(cache, "LIMIT_BYTES", new.stat().st_size + 1000)
    cache.prune([run / "rank0.json.gz"])
    assert [path for path in (old, new) if path.exists()] == [new]


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
