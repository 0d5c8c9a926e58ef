"""W8: what a writer proposed, judged by rules R1 to R12, becomes a commit. Pure; standard library only.

A proposal that a rule refuses is dropped and counted; nothing is archived that the rules do not allow, and whatever is
archived is followed by a memory that holds. What a rule decides by itself says so (`rule:R9`); what a writer proposed
and the rules let pass carries the writer's line (`model:C2 SUPERSEDED N1`), by the places of its task.

Counters: contradictory, unknown_alias (R1), not_active (R2), other_experiencer (R3), blocked_unverified,
blocked_no_relation (R4), blocked_older, became_prior (R5), blocked_polarity (R6), restated, blocked_other_value (R7),
blocked_multivalued (R8), expired, blocked_ended (R9), several_archivers (R10), sibling_prior, sibling_restated (R11),
failed (R12), blocked_no_successor.
"""
from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from stam_jax.config import WriteConfig
from stam_jax.graph import canonical
from stam_jax.graph.clinical_time import ClinicalTime, bounds, later
from stam_jax.graph.memory import Entry, Memory
from stam_jax.graph.relations import Relation
from stam_jax.graph.state import State
from stam_jax.graph.transitions import Transition, archive, prior
from stam_jax.graph.update import Commit, Confirmation, Mark, Status
from stam_jax.write.normalise import numbers, verified
from stam_jax.write.writer import PLACEMENTS, VERDICTS, UpdateAnswer, UpdateTask

SINGLE_VALUED = frozenset({"dose", "status", "value", "plan", "preference"})  # attributes of which one value holds
PASSING = frozenset({"STATE", "PLAN", "PREFERENCE"})  # kinds that are over at their end; an event has happened


# ---- slots, values, time --------------------------------------------------------------------------------------

def same_slot(a: Memory, b: Memory) -> bool:
    return None not in a.slot and a.slot == b.slot and a.experiencer == b.experiencer


def single_valued(m: Memory) -> bool:
    return m.concept is not None and m.attribute in SINGLE_VALUED


def _words(m: Memory) -> frozenset[str]:
    """Of value and unit, without case; numbers left out."""
    return frozenset(re.findall(r"[^\W\d_]+|[%<>≤≥+]", f"{m.value or ''} {m.unit or ''}".casefold()))


def restates(new: Memory, old: Memory) -> bool:
    """Whether `new` says of the same slot what `old` says, or less: the same numbers, no other words, one polarity.

    A measurement of another day is another measurement, and a plan with another end another plan.
    """
    if not same_slot(new, old) or new.polarity != old.polarity:
        return False
    a, b = new.clinical_time, old.clinical_time
    if "EVENT" in (new.kind, old.kind) and later(a, b) != later(b, a):
        return False
    if "PLAN" in (new.kind, old.kind) and None not in (a.end, b.end) and a.end != b.end:
        return False
    less = new.attribute == "dose" and new.value is not None and not numbers(new.value)  # how often, without how much
    return (less or numbers(new.value) == numbers(old.value)) and _words(new) <= _words(old)


def silent(new: Memory, old: Memory) -> bool:
    """Whether `new` affirms the slot of `old` without a value, where `old` has one."""
    affirmed = new.polarity == old.polarity == "AFFIRMED"
    return same_slot(new, old) and new.value is None and old.value is not None and affirmed


def _after(a: str | None, b: str | None) -> bool:
    """Whether entry date `a` is certainly after `b`; a time of day counts where both have one."""
    if a is None or b is None:
        return False
    return bounds(a)[0] > bounds(b)[1] or (len(a) > 10 and len(b) > 10 and a > b)


# ---- what is being decided ------------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """That `new` archives `old`. line: who said so. way: the relations from `new` to `old`. rank: how good a ground it
    is (R10)."""

    old: Memory
    new: Memory
    kind: str
    line: str
    delete: bool = False
    bare: bool = False  # the line named no new memory
    assumed: bool = False
    way: tuple[Relation, ...] = ()
    rank: tuple = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a new memory goes. target: the memory that it precedes (PRIOR) or repeats (SAME)."""

    kind: str
    target: str
    line: str
    assumed: bool = False


