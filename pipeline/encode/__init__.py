"""Prompts to token ids.

settings  TokenizeSettings: how logs become a trace
times     the times of a log, as microseconds
segments  text to token ids, each piece between special tokens encoded once
encoder   for each model its vocabulary and chat template
batches   many prompts at a time, rendered here and tokenized in the background
"""
