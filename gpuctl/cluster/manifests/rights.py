"""Rights of the pods: their service account, and on OpenShift the constraints it may use."""

from __future__ import annotations

from gpuctl.cluster.environment import Environment, Object

RIGHTS = "rights"
RBAC = "rbac.authorization.k8s.io"
PRIVILEGED = "privileged"
# sshd as root switches to another user for each login.
OF_ROOTS_SSHD = ("SETGID", "SETUID", "SYS_CHROOT")
VOLUMES = ("configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret")


def account(env: Environment) -> list[Object]:
    """Return our own service account, without any rights; none if the file names an existing one."""
    if env.cluster.security.service_account:
        return []
    meta = env.meta(env.name, RIGHTS)
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}]


def account_name(env: Environment) -> str:
    return env.cluster.security.service_account or env.name


def capabilities(env: Environment) -> list[str]:
    """Return the capabilities of a pod's container; none in TCP mode."""
    may = env.cluster.security
    if not env.rdma:
        return []
    configured = {"IPC_LOCK": may.ipc_lock, "SYS_RESOURCE": may.sys_resource}
    names = [name for name, is_set in configured.items() if is_set]
    return sorted([*names, *(OF_ROOTS_SSHD if may.rdma_as_root else ())])


def constraints_name(env: Environment) -> str:
    """Return the name of the constraints that the pods need beyond the restricted ones, or ""."""
    if not (env.openshift and env.rdma):
        return ""
    if env.cluster.security.requires_privileged_scc:
        return PRIVILEGED
    needed = capabilities(env) or env.cluster.network.rdma.host_network
    return created_constraints(env) if needed else ""


def constraints_to_grant(env: Environment) -> str:
    """Return the name of the constraints that deploy grants to the account, or ""."""
    return "" if env.granted else constraints_name(env)


def binding_name(env: Environment) -> str:
    """Return the name of our Role and of its RoleBinding."""
    return f"{env.name}-scc"


def created_constraints(env: Environment) -> str:
    """Return the name of our constraints. They are cluster-wide, so the name contains the namespace."""
    return f"gpuctl-{env.namespace}-{env.name}"


def constraints(env: Environment) -> list[Object]:
    """Return our own constraints: restricted, plus what the file requests. None if it uses existing ones."""
    name = constraints_to_grant(env)
    if name in ("", PRIVILEGED):
        return []
    as_root, host_network = env.cluster.security.rdma_as_root, env.cluster.network.rdma.host_network
    return [
        {
            "apiVersion": "security.openshift.io/v1",
            "kind": "SecurityContextConstraints",
            "metadata": env.meta(name, RIGHTS, everywhere=True),
            # The lowest priority, which has to be explicit: pods that need less never get them.
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
    """Allow the account to `use` the constraints, by a Role of the namespace, which affects nobody else."""
    name = constraints_to_grant(env)
    if not name:
        return []
    rule = {
        "apiGroups": ["security.openshift.io"],
        "resources": ["securitycontextconstraints"],
        "resourceNames": [name],
        "verbs": ["use"],
    }
    subject = {"kind": "ServiceAccount", "name": account_name(env), "namespace": env.namespace}
    role_name = binding_name(env)
    role = {"apiGroup": RBAC, "kind": "Role", "name": role_name}
    meta = env.meta(role_name, RIGHTS)
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    ]