class _Case:
    """One entry's decision while it is made."""

    def __init__(self, state: State, entry: Entry, news: Sequence[Memory], relations: Iterable[Relation],
                 config: WriteConfig):
        self.state, self.entry, self.config, self.table = state, entry, config, state.table
        self.given = tuple(news)
        self.news = {m.mid: state.memories.get(m.mid, m) for m in news}
        self.counters: Counter[str] = Counter()
        self.places: dict[str, Place] = {}
        self.relations = {r.rid: r for r in relations}
        self.edges: dict[str, list[Relation]] = defaultdict(list)
        for r in (state.relations | self.relations).values():
            self.edges[r.src].append(r)
            self.edges[r.dst].append(r)
        self.order = {t.name: i for i, t in enumerate(self.table.types)}
        self.latest = max((e.date for e in (*state.entries.values(), entry) if e.date),
                          key=lambda date: bounds(date)[0], default=None)

    def memory(self, mid: str) -> Memory:
        return self.news.get(mid) or self.state.memories[mid]

    def source(self, m: Memory) -> Entry | None:
        key = m.provenance[0].entry_key
        return self.entry if key == self.entry.entry_key else self.state.entries.get(key)

    def ended(self, m: Memory) -> bool:
        """Whether a later entry shows that it is over (R9)."""
        return m.kind in PASSING and self.latest is not None and m.clinical_time.ended_before(self.latest)

    def older(self, new: Memory, old: Memory) -> tuple[bool, bool]:
        """(whether `new` is the older of the two, whether that is assumed). What an entry confirmed held that day."""
        if later(old.clinical_time, new.clinical_time) == "yes":
            return True, False
        for p in old.provenance[1:]:
            date = None if (e := self.state.entries.get(p.entry_key)) is None else e.date
            if date and later(ClinicalTime(date[:10], source="explicit"), new.clinical_time) == "yes":
                return True, True
        if later(new.clinical_time, old.clinical_time) == "yes":
            return False, False
        a, b = self.source(old), self.source(new)
        dates = a and a.date, b and b.date
        if _after(*dates) or _after(*dates[::-1]):
            return _after(*dates), True
        return 0 < new.update_seq < old.update_seq, True

    def path(self, new: Memory, old: Memory) -> tuple[Relation, ...]:
        """The relations from `new` to `old`: an admissible one, or one and any other that a hop may walk; else none."""
        def rank(r: Relation) -> tuple:
            return self.order[r.type], -r.confidence, r.rid

        first = sorted((r for r in self.edges[new.mid] if self.table[r.type].archive_admissible), key=rank)
        for r in first:
            if r.other(new.mid) == old.mid:
                return (r,)
        for r in first:
            over = [s for s in self.edges[r.other(new.mid)]
                    if s.other(r.other(new.mid)) == old.mid and self.table[s.type].expand]
            if over:
                return r, min(over, key=rank)
        return ()

    def place(self, new: Memory, place: Place) -> None:
        """The first repetition stands before any other place; of two memories that it precedes, the nearer one."""
        known = self.places.get(new.mid)
        if known is None or (place.kind == "SAME") > (known.kind == "SAME"):
            self.places[new.mid] = place
        elif known.kind == place.kind == "PRIOR":
            self.places[new.mid] = min(known, place, key=lambda p: (_start(self.memory(p.target)), p.target))


def _start(m: Memory) -> tuple:
    """Orders memories by their first day, unknown ones first."""
    return () if m.clinical_time.start is None else (bounds(m.clinical_time.start)[0],)


# ---- the rules ------------------------------------------------------------------------------------------------

