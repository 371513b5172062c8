"""The whole pipeline over a bag: read, answer, write, in parts that survive an interruption."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rosbags.interfaces import Connection

from ..clouds.bags import Recording, open_recording
from ..device import select_backend
from ..errors import InputError
from .definitions import OutputPlan, identity, plan_output
from .frames import Answer, FrameWorkers, kind_of
from .overlap import InOrder
from .partial_bag import PartialBag, open_partial_bag, partial_folder
from .report import write_report
from .settings import Job, fingerprint

PARTS_GROW = 0.1  # a part's share of all work so far, so that a long run does not end in hundreds of files


class Observer(Protocol):
    """Whoever watches a run."""

    def begin(self, clouds: int, done: int) -> None:
        """``clouds`` of them will be processed; an earlier run has done ``done``."""

    def advance(self) -> None:
        """One more cloud is done."""

    def say(self, sentence: str) -> None:
        """Something the user should know."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        complete: the output is there; otherwise the run was stopped and can be continued.
        done, clouds: messages processed so far, refused ones included, and all of them.
        report: the folder's report as `write_report` returns it; ``None`` unless complete.
    """

    complete: bool
    done: int
    clouds: int
    report: dict[str, Any] | None = None


def process_bag(job: Job, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Process a bag, or go on with it.

    Args:
        job: what to do.
        observer: told about progress and bad messages.
        should_stop: asked before every message; True ends the run with everything kept that is done.

    Raises:
        InputError: the bag, the settings or the output cannot be used, or not a single cloud could.
        BackendError: the device is not there or reported a fault.
    """
    with open_recording(job.bag) as bag:
        _check_places(job, bag)
        plan = plan_output(bag.connections, bag.clouds(job.topics), job.copy, job.features is not None)
        clouds = sum(connection.msgcount for connection in plan.clouds)
        if clouds == 0:
            names = ", ".join(repr(name) for name in plan.results)
            raise InputError(f"{job.bag} has no message on {names}")
        storage = job.storage or bag.storage
        asked = fingerprint(job, bag, select_backend(job.backend).name, storage)
        with open_partial_bag(job.out, asked, storage, plan.topics, job.restart) as partial:
            workers = FrameWorkers(job)
            run = _Run(job, bag, plan, workers, partial, observer)
            complete = run.go(clouds, should_stop)
            done = len(run.frames)
            if not complete:
                return Outcome(False, done, clouds)
            if not any("refusal" not in frame for frame in run.frames):
                partial.discard()
                raise InputError(_nothing_usable(job, run))
            partial.write_metadata(bag.custom_data, bag.ros_distro)
            report = write_report(partial, job, bag, plan, workers)
            partial.complete()
            return Outcome(True, done, clouds, report)


def _check_places(job: Job, bag: Recording) -> None:
    """The output must lie beside the bag: reading and writing one folder would end in a bag that holds itself."""
    if job.out.name in ("", ".."):
        raise InputError(f"the output {job.out} is no name of a new folder")
    try:
        job.out.name.encode()
    except UnicodeEncodeError:
        raise InputError(f"the output {job.out} is no name in UTF-8, in which a bag names its files") from None
    out = job.out.resolve()
    source = bag.files[0].resolve().parent if job.bag.is_dir() or job.bag.suffix == ".yaml" else job.bag.resolve()
    if source in (out, *out.parents):
        raise InputError(f"the output {job.out} lies inside the bag {job.bag}; name a folder outside it")
    if out in source.parents or partial_folder(out) in (source, *source.parents):
        raise InputError(f"the bag {job.bag} lies inside the output {job.out}; name another output")


def _nothing_usable(job: Job, run: _Run) -> str:
    if not run.frames:
        return run.damage or f"{job.bag} holds none of the clouds that its index lists"
    count = len(run.frames)
    these = "the only cloud" if count == 1 else f"all {count} clouds"
    return f"{job.bag} has nothing to process: {these} refused, the first because {run.frames[0]['refusal']}"


class _Message(NamedTuple):
    connection: Connection
    timestamp: int
    cdr: bytes


