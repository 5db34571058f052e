"""Options of `perfkit run SCRIPT`: names, types, defaults, and which values are refused."""

from typing import Annotated

from msgspec import Meta, structs

from perfkit.errors import UsageError
from perfkit.record.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.record.script.steps.step_rule import StepRule
from perfkit.record.shared_options import SCHEDULE, TIMEOUT, CommandOptions
from perfkit.records.common import UNNAMED


class ScriptConfig(CommandOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `perfkit run SCRIPT`; validated on construction."""

    schedule: Annotated[str, Meta(description=f"{SCHEDULE}, counted from the end of the script's first step.")] = (
        DEFAULT_SCHEDULE
    )
    step_on: Annotated[
        str | None,
        Meta(
            description="What ends a step: an optimizer (its class, or the script's variable), backward, forward, "
            "forward:MODULE (its class), or perfkit.step, a call in the script [default: the first optimizer to step]."
        ),
    ] = None
    report: Annotated[bool, Meta(description="Print the summary of perfkit analyze at the end, on stderr.")] = True
    workload: Annotated[str, Meta(description="Name of the workload in reports [default: the script's name].")] = ""
    source: Annotated[str, Meta(description="Name of the input source in reports.")] = UNNAMED
    timeout: Annotated[
        str,
        Meta(description=f"{TIMEOUT}: at start-up, and while one writes a trace."),
    ] = "60s"

    def __post_init__(self) -> None:
        """Refuse invalid values.

        Raises:
            UsageError: An option has an invalid value.
        """
        for option in ("name", "workload", "source"):
            text = getattr(self, option) or ""
            if "/" in text or text.startswith("."):
                raise UsageError(f"--{option} {text}: must be a folder name, without '/' or a leading dot")
        self.check_command()
        self._refuse_unknown_waits()
        _ = self.step_rule

    def _refuse_unknown_waits(self) -> None:
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
        """What ends a step."""
        return StepRule.parse(self.step_on)
