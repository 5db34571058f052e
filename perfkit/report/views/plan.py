"""The document of a plan."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, left_out, rate, size
from perfkit.records.plan import Plan, PlanCheck, PlannedLayout
from perfkit.report.content.document import Document, KeyValue, Section
from perfkit.tables.labels import counted
from perfkit.tables.specification import Cell, Field, Table, Tone, make_table, name, number, words

TIME_ERROR: Final = "measured steps took 0.6 to 2.8 times as long"
"""The range of `docs/plan.md`, under Accuracy: published steps of large models, and runs on two cores."""


def document(plan: Plan, top: int) -> Document:
    """Return the content of `plan`, with the data-parallel layouts and at most `top` others."""
    places = _shown(plan, top)
    terms = [_terms(plan, place) for place in plan.explained]
    remark = "bytes: largest over ranks; times: means over ranks and recorded steps; step: of those without profiler"
    found = [
        make_table("Prediction and measurement", plan.checks, _CHECKS, f"{remark} if there are any"),
        _memory(plan, places),
        _outside(plan, places),
        _traced(plan, places),
        _times(plan, places),
        _traffic(plan),
        *terms,
    ]
    tables = [table for table in found if table]
    best = None if plan.best is None else plan.layouts[plan.best]
    headline, tone = _headline(plan, best)
    section = Section(_title(plan), headline, tone, key_values=_facts(plan, best), tables=tables)
    return Document("perfkit plan", [section], [f"Assumed: {line}." for line in plan.assumptions])


def _headline(plan: Plan, best: PlannedLayout | None) -> tuple[str, Tone]:
    if plan.checks:
        return f"Checked against a run: {_label(plan.layouts[0])}.", "info"
    return (f"Best: {best.described}.", "good") if best else ("No layout is selected.", "warning")


def _title(plan: Plan) -> str:
    count = f"{plan.model.parameters:,} parameters"
    # A model that is known by its size only is named after it.
    return escape_unprintable(count if plan.model.name.endswith(" parameters") else f"{plan.model.name}, {count}")


def _facts(plan: Plan, best: PlannedLayout | None) -> list[KeyValue]:
    where = "" if plan.device is None else f" × {plan.device.name}"
    shape = (
        [KeyValue("shape", f"assumed: {_sizes(plan)} (--layers, --width, --sequence)")] if plan.model.is_assumed else []
    )
    lines = [
        *shape,
        KeyValue("ranks", escape_unprintable(f"{plan.ranks:,}{where}; {plan.precision}")),
        KeyValue("reason", escape_unprintable(plan.reason)),
    ]
    if best is not None and best.command is not None:
        lines.append(KeyValue("command", escape_unprintable(best.command), "strong"))
    if best is not None and best.step is not None:
        step = best.step
        lines.append(
            KeyValue(
                "step",
                f"{duration(step.step_ns)}, {rate(step.tokens_per_s, _unit(plan))}, MFU {format_percent(step.mfu)}; "
                f"{TIME_ERROR}",
            )
        )
        if step.device_hours is not None:
            energy = "" if step.energy_kwh is None else f", at most {step.energy_kwh:,.4g} kWh of the devices"
            lines.append(
                KeyValue("cost", f"{step.device_hours:,.4g} device-hours for {plan.tokens:,.4g} {_unit(plan)}{energy}")
            )
    return [*lines, *(KeyValue("decision", escape_unprintable(line)) for line in plan.decision)]


def _sizes(plan: Plan) -> str:
    model = plan.model
    tokens = f", {model.sequence:,} tokens per sample" if model.sequence else ""
    vocabulary = f", vocabulary of {model.vocabulary:,}" if model.vocabulary else ""
    heads = f", {counted(model.heads)} heads" if model.heads else ""
    return f"{counted(model.layers or 0)} layers of width {counted(model.width or 0)}{heads}{tokens}{vocabulary}"


def _unit(plan: Plan) -> str:
    return "tokens" if plan.model.sequence else "samples"


def _shown(plan: Plan, top: int) -> list[int]:
    """Return the places of layouts to show: all that only share data, then the fastest, or smallest, others."""
    plain = [place for place, one in enumerate(plan.layouts) if not {"tp", "pp", "cp", "ep"} & one.mesh.keys()]
    others = [place for place in range(len(plan.layouts)) if place not in plain]
    others.sort(key=lambda place: _rank(plan.layouts[place]))
    chosen = sorted(others[:top], key=lambda place: place)
    extra = [place for place in (plan.best, *plan.explained) if place is not None and place not in {*plain, *chosen}]
    return [*plain, *sorted({*chosen, *extra})]


def _rank(one: PlannedLayout) -> tuple[bool, bool, float]:
    return (one.fits is False, one.refused is not None, one.step.step_ns if one.step else one.memory.needed_bytes)


def _tone(plan: Plan, place: int) -> Tone:
    if place == plan.best:
        return "good"
    return "faint" if plan.layouts[place].fits is False else "plain"


_CHECKS: Final = (
    words("term", lambda check: check.name),
    number("predicted", lambda check: _amount(check.predicted, check.unit)),
    number("measured", lambda check: None if check.measured is None else _amount(check.measured, check.unit)),
    number("difference", lambda check: _difference(check)),
)


def _amount(value: float, unit: str) -> str:
    if unit == "1":
        return f"{value:,.4g}"
    return size(round(value)) if unit == "B" else duration(value)


def _difference(check: PlanCheck) -> str:
    if check.measured is None or not check.measured:
        return MISSING
    if check.is_given:
        return "from the run"
    ratio = check.predicted / check.measured - 1
    return "exact" if check.predicted == check.measured else f"{100 * ratio:+.3g} %"


def _layout(plan: Plan) -> Field:
    """Return the column with the names of layouts, of whose indices in the plan the records are."""
    return name("layout", lambda index: _label(plan.layouts[index]), tone=lambda index: _tone(plan, index))


def _needed(plan: Plan, title: str, key: str) -> Field:
    return number(title, lambda index: getattr(plan.layouts[index].memory, f"{key}_bytes"), size)


def _memory(plan: Plan, places: Sequence[int]) -> Table | None:
    shown = [plan.layouts[index] for index in places]
    has_activations = any(one.memory.activations_bytes is not None for one in shown)
    rest = {"A": "activations", "B": "buffers"} if has_activations else {"P+G+O": "state"}
    names = {"P": "parameters", "G": "gradients", "O": "optimizer", **rest}
    columns = (
        _layout(plan),
        _needed(plan, "needed", "needed"),
        number("fits", lambda index: _fit(plan.layouts[index])),
        *(_needed(plan, title, key) for title, key in names.items()),
    )
    return make_table("Memory per rank (largest over ranks)", places, columns, _remark(plan, shown))


def _outside(plan: Plan, places: Sequence[int]) -> Table | None:
    """Return what a host needs where state is offloaded."""
    own = [index for index in places if plan.layouts[index].offload != "none"]
    columns = (
        _layout(plan),
        number("host memory", lambda index: plan.layouts[index].memory.host_bytes or None, size),
        number("NVMe", lambda index: plan.layouts[index].memory.nvme_bytes or None, size),
        number("fits", lambda index: _fit_outside(plan, plan.layouts[index])),
    )
    return make_table(
        "Offloaded, per host", own, columns, "as DeepSpeed estimates it; fits: as far as the cluster is known"
    )


def _fit_outside(plan: Plan, one: PlannedLayout) -> Cell:
    device, memory = plan.device, one.memory
    limit = None if device is None else device.nvme_bytes if memory.nvme_bytes else device.host_memory_bytes
    over = (memory.nvme_bytes or memory.host_bytes) - (limit or 0)
    if limit is None:
        return Cell(MISSING)
    return Cell(f"+{size(over)}", tone="error") if over > 0 else Cell("yes")


def _remark(plan: Plan, shown: Sequence[PlannedLayout]) -> str:
    lines = ["P, G, O, A, B: parameters, gradients, optimizer state, activations and buffers, each at its own peak"]
    lines.append("needed: peak of their sum, plus allocator overhead")
    if any(one.fits is False for one in shown):
        lines.append("fits: + bytes over the device's memory")
    refused = {one.refused for one in shown if one.refused is not None and one.fits is not False}
    lines += [f"*: not supported by `perfkit run`: {escape_unprintable(reason)}" for reason in sorted(refused)]
    left = len(plan.layouts) - len(shown)
    return "; ".join([*lines, *([f"{left_out(left, 'layout')}: use --top N"] if left else [])])


def _label(one: PlannedLayout) -> str:
    """Return a layout in the words of `perfkit run`; hybrid sharding as groups x ranks of a group."""
    mesh = ",".join(f"{key}={count}" for key, count in one.mesh.items())
    if one.dp == "hsdp":
        mesh = f"{one.mesh['replicate']}x{one.mesh['shard']}"
    kept = "" if one.checkpointing == "none" else f" {one.checkpointing}"
    splits = [
        split for split, is_split in (("sequence", one.sequence_parallel), ("loss", one.loss_parallel)) if is_split
    ]
    outside = {"none": [], "optimizer": ["O in host"], "parameters": ["all in host"], "nvme": ["all on NVMe"]}[
        one.offload
    ]
    tiles = [f"{one.tiles} tiles"] if one.tiles > 1 else []
    return ", ".join([f"{one.dp} {mesh}", *splits, *outside, *tiles]) + kept


def _traced(plan: Plan, places: Sequence[int]) -> Table | None:
    """Return the traced peaks beside those of the formulas; None where formulas know none."""
    traced = {index: one for index in places if (one := plan.layouts[index].traced) and one.formula_peak_bytes}

    def difference(index: int) -> str:
        one = traced[index]
        return f"{100 * (one.peak_bytes / (one.formula_peak_bytes or 1) - 1):+.1f} %"

    columns = (
        _layout(plan),
        number("by formulas", lambda index: traced[index].formula_peak_bytes, size),
        number("traced", lambda index: traced[index].peak_bytes, size),
        number("difference", difference),
    )
    remark = "; ".join(sorted({one.note for one in traced.values() if one.note}))
    return make_table("Traced peaks", list(traced), columns, remark)


def _fit(one: PlannedLayout) -> Cell:
    if one.fits is False and one.short_of == "device":
        return Cell(f"+{size(one.over_bytes)}", tone="error")
    if one.fits is False:
        return Cell("not the " + ("host" if one.short_of == "host" else "NVMe"), tone="error")
    return Cell(MISSING if one.fits is None else "yes" + ("*" if one.refused is not None else ""))


def _times(plan: Plan, places: Sequence[int]) -> Table | None:
    steps = {index: step for index in places if (step := plan.layouts[index].step)}

    def of_step(title: str, key: str) -> Field:
        return number(title, lambda index: getattr(steps[index], f"{key}_ns"), duration)

    columns = (
        _layout(plan),
        number("compute", lambda index: steps[index].compute_ns + steps[index].recompute_ns, duration),
        *(of_step(key, key) for key in ("exposed", "bubble", "optimizer", "step")),
        number(f"{_unit(plan)}/s", lambda index: steps[index].tokens_per_s, _per_s),
        number("MFU", lambda index: steps[index].mfu, format_percent),
    )
    remark = f"{TIME_ERROR}; compute: including recomputation; exposed: communication that does not overlap"
    return make_table("Predicted step time", list(steps), columns, remark)


def _per_s(rate: float) -> str:
    return f"{rate:,.4g}" if rate < 1000 else f"{rate:,.0f}"


def _traffic(plan: Plan) -> Table | None:
    """Return the traffic of the best layout, or of the first."""
    one = plan.layouts[plan.best or 0]
    return make_table(f"Communication per rank and step: {one.described}", one.traffic, _TRAFFIC)


_TRAFFIC: Final = (
    number("dimension", lambda row: row.dimension),
    number("operator", lambda row: row.operator),
    number("ranks", lambda row: row.group_size, counted),
    number("messages", lambda row: row.messages, counted),
    number("message bytes", lambda row: row.bytes, size),
    number("sent", lambda row: row.sent_bytes, size),
    number("time", lambda row: row.time_ns, duration),
    number("exposed", lambda row: row.exposed_ns, duration),
)
_TERMS: Final = (
    number("part", lambda term: term.part),
    words("term", lambda term: term.name),
    number("value", lambda term: size(term.value) if term.unit == "B" else duration(term.value)),
    words("formula", lambda term: term.formula),
    words("source", lambda term: term.source),
)


def _terms(plan: Plan, place: int) -> Table | None:
    one = plan.layouts[place]
    return make_table(f"Terms: {one.described}", one.terms, _TERMS, f"memory peaks at: {one.memory.peak_at}")
