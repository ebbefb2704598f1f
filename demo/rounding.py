"""The number formats that the model is trained with, simulated in floating point.

Each function returns the rounded values with the gradient of the unrounded ones ("straight through"). The
sum `rounded + (x - x.detach())` adds an exact zero, so the forward value is the rounded one to the last bit.
Powers of two are made from the bits of a float, which is exact where log2 is not.
"""
import math

import torch
import torch.nn.functional as F

FP8_BLOCK, FP8_MAX = 64, 448.0  # e4m3: cached rows, one scale for 64 channels
FP4_BLOCK, FP4_MAX = 32, 6.0  # e2m1: indexer rows and queries, routed experts; one scale for 32 values


def power_of_two_at_least(x):
    """The smallest power of two >= x, for x a positive normal float32."""
    return ((x.contiguous().view(torch.int32) + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def to_e4m3(x):
    """float32 values within +-448 to the nearest e4m3 value, ties to even."""
    exponent = (x.contiguous().view(torch.int32) & 0x7F800000).view(torch.float32)
    step = exponent.clamp(min=2.0**-6) * 0.125
    return torch.round(x / step) * step


def to_e2m1(x):
    """float32 values within +-6 to the nearest of 0, .5, 1, 1.5, 2, 3, 4, 6, ties to the even code."""
    size = x.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0)).to(x.dtype)
    return torch.round(x / step) * step


def _straight_through(x, rounded):
    return rounded.to(x.dtype) + (x - x.detach())


def round_row(x, channels):
    """The cache's rounding of a row: the first `channels` of x [n, width] to e4m3 in blocks of 64."""
    head = F.pad(x.detach()[:, :channels].float(), (0, -channels % FP8_BLOCK))  # the last block may be shorter
    blocks = head.reshape(x.shape[0], -1, FP8_BLOCK)
    scale = power_of_two_at_least(blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4) * (1.0 / FP8_MAX))
    rounded = to_e4m3((blocks / scale).clamp(-FP8_MAX, FP8_MAX)) * scale
    rest = x.detach()[:, channels:].float()
    return _straight_through(x, torch.cat([rounded.reshape(head.shape)[:, :channels], rest], -1))


def fp4_scale_and_code(x):
    """x [..., k*32] to scales [..., k, 1] (powers of two) and e2m1 values [..., k, 32]; their product is x rounded."""
    blocks = x.float().reshape(*x.shape[:-1], -1, FP4_BLOCK)
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=FP4_MAX * 2.0**-126)
    scale = power_of_two_at_least(largest * (1.0 / FP4_MAX))
    return scale, to_e2m1((blocks / scale).clamp(-FP4_MAX, FP4_MAX))


def round_fp4(x):
    """x [..., k*32] to e2m1 with one power-of-two scale for 32 values along the last axis."""
    scale, code = fp4_scale_and_code(x.detach())
    return _straight_through(x, (code * scale).reshape(x.shape))


def round_experts(weights):
    """Routed expert matrices [experts, out, in] to MXFP4. The bfloat16 step is the precision of a saved state,
    so that what was trained and what is exported from a state are the same values."""
    scale, code = fp4_scale_and_code(weights.detach().bfloat16())
    return _straight_through(weights, (code * scale).reshape(weights.shape))


def hadamard(size):
    """The orthonormal Hadamard matrix of a power-of-two size, natural order."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)], 0)
    return matrix / math.sqrt(size)
