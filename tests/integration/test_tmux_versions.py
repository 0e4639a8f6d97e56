"""Versions on a real tmux: made, checked, previewed, told about, promoted and rolled back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.rig.tmux.screen import Terminal, User, user, wait_until

PREVIEW = "gpuctl-preview"


@pytest.fixture
def me(tmp_path: Path) -> Iterator[User]:
    """A user with v1 in use, v2 as a copy of it, and programs that stand in for those of the layout."""
    with user(tmp_path / "home") as found:
        found.program("k9s", "#!/bin/sh\nexec sleep 600\n")
        found.program("claude", "#!/bin/sh\nexec sleep 600\n")
        said = found.gpuctl("tmux", "new", "--note", "a better bar")
        assert said.returncode == 0, said.stderr
        yield found


def version(me: User, name: str) -> Path:
    return me.config / "tmux/versions" / name


def append(me: User, file: str, text: str, name: str = "v2") -> None:
    path = version(me, name) / file
    path.write_text(path.read_text() + text)


def linked(me: User) -> str:
    return str((me.config / "tmux/current").readlink())


def main_session(me: User) -> None:
    said = me.gpuctl("tmux", "launch")
    assert said.returncode == 0, said.stderr


def keys_and_options(me: User) -> tuple[str, str, str, str]:
    """What the main server has, as a user sees it."""
    asked = (("list-keys",), ("show-options", "-g"), ("show-options", "-gw"), ("show-hooks", "-g"))
    keys, options, window, hooks = (me.tmux(*words) for words in asked)
    return keys, options, window, hooks


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---- new, versions, diff ----


def test_the_first_version_is_made_and_the_next_is_its_copy(me: User) -> None:
    assert linked(me) == "versions/v1"
    assert (version(me, "v2") / "session.yml").read_text() == (version(me, "v1") / "session.yml").read_text()
    assert os.access(version(me, "v2") / "scripts/pane.sh", os.X_OK)
    log = (me.config / "tmux/CHANGELOG.md").read_text()
    assert "created from v1: a better bar" in log
    assert log.index("## v2") < log.index("## v1")
    states = [row["state"] for row in json.loads(ok(me.gpuctl("tmux", "versions", "--output", "json")))]
    assert states == ["current", "draft"]


def test_diff_shows_what_a_version_has_otherwise(me: User) -> None:
    assert ok(me.gpuctl("tmux", "diff", "v1", "v2")) == ""
    append(me, "theme.conf", "set-option -g status-position top\n")
    said = ok(me.gpuctl("tmux", "diff", "current", "newest"))
    assert "+++ v2/theme.conf" in said
    assert "+set-option -g status-position top" in said
    refused = me.gpuctl("tmux", "diff", "v1", "v7")
    assert refused.returncode == 2
    assert "v1, v2" in refused.stderr


# ---- validate ----


def test_every_mistake_is_told_with_its_file_and_line(me: User) -> None:
    start = len((version(me, "v2") / "theme.conf").read_text().splitlines())
    append(
        me,
        "theme.conf",
        """\
set-option -g no-such-option 1
bind-key y {
  no-such-command
}
%if "#{==:a,b}"
no-such-command-of-another-tmux
%elif #{==:a,a}
set-option -g status sideways
%endif
set-option -g status-left \\
  "too" "many"
