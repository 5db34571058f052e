"""The document of a plan."""

from collections.abc import Sequence

from perfkit.report.content.document import Cell, Column, Document, KeyValue, Section, Table, Tone
from perfkit.schema.plan import Plan, PlanCheck, PlannedLayout, PlanTerm
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, left_out, rate, size

_TITLES = {"none": "", "full": "full", "selective": "selective"}


def document(plan: Plan, top: int) -> Document:
    """Return the content of `plan`, with the data-parallel layouts and at most `top` others."""
    places = _shown(plan, top)
    terms = [_terms(plan, place) for place in plan.explained]
    tables = [
        *_checks(plan),
        _memory(plan, places),
        *_traced(plan, places),
        *_times(plan, places),
        *_traffic(plan),
        *terms,
    ]
    best = None if plan.best is None else plan.layouts[plan.best]
    headline, tone = _headline(plan, best)
    section = Section(_title(plan), headline, tone, [], _facts(plan, best), tables, [])
    return Document("perfkit plan", [], [section], [f"Assumed: {line}." for line in plan.assumptions])


def _headline(plan: Plan, best: PlannedLayout | None) -> tuple[str, Tone]:
    if plan.checks:
        return f"Checked against a run: {_label(plan.layouts[0])}.", "info"
    return (f"Best: {_name(best)}.", "good") if best else ("No layout is selected.", "warning")


def _title(plan: Plan) -> str:
    count = f"{plan.model.parameters:,} parameters"
    # A model that is known by its size only is named after it.
    return escape_unprintable(count if plan.model.name.endswith(" parameters") else f"{plan.model.name}, {count}")


def _facts(plan: Plan, best: PlannedLayout | None) -> list[KeyValue]:
    where = "" if plan.device is None else f" × {plan.device.name}"
    lines = [
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
                f"{duration(step.step_ns)}, {rate(step.tokens_per_s, _unit(plan))}, MFU {format_percent(step.mfu)}",
            )
        )
        if step.device_hours is not None:
            energy = "" if step.energy_kwh is None else f", at most {step.energy_kwh:,.4g} kWh of the devices"
            lines.append(
                KeyValue("cost", f"{step.device_hours:,.4g} device-hours for {plan.tokens:,.4g} {_unit(plan)}{energy}")
            )
    return [*lines, *(KeyValue("decision", escape_unprintable(line)) for line in plan.decision)]


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


def _name(one: PlannedLayout) -> str:
    return one.name + (f", {_TITLES[one.checkpointing]} checkpointing" if _TITLES[one.checkpointing] else "")


def _tone(plan: Plan, place: int) -> Tone:
    if place == plan.best:
        return "good"
    return "faint" if plan.layouts[place].fits is False else "plain"


def _checks(plan: Plan) -> list[Table]:
    if not plan.checks:
        return []
    rows = [
        (
            Cell(check.name),
            Cell(_amount(check.predicted, check.unit)),
            Cell(MISSING if check.measured is None else _amount(check.measured, check.unit)),
            Cell(_difference(check)),
        )
        for check in plan.checks
    ]
    columns = (Column("term", "words"), Column("predicted"), Column("measured"), Column("difference"))
    remark = "bytes: largest over ranks; times: means over ranks and recorded steps; step: of those without"
    return [Table("Prediction and measurement", columns, rows, remark + " profiler if there are any")]


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


def _memory(plan: Plan, places: Sequence[int]) -> Table:
    shown = [plan.layouts[place] for place in places]
    counted = any(one.memory.activations_bytes is not None for one in shown)
    names = ["P", "G", "O", *(["A", "B"] if counted else ["P+G+O"]), "needed"]
    columns = (Column("layout", "name"), *map(Column, names), Column("fits"))
    rows = [
        (
            Cell(_label(plan.layouts[place]), tone=_tone(plan, place)),
            *map(Cell, _bytes(plan.layouts[place], counted=counted)),
            _fit(plan.layouts[place]),
        )
        for place in places
    ]
    return Table("Memory per rank (largest over ranks)", columns, rows, _remark(plan, shown))


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
    mesh = ",".join(f"{name}={count}" for name, count in one.mesh.items())
    if one.dp == "hsdp":
        mesh = f"{one.mesh['replicate']}x{one.mesh['shard']}"
    kept = "" if one.checkpointing == "none" else f" {one.checkpointing}"
    splits = [name for name, is_split in (("sequence", one.sequence_parallel), ("loss", one.loss_parallel)) if is_split]
    return ", ".join([f"{one.dp} {mesh}", *splits]) + kept


