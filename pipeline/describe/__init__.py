"""What is in a trace: how much, whose, and what its requests share.

statements   the SQL of queries/describe, and the view of the trace that it reads
sessions     what a request shares with earlier requests of its session
prefixes     the prefixes that many requests share
reuse        how long ago a shared prefix was last used
description  all of it as a few small tables
"""

from pipeline.describe.description import Section, describe_trace
from pipeline.describe.statements import NO_BLOCKS, describe_sql, statements

__all__ = ["NO_BLOCKS", "Section", "describe_sql", "describe_trace", "statements"]