set-option -g @fine 1 ; set-option -g status-style fg=nocolour
bind-key no-such-key list-keys
source-file /no/such/file
bind-key Y run-shell 'sh #{q:@gpuctl_folder}/scripts/gone.sh'
set-option -g status-right "never closed
""",
    )
    session = version(me, "v2") / "session.yml"
    done = me.gpuctl("tmux", "validate")
    assert done.returncode == 1
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    wanted = {
        1: "no-such-option",
        3: "unknown command: no-such-command",
        8: "unknown value: sideways",
        10: "too many arguments",
        12: "invalid style",
        13: "unknown key",
        14: "no such file",
        15: "scripts/gone.sh",
        16: 'unclosed "',
    }
    assert {int(where.split(":")[1]) - start for where in found} == set(wanted)
    for line, words in wanted.items():
        assert words in found[f"theme.conf:{start + line}"]
    session.write_text(session.read_text().replace("side: right", "side: left"))
    assert "session.yml:" in me.gpuctl("tmux", "validate", "v2").stdout


def test_a_cheatsheet_that_lies_is_told_with_file_and_line(me: User) -> None:
    append(me, "cheatsheet.txt", "MORE\n  Y    fly away\n")
    append(me, "keybindings.conf", "bind-key F5 next-window\n")
    lines = [
        len((version(me, "v2") / name).read_text().splitlines()) for name in ("cheatsheet.txt", "keybindings.conf")
    ]
    done = me.gpuctl("tmux", "validate", "v2")
    assert done.returncode == 1
    assert f"cheatsheet.txt:{lines[0]}: it lists the key Y (table prefix), which is not bound" in done.stdout
    assert f"keybindings.conf:{lines[1]}: cheatsheet.txt does not list the key F5" in done.stdout
    assert me.gpuctl("tmux", "promote", "v2").returncode == 2
    assert linked(me) == "versions/v1"


def test_windows_and_panes_are_compared_with_the_session_file(me: User) -> None:
    assert "4 windows" in ok(me.gpuctl("tmux", "validate", "v2"))
    (version(me, "v2") / "scripts/pane.sh").write_text("#!/bin/sh\nexit 1\n")
    done = me.gpuctl("tmux", "validate", "v2")
    assert done.returncode == 1
    assert "session.yml: " in done.stdout
    (version(me, "v2") / "scripts/pane.sh").write_text("#!/bin/sh\nif\n")
    assert "scripts/pane.sh" in me.gpuctl("tmux", "validate", "v2").stdout
    (version(me, "v2") / "session.yml").unlink()
    assert "session.yml: is missing" in me.gpuctl("tmux", "validate", "v2").stdout


def test_a_key_that_is_unbound_elsewhere_is_told(me: User) -> None:
    append(me, "theme.conf", "bind-key Y list-keys\n")
    append(me, "keybindings.conf", "if-shell true 'unbind-key Y'\n")
    done = me.gpuctl("tmux", "validate")
    assert "the key Y (table prefix) is not bound at the end" in done.stdout


def test_a_file_of_the_users_own_can_be_checked_and_nothing_of_theirs_is_touched(me: User) -> None:
    own = me.home / "own.conf"
    own.write_text("set -g status off\nkill-server\nset -g nothing 1\n")
    main_session(me)
    before = keys_and_options(me)
    done = me.gpuctl("tmux", "validate", own)
    assert done.returncode == 1
    assert "own.conf:2: " in done.stdout
    assert "it ended the server" in done.stdout
    assert keys_and_options(me) == before
    own.write_text("set -g status off\nbind -n F5 list-keys\n")
    assert "2 commands, 1 key" in ok(me.gpuctl("tmux", "validate", own))
    assert me.gpuctl("tmux", "validate", me.home / "none.conf").returncode == 2


# ---- promote and rollback ----


def test_promoting_reloads_the_session_and_unbinds_what_only_the_old_version_bound(me: User) -> None:
    main_session(me)
    fresh = keys_and_options(me)
    append(me, "tmux.conf", "bind-key -n F5 list-keys\nbind-key t list-windows\n")
    append(me, "theme.conf", "set-option -g @mine yes\nset-hook -g 'session-created[7]' list-keys\n")
    said = ok(me.gpuctl("tmux", "promote"))
    assert "promoted v2 (before: v1); tmux-main uses it now" in said
    assert linked(me) == "versions/v2"
    assert me.tmux("show-options", "-gv", "@mine") == "yes"
    assert "list-windows" in me.tmux("list-keys", "-T", "prefix", "t")
    # v3 has none of it: the default of prefix t comes back, the rest is gone.
    ok(me.gpuctl("tmux", "new", "--from", "v1"))
    ok(me.gpuctl("tmux", "promote", "3"))
    assert keys_and_options(me) == fresh
    assert "promoted (before: v2)" in (me.config / "tmux/CHANGELOG.md").read_text()


def test_a_version_with_mistakes_is_not_promoted(me: User) -> None:
    main_session(me)
    before = keys_and_options(me)
    append(me, "tmux.conf", "set-option -g no-such-option 1\n")
    done = me.gpuctl("tmux", "promote")
    assert done.returncode == 2
    assert "tmux.conf:" in done.stderr
    assert linked(me) == "versions/v1"
    assert keys_and_options(me) == before


def test_where_the_reload_reports_an_error_everything_is_put_back(me: User) -> None:
    main_session(me)
    me.tmux("bind-key", "F9", "display-message", 'a key of; the user\'s "own" #{pane_id} $HOME')
    me.tmux("set-option", "-g", "@own", 'it\'s "quoted" $HOME #{x} \\ ;')
    me.tmux("set-hook", "-g", "session-created[3]", "display-message 'own hook'")
    before = keys_and_options(me)
    # Only the running server has this session, so the check cannot see it.
    append(me, "tmux.conf", "bind-key F9 list-keys\nbind-key F8 list-keys\nunbind-key Space\n")
    append(me, "theme.conf", "set-option -g status off\nset-option -g @own other\nset-option -g @new 1\n")
    append(me, "theme.conf", "set-hook -g 'session-created[3]' list-keys\nset-hook -g 'session-created[4]' list-keys\n")
    append(me, "tmux.conf", "if-shell 'tmux has-session -t =tmux-main' 'set-option -g no-such-option 1'\n")
    ok(me.gpuctl("tmux", "validate"))
    done = me.gpuctl("tmux", "promote")
    assert done.returncode == 3
    assert "no-such-option" in done.stderr
    assert linked(me) == "versions/v1"
    assert keys_and_options(me) == before
    assert "promoted (before" not in (me.config / "tmux/CHANGELOG.md").read_text()


def test_a_check_starts_no_gpuctl(me: User, tmp_path: Path) -> None:
    """It would outlive the private server, ask the user's own server, and write where the check cleans up."""
    log = tmp_path / "programs"
    append(me, "tmux.conf", f"run-shell 'echo $GPUCTL_PROGRAM >> {log}'\n")
    ok(me.gpuctl("tmux", "validate", "v2"))
    programs = set(log.read_text().split())
    assert programs
    assert not any(shutil.which(program) for program in programs)


