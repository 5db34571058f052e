"""Decides which events of a script end its steps.

An optimizer's step ends a step of the script if gradients were computed since the last one: libraries step once per
group of parameters (DeepSpeed), and torch steps once to create the state of an optimizer that is about to be loaded. An
optimizer may step while a backward pass runs (such as one per parameter): then the step ends with the pass.
"""

import threading
import weakref

from torch.optim import Optimizer

from perfkit.options.script import StepRule
from perfkit.record.script.hooks.seen_optimizers import SeenOptimizer, SeenOptimizers


class StepCounter:
    """Counts the steps of a script, in the thread that ends the first one; once that has ended, in the next that does.

    Each `after_*` method notes an event and returns whether it ends a step.

    Args:
        rule: What ends a step. For an optimizer: the first that steps and matches, for as long as it lives.
    """

    def __init__(self, rule: StepRule) -> None:
        self._rule = rule
        self._counted: weakref.ref[Optimizer] | None = None
        self._thread: threading.Thread | None = None
        self._gradients = False
        self._any_gradients = False
        self._pending = False
        self.seen = SeenOptimizers()
        self.counted: SeenOptimizer | None = None
        """The optimizer whose steps are counted now."""
        self.enders: list[SeenOptimizer] = []
        """All whose steps were counted, one after the other."""
        self.count = 0
        self.skipped = 0
        """Steps of which a GradScaler has skipped the update."""
        self.backward_passes = 0

    def after_optimizer_step(self, optimizer: Optimizer, *, in_backward: bool) -> bool:
        seen = self.seen.add(optimizer)
        if not self._matches(optimizer, seen):
            return False
        if in_backward:
            self._count_from_now_on(optimizer, seen)
            self._pending = True
            return False
        # A step without gradients is counted if there never are any (evolution strategies), but not the first one.
        if not self._gradients and (self._any_gradients or seen.steps == 1):
            return False
        return self._in_thread() and self._end(optimizer, seen)

    def after_scaler_step(self, optimizer: Optimizer) -> bool:
        """Note that a GradScaler has stepped an optimizer, or skipped that because of infinite gradients."""
        if not self._gradients:  # it has stepped
            return False
        seen = self.seen.find(optimizer)
        if not self._matches(optimizer, seen) or not self._in_thread():
            return False
        self.skipped += 1
        return self._end(optimizer, seen)

    def after_backward(self) -> bool:
        """Note the end of a backward pass that is not part of another one."""
        self.backward_passes += 1
        self.after_gradients()
        if self._rule.kind == "backward":
            return self._in_thread() and self._end()
        if self._pending:
            self._pending = False
            return self._in_thread() and self._end()
        return False

    def after_gradients(self) -> None:
        self._gradients = self._any_gradients = True

    def after_forward(self) -> bool:
        return self._rule.kind == "forward" and self._in_thread() and self._end()

    def after_marker(self) -> bool:
        """Note a call of `perfkit.step()`: from the first one on, only these end steps."""
        if self._rule.kind == "marker":
            return self._in_thread() and self._end()
        self._rule = StepRule(kind="marker")
        return self.count == 0 and self._in_thread() and self._end()

    def others(self) -> list[SeenOptimizer]:
        """Return the optimizers that never were the counted one, and made more or fewer steps, by more than one."""
        if not self.enders or self._rule.kind != "optimizer":
            return []
        counted = sum(seen.steps for seen in self.enders)
        return [seen for seen in self.seen.all if not seen.ended and abs(seen.steps - counted) > 1]

    def _matches(self, optimizer: Optimizer, seen: SeenOptimizer) -> bool:
        if self._rule.kind != "optimizer":
            return False
        counted = self._counted() if self._counted else None
        if counted is None:
            return self._rule.name is None or seen.is_called(self._rule.name)
        return counted is optimizer

    def _count_from_now_on(self, optimizer: Optimizer, seen: SeenOptimizer) -> None:
        if self._counted is None or self._counted() is not optimizer:
            self._counted, self.counted = weakref.ref(optimizer), seen
            self._thread = None

    def _in_thread(self) -> bool:
        counted_is_gone = self._counted is not None and self._counted() is None
        thread_is_gone = self._thread is None or not self._thread.is_alive()  # one thread per epoch, for example
        return thread_is_gone or counted_is_gone or self._thread is threading.current_thread()

    def _end(self, optimizer: Optimizer | None = None, seen: SeenOptimizer | None = None) -> bool:
        if optimizer is not None and seen is not None:
            self._count_from_now_on(optimizer, seen)
        self._thread = threading.current_thread()  # not its number, which the next thread may get
        self._gradients = False
        self.count += 1
        if self.counted is not None:
            if not self.counted.ended:
                self.enders.append(self.counted)
            self.counted.ended += 1
        return True
