import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli.recording.run_options import check_packages, parse_job
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.record.training.strategies import deepspeed
from perfkit.record.training.strategies.deepspeed_config import (
    compiled_part,
    find_start_problems,
    make_config,
)

RUN = ("classify", "--dp", "deepspeed")
ADAM = {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}


def write(folder: Path, values: object) -> str:
    path = folder / "ds.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return str(path)


def config(*options: str, clip_norm: float | None = 1.0) -> dict[str, Any]:
    return make_config(parse_job([*RUN, *options]).run, clip_norm)


def start_problems(*options: str, ranks: int = 2, device: str = "cpu") -> list[str]:
    return [*find_start_problems(parse_job([*RUN, *options]).run, ranks, device)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("classify", "--zero", "2"), "--zero needs --dp deepspeed"),
        (("classify", "--ds-config", "ds.json"), "--ds-config needs --dp deepspeed"),
        (("classify", "--dp", "zero2", "--zero", "2"), "--zero needs --dp deepspeed"),
        ((*RUN, "--zero", "4"), "--zero = 4"),
        ((*RUN, "--compile"), "--compile does not work with --dp deepspeed"),
        ((*RUN, "--static-graph"), "--static-graph is an option of DDP"),
        ((*RUN, "--no-overlap"), "--no-overlap is an option of DDP, which --dp deepspeed does not use"),
        ((*RUN, "--mesh", "tp=2"), "the workload classify does not support the dimension tp"),
        (("gpt", "--dp", "deepspeed", "--mesh", "dp=1,tp=2"), "--dp deepspeed shares the model among all ranks"),
        (("gpt", "--dp", "deepspeed", "--mesh", "pp=2"), "--dp deepspeed shares the model among all ranks"),
        (("classify", "--mesh", "pp=2"), "the workload classify does not support the dimension pp"),
        (("classify", "--dp", "hsdp"), "--dp hsdp: the workload classify supports ddp, zero1, zero2, zero3, deepspeed"),
        ((*RUN, "--ds-config", "no-such-file.json"), "--ds-config no-such-file.json: No such file or directory"),
    ],
)
def test_options_that_do_not_work_together(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_job([*options])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("{", "not a JSON object"),
        ([1], "not a JSON object"),
        ('{"a": "\xff"}'.encode("latin-1").decode("latin-1")[:3], "not a JSON object"),
        ({"train_micro_batch_size_per_gpu": 4}, "contradicts --batch-size 16: add --batch-size 4"),
        ({"gradient_accumulation_steps": 2}, "contradicts --accumulate 1: add --accumulate 2"),
        ({"zero_optimization": {"stage": 1}}, "zero_optimization.stage 1 contradicts --zero 3: remove --zero"),
        ({"zero_optimization": {"stage": 7}}, "zero_optimization.stage 7: choose from 0, 1, 2, 3"),
        ({"bf16": {"enabled": True}}, "it computes in bfloat16, which contradicts --precision float32"),
        ({"fp16": {"enabled": True}}, "add --precision float16"),
        ({"torch_autocast": {"enabled": True, "dtype": "float16"}}, "add --precision float16"),
        ({"autotuning": {"enabled": True}}, "autotuning does not work with `perfkit run`"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel: DeepSpeed's ranks train on different samples"),
        ({"managed_gradient_accumulation": False}, "managed_gradient_accumulation false does not work"),
        ({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": 1e-8}}}, "'auto' beside other values"),
        ({"wall_clock_breakdown": "auto"}, "wall_clock_breakdown contains 'auto'"),
    ],
)
def test_files_that_are_refused(values: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as raised:
        parse_job([*RUN, "--zero", "3", "--ds-config", write(tmp_path, values)])
    assert str(raised.value).startswith(f"--ds-config {tmp_path}")


def test_without_a_file_everything_comes_from_the_options() -> None:
    made = config("--zero", "2", "--batch-size", "4", "--accumulate", "3", "--precision", "bfloat16", clip_norm=0.5)
    assert made == {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3,
        "gradient_clipping": 0.5,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
    }
    assert config()["zero_optimization"] == {"stage": 0}
    assert config(clip_norm=None)["gradient_clipping"] == 0.0


def test_a_file_wins_and_auto_is_what_the_options_say(tmp_path: Path) -> None:
    values = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.25,
        "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "overlap_comm": True},
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}},
        "wall_clock_breakdown": False,
    }
    made = config("--ds-config", write(tmp_path, values), "--batch-size", "4")
    assert made["train_micro_batch_size_per_gpu"] == 4
    assert made["gradient_clipping"] == 0.25
    assert made["zero_optimization"] == {"stage": 3, "overlap_comm": True}
    assert made["bf16"] == {"enabled": False}
    assert "optimizer" not in made  # the workload's
    assert made["scheduler"] == values["scheduler"]
    assert "train_batch_size" not in made
    assert made["wall_clock_breakdown"] is False


def test_the_batch_size_of_a_file_depends_on_the_ranks(tmp_path: Path) -> None:
    path = write(tmp_path, {"train_batch_size": 16})
    assert config("--ds-config", path, "--batch-size", "8")["train_batch_size"] == 16
    assert start_problems("--ds-config", path, "--batch-size", "8") == []
    (problem,) = start_problems("--ds-config", path, "--batch-size", "8", ranks=4)
    assert problem.endswith("train_batch_size 16 is not --batch-size 8 x --accumulate 1 x 4 ranks, which is 32")


def test_offloading_from_the_cpu_is_refused(tmp_path: Path) -> None:
    offload = {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}}
    path = write(tmp_path, {"zero_optimization": {"stage": 3, **offload}})
    assert start_problems("--ds-config", path, device="cuda") == []
    (problem,) = start_problems("--ds-config", path)
    assert problem.endswith("offload_optimizer: ranks that compute on the CPU have nothing to offload: remove it")
    assert start_problems() == []


def test_autocast_of_a_file_is_not_also_a_conversion(tmp_path: Path) -> None:
    path = write(tmp_path, {"torch_autocast": {"enabled": True, "dtype": "bfloat16"}})
    made = config("--ds-config", path, "--precision", "bfloat16")
    assert made["bf16"] == {"enabled": False}


def test_the_manifest_records_the_content_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"zero_optimization": {"stage": 2}, "bf16": {"enabled": False}})
    job = parse_job([*RUN, "--ds-config", path])
    assert job.effective["ds_config"] == '{"bf16":{"enabled":false},"zero_optimization":{"stage":2}}'
    assert job.run.ds_config == path


def test_what_needs_a_compiler_is_one_line_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    offload = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    assert compiled_part({"optimizer": ADAM}) is None
    assert compiled_part({"zero_optimization": {"stage": 3}}) is None
    monkeypatch.setattr(shutil, "which", lambda _: None)
    deepspeed._require_compiler({"optimizer": ADAM})
    for values, part in (({"optimizer": {"type": "Adam"}}, "FusedAdam"), (offload, "CPUAdam")):
        with pytest.raises(LaunchEnvironmentError, match=rf"compile {part}.*install a C\+\+ compiler"):
            deepspeed._require_compiler(values)


@pytest.mark.parametrize(("missing", "extra"), [("transformers", "transformers"), ("deepspeed", "deepspeed")])
def test_a_missing_package_is_named_with_its_extra(missing: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.cli.typer_app.find_spec", lambda name: None if name == missing else object())
    with pytest.raises(LaunchEnvironmentError, match=rf"needs {missing}.*perfkit\[{extra}\]"):
        check_packages(parse_job([*RUN]))
    check_packages(parse_job(["gpt"]))
