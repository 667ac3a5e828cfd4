"""Write day1, the request log of one invented day of a small LLM fleet, and its trace.

Six tenants, each with a system prompt of its own, share four replicas on 2026-03-03 (UTC): a
shop's help desk, a coding assistant, a contract reader, an analytics chat, an operations agent
that calls tools, and a tagger that uses plain completions. Chats grow turn by turn, agents step
every few seconds, and one request in a hundred is sent again. At 02:00 a nightly job tags 250
reviews. At 14:40 some 400 contracts reach the contract reader within half a minute, most of them
in ten seconds: more than one replica can prefill, and no trouble for four. One prompt is empty,
which tokenize rejects, and one holds a contract of about 30,000 tokens. All text is put together
from the phrases below by a seeded generator: a second run with the same pyarrow writes the same
bytes.
"""

import argparse
import json
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from day1_words import (
    ANALYTICS,
    CODING,
    FACTS,
    LEGAL,
    SECTIONS,
    SHARED,
    SUPPORT,
    TAGS,
    TOOLS,
    Words,
)

Row = dict[str, Any]  # one line of the log

SEED = 20260303
MIDNIGHT = 1_772_496_000_000  # 2026-03-03T00:00:00Z in ms, as are all times below
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
CHARS_A_TOKEN = 4.9
CHAT_MODEL, BASE_MODEL = "qwen3-8b", "qwen3-1.7b-base"
OFFICE = (2, 2, 1, 1, 2, 3, 6, 14, 30, 46, 60, 62, 50, 56, 64, 60, 54, 38, 22, 14, 9, 6, 4, 3)
SHOP = (4, 3, 2, 2, 2, 3, 6, 12, 24, 38, 52, 58, 56, 50, 50, 48, 50, 44, 36, 32, 28, 20, 12, 6)


def phrases(words: str | tuple[str, ...]) -> list[str]:
    return [" ".join(p.split()) for p in words.split("|")] if isinstance(words, str) else [*words]


