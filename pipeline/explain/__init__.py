"""One request of a run: what each replica held, who was chosen and why, what became of its tokens.

Nothing of this is stored in a run: it comes from a replay of the trace up to that request.

locate   the run's configuration, and the request among the trace's rows
moment   a replay up to one request, and what happens then
origins  which request brought what is evicted, and which eviction took what is missed
tokens   what became of each part of the prompt
story    all that is told of one policy, as JSON has it
text     the same for a terminal
request  explain_request: a run folder and a request id in, a story a policy out
"""

from pipeline.explain.request import explain_request
from pipeline.explain.text import as_text

__all__ = ["as_text", "explain_request"]
