"""What the pods may do: their account, and on OpenShift the constraints that it may use."""

from __future__ import annotations

from gpuctl.cluster.environment import Environment, Object

RIGHTS = "rights"
RBAC = "rbac.authorization.k8s.io"
PRIVILEGED = "privileged"
# sshd as root becomes another user for each login.
OF_ROOTS_SSHD = ("SETGID", "SETUID", "SYS_CHROOT")
VOLUMES = ("configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret")


def account(env: Environment) -> list[Object]:
    """A service account of our own, which may do nothing; none where the file names one that is there."""
    if env.cluster.security.service_account:
        return []
    meta = env.meta(env.name, RIGHTS)
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}]


def account_name(env: Environment) -> str:
    return env.cluster.security.service_account or env.name


def capabilities(env: Environment) -> list[str]:
    """What a pod's container gets; in TCP mode never any."""
    may = env.cluster.security
    if not env.rdma:
        return []
    configured = {"IPC_LOCK": may.ipc_lock, "SYS_RESOURCE": may.sys_resource}
    names = [name for name, is_set in configured.items() if is_set]
    return sorted([*names, *(OF_ROOTS_SSHD if may.rdma_as_root else ())])


def constraints_name(env: Environment) -> str:
    """The constraints that the pods need beside the restricted ones; empty where they need none."""
    if not (env.openshift and env.rdma):
        return ""
    if env.cluster.security.requires_privileged_scc:
        return PRIVILEGED
    needed = capabilities(env) or env.cluster.network.rdma.host_network
    return own_constraints(env) if needed else ""


def own_constraints(env: Environment) -> str:
    """The name of ours. They belong to the whole cluster: the namespace is part of it."""
    return f"gpuctl-{env.namespace}-{env.name}"


def constraints(env: Environment) -> list[Object]:
    """Our own: the restricted ones, and what the file asks for beyond them. None of ours where it says privileged."""
    name = constraints_name(env)
    if name in ("", PRIVILEGED):
        return []
    as_root, host_network = env.cluster.security.rdma_as_root, env.cluster.network.rdma.host_network
    return [
        {
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": env.meta(name, RIGHTS, everywhere=True),
            # As good as none, which has to be said: no pod gets them that does with less.
            "priority": 0,
            "allowHostDirVolumePlugin": False,
            "allowHostIPC": False,
            "allowHostNetwork": host_network,
            "allowHostPID": False,
            "allowHostPorts": host_network,
            "allowPrivilegeEscalation": False,
            "allowPrivilegedContainer": False,
            "allowedCapabilities": capabilities(env),
            "defaultAddCapabilities": [],
            "requiredDropCapabilities": ["ALL"],
            "readOnlyRootFilesystem": False,
            "runAsUser": {"type": "RunAsAny" if as_root else "MustRunAsRange"},
            "seLinuxContext": {"type": "MustRunAs"},
            "fsGroup": {"type": "MustRunAs"},
            "supplementalGroups": {"type": "RunAsAny"},
            "seccompProfiles": ["runtime/default"],
            "volumes": list(VOLUMES),
            "users": [],
            "groups": [],
        }
    ]


def binding(env: Environment) -> list[Object]:
    """The account may `use` the constraints: by a Role of the namespace, which touches nobody else."""
    name = constraints_name(env)
    if not name:
        return []
    rule = {
        "apiGroups": ["security.openshift.io"],
        "resources": ["securitycontextconstraints"],
        "resourceNames": [name],
        "verbs": ["use"],
    }
    subject = {"kind": "ServiceAccount", "name": account_name(env), "namespace": env.namespace}
    role_name = f"{env.name}-scc"
    role = {"apiGroup": RBAC, "kind": "Role", "name": role_name}
    meta = env.meta(role_name, RIGHTS)
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    ]
