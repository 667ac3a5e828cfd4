"""How a replica's cache works: EngineConfig and the presets of `--engine`."""

from dataclasses import dataclass

from pipeline.errors import UsageError, unknown

MAX_BLOCK_TOKENS = 512
CACHE_UNITS = ("leaf", "block")
PARTIAL_BLOCKS = ("drop", "keep")
REFRESHES = ("probe", "match", "insert")
IN_FLIGHT = ("none", "pins")
WHEN_FULL = ("wait", "reject")


@dataclass(frozen=True)
class EngineConfig:
    """How a replica's cache keeps, finds and evicts prefixes, and what a running request holds.

    name                  the preset that these settings were taken from
    cache_unit            what is evicted: `leaf`, whole leaves of the radix tree, as many as it
                          takes; `block`, exactly as many blocks as it takes, tails first
    block_tokens          tokens of a block (page); only whole blocks are found again
    own_blocks            a block trace is replayed in its own blocks instead
    partial_block         whether the last block of a prompt is kept where it is not full
    recompute_last_token  a hit leaves at least the prompt's last token to compute, and the KV of
                          the last output token is never there
    refresh               what counts as use, beside an insertion and a completion: every look-up
                          of the router (`probe`), the one on the chosen replica (`match`), which
                          touch an edge that matches in part as a whole, or none (`insert`)
    in_flight             `none`: requests come one after another; `pins`: a request's path can't
                          be evicted from its insertion until its last output token
    when_full             what happens if everything that could be evicted is pinned
    cache_output          whether prompt and output are kept when a request completes
    """

    name: str = "reference"
    cache_unit: str = "leaf"
    block_tokens: int = 1
    own_blocks: bool = False
    partial_block: str = "drop"
    recompute_last_token: bool = False
    refresh: str = "probe"
    in_flight: str = "none"
    when_full: str = "reject"
    cache_output: bool = False

    def __post_init__(self) -> None:
        for name, choices in (
            ("cache_unit", CACHE_UNITS),
            ("partial_block", PARTIAL_BLOCKS),
            ("refresh", REFRESHES),
            ("in_flight", IN_FLIGHT),
            ("when_full", WHEN_FULL),
        ):
            value, option = getattr(self, name), name.replace("_", "-")
            if value not in choices:
                raise UsageError(f"{option} is {value!r}: give one of {', '.join(choices)}")
        if not (1 <= self.block_tokens <= MAX_BLOCK_TOKENS or self.own_blocks):
            raise UsageError(
                f"block-tokens is {self.block_tokens}: give 1 to {MAX_BLOCK_TOKENS} tokens"
            )


ENGINES = {
    "reference": EngineConfig(),
    "sglang": EngineConfig(
        "sglang", own_blocks=True, recompute_last_token=True, refresh="match", when_full="wait"
    ),
    "vllm": EngineConfig(
        "vllm",
        cache_unit="block",
        block_tokens=16,
        own_blocks=True,
        recompute_last_token=True,
        refresh="insert",
        when_full="wait",
    ),
}
"""The presets of `--engine`."""


def find_engine(name: str) -> EngineConfig:
    """Return the preset of that name; UsageError, with the nearest name, if there is none."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name]
