"""The two drafters, trained together on the frozen trunk: DSpark (a block of five drafts at once) and MTP (one draft).

Both learn the trunk's own argmax, at the roundings that the engine uses. What they are is in docs/architecture.md; the
difference is that many rounds of a row are worked on at once: an anchor is the position of a round's seed token.
"""
import copy
import dataclasses
import math
import pathlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from demo.evaluate import autocast, run_rows
from demo.model import HIDDEN, STREAMS, WINDOW, Block, StreamHead, Tables, Trace, expand, matrix, ones, rms
from demo.optimiser import Optimiser
from demo.tensorfile import load_state, save_state

BLOCK = 5  # drafts of one round
STAGES, EXPERTS, MARKOV_RANK = 3, 4, 32
CAPTURED = (-3, -2, -1)  # trunk layers, counted from the end
MASK_TOKEN = "<｜place▁holder▁for▁copy｜>"  # never in a text; any such token would do
ROWS, LENGTH, ANCHORS = 48, 512, 12
SLOT_WEIGHTS = (1.0, 0.8, 0.64, 0.51, 0.41)
CONFIDENCE_WEIGHT = 0.2
RATE, WARM_UP_STEPS, CONSTANT_SHARE, LAST_RATE = 6e-3, 60, 0.6, 0.02


class Mtp(nn.Module):
    """One block over (trunk state at p-1, token at p); predicts the token at p+1."""

    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.e_proj, self.h_proj, self.enorm, self.hnorm = matrix(d, d), matrix(d, d), ones(d), ones(d)
        self.block = Block(config, 0, 0, hashed=False)
        self.hc_head, self.norm = StreamHead(config), ones(d)

    def forward(self, states, ids, trunk, tables, mode):
        """states [n, 4, D] after the trunk's last layer, ids [batch, length] to normed outputs [n, D]."""
        batch, length = ids.shape
        before = F.pad(states.view(batch, length, STREAMS, -1)[:, :-1], (0, 0, 0, 0, 1, 0)).reshape(states.shape)
        embedded = F.embedding(ids.reshape(-1), trunk.embed).to(mode.dtype)
        e = F.linear(rms(embedded, self.enorm), self.e_proj)
        streams = e[:, None] + F.linear(rms(before, self.hnorm), self.h_proj)
        # Position 0 has no trunk state before it, hence no row in the cache: hide it.
        tables = copy.copy(tables)
        tables.window = tables.window.clone()
        tables.window[0, :, :, WINDOW] = HIDDEN
        streams = self.block(streams.to(mode.dtype), ids.reshape(-1), tables, mode, Trace())
        return rms(self.hc_head(streams), self.norm)


