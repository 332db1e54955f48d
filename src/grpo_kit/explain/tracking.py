"""The bytes that tensors made by some work take at its fullest moment, whether they have data or not."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import ref

from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tracker(TorchDispatchMode):
    """Adds up the storages of tensors that operations inside it make, each until nothing holds it.

    An operation costs the same however much is held, unlike with PyTorch's own tracker.

    Attributes:
        now: bytes held.
        most: bytes held at the fullest moment.
    """

    def __init__(self, known: Iterable[Tensor], held: Iterable[Tensor] = ()) -> None:
        """Tensors that are `known` do not count; those `held` do until they go."""
        super().__init__()
        self.now = self.most = 0
        self._there: dict[int, ref[UntypedStorage]] = {}
        for tensor in known:
            self._see(tensor, counts=False)
        for tensor in held:
            self._see(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, Tensor):
                self._see(each)
        return result

    def _see(self, tensor: Tensor, *, counts: bool = True) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes() if counts else 0
        if key not in self._there:

            def gone(_: Any) -> None:
                self._there.pop(key, None)
                self.now -= size

            self._there[key] = ref(storage, gone)
            self.now += size
            self.most = max(self.most, self.now)
