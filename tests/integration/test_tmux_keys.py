"""Every key of the cheatsheet, pressed on a real tmux and read from its screen."""

from __future__ import annotations

import json
import time

import pytest

from gpuctl.tmux import keys
from tests.rig.tmux.screen import Terminal, User, wait_until
from tests.rig.tmux.session import SETTINGS, kubeconfig, launched

pytest_plugins = ["tests.rig.tmux.fixtures"]


# Stands in for gpuctl where only what a key asks of it matters: it shows its words and for whom.
STANDIN = """\
#!/bin/sh
echo "asked: $* for $GPUCTL_PANE with ${KUBECONFIG##*/}"
exec sleep 60
"""


def test_every_binding_is_accepted_as_the_cheatsheet_has_it(screen: Terminal, me: User) -> None:
    rows = keys.rows()
    for row in rows:
        for key in row.keys:
            found = me.tmux("list-keys", "-T", row.table, key)
            assert found.count("\n") == 0, found
            first = row.keys[key].split()[0]
            assert first in found, f"{key}: {found}"
    told = me.gpuctl("tmux", "cheatsheet").stdout
    assert all(f"  {row.written} " in told and row.does in told for row in rows)


def test_keys_move_between_panes_everywhere(screen: Terminal, me: User) -> None:
    screen.prefix("1")
    screen.prefix("%")
    me.becomes("window_panes", 2, "tmux-main:1")
    screen.prefix('"')
    me.becomes("window_panes", 3, "tmux-main:1")
    moves = [("h", "0"), ("l", "2"), ("k", "1"), ("j", "2"), ("Left", "0"), ("Right", "2"), ("Up", "1"), ("Down", "2")]
    for key, index in moves:
        screen.prefix(key)
        me.becomes("pane_index", index)
        time.sleep(0.6)  # arrows can be repeated: the next key is not one of those


def test_keys_resize_zoom_and_close_panes(screen: Terminal, me: User) -> None:
    screen.prefix("1")
    screen.prefix("%")
    screen.prefix('"')
    me.becomes("window_panes", 3, "tmux-main:1")
    for key, side, by in (("H", "width", 5), ("L", "width", -5), ("K", "height", 3), ("J", "height", -3)):
        before = int(me.told(f"pane_{side}"))
        screen.prefix(key)
        me.becomes(f"pane_{side}", before + by)
        time.sleep(0.6)
    screen.prefix("z")
    me.becomes("window_zoomed_flag", "1")
    screen.prefix("z")
    me.becomes("window_zoomed_flag", "0")
    screen.prefix("x")
    screen.sees("close this pane? (y/n)")
    screen.press("y")
    me.becomes("window_panes", 2, "tmux-main:1")


def test_keys_go_to_windows(screen: Terminal, me: User) -> None:
    for number in range(4, 10):
        screen.prefix("c")
        me.becomes("window_index", number)
    for number in [*range(10), 5]:
        screen.prefix(str(number))
        me.becomes("window_index", number)
    screen.prefix("n")
    me.becomes("window_index", "6")
    screen.prefix("p")
    me.becomes("window_index", "5")


def test_keys_without_prefix_jump_to_panes(screen: Terminal, me: User) -> None:
    screen.prefix("1")
    for number in range(1, 10):
        me.tmux("split-window", "-t", "tmux-main:1")
        me.tmux("select-layout", "-t", "tmux-main:1", "tiled")
        me.becomes("window_panes", number + 1, "tmux-main:1")
    for number in (9, 0, 1, 2, 3, 4, 5, 6, 7, 8):
        screen.press(f"M-{number}")
        me.becomes("pane_index", number)
    screen.press("M-o")
    time.sleep(2.5)  # longer than display-panes-time: the numbers stay until one is typed
    screen.press("3")
    me.becomes("pane_index", "3")


def test_keys_without_prefix_go_to_the_program_where_the_settings_say_so(me: User) -> None:
    me.settings(SETTINGS + "keys_without_prefix: false\n")
    screen = launched(me)
    option = ("show-options", "-sqv", "@gpuctl_keys_without_prefix")
    wait_until(lambda: me.tmux(*option) == "off", "the setting is read at the launch")
    screen.prefix("1")
    screen.prefix("%")
    me.becomes("window_panes", 2, "tmux-main:1")
    screen.type("clear; cat -v")
    screen.press("M-0")
    screen.sees("^[0")  # Escape and 0: what a terminal sends for M-0
    assert me.told("pane_index") == "1"
    screen.prefix("?")
    screen.sees("press any key to close")
    assert "WITHOUT PREFIX" not in screen.text
    screen.press("q")
    screen.sees_no_more("any key to close")  # else it takes the next keys
    me.settings(SETTINGS)
    screen.prefix("R")
    wait_until(lambda: me.tmux(*option) == "on", "the setting is read again with the configuration")
    screen.press("M-0")
    me.becomes("pane_index", "0")


