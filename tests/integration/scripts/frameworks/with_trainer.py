"""Training with Hugging Face's Trainer under DeepSpeed: the script has neither a loop nor an optimizer of its own."""

import argparse
import os

os.environ |= {"DS_ACCELERATOR": "cpu", "LOCAL_SIZE": "2", "HF_HUB_OFFLINE": "1"}

import deepspeed
import torch
from transformers import Trainer, TrainingArguments
from words import Words, classifier  # type: ignore[import-not-found]  # the file beside this one

# It would compile an operator for inference, for minutes.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deepspeed", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    arguments = TrainingArguments(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=4,
        deepspeed=args.deepspeed,
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=classifier(), args=arguments, train_dataset=Words(256))
    trainer.train()
    if trainer.args.process_index == 0:
        print("trained", trainer.state.global_step)


if __name__ == "__main__":
    main()
