"""Logs to a tokenized trace.

parts          what one log gave, on disk
given          what a trace that is tokenized again says of its own token ids
intake         one log to a part
workshop       the folder of parts beside a trace, kept for the run after an interrupted one
order          all parts in one order, each request once
rejects        lines that could not become requests, counted and kept
summary        what became of all lines
logs_to_trace  tokenize_logs: log files in, a linked trace out
"""

from pipeline.encode.settings import TokenizeSettings
from pipeline.tokenize.logs_to_trace import tokenize_logs
from pipeline.tokenize.summary import Summary

__all__ = ["Summary", "TokenizeSettings", "tokenize_logs"]