class Dspark(nn.Module):
    """Three stages over a seed and four mask tokens. Context rows come from captured trunk states."""

    def __init__(self, config, mask_token):
        super().__init__()
        d = config.hidden_size
        self.config, self.mask_token = config, mask_token
        self.main_proj, self.main_norm = matrix(d, len(CAPTURED) * d), ones(d)
        self.stages = nn.ModuleList(Block(config, stage, 0, hashed=False) for stage in range(STAGES))
        self.hc_head, self.norm = StreamHead(config), ones(d)
        self.markov_w1 = nn.Parameter(torch.randn(config.vocab_size, MARKOV_RANK) * 0.2)
        self.markov_w2 = nn.Parameter(torch.randn(config.vocab_size, MARKOV_RANK) * 0.02)
        self.confidence = nn.Parameter(torch.zeros(d + MARKOV_RANK))

    def forward(self, features, ids, anchors, trunk, tables, mode):
        """features [n, 3 D] of all positions, anchors [batch, A] to (states before the norm, normed states), both
        [batch, A, 5, D]: slot i predicts the token at anchor + i + 1."""
        batch, length = ids.shape
        count, c = anchors.shape[1], self.config
        main = rms(F.linear(features, self.main_proj), self.main_norm)
        tokens = torch.full((batch, count, BLOCK), self.mask_token, device=ids.device, dtype=torch.long)
        tokens[:, :, 0] = ids.gather(1, anchors)
        tokens = tokens.reshape(-1)
        streams = F.embedding(tokens, trunk.embed).to(mode.dtype)[:, None].expand(-1, STREAMS, -1).contiguous()
        context = anchors[:, :, None] + torch.arange(-WINDOW, 0, device=ids.device)
        hidden = F.pad(context < 0, (0, BLOCK))[:, :, None, None]
        context = context.clamp_min(0).view(batch, -1, 1).expand(-1, -1, c.head_dim)
        places = (anchors[:, :, None] + torch.arange(BLOCK, device=ids.device)).clamp_max(length - 1).reshape(-1)
        here = tuple(table[:length][places] for table in tables.rotary[0])
        for stage in self.stages:
            attn = stage.attn
            rows = attn.rows(main, tables.rotary[0], mode).to(mode.dtype).view(batch, length, -1)
            x, post, mix = stage.hc_attn.read(streams, stage.attn_norm)
            queries = attn.queries(attn.latent(x), here).to(mode.dtype)
            queries = queries.view(batch, count, BLOCK, c.num_attention_heads, -1)
            own = attn.rows(x, here, mode).to(mode.dtype).view(batch, count, BLOCK, -1)
            keys = torch.cat([rows.gather(1, context).view(batch, count, WINDOW, -1), own], 2)
            logits = torch.einsum("bashp,bakp->bahsk", queries, keys).float().masked_fill(hidden, HIDDEN)
            sink = attn.attn_sink.view(1, 1, -1, 1, 1).expand(*logits.shape[:4], 1)
            p = torch.softmax(torch.cat([sink, logits], -1), -1)[..., 1:].to(mode.dtype)
            heads = torch.einsum("bahsk,bakp->bashp", p, keys).reshape(-1, c.num_attention_heads, c.head_dim)
            streams = expand(streams, attn.project(heads, here), post, mix)
            streams = stage.feed_forward(streams, tokens, mode)
        states = self.hc_head(streams)
        shape = (batch, count, BLOCK, -1)
        return states.view(shape), rms(states, self.norm).view(shape)

    def markov(self, previous):
        return F.embedding(previous, self.markov_w1)

    def corrected(self, base, markov):
        return base + markov @ self.markov_w2.T.to(markov.dtype)


def run_trunk(trunk, ids, tables, mode):
    """(last streams, argmax [batch, length], captured features [n, 3 D]) of the frozen trunk."""
    with torch.no_grad():
        trace = Trace()
        streams = trunk.streams(ids, tables, mode, trace)
        choice = trunk.logits(streams).argmax(-1).view(ids.shape)
        features = torch.cat([trace.states[layer].float().mean(1) for layer in CAPTURED], -1).to(mode.dtype)
    return streams, choice, features


