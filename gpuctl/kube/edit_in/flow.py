"""Read the pod and this machine, plan how the editor reaches the pod, and start it."""

from __future__ import annotations

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.settings import Settings
from gpuctl.core.text import named
from gpuctl.edges.kube import kubectl
from gpuctl.edges.kube.kubectl import Kubectl
from gpuctl.edges.programs import installed
from gpuctl.kube.edit_in import plan
from gpuctl.kube.edit_in.plan import EditorName, EditRequest, Local, Plan, Target

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
SSH_S = 15.0
UNUSABLE = frozenset("-@ ")  # of a name that ssh would read as an option or as a user


def question(kube: Kubectl, request: EditRequest, settings: Settings) -> str:
    """Return the confirmation question of a production context; "" for others."""
    if settings.stage(kube.context) != "production":
        return ""
    return f"edit in {request.pod} in the production context {kube.context} (namespace {kube.namespace}). Continue?"


def prepare(kube: Kubectl, request: EditRequest) -> Plan:
    """Plan without changing anything; `GpuctlError` if no method works."""
    if request.path and not request.path.startswith("/"):
        raise InvalidInput(f"edit in {request.pod}", f"--path {request.path} is not absolute", "such as /workspace")
    target = _target(kube, request)
    doing = f"read the container {target.container} of {target.pod}"
    output = kube.ask(doing, "exec", target.pod, "--container", target.container, "--", "sh", "-c", plan.PROBE)
    view = plan.parse(output)
    extensions = _extensions(request.editor)
    host, why = _ssh_host(request, view) if extensions is not None else ("", "")
    return plan.choose(request, target, view, Local(extensions, host, why))


def start(kube: Kubectl, chosen: Plan) -> int:
    """Start the program of a plan that has one; return its exit code."""
    return kubectl.show(kube.argv(*chosen.argv) if chosen.method == "exec" else list(chosen.argv))


def _target(kube: Kubectl, request: EditRequest) -> Target:
    doing = f"edit in {request.pod}"
    pod = kube.json(doing, "get", "pod", request.pod)
    images = {container["name"]: str(container.get("image") or "") for container in pod["spec"]["containers"]}
    name = request.container or (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER) or next(iter(images))
    if name not in images:
        raise InvalidInput(doing, f"{request.pod} has no container {name}", f"it has {named(images)}")
    phase = (pod.get("status") or {}).get("phase")
    if phase != "Running":
        raise GpuctlError(doing, f"the pod is {phase}", f"`gpuctl kube explain {request.pod}` shows why")
    return Target(kube.context, kube.namespace, request.pod, name, images[name])


def _extensions(editor: EditorName) -> list[str] | None:
    """Extensions of the installed editor; None without it."""
    if editor == "nvim" or not installed(editor):
        return None
    output = kubectl.output_of([editor, "--list-extensions"])
    if output is None:
        raise GpuctlError(f"list the extensions of {plan.TITLES[editor]}", f"`{editor} --list-extensions` failed")
    return output.split()


def _ssh_host(request: EditRequest, view: plan.PodView) -> tuple[str, str]:
    """(name, "") if ssh reaches this container by a name, else ("", reason). Host keys are checked as usual."""
    name = request.ssh_host or request.pod
    if name[0] in UNUSABLE or UNUSABLE - {"-"} & set(name):
        raise InvalidInput(f"edit in {request.pod}", f"{name!r} is no name of a host", "check --ssh-host")
    resolved = kubectl.output_of(["ssh", "-G", name], limit=SSH_S)
    if resolved is None or not plan.leads_away(name, resolved):
        return "", f"~/.ssh/config has no entry {name}"
    identity = kubectl.output_of(["ssh", "-o", "BatchMode=yes", name, plan.IDENTITY], limit=SSH_S)
    if identity is None:
        return "", f"`ssh {name}` fails"
    return (name, "") if plan.is_same(view, identity) else ("", f"`ssh {name}` leads to another container or host")
