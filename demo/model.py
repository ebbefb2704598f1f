"""The demo model: DeepSeek V4 in small, as a parallel forward pass over whole rows for training.

The mathematics are those of the engine (docs/architecture.md); what differs is only that all positions of a row are
computed at once, so visibility becomes masks: a query sees its window of 128 as two blocks of 128 keys, and every
finished compressed row. `verify.py` holds this file to golden logits made by independent implementations.

Everything that works token by token is a "piece": a function over flat [tokens, ...] tensors. Training uses the same
number of tokens a step for every row length, so a compiled piece serves all lengths.
"""
import dataclasses
import json
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from demo.rounding import hadamard, round_experts, round_fp4, round_row
from demo.sinkhorn import sinkhorn

EPSILON = 1e-6
STREAMS = 4
WINDOW = 128  # the window, and the block length of the attention below; fixed by the architecture
HIDDEN = -1e30  # a masked logit; exp of it is exactly 0


@dataclasses.dataclass(frozen=True)
class Config:
    """The fields of a DeepSeek V4 config.json that a forward pass needs."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    n_routed_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    num_hash_layers: int
    compress_ratios: tuple
    hc_sinkhorn_iters: int = 20
    routed_scaling_factor: float = 1.5
    swiglu_limit: float = 10.0
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    rope_factor: float = 16.0
    rope_original: int = 65536
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        yarn = values["rope_scaling"]
        values.update(rope_factor=yarn["factor"], rope_original=yarn["original_max_position_embeddings"])
        values.update(beta_fast=yarn["beta_fast"], beta_slow=yarn["beta_slow"])
        values["compress_ratios"] = tuple(values["compress_ratios"])
        if values["sliding_window"] != WINDOW or values["hc_mult"] != STREAMS:
            raise ValueError(f"{path}: sliding_window must be {WINDOW} and hc_mult {STREAMS}")
        return cls(**{field.name: values[field.name] for field in dataclasses.fields(cls) if field.name in values})

    @property
    def plain_channels(self):
        """Channels of a head without rotary; a cached row is rounded to fp8 in these."""
        return self.head_dim - self.qk_rope_head_dim


@dataclasses.dataclass
class Mode:
    """What a forward pass does besides the plain mathematics."""

    select: bool = True  # ratio-4 layers attend to the indexer's top-k rows, not to all
    index_loss: bool = False  # collect the indexer's loss
    round_rows: bool = False  # fp8 cached rows, Hadamard + fp4 in the indexer
    round_experts: bool = False  # MXFP4 routed experts
    balance: float = 0.0  # step of the router bias towards equal load; 0: leave it
    dtype: torch.dtype = torch.float32  # of the streams


# ---- pieces ---------------------------------------------------------------------------------------------------------


class Piece:
    """A function over flat tensors that can be compiled for training's one static shape."""

    registry = []
    use_compiled = False

    def __init__(self, function):
        self.eager, self.compiled = function, None
        Piece.registry.append(self)

    def __call__(self, *arguments):
        if Piece.use_compiled and torch.is_grad_enabled():  # other shapes occur in evaluation only: not worth compiling
            return self.compiled(*arguments)
        return self.eager(*arguments)

    @classmethod
    def compile_all(cls):
        torch._dynamo.config.recompile_limit = 128
        for piece in cls.registry:
            piece.compiled = torch.compile(piece.eager, dynamic=False)
        cls.use_compiled = True


def wide(x):
    return x if x.dtype == torch.float64 else x.float()


@Piece
def rms(x, weight):
    """x [n, width] to unit root-mean-square, times weight [width]."""
    v = wide(x)
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPSILON) * weight).to(x.dtype)


def rotate_plain(x, cos, sin):
    """Rotates the last channels of x [n, width] or [n, heads, width] in adjacent pairs; cos, sin [n, pairs]."""
    pairs = cos.shape[-1]
    if x.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    v = wide(x[..., x.shape[-1] - 2 * pairs :]).unflatten(-1, (pairs, 2))
    a, b = v[..., 0], v[..., 1]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)
    return torch.cat([x[..., : x.shape[-1] - 2 * pairs], turned], -1)