def test_a_promoted_version_that_was_edited_is_refused(me: User) -> None:
    ok(me.gpuctl("tmux", "promote"))
    ok(me.gpuctl("tmux", "rollback"))
    append(me, "theme.conf", "# edited\n")
    for words in (("promote", "v2"), ("rollback", "--to", "2")):
        done = me.gpuctl("tmux", *words)
        assert done.returncode == 2
        assert "must not change" in done.stderr
        assert "gpuctl tmux new --from v2" in done.stderr
    assert linked(me) == "versions/v1"
    ok(me.gpuctl("tmux", "new", "--from", "v2"))
    ok(me.gpuctl("tmux", "promote"))
    assert linked(me) == "versions/v3"


@pytest.mark.parametrize("damage", ["broken", "deleted", "no link"])
def test_rollback_works_when_the_current_version_is_damaged(me: User, damage: str) -> None:
    main_session(me)
    fresh = keys_and_options(me)
    append(me, "tmux.conf", "bind-key F5 list-keys\n")
    append(me, "theme.conf", "set-option -g status-position top\n")
    ok(me.gpuctl("tmux", "promote"))
    if damage == "broken":
        append(me, "tmux.conf", 'set-option -g "\nbind-key F6 {\n')
    elif damage == "deleted":
        for path in sorted(version(me, "v2").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        version(me, "v2").rmdir()
    else:
        (me.config / "tmux/current").unlink()
    assert "rolled back to v1" in ok(me.gpuctl("tmux", "rollback"))
    assert linked(me) == "versions/v1"
    assert keys_and_options(me) == fresh
    refused = me.gpuctl("tmux", "rollback")
    assert refused.returncode == 2
    assert "earlier version" in refused.stderr


# ---- feedback ----


def test_check_tells_what_is_new_and_its_exit_status_whether_there_was_any(me: User) -> None:
    assert me.gpuctl("tmux", "feedback", "check").returncode == 1
    ok(me.gpuctl("tmux", "feedback", "add", "the bar", "is too dim"))
    said = ok(me.gpuctl("tmux", "feedback", "check", "--json"))
    found = json.loads(said)
    assert (found["version"], found["text"]) == ("v1", "the bar is too dim")
    assert me.gpuctl("tmux", "feedback", "check").returncode == 1
    log = me.config / "tmux/feedback.log"
    ok(me.gpuctl("tmux", "feedback", "add", "unread before the log is rotated"))
    log.rename(log.with_name("feedback.log.1"))
    ok(me.gpuctl("tmux", "feedback", "add", "written after it"))
    said = ok(me.gpuctl("tmux", "feedback", "check"))
    assert [line.split("] ")[1] for line in said.splitlines()] == [
        "unread before the log is rotated",
        "written after it",
    ]


def test_follow_streams_what_comes(me: User) -> None:
    screen = me.terminal(str(me.program_path), "tmux", "feedback", "check", "--follow")
    ok(me.gpuctl("tmux", "feedback", "add", "first remark"))
    screen.sees("first remark")
    ok(me.gpuctl("tmux", "feedback", "add", "second remark"))
    screen.sees("second remark")
    log = next(me.home.rglob("feedback.log"))
    cursor = log.with_name(".last-read-line")
    # What is printed counts as read a moment later: Ctrl-C in between has it printed again, rather than lost.
    wait_until(lambda: cursor.read_text().split()[1] == str(log.stat().st_size), "it counts as read")
    screen.press("C-c")
    wait_until(lambda: screen.ended, "it ends")
    assert me.gpuctl("tmux", "feedback", "check").returncode == 1


def test_two_writers_at_once_lose_nothing(me: User) -> None:
    def write(who: str) -> None:
        for number in range(4):
            ok(me.gpuctl("tmux", "feedback", "add", f"{who}-{number} " + who * 3000))

    writers = [threading.Thread(target=write, args=(who,)) for who in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = ok(me.gpuctl("tmux", "feedback", "check")).splitlines()
    said = [line.split("] ")[1] for line in lines]
    assert sorted(said) == sorted(f"{who}-{number} {who * 3000}" for who in "ab" for number in range(4))


# ---- preview ----


def shown(me: User, columns: int = 120, rows: int = 40) -> Terminal:
    """The preview of the newest version, on a terminal."""
    terminal = me.terminal(str(me.program_path), "tmux", "preview", columns=columns, rows=rows)
    terminal.sees("tmux-preview", "Preview of v2", "\n>", "feedback on v2")
    return terminal


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (240, 60)])
def test_the_preview_has_the_layout_on_top_and_feedback_at_the_bottom(me: User, columns: int, rows: int) -> None:
    shown(me, columns, rows)
    form = "#{@gpuctl_title}|#{pane_top}|#{pane_height}|#{pane_width}"

    def panes() -> dict[str, tuple[int, ...]]:
        listed = me.tmux("list-panes", "-t", "tmux-preview:0", "-F", form, socket=PREVIEW).splitlines()
        return {line.split("|")[0]: tuple(map(int, line.split("|")[1:])) for line in listed}

    high = rows - 1  # the status bar
    wait_until(
        lambda: panes()["feedback on v2"][0] + panes()["feedback on v2"][1] == high, "it has the terminal's size"
    )
    found = panes()
    assert set(found) == {"k9s", "kubectl", "claude", "feedback on v2"}
    assert found["feedback on v2"][2] == columns
    assert abs(found["feedback on v2"][1] / high - 0.2) < 0.06
    assert all(found[title][0] < found["feedback on v2"][0] for title in ("k9s", "kubectl", "claude"))


