"""Random runs for the report queries: each test that asks for `run` sees all of them."""

import pytest
from query_tables import Run
from random_runs import Shape, random_run

SHAPES = {
    "busy fleet": Shape(150),
    "many refusals": Shape(60, rejected_ratio=0.6),
    "one policy, one replica": Shape(40, policies=("round_robin",), replicas=1, idle=0),
    "mostly idle": Shape(30, replicas=13, idle=11),
    "one request": Shape(1),
    "all refused": Shape(9, rejected_ratio=1.1),
    "empty prompts": Shape(12, longest_prompt=0),
    "replicas but no requests": Shape(0),
    "in flight, first half not counted": Shape(80, warmup_ratio=0.5, in_flight=True),
    "blocks of 16": Shape(50, warmup_ratio=0.1),
    "replicas lost, three seeds": Shape(90, failed_ratio=0.3, seeds=3, warmup_ratio=0.2),
    "all lost, two seeds": Shape(20, failed_ratio=1.1, seeds=2),
    "two replicas": Shape(70, replicas=2, idle=1, rejected_ratio=0.0),
}


@pytest.fixture(scope="session", params=SHAPES)
def run(request: pytest.FixtureRequest) -> Run:
    names = list(SHAPES)
    rows = random_run(names.index(request.param), SHAPES[request.param])
    return Run(rows, block_tokens=16 if request.param == "blocks of 16" else 1)
