"""trace.parquet, the contract between tokenize and replay.

metadata   what the file says of itself: tokenizer, block size, sources
linker     Linker: the link columns, batch by batch
writer     TraceWriter: requests in, row groups by token budget, links found on the way
checks     the laws of the integer columns, with row and value where one is broken
reader     TraceFile: an open trace, read by row group
"""

from pipeline.trace.checks import TraceColumns
from pipeline.trace.linker import Lists
from pipeline.trace.metadata import TraceMetadata
from pipeline.trace.reader import TraceFile
from pipeline.trace.writer import ROW_GROUP_TOKENS, TraceWriter

__all__ = ["ROW_GROUP_TOKENS", "Lists", "TraceColumns", "TraceFile", "TraceMetadata", "TraceWriter"]
