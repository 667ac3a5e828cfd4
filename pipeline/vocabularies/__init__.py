"""Vocabularies: text to token ids, offline.

text         what servers do to a text before it is tokenized
patterns     one regular expression for many tokens
added        special and added tokens, and when a text may be cut at them
engine       what all engines do
rank_engine  tiktoken
json_engine  tokenizers
fast         fastokens in place of either, checked against it
vocabulary   Vocabulary: an engine, its added tokens, and what identifies it
ranks        .tiktoken files
known        pattern and added tokens of vocabularies that come as ranks alone
from_ranks   built-in vocabularies and .tiktoken files
from_json    tokenizer.json, with tokenizer_config.json
from_tekken  tekken.json
hub          the local Hugging Face cache
find         find_vocabulary: by name, file or folder
"""

from pipeline.vocabularies.find import BUILT_IN, find_vocabulary
from pipeline.vocabularies.vocabulary import Vocabulary

__all__ = ["BUILT_IN", "Vocabulary", "find_vocabulary"]
