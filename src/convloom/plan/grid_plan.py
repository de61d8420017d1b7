"""What the plans of all families say alike: tiles of C, flat axes, division of K, the order of tiles, the store."""

from __future__ import annotations

from typing import Protocol

from convloom.plan.split import Split


class GridPlan(Protocol):
    """Tiles of block_m x block_n are summed in steps of block_k; the axes are as in `tiled.TiledPlan`."""

    @property
    def block_m(self) -> int:
        """Rows of a tile of C."""
        ...

    @property
    def block_n(self) -> int:
        """Columns of a tile of C."""
        ...

    @property
    def block_k(self) -> int:
        """K of one step."""
        ...

    @property
    def g(self) -> tuple[str, ...]:
        """Axes of groups."""
        ...

    @property
    def m(self) -> tuple[str, ...]:
        """Axes of the flat index M, slowest first."""
        ...

    @property
    def n(self) -> tuple[str, ...]:
        """Axes of N."""
        ...

    @property
    def serial(self) -> tuple[str, ...]:
        """K axes that are loops of their own."""
        ...

    @property
    def merged(self) -> tuple[str, ...]:
        """Axes of the flat index K."""
        ...

    @property
    def store(self) -> int:
        """Numbers of one store of C, along n."""
        ...

    @property
    def lanes(self) -> int:
        """Numbers of a register vector."""
        ...

    @property
    def swap(self) -> bool:
        """Whether A and M act as B and N."""
        ...

    @property
    def index_bits(self) -> int:
        """Width of index math."""
        ...

    @property
    def split(self) -> Split:
        """Division of K over the grid."""
        ...

    @property
    def walk(self) -> int:
        """Rows of tiles that consecutive blocks take together."""
        ...

    @property
    def k_groups(self) -> int:
        """Groups of a block's threads, each with a whole tile of C and its share of every K tile."""
        ...

    @property
    def threads(self) -> int:
        """Threads of a block."""
        ...

    @property
    def group_threads(self) -> int:
        """Threads that hold a tile of C together."""
        ...

    def sum_width(self, acc_bytes: int) -> int:
        """Numbers of one access to sums that leave registers."""
        ...