class _Run:
    """The loop over the messages and what is known about those that are done."""

    def __init__(
        self,
        job: Job,
        bag: Recording,
        plan: OutputPlan,
        workers: FrameWorkers,
        partial: PartialBag,
        observer: Observer,
    ) -> None:
        self.frames: list[dict[str, Any]] = []
        self.damage = ""
        self._job, self._bag, self._plan, self._workers = job, bag, plan, workers
        self._partial, self._observer = partial, observer
        self._position, self._seconds = 0, 0.0
        self._finished = False
        self._kinds: set[str] = set()
        for record in partial.records:
            self.frames += record["frames"]
            self._position, self.damage = record["position"], record["damage"]
            self._seconds += record["seconds"]
            self._finished = record["finished"]
        for frame in self.frames:
            self._kinds.update(kind_of(frame[key]) for key in ("refusal", "no_features") if key in frame)

    def go(self, clouds: int, should_stop: Callable[[], bool]) -> bool:
        """Process the rest; True when all is done."""
        self._observer.begin(clouds, len(self.frames))
        if self._finished:
            return True
        is_cloud = {identity(connection) for connection in self._plan.clouds}
        answers: InOrder[_Message, Answer] = InOrder(lambda message: self._workers(message.cdr), self._workers.count)
        results = answers(
            self._messages(),
            needs_work=lambda message: identity(message.connection) in is_cloud,
            size=lambda message: len(message.cdr),
        )
        begin, first = time.perf_counter(), len(self.frames)
        stopped = False
        try:
            for message, answer in results:
                if should_stop():
                    stopped = True
                    break
                self._store(message, answer)
                self._position += 1
                now = time.perf_counter()
                if now - begin > max(self._job.save_every, PARTS_GROW * self._seconds):
                    self._save(now - begin, first)
                    begin, first = now, len(self.frames)
        finally:
            results.close()
        self._save(time.perf_counter() - begin, first, finished=not stopped, stopped=stopped)
        return not stopped

    def _save(self, seconds: float, first: int, *, finished: bool = False, stopped: bool = False) -> None:
        self._partial.finish_part(
            {
                "position": self._position,
                "finished": finished,
                "stopped": stopped,
                "seconds": seconds,
                "workers": self._workers.count,
                "damage": self.damage,
                "frames": self.frames[first:],
            }
        )
        self._seconds += seconds

    def _messages(self) -> Iterator[_Message]:
        """What is left of the bag; damage ends it, with what came before kept."""
        messages = self._bag.messages(self._plan.read, self._position)
        while True:
            try:
                record = next(messages, None)
            except InputError as error:
                self.damage = str(error)
                self._observer.say(f"{error}; what follows in it is left out")
                return
            if record is None:
                return
            yield _Message(*record)

    def _store(self, message: _Message, answer: Answer | None) -> None:
        copied = self._plan.copies.get(identity(message.connection))
        if copied is not None:
            self._partial.write(copied, message.timestamp, message.cdr)
        if answer is None:
            return
        milliseconds = answer.milliseconds
        frame: dict[str, Any] = {"topic": message.connection.topic, "time": message.timestamp}
        for key, sentence in (("refusal", answer.refusal), ("no_features", answer.no_features)):
            if sentence:
                frame[key] = sentence
                self._tell(message, key, sentence)
        begin = time.perf_counter()
        samples, features = self._plan.results[message.connection.topic]
        if answer.sampled is not None:
            self._partial.write(samples, message.timestamp, answer.sampled)
        if answer.features is not None and features is not None:
            self._partial.write(features, message.timestamp, answer.features)
        total = milliseconds.pop("total")
        milliseconds |= {"write": (time.perf_counter() - begin) * 1e3, "total": total}
        self.frames.append(frame | answer.facts | {"milliseconds": milliseconds})
        self._observer.advance()

    def _tell(self, message: _Message, key: str, sentence: str) -> None:
        """Say the first sentence of each kind; the report counts them all."""
        kind = kind_of(sentence)
        if kind not in self._kinds:
            self._kinds.add(kind)
            what = "refused" if key == "refusal" else "without features"
            self._observer.say(
                f"cloud {len(self.frames) + 1} on {message.connection.topic} is {what}: {sentence} "
                "(more of this kind are counted in silence)"
            )
