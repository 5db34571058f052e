"""Read a user's rules for kernel names from TOML (`--kernel-rules FILE`).

::

    [[rule]]
    pattern = "acme_exchange"        # regular expression for the start of the name
    kind = "communication"           # communication, compute, memcpy or wait
    source = "our own all-to-all"    # optional

    [[rule]]
    pattern = "acme::fused_mlp"
    class = "gemm"                   # gemm, attention, …: of a compute kernel, so that no kind is needed
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from perfkit.base.regular_file import read_toml
from perfkit.errors import UsageError
from perfkit.records.kernel_rules import GIVEN_CLASSES, KERNEL_KINDS, KernelRule

KernelRules = str | Path | Sequence[KernelRule] | None
"""Rules, or the file that contains them."""

_OPTION: Final = "--kernel-rules"
_KEYS: Final = ("pattern", "kind", "class", "source")


def load_kernel_rules(rules: KernelRules) -> tuple[KernelRule, ...]:
    """Return rules, from their file if a path is given, after checking them.

    Raises:
        UsageError: The file cannot be read or is not TOML, or a rule is invalid.
    """
    if rules is None:
        return ()
    if not isinstance(rules, str | Path):
        return tuple(_checked(rule, f"kernel rule {number}") for number, rule in enumerate(rules, 1))
    return tuple(_read(Path(rules)))


def _read(path: Path) -> Iterator[KernelRule]:
    where, table = f"{_OPTION} {path}", read_toml(path, _OPTION)
    rows = table.get("rule")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{where}: no rule: each begins with a line [[rule]]")
    if others := sorted(table.keys() - {"rule"}):
        raise UsageError(f"{where}: {others[0]} is not part of a rule: put it below a line [[rule]]")
    for number, row in enumerate(rows, 1):
        yield _checked(_rule(row, f"{where}: rule {number}"), f"{where}: rule {number}")


def _rule(row: dict[str, Any], where: str) -> KernelRule:
    for key, value in row.items():
        if key not in _KEYS:
            raise UsageError(f"{where}: unknown key {key}: a rule has {', '.join(_KEYS)}")
        if not isinstance(value, str):
            raise UsageError(f"{where}: {key} is not a text: {value!r}")
    if "pattern" not in row:
        raise UsageError(f"{where}: pattern is missing")
    if "kind" not in row and "class" not in row:
        raise UsageError(f"{where}: kind or class is missing")
    return KernelRule(row["pattern"], row.get("kind", "compute"), row.get("source", ""), row.get("class"))


def _checked(rule: KernelRule, where: str) -> KernelRule:
    if rule.kind not in KERNEL_KINDS:
        raise UsageError(f"{where}: kind {rule.kind!r} is none of {', '.join(KERNEL_KINDS)}")
    if rule.kernel_class is not None and rule.kernel_class not in GIVEN_CLASSES:
        raise UsageError(f"{where}: class {rule.kernel_class!r} is none of {', '.join(GIVEN_CLASSES)}")
    if rule.kernel_class is not None and rule.kind != "compute":
        raise UsageError(
            f"{where}: class {rule.kernel_class!r} is for kernels that compute, not for kind {rule.kind!r}"
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # of what a later Python may read otherwise
            matches_all = re.match(rule.pattern, "") is not None
    except (re.error, OverflowError, RecursionError) as error:  # also: a count too large, groups nested too deeply
        raise UsageError(f"{where}: pattern {rule.pattern!r} is not a regular expression: {error}") from error
    if matches_all:
        raise UsageError(f"{where}: pattern {rule.pattern!r} matches every name")
    return rule
