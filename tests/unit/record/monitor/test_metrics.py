"""What Prometheus is told while a loop runs, by real requests."""

import os
import re
import signal
import socket
import struct
import threading
import time
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
import torch

import perfkit
from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit.options.script import ScriptConfig
from perfkit.record.monitor import metrics
from perfkit.record.monitor.metrics import MetricsServer, StepMetrics
from perfkit.record.own_threads import all_threads
from perfkit.records.monitor import LOSS_GIVEN
from perfkit.storage.step_log.follow import RunFollower
from perfkit.storage.step_log.reader import MOST_RECORDS
from tests.support.monitor.made_runs import own_times, records, with_checks, write_log
from tests.support.monitor.scrapes import scrape
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import MOST_S, wait_until


def test_a_loop_is_told_of_while_it_runs(tmp_path: Path) -> None:
    port = free_port()
    work = perfkit.StepWork(batch_size=8)
    with perfkit.monitor(tmp_path / "run", metrics_port=port, work=work, device="cpu") as mon:
        for step in range(5):
            with mon.phase("forward"):
                torch.ones(2).sum()
            mon.step(float(step))
        first = scrape(port)
        for step in range(5, 40):
            mon.step(float(step))
        second = scrape(port)
        mean_s = perfkit.steps(mon.folder)["step_ns"][-32:].mean() / 1e9
    assert (first["perfkit_steps_total"], second["perfkit_steps_total"]) == ({"0": 5.0}, {"0": 40.0})
    assert (first["perfkit_loss"], second["perfkit_loss"]) == ({"0": 4.0}, {"0": 39.0})
    assert second["perfkit_step_seconds"]["0"] == pytest.approx(mean_s)
    assert second["perfkit_samples_per_second"]["0"] == pytest.approx(8 / mean_s)
    assert (
        second["perfkit_last_step_end_timestamp_seconds"]["0"] > first["perfkit_last_step_end_timestamp_seconds"]["0"]
    )
    assert first["perfkit_resident_bytes"]["0"] > 1e6
    assert "perfkit_data_wait_seconds" not in second  # the loop has not marked it
    assert "perfkit_allocated_bytes" not in second  # there is no device
    with pytest.raises(OSError, match="refused"):
        scrape(port)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{}", 200),
        ("localhost:9999", 200),
        ("LOCALHOST", 200),
        ("rebound.example:{}", 403),
        ("127.0.0.1.example", 403),
    ],
)
def test_a_web_page_with_a_name_that_leads_here_is_told_nothing(host: str, status: int, tmp_path: Path) -> None:
    port = free_port()
    with perfkit.monitor(tmp_path / "run", metrics_port=port, device="cpu") as mon:
        mon.step(5.0)
        answer, text = ask_as(host.format(port), port)
    assert (answer.status, "perfkit_steps_total" in text) == (status, status == 200)
    assert answer.getheader("Access-Control-Allow-Origin") is None


def test_such_a_page_is_told_nothing_from_the_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, start = free_port(), threading.Thread.start
    told: list[int] = []

    def start_and_ask(thread: threading.Thread) -> None:
        start(thread)
        if not told:
            told.append(0)
            told[0] = ask_as("rebound.example", port)[0].status

    monkeypatch.setattr(threading.Thread, "start", start_and_ask)
    MetricsServer(port, tmp_path, None).close()
    assert told == [403]


def test_a_client_that_resets_its_connection_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    server = MetricsServer(port, tmp_path, None)
    before = all_threads()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /met")
        # One that is listed may not have started yet.
        while not (answering := [each for each in all_threads() if each not in before and each.is_alive()]):
            time.sleep(0.01)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for thread in answering:
        thread.join(MOST_S)
    server.close()
    assert capfd.readouterr().err == ""


def test_many_clients_that_ask_nothing_take_few_threads_and_files_of_the_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    with perfkit.monitor(tmp_path / "run", metrics_port=port, device="cpu") as mon:
        mon.step()
        before, of_program = len(all_threads()), threading.active_count()
        clients = [socket.create_connection(("127.0.0.1", port), timeout=MOST_S) for _ in range(40)]
        for client in clients:
            client.settimeout(0.2)
        wait_until(lambda: sum(map(is_closed, clients)) >= 24)
        assert 0 < len(all_threads()) - before <= 16
        assert threading.active_count() == of_program
        for client in clients:
            client.close()
        wait_until(lambda: len(all_threads()) <= before)
        assert scrape(port)["perfkit_steps_total"] == {"0": 1.0}
        assert capfd.readouterr().err == ""


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_client_that_falls_silent_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics._QuietHandler, "timeout", 0.2)
    port = free_port()
    with perfkit.monitor(tmp_path / "run", metrics_port=port, device="cpu") as mon:
        mon.step()
        with socket.create_connection(("127.0.0.1", port), timeout=MOST_S) as client:
            client.sendall(b"GET /metr")
            assert client.recv(100) == b""
        assert capfd.readouterr().err == ""


