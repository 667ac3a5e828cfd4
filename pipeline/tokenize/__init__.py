"""Request records to a tokenized trace.

settings       TokenizeSettings: how logs become a trace
times          the times of a log, as microseconds
segments       text to token ids, each piece between special tokens encoded once
encoder        for each model its vocabulary and chat template
batches        prompts to token ids, many at a time
encoder_process  the same in a process of its own, for large logs
parts          what one log gave, on disk
intake         one log to a part
workshop       the folder of parts beside a trace, kept for the run after an interrupted one
order          all parts in one order, each request once
rejects        lines that could not become requests, counted and kept
summary        what became of all lines
logs_to_trace  tokenize_logs: log files in, a linked trace out
"""

from pipeline.tokenize.logs_to_trace import tokenize_logs
from pipeline.tokenize.settings import TokenizeSettings
from pipeline.tokenize.summary import Summary

__all__ = ["Summary", "TokenizeSettings", "tokenize_logs"]
