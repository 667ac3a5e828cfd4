"""What a request shares with earlier requests of its own session, read off the trace's tree."""

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE, kernel
from pipeline.tree import TraceTree


def session_prefix_tokens(tree: TraceTree, session: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the longest prefix in tokens that each prompt shares with an earlier one of its own.

    It may reach into the output of the earlier one, where outputs are known. `session` numbers
    the session of each request, -1 for none: such a request stands alone.
    """
    by_session = np.argsort(session, kind="stable")
    by_session = by_session[session[by_session] != NONE]
    seen_by = np.full(len(tree.parent), NONE, np.int32)
    prefix = np.zeros(len(session), np.int64)
    _walk(tree, session, by_session, seen_by, prefix)
    return prefix


@kernel
def _walk(tree, session, by_session, seen_by, prefix):
    """Stamp the nodes of a session's requests; what one finds stamped, an earlier one had.

    A stamped node has only stamped ones above it, so the first on the way up is the deepest.
    """
    for request in by_session:
        node = _stamp(tree, tree.last[request], session[request], seen_by)
        prefix[request] = tree.end[node]
        if len(tree.whole) > 0:
            _stamp(tree, tree.whole[request], session[request], seen_by)


@kernel(inner=True)
def _stamp(tree, node, session, seen_by):
    """Stamp a node and those above it; return the deepest that the session had stamped before."""
    while node > 0 and seen_by[node] != session:
        seen_by[node] = session
        node = tree.parent[node]
    return node
