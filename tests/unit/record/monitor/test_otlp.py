"""What OpenTelemetry's collector receives while a loop runs, by real requests to a collector on loopback."""

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perfkit
from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit.options.script import ScriptConfig
from tests.support.monitor.collector import Collector, collector
from tests.support.monitor.scrapes import scrape
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import MOST_S, wait_for_threads


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collector() as state:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{state.port}")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
        monkeypatch.setattr("perfkit.record.monitor.otlp._AT_END_S", MOST_S)  # for the last figures
        yield state


def test_a_loop_is_told_of_while_it_runs_and_at_its_end(tmp_path: Path, receiving: Collector) -> None:
    port = free_port()
    work = perfkit.StepWork(batch_size=8)
    with perfkit.monitor(tmp_path / "run", otlp=True, metrics_port=port, work=work, device="cpu") as mon:
        for step in range(5):
            mon.step(float(step))
        receiving.wait(1)
        for step in range(5, 40):
            mon.step(float(step))
        scraped = scrape(port)
    first, last = receiving.requests[0], receiving.requests[-1]
    assert (first.path, first.scope, first.runs) == ("/v1/metrics", "perfkit", {"run"})
    assert (first.resource["service.name"], first.resource["host.name"]) == ("perfkit", socket.gethostname())
    assert 1 <= first.figures["perfkit.steps"][0] <= 5
    assert last.figures["perfkit.steps"] == {0: 40.0}  # sent as the run ends
    assert last.figures["perfkit.loss"] == {0: 39.0}
    assert last.cumulative == {"perfkit.steps"}
    endings = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "": "", "{step}": "_total", "{sample}/s": "_per_second"}
    as_prometheus = {
        name.replace(".", "_") + endings[last.units[name]]: {str(rank): value for rank, value in values.items()}
        for name, values in last.figures.items()
    }
    steady = ("perfkit_step_seconds", "perfkit_samples_per_second", "perfkit_last_step_end_timestamp_seconds")
    assert as_prometheus.keys() == scraped.keys()
    assert {name: as_prometheus[name] for name in steady} == {name: scraped[name] for name in steady}


def test_the_environment_says_where_to_and_what_with(
    tmp_path: Path, receiving: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"http://127.0.0.1:{receiving.port}/here")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")  # only as the run ends
    monkeypatch.setenv("OTEL_SERVICE_NAME", "training")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=vision")
    with perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
        mon.step()
    (only,) = receiving.requests
    assert only.path == "/here"
    assert only.headers["api-key"] == "secret"
    assert only.headers["Content-Encoding"] == "gzip"
    assert (only.resource["service.name"], only.resource["team"]) == ("training", "vision")


def test_a_collector_that_is_not_there_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")  # its first repetition comes after a second
    line = f"--otlp: no figures for OpenTelemetry: {address}/v1/metrics: Connection refused; tried again every 0.05 s"
    errors, deadline = "", time.monotonic() + MOST_S
    with caplog.at_level(logging.INFO), perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
        mon.step()
        while line not in errors and time.monotonic() < deadline:
            time.sleep(0.05)
            errors += capfd.readouterr().err
        time.sleep(0.2)
    errors += capfd.readouterr().err
    assert errors.count(line) == errors.count("OpenTelemetry") == 1
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]
    assert len(perfkit.steps(mon.folder)) == 1


def test_a_collector_that_never_answers_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        monkeypatch.setattr("perfkit.record.monitor.otlp._AT_END_S", 0.2)
        silent.settimeout(MOST_S)
        with perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
            mon.step()
            asked, _ = silent.accept()  # before the end, however late the thread that asks
        asked.close()
        assert f"--otlp: no figures for OpenTelemetry: {address}/v1/metrics: no answer\n" in capfd.readouterr().err
    wait_for_threads("perfkit-otlp")  # it filters the exporter's messages


def test_a_collector_that_is_there_again_gets_figures_again(
    tmp_path: Path, receiving: Collector, capfd: pytest.CaptureFixture[str]
) -> None:
    receiving.status = 400
    with perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
        mon.step()
        receiving.wait(2)
        receiving.status = 200
        mon.step()
        count = len(receiving.requests)
        receiving.wait(count + 2)
    assert receiving.requests[-1].figures["perfkit.steps"] == {0: 2.0}
    assert capfd.readouterr().err.count("--otlp: no figures for OpenTelemetry: ") == 1


def test_the_programs_own_messages_stay(tmp_path: Path, receiving: Collector, caplog: pytest.LogCaptureFixture) -> None:
    own = logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    with perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
        mon.step()
        receiving.wait(1)
        own.warning("of the program")
    assert "of the program" in caplog.text
    assert not own.filters


def test_forked_children_send_nothing(tmp_path: Path, receiving: Collector) -> None:
    with perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
        mon.step()
        receiving.wait(1)
        child = os.fork()
        while child == 0:  # as a worker of a loader that is kept
            signal.pause()
    try:
        count = len(receiving.requests)
        time.sleep(0.6)
        assert len(receiving.requests) == count
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "often", "OTEL_METRIC_EXPORT_INTERVAL=often: must be a number of milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "nan", "OTEL_METRIC_EXPORT_INTERVAL=nan: must be a number of milliseconds"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: only http/protobuf is sent"),
        ("OTEL_SDK_DISABLED", "true", "OTEL_SDK_DISABLED=true"),
    ],
)
def test_what_the_environment_rules_out_does_not_stop_the_run(
    name: str,
    value: str,
    why: str,
    tmp_path: Path,
    receiving: Collector,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    with perfkit.monitor(tmp_path / "run", otlp=True, device="cpu") as mon:
        mon.step()
    assert f"--otlp: no figures for OpenTelemetry: {why}" in capfd.readouterr().err
    assert len(perfkit.steps(mon.folder)) == 1
    assert not receiving.requests


def test_it_needs_the_monitor_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for config in (ScriptConfig, RunConfig):
        with pytest.raises(UsageError, match="no effect without --monitor"):
            config(otlp=True)
        config(otlp=True, monitor=True)
    monkeypatch.setattr("perfkit.options.recording.find_spec", lambda _: None)
    needs = r"needs opentelemetry-exporter-otlp-proto-http: pip install 'perfkit\[otel\]'"
    with pytest.raises(UsageError, match=needs):
        ScriptConfig(otlp=True, monitor=True)

    def none_above(_: str) -> None:
        raise ModuleNotFoundError("No module named 'opentelemetry'")

    monkeypatch.setattr("perfkit.options.recording.find_spec", none_above)
    with pytest.raises(UsageError, match=needs):
        RunConfig(otlp=True, monitor=True)
