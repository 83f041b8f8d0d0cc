"""The demo with the embedded models: what the README promises."""

from pathlib import Path

from appliance.demo import run_demo
from appliance.service import Appliance
from tests.embedded import embedded_settings


def test_four_of_five_answers_are_right_both_ways_and_a_second_run_reads_nothing(tmp_path: Path) -> None:
    with Appliance.open(embedded_settings(tmp_path / "home")) as appliance:
        report = run_demo(appliance, lambda _: None)
        found = report.as_json()
        assert found["right_full"] >= 4
        assert found["right_reuse"] >= 4
        assert 30 <= report.ingest.chunks <= 60
        assert len(report.ingest.documents) >= 12
        assert all(answer.source for answer in report.answers)
        again = run_demo(appliance, lambda _: None)
        assert {entry.state for entry in again.ingest.documents} == {"unchanged"}
        assert again.ingest.kv_tokens == 0
        assert [answer.answer_reuse for answer in again.answers] == [answer.answer_reuse for answer in report.answers]
