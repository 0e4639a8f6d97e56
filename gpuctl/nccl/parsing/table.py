"""The table of one run, put together again where lines of others broke its rows."""

from __future__ import annotations

from gpuctl.nccl.model import NoNumber, Row
from gpuctl.nccl.parsing import rows
from gpuctl.nccl.parsing.rows import Shape

_LONGEST = 600  # characters of a row; with -I and time stamps it has 200
_MOST = 128  # ways in which a broken row may go on that are kept in mind


class Table:
    """Rows in the order in which they were printed.

    A row may come in pieces: nccl-tests prints it in three, and lines of other ranks, or warnings, come between them
    and directly behind. `pieces` holds what there is of it so far, in every way it can be read.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.not_numbers: list[NoNumber] = []
        self.shape: Shape | None = None
        self.begun = False  # the heading, or a row, was seen
        self.pieces: tuple[str, ...] = ()

    def heading(self, line: str) -> bool:
        """Whether this line is the heading of the columns; taken note of if so."""
        shape = rows.shape(line)
        if shape:
            self.shape, self.begun = shape, True
        return shape is not None

    def piece(self, endings: tuple[str, ...]) -> None:
        """A line broke off here, after one of these texts."""
        if self.pieces:
            endings = tuple(piece + ending for piece in self.pieces for ending in endings)
        self.pieces = tuple(ending for ending in endings if len(ending) <= _LONGEST)[:_MOST]

    def joined(self, line: str) -> str | None:
        """The row that this line completes, if one was broken off; None where it does not."""
        whole = [(piece + line, row) for piece in self.pieces if (row := rows.read(piece + line, self.shape))]
        fitting = [text for text, row in whole if rows.agrees(row)]
        return fitting[0] if fitting else whole[0][0] if len(whole) == 1 else None

    def settle(self) -> None:
        """No more of the broken row comes: it is taken where it is whole as it stands."""
        whole = [(piece, row) for piece in self.pieces if (row := rows.read(piece, self.shape))]
        fitting = [piece for piece, row in whole if rows.agrees(row)] or [piece for piece, _ in whole]
        if fitting:
            self.take(fitting[0])
        self.pieces = ()

    def take(self, text: str) -> bool:
        """Whether this is a row; kept if so."""
        row = rows.read(text, self.shape)
        if row:
            self.rows.append(row)
            self.not_numbers += rows.no_numbers(text, self.shape)
            self.begun = True
        return row is not None


def begins(line: str) -> bool:
    """Whether a line may be the beginning of a row that was broken off."""
    cells = line.split(maxsplit=3)
    return (
        bool(cells)
        and line[:1] in " 0123456789"
        and all(cell.isdecimal() for cell in cells[:2])
        and len(line) <= _LONGEST
    )
