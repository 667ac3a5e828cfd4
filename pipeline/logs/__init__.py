"""Request logs to request records, one module a log family.

    lines      lines of a log file, plain or compressed
    records    LogRecord, what every family makes of a line
    openai     chat completions and completions requests
    mooncake   block traces

Adding a family: a module with a FAMILY, and its line in FAMILIES.
"""

from pipeline.logs import mooncake, openai
from pipeline.logs.records import LogFamily

FAMILIES: tuple[LogFamily, ...] = (mooncake.FAMILY, openai.FAMILY)
"""In the order in which they are asked whether a line is theirs."""