def readable(case: _Case, task: UpdateTask, answer: UpdateAnswer) -> tuple[list, list]:
    """R1: (placements, verdicts) that name what is there and do not contradict one another."""
    news, candidates = range(len(task.news)), range(len(task.candidates))
    placements, verdicts = defaultdict(list), defaultdict(list)
    for p in dict.fromkeys(answer.placements):
        if p.new not in news or p.kind not in PLACEMENTS or (p.kind != "CURRENT" and p.candidate not in candidates):
            case.counters["unknown_alias"] += 1
        else:
            placements[p.new].append(p)
    for v in dict.fromkeys(answer.verdicts):
        named = v.new in news or (v.new is None and v.kind in ("KEEP", "RESOLVED"))
        if v.candidate not in candidates or v.kind not in VERDICTS or not named:
            case.counters["unknown_alias"] += 1
        else:
            verdicts[v.candidate].append(v)

    def alone(lines: list) -> bool:
        kinds = {v.new: v.kind for v in lines}
        return all(kinds[v.new] == v.kind for v in lines) and ("KEEP" not in kinds.values() or len(lines) == 1)

    clear: tuple[list, list] = [], []
    for kept, groups, fits in ((clear[0], placements, lambda g: len(g) == 1), (clear[1], verdicts, alone)):
        for lines in groups.values():
            if fits(lines):
                kept += lines
            else:
                case.counters["contradictory"] += len(lines)
    return clear


def only_active(case: _Case, old: Memory) -> bool:
    """R2: what stands in HISTORY is not archived again."""
    case.counters["not_active"] += old.store != "ACTIVE"
    return old.store == "ACTIVE"


def same_person(case: _Case, c: Claim) -> Claim | None:
    """R3."""
    return _refuse(case, "other_experiencer") if c.old.experiencer != c.new.experiencer else c


def only_verified(case: _Case, c: Claim) -> Claim | None:
    """W2: what the entry does not say archives nothing."""
    return c if verified(c.new) else _refuse(case, "blocked_unverified")


def related(case: _Case, c: Claim) -> Claim | None:
    """R4: along an admissible relation. What resolves or corrects its own slot needs none."""
    way = case.path(c.new, c.old)
    if not way:
        own = same_slot(c.new, c.old) and (c.kind != "SUPERSEDED" or restates(c.new, c.old))
        if case.config.relations and not own:
            return _refuse(case, "blocked_no_relation")
        return dataclasses.replace(c, rank=(2, len(case.order), 0.0))
    return dataclasses.replace(c, way=way, rank=(len(way) > 1, case.order[way[0].type], -way[0].confidence))


def not_older(case: _Case, c: Claim) -> Claim | None:
    """R5: the past does not archive the present, it precedes it; where time is silent, only within a slot.

    A correction is about what the record said, so that its entry must not be the earlier one.
    """
    older, assumed = case.older(c.new, c.old)
    if c.kind == "CORRECTED" and older:
        a, b = case.source(c.old), case.source(c.new)
        if not (a and b and _after(a.date, b.date)):
            return dataclasses.replace(c, assumed=True)
    slot = same_slot(c.new, c.old)
    if not older and (slot or not assumed):
        return dataclasses.replace(c, assumed=assumed)
    if older and may_precede(c.new, c.old):
        if c.kind == "SUPERSEDED" and restates(c.new, c.old):
            return c
        case.counters["became_prior"] += 1
        case.place(c.new, Place("PRIOR", c.old.mid, "rule:R5", assumed))
        return None
    return _refuse(case, "blocked_older")


def may_precede(new: Memory, old: Memory) -> bool:
    """Whether an older `new` is over because of `old`: in a slot of one value, or where one denies the other.

    Nothing is over because of what no entry says.
    """
    one = single_valued(new) or new.polarity != old.polarity
    return same_slot(new, old) and one and new.polarity != "CONDITIONAL" and verified(old) >= verified(new)


def polarity(case: _Case, c: Claim) -> Claim | None:
    """R6: what is denied ends what was affirmed, it does not replace it; what is uncertain at most ends its own slot.
    """
    again = c.new.polarity == c.old.polarity != "CONDITIONAL" and c.kind == "SUPERSEDED"
    if c.new.polarity == "AFFIRMED" or again:
        return c
    if c.new.polarity == "NEGATED":
        return dataclasses.replace(c, kind="RESOLVED") if c.kind == "SUPERSEDED" else c
    if c.new.polarity == "UNCERTAIN" and c.kind != "SUPERSEDED" and same_slot(c.new, c.old):
        return c
    return _refuse(case, "blocked_polarity")


