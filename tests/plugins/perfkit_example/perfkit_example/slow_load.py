"""A recommendation: loads that take more than a millisecond, however little of that is exposed."""

from perfkit.insights import InsightDraft, Rule, RunContext


def evaluate(context: RunContext) -> InsightDraft | None:
    """Report the run's longest load if it takes over a millisecond."""
    longest_ns = max((step.loads.max_ns for rank in context.run.ranks for step in rank.steps), default=0)
    if longest_ns <= 1_000_000:
        return None
    return InsightDraft(
        sentence=f"one load took {longest_ns / 1e6:.1f} ms",
        evidence={"load_ns": float(longest_ns)},
        recommendation="read batches instead of samples",
        potential_saving_ns=context.exposed_ns["data_loading"],
    )


RULE = Rule(name="slow_load", evaluate=evaluate)
