"""What a training run needs and how long its steps take, before it runs (docs/plan.md).

`planner` puts formulas together; `traced` runs the real modules on fake tensors, and is all here that imports torch.
"""
