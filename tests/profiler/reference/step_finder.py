"""The step finder in plain Python: the executable specification of profiler/core/step_finder.hpp, for any constants.

Everything is looked up afresh at each request in the whole history: no hashes, no stacks, no tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Symbol = tuple[int, int, int]


@dataclass(frozen=True)
class Constants:
    """Those of profiler/core/grams.hpp, valley_search.hpp, enclosing_steps.hpp and step_finder.hpp, by other names."""

    grams: tuple[int, ...] = (4, 32)
    tolerance: int = 64
    irregular: int = 4
    share: int = 8
    flat: int = 4
    level: int = 8
    high: int = 4
    doubt: int = 2
    short: int = 64
    longest: int = 1 << 19
    adrift: int = 2
    notable: int = 25
    marks: int = 8
    enclosing: int = 1 << 15
    votes: int = 64


@dataclass
class Request:
    symbol: Symbol  # bytes, stream, bytes freed since the request before
    live: int  # before it
    after: int


@dataclass
class Mark:
    place: int
    alike: int = 0  # requests before it in steps that are alike
    distance: int = 0
    between: list[Symbol] = field(default_factory=list)
    gram: tuple[Symbol, ...] = ()


@dataclass
class StepFinder:
    constants: Constants
    history: list[Request] = field(default_factory=list)  # since the search for the first step began
    begun: int = 0  # place at which the running step began
    searching_from: int | None = 0
    usual: int = 0
    level: int = 0
    doubt: int = 0
    anchor: tuple[Symbol, ...] | None = None
    periods: tuple[int, int] = (0, 0)
    enclosing: bool = False
    adrift: int = 0
    usual_step: list[Symbol] | None = None
    votes: int = 0
    marks: dict[tuple[Symbol, ...], Mark] = field(default_factory=dict)
    alike: int = 0
    loops: list[Mark] = field(default_factory=list)  # found in turn, the last ones
    part: bool = False  # the running step is part of an enclosing one
    chosen: int | None = None  # the lowest place of the last step, where its gram is the anchor from now on

    def observe(self, size: int, stream: int, live: int, begins: bool | None = None) -> str | None:
        here = len(self.history)
        after = self.history[-1].after if self.history else 0
        anchored = self.at_anchor(live)
        cue = "begins" if self.begins(anchored, begins) else None
        if cue == "begins":
            part, self.part = self.part, self.part and not anchored
            self.adrift = 0 if anchored else self.adrift + (self.anchor is not None)
            self.note_beginning(live)
            self.begin(live)
            cue = "lost" if part else "begins"
        elif here - self.begun >= self.constants.longest:
            self.__init__(self.constants)  # type: ignore[misc]
            here, after, cue = 0, 0, "lost"
        else:
            if self.searching_from is None and here - self.begun > 2 * self.usual + self.constants.short:
                self.searching_from = here
            if self.searching_from is not None and self.search(live):
                first, second = self.periods
                self.usual = max(here - self.begun - second, second - first)
                cue = "found"
                self.begin(live)
        self.history.append(Request((size, stream, after - live), live, live + size))
        return cue

    def begin(self, live: int) -> None:
        self.begun = len(self.history)
        if not self.adrift:
            self.level = live if self.chosen is None else self.history[self.chosen].live
        self.chosen = None
        self.searching_from = self.begun if self.anchor is None else None

    def gram(self, place: int, k: int) -> tuple[Symbol, ...]:
        return tuple(request.symbol for request in self.history[max(place - k, 0) : place])

    def extremes(self, since: int, live: int) -> tuple[int, int]:
        """Least and most alive from a place up to now."""
        requests = self.history[since:]
        return min([live, *(r.live for r in requests)]), max([live, *(r.after for r in requests)])

    def begins(self, anchored: bool, hint: bool | None) -> bool:
        if self.adrift >= self.constants.adrift:
            return anchored
        if not self.enclosing:
            return bool(hint) or (hint is None and anchored)
        if len(self.history) - self.begun < self.usual // 2:
            return hint is None and anchored
        return bool(hint) or anchored

    def at_anchor(self, live: int) -> bool:
        if self.anchor is None or self.gram(len(self.history), len(self.anchor)) != self.anchor:
            return False
        low, high = self.extremes(self.begun, live)
        return abs(live - self.level) * self.constants.level <= high - low

    def note_beginning(self, live: int) -> None:
        length = len(self.history) - self.begun
        self.usual = max(length, self.usual - self.usual // 4 + length // 4)
        if not self.adrift:
            low, high = self.extremes(self.begun, live)
            valley = (live - low) * self.constants.high <= high - low
            self.doubt = max(self.doubt - length, 0) if valley else self.doubt + length
        if not self.adrift and self.doubt >= self.constants.doubt * self.usual:
            self.anchor, self.enclosing, self.doubt, self.adrift = None, False, 0, self.constants.adrift
        else:
            self.look_around()

    def asked(self, begin: int, end: int) -> list[Symbol]:
        return [request.symbol for request in self.history[begin:end]]

    def look_around(self) -> None:
        step = self.asked(self.begun, len(self.history))
        if self.votes == 0 or step == self.usual_step:
            self.alike += len(step) if self.votes else 0
            self.usual_step = step
            self.votes = min(self.votes + 1, self.constants.votes)
            return
        self.votes -= 1
        lowest = min(range(self.begun, len(self.history)), key=lambda place: self.history[place].live)
        level = self.history[lowest].live
        if (
            self.anchor is None
            or self.searching_from is not None
            or level >= self.level
            or level >= self.history[self.begun].live
        ):
            return
        gram = self.gram(lowest, self.constants.grams[-1])
        if gram not in self.marks:
            if len(self.marks) == self.constants.marks:
                del self.marks[next(iter(self.marks))]
            self.marks[gram] = Mark(lowest)
            return
        known, mark = self.marks[gram], Mark(lowest)
        self.marks[gram] = mark
        again = self.repeats(mark, known)
        notable = (self.level - level) * self.constants.notable >= sum(size for size, _, _ in mark.between)
        if again and notable:
            self.enclose(lowest, mark.distance)
            self.marks, self.votes, self.chosen = {}, 0, lowest

    def repeats(self, mark: Mark, before: Mark) -> bool:
        mark.distance, mark.between = mark.place - before.place, self.asked(before.place, mark.place)
        again = mark.distance == before.distance and mark.between == before.between
        return again and mark.distance <= self.constants.enclosing

    def enclose(self, place: int, distance: int) -> None:
        self.anchor = self.gram(place, self.constants.grams[-1])
        self.enclosing, self.part, self.adrift, self.usual = True, False, 0, distance

    def note_loop(self) -> bool:
        """Note that an inner loop is found here; return whether an enclosing step is."""
        here = len(self.history)
        loop = Mark(here, self.alike, gram=self.gram(here, self.constants.grams[-1]))
        known = next((other for other in reversed(self.loops) if other.gram == loop.gram), None)
        if (
            known is not None
            and self.repeats(loop, known)
            and 2 * (self.alike - known.alike) <= loop.distance
        ):
            lowest = min(range(known.place, here), key=lambda place: self.history[place].live)
            self.enclose(lowest, loop.distance)
            self.level, self.loops, self.part = self.history[lowest].live, [], True
            return True
        self.loops = [*self.loops, loop][-self.constants.marks :]
        return False

    def search(self, live: int) -> bool:
        assert self.searching_from is not None
        here = len(self.history)
        for k in self.constants.grams:
            if here - self.searching_from < k:
                continue
            run = self.run(self.searching_from, k, live)
            if len(run) < 3:
                continue
            low, high = self.extremes(run[-2], live)
            below = [
                place
                for place in range(self.searching_from, here)
                if self.history[place].live < low - (high - low) // self.constants.tolerance
            ]
            floor = below[-1] + 1 if below else self.searching_from
            span, searched = here - run[0], here - self.searching_from
            top = self.extremes(self.searching_from, live)[1]
            much = (
                span >= searched / self.constants.share
                and span >= (here - floor) / 2
                and (high - low) * self.constants.flat >= top - low
            )
            if span >= self.usual and (span >= searched / 2 or much):
                self.doubt, self.marks, self.votes = 0, {}, 0
                if self.note_loop():
                    self.searching_from = None
                    return False
                self.anchor, self.enclosing, self.part, self.adrift = self.gram(here, k), False, False, 0
                self.periods = run[-3] - self.begun, run[-2] - self.begun
                return True
        return False

    def run(self, since: int, k: int, live: int) -> list[int]:
        """Return the places of the gram before this request that are a run of regular valleys, up to now."""
        here = len(self.history)
        gram = self.gram(here, k)
        places = [place for place in range(since + k, here) if self.gram(place, k) == gram] + [here]
        levels = [request.live for request in self.history] + [live]
        run = places[-1:]
        for i in range(len(places) - 1, 0, -1):
            one, other = places[i - 1], places[i]
            low = min(levels[one : other + 1])
            high = max(request.after for request in self.history[one:other])
            if max(levels[one], levels[other]) > low + (high - low) // self.constants.tolerance:
                break
            run.insert(0, one)
            if i == 1 or not self.is_regular(other - one, one - places[i - 2]):
                break
        return run

    def is_regular(self, distance: int, other: int) -> bool:
        factor = self.constants.irregular
        return distance // factor <= other and other // factor <= distance
