"""What a process runs to wait for a debugger is one line of a `.pth` file, and does nothing where one only probes."""

from pathlib import Path

import pytest
from hotbay.authoring.developing import debugging
from hotbay.authoring.developing.debugging import ADDRESS, debugger_folder, first_lines
from hotbay.errors import InputError

LOCK = "msgpack==1.1.0 \\\n    --hash=sha256:00\ndebugpy==1.8.0 \\\n    --hash=sha256:11\n"


def test_the_first_lines_are_one_import_line_that_compiles() -> None:
    text = first_lines(Path("/x/lib"), Path("/home/it's me/p"), Path("/s/site"))
    assert text.startswith("import ")
    assert text.count("\n") == 1
    compile(text, "x.pth", "exec")


def test_what_a_process_prints_is_found() -> None:
    found = ADDRESS.search("hotbay dev: waiting for a debugger on 127.0.0.1:5678")
    assert found is not None
    assert found[1] == "127.0.0.1:5678"


def test_a_debugger_in_the_lock_is_one_of_the_packages_wheels() -> None:
    assert debugger_folder(LOCK) is None


def test_without_a_debugger_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debugging, "find_spec", lambda _name: None)
    with pytest.raises(InputError) as caught:
        debugger_folder("debugpy-like==1\n")
    assert "pip install debugpy" in caught.value.hint
