"""Trains the demo model and its drafters: python3 -m demo.train --out DIR --until SECONDS --drafters-until SECONDS

The schedule runs on the clock, because GPU time is what is short: phases and learning rate follow the share of the time
between start and --until that has passed. The state is written at the end of every phase; --resume DIR --phases E
goes on from such a state with a short warm-up (optimiser moments are not kept: they are rebuilt in that warm-up).
"""
import argparse
import dataclasses
import gc
import json
import math
import pathlib
import random
import time

import torch

from demo.evaluate import autocast, exact_matches, scores
from demo.feed import Feed
from demo.model import Config, Mode, Model, Piece, Tables, Trace, token_losses
from demo.optimiser import Optimiser
from demo.suites import file_cases, heldout_cases
from demo.tensorfile import load_state, save_state

HERE = pathlib.Path(__file__).parent
PROMPT, ANSWER = 1, 2  # kinds of tokens in a row; 0 is padding
PROMPT_WEIGHT = 0.1
STEPS_A_TURN = 10  # between two looks at the clock
WARM_UP_STEPS, LAST_RATE = 150, 0.02


@dataclasses.dataclass
class Phase:
    """A share of the training time: row lengths with the share of steps each, and what the forward pass does."""

    share: float
    lengths: dict
    select: bool
    round_rows: bool

    def mode(self, length, dtype, balance=1e-3):
        # Rows of 128 are too short for the indexer to learn from. Experts are MXFP4 from the first step on.
        return Mode(self.select, length >= 512, self.round_rows, True, balance, dtype)


PHASES = {
    "A": Phase(0.25, {128: 0.5, 512: 0.5}, select=False, round_rows=False),
    "B": Phase(0.40, {128: 0.2, 512: 0.4, 2048: 0.4}, select=True, round_rows=False),
    "C": Phase(0.20, {128: 0.1, 512: 0.3, 2048: 0.3, 4096: 0.3}, select=True, round_rows=False),
    "D": Phase(0.15, {128: 0.1, 512: 0.3, 2048: 0.3, 4096: 0.3}, select=True, round_rows=True),
    # For later runs: rows of 512 hold the tool calls, the skill that needs the most tokens.
    "E": Phase(1.00, {128: 0.15, 512: 0.55, 2048: 0.15, 4096: 0.15}, select=True, round_rows=True),
    "F": Phase(1.00, {128: 0.10, 512: 0.75, 2048: 0.08, 4096: 0.07}, select=True, round_rows=True),
}


class Log:
    def __init__(self, path, start):
        self.file, self.start = open(path, "a", encoding="utf-8"), start

    def __call__(self, *words):
        line = f"{time.time() - self.start:6.1f} " + " ".join(str(word) for word in words)
        print(line, flush=True)
        self.file.write(line + "\n")
        self.file.flush()


