"""Sinkhorn normalisation of 4x4 matrices, the mixing step of the hyper-connections.

Rows are normalised by a softmax, then columns and rows in turn. The CPU uses the plain loop; on a GPU that loop is
40 tiny kernels, so one Triton kernel does all of it, and the backward pass one more. The backward kernel keeps the
divisors rather than the iterates: walking back from the result C with the divisor s of a step, the gradient is
g' = (g - sum(g*C)) / s and the iterate before it is C*s.
"""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU installation of PyTorch has none
    triton = None

EPSILON = 1e-6


def sinkhorn_plain(logits, iterations):
    """logits [n, 4 (source), 4 (destination)] to mixing matrices of the same shape."""
    mix = torch.softmax(logits, -1) + EPSILON
    mix = mix / (mix.sum(-2, keepdim=True) + EPSILON)
    for _ in range(iterations - 1):
        mix = mix / (mix.sum(-1, keepdim=True) + EPSILON)
        mix = mix / (mix.sum(-2, keepdim=True) + EPSILON)
    return mix


if triton is not None:

    @triton.jit
    def _forward_kernel(logits, out, divisors, count, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        lane = tl.arange(0, 4)
        at = item[:, None, None] * 16 + lane[None, :, None] * 4 + lane[None, None, :]
        inside = (item < count)[:, None, None]
        inside_row = (item < count)[:, None]
        at_divisor = item[:, None] * ((2 * ITERATIONS - 1) * 4) + lane[None, :]
        a = tl.load(logits + at, mask=inside, other=0.0)
        e = tl.exp(a - tl.max(a, axis=2)[:, :, None])
        mix = e / tl.sum(e, axis=2)[:, :, None] + 1e-6
        s = tl.sum(mix, axis=1) + 1e-6
        tl.store(divisors + at_divisor, s, mask=inside_row)
        mix = mix / s[:, None, :]
        for i in range(ITERATIONS - 1):
            s = tl.sum(mix, axis=2) + 1e-6
            tl.store(divisors + at_divisor + (1 + 2 * i) * 4, s, mask=inside_row)
            mix = mix / s[:, :, None]
            s = tl.sum(mix, axis=1) + 1e-6
            tl.store(divisors + at_divisor + (2 + 2 * i) * 4, s, mask=inside_row)
            mix = mix / s[:, None, :]
        tl.store(out + at, mix, mask=inside)

    @triton.jit
    def _backward_kernel(out, divisors, grad_out, grad_in, count, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr):
        item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        lane = tl.arange(0, 4)
        at = item[:, None, None] * 16 + lane[None, :, None] * 4 + lane[None, None, :]
        inside = (item < count)[:, None, None]
        inside_row = (item < count)[:, None]
        at_divisor = item[:, None] * ((2 * ITERATIONS - 1) * 4) + lane[None, :]
        mix = tl.load(out + at, mask=inside, other=0.25)
        g = tl.load(grad_out + at, mask=inside, other=0.0)
        for back in range(ITERATIONS - 1):
            i = ITERATIONS - 2 - back
            s = tl.load(divisors + at_divisor + (2 + 2 * i) * 4, mask=inside_row, other=1.0)
            g = (g - tl.sum(g * mix, axis=1)[:, None, :]) / s[:, None, :]
            mix = mix * s[:, None, :]
            s = tl.load(divisors + at_divisor + (1 + 2 * i) * 4, mask=inside_row, other=1.0)
            g = (g - tl.sum(g * mix, axis=2)[:, :, None]) / s[:, :, None]
            mix = mix * s[:, :, None]
        s = tl.load(divisors + at_divisor, mask=inside_row, other=1.0)
        g = (g - tl.sum(g * mix, axis=1)[:, None, :]) / s[:, None, :]
        soft = mix * s[:, None, :] - 1e-6
        tl.store(grad_in + at, soft * (g - tl.sum(g * soft, axis=2)[:, :, None]), mask=inside)

    class _SinkhornOnGpu(torch.autograd.Function):
        BLOCK = 64

        @staticmethod
        def forward(ctx, logits, iterations):
            logits = logits.contiguous()
            count = logits.shape[0]
            out = torch.empty_like(logits)
            divisors = torch.empty(count, 2 * iterations - 1, 4, device=logits.device)
            grid = (triton.cdiv(count, _SinkhornOnGpu.BLOCK),)
            _forward_kernel[grid](logits, out, divisors, count, iterations, _SinkhornOnGpu.BLOCK)
            ctx.save_for_backward(out, divisors)
            ctx.iterations = iterations
            return out

        @staticmethod
        def backward(ctx, grad_out):
            out, divisors = ctx.saved_tensors
            count = out.shape[0]
            grad_in = torch.empty_like(out)
            grid = (triton.cdiv(count, _SinkhornOnGpu.BLOCK),)
            _backward_kernel[grid](
                out, divisors, grad_out.contiguous(), grad_in, count, ctx.iterations, _SinkhornOnGpu.BLOCK
            )
            return grad_in, None


def sinkhorn(logits, iterations):
    """Mixing matrices [n, 4, 4] from logits of the same shape; the last step normalises columns."""
    if triton is not None and logits.is_cuda and logits.dtype == torch.float32:
        return _SinkhornOnGpu.apply(logits, iterations)
    return sinkhorn_plain(logits, iterations)
