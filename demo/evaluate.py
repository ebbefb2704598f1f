"""Greedy exact match by teacher forcing: when every argmax over a known answer and its end token is right, greedy
decoding would have produced exactly that answer. One pass over all cases takes about a second.
"""
import contextlib
import dataclasses

import torch

from demo.model import Tables

BATCH_TOKENS = 32768


@dataclasses.dataclass
class Case:
    skill: str
    name: str
    prompt: list  # token ids
    answers: list  # accepted answers, each token ids with the end token


def _length(size):
    """Row lengths are rounded up in few steps, so that cases share batches."""
    length = 128
    while length < size:
        length += 128 if length < 1024 else 512
    return length


def run_rows(model, rows, mode, device, visit):
    """Pads rows of ids of any lengths into batches and calls visit(row indices, ids, tables, mode) for each."""
    by_length = {}
    for index, row in enumerate(rows):
        by_length.setdefault(_length(len(row)), []).append(index)
    for length, indices in sorted(by_length.items()):
        size = max(1, BATCH_TOKENS // length)
        for begin in range(0, len(indices), size):
            batch = indices[begin : begin + size]
            ids = torch.zeros(len(batch), length, dtype=torch.long)
            for at, index in enumerate(batch):
                ids[at, : len(rows[index])] = torch.tensor(rows[index])
            ids = ids.to(device)
            tables = Tables(model.config, len(batch), length, device)
            with torch.no_grad(), autocast(device):
                visit(batch, ids, tables, mode)


def autocast(device):
    """bfloat16 matrix products on a GPU, nothing on a CPU."""
    if torch.device(device).type != "cuda":
        return contextlib.nullcontext()
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


def exact_matches(model, cases, mode, device):
    """For every case (index of the accepted answer that greedy decoding produces or None, the argmaxes over the first
    answer: what the model says as long as it follows that answer)."""
    rows = [(c, a) for c, case in enumerate(cases) for a in range(len(case.answers))]
    matched, said = [None] * len(cases), [None] * len(cases)

    def visit(batch, ids, tables, mode):
        best = model.logits(model.streams(ids, tables, mode)).argmax(-1).view(ids.shape).tolist()
        for at, index in enumerate(batch):
            c, a = rows[index]
            begin, answer = len(cases[c].prompt) - 1, cases[c].answers[a]
            output = best[at][begin : begin + len(answer)]
            if output == list(answer):
                matched[c] = a
            if a == 0:
                said[c] = output

    run_rows(model, [cases[c].prompt + cases[c].answers[a] for c, a in rows], mode, device, visit)
    return list(zip(matched, said))


def scores(cases, results):
    """{skill: (right, all)} in order of first appearance, from the results of exact_matches."""
    table = {}
    for case, (match, _) in zip(cases, results):
        right, total = table.get(case.skill, (0, 0))
        table[case.skill] = (right + (match is not None), total + 1)
    return table