class Writer:
    """Fills sentence frames with a domain's phrases and the facts of one session."""

    def __init__(self, key: str, domain: Words, facts: dict[str, int] = FACTS) -> None:
        self.rng = random.Random(f"{SEED}/{key}")
        self.choices = {slot: phrases(words) for slot, words in (SHARED | domain).items()}
        for slot, count in facts.items():
            self.choices[slot] = self.rng.sample(self.choices[slot], count)
        self.choices["ref"] = [f"{self.rng.choice('ABCDEFG')}-{self.rng.randrange(10_000, 99_999)}"]
        self.decks: dict[str, list[str]] = {}

    def draw(self, slot: str) -> str:
        """Fill the next template of a shuffled deck, so that repetitions stand far apart."""
        if not self.decks.get(slot):
            self.decks[slot] = self.rng.sample(self.choices[slot], len(self.choices[slot]))
        return self.fill(self.decks[slot].pop())

    def fill(self, template: str) -> str:
        def phrase(slot: re.Match[str]) -> str:
            text = self.draw(slot[1].lower())
            return text[0].upper() + text[1:] if slot[1][0].isupper() else text

        return re.sub(r"<(\w+)>", phrase, template)

    def prose(self, frame: str, tokens: float, numbered: bool = False) -> str:
        """Write sentences of about so many tokens, at least one; numbered like a contract's."""
        text = "1.1 " * numbered + self.draw(frame)
        clause = 1
        while len(text) < tokens * CHARS_A_TOKEN:
            start = f"\n{clause // 7 + 1}.{clause % 7 + 1} " if numbered else " "
            text += start + self.draw(frame)
            clause += 1
        return text

    def manual(self, tokens: int) -> str:
        """Write the rules of a system prompt, section by section."""
        titles = self.rng.sample(phrases(SECTIONS), min(10, 1 + tokens // 120))
        return "\n\n".join(f"# {t}\n{self.prose('rule', tokens / len(titles))}" for t in titles)


@dataclass(frozen=True)
class Tenant:
    """What a tenant's prompts are like and how often they come."""

    name: str
    role: str
    words: Words
    manual_tokens: int
    hours: tuple[int, ...]
    sessions: int
    mean_turns: float = 1
    editions: int = 1  # versions of the manual, which differ in their last part only
    document_tokens: tuple[int, int] = (0, 0)  # pasted into a session's first message

    @cached_property
    def system_prompts(self) -> list[str]:
        writer = Writer(self.name, self.words, {"name": 1})
        common = f"You are {self.role}.\n\n{writer.manual(self.manual_tokens)}"
        return [f"{common}\n\n{writer.manual(300)}" for _ in range(self.editions)]


HELP_DESK = Tenant("helpdesk", "the help desk of a furniture shop", SUPPORT, 550, SHOP, 310, 3.2, 3)
CODER = Tenant("coder", "a coding assistant", CODING, 550, OFFICE, 90, 4.8, 8)
READER = Tenant("reader", "a reader of contracts", LEGAL, 2_600, OFFICE, 70, 1.6, 1, (1_500, 2_500))
ANALYST = Tenant("analyst", "the analyst of a shop chain", ANALYTICS, 1_000, OFFICE, 75, 3.4, 4)
AGENT = Tenant("agent", "an agent on call for a web shop", CODING, 900, OFFICE, 7)
TAGGER = Tenant("tagger", "a tagger of reviews", SUPPORT, 0, SHOP, 60)


class Session:
    """The requests of one session, with its clock and its writer."""

    def __init__(self, tenant: Tenant, number: int, start: int | None = None) -> None:
        self.tenant = tenant.name
        self.session_id = f"{tenant.name}-{number:04d}"
        self.writer = Writer(self.session_id, tenant.words)
        self.rng = self.writer.rng
        hour = self.rng.choices(range(24), tenant.hours)[0]
        self.clock = hour * HOUR + self.rng.randrange(HOUR) if start is None else start
        self.log: list[Row] = []

    def send(self, body: dict[str, Any], answer: str) -> None:
        """Log a request, and now and then its retry; move the clock to the end of the answer."""
        tokens = round(len(answer) / CHARS_A_TOKEN)
        row = {
            "timestamp": (MIDNIGHT + self.clock) / 1000,
            "request_id": f"{self.session_id}-{len(self.log) + 1:02d}",
            "tenant": self.tenant,
            "session_id": self.session_id,
            "body": body,
            "response": {"usage": {"completion_tokens": tokens}},
        }
        self.log.append(row)
        if self.rng.random() < 0.01:
            self.clock += self.rng.randrange(2 * SECOND, 10 * SECOND)
            again = {"timestamp": (MIDNIGHT + self.clock) / 1000}
            self.log.append(row | again | {"request_id": f"{row['request_id']}-retry1"})
        self.clock += 400 + 15 * tokens

    def pause(self, shortest: int, mean: int) -> None:
        self.clock += shortest + round(self.rng.expovariate(1 / (mean - shortest)))


def chat(tenant: Tenant, number: int, start: int | None = None, turns: int = 0) -> list[Row]:
    """Talk for some turns, each request with the whole conversation so far."""
    session = Session(tenant, number, start)
    writer, rng = session.writer, session.rng
    messages = [{"role": "system", "content": rng.choice(tenant.system_prompts)}]
    for turn in range(turns or min(15, 1 + int(rng.expovariate(1 / (tenant.mean_turns - 0.5))))):
        question = writer.prose("ask", rng.randrange(15, 90))
        if turn == 0 and tenant.document_tokens[1]:
            document = writer.prose("clause", rng.randint(*tenant.document_tokens), numbered=True)
            question = f"Agreement {writer.draw('ref')}\n{document}\n\nQuestion: {question}"
        elif turn == 0:
            question = f"Hello, {writer.draw('name')} here. {question}"
        answer = writer.prose("answer", rng.randrange(60, 280))
        if "code" in writer.choices and rng.random() < 0.6:
            answer += f"\n\n{writer.draw('code')}\n\n{writer.prose('answer', 40)}"
        messages = [*messages, {"role": "user", "content": question}]
        session.send({"model": CHAT_MODEL, "messages": messages, "max_tokens": 1024}, answer)
        messages = [*messages, {"role": "assistant", "content": answer}]
        session.pause(10 * SECOND, 90 * SECOND)
    return session.log


def tool_definition(name: str, description: str, argument: str) -> dict[str, Any]:
    properties = {argument: {"type": "string"}, "minutes": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": [argument]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def tool_result(tool: str, writer: Writer, now: int) -> str:
    """Make up what a tool gives back: nothing much, or some hundred tokens."""
    rng = writer.rng
    if tool == "search_logs":
        seconds = sorted(now // 1000 - rng.randrange(600) for _ in range(rng.randrange(8, 22)))
        clock = (f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in seconds)
        return "\n".join(f"2026-03-03T{time}Z {writer.draw('log')}" for time in clock)
    if tool == "read_runbook":
        return writer.prose("rule", rng.randrange(200, 600))
    if tool == "read_file":
        return "\n\n".join(writer.draw("code") for _ in range(rng.randrange(2, 6)))
    if tool == "get_metric":
        return json.dumps([rng.randrange(20, 90) for _ in range(rng.randrange(15, 45))])
    return "noted"


def agent_run(number: int) -> list[Row]:
    """Look into one incident in 10 to 40 steps, each a tool call and its result."""
    session = Session(AGENT, number)
    writer, rng = session.writer, session.rng
    tools = [tool_definition(name, *facts[:2]) for name, facts in TOOLS.items()]
    task = writer.fill("Incident <ref>: <e>, and <e>. Find the cause and propose what to do.")
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": AGENT.system_prompts[0]},
        {"role": "user", "content": task},
    ]
    for step in range(rng.randint(10, 40)):
        tool = rng.choice(list(TOOLS))
        _, argument, value = TOOLS[tool]
        arguments = json.dumps({argument: writer.fill(value), "minutes": 10}, ensure_ascii=False)
        function = {"name": tool, "arguments": arguments}
        call = {"id": f"call_{number}_{step}", "type": "function", "function": function}
        thought = writer.draw("answer")
        body = {"model": CHAT_MODEL, "messages": messages, "tools": tools, "max_tokens": 512}
        session.send(body, thought + arguments)
        result = tool_result(tool, writer, session.clock)
        messages = [
            *messages,
            {"role": "assistant", "content": thought, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": result},
        ]
        session.pause(SECOND, 6 * SECOND)
    return session.log


def tagged_examples() -> str:
    """Write the examples that all prompts of the tagger begin with."""
    writer = Writer("examples", SUPPORT, {})
    examples = (f"\nReview: {writer.prose('review', 60)}\nTag: {label}\n" for label in TAGS * 2)
    return f"Give each review one tag out of: {', '.join(TAGS)}.\n" + "".join(examples)


def tag(number: int, examples: str, start: int | None = None) -> list[Row]:
    session = Session(TAGGER, number, start)
    review = session.writer.prose("review", session.rng.randrange(100, 500))
    body = {"model": BASE_MODEL, "prompt": f"{examples}\nReview: {review}\nTag:", "max_tokens": 4}
    session.send(body, session.rng.choice(TAGS))
    return session.log


def one_day() -> list[Row]:
    """Make the day's requests in order of time; ties keep the order in which they are made."""
    log: list[Row] = []
    for tenant in (HELP_DESK, CODER, READER, ANALYST):
        for number in range(tenant.sessions):
            log += chat(tenant, number)
    for number in range(AGENT.sessions):
        log += agent_run(number)
    long_contract = replace(READER, document_tokens=(26_000, 26_000))
    log += chat(long_contract, 2_000, 11 * HOUR + 12 * MINUTE, turns=2)
    rng = random.Random(SEED)
    for number in range(400):
        offset = 15 + max(-15, min(15, rng.gauss(0, 4)))
        start = 14 * HOUR + 40 * MINUTE + round(offset * SECOND)
        log += chat(READER, 1_000 + number, start, turns=1)
    examples = tagged_examples()
    for number in range(TAGGER.sessions):
        log += tag(number, examples)
    for number in range(250):
        log += tag(1_000 + number, examples, 2 * HOUR + rng.randrange(4 * MINUTE))
    empty = Session(TAGGER, 2_000, 9 * HOUR + 3 * MINUTE)
    empty.send({"model": BASE_MODEL, "prompt": "", "max_tokens": 4}, "")
    log += empty.log
    tomorrow = (MIDNIGHT + 24 * HOUR) / 1000
    return sorted((r for r in log if r["timestamp"] < tomorrow), key=lambda r: r["timestamp"])


def summary(log: list[Row], chars: int, size: int) -> str:
    hours = Counter(int(row["timestamp"] % 86_400 // 3_600) for row in log)
    sessions = len({row["session_id"] for row in log})
    return (
        f"{len(log):,} requests in {sessions:,} sessions, {chars:,} characters, "
        f"{size:,} bytes compressed\nrequests an hour: {[hours[hour] for hour in range(24)]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    beside = Path(__file__).with_name("day1.jsonl.zst")
    parser.add_argument("-o", "--output", type=Path, default=beside, help="the log to write")
    parser.add_argument("--log-only", action="store_true", help="do not tokenize the log")
    options = parser.parse_args()
    path: Path = options.output
    log = one_day()
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in log)
    path.write_bytes(pa.Codec("zstd", compression_level=19).compress(text.encode(), asbytes=True))
    print(summary(log, len(text), path.stat().st_size), file=sys.stderr)
    if not options.log_only:
        trace = path.with_name(path.name.removesuffix(".jsonl.zst") + ".parquet")
        command = [sys.executable, "-m", "pipeline.cli", "tokenize", str(path), "-o", str(trace)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
