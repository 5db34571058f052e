"""DeepSpeed's configuration: a user's JSON file, completed from the options. Does not import torch or deepspeed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perfkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perfkit.options.run import Precision, RunConfig

AUTO: Final = "auto"
"""What Hugging Face's files have where a value is known elsewhere, here from the options."""
REPLACED: Final = ("optimizer", "scheduler")
"""Sections that replace what the workload makes."""

_MOST_BYTES: Final = 1 << 20
_DTYPES: Final[Mapping[str, Precision]] = {
    "bfloat16": "bfloat16",
    "torch.bfloat16": "bfloat16",
    "float16": "float16",
    "torch.float16": "float16",
}
_OWN_LOOP: Final = {
    "autotuning": "it starts its own runs",
    "elasticity": "it changes the batch size",
    "hybrid_engine": "it needs its own loop",
}
"""Sections that do not work with perfkit's training loop where they are enabled, and why."""

Values = dict[str, Any]


def read_config(path: str) -> Values:
    """Return the content of a DeepSpeed configuration file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--ds-config {path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"--ds-config {path}: more than {_MOST_BYTES} bytes, which is no configuration")
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--ds-config {path}: not a JSON object ({error})") from error


def find_problems(run: RunConfig) -> Iterator[str]:
    """Yield what does not work with `--dp deepspeed`, and where the file contradicts an option."""
    if run.compile:
        yield "--compile does not work with --dp deepspeed: remove one of them"
    if run.ds_config is None:
        return
    values = read_config(run.ds_config)
    for problem in (*_contradictions(values, run), *_unsupported(values), *_automatic(values)):
        yield f"--ds-config {run.ds_config}: {problem}"


def find_start_problems(run: RunConfig, replicas: int, device_type: str) -> Iterator[str]:
    """Yield what the file contains that does not fit this many ranks with different samples, or the device."""
    values = {} if run.ds_config is None else read_config(run.ds_config)
    batch = run.batch_size * run.accumulate * replicas
    if values.get("train_batch_size", AUTO) not in (AUTO, batch):
        yield (
            f"--ds-config {run.ds_config}: train_batch_size {values['train_batch_size']} is not --batch-size "
            f"{run.batch_size} x --accumulate {run.accumulate} x {replicas} ranks, which is {batch}"
        )
    for section in ("offload_optimizer", "offload_param"):
        if device_type == "cpu" and offload_device(values, section) is not None:
            yield (
                f"--ds-config {run.ds_config}: {section}: ranks that compute on the CPU have nothing to offload: "
                "remove it"
            )


def make_config(run: RunConfig, clip_norm: float | None) -> Values:
    """Return DeepSpeed's configuration of a run: the file's values; from the options what it leaves open."""
    values = {} if run.ds_config is None else read_config(run.ds_config)
    own = _from_options(run, clip_norm, autocast=_enabled(values, "torch_autocast"))
    open_sections = {name for name in REPLACED if _values_of(values, name) == {AUTO}}
    given = {name: _without_auto(value) for name, value in values.items() if name not in open_sections}
    return {**own, **{name: _join(own.get(name), value) for name, value in given.items() if value != AUTO}}


def offload_device(config: Values, section: str) -> str | None:
    """Return where `offload_optimizer` or `offload_param` moves to: cpu or nvme; None if nowhere."""
    device = _section(_section(config, "zero_optimization"), section).get("device")
    return device if device in {"cpu", "nvme"} else None


def compiled_part(config: Values) -> str | None:
    """Return what DeepSpeed compiles when it starts, as far as known; None if nothing."""
    if offload_device(config, "offload_optimizer") is not None:
        return "CPUAdam, for offload_optimizer"
    optimizer = _section(config, "optimizer")
    is_adam = str(optimizer.get("type", "")).lower() in {"adam", "adamw"}
    return "FusedAdam, for optimizer" if is_adam and not _section(optimizer, "params").get("torch_adam") else None


def _from_options(run: RunConfig, clip_norm: float | None, *, autocast: bool) -> Values:
    return {
        "train_micro_batch_size_per_gpu": run.batch_size,
        "gradient_accumulation_steps": run.accumulate,
        "gradient_clipping": clip_norm or 0.0,
        "zero_optimization": {"stage": run.zero or 0},
        "bf16": {"enabled": run.precision == "bfloat16" and not autocast},
        "fp16": {"enabled": run.precision == "float16" and not autocast},
    }


def _contradictions(values: Values, run: RunConfig) -> Iterator[str]:
    """Yield where an option has another value than the file; both are recorded, so they must be the same."""
    for name, option, own in (
        ("train_micro_batch_size_per_gpu", "--batch-size", run.batch_size),
        ("gradient_accumulation_steps", "--accumulate", run.accumulate),
    ):
        if values.get(name, AUTO) not in (AUTO, own):
            yield f"{name} {values[name]} contradicts {option} {own}: add {option} {values[name]}"
    stage = _section(values, "zero_optimization").get("stage", AUTO)
    if stage not in (AUTO, 0, 1, 2, 3):
        yield f"zero_optimization.stage {stage}: choose from 0, 1, 2, 3"
    elif run.zero is not None and stage not in (AUTO, run.zero):
        yield f"zero_optimization.stage {stage} contradicts --zero {run.zero}: remove --zero"
    precision = _precision(values)
    if precision is not None and precision != run.precision:
        yield f"it computes in {precision}, which contradicts --precision {run.precision}: add --precision {precision}"


def _precision(values: Values) -> Precision | None:
    """Return the precision that a file sets; None if it leaves that open."""
    if _enabled(values, "torch_autocast"):
        return _DTYPES.get(str(_section(values, "torch_autocast").get("dtype", "bfloat16")))
    if _enabled(values, "bf16"):
        return "bfloat16"
    return "float16" if _enabled(values, "fp16") else None


def _unsupported(values: Values) -> Iterator[str]:
    for name, reason in _OWN_LOOP.items():
        if _enabled(values, name):
            yield f"{name} does not work with `perfkit run`: {reason}"
    for name in ("tensor_parallel", "sequence_parallel_size"):
        if name in values:
            yield f"{name}: DeepSpeed's ranks train on different samples here: remove it"
    if values.get("managed_gradient_accumulation", True) is not True:
        yield "managed_gradient_accumulation false does not work with `perfkit run`: remove it"


def _automatic(values: Values) -> Iterator[str]:
    """Yield where 'auto' has no meaning."""
    known = {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"}
    for name, value in values.items():
        if name in known | {"zero_optimization", "bf16", "fp16"}:
            continue
        found = _values_of(values, name)
        if AUTO in found and not (name in REPLACED and found == {AUTO}):
            beside = " beside other values" if name in REPLACED and value != AUTO else ""
            yield f"{name} contains 'auto'{beside}, which perfkit has no value for: write the values"


def _values_of(values: Values, name: str) -> set[Any]:
    """Return the values of a section, or of its `params` if it is an optimizer or a scheduler."""
    section = _section(values, name)
    if name in REPLACED and section:
        section = _section(section, "params")
    found = [values.get(name)] if not section else [*section.values()]
    return {value for value in found if isinstance(value, str | int | float | None)}


def _section(values: Values, name: str) -> Values:
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _enabled(values: Values, name: str) -> bool:
    return _section(values, name).get("enabled") is True


def _without_auto(value: Any) -> Any:
    return {key: own for key, own in value.items() if own != AUTO} if isinstance(value, dict) else value


def _join(own: Any, given: Any) -> Any:
    return {**own, **given} if isinstance(own, dict) and isinstance(given, dict) else given
