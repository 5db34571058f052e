"""What ends a step of a script: `--step-on`."""

from typing import Final, Literal

from msgspec import Struct

from perfkit.errors import UsageError

RuleKind = Literal["optimizer", "forward", "backward", "marker"]

MARKER: Final = "perfkit.step"


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
