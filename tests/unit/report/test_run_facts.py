"""The facts about a run that stand beside its tables."""

from perfkit.records.run import StepTimes
from perfkit.report.content.run_facts import key_values
from tests.support.reports.report_builders import MS, make_efficiency, make_run


def test_a_wait_per_step_is_of_what_is_exposed() -> None:
    # Rank 0 waits for 26 ms in two steps, of which 20 ms are exposed.
    shown = {fact.label: fact.value for fact in key_values(make_run())}
    assert shown["wait per step"] == "exposed, in collectives: min 0 (rank 1), max 10.0 ms (rank 0)"


def test_it_is_told_of_how_much_communication_the_waiting_is_unknown() -> None:
    """As of broadcasts: how long a rank waits in these is in no figure."""
    unknown = make_efficiency(wait_ns=40 * MS, transfer_ns=160 * MS, unmatched_ns=148 * MS)
    shown = {fact.label: fact.value for fact in key_values(make_run(efficiency=unknown))}
    assert shown["wait per step"].endswith("max 10.0 ms (rank 0); not known of 74 % of exposed communication")


def test_where_no_communication_is_exposed_no_share_of_it_is_told() -> None:
    """A report from elsewhere may say of unmatched collectives all the same."""
    none = make_efficiency(wait_ns=0, transfer_ns=0, unmatched_ns=148 * MS)
    shown = {fact.label: fact.value for fact in key_values(make_run(efficiency=none))}
    assert shown["wait per step"].endswith("max 10.0 ms (rank 0)")


def test_steps_that_were_only_timed_are_told() -> None:
    run = make_run(ranks=[], throughput=None, step_times=StepTimes(plain_ns=[40 * MS], recorded_ns=[]))
    shown = {fact.label: fact.value for fact in key_values(run)}
    assert shown["steps"] == "none recorded; mean 40.0 ms without the profiler"


def test_without_any_step_none_is_told() -> None:
    shown = {fact.label: fact.value for fact in key_values(make_run(ranks=[]))}
    assert shown["steps"].startswith("none recorded")
