"""A static key/value cache: room is taken once, rows are appended, and a verdict keeps a path or crops the rest."""

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """Keys and values per layer, [batch, kv_heads, capacity, head_dim]. Rows at or after `length` are junk."""

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_dim: int,
        capacity: int,
        *,
        batch: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ):
        shape = (layers, batch, kv_heads, capacity, head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.length = 0

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write k, v [batch, kv_heads, n, head_dim] behind the first `length` rows; return views of all rows so far.

        `length` moves only with `advance`, once every layer of a pass has written.
        """
        keys, values = self.room(layer, k.shape[2])
        keys[:, :, self.length :] = k
        values[:, :, self.length :] = v
        return keys, values

    def room(self, layer: int, rows: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's keys and values with `rows` rows to be written behind the first `length`."""
        end = self.length + rows
        if end > self.capacity:
            raise ValueError(
                f"the cache holds {self.capacity} rows and {end} were asked for: "
                "use a shorter prompt, a smaller draft or a larger context limit"
            )
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows; a drafter's cache starts small and doubles, a target's is sized once."""
        if rows <= self.capacity:
            return
        capacity = max(rows, 2 * self.capacity, 256)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty(*old.shape[:3], capacity, old.shape[4])
            new[:, :, :, : self.length] = old[:, :, :, : self.length]
            setattr(self, name, new)
        self.capacity = capacity

    def advance(self, n: int) -> None:
        """The pass is over: its n rows belong to the cache now."""
        self.length += n

    def crop(self, length: int) -> None:
        """Forget every row at or after `length`."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop {self.length} cached rows to {length}")
        self.length = length

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the rows from `start` on keep only start + path[0], start + path[1] …, moved together in that order."""
        if list(path) != list(range(len(path))):
            rows = torch.tensor(path, device=self.keys.device) + start
            for store in (self.keys, self.values):
                store[:, :, :, start : start + len(path)] = store.index_select(3, rows)
        self.crop(start + len(path))
