"""Training rows: generator processes fill a queue, a thread empties it, and rings of rows wait on the GPU.

Generation is several times faster than training, so a step draws rows at random from the ring of its length, which new
rows keep overwriting. `report()` says how many rows were generated and drawn: fewer generated than drawn by a large
factor would mean that the model sees the same rows again and again.
"""
import collections
import multiprocessing
import threading
import time

import numpy as np
import torch

ITEM_TOKENS = 32768
RING_TOKENS = 32 << 20


def _generate(seed, lengths, shares, tokenizer, queue):
    from demo.data.corpus import Corpus
    from demo.data.encode import Encoder

    corpus, choose = Corpus(seed, Encoder(tokenizer)), np.random.default_rng(seed)
    while True:
        length = int(choose.choice(lengths, p=shares))
        rows = [corpus.row(length) for _ in range(max(1, ITEM_TOKENS // length))]
        ids, kinds = (np.stack([row[part] for row in rows]) for part in (0, 1))
        queue.put((length, ids.astype(np.int16), kinds.astype(np.uint8)))


class Feed:
    """Start it before CUDA is touched: its processes are forks."""

    WAITING_ITEMS = 600

    def __init__(self, seed, shares, tokenizer, workers):
        """shares {length: share of the tokens to generate}."""
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(maxsize=128)
        total = sum(shares.values())
        lengths, p = list(shares), [share / total for share in shares.values()]
        arguments = [(1000 * seed + worker, lengths, p, tokenizer, self.queue) for worker in range(workers)]
        self.processes = [context.Process(target=_generate, args=a, daemon=True) for a in arguments]
        for process in self.processes:
            process.start()
        self.items = collections.deque()
        self.rings = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        # A thread that blocks: polling a process queue without waiting finds it empty most of the time.
        while True:
            if len(self.items) >= self.WAITING_ITEMS:
                time.sleep(0.01)
            else:
                self.items.append(self.queue.get())

    def pull(self, device, most=40):
        """Moves up to `most` waiting items into the rings."""
        for _ in range(min(most, len(self.items))):
            length, ids, kinds = self.items.popleft()
            if length not in self.rings:
                self.rings[length] = Ring(length, device)
            self.rings[length].add(ids, kinds)

    def wait_for(self, lengths, device, rows=64):
        while any(length not in self.rings or self.rings[length].count < rows for length in lengths):
            if not any(process.is_alive() for process in self.processes):
                raise RuntimeError("all generator processes have ended")
            self.pull(device)
            time.sleep(0.02)

    def report(self):
        return {length: (ring.generated, ring.drawn) for length, ring in sorted(self.rings.items())}

    def stop(self):
        for process in self.processes:
            process.kill()


class Ring:
    def __init__(self, length, device):
        self.capacity = max(64, RING_TOKENS // length)
        self.ids = torch.zeros(self.capacity, length, dtype=torch.int16, device=device)
        self.kinds = torch.zeros(self.capacity, length, dtype=torch.uint8, device=device)
        self.count = self.at = self.generated = self.drawn = 0

    def add(self, ids, kinds):
        if self.at + len(ids) > self.capacity:
            self.at = 0
        place = slice(self.at, self.at + len(ids))
        self.ids[place] = torch.from_numpy(ids).to(self.ids.device, non_blocking=True)
        self.kinds[place] = torch.from_numpy(kinds).to(self.kinds.device, non_blocking=True)
        self.at += len(ids)
        self.count = max(self.count, self.at)
        self.generated += len(ids)

    def draw(self, rows):
        """(ids int64, kinds uint8) [rows, length], at random with replacement."""
        self.drawn += rows
        chosen = torch.randint(0, self.count, (rows,), device=self.ids.device)
        return self.ids[chosen].long(), self.kinds[chosen]