def other_value(case: _Case, c: Claim) -> Claim | None:
    """R7: the same value again is a repetition."""
    if c.kind != "SUPERSEDED" or not restates(c.new, c.old):
        return c
    case.place(c.new, Place("SAME", c.old.mid, "rule:R7", c.assumed))
    return None


def one_value(case: _Case, c: Claim) -> Claim | None:
    """R8: a further allergy, problem or procedure replaces none, nor does a drug without its dose replace the dose."""
    several = c.new.attribute is not None and c.new.attribute == c.old.attribute and not (
        single_valued(c.new) and (same_slot(c.new, c.old) or c.new.attribute != "status"))
    if c.kind == "SUPERSEDED" and (several or silent(c.new, c.old)):
        return _refuse(case, "blocked_multivalued")
    return c


def still_holds(case: _Case, c: Claim) -> Claim | None:
    """R9: what is over itself replaces nothing."""
    return _refuse(case, "blocked_ended") if case.ended(c.new) and c.kind != "CORRECTED" else c


def _refuse(case: _Case, why: str) -> None:
    case.counters[why] += 1


RULES = (same_person, only_verified, related, not_older, polarity, other_value, one_value, still_holds)


def fuller(case: _Case, new: Memory, old: Memory, line: str) -> Claim | None:
    """R7 the other way round: `old` says less than `new` does, who takes its place, so that the same holds in whatever
    order the two arrived. Where another state lies between them, an older `new` is the state before that."""
    older, assumed = case.older(new, old)
    if older and any(same_slot(m, new) and not restates(old, m) and later(m.clinical_time, new.clinical_time) == "yes"
                     and later(old.clinical_time, m.clinical_time) == "yes" for m in case.state.memories.values()):
        return case.place(new, Place("PRIOR", old.mid, line, assumed))
    return None if case.ended(new) else Claim(old, new, "RESTATED", line, assumed=older or assumed, rank=(0, -1, 0.0))


def placed(case: _Case, new: Memory, kind: str, old: Memory, line: str) -> Claim | None:
    """A placement that a writer proposed: R3, R4, R5 and R7 hold for it as well. A claim where it moves `old`."""
    if old.experiencer != new.experiencer:
        return _refuse(case, "other_experiencer")
    if kind == "SAME":
        free = (None in new.slot and None in old.slot and new.polarity == old.polarity
                and numbers(new.text) == numbers(old.text))
        says_more = single_valued(new) and restates(old, new) and not restates(new, old)
        if says_more and old.store == "ACTIVE" and verified(new) and verified(old) \
                and case.config.restatement != "keep_both":
            return fuller(case, new, old, line)
        recurs = old.store != "ACTIVE" and not (
            later(new.clinical_time, old.clinical_time) == later(old.clinical_time, new.clinical_time) == "unknown")
        if recurs or not (free or restates(new, old) or (silent(new, old) and new.kind == "STATE")):
            return _refuse(case, "blocked_other_value")
        return case.place(new, Place("SAME", old.mid, line))
    if verified(old) < verified(new):
        return _refuse(case, "blocked_unverified")
    slot = same_slot(new, old)
    if not slot and case.config.relations and not case.path(new, old):
        return _refuse(case, "blocked_no_relation")
    older, assumed = case.older(new, old)
    if (assumed and not slot) or not (older or assumed):
        return _refuse(case, "blocked_older")
    if new.polarity == "CONDITIONAL":
        return _refuse(case, "blocked_polarity")
    if slot and not may_precede(new, old):
        return _refuse(case, "blocked_multivalued")
    return case.place(new, Place("PRIOR", old.mid, line, assumed))


