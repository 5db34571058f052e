import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.cli.recording.run_options import parse_job

DEVICE = """
[[device]]
name = "small"
tflops = { float32 = 0.01, bfloat16 = 0.02 }
bandwidth_gb_per_s = 10
memory_gb = MEMORY
source = "made up"
"""


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Return the options of a device of 10 MB."""
    path = tmp_path / "devices.toml"
    path.write_text(DEVICE.replace("MEMORY", "0.01"))
    return ["--device", "small", "--device-table", str(path)]


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "-f", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_command_is_one_that_perfkit_accepts(capsys: pytest.CaptureFixture[str], small: list[str]) -> None:
    plan = planned(capsys, "gpt", "-n", "16", "--batch-size", "16", "--heads", "8", *small)
    commands = [one["command"] for one in plan["layouts"] if one["command"]]
    assert len(commands) > 20
    for command in commands:
        words = shlex.split(command)
        name, *options = words[words.index("run") + 1 :]
        options = [word for place, word in enumerate(options) if "-n" not in options[max(0, place - 1) : place + 1]]
        job = parse_job([name, *options])
        job.run.check_world(16)


@pytest.mark.parametrize(("more", "dimension"), [(["--experts", "4"], "ep"), ([], "cp")])
def test_a_layout_that_deepspeed_does_not_have_has_no_command_of_it(
    more: list[str], dimension: str, capsys: pytest.CaptureFixture[str], small: list[str]
) -> None:
    plan = planned(capsys, "gpt", "-n", "4", "--batch-size", "4", "--precision", "mixed", *more, *small)
    divided = [one for one in plan["layouts"] if dimension in one["mesh"]]
    assert divided
    assert not any("perfkit run" in (one["command"] or "") for one in divided)
    assert any("--dp deepspeed" in (one["command"] or "") for one in plan["layouts"])


def test_experts_are_divided_by_expert_parallelism_only(capsys: pytest.CaptureFixture[str], small: list[str]) -> None:
    plan = planned(capsys, "gpt", "-n", "8", "--batch-size", "8", "--experts", "4", *small)
    commands = [one["command"] for one in plan["layouts"]]
    assert {frozenset(one["mesh"].items()) for one in plan["layouts"] if "ep" in one["mesh"]} == {
        frozenset({"dp": 4, "ep": 2}.items()),
        frozenset({"dp": 2, "ep": 4}.items()),
    }
    assert not any({"tp", "pp"} & one["mesh"].keys() for one in plan["layouts"])
    for command in commands:
        assert "--experts 4" in command
        words = shlex.split(command)
        parse_job(["gpt", *words[words.index("-n") + 2 :]]).run.check_world(8)


def test_a_refused_layout_has_the_reason_of_perfkit_run(capsys: pytest.CaptureFixture[str], small: list[str]) -> None:
    plan = planned(capsys, "gpt", "-n", "4", "--precision", "bfloat16", *small)
    refused = {one["refused"] for one in plan["layouts"] if "pp" in one["mesh"]}
    assert len(refused) == 1
    assert "--precision bfloat16 does not work with pp" in refused.pop()
    assert not any("perfkit run" in (one["command"] or "") for one in plan["layouts"] if one["refused"])


def test_the_best_fits_and_is_named_with_its_command(capsys: pytest.CaptureFixture[str], small: list[str]) -> None:
    assert main(["plan", "gpt", "-n", "4", *small]) == 0
    shown = capsys.readouterr().out
    assert "Best: " in shown
    assert "perfkit run gpt -n 4 --preset tiny" in " ".join(shown.split())


def test_explain_shows_every_term_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--params", "7.5e9", "-n", "64", "--explain", "-f", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert "12 Psi (Psi = 7,500,000,000)" in shown
    assert "'ZeRO' (2020), section 3.1" in shown


def test_device_hours_and_energy_of_a_number_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, "gpt", "--preset", "gpt2", "-n", "8", "--device", "a100-40g", "--tokens", "1e9")
    step = plan["layouts"][plan["best"]]["step"]
    assert step["device_hours"] == pytest.approx(8 * 1e9 / step["tokens_per_s"] / 3600)
    assert step["energy_kwh"] == pytest.approx(step["device_hours"] * 0.4)


def test_more_efficient_devices_take_less_time(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["gpt", "--preset", "gpt2", "--device", "a100-40g", "--efficiency"]
    slow, fast = (planned(capsys, *options, share)["layouts"][0]["step"] for share in ("0.2", "0.4"))
    assert slow["compute_ns"] == 2 * fast["compute_ns"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bert"], "formulas for gpt"),
        (["--preset", "huge"], "choose from tiny"),
        (["--params", "1e9", "--preset", "gpt2"], "remove --preset"),
        (["--params", "1e9", "--layers", "4"], "add --width, --sequence"),
        (["--params", "1e9", "--no-bias"], "--no-bias"),
        (["--params", "1e9", "--experts", "8"], "--experts"),
        (["gpt", "--experts", "1"], "top_k"),
        (["--params", "-1"], "--params"),
        (["--params", "nan"], "--params"),
        (["--params", "1e30"], "--params"),
        (["gpt", "--width", "65"], "not divisible by heads"),
        (["gpt", "--latency", "soon"], "--latency"),
        (["gpt", "--tokens", "nan"], "--tokens"),
        (["gpt", "--top-k", "1"], "top_k has no effect without experts"),
        (["gpt", "--tokens", "1e9"], "--tokens has no effect without a device"),
        (["gpt", "--efficiency", "0.2"], "--efficiency has no effect without a device"),
        (["gpt", "--link-efficiency", "0.2"], "--link-efficiency has no effect without a device"),
        (["gpt", "--latency", "5us"], "--latency has no effect without a device"),
        (["gpt", "--device-table", "none.toml"], "--device-table has no effect unless a device is named"),
        (["gpt", "--cluster-table", "none.toml"], "--cluster-table has no effect unless a device is named"),
        (["gpt", "--offload", "cpu", "--device", "h100"], "DeepSpeed offloads with --precision mixed"),
        (["gpt", "--device", "a100"], "there are a100-40g and a100-80g: name one of them"),
        (["gpt", "--device", "polaris"], "polaris is a cluster: use --cluster polaris"),
        (["llama-7b", "--width", "64"], "has its own sizes"),
        (["llama-7b", "--params", "7e9"], "remove llama-7b"),
        (["--check", "traces/sample-memory", "--tokens", "1e9"], "--tokens has no effect with --check"),
        (["--check", "traces/sample-memory", "--attention", "stored"], "--attention has no effect with --check"),
        (["--check", "traces/sample-memory", "--reserve", "0.1"], "--reserve has no effect with --check"),
        (["--check", "traces/sample-memory", "--explain"], "--explain has no effect with --check"),
        (["--check", "traces/sample-memory", "--batch", "f"], "--check takes model, ranks and layout from the run"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_formulas_need_no_torch() -> None:
    code = (
        "import sys; from perfkit.cli import main; main(['plan', 'gpt', '-n', '8', '-f', 'json']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["layouts"]
