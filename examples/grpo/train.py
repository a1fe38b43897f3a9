"""GRPO on the CPU: a small transformer learns to add, and Marey records two mini-batches of one actor update.

    python examples/grpo/train.py

Every train step samples groups of answers, rewards them by rule, and updates the actor over PPO epochs of mini-batches of
micro-batches. Marey records mini-batches 2 and 3 of train step 2, every operator of them, and the stages of every step.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from model import Transformer, generate, log_probs, make_prompts, reward_of
from torch import Tensor

SCHEDULE = {"skip_first": 1, "wait": 0, "warmup": 1, "active": 2, "repeat": 1}
PROFILED_STEP = 2
PROMPTS, GROUP = 32, 8  # sequences a train step: 256
EPOCHS, MINI_BATCHES, MICRO_BATCHES = 2, 4, 2  # 8 mini-batches of 64 sequences, each in 2 micro-batches
CLIP, KL_WEIGHT = 0.2, 0.02


@dataclass
class Batch:
    """Sequences of one train step with what the update needs of them; first dimension: sequence."""

    sequences: Tensor
    old: Tensor
    reference: Tensor
    advantages: Tensor

    def pick(self, index: Tensor) -> Batch:
        return Batch(self.sequences[index], self.old[index], self.reference[index], self.advantages[index])


class NoProfiler:
    """Marey's calls, doing nothing: the same loop runs unprofiled, or under torch.profiler for comparison."""

    def stage(self, name: str, scheduled: bool = False) -> Any:
        return nullcontext()

    def mini_batches(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        yield from batches

    def tick(self, unit: str) -> None:
        pass


class TorchProfiler(NoProfiler):
    """Records the same mini-batches with torch.profiler and counts operators by name."""

    def __init__(self) -> None:
        self.step = 0
        self.counts: Counter[str] = Counter()

    def mini_batches(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        if self.step != PROFILED_STEP:
            yield from batches
            return
        schedule = torch.profiler.schedule(**SCHEDULE)
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=self.ready
        ) as profiler:
            for batch in batches:
                yield batch
                profiler.step()

    def ready(self, profiler: torch.profiler.profile) -> None:
        # The trace that torch.profiler writes has every call; its events() fold calls that only forward to their own kind.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            events = json.loads(file.read_text())["traceEvents"]
        names = (e["name"] for e in events if e.get("cat") in ("cpu_op", "user_annotation"))
        self.counts.update(name for name in names if not name.startswith("ProfilerStep#"))

    def tick(self, unit: str) -> None:
        self.step += unit == "train_step"


def pretrain(model: Transformer, rng: random.Random, steps: int) -> None:
    """A short supervised warm start on the answers' form, so that sampling finds well-formed numbers at all."""
    from model import ANSWER_LENGTH, encode

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        prompts, answers = make_prompts(128, rng)
        # Half of the answers are right, half are off by a little: the form is taught, the sums hardly.
        targets = [max(0, a + (rng.choice((-2, -1, 1, 2)) if rng.random() < 0.5 else 0)) for a in answers]
        text = torch.tensor([encode(f"{t}.".ljust(ANSWER_LENGTH, ".")) for t in targets])
        loss = -log_probs(model, torch.cat([prompts, text], dim=1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def split(batch: Batch, rng: random.Random) -> Iterator[Batch]:
    """Mini-batches of every PPO epoch, shuffled anew in each."""
    count = len(batch.sequences)
    for _ in range(EPOCHS):
        order = torch.tensor(rng.sample(range(count), count))
        for index in order.chunk(MINI_BATCHES):
            yield batch.pick(index)


def loss_of(actor: Transformer, micro: Batch) -> Tensor:
    """Clipped policy-ratio loss of GRPO with the k3 estimate of the KL divergence to the reference."""
    new = log_probs(actor, micro.sequences)
    ratio = (new - micro.old).exp()
    advantages = micro.advantages[:, None]
    policy = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    difference = micro.reference - new
    return (policy + KL_WEIGHT * (difference.exp() - difference - 1)).mean()


def train_step(
    actor: Transformer, reference: Transformer, optimizer: Any, profiler: Any, rng: random.Random, generator: Any
) -> float:
    """One step; returns the mean reward of what was sampled."""
    with profiler.stage("rollout"):
        prompts, answers = make_prompts(PROMPTS, rng)
        sequences = generate(actor, prompts.repeat_interleave(GROUP, 0), generator)
        rewards = torch.tensor([reward_of(s, answers[i // GROUP]) for i, s in enumerate(sequences)])
        groups = rewards.view(PROMPTS, GROUP)
        advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1)
    with profiler.stage("compute_log_prob"), torch.no_grad():
        old = log_probs(actor, sequences)
    with profiler.stage("ref_compute_log_prob"), torch.no_grad():
        ref = log_probs(reference, sequences)
    batch = Batch(sequences, old, ref, advantages)
    with profiler.stage("actor_update", scheduled=True):
        for mini in profiler.mini_batches(split(batch, rng)):
            optimizer.zero_grad()
            for index in torch.arange(len(mini.sequences)).chunk(MICRO_BATCHES):
                loss = loss_of(actor, mini.pick(index)) / MICRO_BATCHES
                loss.backward()
                profiler.tick("micro_batch")
            torch.nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
            optimizer.step()
    profiler.tick("train_step")
    return float(rewards.mean())


@contextmanager
def profiler_of(options: argparse.Namespace) -> Iterator[Any]:
    if options.profiler == "marey":
        import marey

        profiler = marey.Profiler(
            schedule=marey.Schedule(**SCHEDULE),
            role="actor",
            steps=[PROFILED_STEP],
            contents=options.contents.split(","),
            out=options.out,
        )
        profiler.start(train_step=0)
        with profiler:
            yield profiler
        profiler.wait(60)
    elif options.profiler == "torch":
        yield TorchProfiler()
    else:
        yield NoProfiler()


def report(profiler: Any, out: str) -> None:
    """What a person would look at first: the plan, the file, its units, and how to go on."""
    cli = Path(sys.executable).parent / "marey"
    plan = ",".join(f"{key}={value}" for key, value in SCHEDULE.items())
    window = profiler.windows[-1].path
    commands = [["plan", "--schedule", plan, "--units", str(EPOCHS * MINI_BATCHES)], ["units", str(window)]]
    for command in commands:
        print(f"\n$ marey {' '.join(command)}", flush=True)
        subprocess.run([str(cli), *command], check=True)
    print(f"\nThe trace: {window}\nThe skeletons of all steps are beside it, in {out}/.")
    print(f"Next: marey top --sort self --limit 20 {window}")
    print("or open the file in the Perfetto UI.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiler", choices=["marey", "torch", "none"], default="marey")
    parser.add_argument("--contents", default="cpu", help="what Marey records: outline, cpu, shapes (comma-separated)")
    parser.add_argument("--out", default="marey-traces", help="folder for the traces")
    parser.add_argument("--steps", type=int, default=40, help="train steps")
    parser.add_argument("--pretrain", type=int, default=120, help="steps of the supervised warm start")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts-json", type=Path, help="with --profiler torch: write operator counts by name")
    parser.add_argument("--rewards-json", type=Path, help="write the mean reward of every step")
    options = parser.parse_args()

    torch.set_num_threads(1)  # operators this small gain nothing from more, and one thread is the same on every machine
    torch.manual_seed(options.seed)
    rng, generator = random.Random(options.seed), torch.Generator().manual_seed(options.seed)
    actor = Transformer()
    pretrain(actor, rng, options.pretrain)
    reference = copy.deepcopy(actor).eval()
    optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-3, weight_decay=0.0)
    rewards = []
    with profiler_of(options) as profiler:
        for step in range(options.steps):
            begin = time.perf_counter()
            rewards.append(train_step(actor, reference, optimizer, profiler, rng, generator))
            print(f"train_step {step:2}  reward {rewards[-1]:.3f}  {time.perf_counter() - begin:.2f} s", flush=True)
    if options.rewards_json:
        options.rewards_json.write_text(json.dumps(rewards))
    if options.counts_json:
        options.counts_json.write_text(json.dumps(profiler.counts))
    if options.profiler == "marey":
        report(profiler, options.out)


if __name__ == "__main__":
    main()