class DrafterStep:
    """One step of both drafters, as a CUDA graph on a GPU."""

    def __init__(self, trunk, dspark, mtp, feed, mode, options):
        self.trunk, self.dspark, self.mtp, self.feed, self.options = trunk, dspark, mtp, feed, options
        self.trunk_mode, self.mode = mode, dataclasses.replace(mode, balance=1e-3)
        device = options.device
        named = list(dspark.named_parameters()) + list(mtp.named_parameters())
        self.optimiser = Optimiser(named, device)
        self.tables = Tables(trunk.config, ROWS, LENGTH, device)
        self.ids = torch.zeros(ROWS, LENGTH, dtype=torch.long, device=device)
        self.answers = torch.zeros(ROWS, LENGTH, device=device)
        self.anchors = torch.ones(ROWS, ANCHORS, dtype=torch.long, device=device)
        self.slots = torch.arange(BLOCK, device=device)
        self.slot_weights = torch.tensor(SLOT_WEIGHTS, device=device)
        self.stats = torch.zeros(3, device=device)
        self.graph = None
        if torch.device(device).type == "cuda":
            self.capture()

    def capture(self):
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
        with torch.cuda.graph(self.graph):
            self.body()

    def draw(self):
        ids, kinds = self.feed.rings[LENGTH].draw(ROWS)
        self.ids.copy_(ids)
        self.answers.copy_((kinds == 2).float())
        # An anchor is a token that an answer token follows; never position 0, never too close to the end. The tiny
        # weight elsewhere keeps a row without answers drawable; its losses have weight 0.
        weights = torch.roll(self.answers, -1, 1) + 1e-6
        weights[:, 0] = 0
        weights[:, LENGTH - BLOCK - 2 :] = 0
        self.anchors.copy_(torch.multinomial(weights, ANCHORS, replacement=True))

    def body(self):
        with autocast(self.options.device):
            loss = self.losses()
        loss.backward()
        self.optimiser.step()

    def losses(self):
        ids, anchors = self.ids, self.anchors
        states, choice, features = run_trunk(self.trunk, ids, self.tables, self.trunk_mode)
        hidden, normed = self.dspark(features, ids, anchors, self.trunk, self.tables, self.mode)
        base = F.linear(normed, self.trunk.head).float()
        places = anchors[:, :, None] + self.slots
        flat = places.flatten(1)
        previous, target = ids.gather(1, flat).view(places.shape), choice.gather(1, flat).view(places.shape)
        valid = torch.cumprod(self.answers.gather(1, flat + 1).view(places.shape), -1)
        markov = self.dspark.markov(previous)
        logits = self.dspark.corrected(base, markov)
        losses = F.cross_entropy(logits.flatten(0, 2), target.flatten(), reduction="none").view(places.shape)
        weights = valid * self.slot_weights
        loss = (losses * weights).sum() / weights.sum().clamp_min(1)
        # The confidence head learns the probability that the draft's distribution gives to the trunk's choice.
        width = hidden.shape[-1]
        z = hidden.float() @ self.dspark.confidence[:width] + markov.float() @ self.dspark.confidence[width:]
        p = torch.softmax(logits.detach(), -1).gather(-1, target[..., None])[..., 0]
        of_z = F.binary_cross_entropy_with_logits(z, p, reduction="none")
        of_confidence = (of_z * valid).sum() / valid.sum().clamp_min(1)
        out = F.linear(self.mtp(states, ids, self.trunk, self.tables, self.mode), self.trunk.head).float()
        follows = F.pad(self.answers[:, 1:], (0, 1)).flatten()
        of_mtp = F.cross_entropy(out, choice.flatten(), reduction="none")
        of_mtp = (of_mtp * follows).sum() / follows.sum().clamp_min(1)
        self.stats.copy_(torch.stack([loss.detach(), of_mtp.detach(), of_confidence.detach()]))
        return loss + CONFIDENCE_WEIGHT * of_confidence + of_mtp

    def __call__(self):
        self.draw()
        if self.graph:
            self.graph.replay()
        else:
            self.optimiser.clear()
            self.body()


