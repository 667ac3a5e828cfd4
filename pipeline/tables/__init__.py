"""The tables that stages share: every column's name, type, null rule and meaning, once.

A stage may change inside as it likes; what it reads and writes is only what stands here.
README's tables are made from these files.

column  what a column is, and the Arrow schema of several
trace   the trace
run     decisions, evictions and replicas of a run
"""

from pipeline.tables.column import ARRIVAL_TYPE, Column, schema
from pipeline.tables.run import (
    DECISIONS,
    EVICTIONS,
    FAILED,
    OUTCOMES,
    REJECTED_EMPTY,
    REJECTED_NO_REPLICA,
    REJECTED_PINNED,
    REJECTED_TOO_LONG,
    REPLICAS,
    SERVED,
)
from pipeline.tables.trace import (
    BLOCK_COLUMN,
    CARRIED_COLUMNS,
    EARLIEST_US,
    LATEST_US,
    OUTPUT_COLUMN,
    SCHEMA_VERSION,
    SEQUENCE_COLUMNS,
    TOKEN_COLUMN,
    TRACE,
    WHOLE_COLUMNS,
    trace_schema,
)

__all__ = [
    "ARRIVAL_TYPE",
    "BLOCK_COLUMN",
    "CARRIED_COLUMNS",
    "DECISIONS",
    "EARLIEST_US",
    "EVICTIONS",
    "FAILED",
    "LATEST_US",
    "OUTCOMES",
    "OUTPUT_COLUMN",
    "REJECTED_EMPTY",
    "REJECTED_NO_REPLICA",
    "REJECTED_PINNED",
    "REJECTED_TOO_LONG",
    "REPLICAS",
    "SCHEMA_VERSION",
    "SEQUENCE_COLUMNS",
    "SERVED",
    "TOKEN_COLUMN",
    "TRACE",
    "WHOLE_COLUMNS",
    "Column",
    "schema",
    "trace_schema",
]
