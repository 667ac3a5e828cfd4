"""Logs to a tokenized trace.

parts          what one log gave, on disk
given          what a trace that is tokenized again says of its own token ids
sizes          how much memory a request takes on its way
intake         one log to a part
workshop       the folder of parts beside a trace, kept for the run after an interrupted one
joinable       which logs can become one trace
order          all parts in one order, each request once
rejects        lines that could not become requests, counted and kept
summary        what became of all lines
logs_to_trace  tokenize_logs: log files in, a linked trace out
"""

from pipeline.encode.settings import TokenizeSettings
from pipeline.tokenize.logs_to_trace import tokenize_logs
from pipeline.tokenize.summary import Summary

__all__ = ["Summary", "TokenizeSettings", "tokenize_logs"]
