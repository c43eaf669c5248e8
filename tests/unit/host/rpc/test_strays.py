"""How many stray answers a process may send."""

from hotbay.rpc.strays import AT_ONCE, Strays


def test_r13_ten_strays_are_survived_and_counted() -> None:
    strays = Strays()
    assert not any(strays.too_many(5.0) for _ in range(10))
    assert strays.count == 10


def test_strays_at_once_are_bounded_on_both_sides() -> None:
    strays = Strays()
    assert [strays.too_many(1000.0) for _ in range(AT_ONCE + 1)] == [False] * AT_ONCE + [True]


def test_r13_a_thousand_within_a_minute_are_not_survived() -> None:
    strays = Strays()
    assert any(strays.too_many(7.0 + 0.06 * n) for n in range(1000))


def test_a_few_each_second_are_survived_for_ever() -> None:
    strays = Strays()
    assert not any(strays.too_many(0.25 * n) for n in range(10_000))
