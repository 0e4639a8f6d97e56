"""What is decided for a pod, from plain values."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.cluster.sync.model import FILE, FOLDER, Entry, Item, Plan, PodEntry, PodState
from gpuctl.cluster.sync.plan import Rules, after, plan, to_hash, unknown

US = Rules("ann@laptop:/code")


def item(number: int = 1, kind: str = FILE) -> Item:
    return Item(kind, 0o644, (number, number, number) if kind == FILE else (0, 0, 0))


def entry(value: str, number: int = 1, kind: str = FILE, *, by: str = US.source, put: bool = True) -> Entry:
    return Entry(kind, value, item(number, kind).mode_in_pod, item(number, kind).source, by, put)


def steps(found: Plan) -> list[tuple[str, str]]:
    return [(step.what, step.path) for step in found.steps]


def test_the_same_size_and_times_need_no_hash() -> None:
    seen = PodState({"a": entry("old"), "b": entry("old"), "c": entry("old")}, {"c": PodEntry(FILE, "other")})
    here = {"a": item(), "b": item(2), "c": item(), "d": item()}
    assert to_hash(here, seen) == ["b", "c"]
    assert unknown(here, seen) == ["d"]


def test_an_unchanged_tree_takes_no_step() -> None:
    seen = PodState({"d": entry("", kind=FOLDER), "d/a": entry("old")})
    assert plan({"d": item(kind=FOLDER), "d/a": item()}, seen, {}, US) == Plan()


def test_folders_come_before_what_is_in_them_and_go_after() -> None:
    here = {"new/deep/a": item(), "new": item(kind=FOLDER), "new/deep": item(kind=FOLDER)}
    seen = PodState(
        {
            path: entry("x" if path.endswith("a") else "", kind=FILE if path.endswith("a") else FOLDER)
            for path in ("old", "old/deep", "old/deep/a")
        }
    )
    assert steps(plan(here, seen, {}, US)) == [
        ("put", "new"),
        ("put", "new/deep"),
        ("put", "new/deep/a"),
        ("delete", "old/deep/a"),
        ("delete", "old/deep"),
        ("delete", "old"),
    ]


def test_what_is_in_a_folder_that_becomes_a_file_goes_first() -> None:
    seen = PodState({"a": entry("", kind=FOLDER), "a/b": entry("x")})
    assert steps(plan({"a": item()}, seen, {}, US)) == [("delete", "a/b"), ("put", "a")]


def test_a_file_that_a_cut_sync_left_old_is_replaced_and_not_kept() -> None:
    seen = PodState({"a": entry("new")}, {"a": PodEntry(FILE, "old", ours=True)})
    assert steps(plan({"a": item(2)}, seen, {"a": "newest"}, US)) == [("put", "a")]


def test_nothing_is_put_below_a_folder_that_is_something_else_in_the_pod() -> None:
    here = {"pkg": item(kind=FOLDER), "pkg/a": item(), "pkg/deep": item(kind=FOLDER), "pkg/deep/b": item()}
    seen = PodState(others={"pkg": PodEntry("link", "/elsewhere"), "pkg/a": PodEntry("blocked", "pkg")})
    found = plan(here, seen, {}, US)
    assert (found.steps, [each.path for each in found.kept]) == ((), ["pkg"])
    forced = plan(here, seen, {}, Rules(US.source, force=True))
    assert steps(forced)[0] == ("put", "pkg")
    assert len(forced.steps) == 4


def test_a_folder_of_the_pod_is_not_replaced_by_a_file_even_with_force() -> None:
    found = plan({"a": item()}, PodState(others={"a": PodEntry(FOLDER, "")}), {}, Rules(US.source, force=True))
    assert [(each.path, each.why) for each in found.kept] == [("a", "the pod has a folder there")]


def test_a_path_that_is_spared_is_not_deleted() -> None:
    seen = PodState({"kept": entry("x"), "gone": entry("x")})
    found = plan({}, seen, {}, Rules(US.source, is_unknown=lambda path: path == "kept"))
    assert steps(found) == [("delete", "gone")]


def test_only_files_of_the_same_folder_are_deleted() -> None:
    seen = PodState({"mine": entry("x"), "theirs": entry("x", by="bob@laptop:/code"), "found": entry("x", put=False)})
    found = plan({}, seen, {}, US)
    assert (steps(found), found.strangers) == ([("forget", "found"), ("delete", "mine")], 1)


def test_after_a_plan_was_carried_out_there_is_nothing_left_to_do() -> None:
    here: Mapping[str, Item] = {"a": item(5), "b": item(6), "same": item(7)}
    seen = PodState({"a": entry("old"), "gone": entry("x")}, others={"same": PodEntry(FILE, "s")})
    first = plan(here, seen, {"a": "new", "same": "s"}, US)
    assert steps(first) == [("put", "a"), ("put", "b"), ("note", "same"), ("delete", "gone")]
    then = after(seen, first, {"a": ("new", here["a"]), "b": ("bb", here["b"])}, US.source)
    assert plan(here, then, {}, US) == Plan()
    assert (then.entries["a"].put, then.entries["same"].put) == (True, False)
