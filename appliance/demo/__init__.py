"""The demo: a folder of sample documents of an invented company, Brightwater Instruments, and five questions."""

from appliance.demo.questions import DEMO_QUESTIONS, DemoQuestion, sample_folder
from appliance.demo.show import DEMO_COLLECTION, DemoAnswer, DemoReport, ask_samples, ingest_samples, run_demo

__all__ = [
    "DEMO_COLLECTION",
    "DEMO_QUESTIONS",
    "DemoAnswer",
    "DemoQuestion",
    "DemoReport",
    "ask_samples",
    "ingest_samples",
    "run_demo",
    "sample_folder",
]