def test_synchronized_panes_show_it(screen: Terminal, me: User) -> None:
    screen.prefix("1")
    screen.prefix("%")
    me.becomes("window_panes", 2, "tmux-main:1")
    screen.prefix("S")
    screen.sees("ALL PANES", "(all panes)")
    screen.type("echo in-$((40 + 2))-both")
    wait_until(lambda: screen.text.count("in-42-both") == 2, "both panes got it")
    screen.prefix("S")
    screen.sees_no_more("ALL PANES")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (240, 60)])
def test_the_cheatsheet_is_a_centred_popup_that_any_key_closes(me: User, columns: int, rows: int) -> None:
    screen = launched(me, columns, rows)
    for key in ("x", "Escape", "C-c", "Left"):
        screen.prefix("?")
        screen.sees("prefix C-b, then the key", "press any key to close", "PANES", "detach")
        corner = next(row for row, line in enumerate(screen.lines) if "┌" in line)
        left, right = screen.lines[corner].index("┌"), screen.lines[corner].index("┐")
        assert abs(left - (columns - 1 - right)) <= 2
        assert abs(right - left + 1 - columns * 0.8) <= 1
        assert all(row.does in screen.text for row in keys.rows())
        assert screen.colours("PANES") != screen.colours("h j k l")
        screen.press(key)
        screen.sees_no_more("any key to close")


@pytest.fixture
def standin(screen: Terminal, me: User) -> str:
    """gpuctl only tells what it is asked; the active pane has its own kubeconfig. Returns the words' pane."""
    me.tmux("set-environment", "-g", "GPUCTL_PROGRAM", me.program("standin-gpuctl", STANDIN))
    me.tmux("set-option", "-p", "-t", "tmux-main:0.1", "@gpuctl_kubeconfig", kubeconfig(me.home / "own", "dev-me"))
    return me.told("pane_id")


@pytest.mark.parametrize(
    ("key", "words"),
    [("C-k", "kube palette"), ("f", "tmux feedback add")],
)
def test_popups_ask_gpuctl_for_the_pane_they_were_opened_in(
    screen: Terminal, me: User, standin: str, key: str, words: str
) -> None:
    screen.prefix(key)
    screen.sees(f"asked: {words} for {standin} with own", "┌")
    screen.press("C-c")
    screen.sees_no_more("asked:")


@pytest.mark.parametrize(("key", "verb"), [("p", "forward"), ("l", "logs"), ("e", "shell")])
def test_pod_keys_open_a_window_in_window_0_only(screen: Terminal, me: User, standin: str, key: str, verb: str) -> None:
    screen.prefix(key)
    options = " --background" if verb == "forward" else ""
    screen.sees(f"asked: kube pod {verb}{options} for {standin} with own", f"4 {verb}")
    screen.prefix("1")
    screen.prefix(key)
    wait_until(lambda: me.told("window_index") == ("0" if key == "p" else "1"), "the usual meaning")
    assert len(me.tmux("list-windows", "-t", "tmux-main").splitlines()) == 5


def test_the_wizard_for_forwards_has_a_window_of_its_own(screen: Terminal, me: User, standin: str) -> None:
    screen.prefix("P")
    screen.sees(f"asked: kube forward --wizard --background for {standin} with own", "4 forward")
    assert "┌" not in screen.text  # a popup would block this terminal
    screen.prefix("1")
    me.becomes("window_index", "1")


def test_dash_has_a_window_of_its_own(screen: Terminal, me: User, standin: str) -> None:
    screen.prefix("D")
    screen.sees("asked: dash", "4 dash")


PODS = {
    "items": [
        {
            "metadata": {"name": "trainer-0", "namespace": "team", "uid": "1"},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        }
    ]
}
KUBECTL = """\
#!/bin/sh
case "$*" in
*" get pods "*) cat "$HOME/pods.json" ;;
*" describe pod "*) seq 1 100; echo "described: $*" ;;
*" logs "*) echo "followed: $*"; exec sleep 60 ;;
esac
"""


@pytest.fixture
def palette(screen: Terminal, me: User) -> Terminal:
    """The palette in its popup, for a pane with a kubeconfig and a pod."""
    (me.home / "pods.json").write_text(json.dumps(PODS))
    me.program("kubectl", KUBECTL)
    own = kubeconfig(me.home / "own", "dev-me")
    me.tmux("set-option", "-p", "-t", me.told("pane_id"), "@gpuctl_kubeconfig", own)
    screen.prefix("C-k")
    screen.sees("command>", "┌")
    return screen


