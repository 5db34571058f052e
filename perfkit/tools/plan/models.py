"""The model that a plan is for: the GPT workload by its options, or one that is given by its size."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from perfkit.errors import UsageError
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


def gpt_model(preset: str | None, given: Mapping[str, Any]) -> Model:
    """Return the GPT of a preset, with options that replace the preset's.

    Raises:
        UsageError: There is no such preset, or sizes do not go together.
    """
    name = preset or GPT.DEFAULT_PRESET
    if name not in GPT.PRESETS:
        raise UsageError(f"--preset {name}: choose from {', '.join(GPT.PRESETS)}")
    values = {**GPT.PRESETS[name], **given}
    batch = values.pop("batch_size", 32)
    assert isinstance(batch, int)  # noqa: S101  # presets have whole numbers
    fields = {field: value for field, value in values.items() if field in GPTConfig.__struct_fields__}
    try:
        config = GPTConfig(**fields)
    except ValueError as error:
        raise UsageError(str(error)) from error
    shape = gpt_shape(
        name=f"gpt ({name})" if not given else "gpt",
        vocabulary=config.vocab_size,
        **{option: getattr(config, option) for option in SIZE_OPTIONS if option != "vocab_size"},
    )
    return Model(shape=shape, batch_size=batch, workload=GPT(config), options={"preset": name, **given})


def counted_model(parameters: float, given: Mapping[str, Any]) -> Model:
    """Return a model of a number of parameters; sizes that are not given stay unknown.

    Raises:
        UsageError: Sizes are missing or contradict the number of parameters.
    """
    if "bias" in given:
        raise UsageError("--bias and --no-bias are for gpt: with --params the number of parameters is given")
    if {"experts", "top_k"} & given.keys():
        raise UsageError("--experts and --top-k are for gpt: with --params the number of parameters is given")
    if not 1 <= parameters <= MOST_PARAMETERS:
        raise UsageError(f"--params {parameters:g}: choose from 1 to {MOST_PARAMETERS:g}")
    shape = counted_shape(
        parameters,
        sequence=given.get("block"),
        vocabulary=given.get("vocab_size"),
        **{option: given.get(option) for option in ("layers", "width", "heads")},
    )
    return Model(shape=shape, batch_size=1)