def test_the_whole_loop(me: User) -> None:
    main_session(me)
    main = keys_and_options(me)
    append(me, "theme.conf", "set-option -g status-position top\n")
    append(me, "tmux.conf", "bind-key -n F5 list-keys\n")
    screen = shown(me)
    # Preview: nothing of it reaches the main session.
    assert keys_and_options(me) == main
    assert me.tmux("list-sessions", "-F", "#{session_name}") == "tmux-main"
    # Feedback: in the pane, and in the popup of prefix f.
    screen.type("the bar belongs to the bottom")
    screen.sees("noted")
    screen.prefix("f")
    screen.sees("feedback on v2 (Enter for none)")
    screen.type("said in the popup")
    screen.sees_no_more("(Enter for none)")
    # Check.
    lines = [json.loads(line) for line in ok(me.gpuctl("tmux", "feedback", "check", "--json")).splitlines()]
    said = [(each["version"], each["text"]) for each in lines]
    assert said == [("v2", "the bar belongs to the bottom"), ("v2", "said in the popup")]
    log = (me.config / "tmux/feedback.log").read_text()
    assert log.startswith("=== New Preview Session: v2 ")
    # Show the configuration.
    screen.type("show config")
    screen.sees("==> tmux.conf <==", "┌")
    screen.press("q")
    screen.sees_no_more("==> tmux.conf <==")
    reloaded(me, screen)
    assert keys_and_options(me) == main
    # Approve.
    screen.type("lgtm")
    screen.sees("promoted v2 (before: v1); tmux-main uses it now")
    assert linked(me) == "versions/v2"
    assert " F6 " in me.tmux("list-keys", "-T", "root")
    assert "riding" in windows(me)
    # Roll back in the popup, and close.
    screen.prefix("f")
    screen.sees("feedback on v2 (Enter for none)")
    screen.type("rollback")
    screen.sees("rolled back to v1 (before: v2)", "press any key to close")
    screen.press("q")
    screen.sees_no_more("(Enter for none)")
    assert linked(me) == "versions/v1"
    assert keys_and_options(me) == main
    assert "driving" in windows(me)
    screen.type("quit")
    wait_until(lambda: screen.ended, "the preview ends")
    lines = [json.loads(line) for line in ok(me.gpuctl("tmux", "feedback", "check", "--json")).splitlines()]
    assert [each["text"] for each in lines] == ["lgtm", "rollback", "quit"]
    nothing = me.gpuctl("tmux", "feedback", "check")
    assert (nothing.returncode, nothing.stdout) == (1, "no new feedback since the last check\n")
    assert windows(me) == ["kubernetes", "driving", "k8s-deploy", "k8s"]


