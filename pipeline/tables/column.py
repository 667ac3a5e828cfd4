"""What a column of a contract is, and the Arrow schema of several."""

from typing import NamedTuple

import pyarrow as pa

ARRIVAL_TYPE = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column of a contract."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


def nullable(name: str, kind: pa.DataType, meaning: str) -> Column:
    """Return a column that may be null."""
    return Column(name, kind, meaning, nullable=True)


def schema(columns: tuple[Column, ...], *, without: tuple[str, ...] = ()) -> pa.Schema:
    """Return the Arrow schema of a contract, leaving out the columns named in `without`."""
    return pa.schema(
        [pa.field(c.name, c.type, c.nullable) for c in columns if c.name not in without]
    )
