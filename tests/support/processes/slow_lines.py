"""Training scripts with one slow line each, which is known: on the last rank, or on the only one."""

from typing import Final, NamedTuple


class SlowLine(NamedTuple):
    """A script, and where it is slow."""

    function: str
    text: str

    @property
    def lines(self) -> range:
        """The lines of the function."""
        lines = self.text.splitlines()
        first = next(at for at, line in enumerate(lines, 1) if f"def {self.function.rpartition('.')[2]}(" in line)
        indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
        after = (
            at for at, line in enumerate(lines[first:], first + 1) if line.strip() and not line[indent:].startswith(" ")
        )
        return range(first, next(after))


_HEAD: Final = """import gc, json, logging, os, tempfile, threading, time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
RANK = int(os.environ.get("RANK", 0))
SLOW = RANK == int(os.environ.get("WORLD_SIZE", 1)) - 1
"""
_BODY: Final = """

class Items(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        item = torch.full((64,), index / 160)
        {item}
        return item


model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
{model}
if dist.is_initialized():
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{opt}
for batch in DataLoader(Items(), batch_size=8{loader}):
    {first}
    loss = model(batch).square().mean()
    {middle}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {last}
"""


def _script(function: str, code: str, **places: str) -> SlowLine:
    """Return a script that calls a function at one of the places of the loop."""
    known = dict.fromkeys(("item", "first", "middle", "last"), "pass") | dict.fromkeys(("model", "opt", "loader"), "")
    return SlowLine(function, _HEAD + code + _BODY.format(**known | places))


SLOW_LINES: Final = {
    "augmentation": _script(
        "colour_jitter",
        """

def colour_jitter(item):
    values = item.tolist() * (30 if SLOW else 1)
    for k in range(len(values)):
        for _ in range(10):
            values[k] = min(1.0, values[k] * 1.1)
    return item
""",
        item="colour_jitter(item)",
    ),
    "tokenizer": _script(
        "tokenize",
        """

def tokenize(text):
    words = {}
    for letter in text * (8000 if SLOW else 10):
        words[letter] = words.get(letter, 0) + 1
    return len(words)
""",
        first='tokenize("the quick brown")',
    ),
    "collate": _script(
        "pad_batch",
        """

def pad_batch(items):
    total = 0
    for k in range(300000 if SLOW else 1000):
        total += k
    return torch.stack(items)
""",
        loader=", collate_fn=pad_batch",
    ),
    "logging": _script(
        "log_metrics",
        """

logger = logging.getLogger("train")
logger.addHandler(logging.StreamHandler(open(os.devnull, "w")))
logger.setLevel(logging.INFO)


def log_metrics(loss):
    for k in range(1500 if SLOW else 5):
        logger.info("metric %d is %f", k, loss)
""",
        last="log_metrics(0.5)",
    ),
    "hook": _script(
        "watch_gradients",
        """

def watch_gradients(module, inputs, output):
    for _ in range(25 if SLOW else 1):
        sorted(float(v) for v in output.detach().flatten().tolist() * 2)
""",
        model="model[0].register_forward_hook(watch_gradients)",
    ),
    "scheduler": _script(
        "Warmup.get_lr",
        """

class Warmup(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        return [base * sum(1 / (k + 1) for k in range(200000 if SLOW else 1000)) for base in self.base_lrs]
""",
        opt="scheduler = Warmup(optimizer)",
        last="scheduler.step()",
    ),
    "lock": _script(
        "save_stats",
        """

lock = threading.Lock()


def writer():
    while True:
        with lock:
            time.sleep(0.02 if SLOW else 0.0005)
        time.sleep(0.001)


threading.Thread(target=writer, daemon=True).start()


def save_stats():
    with lock:
        pass
""",
        last="save_stats()",
    ),
    "gc": _script(
        "clean_up",
        """

KEPT = [[k] for k in range(200000 if SLOW else 2000)]


def clean_up():
    gc.collect()
""",
        last="clean_up()",
    ),
    "small_files": _script(
        "read_small",
        """

FOLDER = tempfile.mkdtemp()
for number in range(200):
    with open(f"{FOLDER}/{number}", "w") as file:
        file.write("x" * 100)


def read_small():
    for number in range(200 if SLOW else 2):
        with open(f"{FOLDER}/{number}") as file:
            file.read()
""",
        item="read_small()",
    ),
    "worker_sleep": _script(
        "fetch_remote",
        """

def fetch_remote():
    time.sleep(0.01 if SLOW else 0.0005)
""",
        item="fetch_remote()",
        loader=", num_workers=1",
    ),
    "item": _script(
        "check_loss",
        """

def check_loss(loss, model):
    for parameter in model.parameters():
        for value in parameter.detach().flatten()[:1500 if SLOW else 1]:
            value.item()
""",
        middle="check_loss(loss, model)",
    ),
    "print": _script(
        "show_progress",
        """

out = open(os.devnull, "w")


def show_progress():
    for k in range(8000 if SLOW else 10):
        print(k, "of", 100, file=out, flush=True)
""",
        last="show_progress()",
    ),
}
"""Twelve kinds of slow lines."""

RELATIVES: Final = {
    "method_in_workers": _script(
        "Augmentation.__call__",
        """

class Augmentation:
    def __call__(self, item):
        total = 0.0
        for k in range(100000):
            total += k * 0.5
        return item + total * 0


augment = Augmentation()
""",
        item="item = augment(item)",
        loader=", num_workers=1",
    ),
    "comprehension": _script(
        "count_words",
        """

def count_words():
    return sum(len(str(k)) for k in range(150000))
""",
        last="count_words()",
    ),
    "closure": _script(
        "summarise",
        """

def make():
    def summarise():
        return json.dumps([{"k": k, "v": [k] * 10} for k in range(8000)])

    return summarise


summarise = make()
""",
        last="summarise()",
    ),
    "gradient_hook": _script(
        "clip",
        """

def clip(gradient):
    values = gradient.flatten().tolist()
    return torch.tensor([min(1.0, max(-1.0, v)) for v in values * 8][: len(values)]).view_as(gradient)
""",
        model="model[0].weight.register_hook(clip)",
    ),
}
"""Functions of other forms."""
