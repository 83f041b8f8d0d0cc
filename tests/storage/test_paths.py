"""Alternative paths: exact first, then leading chunks skipped; bounded; one chunk retired is found no more."""

import random
import threading
from collections.abc import Sequence

import pytest

from storage.paths import Match, PathIndex


def plain_find(known: dict[tuple[str, ...], str], path: Sequence[str]) -> list[Match]:
    """The paper's rule word by word, over whole paths instead of digests."""
    head, chunks = path[0], path[1:]
    matches = []
    for last in range(len(chunks)):
        match = Match(None)
        for skipped in range(last + 1):
            block = known.get((head, *chunks[skipped : last + 1]))
            if block is not None:
                match = Match(block, skipped)
                break
        matches.append(match)
    return matches


def test_the_papers_example() -> None:
    """Figure 10: chunk b behind the system prompt, then a and b; b and a must find a."""
    index = PathIndex()
    index.publish(["system", "b"], "kv of b")
    index.publish(["system", "a"], "kv of a")
    assert index.find(["system", "a", "b"]) == [Match("kv of a", 0), Match("kv of b", 1)]
    assert index.find(["system", "b", "a"]) == [Match("kv of b", 0), Match("kv of a", 1)]
    assert [match.exact for match in index.find(["system", "b", "a", "c"])] == [True, False, False]
    prefixes = PathIndex(skipping=False)
    prefixes.publish(["system", "b"], "kv of b")
    prefixes.publish(["system", "a"], "kv of a")
    assert prefixes.find(["system", "b", "a"]) == [Match("kv of b", 0), Match(None)]


def test_the_longest_known_path_wins() -> None:
    index = PathIndex()
    for path in (["h", "c"], ["h", "b", "c"], ["h", "a", "b", "c"]):
        index.publish(path, "/".join(path))
    assert index.find(["h", "a", "b", "c"])[2] == Match("h/a/b/c", 0)
    assert index.find(["h", "x", "b", "c"])[2] == Match("h/b/c", 1)
    assert index.find(["h", "b", "x", "c"])[2] == Match("h/c", 2)
    assert index.find(["h", "b", "a"]) == [Match(None), Match(None)]  # a path's inner chunks are no paths' ends
    assert index.find(["other head", "c"]) == [Match(None)]
    assert index.find(["h"]) == []


def test_names_do_not_run_together() -> None:
    index = PathIndex()
    index.publish(["h", "ab", "c"], "block")
    assert index.find(["h", "a", "bc"]) == [Match(None), Match(None)]
    assert index.find(["hab", "c"]) == [Match(None)]
    assert index.find(["h", "abc"]) == [Match(None)]


@pytest.mark.parametrize("skipping", [True, False])
def test_random_paths_against_the_plain_rule(skipping: bool) -> None:
    chooser = random.Random(4)
    index, known = PathIndex(skipping=skipping), dict[tuple[str, ...], str]()
    for number in range(400):
        path = [chooser.choice("GH"), *chooser.choices("abcde", k=chooser.randint(1, 5))]
        expected = plain_find(known, path)
        if not skipping:
            expected = [match if match.exact else Match(None) for match in expected]
        assert index.find(path) == expected
        index.publish(path, f"block {number}")
        known[tuple(path)] = f"block {number}"
    assert len(index) == len(known)


def test_the_least_recently_used_path_goes() -> None:
    index = PathIndex(capacity_paths=2)
    assert index.publish(["h", "a"], "A") == []
    assert index.publish(["h", "b"], "B") == []
    index.find(["h", "x", "a"])  # a skipped match is a use, too
    assert index.publish(["h", "c"], "C") == ["B"]
    assert len(index) == 2
    assert [match.block for match in index.find(["h", "a", "b", "c"])] == ["A", None, "C"]


def test_the_least_worthy_goes_and_the_newest_stays() -> None:
    worth = {"A": 3.0, "B": 1.0, "C": 2.0, "D": 0.0}
    index = PathIndex(capacity_paths=3, worth=worth.__getitem__)
    gone = [index.publish(["h", name.lower()], name) for name in "ABCD"]
    assert gone == [[], [], [], ["B"]]
    alone = PathIndex(capacity_paths=1, worth=worth.__getitem__)
    alone.publish(["h", "a"], "A")
    assert alone.publish(["h", "d"], "D") == ["A"]


def test_a_block_of_two_paths_and_a_path_of_two_blocks() -> None:
    index = PathIndex(capacity_paths=2)
    index.publish(["h", "a"], "A")
    index.publish(["h", "b", "a"], "A")
    assert index.publish(["h", "c"], "C") == []  # A still has a path
    assert index.publish(["h", "d"], "D") == ["A"]
    assert index.publish(["h", "d"], "new D") == ["D"]
    assert index.publish(["h", "d"], "new D") == []
    assert index.find(["h", "d"]) == [Match("new D", 0)]


def test_retired_blocks_are_found_no_more() -> None:
    index = PathIndex()
    index.publish(["h", "a"], "A")
    index.publish(["h", "b", "a"], "A")
    index.publish(["h", "b"], "B")
    index.retire("A")
    index.retire("never there")
    assert len(index) == 1
    assert index.find(["h", "b", "a"]) == [Match("B", 0), Match(None)]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one path"):
        PathIndex(capacity_paths=0)
    with pytest.raises(ValueError, match="at least one chunk"):
        PathIndex().publish(["h"], "block")
    with pytest.raises(ValueError, match="head's name"):
        PathIndex().find([])


def test_many_threads() -> None:
    """Every found block is that of a path of the prompt, and the bound holds, whoever publishes and retires."""
    index = PathIndex(capacity_paths=50)
    wrong: list[Match] = []

    def work(seed: int) -> None:
        chooser = random.Random(seed)
        for _ in range(300):
            path = ["h", *chooser.choices("abcdefgh", k=3)]
            for last, match in enumerate(index.find(path)):
                if match.block is not None and match.block != "".join(path[1 + match.skipped : last + 2]):
                    wrong.append(match)
            index.publish(path, "".join(path[1:]))
            if chooser.random() < 0.1:
                index.retire("".join(path[1:]))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 0 < len(index) <= 50
