"""A recommendation: loads that take more than a millisecond, however little of that is exposed."""

from perfkit.insights import Loss, Rule, RunContext, fact


def evaluate(context: RunContext) -> Loss | None:
    """Report the run's longest load if it takes over a millisecond."""
    longest_ns = max((step.loads.max_ns for rank in context.run.ranks for step in rank.steps), default=0)
    if longest_ns <= 1_000_000:
        return None
    return Loss(
        cause="slow_load",
        facts=(fact("slow_load", load_ns=longest_ns),),
        remedy=(fact("read_batches"),),
        per_step_ns=context.exposed_ns["data_loading"],
        evidence={"load_ns": float(longest_ns)},
    )


WORDS = {"slow_load": "one load took {load_ns:duration}", "read_batches": "read batches instead of samples"}
RULE = Rule(name="slow_load", evaluate=evaluate, words=WORDS)
