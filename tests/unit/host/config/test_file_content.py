"""Identity of what was found in a file."""

import errno
from pathlib import Path

import pytest
from hotbay.config.file_content import FileContent, content_digest
from hotbay.errors import InputError, Place

PATH = Path("p.yaml")


def test_digest_tells_contents_and_reasons_apart():
    contents = [
        FileContent(PATH, b""),
        FileContent(PATH, b"a"),
        FileContent(PATH, None, "x"),
        FileContent(PATH, None, "y"),
    ]
    assert len({content.digest for content in contents}) == 4
    assert contents[1].digest == content_digest(b"a")


def test_text_of_what_cannot_be_read_is_refused_with_the_reason_and_the_hint():
    with pytest.raises(InputError) as refused:
        FileContent(PATH, None, "No such file or directory").text(hint="check its name")
    (problem,) = refused.value.problems
    assert (problem.code, problem.place, problem.hint) == ("CONFIG_INVALID", Place("p.yaml"), "check its name")
    assert problem.message == "cannot be read: No such file or directory"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_host_without_a_free_descriptor_is_no_fault_of_the_file(number):
    with pytest.raises(InputError, match=r"p\.yaml: RESOURCE_EXHAUSTED: cannot be read now: Too many") as refused:
        FileContent(PATH, None, "Too many open files", number).text(hint="check its name")
    assert "ulimit -n" in refused.value.hint


def test_text_is_what_the_bytes_say():
    assert FileContent(PATH, "é".encode()).text(hint="") == "é"
    with pytest.raises(InputError):
        FileContent(PATH, b"\xff").text(hint="")
