"""Muon for matrices, AdamW for the rest, in tensors only: a step can be captured in a CUDA graph.

Rates are device tensors that the training loop fills. All parameters of a group are worked on at once: a model of
this size is a few hundred small tensors, and one kernel for each of them would cost more than the mathematics.
"""
import math

import torch

# Never with Muon: tables of rows (embedding, head, Markov), coefficients, and the indexer. Some steps give the indexer
# no gradient, and Muon would go on moving it along stale momentum at full size.
NOT_MUON = ("embed", "head", "fn", "ape", "gate", "markov", "confidence", "indexer")


class Muon:
    """Momentum, orthogonalised by five Newton-Schulz steps. A stack of experts is a batch of matrices.
    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024."""

    MOMENTUM, DECAY = 0.95, 0.05

    def __init__(self, parameters, device):
        self.rate = torch.zeros((), device=device)
        self.half = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
        self.groups = {}
        for p in parameters:
            sides = p.shape[-2:]
            self.groups.setdefault((min(sides), max(sides)), []).append(p)
        self.momenta = {
            shape: torch.zeros(sum(p.numel() for p in group) // (shape[0] * shape[1]), *shape, device=device)
            for shape, group in self.groups.items()
        }

    @staticmethod
    def _orient(matrix, short):
        """With the shorter side first."""
        return matrix if matrix.shape[-2] == short else matrix.transpose(-1, -2)

    @torch.no_grad()
    def step(self):
        for (short, long), group in self.groups.items():
            grad = torch.cat([self._orient(p.grad, short).reshape(-1, short, long) for p in group], 0)
            momentum = self.momenta[short, long]
            momentum.lerp_(grad, 1 - self.MOMENTUM)
            u = grad.lerp(momentum, self.MOMENTUM).to(self.half)
            u = u / (u.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).to(self.half)
            for _ in range(5):
                a = u @ u.transpose(-1, -2)
                b = -4.7750 * a + 2.0315 * (a @ a)
                u = 3.4445 * u + b @ u
            u = u.float() * (0.2 * math.sqrt(long) * self.rate)
            at = 0
            for p in group:
                count = p.numel() // (short * long)
                update = self._orient(u[at : at + count], p.shape[-2]).reshape(p.shape)
                p.mul_(1 - self.rate * self.DECAY).sub_(update)
                at += count


class AdamW:
    """Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019."""

    BETAS, EPSILON = (0.9, 0.95), 1e-8

    def __init__(self, parameters, decay, rate):
        self.parameters, self.decay, self.rate = parameters, decay, rate
        total, device = sum(p.numel() for p in parameters), rate.device
        self.first, self.second = torch.zeros(total, device=device), torch.zeros(total, device=device)
        self.count = torch.zeros((), device=device)

    @torch.no_grad()
    def step(self):
        grad = torch.cat([p.grad.reshape(-1) for p in self.parameters])
        self.count.add_(1)
        self.first.lerp_(grad, 1 - self.BETAS[0])
        self.second.lerp_(grad.square(), 1 - self.BETAS[1])
        first = self.first / (1 - self.BETAS[0] ** self.count)
        second = self.second / (1 - self.BETAS[1] ** self.count)
        update = first / (second.sqrt() + self.EPSILON)
        if self.decay:
            update = update + self.decay * torch.cat([p.reshape(-1) for p in self.parameters])
        pieces = (update * self.rate).split([p.numel() for p in self.parameters])
        torch._foreach_sub_(self.parameters, [u.view(p.shape) for u, p in zip(pieces, self.parameters)])


class Optimiser:
    """Muon and AdamW over the named parameters of a model. set_rate() takes Muon's rate; AdamW's is in proportion."""

    ADAM_SHARE = 0.625

    def __init__(self, named_parameters, device):
        named = [(name, p) for name, p in named_parameters if p.requires_grad]
        self.parameters = [p for _, p in named]
        is_muon = {id(p): p.dim() >= 2 and not any(part in name for part in NOT_MUON) for name, p in named}
        rest = [(name, p) for name, p in named if not is_muon[id(p)]]
        indexer = [p for name, p in rest if "indexer" in name]
        others = [p for name, p in rest if "indexer" not in name]
        self.adam_rate = torch.zeros((), device=device)
        self.muon = Muon([p for p in self.parameters if is_muon[id(p)]], device)
        self.adams = [
            AdamW([p for p in others if p.dim() >= 2], 0.01, self.adam_rate),
            AdamW([p for p in others if p.dim() < 2], 0.0, self.adam_rate),
        ]
        self.indexer = AdamW(indexer, 0.0, self.adam_rate) if indexer else None

    def set_rate(self, rate):
        self.muon.rate.fill_(rate)
        self.adam_rate.fill_(rate * self.ADAM_SHARE)

    def clear(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        """Clips the gradient to norm 1 and moves every parameter that has one; returns the norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step()
        for adam in self.adams:
            adam.step()
        if self.indexer and self.indexer.parameters[0].grad is not None:
            self.indexer.step()
        return norm
