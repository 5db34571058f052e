"""The server of `perfkit serve`: what it lists and shows, and to whom."""

import json
import os
import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from perfkit.pipeline.analyze import analyze
from perfkit.records.report import Report
from perfkit.storage.discovery import RunLocation
from perfkit.storage.run_folder import read_manifest, write_manifest
from perfkit.tools.serve.site import RunServer
from tests.support.monitor.made_runs import own_times, write_run
from tests.support.processes import loopback
from tests.support.processes.launching import ROOT
from tests.support.processes.left_runs import mark_rank_0

SAMPLE = ROOT / "traces" / "sample-hdf5"


def serving(*folders: Path) -> AbstractContextManager[RunServer]:
    return loopback.serving(RunServer(list(folders)))


def ask(server: RunServer, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    status, found, content = loopback.ask(server, path, **headers)
    return status, found, content.decode()


def page(server: RunServer, path: str = "") -> str:
    status, _, text = ask(server, f"/{server.secret}/{path}")
    assert status == 200, text
    return text


def listed(server: RunServer) -> dict[str, dict[str, object]]:
    return {run["name"]: run for run in json.loads(page(server, "runs.json"))}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    shutil.copytree(SAMPLE, folder / "one")
    shutil.copytree(SAMPLE, folder / "two")
    manifest = read_manifest(folder / "two")
    write_manifest(folder / "two", msgspec.structs.replace(manifest, state="running"))
    for trace in (folder / "two").glob("*.json.gz"):
        trace.unlink()
    return folder


def test_only_who_knows_the_address_and_comes_from_here_is_answered(runs: Path) -> None:
    with serving(runs) as server:
        own = f"/{server.secret}/"
        assert ask(server, own)[0] == 200
        for path in ("/", "/runs.json", "/" + "a" * len(server.secret) + "/", "//", "/%ff/"):
            assert ask(server, path)[0] == 403, path
        for name, value in (
            *(("Host", host) for host in ("evil.example", "127.0.0.1", f"evil.example:{server.server_port}")),
            *(("Origin", origin) for origin in ("http://evil.example", "null", "https://ui.perfetto.dev")),
            *(("Sec-Fetch-Site", site) for site in ("cross-site", "same-site")),
        ):
            assert ask(server, own, **{name: value})[0] == 403, (name, value)
        for name in ("localhost", "LOCALHOST"):
            assert ask(server, own, Host=f"{name}:{server.server_port}", Sec_Fetch_Site="none")[0] == 200


def test_the_address_is_told_to_nobody(runs: Path) -> None:
    with serving(runs) as server:
        headers = ask(server, f"/{server.secret}/")[1]
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_list_follows_the_runs(runs: Path) -> None:
    with serving(runs) as server:
        first = listed(server)
        assert {name: run["state"] for name, run in first.items()} == {"one": "completed", "two": "running"}
        assert (first["one"]["ranks"], first["one"]["steps"], first["one"]["traces"]) == (2, 60, 2)
        assert first["one"]["step_ns"] == pytest.approx(28.93e6, rel=0.001)  # as in its report
        manifest = read_manifest(runs / "two")
        write_manifest(runs / "two", msgspec.structs.replace(manifest, state="completed"))
        shutil.rmtree(runs / "one")
        assert {name: run["state"] for name, run in listed(server).items()} == {"two": "completed"}


@pytest.mark.parametrize(
    ("rank_0", "state"),
    [
        ("running", "running"),
        ("of another host", "running"),
        ("ended", "failed"),
        ("of a pid that is another's", "failed"),
    ],
)
def test_a_run_that_was_killed_is_listed_as_failed(runs: Path, rank_0: str, state: str) -> None:
    with serving(runs) as server:
        assert listed(server)["two"]["state"] == "running"
        mark_rank_0(runs / "two", rank_0)
        found = listed(server)["two"]
        assert found["state"] == state
        assert ("rank 0 was killed, or ended without a message" in str(found["what"])) == (state == "failed")
        waits = (
            "This run has written nothing to analyse yet" in ask(server, f"/{server.secret}/report/{found['key']}")[2]
        )
        assert waits == (state == "running")


def test_an_empty_folder_gets_its_first_run(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert listed(server) == {}
        shutil.copytree(SAMPLE, tmp_path / "first")
        assert set(listed(server)) == {"first"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was analysed."""
    found: list[object] = []

    def counted(*paths: Path) -> Report:
        found.append(paths)
        return analyze(*paths)

    monkeypatch.setattr("perfkit.pipeline.analyze.analyze", counted)
    return found


def test_a_report_is_analysed_again_only_if_its_traces_change(runs: Path, calls: list[object]) -> None:
    with serving(runs) as server:
        key = listed(server)["one"]["key"]
        assert "exposed communication" in page(server, f"report/{key}")
        page(server, f"report/{key}")
        assert len(calls) == 1
        os.utime(next((runs / "one").glob("rank0*.json.gz")), ns=(1, 1))
        page(server, f"report/{key}")
        assert len(calls) == 2


def test_a_summary_is_the_answer_of_the_report(runs: Path, calls: list[object]) -> None:
    with serving(runs) as server:
        rows = listed(server)
        found = json.loads(page(server, f"summary/{rows['one']['key']}"))
        assert json.loads(page(server, f"summary/{rows['one']['key']}")) == found
        assert len(calls) == 1
        (run,) = analyze(SAMPLE).runs
        assert found["verdict"] == run.verdict.sentence
        assert sum(share for _, _, share, *_ in found["rows"]) == pytest.approx(1)
        assert page(server, f"summary/{rows['two']['key']}") == "null"  # it has nothing to analyse yet
        for trace in (runs / "one").glob("*.json.gz"):
            trace.write_text("<script>")
        damaged = json.loads(page(server, f"summary/{rows['one']['key']}"))
        assert (damaged["tone"], damaged["rows"]) == ("error", [])
        assert "rank0.json.gz" in damaged["verdict"]
        assert ask(server, f"/{server.secret}/summary/nope")[0] == 404


def test_the_newest_step_times_are_those_of_the_time_per_step(runs: Path) -> None:
    with serving(runs) as server:
        one = listed(server)["one"]
        newest = one["newest_ns"]
        assert isinstance(newest, list)
        assert len(newest) == 32
        assert min(newest) < int(str(one["step_ns"])) < max(newest)


def test_a_run_without_traces_yet_and_a_damaged_one_are_sentences(runs: Path) -> None:
    with serving(runs) as server:
        assert "nothing to analyse yet" in page(server, f"report/{listed(server)['two']['key']}")
        for trace in (runs / "one").glob("*.json.gz"):
            trace.write_text("<script>")
        status, _, text = ask(server, f"/{server.secret}/report/{listed(server)['one']['key']}")
        assert status == 500
        assert "rank0.json.gz" in text
        assert "<script>" not in text


def test_names_from_a_folder_are_escaped(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / "<img src=x onerror=alert(1)>")
    with serving(tmp_path) as server:
        (run,) = listed(server).values()
        text = page(server, f"run/{run['key']}")
        assert "<img" not in text
        assert "&lt;img" in text


def test_what_does_not_exist_is_not_found(runs: Path) -> None:
    with serving(runs) as server:
        key = listed(server)["one"]["key"]
        unknown = (
            "nope",
            "run/nope",
            "report/",
            f"compare?before={key}",
            f"perfetto/{key}?rank=-1",
            f"perfetto/{key}?at=1ms",
            "run/../runs.json",
        )
        for path in (*unknown, f"perfetto/{key}?rank={'9' * 40}", "perfetto/nope", "..%2f..%2fetc/passwd"):
            assert ask(server, f"/{server.secret}/{path}")[0] == 404, path


def test_an_address_that_cannot_be_read_is_not_found(runs: Path) -> None:
    with serving(runs) as server:
        for path in ("//[", "//[::1", "//]/run/x", "//℀/"):
            assert server.pages.answer(path).status == 404, path
        assert ask(server, f"/{server.secret}///[")[0] == 404


def test_the_perfetto_ui_gets_the_trace_of_the_rank(runs: Path) -> None:
    with serving(runs) as server:
        key = listed(server)["one"]["key"]
        status, headers, text = ask(server, f"/{server.secret}/perfetto/{key}?trace=rank1.json.gz&step=3")
        if status == 500:
            assert "port 9001" in text
            pytest.skip("port 9001 is in use")
        assert status == 303
        assert headers["Location"].startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/")
        assert re.search(r"/rank1\.json\.gz&visStart=\d+&visEnd=\d+$", headers["Location"])
        at = ask(server, f"/{server.secret}/perfetto/{key}?trace=rank1.json.gz&step=3&at=1ms-2.5ms")[1]["Location"]
        step, time = (
            [int(one) for one in re.findall(r"=(\d+)", where["Location"].partition("&")[2])]
            for where in (headers, {"Location": at})
        )
        assert time == [step[0] + 1_000_000, step[0] + 2_500_000]
        again = ask(server, f"/{server.secret}/perfetto/{key}?trace=rank0.json.gz")[1]["Location"]
        assert again.endswith("/rank0.json.gz")


@pytest.mark.timeout(200)  # opening a pipe that nobody writes blocks
def test_a_trace_that_becomes_a_pipe_keeps_nobody_waiting(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(location: RunLocation, name: str) -> Path:
        trace = location.path / name
        trace.unlink()
        os.mkfifo(trace)
        return trace

    with loopback.serving(RunServer([runs], offline=True)) as server:
        address = f"/{server.secret}/perfetto/{listed(server)['one']['key']}?trace="
        with monkeypatch.context() as patch:
            patch.setattr("perfkit.tools.serve.pages.find_trace", swapped)
            status, _, text = ask(server, f"{address}rank0.json.gz")
        assert (status, "rank0.json.gz: cannot be read: it is not a regular file" in text) == (500, True)
        assert ask(server, f"{address}rank1.json.gz")[0] == 303


def test_the_end_does_not_wait_for_a_trace_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit.tools.serve.site._PATIENCE_S", 0.01)
    server = RunServer([tmp_path])
    with server._opening:
        server.server_close()
    assert server.socket.fileno() == -1


def test_traces_without_a_rank_in_their_name_are_told_apart(tmp_path: Path) -> None:
    for name, rank in (("hostb_17.pt.trace.json.gz", 0), ("hosta_18.pt.trace.json.gz", 1)):
        shutil.copy(SAMPLE / f"rank{rank}.json.gz", tmp_path / name)
    with serving(tmp_path) as server:
        (run,) = listed(server).values()
        text = page(server, f"run/{run['key']}")
        assert [line.split(">")[1].split("<")[0] for line in text.splitlines() if "?trace=" in line] == [
            "hosta_18.pt.trace.json.gz",
            "hostb_17.pt.trace.json.gz",
        ]
        data = page(server, f"report/{run['key']}")
        assert data.index("hostb_17.pt.trace.json.gz") < data.index("hosta_18.pt.trace.json.gz")  # by rank


def test_a_run_with_only_the_monitors_logs_has_a_report_and_its_progress(tmp_path: Path) -> None:
    write_run(tmp_path / "logs", own_times(2, 60))
    with serving(tmp_path) as server:
        (run,) = listed(server).values()
        assert (run["ranks"], run["steps"]) == (2, 60)
        assert run["step_ns"]
        assert "Whole run" in page(server, f"report/{run['key']}")


def test_a_folder_whose_name_is_not_text_harms_no_other(runs: Path) -> None:
    shutil.copytree(SAMPLE, os.fsdecode(os.fsencode(runs) + b"/bad\xff"))
    with serving(runs) as server:
        names = set(listed(server))
        assert {"one", "two"} < names
        (bad,) = names - {"one", "two"}
        assert "sample" not in bad
        assert "compute" in page(server, f"report/{listed(server)[bad]['key']}")


def test_an_unexpected_error_is_an_answer(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Report:
        raise RuntimeError("<b>broken</b>")

    monkeypatch.setattr("perfkit.pipeline.analyze.analyze", broken)
    with serving(runs) as server:
        status, _, text = ask(server, f"/{server.secret}/report/{listed(server)['one']['key']}")
        assert status == 500
        assert "&lt;b&gt;broken" in text
