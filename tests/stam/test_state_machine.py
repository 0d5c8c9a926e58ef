"""Random operations on a store of two patients whose ids are prefixes: I1 to I15 hold after each, nothing gets lost."""
import pathlib
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_cases import HEADER, commit, entry, memory

from stam_jax.graph import canonical
from stam_jax.graph.memory import Provenance
from stam_jax.graph.relations import DEFAULT, Relation
from stam_jax.graph.state import State, StateError
from stam_jax.graph.transitions import REASONS, IllegalTransition, Transition, archive, delete, prior, reinstate
from stam_jax.graph.undo import UndoRefused
from stam_jax.graph.update import Confirmation, Mark
from stam_jax.storage.store import Store

PATIENTS = ("1", "10")
DATES = (None, "2023", "2024-02", "2024-02-28", "2024-02-29", "2024-03-01", "2024-03-01T22:00:00", "2025-12-31")
TIMES = ((None, None), ("2023", None), ("2024-02", None), ("2024-02-29", None), ("2024-02-01", "2024-02-29"),
         ("2024-03-01", "2025"))
REFUSED = (IllegalTransition, StateError)
pick = st.integers(0, 10 ** 6)


class Memories(RuleBasedStateMachine):
    """places, texts: what the store should hold, kept by hand; after an undo the places are read anew."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name) / "store"
        self.store = Store.open(self.path, encoder=HEADER, check=True)
        self.places = {p: {} for p in PATIENTS}
        self.texts, self.erased_words = {}, []
        self.past = {p: [State(p).sha256] for p in PATIENTS}
        self.commits = []
        self.count = 0

    @initialize()
    def start(self):
        for p in PATIENTS:
            self.ingest(p, 1, 5, 3, 0)

    # ---- helpers

    def choose(self, p, place, number):
        found = [m for m, at in self.places[p].items() if at == place]
        return found[number % len(found)] if found else None

    def move(self, p, transitions, places):
        """Commit moves; refused ones leave everything as it was."""
        before = self.store.state(p).canonical()
        try:
            self.write(commit(self.store.version(p), transitions=transitions, patient=p))
        except REFUSED:
            assert self.store.state(p).canonical() == before
            return False
        self.places[p].update(places)
        return True

    def write(self, c):
        self.store.commit([c])
        self.past[c.patient_id].append(self.store.state(c.patient_id).sha256)
        self.commits.append(c)

    # ---- operations

    @rule(p=st.sampled_from(PATIENTS), n=st.integers(0, 3), date=pick, time=pick, late=pick)
    def ingest(self, p, n, date, time, late):
        self.count += 1
        words = [f"w{self.count}x{i}" for i in range(n)]
        e = entry(f"visit {self.count}: " + ", ".join(words), patient=p, date=DATES[date % len(DATES)])
        start, end = TIMES[time % len(TIMES)]
        memories, moves = [], []
        for i, word in enumerate(words):
            whose = "FAMILY" if word.endswith("2") else "PATIENT"
            m = memory(e, word, start=start, end=end, ordinal=i, experiencer=whose)
            if late % 3 == i:
                m = canonical.replaced(m, store="HISTORY")
                moves.append(prior(m.mid))
            memories.append(m)
        self.write(commit(self.store.version(p), [e], memories, patient=p, transitions=moves))
        for m, word in zip(memories, words):
            self.places[p][m.mid], self.texts[m.mid] = m.store, word

    @rule(p=st.sampled_from(PATIENTS), a=pick, b=pick, reason=st.sampled_from(
        ["SUPERSEDED", "RESOLVED", "CORRECTED", "RESTATED", "EXPIRED"]), assumed=st.booleans(), follow=st.booleans())
    def archive(self, p, a, b, reason, assumed, follow):
        mid, succ = self.choose(p, "ACTIVE", a), self.choose(p, "HISTORY" if a % 5 == 0 else "ACTIVE", b)
        if mid is None or succ == mid:
            return
        if reason in ("SUPERSEDED", "RESTATED") and succ is None:
            return
        needs = reason in ("SUPERSEDED", "RESTATED") or (reason != "EXPIRED" and follow)
        self.move(p, [archive(mid, reason, successor=succ if needs else None, order="assumed" if assumed else "known")],
                  {mid: "HISTORY"})

    @rule(p=st.sampled_from(PATIENTS), a=pick)
    def reinstate(self, p, a):
        if (mid := self.choose(p, "HISTORY", a)) is not None:
            assert self.move(p, [reinstate(mid)], {mid: "ACTIVE"})

    @rule(p=st.sampled_from(PATIENTS), a=pick, score=st.sampled_from([0.5, 0.9, 1.0]))
    def gate(self, p, a, score):
        if (mid := self.choose(p, "HISTORY", a)) is not None:
            assert self.move(p, [delete(mid, score, 0.5, "c1")], {mid: "DELETED"})
            self.forget(p)

    @rule(p=st.sampled_from(PATIENTS), a=pick, place=st.sampled_from(["ACTIVE", "HISTORY"]))
    def erase(self, p, a, place):
        if (mid := self.choose(p, place, a)) is not None:
            self.store.erase(p, [mid])
            self.places[p][mid] = "DELETED"
            self.past[p].append(None)
            self.erased_words.append(self.texts[mid])
            self.forget(p)

    @precondition(lambda self: self.count > 6)
    @rule(p=st.sampled_from(PATIENTS))
    def erase_patient(self, p):
        self.store.erase(p)
        self.erased_words += [self.texts[m] for m, at in self.places[p].items() if at != "DELETED"]
        self.places[p] = dict.fromkeys(self.places[p], "DELETED")
        self.past[p].append(None)
        self.forget(p)

    def forget(self, p):
        """A deletion changes what views of the past show."""
        self.past[p] = [None] * len(self.past[p])

    @rule(p=st.sampled_from(PATIENTS), a=pick, b=pick, kind=st.sampled_from([t.name for t in DEFAULT.types]))
    def relate(self, p, a, b, kind):
        src, dst = self.choose(p, "ACTIVE", a), self.choose(p, "HISTORY" if b % 2 else "ACTIVE", b)
        if src is None or dst is None or src == dst:
            return
        r = Relation.of(src, dst, kind)
        c = commit(self.store.version(p), relations=[r], patient=p)
        if r.rid in self.store.state(p).relations:
            with pytest.raises(StateError):
                self.store.commit([c])
        else:
            self.write(c)

    @rule(p=st.sampled_from(PATIENTS), a=pick, flag=st.sampled_from([(), ("needs_review",)]))
    def confirm_and_mark(self, p, a, flag):
        if (mid := self.choose(p, "ACTIVE", a)) is not None:
            self.count += 1
            e = entry(f"again {self.count}", patient=p)
            self.write(commit(self.store.version(p), [e], patient=p, marks=[Mark(mid, flag)],
                              confirmations=[Confirmation(mid, [Provenance.of(e, 0, 5)])]))

    @rule(p=st.sampled_from(PATIENTS), a=pick, cascade=st.booleans())
    def revert(self, p, a, cascade):
        if not (version := self.store.version(p)):
            return
        before = self.store.state(p)
        deleted = {m for m, at in self.places[p].items() if at == "DELETED"}
        try:
            self.store.revert(p, a % version + 1, cascade=cascade)
        except (UndoRefused, IllegalTransition, StateError):
            assert self.store.state(p).canonical() == before.canonical()
            return
        after = self.store.state(p)
        self.past[p] += [None] * (after.version - version - 1) + [after.sha256]
        assert after.places.keys() == before.places.keys()
        assert {m for m, at in after.places.items() if at == "DELETED"} == deleted
        if after.version == version + 1:  # undoing the undo gives the places back
            self.store.revert(p, after.version)
            self.past[p].append(self.store.state(p).sha256)
            assert self.store.state(p).places == before.places
        self.places[p] = dict(self.store.state(p).places)

    @precondition(lambda self: any(c.entries for c in self.commits))
    @rule(a=pick)
    def ingest_again(self, a):
        known = [c for c in self.commits if c.entries]
        c = known[a % len(known)]
        version = self.store.version(c.patient_id)
        assert self.store.commit([c]) == {c.patient_id: version}

    @rule(p=st.sampled_from(PATIENTS), a=pick, from_=st.sampled_from([None, "ACTIVE", "HISTORY", "DELETED"]),
          to=st.sampled_from(["ACTIVE", "HISTORY", "DELETED"]), reason=st.sampled_from(sorted(REASONS)))
    def illegal(self, p, a, from_, to, reason):
        other = PATIENTS[p == PATIENTS[0]]
        mid = self.choose(other, "ACTIVE", a) or self.choose(p, "DELETED", a)
        if mid is not None:
            with pytest.raises(REFUSED):
                self.store.commit([commit(self.store.version(p), patient=p, transitions=[
                    Transition(mid, from_, to, reason, decided_by="user")])])

    @rule()
    def reopen(self):
        self.store.close()
        self.store = Store.open(self.path, encoder=HEADER, check=True)

    # ---- what always holds

    @invariant()
    def the_store_holds_what_was_put_there(self):
        for p in PATIENTS:
            state = self.store.state(p)
            assert state.places == self.places[p]
            assert {m.mid for m in state.active()} == {m for m, at in self.places[p].items() if at == "ACTIVE"}
            for m in (*state.active(), *state.history()):
                assert self.texts[m.mid] in m.text and m.patient_id == p
                assert state.chain(m.mid)[-1].mid in state.places
            assert state.version == len(self.past[p]) - 1
            assert set(self.store.vectors(p)[0]) == set(state.memories)

    def teardown(self):
        try:
            self.store.compact()
            assert self.store.verify() == []
            for p in PATIENTS:
                state = self.store.state(p)
                replayed = State.replay(p, [r.update() for r in self.store.records(p)])
                assert replayed.canonical() == state.canonical()
                for seq, known in enumerate(self.past[p]):
                    view = state.as_of_seq(seq)
                    assert known in (None, view.sha256)
                    assert view.check() == []
            self.store.close()
            for word in self.erased_words:
                for file in self.path.iterdir():
                    assert not any(word.encode() + end in file.read_bytes() for end in (b" ", b",", b'"')), word
        finally:
            self.store.close()
            self.folder.cleanup()


SETTINGS = dict(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])
TestMemories = Memories.TestCase
TestMemories.settings = settings(max_examples=12, stateful_step_count=20, **SETTINGS)


@pytest.mark.slow
class TestManyMemories(Memories.TestCase):
    settings = settings(max_examples=300, stateful_step_count=50, **SETTINGS)