def siblings(case: _Case) -> None:
    """R11: of one slot in one entry the latest by (clinical time, place in the text) holds, others precede it."""
    slots = defaultdict(list)
    for m in case.news.values():
        place = case.places.get(m.mid)
        if single_valued(m) and m.polarity in ("AFFIRMED", "NEGATED") and not case.ended(m) \
                and (place is None or place.kind == "SAME"):
            slots[m.experiencer, *m.slot].append(m)
    for group in slots.values():
        group = [m for m in group if verified(m)] or group
        group = [m for m in group if not any(silent(m, other) for other in group)]
        group.sort(key=lambda m: (_start(m), m.provenance[0].start, m.ordinal))
        last = group[-1]
        target, place = last.mid, case.places.get(last.mid)
        if place is not None and verified(case.memory(place.target)) >= verified(last):
            target = place.target
        for m in group[:-1]:
            if m.mid in case.places:
                continue
            if restates(m, last) or restates(last, m):
                if restates(m, last) and case.config.restatement == "attach":
                    case.counters["sibling_restated"] += 1
                    case.places[m.mid] = Place("SAME", target, "rule:R11")
            elif m.kind != "PLAN" or m.value != last.value or m.polarity != last.polarity:  # else: two appointments
                case.counters["sibling_prior"] += 1
                known = later(last.clinical_time, m.clinical_time) == "yes"
                case.places[m.mid] = Place("PRIOR", target, "rule:R11", not known)


def restated(case: _Case, claims: list[Claim]) -> None:
    """R7: what a repetition does: it is attached to the memory (default), kept beside it, or archives the older one.

    What is not verified confirms nothing, nor is it confirmed: it stays by itself.
    """
    for mid, place in list(case.places.items()):
        if place.kind != "SAME":
            continue
        new, old = case.news[mid], case.memory(place.target)
        if case.ended(old) and not case.ended(new):
            del case.places[mid]  # what is over is said anew
            continue
        case.counters["restated"] += 1
        if case.config.restatement == "attach" and verified(new) and verified(old):
            continue
        del case.places[mid]
        if "restatement" in case.order:
            r = Relation.of(new.mid, old.mid, "restatement", table=case.table)
            case.relations.setdefault(r.rid, r)
        if case.config.restatement == "archive_older" and verified(new) and verified(old) and old.store == "ACTIVE":
            older, assumed = case.older(new, old)
            if older:
                case.places[mid] = Place("PRIOR", old.mid, place.line, assumed)
            elif not case.ended(new):
                claims.append(Claim(old, new, "RESTATED", place.line, assumed=assumed, rank=(0, -1, 0.0)))


# ---- the decision ---------------------------------------------------------------------------------------------

def arbitrate(state: State, entry: Entry, news: Sequence[Memory], relations: Sequence[Relation],
              answers: Sequence[tuple[UpdateTask, UpdateAnswer]], config: WriteConfig, *, decider: str = "rule",
              hashes: Mapping[str, str] | None = None, counters: Mapping[str, int] | None = None,
              failed: bool = False) -> Commit:
    """The commit of one entry, still without its embedding rows.

    Args:
        state: what the tasks were made from. An entry that it knows is processed again: of its memories those that
            the state has are judged like new ones.
        news: in the order of the text. relations: what the linker found, between new memories and others.
        answers: the update tasks with their answers.
        decider, hashes: of the writer. counters: what was counted before; they join the commit's.
        failed: a writer failed on the entry (an answer with an error says so too): R12.
    """
    case = _Case(state, entry, news, relations, config)
    case.counters.update(counters or {})
    for _, answer in answers:
        case.counters.update(answer.problems)
    if failed or any(answer.error is not None for _, answer in answers):
        return _commit(case, _failed(case), [], hashes)
    claims: list[Claim] = []
    proposed: set[str] = set()
    for task, answer in answers:
        placements, verdicts = readable(case, task, answer)
        new = [case.news[m.mid] for m in task.news]
        old = [case.memory(c.memory.mid) for c in task.candidates]
        for p in placements:
            if p.kind != "CURRENT":
                line = f"{decider}:N{p.new + 1} {p.kind} C{p.candidate + 1}"
                if (claim := placed(case, new[p.new], p.kind, old[p.candidate], line)) is not None:
                    claims.append(claim)
        for v in verdicts:
            c = old[v.candidate]
            if v.kind == "KEEP" or not only_active(case, c):
                proposed |= {c.mid} if v.delete and c.store == "HISTORY" else set()
                continue
            line = f"{decider}:C{v.candidate + 1} {v.kind}" + ("" if v.new is None else f" N{v.new + 1}")
            for n in new if v.new is None else [new[v.new]]:
                claim: Claim | None = Claim(c, n, v.kind, line, v.delete, v.new is None)
                for rule in RULES:
                    if claim is not None:
                        claim = rule(case, claim)
                if claim is not None:
                    claims.append(claim)
    siblings(case)
    restated(case, claims)
    return _commit(case, _moves(case, claims, proposed), sorted(proposed), hashes)