def ask_as(host: str, port: int) -> tuple[HTTPResponse, str]:
    """Ask for the figures under a name of this host; return the answer and its text."""
    asked = HTTPConnection("127.0.0.1", port, timeout=MOST_S)
    asked.request("GET", "/metrics", headers={"Host": host, "Origin": "http://rebound.example"})
    answer = asked.getresponse()
    text = answer.read().decode()
    asked.close()
    return answer, text


def test_a_port_in_use_does_not_stop_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        with perfkit.monitor(tmp_path / "run", metrics_port=port, device="cpu") as mon:
            mon.step()
    assert f"--metrics-port {port}: no figures for Prometheus" in capfd.readouterr().err
    assert len(perfkit.steps(mon.folder)) == 1


def test_without_a_thread_to_answer_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start, port = threading.Thread.start, free_port()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.endswith("metrics"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with perfkit.monitor(tmp_path / "run", metrics_port=port, device="cpu") as mon:
        mon.step()
        with pytest.raises(OSError, match="refused"):
            scrape(port)
    assert "can't start new thread" in capfd.readouterr().err
    assert len(perfkit.steps(mon.folder)) == 1


def test_after_the_run_the_port_is_free_though_forked_children_live_on(tmp_path: Path) -> None:
    port = free_port()
    with perfkit.monitor(tmp_path / "run", metrics_port=port, device="cpu") as mon:
        child = os.fork()
        while child == 0:  # as a worker of a loader that is kept
            signal.pause()
        mon.step()
    try:
        with socket.socket() as next_one:
            next_one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            next_one.bind(("127.0.0.1", port))
            next_one.listen()
            assert next_one.getsockname()[1] == port
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_logs_of_other_hosts_are_read_once(tmp_path: Path) -> None:
    own = own_times(9, 40)
    for rank in range(9):
        write_log(tmp_path, rank, 9, records(own, rank)[:30])
    follower = RunFollower(tmp_path, host="host1")
    follower.read()
    for rank in range(9):
        with (tmp_path / f"rank{rank}.steps").open("ab") as stream:
            stream.write(with_checks(records(own, rank)[30:]))
    assert follower.read()
    assert [int(log.records["step"][-1]) for log in follower.logs.values()] == [29] * 8 + [39]


def test_what_is_told_is_the_newest_however_long_nobody_has_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = records(own_times(1, MOST_RECORDS + 1_000), 0)
    path = write_log(tmp_path, 0, 1, made[:100])
    monkeypatch.setattr(socket, "gethostname", lambda: "host0")
    metrics = StepMetrics(tmp_path, None)

    def steps() -> float:
        return float(next(one.samples[0].value for one in metrics.collect() if one.name == "perfkit_steps"))

    assert steps() == 100
    with path.open("ab") as stream:
        stream.write(with_checks(made[100:]))
    assert steps() == len(made)


def test_only_what_is_known_of_this_host_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_times(9, 40)
    for rank in range(9):
        made = records(own, rank)
        made["loss"] = float("nan")
        made["flags"] = LOSS_GIVEN if rank == 0 else 0
        write_log(tmp_path, rank, 9, made)
    monkeypatch.setattr(socket, "gethostname", lambda: "host1")
    (only,) = {sample.labels["rank"] for one in StepMetrics(tmp_path, None).collect() for sample in one.samples}
    assert only == "8"
    monkeypatch.setattr(socket, "gethostname", lambda: "host0")
    found = {one.name: one.samples for one in StepMetrics(tmp_path, None).collect()}
    assert len(found["perfkit_steps"]) == 8
    assert [(sample.labels["rank"], sample.value != sample.value) for sample in found["perfkit_loss"]] == [("0", True)]
    assert "perfkit_samples_per_second" not in found


@pytest.mark.parametrize(("port", "why"), [(0, "from 1 to 65535"), (65536, "from 1 to 65535")])
def test_what_is_no_port_is_refused(port: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=why), perfkit.monitor(tmp_path / "run", metrics_port=port):
        pass
    assert not list(tmp_path.iterdir())


def test_a_port_needs_the_monitor_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for config in (ScriptConfig, RunConfig):
        with pytest.raises(UsageError, match="no effect without --monitor"):
            config(metrics_port=9400)
        config(metrics_port=9400, monitor=True)
    monkeypatch.setattr("perfkit.options.recording.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"needs prometheus-client: pip install 'perfkit\[metrics\]'"):
        ScriptConfig(metrics_port=9400, monitor=True)


def test_the_manual_has_every_figure(tmp_path: Path) -> None:
    made = records(own_times(1, 40), 0)
    for column in made.dtype.names or ():
        if column.endswith(("_bytes", "_ns", "busy")):
            made[column] = 1
    made["flags"] = LOSS_GIVEN
    write_log(tmp_path, 0, 1, made)
    page = (Path(__file__).parents[4] / "docs" / "monitor.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(perfkit_\w+)`", page))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "gethostname", lambda: "host0")
        told = {sample.name for one in StepMetrics(tmp_path, 1).collect() for sample in one.samples}
    assert told == documented
