"""The diagrams in the documentation are those of the tables."""

from pathlib import Path

from hotbay.rollout.diagrams import document

PAGE = Path(__file__).resolve().parents[2] / "docs" / "state-machines.md"


def test_documented_state_machines_are_those_of_the_code():
    assert PAGE.read_text() == document(), "run `python -m hotbay.rollout.diagrams > docs/state-machines.md`"