def acceptance(trunk, dspark, mtp, cases, mode, device):
    """Rounds seeded at every token of the known answers, where these are the trunk's own choice. Returns
    {skill: [rounds, drafts accepted of DSpark's five, MTP drafts, MTP drafts accepted]}; an answer ends a round."""
    table = {}
    usable = [case for case in cases if len(case.answers[0]) > 1 and len(case.prompt) < 1600]
    rows = [case.prompt + case.answers[0] for case in usable]

    def visit(batch, ids, tables, mode):
        states, choice, features = run_trunk(trunk, ids, tables, mode)
        seeds = [list(range(len(usable[i].prompt), len(rows[i]) - 1)) for i in batch]
        widest = max(len(s) for s in seeds)
        anchors = torch.tensor([(s * widest)[:widest] for s in seeds], device=ids.device)
        _, normed = dspark(features, ids, anchors, trunk, tables, mode)
        base = F.linear(normed, trunk.head).float()
        previous, drafts = ids.gather(1, anchors), []
        for slot in range(BLOCK):
            previous = dspark.corrected(base[:, :, slot], dspark.markov(previous)).argmax(-1)
            drafts.append(previous.cpu())
        single = F.linear(mtp(states, ids, trunk, tables, mode), trunk.head).argmax(-1).view(ids.shape).cpu()
        choice = choice.cpu()
        for at, index in enumerate(batch):
            row, counts = rows[index], table.setdefault(usable[index].skill, [0, 0, 0, 0])
            for a, seed in enumerate(seeds[at]):
                if int(choice[at, seed]) != row[seed + 1]:
                    continue  # the trunk itself leaves the known answer here
                counts[0] += 1
                for slot in range(min(BLOCK, len(row) - 1 - seed)):
                    if int(drafts[slot][at, a]) != row[seed + slot + 1]:
                        break
                    counts[1] += 1
                counts[2] += 1
                counts[3] += int(single[at, seed]) == row[seed + 1]

    run_rows(trunk, rows, mode, device, visit)
    return table


def train_drafters(trunk, feed, mode, cases, options, log):
    from demo.data.encode import Encoder

    for parameter in trunk.parameters():
        parameter.requires_grad_(False)
    device = options.device
    config = dataclasses.replace(trunk.config, n_routed_experts=EXPERTS)
    mask_token = Encoder(options.tokenizer).encode(MASK_TOKEN)
    if len(mask_token) != 1:
        raise ValueError(f"{options.tokenizer}: {MASK_TOKEN} must be one token")
    dspark, mtp = Dspark(config, mask_token[0]), Mtp(config)
    if options.resume and (pathlib.Path(options.resume) / "dspark-0.safetensors").exists():
        dspark.load_state_dict(load_state(options.resume, "dspark"))
        mtp.load_state_dict(load_state(options.resume, "mtp"))
    dspark.to(device)
    mtp.to(device)
    sizes = [sum(p.numel() for p in drafter.parameters()) for drafter in (dspark, mtp)]
    log(f"drafters: DSpark {sizes[0]} parameters, MTP {sizes[1]}")
    feed.wait_for([LENGTH], device)
    step = DrafterStep(trunk, dspark, mtp, feed, mode, options)
    begin, count, next_line = time.time(), 0, 0.0
    total = max(1e-3, options.start + options.drafters_until - begin)
    while (progress := (time.time() - begin) / total) < 1:
        decay = max(LAST_RATE, (1 - progress) / (1 - CONSTANT_SHARE)) if progress > CONSTANT_SHARE else 1.0
        step.optimiser.set_rate(RATE * min(1.0, (count + 1) / WARM_UP_STEPS) * decay)
        for _ in range(10 if step.graph else 1):
            step()
            count += 1
        feed.pull(device)
        numbers = step.stats.tolist()  # waits for the steps
        if time.time() - begin > next_line:
            next_line = time.time() - begin + 8
            log(f"drafters, step {count}", dict(zip(("dspark", "mtp", "confidence"), numbers)))
            if not all(math.isfinite(number) for number in numbers):
                raise FloatingPointError("a drafter's loss is not finite")
    out = pathlib.Path(options.out)
    save_state(out, "dspark", dspark.state_dict())
    save_state(out, "mtp", mtp.state_dict())
    with torch.no_grad():
        table = acceptance(trunk, dspark, mtp, cases, mode, device)
    for skill, (rounds, accepted, singles, right) in table.items():
        if rounds:
            log(f"accepted, {skill}: DSpark {accepted / rounds:.2f} of 5, MTP {100 * right / singles:.1f} %")
