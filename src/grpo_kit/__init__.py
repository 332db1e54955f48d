"""Composable loss and reward parts for post-training language models, and one loop that composes them.

The names are listed in `__init__.pyi` and imported on first use, so that `import grpo_kit` does not wait for torch.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
