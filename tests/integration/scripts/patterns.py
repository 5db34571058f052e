"""Training and inference as people write them, a pattern per function: `python patterns.py PATTERN`.

Each prints its results; nothing but `marks` knows of perfkit.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ITERATIONS = 12


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, inputs: Tensor) -> Any:
        return self.layers(inputs)


def loss_of(model: Any) -> Any:
    return model(torch.randn(8, 16)).square().mean()


def step_in_backward() -> None:
    """Step one optimizer per parameter as soon as its gradient is there."""
    model = Net()
    optimizers = {parameter: torch.optim.Adam([parameter], foreach=False) for parameter in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)  # type: ignore[no-untyped-call]
    for _ in range(ITERATIONS):
        loss = loss_of(model)
        loss.backward()
        print(loss.item())


def compiled_step() -> None:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())

    @torch.compile(fullgraph=False, backend="aot_eager")
    def step() -> None:
        optimizer.step()

    for _ in range(ITERATIONS):
        loss = loss_of(model)
        loss.backward()
        step()
        optimizer.zero_grad()
        print(loss.item())


def compiled_model() -> None:
    """Print how often something was compiled, too."""
    model = Net()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ITERATIONS):
        loss = loss_of(compiled)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
    from torch._dynamo.utils import counters

    print(counters["stats"]["unique_graphs"], counters["frames"]["ok"])


def compiled_gradients() -> None:
    """Compile a loss together with its backward pass, and write a checkpoint in another compiled function."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    torch._dynamo.config.trace_autograd_ops = True
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def backward(inputs: Tensor) -> Tensor:
        loss = model(inputs).square().mean()
        loss.backward()
        return loss.detach()  # type: ignore[no-any-return]

    @torch.compile(backend="aot_eager")
    def save(loss: Tensor) -> Tensor:
        torch.save(loss * 2, "loss.pt")
        return loss + 1

    for _ in range(ITERATIONS):
        loss = backward(torch.randn(8, 16))
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item(), save(loss).item())
    print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))


def parameter_groups() -> None:
    """Step once per group of parameters, as ZeRO does."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    groups = [{**optimizer.param_groups[0], "params": [parameter]} for parameter in model.parameters()]
    for _ in range(ITERATIONS):
        loss = loss_of(model)
        loss.backward()
        for group in groups:
            optimizer.param_groups = [group]
            optimizer.step()
        model.zero_grad()
        print(loss.item())


def critic_and_generator() -> None:
    """Step the critic five times per step of the generator."""
    critic, generator = Net(), nn.Linear(16, 16)
    opt_c = torch.optim.RMSprop(critic.parameters())
    opt_g = torch.optim.RMSprop(generator.parameters())
    for _ in range(ITERATIONS):
        for _ in range(5):
            opt_c.zero_grad()
            loss = loss_of(critic) - critic(generator(torch.randn(8, 16)).detach()).mean()
            loss.backward()
            opt_c.step()
        opt_g.zero_grad()
        loss = critic(generator(torch.randn(8, 16))).mean()
        loss.backward()
        opt_g.step()
        print(loss.item())


def scaler() -> None:
    """Skip the update of every third iteration, whose gradients are infinite."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scale = torch.amp.GradScaler("cpu", init_scale=4.0)
    for iteration in range(ITERATIONS):
        optimizer.zero_grad()
        loss = loss_of(model) * (float("inf") if iteration % 3 == 0 else 1.0)
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        print(loss.item(), scale.get_scale())


def manual_update() -> None:
    """Update parameters without an optimizer."""
    model = Net()
    for _ in range(ITERATIONS):
        model.zero_grad()
        loss = loss_of(model)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * parameter.grad)
        print(loss.item())


def inference() -> None:
    model = Net().eval()
    with torch.inference_mode():
        for _ in range(ITERATIONS):
            print(model(torch.randn(8, 16)).sum().item())


def two_phases() -> None:
    """Train a little with one optimizer, then with another."""
    model = Net()
    warm_up, main_phase = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
    for optimizer, iterations in ((warm_up, 3), (main_phase, ITERATIONS)):
        for _ in range(iterations):
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            print(loss.item())


def resumed() -> None:
    """Create the state of an optimizer that is about to be loaded, which takes a step without gradients."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    set_optimizer_state_dict(model, optimizer, get_optimizer_state_dict(model, optimizer))
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        print(loss.item())


def accumulated() -> None:
    """Two micro-steps per step, of which each runs its forward pass again inside the backward pass."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration in range(2 * ITERATIONS):
        inputs = torch.randn(8, 16, requires_grad=True)
        loss = checkpoint(model, inputs, use_reentrant=True).square().mean()
        loss.backward()
        if iteration % 2:
            optimizer.step()
            optimizer.zero_grad()
        print(loss.item())


def closure() -> None:
    """Run several backward passes inside one optimizer step."""
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def evaluate() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(8, 16)).square().mean()
        loss.backward()
        return loss

    for _ in range(ITERATIONS):
        print(float(optimizer.step(evaluate)))  # type: ignore[no-untyped-call]


def train_in_thread(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Train in a new thread until it ends."""

    def train() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            print(loss.item())

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


def thread_that_ends() -> None:
    """Train in a thread that ends while its steps are recorded."""
    model = Net()
    train_in_thread(model, torch.optim.SGD(model.parameters(), lr=0.1), 4)


def thread_per_epoch() -> None:
    """Train each epoch in a new thread: the recording begins in one, and ends in another."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ITERATIONS // 2):
        train_in_thread(model, optimizer, 2)


def step_in_threads() -> None:
    """Let a new thread make each step of the optimizer."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        thread = threading.Thread(target=optimizer.step)
        thread.start()
        thread.join()
        print(loss.item())


def marks() -> None:
    """Mark the steps, without an optimizer or a backward pass."""
    import perfkit

    weights = torch.randn(16, 16)
    for _ in range(ITERATIONS):
        weights = torch.tanh(weights @ weights)
        print(weights.sum().item())
        perfkit.step()


def fails() -> None:
    """Raise inside a forward pass inside a recorded step, and print the traceback."""
    import traceback

    class Failing(Net):
        def forward(self, inputs: Tensor) -> Any:
            if len(inputs) == 1:
                raise ValueError("one sample")
            return super().forward(inputs)

    model = Failing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for iteration in range(ITERATIONS):
        try:
            model(torch.randn(1, 16))
        except ValueError:
            print(len(traceback.format_exc()) > 0)
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        print(loss.item())
        if iteration == 4:
            model(torch.randn(1, 16))


def watched() -> None:
    """Print every operator and every function of torch that runs, and the graph of the traced model."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            print(func)
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            print(getattr(func, "__qualname__", func))
            return func(*args, **(kwargs or {}))

    class Watched(Net):
        def parameters(self, recurse: bool = True) -> Any:
            print("parameters")
            return super().parameters(recurse)

    model = Watched()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with Operators(), Functions():  # type: ignore[no-untyped-call]
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()
    for _ in range(ITERATIONS - 5):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        print(torch.jit.trace(model, torch.ones(1, 16)).graph)  # type: ignore[no-untyped-call]


PATTERNS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        *(
            step_in_backward,
            compiled_step,
            compiled_model,
            compiled_gradients,
            parameter_groups,
            critic_and_generator,
            scaler,
        ),
        *(manual_update, inference, two_phases, resumed, accumulated, closure),
        *(thread_that_ends, thread_per_epoch, step_in_threads, marks, watched, fails),
    )
}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    PATTERNS[sys.argv[1]]()
