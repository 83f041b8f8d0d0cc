"""The Hadamard rotation along head_dim: spreads an outlier over its whole block (as in QuaRot, arXiv 2404.00456).

Sylvester's matrix of order `block_length`, divided by its square root: symmetric, and its own inverse. A head_dim
that is no power of two is rotated in blocks of the largest one that divides it.
"""

import torch


def block_length(head_dim: int) -> int:
    """The largest power of two that divides `head_dim`."""
    return head_dim & -head_dim


def butterflies(tensor: torch.Tensor, block: int) -> torch.Tensor:
    """Each block of the last axis times the matrix of ones and minus ones; exact for small whole numbers."""
    shape = tensor.shape
    stride = 1
    while stride < block:
        low, high = tensor.reshape(*shape[:-1], shape[-1] // (2 * stride), 2, stride).unbind(-2)
        tensor = torch.stack((low + high, low - high), dim=-2)
        stride *= 2
    return tensor.reshape(shape)


def rotate_blocks(tensor: torch.Tensor) -> torch.Tensor:
    """The normalised rotation of float32 `[…, head_dim]`."""
    block = block_length(tensor.shape[-1])
    return butterflies(tensor, block) * float(torch.tensor(block**-0.5, dtype=torch.float32))


def rotate_back(codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """What rotates to `codes * scale + zero`: codes float32 `[…, head_dim]`, scale and zero float32 `[…, 1]`.

    The codes are whole numbers, so their butterflies are exact in any order; a constant rotates to one element.
    """
    block = block_length(codes.shape[-1])
    inverse_root, root = (torch.tensor(block**power, dtype=torch.float32) for power in (-0.5, 0.5))
    numbers = butterflies(codes, block) * (scale * inverse_root.to(scale.device))
    numbers[..., ::block] += zero * root.to(zero.device)
    return numbers
