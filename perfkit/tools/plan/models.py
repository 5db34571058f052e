"""The model that a plan is for: the GPT workload by its options, or one that is given by its size."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.tools.plan.presets import GPT_PRESETS, NAMES, assumed_sizes, named_shape
from perfkit.tools.plan.shape import Shape, counted_shape, gpt_shape
from perfkit_workloads.base import Workload
from perfkit_workloads.gpt import GPT, GPTConfig

MOST_PARAMETERS: Final = 1e15
SIZE_OPTIONS: Final = ("layers", "width", "heads", "block", "vocab_size", "bias", "dropout", "experts", "top_k")
"""The options of gpt that change the sizes of its tensors."""


class Model(Struct, frozen=True, kw_only=True):
    """What to plan for."""

    shape: Shape
    batch_size: int
    """Samples per rank, if none are given."""
    workload: Workload[Any] | None = None
    options: Mapping[str, Any] = {}
    """Of the workload, that differ from its defaults."""


def preset_names() -> list[str]:
    """Return every preset: those of `perfkit run gpt`, and those that are only planned."""
    return [*GPT.PRESETS, *NAMES]


def preset_model(name: str, given: Mapping[str, Any]) -> Model:
    """Return the model of a preset; of a GPT, options replace the preset's.

    Raises:
        UsageError: There is no such preset, it has its own sizes, or sizes do not go together.
    """
    if name in GPT.PRESETS or name in GPT_PRESETS:
        return gpt_model(name, given)
    if name not in NAMES:
        raise UsageError(f"--preset {name}: choose from {', '.join(preset_names())}")
    allowed = {"block"}
    if given.keys() - allowed:
        raise UsageError(
            f"--preset {name} has its own sizes: give only --sequence, or describe a GPT by all of its sizes"
        )
    shape = named_shape(name)
    return Model(shape=replace(shape, sequence=given.get("block", shape.sequence)), batch_size=1)


def gpt_model(preset: str | None, given: Mapping[str, Any]) -> Model:
    """Return the GPT of a preset, with options that replace the preset's.

    Raises:
        UsageError: Sizes do not go together.
    """
    name = preset or GPT.DEFAULT_PRESET
    is_run = name in GPT.PRESETS
    base = GPT.PRESETS[name] if is_run else {**GPT_PRESETS[name], "batch_size": 1}
    values = {**base, **given}
    batch = values.pop("batch_size", 32)
    assert isinstance(batch, int)  # noqa: S101  # presets have whole numbers
    fields = {field: value for field, value in values.items() if field in GPTConfig.__struct_fields__}
    config = _config(fields)
    shape = gpt_shape(
        name=f"gpt ({name})" if not given else "gpt",
        vocabulary=config.vocab_size,
        **{option: getattr(config, option) for option in SIZE_OPTIONS if option != "vocab_size"},
    )
    options = {"preset": name, **given} if is_run else fields
    return Model(shape=shape, batch_size=batch, workload=GPT(config), options=options)


def _config(fields: Mapping[str, Any]) -> GPTConfig:
    try:
        return GPTConfig(**fields)
    except ValueError as error:
        raise UsageError(str(error)) from error


def counted_model(parameters: float, given: Mapping[str, Any]) -> Model:
    """Return a model of a number of parameters; without sizes, those of a GPT are assumed, which `perfkit run` trains.

    Raises:
        UsageError: Sizes are missing or contradict the number of parameters.
    """
    if "bias" in given:
        raise UsageError("--bias and --no-bias are for gpt: with --params the number of parameters is given")
    if {"experts", "top_k"} & given.keys():
        raise UsageError("--experts and --top-k are for gpt: with --params the number of parameters is given")
    if not 1 <= parameters <= MOST_PARAMETERS:
        raise UsageError(f"--params {parameters:g}: choose from 1 to {MOST_PARAMETERS:g}")
    is_assumed = not given.keys() & {"layers", "width"}
    sizes = {**(assumed_sizes(parameters) if is_assumed else {}), **given}
    shape = counted_shape(
        parameters,
        sequence=sizes.get("block"),
        vocabulary=sizes.get("vocab_size"),
        is_assumed=is_assumed,
        **{option: sizes.get(option) for option in ("layers", "width", "heads")},
    )
    workload = GPT(_config(sizes)) if is_assumed else None
    return Model(shape=shape, batch_size=1, workload=workload, options=sizes if is_assumed else {})
