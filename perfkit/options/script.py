"""Options of `perfkit run SCRIPT`: names, types, defaults, and which values are refused."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, structs

from perfkit.base.parsing import check_pattern
from perfkit.errors import UsageError
from perfkit.options.help_groups import COMMON, RANKS, RECORDING
from perfkit.options.recording import EXTENT, LOCATES, SCHEDULE, SUPERVISES, TIMEOUT, CommandOptions
from perfkit.options.schedule import SCRIPT_SCHEDULE, Schedule
from perfkit.options.trace_ranks import refuse_stages
from perfkit.records.common import UNNAMED

RuleKind = Literal["optimizer", "forward", "backward", "marker"]

MARKER: Final = "perfkit.step"
RANKS_FIELD: Final = "{ranks}"
"""What stands for the number of ranks in the arguments of a script."""


class StepRule(Struct, frozen=True, kw_only=True):
    """The event that ends a step."""

    kind: RuleKind
    name: str | None = None
    """Class or variable of the optimizer, or class of the module; None is any."""

    @classmethod
    def parse(cls, text: str | None) -> "StepRule":
        """Parse the value of `--step-on`; None is the first optimizer that steps.

        Raises:
            UsageError: The name of the module is empty, or the name of an optimizer is not an identifier.
        """
        word, colon, module = (text or "").partition(":")
        if text is None:
            return cls(kind="optimizer")
        if text in (MARKER, f"{MARKER}()"):
            return cls(kind="marker")
        if text == "backward":
            return cls(kind="backward")
        if word == "forward" and bool(colon) == bool(module):
            return cls(kind="forward", name=module or None)
        if not text.isidentifier():
            raise UsageError(
                f"--step-on {text}: choose the class or variable of an optimizer, forward, forward:MODULE (a class), "
                f"backward or {MARKER}"
            )
        return cls(kind="optimizer", name=text)


class ScriptConfig(CommandOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `perfkit run SCRIPT`; validated on construction."""

    schedule: Annotated[
        str, RECORDING, COMMON, Meta(description=f"{SCHEDULE}, counted from the end of the script's first step.")
    ] = SCRIPT_SCHEDULE
    step_on: Annotated[
        str | None,
        COMMON,
        Meta(
            description="What ends a step: an optimizer (its class, or the script's variable), backward, forward, "
            "forward:MODULE (its class), or perfkit.step, a call in the script [default: the first optimizer to step]."
        ),
    ] = None
    data_marker: Annotated[
        str | None,
        SUPERVISES,
        Meta(
            description="Regular expression: functions of the script, and annotations, that load data, such as "
            "get_batch, besides torch's DataLoader."
        ),
    ] = None
    samples_per_step: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        EXTENT,
        Meta(
            description="Samples that a rank trains on in a step, for samples/s and scaling [default: inferred from "
            "the DataLoader, else from the inputs of the model]."
        ),
    ] = None
    batch_arg: Annotated[
        str | None,
        EXTENT,
        Meta(
            description="The script's argument with its samples per rank, such as --batch_size: runs that differ in it "
            "are compared as strong scaling."
        ),
    ] = None
    fill_ranks: Annotated[
        bool, EXTENT, Meta(description="Replace {ranks} in the script's arguments by the number of ranks.")
    ] = False
    check_replicas: Annotated[
        bool,
        SUPERVISES,
        Meta(
            description="Compare the ranks' first batches, by a hash, and some of their parameters after two updates "
            "(docs/record/scripts.md)."
        ),
    ] = True
    report: Annotated[
        bool, COMMON, LOCATES, Meta(description="Print the summary of perfkit analyze at the end, on stderr.")
    ] = True
    workload: Annotated[str, Meta(description="Name of the workload in reports [default: the script's name].")] = ""
    source: Annotated[str, Meta(description="Name of the input source in reports.")] = UNNAMED
    timeout: Annotated[
        str,
        RANKS,
        SUPERVISES,
        Meta(description=f"{TIMEOUT}: at start-up, and while one writes a trace."),
    ] = "60s"

    def __post_init__(self) -> None:
        for option in ("name", "workload", "source"):
            text = getattr(self, option) or ""
            if "/" in text or text.startswith("."):
                raise UsageError(f"--{option} {text}: must be a folder name, without '/' or a leading dot")
        self.check_command()
        refuse_stages(self.trace_ranks)
        _ = self.step_rule
        check_pattern(self.data_marker or "", "--data-marker")
        for condition in self.capture_rules.conditions:
            if condition.kind == "loader" and not self.monitor:
                raise UsageError(
                    f"--capture-when '{condition.text}' needs --monitor, which times how long a script waits for data"
                )

    @property
    def plan(self) -> Schedule | None:
        """Which steps are recorded, counted from the script's first step, step 0; None: no step is."""
        plan = super().plan
        return None if plan is None else structs.replace(plan, skip_first=plan.skip_first + 1)

    @property
    def step_rule(self) -> StepRule:
        return StepRule.parse(self.step_on)