class Step:
    """One optimiser step for one row length: draws rows, runs forward, backward and the optimiser. On a GPU all of it
    but the drawing is one CUDA graph."""

    def __init__(self, model, optimiser, feed, length, mode, tokens, device, pool=None):
        self.model, self.optimiser, self.feed, self.length, self.mode = model, optimiser, feed, length, mode
        self.rows = max(1, tokens // length)
        self.ids = torch.zeros(self.rows, length, dtype=torch.long, device=device)
        self.weights = torch.zeros(self.rows, length, device=device)
        self.stats = torch.zeros(4, device=device)  # answer loss, loss, indexer loss, gradient norm
        self.tables = Tables(model.config, self.rows, length, device)
        self.device, self.graph = device, None
        if torch.device(device).type == "cuda":
            self.capture(pool)

    def capture(self, pool):
        # The warm-up runs real steps, so the rate is 0 and the rows are real ones.
        self.optimiser.set_rate(0.0)
        self.draw()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.optimiser.clear()
                self.body()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.optimiser.clear()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.body()

    def draw(self):
        ids, kinds = self.feed.rings[self.length].draw(self.rows)
        self.ids.copy_(ids)
        self.weights.copy_((kinds == ANSWER).float() + PROMPT_WEIGHT * (kinds == PROMPT).float())

    def body(self):
        trace = Trace()
        with autocast(self.device):
            logits = self.model.logits(self.model.streams(self.ids, self.tables, self.mode, trace))
        losses = token_losses(logits, torch.roll(self.ids, -1, 1).reshape(-1)).view(self.ids.shape)[:, :-1]
        weights = self.weights[:, 1:]
        loss = (losses * weights).sum() / weights.sum()
        answers = (weights > 0.5).float()
        self.stats[0] = (losses.detach() * answers).sum() / answers.sum()
        self.stats[1] = loss.detach()
        if trace.index_losses:
            of_indexer = torch.stack(trace.index_losses).mean()
            self.stats[2] = of_indexer.detach()
            loss = loss + of_indexer
        loss.backward()
        self.stats[3] = self.optimiser.step()

    def __call__(self):
        self.draw()
        if self.graph:
            self.graph.replay()
        else:
            self.optimiser.clear()
            self.body()


def stream_dtype(device):
    return torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32


def rate_share(step, progress, hold):
    decay = max(LAST_RATE, (1 - progress) / (1 - hold)) if progress > hold else 1.0
    return min(1.0, (step + 1) / WARM_UP_STEPS) * decay


def train_trunk(model, feed, phases, options, log, evaluate):
    optimiser = Optimiser(model.named_parameters(), options.device)
    shares = [PHASES[letter].share for letter in phases]
    ends = [sum(shares[: i + 1]) / sum(shares) for i in range(len(shares))]
    begin, chooser = time.time(), random.Random(options.seed)
    total = max(1e-3, options.start + options.until - begin)
    current, steps, count, tokens, next_line = None, {}, 0, 0, 0.0
    on_gpu = torch.device(options.device).type == "cuda"
    dtype = stream_dtype(options.device)
    while (progress := (time.time() - begin) / total) < 1:
        index = next(i for i, end in enumerate(ends) if progress < end or i == len(ends) - 1)
        phase = PHASES[phases[index]]
        if index != current:
            if current is not None:
                save_state(options.out, "trunk", model.state_dict())
                evaluate(f"after phase {phases[current]}", PHASES[phases[current]].mode(512, dtype))
            steps = {}  # frees the old graphs before the new ones take memory
            gc.collect()
            feed.wait_for(phase.lengths, options.device)
            pool = torch.cuda.graph_pool_handle() if on_gpu else None
            for length in phase.lengths:
                begin_step = time.time()
                mode = phase.mode(length, dtype)
                steps[length] = Step(model, optimiser, feed, length, mode, options.tokens, options.device, pool)
                log(f"phase {phases[index]}: rows of {length} ready in {time.time() - begin_step:.1f} s")
            current = index
        optimiser.set_rate(options.rate * rate_share(count, progress, options.hold))
        lengths = chooser.choices(list(phase.lengths), phase.lengths.values(), k=STEPS_A_TURN)
        for length in lengths:
            steps[length]()
            tokens += steps[length].ids.numel()
        count += STEPS_A_TURN
        feed.pull(options.device)
        if on_gpu:
            torch.cuda.synchronize()
        if time.time() - begin > next_line:
            next_line = time.time() - begin + 5
            numbers = dict(zip(("answer", "all", "indexer", "norm"), steps[lengths[-1]].stats.tolist()))
            log(f"step {count} phase {phases[index]} Mtokens {tokens / 1e6:.1f} row {lengths[-1]}", numbers)
            if not all(math.isfinite(number) for number in numbers.values()):
                raise FloatingPointError("the loss is not finite")
    save_state(options.out, "trunk", model.state_dict())
    if on_gpu:
        log(f"trunk: {count} steps, {tokens / 1e6:.1f} M tokens, peak {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")
    log("rows generated and drawn", feed.report())


def percent_line(table):
    return " ".join(f"{skill} {right}/{total}" for skill, (right, total) in table.items())


def report_samples(model, cases, mode, options, path):
    """Writes every case that exact match got wrong, and the first case of every skill."""
    from demo.data.encode import Encoder

    decoder, seen = Encoder(options.tokenizer), set()
    with open(path, "w", encoding="utf-8") as file:
        for case, (match, said) in zip(cases, exact_matches(model, cases, mode, options.device)):
            if match is not None and case.skill in seen:
                continue
            seen.add(case.skill)
            sample = {"skill": case.skill, "name": case.name, "right": match is not None}
            sample["prompt"] = decoder.decode(case.prompt[-80:])
            sample["wanted"], sample["said"] = decoder.decode(case.answers[0]), decoder.decode(said)
            file.write(json.dumps(sample, ensure_ascii=False) + "\n")


def parse_options(start):
    parser = argparse.ArgumentParser(description="Trains the demo model and its drafters.")
    parser.add_argument("--out", required=True, help="folder for states, log and samples")
    parser.add_argument("--until", type=float, required=True, help="seconds after the start at which the trunk ends")
    parser.add_argument("--drafters-until", type=float, default=0.0, help="the same for the drafters; 0: train none")
    parser.add_argument("--phases", default="ABCD", help="which phases, in order")
    parser.add_argument("--resume", help="folder with the states to go on from")
    parser.add_argument("--rate", type=float, default=8e-3, help="peak rate of Muon")
    parser.add_argument("--hold", type=float, default=0.6, help="share of the time at the peak rate, before the decay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32768, help="tokens a step")
    parser.add_argument("--workers", type=int, default=13, help="generator processes")
    parser.add_argument("--cases", type=int, default=100, help="held-out cases a skill in evaluations")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--config", default=str(HERE / "config.json"))
    parser.add_argument("--tokenizer", default=str(HERE / "tokenizer.json"))
    options = parser.parse_args()
    if not set(options.phases) <= set(PHASES):
        parser.error(f"--phases takes letters of {''.join(PHASES)}")
    options.start = start
    return options


def main():
    options = parse_options(time.time())
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    log = Log(out / "train.log", options.start)
    token_shares = {}
    for letter in options.phases:
        for length, share in PHASES[letter].lengths.items():
            token_shares[length] = token_shares.get(length, 0) + share * PHASES[letter].share
    if options.drafters_until:
        token_shares.setdefault(512, sum(token_shares.values()) or 1.0)
    feed = Feed(options.seed, token_shares, options.tokenizer, options.workers)
    cases = heldout_cases(options.tokenizer, options.cases)
    by_hand = file_cases(options.tokenizer, HERE / "prompts" / "handwritten.jsonl")
    log(f"{len(cases)} held-out cases, {len(by_hand)} written by hand")

    torch.manual_seed(options.seed)
    config = Config.load(options.config)
    model = Model(config)
    if options.resume:
        model.load_state_dict(load_state(options.resume, "trunk"))
    model.to(options.device)
    log(f"{sum(p.numel() for p in model.parameters())} parameters on {options.device}")
    if torch.device(options.device).type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        Piece.compile_all()

    def evaluate(when, mode):
        mode = dataclasses.replace(mode, select=True, index_loss=False, balance=0.0)
        for title, some in (("held out", cases), ("by hand", by_hand)):
            table = scores(some, exact_matches(model, some, mode, options.device))
            right, total = (sum(column) for column in zip(*table.values()))
            log(f"{when}, {title}: {100 * right / total:.1f} %:", percent_line(table))

    dtype = stream_dtype(options.device)
    final = Mode(True, False, True, True, 0.0, dtype)
    if options.phases:
        train_trunk(model, feed, options.phases, options, log, evaluate)
    evaluate("end of the trunk", final)
    evaluate("the same without roundings", Mode(dtype=dtype))
    report_samples(model, cases, final, options, out / "samples-heldout.jsonl")
    report_samples(model, by_hand, final, options, out / "samples-by-hand.jsonl")
    log("samples written")
    if options.drafters_until:
        from demo.drafters import train_drafters

        Piece.use_compiled = False
        gc.collect()
        train_drafters(model, feed, final, cases, options, log)
    feed.stop()
    log("done")


if __name__ == "__main__":
    main()