def _bytes(one: PlannedLayout, *, counted: bool) -> list[str]:
    need = one.memory
    values = [need.parameters_bytes, need.gradients_bytes, need.optimizer_bytes]
    rest = (need.activations_bytes, need.buffers_bytes) if counted else (need.state_bytes,)
    return [size(value) for value in (*values, *rest, need.needed_bytes)]


def _traced(plan: Plan, places: Sequence[int]) -> list[Table]:
    """Return the traced peaks beside those of the formulas; nothing where formulas know none."""
    found = [(place, one) for place in places if (one := plan.layouts[place].traced) and one.formula_peak_bytes]
    if not found:
        return []
    rows = [
        (
            Cell(_label(plan.layouts[place]), tone=_tone(plan, place)),
            Cell(size(one.formula_peak_bytes)),
            Cell(size(one.peak_bytes)),
            Cell(f"{100 * (one.peak_bytes / (one.formula_peak_bytes or 1) - 1):+.1f} %"),
        )
        for place, one in found
    ]
    columns = (Column("layout", "name"), Column("by formulas"), Column("traced"), Column("difference"))
    return [Table("Traced peaks", columns, rows, "; ".join(sorted({one.note for _, one in found if one.note})))]


def _fit(one: PlannedLayout) -> Cell:
    if one.fits is False:
        return Cell(f"+{size(one.over_bytes)}", tone="error")
    return Cell(MISSING if one.fits is None else "yes" + ("*" if one.refused is not None else ""))


def _times(plan: Plan, places: Sequence[int]) -> list[Table]:
    rows = [
        (
            Cell(_label(one), tone=_tone(plan, place)),
            *(
                Cell(duration(value))
                for value in (step.compute_ns + step.recompute_ns, step.exposed_ns, step.bubble_ns)
            ),
            *(Cell(duration(value)) for value in (step.optimizer_ns, step.step_ns)),
            Cell(f"{step.tokens_per_s:,.4g}" if step.tokens_per_s < 1000 else f"{step.tokens_per_s:,.0f}"),
            Cell(format_percent(step.mfu)),
        )
        for place in places
        for one in [plan.layouts[place]]
        if (step := one.step) is not None
    ]
    if not rows:
        return []
    unit = _unit(plan)
    names = ("compute", "exposed", "bubble", "optimizer", "step", f"{unit}/s", "MFU")
    remark = "compute: including recomputation; exposed: communication that does not overlap"
    return [Table("Predicted step time", (Column("layout", "name"), *map(Column, names)), rows, remark)]


def _traffic(plan: Plan) -> list[Table]:
    """Return the traffic of the best layout, or of the first."""
    one = plan.layouts[plan.best or 0]
    if not one.traffic:
        return []
    rows = [
        (
            Cell(row.dimension),
            Cell(row.operator),
            Cell(f"{row.group_size:,}"),
            Cell(f"{row.messages:,}"),
            Cell(size(row.bytes)),
            Cell(size(row.sent_bytes)),
            Cell(duration(row.time_ns)),
            Cell(duration(row.exposed_ns)),
        )
        for row in one.traffic
    ]
    names = ("ranks", "messages", "message bytes", "sent", "time", "exposed")
    columns = (Column("dimension"), Column("operator"), *(Column(name) for name in names))
    return [Table(f"Communication per rank and step: {_name(one)}", columns, rows)]


def _terms(plan: Plan, place: int) -> Table:
    one = plan.layouts[place]
    columns = (
        Column("part"),
        Column("term", "words"),
        Column("value"),
        Column("formula", "words"),
        Column("source", "words"),
    )
    rows = [
        (Cell(term.part), Cell(term.name), Cell(_value(term)), Cell(term.formula), Cell(term.source))
        for term in one.terms
    ]
    return Table(f"Terms: {_name(one)}", columns, rows, f"memory peaks at: {one.memory.peak_at}")


def _value(term: PlanTerm) -> str:
    return size(term.value) if term.unit == "B" else duration(term.value)
