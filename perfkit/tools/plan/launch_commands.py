"""The command that trains a planned layout: of `perfkit run`, or the options of DeepSpeed and Megatron-LM."""

import json
from collections.abc import Mapping
from shlex import quote
from typing import Any, Final

from perfkit.errors import UsageError
from perfkit.options.run import RunConfig
from perfkit.record.training.strategies.checks import check_parallelism
from perfkit.tools.plan.layout import Layout
from perfkit_workloads.base import Workload

_STAGES: Final = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "zero++": 3}
_FILE: Final = "ds_config.json"
_AUTOCAST: Final = ("bfloat16", "float16")
_UNSUPPORTED: Final = "neither DeepSpeed nor Megatron-LM has this combination"


def run_command(
    workload: Workload[Any], given: Mapping[str, Any], layout: Layout, precision: str, batch: int, per_host: int
) -> tuple[str | None, str | None]:
    """Return the command of `perfkit run` for a layout, and why there is none."""
    run, problem = _run_options(layout, precision, batch)
    if problem is not None:
        return None, problem
    try:
        config = RunConfig(**run)
        config.check_world(layout.ranks)
        check_parallelism(workload, config)
    except UsageError as error:
        return None, str(error)
    run |= {"ds_config": _FILE} if _has_file(layout) else {}
    flags = " ".join(_flag(name, value) for name, value in {**given, **run}.items())
    ranks = f" -n {layout.ranks}" if layout.ranks <= per_host and layout.ranks > 1 else ""
    launcher = f"mpiexec -n {layout.ranks} " if layout.ranks > per_host else ""
    return f"{_written(layout, precision)}{launcher}perfkit run {workload.name}{ranks} {flags}", None


def _run_options(layout: Layout, precision: str, batch: int) -> tuple[dict[str, Any], str | None]:
    """Return the options of the run, and why it does not have any."""
    options: dict[str, Any] = {"batch_size": batch}
    if layout.checkpointing == "selective":
        return {}, "`perfkit run` checkpoints whole layers"
    if layout.tiles > 1:
        return {}, "`perfkit run` has no tiled layers"
    if precision == "half":
        return {}, "`perfkit run` keeps the optimizer's state in float32"
    if precision in ("megatron", "fp8"):
        return {}, f"`perfkit run` has no --precision {precision}"
    if precision == "mixed":
        if layout.dp not in _STAGES or layout.mesh.keys() != {"dp"}:
            return {}, "`perfkit run` keeps parameters in 16 bits with --dp deepspeed only"
        options |= {"dp": "deepspeed", "zero": _STAGES[layout.dp], "precision": "bfloat16"}
    else:
        options |= {"mesh": layout.mesh_option, "dp": layout.dp}
        options |= {"precision": precision} if precision != "float32" else {}
    options |= {"sequence_parallel": True} if layout.sequence_parallel else {}
    options |= {"loss_parallel": True} if layout.loss_parallel else {}
    options |= {"micro_batches": layout.micro_batches} if layout.pp > 1 else {}
    options |= {"checkpoint_activations": True} if layout.checkpointing == "full" else {}
    return options, None


def _flag(name: str, value: Any) -> str:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {quote(str(value))}"


def _written(layout: Layout, precision: str) -> str:
    """Return the command that writes DeepSpeed's file; empty if `perfkit run` has options for all of it."""
    return f"{_echo(deepspeed_config(layout, precision))}; " if _has_file(layout) else ""


def _has_file(layout: Layout) -> bool:
    return layout.offload != "none" or layout.dp == "zero++"


def _echo(config: Mapping[str, Any]) -> str:
    return f"echo {quote(json.dumps(config))} > {_FILE}"


def deepspeed_config(layout: Layout, precision: str) -> dict[str, Any]:
    """Return what a layout sets in DeepSpeed's configuration."""
    zero: dict[str, Any] = {"stage": _STAGES[layout.dp]}
    where = {"device": "nvme", "nvme_path": "/local_nvme"} if layout.offload == "nvme" else {"device": "cpu"}
    if layout.offload != "none":
        zero["offload_optimizer"] = where
    if layout.offload in ("parameters", "nvme"):
        zero["offload_param"] = where
    if layout.dp == "zero++":
        zero |= {"zero_quantized_weights": True, "zero_hpz_partition_size": layout.hpz}
        zero |= {"zero_quantized_gradients": True}
    if precision in _AUTOCAST:
        return {"torch_autocast": {"enabled": True, "dtype": precision}, "zero_optimization": zero}
    return ({"bf16": {"enabled": True}} if precision == "mixed" else {}) | {"zero_optimization": zero}


def other_command(layout: Layout, precision: str, batch: int, per_host: int) -> tuple[str | None, str | None]:
    """Return the options of a layout in DeepSpeed or Megatron-LM, with its launcher; why neither has it."""
    hosts, each = -(-layout.ranks // per_host), min(layout.ranks, per_host)
    divides = layout.tp * layout.pp * layout.cp > 1
    is_16_bit = precision in ("megatron", "fp8")
    if layout.dp in _STAGES and not divides and layout.ep == 1 and precision != "half" and not is_16_bit:
        config = {"train_micro_batch_size_per_gpu": batch, **deepspeed_config(layout, precision)}
        launcher = f"deepspeed --num_nodes {hosts} --num_gpus {each}"
        return f"{_echo(config)}; {launcher} train.py {_trainer(layout, precision, batch)}", None
    if layout.dp in ("ddp", "zero1") and layout.ep == 1 and precision in ("mixed", "megatron", "fp8"):
        launcher = f"torchrun --nnodes {hosts} --nproc-per-node {each}"
        return f"{launcher} pretrain_gpt.py {_megatron(layout, precision, batch)}", None
    return None, _UNSUPPORTED


def _trainer(layout: Layout, precision: str, batch: int) -> str:
    """Return the options of a program with Hugging Face's TrainingArguments, and what it has to change in the model."""
    options: dict[str, Any] = {"deepspeed": _FILE, "per_device_train_batch_size": batch}
    options |= {"bf16": True} if precision in ("mixed", "bfloat16") else {}
    options |= {"fp16": True} if precision == "float16" else {}
    options |= {"gradient_checkpointing": True} if layout.checkpointing == "full" else {}
    # No option makes tiles.
    tiles = f"  # its MLPs of deepspeed.zero.TiledLinear(…, out_splits={layout.tiles})" if layout.tiles > 1 else ""
    return " ".join(f"--{name} {value}" for name, value in options.items()) + tiles


def _megatron(layout: Layout, precision: str, batch: int) -> str:
    """Return the options of Megatron-LM, which splits the loss wherever it splits layers."""
    options: dict[str, Any] = {"bf16": True}
    options |= {"fp8-format": "hybrid"} if precision == "fp8" else {}
    options |= {"tensor-model-parallel-size": layout.tp} if layout.tp > 1 else {}
    options |= {"pipeline-model-parallel-size": layout.pp} if layout.pp > 1 else {}
    options |= {"context-parallel-size": layout.cp} if layout.cp > 1 else {}
    options |= {"sequence-parallel": True} if layout.sequence_parallel else {}
    options |= {"use-distributed-optimizer": True} if layout.dp == "zero1" else {}
    options |= {"micro-batch-size": batch // layout.micro_batches, "global-batch-size": batch * layout.replicas}
    if layout.checkpointing == "full":
        options |= {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
    elif layout.checkpointing == "selective":
        options |= {"recompute-granularity": "selective"}
    return " ".join(_flag(name, value) for name, value in options.items())
