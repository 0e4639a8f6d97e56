"""Forwards in the background: what their process gets, and what listing them leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuctl.kube.forward import service


def test_paths_of_variables_become_absolute_for_the_folder_that_the_process_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "KUBECONFIG": "own:/etc/kubeconfig:../lab",
        "GPUCTL_STATE_DIR": "state",
        "GPUCTL_PROGRAM": "bin/gpuctl",
        "NAMESPACE": "a/b",
    }
    assert service.with_absolute_paths(given) == {
        "KUBECONFIG": f"{tmp_path}/own:/etc/kubeconfig:{tmp_path}/../lab",
        "GPUCTL_STATE_DIR": f"{tmp_path}/state",
        "GPUCTL_PROGRAM": f"{tmp_path}/bin/gpuctl",
        "NAMESPACE": "a/b",
    }
    assert service.with_absolute_paths({"GPUCTL_PROGRAM": "gpuctl"}) == {"GPUCTL_PROGRAM": "gpuctl"}


def test_list_and_stop_make_no_folder_and_skip_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCTL_STATE_DIR", str(tmp_path / "state"))
    assert service.running() == service.stop([]) == []
    assert list(tmp_path.iterdir()) == []
    service.folder().mkdir(parents=True)
    (service.folder() / "1.state").write_text("0 0\n{}\n")  # of a process that was killed
    assert service.running() == []
    assert not (service.folder() / "1.state").exists()
