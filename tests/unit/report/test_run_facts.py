"""The facts about a run that stand beside its tables."""

from perfkit.report.content.run_facts import key_values
from tests.support.reports.report_builders import make_run


def test_a_wait_per_step_is_of_what_is_exposed() -> None:
    # Rank 0 waits for 26 ms in two steps, of which 20 ms are exposed.
    shown = {fact.label: fact.value for fact in key_values(make_run())}
    assert shown["wait per step"] == "exposed, in collectives: min 0 (rank 1), max 10.0 ms (rank 0)"
