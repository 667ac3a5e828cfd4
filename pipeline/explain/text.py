"""A story as text for a terminal."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipeline.explain.names import said
from pipeline.report import render

_EVICTIONS, _REPLICAS = 20, 5
_END_OF_PROMPT = "held by replica {replica_id} too, but a look-up leaves the prompt's end out"
_PART_OF_A_BLOCK = "less than a block: only whole blocks are found again"


def as_text(told: dict[str, Any]) -> str:
    """Return what explain_request returns as text: a section a policy."""
    request = told["request"]
    names = ("namespace", "model", "tenant", "session_id")
    known = [f"{name} {request[name]}" for name in names if request.get(name) is not None]
    title = f"request {request['request_id']} (seq {request['seq']})"
    lines = [f"{title}: {request['prompt_tokens']:,} tokens, came at {request['arrival']}"]
    lines += [", ".join(known)] if known else []
    lines += ["it is of the warm-up: reports don't count it"] if request["is_warmup"] else []
    for policy, story in told["policies"].items():
        lines += ["", *_section(policy, story, told["cache_unit"])]
    return "".join(f"{line}\n" for line in lines)


def _section(policy: str, story: dict[str, Any], cache_unit: str) -> Iterator[str]:
    if "replicas" not in story:
        yield f"{policy}: {story['outcome']}: {story['reason']}"
        return
    chosen, score = story["replica_id"], story["score"]
    if "rejected" in story:
        yield f"{policy}: {story['outcome']} on replica {chosen}: {story['rejected']}"
    else:
        yield (
            f"{policy}: served by replica {chosen}; ttft {story['ttft_ms']} ms ="
            f" queue {story['queue_wait_ms']} ms + lookup and prefill {story['exec_ms']} ms"
        )
    yield f"why replica {chosen}: {story['reason']}"
    unit = f" in {score['unit']}" if score["unit"] else ""
    wins = f", {score['best']} wins" if score["best"] else ""
    yield from ("", f"what each replica held; score: {score['name']}{unit}{wins}")
    if story["router_view"] != "exact":
        yield f"(the router sees {story['router_view']}: what it believed is told beside)"
    yield from ("", *_table(_replicas(story["replicas"])))
    if "rejected" in story:
        return
    yield from _waits(story)
    yield from ("", "what became of its tokens", "", *_table(_tokens(story["tokens"], chosen)))
    yield from _evicted(story, cache_unit)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    return b"".join(render(pa.Table.from_pylist(rows), "table")).decode().splitlines()


def _replicas(replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the replicas without the columns that say nothing."""
    dull = {name for name in replicas[0] if all(r[name] is None for r in replicas)}
    if not any(r["away"] for r in replicas):
        dull.add("away")
    if all(r["prefix_tokens"] == r["matched_tokens"] for r in replicas):
        dull.add("prefix_tokens")
    shown = [{name: r[name] for name in r if name not in dull} for r in replicas]
    return [row | {"chosen": "chosen" if row["chosen"] else ""} for row in shown]


def _waits(story: dict[str, Any]) -> Iterator[str]:
    if not story["waited_for"]:
        return
    names = [
        f"{said(wait['request'])} after {wait['completed_after_ms']} ms"
        for wait in story["waited_for"]
    ]
    replica, waited = story["replica_id"], ", ".join(names)
    yield ""
    yield f"too much was pinned on replica {replica}: it waited for the completion of {waited}"
    matched = story["matched_tokens"]
    if matched != story["replicas"][replica]["matched_tokens"]:
        yield f"by then replica {replica} held {_count(matched, 'token')} of it to be found"


def _tokens(parts: list[dict[str, Any]], chosen: int) -> list[dict[str, Any]]:
    return [
        {
            "part": part["part"],
            "start_tokens": part["start_tokens"],
            "part_tokens": part["tokens"],
            "what": _what(part, chosen),
        }
        for part in parts
    ]


def _what(part: dict[str, Any], chosen: int) -> str:
    match part["part"]:
        case "matched":
            return f"found on replica {chosen}"
        case "recomputed" if part["reason"] == "end_of_prompt":
            return _END_OF_PROMPT.format(replica_id=chosen)
        case "recomputed":
            return _PART_OF_A_BLOCK
        case "elsewhere":
            held = [
                f"replica {holder['replica_id']} ({holder['prefix_tokens']:,} tokens)"
                for holder in part["replicas"]
            ]
            more = f" and {len(held) - _REPLICAS} more" if len(held) > _REPLICAS else ""
            return f"held by {', '.join(held[:_REPLICAS])}{more}"
        case "evicted":
            cause, r = part["evicted_for"], part["replica_id"]
            lost = f"evicted from replica {r} for {said(cause)}," if cause else ""
            return (
                f"{lost or f'lost when replica {r} restarted, at most'}"
                f" {part['ms_before']} ms and {_count(part['requests_before'], 'request')} before;"
                f" last used by {said(part['last_used_by'])}"
            )
    return "computed for no earlier request"


def _evicted(story: dict[str, Any], cache_unit: str) -> Iterator[str]:
    """Yield what its prompt evicted, the largest first if it is much, and what its output did."""
    evictions = story["evictions"]
    if evictions:
        tokens = sum(eviction["evicted_tokens"] for eviction in evictions)
        nodes = sum(eviction["evicted_nodes"] for eviction in evictions)
        shown = sorted(evictions, key=lambda e: -e["evicted_tokens"])[:_EVICTIONS]
        title = (
            f"evicted for it on replica {story['replica_id']}: {_count(tokens, 'token')} in"
            f" {_count(nodes, 'leaf' if cache_unit == 'leaf' else 'block')}"
        )
        if len(evictions) > _EVICTIONS:
            title += (
                f"; the {_EVICTIONS} largest evictions, {len(evictions) - _EVICTIONS} more in json"
            )
        order = shown if len(evictions) > _EVICTIONS else evictions
        yield from ("", title, "", *_table([_eviction(eviction) for eviction in order]))
    output = story["output_evictions"]["evicted_tokens"]
    if output:
        yield from ("", f"evicted for its output when it completed: {_count(output, 'token')}")


def _eviction(eviction: dict[str, Any]) -> dict[str, Any]:
    brought, again = eviction["brought_by"], eviction["asked_again_by"]
    # A look-up that matches an edge in part may touch it as a whole.
    used = said(eviction["last_used_by"]) if eviction["age_requests"] else "its own look-up"
    bringer = said(brought["request"]) if brought else ""
    return {
        "evicted_tokens": eviction["evicted_tokens"],
        "start_tokens": eviction["start_tokens"],
        "brought_by": f"output of {bringer}" if brought and brought["as"] == "output" else bringer,
        "last_used_by": used,
        "age_requests": eviction["age_requests"],
        "age_ms": eviction["age_ms"],
        "asked_again_by": said(again) if again else "",
        "asked_again_ms": eviction["asked_again_ms"],
    }


def _count(number: int, noun: str) -> str:
    plural = {"leaf": "leaves"}.get(noun, f"{noun}s")
    return f"{number:,} {noun if number == 1 else plural}"
