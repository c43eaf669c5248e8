"""Identity of what was found in a file."""

from pathlib import Path

from hotbay.config.file_content import FileContent, content_digest

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
