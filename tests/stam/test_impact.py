"""Impact sets: likeness over both stores, one hop over the graph, cut to the budget."""
import dataclasses

from arrival_cases import arrival

from stam_jax.config import WriteConfig
from stam_jax.graph.relations import Relation
from stam_jax.graph.update import Commit, Update
from stam_jax.write.impact import impact


def related(a, *edges):
    """The arrival with relations (i, j, type[, confidence]) between its stored memories."""
    mids = list(a.state.memories)
    found = [Relation.of(mids[i], mids[j], t, confidence=c[0] if c else 1.0) for i, j, t, *c in edges]
    state = a.state.apply(Update.of(Commit(a.state.patient_id, a.state.version, relations=tuple(found))))
    return dataclasses.replace(a, state=state)


def link(a, new, old, type="same_condition_thread", confidence=1.0):
    return Relation.of(a.news[new].mid, list(a.state.memories)[old], type, confidence=confidence)


def one(a, linked, config=WriteConfig()):
    (task,), = impact([a], [linked], config)
    return task


CASCADE = ["warfarin dose: five a day", "inr plan: blood test every fortnight", "likes tea", "mother takes warfarin"]


def test_the_graph_finds_what_the_words_do_not():
    a = related(arrival(CASCADE, ["warfarin dose: stopped"]), (1, 0, "monitoring_for"))
    task = one(a, [[link(a, 0, 0)]])
    assert texts_of(task) == CASCADE[:2]
    assert [[r.type for r in c.path] for c in task.candidates] == [
        ["same_condition_thread"], ["same_condition_thread", "monitoring_for"]]
    assert CASCADE[1] not in texts_of(one(a, [[]]))  # likeness alone


def texts_of(task):
    return [c.memory.text for c in task.candidates]


def test_both_stores_are_searched_and_little_likeness_is_none():
    a = arrival(["cough at night", "cough gone", "likes tea"], ["cough"], archived=[1])
    assert sorted(texts_of(one(a, [[]]))) == ["cough at night", "cough gone"]
    assert texts_of(one(a, [[]], WriteConfig(least_cosine=1.0))) == []
    assert len(texts_of(one(a, [[]], WriteConfig(least_cosine=-1.0)))) == 3
    assert texts_of(one(a, [[]], WriteConfig(similar=0))) == []


def test_another_person_and_the_new_ones_are_never_in_it():
    a = related(arrival(CASCADE, ["warfarin dose: stopped", "warfarin dose: stopped now"]), (3, 0, "systemic_link"))
    task = one(a, [[link(a, 0, 0)], [Relation.of(a.news[0].mid, a.news[1].mid, "restatement")]])
    assert set(texts_of(task)) == {CASCADE[0]} and len(task.news) == 2


def test_direct_links_then_neighbours_and_likeness_by_turns_cut_to_the_budget():
    old = ["a", "b", "c", "d", "words one", "words two", "words three"]
    a = related(arrival(old, ["words"]), (0, 2, "causal", 0.6), (1, 3, "causal", 0.9), (0, 3, "causal", 0.7))
    linked = [[link(a, 0, 0, confidence=0.5), link(a, 0, 1, confidence=0.8)]]
    found = texts_of(one(a, linked, WriteConfig(least_cosine=0.1)))
    assert found[:3] == ["b", "a", "d"] and found[4] == "c" and {found[3], *found[5:]} == set(old[4:])
    assert texts_of(one(a, linked, WriteConfig(least_cosine=0.1, budget=4))) == found[:4]
    assert texts_of(one(a, linked, WriteConfig(related=1, similar=0))) == ["b"]
    assert texts_of(one(a, linked, WriteConfig(related=3, similar=0))) == ["b", "a", "d"]


def test_a_type_that_is_not_expanded_is_not_walked():
    a = related(arrival(["a", "b"], ["c"]), (0, 1, "causal"))
    table = dataclasses.replace(a.state.table, types=tuple(
        dataclasses.replace(t, expand=t.name != "causal") for t in a.state.table.types))
    linked = [[link(a, 0, 0)]]
    assert texts_of(one(a, linked)) == ["a", "b"]
    a.state.table = table
    assert texts_of(one(a, linked)) == ["a"]


def test_groups_join_the_impact_sets_of_their_memories():
    a = arrival(["red car", "blue sky"], ["red", "blue", "red and blue"])
    first, second = impact([a], [[[], [], []]], WriteConfig(group=2))[0]
    assert [len(first.news), len(second.news)] == [2, 1]
    assert texts_of(first) == ["red car", "blue sky"] and set(texts_of(second)) == {"red car", "blue sky"}
    assert impact([arrival(["x"], [])], [[]], WriteConfig()) == [[]]


def test_a_path_is_kept_where_likeness_found_it_too():
    a = arrival(["red car"], ["red", "red car again"])
    task = one(a, [[], [link(a, 1, 0)]])
    assert [len(c.path) for c in task.candidates] == [1]


def test_nothing_depends_on_the_wave():
    many = [arrival([f"visit {i}: same words" for i in range(30)], ["same words", "words"], patient="p1"),
            arrival(["same words"], ["same words"], patient="p10"), arrival([], ["x"], patient="p")]
    linked = [[[], [link(many[0], 1, 3)]], [[]], [[]]]
    together = impact(many, linked, WriteConfig())
    assert together == [impact([a], [own], WriteConfig())[0] for a, own in zip(many, linked)]
    assert {c.memory.patient_id for c in together[1][0].candidates} == {"p10"}
    assert together[2][0].candidates == ()
