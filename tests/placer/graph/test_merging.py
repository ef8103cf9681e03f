"""Sets that grow together, and the pairs that unite in one round."""

from hypothesis import given
from hypothesis import strategies as st

from placer.graph.merging import UnionFind, has_stalled, matching, two_hop

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)


@given(PAIRS)
def test_joined_members_share_a_root_and_no_others_do(pairs):
    sets, plain = UnionFind[int](), {i: {i} for i in range(10)}
    for a, b in pairs:
        kept = sets.root(a)
        sets.join(a, b)
        assert sets.root(b) == kept
        both = plain[a] | plain[b]
        plain.update(dict.fromkeys(both, both))
    assert all((sets.root(a) == sets.root(b)) == (b in plain[a]) for a in range(10) for b in range(10))
    assert all(sets.roots()[i] == sets.root(i) for i in range(10))


@given(PAIRS)
def test_each_vertex_is_matched_once_and_only_with_whom_it_may_unite(pairs):
    found = list(matching(pairs, lambda a, b: a != b))
    ends = [end for pair in found for end in pair]
    assert len(ends) == len(set(ends))
    assert all(a == b or a in ends or b in ends for a, b in pairs)


def test_the_best_pair_comes_first():
    assert list(matching([(1, 2), (0, 1), (0, 3)], lambda a, b: True)) == [(1, 2), (0, 3)]


def test_what_is_left_around_a_hub_unites_two_by_two():
    """0 is the hub of 1 to 5, and has united with 1; 6 has another best neighbour."""
    pairs, united = [(6, 7), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6)], [(6, 7), (0, 1)]
    assert list(two_hop(pairs, united)) == [(2, 3), (4, 5)]
    assert list(two_hop(pairs, united, least=5)) == []


def test_of_what_is_left_around_a_hub_only_those_of_one_kind_unite():
    pairs = [(0, i) for i in range(1, 9)]
    assert list(two_hop(pairs, pairs[:1], kind=lambda vertex: vertex % 2)) == [(2, 4), (6, 8), (3, 5)]


def test_a_round_around_one_hub_has_stalled_and_one_along_a_chain_has_not():
    star, chain = [(0, i) for i in range(1, 60)], [(i, i + 1) for i in range(60)]
    assert has_stalled(star, list(matching(star, lambda a, b: True)))
    assert not has_stalled(chain, list(matching(chain, lambda a, b: True)))
