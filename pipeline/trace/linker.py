"""Linker: the link columns of a trace, batch by batch, in tokens."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.links import LinkFinder, Links, grown


class Lists(NamedTuple):
    """One list of ids a request, all of them one after another.

    ids      token ids (uint32) or block ids (uint64)
    offsets  int64[requests + 1]: where each request's ids begin in `ids`
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]


class Linker:
    """Links requests that come in arrival order.

    prefix_tokens  of all prompts so far
    extending      prompts that an earlier prompt is the beginning of
    contained      prompts that are the beginning of an earlier, longer one
    """

    def __init__(self, folder: Path, block_tokens: int | None) -> None:
        """Keep what doesn't fit into memory in `folder`; ids are of blocks of so many tokens."""
        self._finder = LinkFinder(folder)
        self._block_tokens = block_tokens
        self._lengths = np.empty(1 << 10, np.uint32)  # of the prompts so far
        self._requests = 0
        self.prefix_tokens = 0
        self.extending = 0
        self.contained = 0

    def link(
        self,
        prompts: Lists,
        prompt_tokens: NDArray[np.uint32],
        outputs: Lists | None,
        namespaces: list[str | None] | None,
    ) -> dict[str, Any]:
        """Return the link columns of a batch, those of prompt + output too if outputs are there."""
        if self._block_tokens:
            halves = prompts.ids.astype(np.uint64, copy=False).view(np.uint32)
            prefix_seq, prefix = self._finder.link(halves, 2 * prompts.offsets, namespaces)
            prefix = prefix // 2 * self._block_tokens
            links = Links(prefix_seq, prefix, prefix_seq[:0], prefix[:0])
        elif outputs is None:
            prefix_seq, prefix = self._finder.link(*prompts, namespaces)
            links = Links(prefix_seq, prefix, prefix_seq[:0], prefix[:0])
        else:
            links = self._finder.link_wholes(*prompts, *outputs, namespaces)
        prefix = self._counted(prompt_tokens, links)
        prefix_seq = np.where(prefix > 0, links.prefix_seq, -1)
        columns = {
            "prefix_seq": pa.array(prefix_seq, mask=prefix_seq < 0).cast(pa.uint64(), safe=False),
            "prefix_tokens": prefix.astype(np.uint32),
        }
        if outputs is not None:
            columns |= {
                "whole_tokens": prompt_tokens + np.diff(outputs.offsets).astype(np.uint32),
                "whole_prefix_seq": links.whole_prefix_seq.astype(np.uint64),
                "whole_prefix_tokens": links.whole_prefix.astype(np.uint32),
            }
        return columns

    def _counted(self, prompt_tokens: NDArray[np.uint32], links: Links) -> NDArray[np.int64]:
        """Return shared tokens; of prompts alone no more than either has.

        A last block may be partial. Output ids are of tokens, where nothing is.
        """
        rows = self._requests + len(prompt_tokens)
        self._lengths = grown(self._lengths, self._requests, rows)
        self._lengths[self._requests : rows] = prompt_tokens
        self._requests = rows
        earlier = np.where(links.prefix_seq >= 0, self._lengths[links.prefix_seq], 0)
        shared = np.minimum(links.prefix, np.minimum(prompt_tokens, earlier))
        longer = np.where(shared > 0, prompt_tokens.astype(np.int64) - earlier, 0)
        self.extending += int(((longer > 0) & (shared == earlier)).sum())
        self.contained += int(((longer < 0) & (shared == prompt_tokens)).sum())
        if len(links.whole_prefix):
            shared = links.prefix
        self.prefix_tokens += int(shared.sum())
        return shared