def _failed(case: _Case) -> list[Transition]:
    """R12: everything new is kept for another try, and nothing moves."""
    case.counters["failed"] += 1
    case.places.clear()
    case.entry = canonical.replaced(case.entry, status="partial")
    for mid, m in case.news.items():
        if mid not in case.state.memories:
            case.news[mid] = canonical.replaced(m, flags=m.flags | {"needs_review"})
    return []


def _moves(case: _Case, claims: Sequence[Claim], proposed: set[str]) -> list[Transition]:
    """R9, R10: the transitions, each successor one that holds after all of them."""
    by_old: dict[str, list[Claim]] = defaultdict(list)
    for c in claims:
        by_old[c.old.mid].append(c)
    archived: dict[str, tuple[Claim, str]] = {}  # mid -> why, and where it leads

    def end(mid: str) -> str | None:
        """What holds, or stands, instead of a memory; None where it goes round in a circle."""
        seen = set()
        while mid not in seen:
            seen.add(mid)
            if mid in archived:
                mid = archived[mid][1]
            elif mid in case.places:
                mid = case.places[mid].target
            elif case.memory(mid).store == "HISTORY" and case.state.successor(mid) in case.state.memories:
                mid = case.state.successor(mid)
            else:
                return mid
        return None

    def holds(mid: str | None) -> bool:
        m = None if mid is None else case.memory(mid)
        return m is not None and m.store == "ACTIVE" and verified(m) and not case.ended(m)

    for mid in [mid for mid in case.places if end(mid) is None]:
        case.places.pop(mid)  # it would follow itself
    for old in [m for m in (*case.state.memories, *case.news) if m in by_old]:
        found = sorted(by_old[old], key=lambda c: (*c.rank[:2], _negated(_start(c.new)), c.rank[2], c.new.mid))
        for claim in found:
            last = end(claim.new.mid)
            if last != old and holds(last):
                archived[old] = claim, last
                case.counters["several_archivers"] += len(found) > 1
                break
        else:
            case.counters["blocked_no_successor"] += 1

    moves: list[Transition] = []
    for mid, m in case.news.items():
        if (place := case.places.get(mid)) is None:
            continue
        last = end(mid)
        if mid not in case.state.memories:
            if place.kind == "PRIOR":
                moves.append(prior(mid, successor=last, order=_order(m, case.memory(last), place.assumed),
                                   decided_by=place.line))
        elif m.store == "ACTIVE" and mid not in archived and holds(last):
            reason = "RESTATED" if place.kind == "SAME" else "SUPERSEDED"
            moves.append(archive(mid, reason, successor=last, order=_order(m, case.memory(last), place.assumed),
                                 decided_by=place.line))
    moved = {t.mid for t in moves}
    for old, (claim, _) in archived.items():
        if old in moved:
            continue
        last = end(old)
        m, kind = case.memory(old), claim.kind
        also = dict.fromkeys(_stands(case, c.new.mid) for c in by_old[old])
        also = [mid for mid in also if mid not in (old, last, None) and verified(case.memory(mid))]
        bare = claim.bare and kind == "RESOLVED"
        moves.append(archive(
            old, kind, successor=None if bare else last, also_by=() if bare else tuple(also),
            order="assumed" if claim.assumed and kind == "CORRECTED" else _order(m, case.memory(last), claim.assumed),
            decided_by=claim.line, evidence_rid=claim.way[-1].rid if claim.way else None,
            via=tuple(r.rid for r in claim.way[:-1])))
        if claim.delete:
            proposed.add(old)
    moved |= archived.keys()
    for mid, m in (case.state.memories | case.news).items():
        if m.store == "ACTIVE" and mid not in moved and mid not in case.places and case.ended(m):
            case.counters["expired"] += 1
            moves.append(archive(mid, "EXPIRED", decided_by="rule:R9"))
    return moves


