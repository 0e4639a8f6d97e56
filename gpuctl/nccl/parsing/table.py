"""The table of one run, reassembled where other output split its rows."""

from __future__ import annotations

from gpuctl.nccl.model import NoNumber, Row
from gpuctl.nccl.parsing import rows
from gpuctl.nccl.parsing.rows import Shape

_LONGEST = 600  # characters of a row; with -I and time stamps it has 200
_MOST = 128  # ways in which a broken row may go on that are kept in mind


class Table:
    """Rows in print order.

    A row may come in pieces: nccl-tests prints it in three, and lines of other ranks or warnings come in between
    and directly behind. `pieces` holds the beginning so far, in every way it can be read.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.not_numbers: list[NoNumber] = []
        self.shape: Shape | None = None
        self.begun = False  # the heading, or a row, was seen
        self.pieces: tuple[str, ...] = ()

    def heading(self, line: str) -> bool:
        """Process a column heading; False if the line is not one."""
        shape = rows.shape(line)
        if shape:
            self.shape, self.begun = shape, True
        return shape is not None

    def piece(self, endings: tuple[str, ...]) -> None:
        """Note that a line broke off here, after one of these texts."""
        if self.pieces:
            endings = tuple(piece + ending for piece in self.pieces for ending in endings)
        self.pieces = tuple(ending for ending in endings if len(ending) <= _LONGEST)[:_MOST]

    def joined(self, line: str) -> str | None:
        """Row completed by this line, if one was broken off; None if it does not complete it."""
        whole = [(piece + line, row) for piece in self.pieces if (row := rows.read(piece + line, self.shape))]
        fitting = [text for text, row in whole if rows.agrees(row)]
        return fitting[0] if fitting else whole[0][0] if len(whole) == 1 else None

    def settle(self) -> None:
        """Accept the broken row if it is whole as it stands; no more of it comes."""
        whole = [(piece, row) for piece in self.pieces if (row := rows.read(piece, self.shape))]
        fitting = [piece for piece, row in whole if rows.agrees(row)] or [piece for piece, _ in whole]
        if fitting:
            self.take(fitting[0])
        self.pieces = ()

    def take(self, text: str) -> bool:
        """Add this line if it is a row; False if it is not."""
        row = rows.read(text, self.shape)
        if row:
            self.rows.append(row)
            self.not_numbers += rows.no_numbers(text, self.shape)
            self.begun = True
        return row is not None


def begins(line: str) -> bool:
    """Return True if a line may be the beginning of a row that was broken off."""
    cells = line.split(maxsplit=3)
    return (
        bool(cells)
        and line[:1] in " 0123456789"
        and all(cell.isdecimal() for cell in cells[:2])
        and len(line) <= _LONGEST
    )
