"""Request records to a tokenized trace.

vocabulary   Vocabulary: text to token ids, and what identifies it
chat         messages to the text that an engine would see
times        the times of a log, as microseconds
rejects      lines that could not become requests, counted and kept
logs_to_trace  tokenize_logs: log files in, a linked trace out
"""

from pipeline.tokenize.logs_to_trace import tokenize_logs
from pipeline.tokenize.summary import Summary

__all__ = ["Summary", "tokenize_logs"]
