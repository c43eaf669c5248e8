"""The page that is scraped in benchmarks."""

from itertools import islice
from pathlib import Path

from hotbay.datalayer.pages.exposition import PageReader

from benchmarks.figures.scrape import READS, pages_of
from benchmarks.scraped import LINES, MARK, busy_page

DUMP = Path(__file__).parents[2] / "data" / "metrics" / "vllm-0.32.0-metrics.txt"


def test_the_page_is_long_whole_and_changes_where_a_busy_server_does() -> None:
    page = busy_page(DUMP.read_bytes())
    assert page.count(b"\n") == LINES
    assert 40 < page.count(MARK) < 100
    read = PageReader(["vllm:num_requests_running", "vllm:kv_cache_usage_perc"]).read(page.replace(MARK, b"0000000007"))
    assert read.samples["vllm:num_requests_running"][0].value == 7.0
    assert read.samples["vllm:kv_cache_usage_perc"][0].value == 0.0
    assert read.bad_lines == 0


def test_no_page_that_is_read_has_the_numbers_of_one_before_it() -> None:
    line = busy_page(DUMP.read_bytes()).splitlines(keepends=True)
    wanted = b"".join(one for one in line if one.startswith(b"vllm:num_requests_running{"))
    pages = list(islice(pages_of(wanted), 3 * READS))
    read = [PageReader(["vllm:num_requests_running"]).read(page) for page in pages]
    assert len({one.samples["vllm:num_requests_running"][0].value for one in read}) == 3 * READS
