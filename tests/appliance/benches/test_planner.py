"""The planner's bench on tiny models: every case asked, what it tells, and the busy disk it makes."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from appliance.benches import busy_disk
from appliance.benches.base import BenchRefused
from appliance.benches.busy_disk import BusyDisk
from appliance.benches.planner import (
    BAR,
    BEST_OF,
    CASES,
    Pair,
    PlannerBenchSettings,
    PlannerResult,
    run_planner_bench,
    table_of,
)
from appliance.planner import Planner
from appliance.settings import Settings
from storage.store import BlockStore, StoreSettings
from tests.appliance.benches.harag_data import write_questions
from tests.appliance.fixtures import Cli

RESULT = {
    *("questions", "p99_auto_full", "p99_full_full", "bar", "held", "median_auto_full", "max_auto_full"),
    *("planning_ms_median", "planning_ms_p99", "planning_ms_max", "cases", "data", "model", "fingerprint", "codec"),
    *("rates", "best_of", "machine"),
}
CASE = {
    *("questions", "p99_auto_full", "p99_full_full", "median_auto_full", "full_ms_median", "auto_ms_median"),
    *("overtaken", "load", "split", "compute"),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(busy_disk, "_FILE_BYTES", 4 << 20)
    return write_questions(tmp_path / "subjects.jsonl")


def test_every_case_is_asked(settings: Settings, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[StoreSettings] = []
    planned: list[float] = []
    make, decide = BlockStore.__init__, Planner.decide

    def noted(self: BlockStore, home: Any, catalog: Any, chosen: StoreSettings, **others: Any) -> None:
        made.append(chosen)
        make(self, home, catalog, chosen, **others)

    def slow_at_first(self: Planner, *chunks: Any) -> Any:
        planned.append(9.0 if len(planned) % BEST_OF == 0 else 0.5)
        return replace(decide(self, *chunks), planning_ms=planned[-1])

    monkeypatch.setattr(BlockStore, "__init__", noted)
    monkeypatch.setattr(Planner, "decide", slow_at_first)
    bench = PlannerBenchSettings((data,), 5, tmp_path / "dump")
    result = run_planner_bench(replace(settings, direct_reads=False), bench)
    told = result.as_json()
    assert told.keys() == RESULT
    assert all(case.keys() == CASE for case in told["cases"].values())
    assert {name: case["questions"] for name, case in told["cases"].items()} == {case.name: 1 for case in CASES}
    assert told["cases"]["absent"]["compute"] == 1
    assert len(planned) == 5 * BEST_OF
    assert [pair.planning_ms for pair in result.pairs] == [9.0] * 5  # the longest counts, not the last
    assert (told["planning_ms_max"], told["held"]) == (9.0, False)
    assert all(pair.prompt_tokens > 0 < min(pair.auto_ms, pair.full_ms, pair.again_ms) for pair in result.pairs)
    assert len(made) == 1 + 5  # the appliance's own, and one a pair
    assert not any(chosen.direct for chosen in made)
    assert {chosen.pageable_bytes > 0 for chosen in made[1:]} == {True, False}
    assert all(case.name in table_of(result) for case in CASES)
    assert {file.name for file in (tmp_path / "dump").iterdir()} == {"result.json", "pairs.json"}
    assert not list(settings.home.glob("bench-*"))


def test_the_order_of_systems_is_shuffled_and_always_the_same(
    settings: Settings, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appliance.benches import planner

    runs: list[list[str]] = []
    ask = planner._ask

    def noted(*arguments: Any) -> Any:
        runs[-1].append(arguments[-1])
        return ask(*arguments)

    monkeypatch.setattr(planner, "_ask", noted)
    for _ in range(2):
        runs.append([])
        run_planner_bench(settings, PlannerBenchSettings((data,), 5))
    assert runs[0] == runs[1]
    rounds = [strategy for strategy in runs[0] if strategy != "reuse"]
    orders = {tuple(rounds[start : start + 3]) for start in range(0, len(rounds), 3)}
    assert all(sorted(order) == ["auto", "full", "full"] for order in orders)
    assert len(orders) == 3


def test_the_bar_by_hand() -> None:
    def pair(auto_ms: float, again_ms: float, planning_ms: float = 0.1) -> Pair:
        return Pair("cold", "?", 9, auto_ms, 100.0, again_ms, "load", 0, planning_ms)

    assert PlannerResult((pair(104, 100), pair(50, 99))).as_json()["held"]
    assert not PlannerResult((pair(106, 100), pair(50, 99))).as_json()["held"]
    assert PlannerResult((pair(106, 102),)).as_json()["bar"] == pytest.approx(BAR * 1.02)
    assert not PlannerResult((pair(50, 100, planning_ms=1.1),)).as_json()["held"]


def test_too_few_questions_are_refused() -> None:
    with pytest.raises(BenchRefused, match="choose 5 or more"):
        PlannerBenchSettings(questions=4)


def most_read(children: list[psutil.Process]) -> int:
    return max(int(child.io_counters().read_chars) for child in children)


def test_the_busy_disk_is_read_and_written_while_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.benches.busy_disk._FILE_BYTES", 4 << 20)
    before = {child.pid for child in psutil.Process().children()}
    busy = BusyDisk(tmp_path)
    for _ in range(2):  # it may be entered again
        with busy:
            children = [child for child in psutil.Process().children() if child.pid not in before]
            assert len(children) == 3
            file = next(iter(tmp_path.iterdir()))
            first = file.read_bytes()
            assert len(first) == 4 << 20
            deadline = time.monotonic() + 20
            while file.read_bytes() == first and time.monotonic() < deadline:
                time.sleep(0.01)
            assert file.read_bytes() != first, "nobody writes"
            read = most_read(children)
            while most_read(children) <= read and time.monotonic() < deadline:
                time.sleep(0.01)
            assert most_read(children) > read, "nobody reads"
        assert {child.pid for child in psutil.Process().children()} <= before
        assert not list(tmp_path.iterdir())


def test_they_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from appliance.benches import busy_disk as b; b._FILE_BYTES = 4 << 20\n"
        "with b.BusyDisk(Path(sys.argv[1])) as busy:\n"
        "    print(*(child.pid for child in busy._children), flush=True); time.sleep(60)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    children = [psutil.Process(int(number)) for number in killed.stdout.readline().split()] if killed.stdout else []
    killed.kill()
    killed.communicate()
    assert len(children) == 3
    assert not psutil.wait_procs(children, timeout=20)[1]


def test_the_command(cli: Cli, data: Path) -> None:
    ran = cli("bench", "planner", "--data", data, "--questions", 5, "--json")
    assert ran.code == 0, ran.err
    assert ran.json.keys() == RESULT
    assert ran.json["questions"] == 5
    refused = cli("bench", "planner", "--questions", 2)
    assert (refused.code, len(refused.error_lines)) == (1, 1)