def _negated(start: tuple) -> tuple:
    """The later the smaller; unknown last."""
    return (1, 0) if not start else (0, -start[0].toordinal())


def _order(m: Memory, successor: Memory, assumed: bool) -> str:
    return "assumed" if assumed or later(m.clinical_time, successor.clinical_time) == "yes" else "known"


def _stands(case: _Case, mid: str) -> str | None:
    """The stored memory that says what a new one says."""
    seen = set()
    while mid in case.places and case.places[mid].kind == "SAME" and mid not in case.state.memories and mid not in seen:
        seen.add(mid)
        mid = case.places[mid].target
    return None if mid in seen else mid


def _commit(case: _Case, moves: Sequence[Transition], proposed: Sequence[str],
            hashes: Mapping[str, str] | None) -> Commit:
    state, entry = case.state, case.entry
    known = entry.entry_key in state.entries
    memories, confirmed, marks = [], defaultdict(list), {}
    for mid, m in case.news.items():
        place = case.places.get(mid)
        if mid in state.memories:
            if entry.status == "complete" and "needs_review" in m.flags:
                marks[mid] = m.flags - {"needs_review"}
        elif place is not None and place.kind == "SAME" and (stands := _stands(case, mid)) is not None:
            confirmed[stands] += m.provenance
        else:
            memories.append(canonical.replaced(m, store="HISTORY") if place is not None else m)
    for m in case.given:
        if m.mid in state.memories and m.provenance[0] not in state.memories[m.mid].provenance:
            confirmed[m.mid] += m.provenance
    for mid in proposed:
        marks[mid] = marks.get(mid, case.memory(mid).flags) | {"deletion_proposed"}
    relations, moved = _relations(case)
    transitions = [_along(t, [moved.get(rid, rid) for rid in t.way]) for t in moves]
    return Commit(
        state.patient_id, state.version, () if known else (entry,), tuple(memories), tuple(relations),
        tuple(transitions), counters=dict(sorted((+case.counters).items())), model_hashes=dict(hashes or {}),
        confirmations=tuple(Confirmation(mid, tuple(p)) for mid, p in confirmed.items()),
        marks=tuple(Mark(mid, flags) for mid, flags in marks.items()),
        statuses=(Status(entry.entry_key, entry.status),) if known and entry.status != state.entries[
            entry.entry_key].status else ())


def _along(t: Transition, way: Sequence[str | None]) -> Transition:
    """The transition with a way of other relations; None = one that is not stored."""
    *via, last = way or [None]
    kept = tuple(dict.fromkeys(rid for rid in via if rid not in (None, last)))
    return canonical.replaced(t, evidence_rid=last, via=kept if last is not None else ())


def _relations(case: _Case) -> tuple[list[Relation], dict[str, str | None]]:
    """(relations to store, rid -> rid of those that moved): a repetition's hang on the memory that it repeats."""
    out: dict[str, Relation] = {}
    moved: dict[str, str | None] = {}
    for r in case.relations.values():
        ends = [_stands(case, mid) for mid in (r.src, r.dst)]
        if ends != [r.src, r.dst]:
            if None in ends or ends[0] == ends[1]:
                moved[r.rid] = None
                continue
            fresh = Relation.of(*ends, r.type, table=case.table, confidence=r.confidence, origin=r.origin)
            moved[r.rid], r = fresh.rid, fresh
        if r.rid not in case.state.relations:
            out.setdefault(r.rid, r)
    return list(out.values()), moved