rotate = Piece(rotate_plain)


@Piece
def rotate_normed(q, cos, sin):
    """Query heads [n, heads, width]: to unit root-mean-square without weight, then rotated."""
    v = wide(q)
    v = (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPSILON)).to(q.dtype)
    return rotate_plain(v, cos, sin)


@Piece
def normed_coefficients(streams, projected):
    """projected [n, rows] of streams [n, 4, D], divided by the streams' common root-mean-square."""
    return wide(projected) * torch.rsqrt(wide(streams).square().mean((1, 2)) + EPSILON)[:, None]


@Piece
def split_coefficients(m, scale, base):
    pre = torch.sigmoid(m[:, :4] * scale[0] + base[:4]) + EPSILON
    post = 2 * torch.sigmoid(m[:, 4:8] * scale[1] + base[4:8])
    return pre, post, m[:, 8:] * scale[2] + base[8:]


@Piece
def collapse(streams, pre):
    return (pre[:, :, None] * wide(streams)).sum(1).to(streams.dtype)


@Piece
def collapse_normed(streams, pre, weight):
    u = (pre[:, :, None] * wide(streams)).sum(1)
    return (u * torch.rsqrt(u.square().mean(-1, keepdim=True) + EPSILON) * weight).to(streams.dtype)


@Piece
def expand(streams, y, post, mix):
    """The next streams [n, 4, D]: post times the sublayer's output y, plus the old streams mixed by [n, from, to]."""
    kept = (mix[:, :, :, None] * streams[:, :, None, :].to(mix.dtype)).sum(1)
    return (post[:, :, None] * y[:, None, :].to(mix.dtype) + kept).to(streams.dtype)


@Piece
def swiglu(gate_up, weights, limit):
    """gate_up [n, 2*experts*F], weights [n, experts] to the weighted inner values [n, experts*F]."""
    parts = gate_up.view(gate_up.shape[0], 2, weights.shape[1], -1)
    gate, up = wide(parts[:, 0]).clamp(max=limit), wide(parts[:, 1]).clamp(-limit, limit)
    return (F.silu(gate) * up * weights[:, :, None]).to(gate_up.dtype).flatten(1)


@Piece
def pool(gates, values):
    """Softmax over the candidates [n, candidates, width], a separate one for every channel."""
    return (torch.softmax(wide(gates), 1) * wide(values)).sum(1)


@Piece
def token_losses(logits, targets):
    return F.cross_entropy(wide(logits), targets, reduction="none")


rounded_experts = Piece(round_experts)


# ---- parameters and tables ------------------------------------------------------------------------------------------


def matrix(*shape, gain=1.0):
    return nn.Parameter(torch.randn(*shape) * gain / math.sqrt(shape[-1]))


def ones(size):
    return nn.Parameter(torch.ones(size))


