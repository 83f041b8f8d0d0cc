"""What the demo asks, and what a right answer holds."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DemoQuestion:
    """`fact` stands in one sample document and in every right answer, `18600` being read as `18,600`."""

    text: str
    fact: str

    def is_right(self, answer: str) -> bool:
        """Whether an answer holds the fact in under 60 words."""
        plain = answer.lower().replace(",", "")
        return self.fact.lower().replace(",", "") in plain and len(answer.split()) < 60


DEMO_QUESTIONS = (
    DemoQuestion("What is the rent for the building at Harlow Quay?", "18,600"),
    DemoQuestion("What is the price of a glass body?", "6.85"),
    DemoQuestion("What is the yearly fee in the agreement with Valmora Water Authority?", "118,400"),
    DemoQuestion("What is the limit for a gift from a customer?", "35 euros"),
    DemoQuestion("What is the name of the password manager?", "Vaultkeeper"),
)


def sample_folder() -> Path:
    """The folder with the sample documents."""
    return Path(__file__).parent / "sample"
