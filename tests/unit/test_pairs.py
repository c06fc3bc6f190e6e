"""`make bench` repeats its pairs until their ratio is known, and says where it shows nothing."""

from __future__ import annotations

from itertools import cycle

from pairs import LEAST, is_known, ratio, repeated, told


def test_a_quiet_machine_is_measured_a_few_times() -> None:
    found = repeated({"a": lambda: 2.0, "b": lambda: 3.0}, "a")
    assert {name: len(values) for name, values in found.items()} == {"a": LEAST, "b": LEAST}
    assert told(ratio(found["b"], found["a"])) == "  1.50 times (1.50 to 1.50)"


def test_a_noisy_machine_is_measured_longer_and_named() -> None:
    noise = cycle([1.0, 3.0, 0.5, 2.0, 1.1])
    found = repeated({"a": lambda: 1.0, "b": lambda: next(noise)}, "a", most=9)
    assert len(found["b"]) == 9
    of = ratio(found["b"], found["a"])
    assert not is_known(of)
    assert told(of).endswith(", not measurable, the machine is too noisy")


def test_a_small_difference_is_not_measurable() -> None:
    slightly = cycle([0.99, 1.01])
    found = repeated({"a": lambda: 1.0, "b": lambda: next(slightly)}, "a")
    of = ratio(found["b"], found["a"])
    assert is_known(of) and told(of).endswith("(0.99 to 1.01), not measurable")
