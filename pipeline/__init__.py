"""Offline trace replay for LLM serving fleets: logs to tokens to decisions to SQL.

The map, in reading order; a file imports only what stands above it (checked by import-linter):

    errors      what can go wrong, one class a stage
    kernel      @kernel, the one numba decorator, and where compiled kernels are kept
    files       files and folders that appear whole or not at all
    sql_files   the SQL files of queries/ and what they say of themselves
    config      fleet, engine, cost, clock, routing: frozen, validated once
    moments     a time of day, a date, so much later, a request -> a time
    toml_files  fleet.toml and policies.toml -> config
    tables      the contracts: columns of trace, decisions, evictions, replicas
    radix       RadixKvTree: the readable radix tree, online and as executable specification
    router      GpuReplica, CacheAwareRouter and the burst comparison
    symbols     a growing array that moves to disk when it is large
    link_tree   the radix tree in which links are found, as kernels
    links       tokens -> prefix links
    tree        prefix links -> the trace's radix tree
    upcoming    which requests are still to come
    run_folder  what a run folder is, and where its tables lie
    trace       trace.parquet: writer, reader, checks
    prepare     a trace made ready: links found, tokens dropped
    joined      a warm-up trace and a trace, linked as one
    subset      which requests of a trace are replayed
    logs        request logs -> request records, one module a log family
    vocabularies  text -> token ids, with any model's vocabulary
    templates   chat messages -> the text that an engine would see
    encode      prompts -> token ids, on all cores
    tokenize    request logs -> trace
    replay      the fleet on branch points: cache, cost, policies, the one loop
    times       when requests come and complete
    absences    when replicas go away and return
    sessions    what names a request's session to a router
    plan        a trace and a configuration, ready to be replayed
    windows     what each replica did in each window of time
    totals      a policy's sums over a run
    decisions   kernel output -> tables of a run
    lane        one policy's way through a trace
    run         a trace and a configuration -> a run folder
    describe    what is in a trace, without a replay
    report      a run folder -> SQL views, reports, text
    explain     one request of a run: what each replica held, and why it went where it did
    cli         the `replay` command
"""

from pipeline.radix import RadixKvTree, RadixNode
from pipeline.router import (
    CacheAwareRouter,
    GpuReplica,
    build_burst_workload,
    simulate_routing_comparison,
)

__all__ = [
    "CacheAwareRouter",
    "GpuReplica",
    "RadixKvTree",
    "RadixNode",
    "build_burst_workload",
    "simulate_routing_comparison",
]
__version__ = "0.1.0"