def frequencies(config, ratio):
    """Rotary frequencies in float64: plain for ratio 0, YaRN over the larger theta for compressed layers."""
    width = config.qk_rope_head_dim
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    if ratio == 0:
        return config.rope_theta**-exponents
    theta = config.compress_rope_theta

    def correction(turns):
        return width * math.log(config.rope_original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(correction(config.beta_fast)), 0)
    high = min(math.ceil(correction(config.beta_slow)), width - 1)
    plain = theta**-exponents
    ramp = ((torch.arange(width // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return plain / config.rope_factor * ramp + plain * (1 - ramp)


def angles(config, ratio, positions, dtype):
    """cos and sin [..., pairs] at integer positions. The angle is one float32 product, as the engine makes it;
    a float64 model gets float64 angles."""
    f = frequencies(config, ratio).to(positions.device)
    angle = positions[..., None].double() * f if dtype == torch.float64 else (positions[..., None].float() * f.float())
    angle = angle.double()
    return angle.cos().to(dtype), angle.sin().to(dtype)


class Tables:
    """What depends on the shape of a batch alone: rotary tables and masks. length must be a multiple of 128."""

    def __init__(self, config, batch, length, device, dtype=torch.float32):
        self.batch, self.length, self.blocks = batch, length, length // WINDOW
        positions = torch.arange(length, device=device)
        self.rotary, self.row_rotary, self.visible = {}, {}, {}
        for ratio in (0, 4):
            self.rotary[ratio] = tuple(t.repeat(batch, 1) for t in angles(config, ratio, positions, dtype))
        self.rotary[128] = self.rotary[4]
        for ratio in (4, 128):
            starts = positions[::ratio]
            self.row_rotary[ratio] = tuple(t.repeat(batch, 1) for t in angles(config, ratio, starts, dtype))
            finished = (positions + 1) // ratio
            self.visible[ratio] = torch.arange(length // ratio, device=device)[None] < finished[:, None]
        query = torch.arange(WINDOW, device=device)[:, None]
        key = torch.arange(2 * WINDOW, device=device)[None]
        seen = ((key <= query + WINDOW) & (key > query))[None].repeat(self.blocks, 1, 1)
        seen[0, :, :WINDOW] = False  # the first block has none before it
        self.window = torch.zeros(seen.shape, device=device, dtype=dtype).masked_fill_(~seen, HIDDEN)[:, None]


class Trace:
    """What a forward pass leaves besides its result."""

    def __init__(self):
        self.index_losses = []
        self.states = []  # the streams after every layer, for the drafters


# ---- layers ---------------------------------------------------------------------------------------------------------


class HyperConnection(nn.Module):
    """Reads one sublayer's input from four streams and writes its output back. Sublayer n starts by reading mostly
    stream n mod 4 and by leaving the streams nearly unmixed."""

    def __init__(self, config, sublayer):
        super().__init__()
        self.iterations = config.hc_sinkhorn_iters
        self.fn = nn.Parameter(torch.randn(8 + STREAMS * STREAMS, STREAMS * config.hidden_size) * 0.02)
        base = torch.full((8 + STREAMS * STREAMS,), -1.5)
        base[sublayer % STREAMS] = 1.0
        base[4:8] = torch.tensor([0.0, 0.2, -0.2, 0.1])
        base[8:] = (torch.eye(STREAMS) * 4.0).flatten()
        self.base = nn.Parameter(base)
        self.scale = nn.Parameter(torch.full((3,), 0.1))

    def read(self, streams, norm):
        """streams [n, 4, D] to (normed input [n, D], post [n, 4], mix [n, 4, 4])."""
        pre, post, logits = split_coefficients(coefficients(streams, self.fn), self.scale, self.base)
        mix = sinkhorn(logits.unflatten(1, (STREAMS, STREAMS)), self.iterations)
        return collapse_normed(streams, pre, norm), post, mix


class StreamHead(nn.Module):
    """Collapses the four streams into the vector that the output matrix sees."""

    def __init__(self, config):
        super().__init__()
        self.fn = nn.Parameter(torch.randn(STREAMS, STREAMS * config.hidden_size) * 0.02)
        self.base = nn.Parameter(torch.full((STREAMS,), -1.1))
        self.scale = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, streams):
        m = coefficients(streams, self.fn)
        return collapse(streams, torch.sigmoid(m * self.scale[0] + self.base) + EPSILON)


def coefficients(streams, fn):
    with torch.autocast(streams.device.type, enabled=False):
        return normed_coefficients(streams, streams.flatten(1) @ fn.to(streams.dtype).T)


class Compressor(nn.Module):
    """Pools every `ratio` tokens into one row; at ratio 4 each row also takes half A of the four tokens before."""

    def __init__(self, config, ratio, width):
        super().__init__()
        self.ratio, self.width = ratio, width
        channels = 2 * width if ratio == 4 else width
        self.wkv, self.wgate = matrix(channels, config.hidden_size), matrix(channels, config.hidden_size, gain=0.5)
        self.ape = nn.Parameter(torch.randn(ratio, channels) * (0.02 if ratio == 128 else 0.0))
        self.norm = ones(width)

    def forward(self, a, tables):
        """a [n, D] to rotated rows [n / ratio, width] in float32 or wider."""
        grouped = (tables.batch, tables.length // self.ratio, self.ratio, -1)
        values = F.linear(a, self.wkv).view(grouped)
        gates = F.linear(a, self.wgate).view(grouped) + self.ape
        if self.ratio == 4:
            w = self.width
            before = (0, 0, 0, 0, 1, 0)  # row 0 has no window before it
            values = torch.cat([F.pad(values[:, :-1, :, :w], before), values[..., w:]], 2)
            gates = torch.cat([F.pad(gates[:, :-1, :, :w], before, value=HIDDEN), gates[..., w:]], 2)
        pooled = pool(gates.flatten(0, 1), values.flatten(0, 1))
        return rotate(rms(pooled, self.norm), *tables.row_rotary[self.ratio])


class Indexer(nn.Module):
    """Scores compressed rows for every query. It learns from the attention; nothing flows back into the trunk."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wq_b = matrix(config.index_n_heads * config.index_head_dim, config.q_lora_rank)
        self.weights_proj = matrix(config.index_n_heads, config.hidden_size)
        self.compressor = Compressor(config, 4, config.index_head_dim)
        self.register_buffer("hadamard", hadamard(config.index_head_dim), persistent=False)

    def forward(self, a, latent, tables, mode):
        """Scores [batch, length, rows]; rows that a query does not see yet score HIDDEN."""
        c, batch, length = self.config, tables.batch, tables.length
        a, latent = a.detach(), latent.detach()
        keys = self.compressor(a, tables)
        queries = F.linear(latent, self.wq_b).view(-1, c.index_n_heads, c.index_head_dim)
        queries = rotate(queries, *tables.rotary[4])
        if mode.round_rows:
            keys = round_fp4(keys @ self.hadamard.to(keys.dtype))
            queries = round_fp4(queries @ self.hadamard.to(queries.dtype))
        weights = F.linear(a, self.weights_proj) * (1 / math.sqrt(c.index_n_heads * c.index_head_dim))
        queries = queries.view(batch, length, c.index_n_heads, -1).to(a.dtype)
        dots = torch.einsum("bthp,bcp->bthc", queries, keys.view(batch, length // 4, -1).to(a.dtype))
        scores = torch.einsum("bthc,bth->btc", torch.relu(dots), weights.view(batch, length, -1).to(dots.dtype))
        return wide(scores).masked_fill(~tables.visible[4], HIDDEN)

    def select(self, scores, visible):
        """The rows among the visible ones with the largest scores, as a mask."""
        with torch.no_grad():
            best = scores.topk(self.config.index_topk, -1).indices
            return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & visible


def index_loss(scores, kept, mass):
    """Cross-entropy of the indexer's distribution over the kept rows against the attention mass [b, t, rows] on them.
    Queries weigh as much as they look at compressed rows, so those that do not look far stay silent."""
    log_p = torch.log_softmax(scores.masked_fill(~kept, HIDDEN), -1).masked_fill(~kept, 0)
    return -(mass * log_p).sum(-1).mean() / (mass.sum(-1).mean() + 1e-3)


class Attention(nn.Module):
    def __init__(self, config, ratio):
        super().__init__()
        self.config, self.ratio = config, ratio
        c, heads_width = config, config.num_attention_heads * config.head_dim
        self.wq_a, self.q_norm = matrix(c.q_lora_rank, c.hidden_size), ones(c.q_lora_rank)
        self.wq_b = matrix(heads_width, c.q_lora_rank)
        self.wkv, self.kv_norm = matrix(c.head_dim, c.hidden_size), ones(c.head_dim)
        self.attn_sink = nn.Parameter(torch.zeros(c.num_attention_heads))
        self.wo_a = matrix(c.o_groups * c.o_lora_rank, heads_width // c.o_groups)
        self.wo_b = matrix(c.hidden_size, c.o_groups * c.o_lora_rank, gain=0.3)
        self.compressor = Compressor(c, ratio, c.head_dim) if ratio else None
        self.indexer = Indexer(c) if ratio == 4 else None

    def latent(self, a):
        return rms(F.linear(a, self.wq_a), self.q_norm)

    def queries(self, latent, rotary):
        """Query heads [n, heads, head_dim], already scaled for the softmax."""
        c = self.config
        q = rotate_normed(F.linear(latent, self.wq_b).view(-1, c.num_attention_heads, c.head_dim), *rotary)
        return q * (1 / math.sqrt(c.head_dim))

    def rows(self, a, rotary, mode):
        """One cached row [n, head_dim] a token: key and value of all heads."""
        kv = rotate(rms(F.linear(a, self.wkv), self.kv_norm), *rotary)
        return round_row(kv, self.config.plain_channels) if mode.round_rows else kv

    def project(self, heads, rotary):
        """Attention results [n, heads, head_dim] to [n, D]: rotated back, then the grouped low-rank projection."""
        c = self.config
        cos, sin = rotary
        grouped = rotate(heads, cos, -sin).reshape(heads.shape[0], c.o_groups, -1)
        weights = self.wo_a.view(c.o_groups, c.o_lora_rank, -1).to(grouped.dtype)
        return F.linear(torch.einsum("ngi,gri->ngr", grouped, weights).flatten(1), self.wo_b)

    def forward(self, a, tables, mode, trace):
        c, batch, blocks, dtype = self.config, tables.batch, tables.blocks, a.dtype
        rotary, length = tables.rotary[self.ratio], tables.length
        latent = self.latent(a)
        q = self.queries(latent, rotary).view(batch, blocks, WINDOW, c.num_attention_heads, c.head_dim).to(dtype)
        own = self.rows(a, rotary, mode).view(batch, blocks, WINDOW, c.head_dim).to(dtype)
        keys = torch.cat([F.pad(own[:, :-1], (0, 0, 0, 0, 1, 0)), own], 2)  # the block before, then the own block
        near = wide(torch.einsum("bnqhp,bnkp->bnhqk", q, keys)) + tables.window
        sink = self.attn_sink.to(near.dtype).view(1, 1, -1, 1, 1).expand(*near.shape[:4], 1)
        logits = [sink, near]
        if self.ratio:
            compressed = self.compressor(a, tables)
            if mode.round_rows:
                compressed = round_row(compressed, c.plain_channels)
            compressed = compressed.view(batch, length // self.ratio, c.head_dim).to(dtype)
            far = wide(torch.einsum("bnqhp,bcp->bnhqc", q, compressed))
            kept, scores = self.kept_rows(a, latent, tables, mode)
            logits.append(far.masked_fill(~kept.view(-1, blocks, 1, WINDOW, far.shape[-1]), HIDDEN))
        p = torch.softmax(torch.cat(logits, -1), -1)
        out = torch.einsum("bnhqk,bnkp->bnqhp", p[..., 1 : 1 + 2 * WINDOW].to(dtype), keys)
        if self.ratio:
            p_far = p[..., 1 + 2 * WINDOW :]
            out = out + torch.einsum("bnhqc,bcp->bnqhp", p_far.to(dtype), compressed)
            if scores is not None and mode.index_loss:
                mass = p_far.detach().mean(2).reshape(batch, length, -1)
                trace.index_losses.append(index_loss(scores, kept, mass))
        return self.project(out.reshape(batch * length, c.num_attention_heads, c.head_dim), rotary)

    def kept_rows(self, a, latent, tables, mode):
        """(mask [1 or batch, length, rows] of the compressed rows each query attends to, indexer scores or None)."""
        visible = tables.visible[self.ratio][None]
        selects = self.ratio == 4 and mode.select and visible.shape[-1] > self.config.index_topk
        if not selects and not (self.ratio == 4 and mode.index_loss):
            return visible, None
        scores = self.indexer(a, latent, tables, mode)
        return (self.indexer.select(scores, visible) if selects else visible), scores


class Experts(nn.Module):
    """Routed experts and the shared one, all computed densely: at this size that is cheaper than any gather.
    The shared expert is the last of the stack, with weight 1."""

    def __init__(self, config, hashed):
        super().__init__()
        self.config, self.hashed = config, hashed
        c, stack = config, config.n_routed_experts + 1
        self.gate = matrix(c.n_routed_experts, c.hidden_size)
        self.w1 = matrix(stack, c.moe_intermediate_size, c.hidden_size)
        self.w3 = matrix(stack, c.moe_intermediate_size, c.hidden_size)
        self.w2 = matrix(stack, c.hidden_size, c.moe_intermediate_size, gain=0.5)
        if hashed:
            table = [torch.randperm(c.n_routed_experts)[: c.num_experts_per_tok] for _ in range(c.vocab_size)]
            self.register_buffer("tid2eid", torch.stack(table))
        else:
            self.register_buffer("bias", torch.zeros(c.n_routed_experts))

    def forward(self, x, ids, mode):
        """x [n, D], ids [n] to [n, D]."""
        c = self.config
        with torch.autocast(x.device.type, enabled=False):
            p = torch.sqrt(F.softplus(wide(x) @ self.gate.T))
        chosen = self.tid2eid[ids] if self.hashed else (p + self.bias).topk(c.num_experts_per_tok, -1).indices
        used = torch.zeros_like(p).scatter_(-1, chosen, 1.0)
        if not self.hashed and mode.balance:
            self.balance(used, mode.balance)
        p = p * used
        weights = c.routed_scaling_factor * p / p.sum(-1, keepdim=True).clamp_min(2.0**-14)
        weights = torch.cat([weights, torch.ones_like(weights[:, :1])], 1)
        w1, w3, w2 = (self.stack(w, mode) for w in (self.w1, self.w3, self.w2))
        gate_up = F.linear(x, torch.cat([w1.flatten(0, 1), w3.flatten(0, 1)], 0))
        return F.linear(swiglu(gate_up, weights, c.swiglu_limit), w2.permute(1, 0, 2).reshape(c.hidden_size, -1))

    def stack(self, w, mode):
        return torch.cat([rounded_experts(w[:-1]), w[-1:]], 0) if mode.round_experts else w

    def balance(self, used, step):
        """Moves the selection bias towards equal load. Its mean is taken off, as it would drift without effect."""
        with torch.no_grad():
            load = used.mean(0)
            self.bias.add_(torch.sign(load.mean() - load) * step)
            self.bias.sub_(self.bias.mean())


class Block(nn.Module):
    def __init__(self, config, layer, ratio, hashed):
        super().__init__()
        self.attn_norm, self.ffn_norm = ones(config.hidden_size), ones(config.hidden_size)
        self.hc_attn, self.hc_ffn = HyperConnection(config, 2 * layer), HyperConnection(config, 2 * layer + 1)
        self.attn, self.ffn = Attention(config, ratio), Experts(config, hashed)

    def forward(self, streams, ids, tables, mode, trace):
        x, post, mix = self.hc_attn.read(streams, self.attn_norm)
        streams = expand(streams, self.attn(x, tables, mode, trace), post, mix)
        return self.feed_forward(streams, ids, mode)

    def feed_forward(self, streams, ids, mode):
        x, post, mix = self.hc_ffn.read(streams, self.ffn_norm)
        return expand(streams, self.ffn(x, ids, mode), post, mix)


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * 0.4)
        self.layers = nn.ModuleList(
            Block(config, layer, config.compress_ratios[layer], layer < config.num_hash_layers)
            for layer in range(config.num_hidden_layers)
        )
        self.hc_head, self.norm = StreamHead(config), ones(config.hidden_size)
        self.head = matrix(config.vocab_size, config.hidden_size, gain=0.5)

    def streams(self, ids, tables, mode, trace=None):
        """ids [batch, length] to the four streams after the last layer, [batch*length, 4, D]."""
        trace = trace or Trace()
        flat = ids.reshape(-1)
        embedded = F.embedding(flat, self.embed).to(mode.dtype)
        streams = embedded[:, None, :].expand(-1, STREAMS, -1).contiguous()
        for layer in self.layers:
            streams = layer(streams, flat, tables, mode, trace)
            trace.states.append(streams)
        return streams

    def logits(self, streams):
        return F.linear(rms(self.hc_head(streams), self.norm), self.head)
