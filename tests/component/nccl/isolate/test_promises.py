"""What holds for any fleet: nobody healthy is accused, one hard fault is named, a history gives one answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuctl.nccl.isolate import record
from gpuctl.nccl.isolate.confirmation import REPEATS
from gpuctl.nccl.isolate.flow import Watch, isolate
from gpuctl.nccl.isolate.model import Conclusion, Fleet, Policy
from gpuctl.nccl.isolate.next_round import decide
from tests.rig.nccl.simulated import CALM, Played, known, net, play, play_fleet, seeded, slow
from tests.rig.nccl_fleet.faults import Fault
from tests.rig.nccl_fleet.network import network
from tests.rig.nccl_fleet.runner import SimulatedFleet
from tests.rig.source_files import ROOT, importers

SEEDS = st.integers(0, 10**6)
HARD = st.sampled_from(["slow", "hang", "crash", "corrupt", "vanish"])


def some_fleet(seed: int, count: int, faults: list[Fault]) -> Played:
    random = seeded(seed)
    made = network(random, count)
    return play_fleet(known(made), SimulatedFleet(made, CALM, random, faults))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(2, 90))
def test_a_healthy_fleet_accuses_nobody(seed: int, count: int) -> None:
    assert some_fleet(seed, count, []).named == []


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(12, 90), HARD, st.floats(0.2, 0.9), st.data())
def test_one_hard_fault_is_named_and_nobody_else(
    seed: int, count: int, kind: str, share: float, data: st.DataObject
) -> None:
    node = f"node-{data.draw(st.integers(0, count - 1))}"
    played = some_fleet(seed, count, [Fault(kind, "node", (node,), share)])
    in_rack = Counter(played.fleet.racks.values())
    assume(len(in_rack) != 2 or in_rack[played.fleet.racks[node]] > 1)  # it cannot be told from its uplink
    assert played.named == [node]


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(2, 60), st.lists(st.tuples(HARD, st.integers(0, 59), st.floats(0.05, 0.9)), max_size=3))
def test_no_launch_of_a_round_shares_a_node_and_all_comes_to_an_end(
    seed: int, count: int, faults: list[tuple[str, int, float]]
) -> None:
    made = [Fault(kind, "node", (f"node-{number % count}",), share) for kind, number, share in faults]
    for launches in some_fleet(seed, count, made).simulated.rounds:
        assert max(Counter(node for launch in launches for node in launch.nodes).values()) == 1


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(4, 60), st.floats(0.1, 0.9))
def test_a_history_gives_the_same_answer_each_time_and_from_any_point(seed: int, count: int, share: float) -> None:
    played = some_fleet(seed, count, [slow(1, share)])
    again = decide(played.fleet, played.history)
    assert again == played.end
    assert not isinstance(decide(played.fleet, played.history[: count // 4]), Conclusion)


def test_an_isolation_goes_on_where_it_was_broken_off_and_makes_no_run_twice(tmp_path: Path) -> None:
    class Once(Watch):
        def __init__(self) -> None:
            self.rounds = 0

        def begin(self, number: int, step: object) -> None:
            self.rounds = number

        def keep(self, history: object) -> None:
            record.write(tmp_path / "runs.json", fleet, history)  # type: ignore[arg-type]

        def broken_off(self) -> bool:
            return self.rounds == 1 and (tmp_path / "runs.json").exists()

    made = net(32, rack=8)
    fleet, simulated = known(made), SimulatedFleet(made, CALM, seeded(1), [slow(7, 0.3)], rows=4)
    history, end = isolate(fleet, simulated, Policy(), Once())
    assert end is None
    before = record.resume(tmp_path / "runs.json", fleet, Policy())
    assert list(before) == history
    _, end = isolate(fleet, simulated, Policy(), before=before)
    assert end is not None
    assert [str(fault.cause) for fault in end.faults] == ["node-7"]
    controls = 3
    assert [len(launches) for launches in simulated.rounds] == [16, 2 + controls, *[1] * REPEATS]


def test_runs_that_were_ended_because_of_ctrl_c_are_held_against_nobody() -> None:
    class Stopped(Watch):
        def __init__(self) -> None:
            self.begun = False

        def begin(self, number: int, step: object) -> None:
            self.begun = True

        def broken_off(self) -> bool:
            return self.begun

    made = net(8)
    simulated = SimulatedFleet(made, CALM, seeded(1), [Fault("hang", "node", ("node-2",))])
    history, end = isolate(Fleet(made.nodes), simulated, Policy(), Stopped())
    assert end is None
    assert len(history) == 3


def test_a_thousand_nodes_are_isolated_in_two_rounds_and_confirmed() -> None:
    played = play(net(1024, rack=16), [slow(700, 0.2)])
    assert played.named == ["node-700"]
    controls = 3
    assert played.sizes == [512, 2 + controls, *[1] * REPEATS]


def test_the_simulated_fleet_and_the_judge_share_no_code() -> None:
    shared = {"gpuctl.core.errors", "gpuctl.nccl.model", "gpuctl.nccl.runner"}  # values, and the error of all runners
    folder = ROOT / "tests/rig/nccl_fleet"
    lines = [line for path in folder.glob("*.py") for line in path.read_text().splitlines() if "gpuctl" in line]
    imports = {line.split()[1] for line in lines if line.startswith(("from ", "import "))}
    assert imports == shared
    assert importers(ROOT / "gpuctl", "tests") == []