def windows(me: User) -> list[str]:
    return me.tmux("list-windows", "-t", "tmux-main", "-F", "#{window_name}").splitlines()


def panes(me: User, window: str) -> dict[str, str]:
    """Title -> process id of the panes of a window of the main session."""
    listed = me.tmux("list-panes", "-t", f"tmux-main:{window}", "-F", "#{@gpuctl_title}|#{pane_pid}").splitlines()
    return dict(line.split("|") for line in listed)


def test_promoting_changes_the_windows_of_the_running_session_and_ends_no_program(me: User) -> None:
    main_session(me)
    before, places = panes(me, "kubernetes"), windows(me)
    session = version(me, "v2") / "session.yml"
    described = yaml.safe_load(session.read_text())
    kubernetes = described["windows"][0]
    kubernetes["panes"] = [pane for pane in kubernetes["panes"] if pane["title"] != "claude"]
    kubernetes["panes"].insert(1, {"title": "more", "side": "right", "run": ["sleep", "600"]})
    described["windows"].append({"name": "notes", "panes": [{"title": "notes"}]})
    session.write_text(yaml.safe_dump(described, sort_keys=False))
    ok(me.gpuctl("tmux", "validate"))
    said = ok(me.gpuctl("tmux", "promote"))
    assert "window kubernetes is rebuilt; window kubernetes-old has the panes that session.yml no longer has" in said
    assert "window notes is new" in said
    after = panes(me, "kubernetes")
    assert set(after) == {"k9s", "more", "kubectl"}
    assert (after["k9s"], after["kubectl"]) == (before["k9s"], before["kubectl"])
    assert panes(me, "kubernetes-old") == {"claude": before["claude"]}
    assert windows(me)[:4] == places
    # And back: nothing ends either.
    ok(me.gpuctl("tmux", "rollback"))
    again = panes(me, "kubernetes")
    assert (again["k9s"], again["kubectl"]) == (before["k9s"], before["kubectl"])


