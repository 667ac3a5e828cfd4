"""A router that sees its replicas late: a second fleet that does what the first did, later."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.loop import CATCH_UP_SIGNATURE, DECISION, nothing_to_tell, replay_batch
from pipeline.replay.policies.rule import SIGNATURE
from pipeline.replay.router import TOLD, Batch, Router, until_when


@kernel(signature=SIGNATURE)
def follow(_request, _replicas, _parameters, memory):
    """Choose what was chosen before: item 0 of memory counts the choices, which follow."""
    memory[0] += 1
    return memory[memory[0]]


@kernel(signature=CATCH_UP_SIGNATURE, allocates=True)
def catch_up(router, past, known, ticks):
    """Let the belief serve what came by a time; return how many of `past` it has served then."""
    first = router.progress[TOLD]
    until = until_when(past, first, known, ticks)
    if until == first:
        return until
    told = Batch(
        past.seq[first:until],
        past.prompt_tokens[first:until],
        past.first_token_id[first:until],
        past.clock_ticks[first:until],
        past.output_tokens[first:until],
        past.session[first:until],
    )
    # Its policy remembers the choices, and has a request of its own.
    again = Router(
        router.belief,
        router.here,
        np.zeros_like(router.request),
        router.parameters,
        router.choices,
        router.progress,
        router.choices,
        router.exactly,
    )
    unread = np.zeros(until - first, DECISION)
    replay_batch(router.belief, again, told, told, router.exactly, unread, follow, nothing_to_tell)
    return until
