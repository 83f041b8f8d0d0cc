"""What every file here begins with: `pytestmark = NEEDS_CUDA`."""

import pytest
import torch

NEEDS_CUDA = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this computer"),
]