def chosen(screen: Terminal, *entries: str) -> None:
    """Choose these in one menu after the other."""
    for entry in entries:
        screen.press(entry)
        screen.sees(f"> {entry}", "1/")
        screen.press("Enter")


def test_the_description_of_a_pod_stays_in_the_popup_until_it_is_closed(palette: Terminal) -> None:
    chosen(palette, "pod: choose")
    palette.sees("pod>", "trainer-0")
    palette.press("Enter")
    palette.sees("trainer-0>")
    chosen(palette, "describe")
    palette.sees("q closes this", "│12 ")
    palette.press("G")
    palette.sees("described: --context=dev-me --namespace=team describe pod trainer-0")
    palette.press("q")
    palette.sees_no_more("described:")


def test_the_log_of_a_pod_and_what_else_lasts_leaves_the_popup_for_a_window(palette: Terminal, me: User) -> None:
    chosen(palette, "pod: choose")
    palette.sees("pod>", "trainer-0")
    palette.press("Enter")
    palette.sees("trainer-0>")
    chosen(palette, "logs")
    palette.sees("followed: --context=dev-me --namespace=team logs trainer-0 --container main", "4 logs")
    palette.sees_no_more("┌")  # a popup would block this terminal
    palette.prefix("0")
    me.becomes("window_index", "0")
    palette.prefix("C-k")
    palette.sees("command>", "┌")
    chosen(palette, "watch: ")
    palette.sees("5 watch")
    palette.sees_no_more("┌")
    palette.prefix("0")
    me.becomes("window_index", "0")


def test_a_command_of_previews_in_the_feedback_popup_is_logged_and_the_answer_stays_until_a_key(
    screen: Terminal, me: User
) -> None:
    screen.prefix("f")
    screen.sees("feedback on v1 (Enter for none)")
    screen.type("approve")
    screen.sees("noted for v1", "nothing else was done: `approve` is", "press any key to close")
    screen.press("x")
    screen.sees_no_more("nothing else was done")


def test_a_command_that_fails_stays_readable_until_a_key(screen: Terminal, me: User) -> None:
    failing = me.program("failing-gpuctl", "#!/bin/sh\necho it went wrong\nexit 3\n")
    me.tmux("set-environment", "-g", "GPUCTL_PROGRAM", failing)
    screen.prefix("C-k")
    screen.sees("it went wrong", "press any key to close")
    screen.press("q")
    screen.sees_no_more("it went wrong")
    me.tmux("set-environment", "-g", "GPUCTL_PROGRAM", "no-such-gpuctl")
    screen.prefix("C-k")
    screen.sees("gpuctl is not on this PATH")


def test_the_last_commands_of_the_pane_can_be_run_again(screen: Terminal, me: User) -> None:
    screen.prefix("C-h")
    screen.sees("This pane has no commands yet")
    screen.press("q")
    history = me.home / "history"
    history.write_text("".join(f"echo number-$(({n} + 100))\n" for n in range(30)) + "echo number-$((7 + 100))\n")
    me.tmux("set-option", "-p", "-t", "tmux-main:0.1", "@gpuctl_history", history)
    screen.prefix("C-h")
    screen.sees("echo number-$((7 + 100))", "echo number-$((29 + 100))", "echo number-$((11 + 100))")
    assert "echo number-$((10 + 100))" not in screen.text  # the 21st
    with_fzf = "number to run again" not in screen.text
    screen.press("29" if with_fzf else "2", "Enter")
    screen.sees("number-129")


def test_a_command_that_ends_in_a_semicolon_is_run_again_whole(screen: Terminal, me: User) -> None:
    history = me.home / "history"
    history.write_text("echo the-\\; end-\\;\n")
    me.tmux("set-option", "-p", "-t", "tmux-main:0.1", "@gpuctl_history", history)
    screen.prefix("C-h")
    screen.sees("echo the-")
    with_fzf = "number to run again" not in screen.text
    screen.press("" if with_fzf else "1", "Enter")
    screen.sees("the-; end-;")


def test_keys_that_arrive_in_one_piece_all_count(screen: Terminal, me: User) -> None:
    screen.press("\x021\x02%")  # as over a slow connection: prefix 1 and prefix % at once
    me.becomes("window_panes", 2, "tmux-main:1")


def test_reload_reads_the_configuration_again(screen: Terminal, me: User) -> None:
    config = me.config / "tmux/current/tmux.conf"
    config.write_text(config.read_text() + "set-option -g @new yes\n")
    screen.prefix("R")
    screen.sees("configuration reloaded")
    assert me.tmux("show-options", "-gv", "@new") == "yes"


def test_detaching_leaves_the_session(screen: Terminal, me: User) -> None:
    screen.prefix("d")
    wait_until(lambda: screen.ended, "detached")
    assert me.tmux("has-session", "-t", "=tmux-main") == ""