def test_a_decision_that_fails_is_logged_with_its_reason(me: User) -> None:
    screen = shown(me)
    append(me, "theme.conf", "set-option -g no-such-option 1\n")
    screen.type("approve")
    screen.sees("cannot promote v2", "no-such-option")
    (line,) = ok(me.gpuctl("tmux", "feedback", "check", "--json")).splitlines()
    assert json.loads(line)["text"].startswith("approve (not carried out: it has mistakes")
    assert linked(me) == "versions/v1"


def test_outside_a_preview_a_decision_is_feedback_and_the_answer_says_so(me: User) -> None:
    done = me.gpuctl("tmux", "feedback", "add", "approve")
    assert "noted for v1" in done.stdout
    assert "`approve` is a command only in the preview" in done.stderr
    assert linked(me) == "versions/v1"


def reloaded(me: User, screen: Terminal) -> None:
    """Mistakes are told, then the corrected files and windows are there."""
    theme = version(me, "v2") / "theme.conf"
    right = theme.read_text().replace("status-position top", "status-position bottom")
    theme.write_text(right + "set-option -g no-such-option 1\n")
    screen.type("reload")
    screen.sees("not reloaded, it has mistakes", "invalid option: no-such-option")
    theme.write_text(right)
    keys = version(me, "v2") / "tmux.conf"
    keys.write_text(keys.read_text().replace("bind-key -n F5 list-keys", "bind-key -n F6 list-keys"))
    session = version(me, "v2") / "session.yml"
    session.write_text(session.read_text().replace("name: driving", "name: riding"))
    screen.type("reload")
    screen.sees("reloaded, with the windows of session.yml", "1 riding")
    assert me.tmux("show-options", "-gv", "status-position", socket=PREVIEW) == "bottom"
    listed = me.tmux("list-keys", "-T", "root", socket=PREVIEW)
    assert " F6 " in listed
    assert " F5 " not in listed


def test_without_a_terminal_it_stays_detached_and_says_how_to_attach(me: User) -> None:
    said = ok(me.gpuctl("tmux", "preview"))
    assert "the preview of v2 is running, but is not shown: there is no terminal" in said
    assert "gpuctl tmux preview --attach" in said
    assert "is already running" in ok(me.gpuctl("tmux", "preview"))
    attached = me.terminal(str(me.program_path), "tmux", "preview", "--attach")
    attached.sees("feedback on v2")
    ok(me.gpuctl("tmux", "preview", "v1"))
    assert me.tmux("show-environment", "-g", "GPUCTL_TMUX_PREVIEW", socket=PREVIEW) == "GPUCTL_TMUX_PREVIEW=v1"


def test_on_a_desktop_a_new_window_opens(me: User) -> None:
    me.variables["DISPLAY"] = ":77"
    me.program("xterm", f'#!/bin/sh\necho "$@" > {me.home}/asked\nexec sleep 60\n')
    assert "in a new window" in ok(me.gpuctl("tmux", "preview"))
    asked = (me.home / "asked").read_text()
    assert asked.startswith("-e env -u TMUX ")
    assert asked.rstrip().endswith("attach-session -t =tmux-preview")
    me.program("xterm", "#!/bin/sh\nexit 1\n")
    said = ok(me.gpuctl("tmux", "preview"))
    assert "xterm ended with status 1" in said
    assert "gpuctl tmux preview --attach" in said


def test_a_version_with_mistakes_is_not_previewed(me: User) -> None:
    append(me, "theme.conf", "set-option -g no-such-option 1\n")
    done = me.gpuctl("tmux", "preview")
    assert done.returncode == 2
    assert "invalid option: no-such-option" in done.stderr
    refused = me.gpuctl("tmux", "feedback", "pane")
    assert refused.returncode == 2
