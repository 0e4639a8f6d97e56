"""Files of a deployment on AWS: the template, and the function's code with the table of senders. Nothing is applied."""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuctl.core.errors import GpuctlError, InvalidInput
from gpuctl.core.paths import collection_dir, write_atomically
from gpuctl.edges.aws import Aws, Request, code_of
from gpuctl.reservations.aws_template import Deployment, template
from gpuctl.reservations.on_lambda import SENDERS
from gpuctl.reservations.rules.access import ACCOUNT
from gpuctl.reservations.senders import IDENTITY_CENTER, USERNAME, Senders, mixed, unpinned
from gpuctl.reservations.transports import NAME

DOING = "write a deployment"
TEMPLATE, CODE = "template.json", "function.zip"
# Modules that the function imports, by folders; the runtime of Lambda has botocore.
PACKAGES = ("core", "domain", "edges", "reservations")
ENGINE = ("plugins/plugin_utils", "plugins/module_utils/gpuhost")
COLLECTION = "ansible_collections/gpuctl/fleet"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in the archive: the same code has the same digest


@dataclass(frozen=True)
class DeployRequest:
    """`users`: NAME or NAME=PERSON. `groups`: PERSON=GROUP. `service_role`: of the machine of the service, or ""."""

    name: str
    roles: Sequence[str]
    users: Sequence[str]
    admins: Sequence[str]
    groups: Sequence[str]
    service_role: str
    region: str
    aws_profile: str


@dataclass(frozen=True)
class Files:
    """`template`: JSON. `code`: a zip archive. `notices`: what to do by hand."""

    template: str
    code: bytes
    notices: Sequence[str]


def build(request: DeployRequest) -> Files:
    """The files, after the ids of users and roles have been read from IAM.

    `InvalidInput` for a role whose session names people may choose: SQS would prove nothing about them. As well for
    users and roles whose names come from several directories: the same name would be two people.
    """
    _check(request)
    aws = Aws(request.region, request.aws_profile)
    users = dict(_pair(one, optional=True) for one in request.users)
    notices, attachable = list[str](), list[str]()
    roles, kinds = dict[str, str](), dict[str, bool]()
    for name in request.roles:
        id_, by_identity_center = _role(aws, name)
        roles[id_], kinds[name] = name, by_identity_center
        if by_identity_center:
            notices.append(
                f"attach the policy PeoplePolicy to the permission set of {name}: IAM cannot change that role"
            )
        else:
            attachable.append(name)
    _check_mixed(users, kinds)
    known = Senders(
        {_user(aws, name): person for name, person in users.items()},
        roles,
        dict(_pair(one) for one in request.groups),
        tuple(request.admins),
    )
    deployment = Deployment(request.name, attachable, list(users), request.service_role)
    text = json.dumps(template(deployment), indent=2) + "\n"
    return Files(text, archive({**dict(_modules()), SENDERS: json.dumps(known.as_dict(), indent=2).encode()}), notices)


def write(files: Files, folder: Path) -> None:
    """Write both files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / TEMPLATE, files.template)
    write_atomically(folder / CODE, files.code)


def archive(files: Mapping[str, bytes]) -> bytes:
    """A zip archive that depends on names and contents alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return buffer.getvalue()


def _modules() -> Iterator[tuple[str, bytes]]:
    """Modules of the function by their names in the archive."""
    package = Path(__file__).parents[1]
    for path in [*package.glob("*.py"), *(path for one in PACKAGES for path in (package / one).rglob("*.py"))]:
        yield f"gpuctl/{path.relative_to(package)}", path.read_bytes()
    collection = collection_dir()
    for path in (path for one in ENGINE for path in (collection / one).rglob("*.py")):
        yield f"{COLLECTION}/{path.relative_to(collection)}", path.read_bytes()
    yaml = importlib.util.find_spec("yaml")
    if yaml is None or yaml.origin is None:
        raise InvalidInput(DOING, "PyYAML is not installed", "install gpuctl again")
    for path in Path(yaml.origin).parent.glob("*.py"):
        yield f"yaml/{path.name}", path.read_bytes()


def _check(request: DeployRequest) -> None:
    if not NAME.fullmatch(request.name):
        hint = "use up to 40 letters, digits and hyphens, such as gpu-reservations"
        raise InvalidInput(DOING, f"--name {request.name!r} cannot be the name of a queue and a table", hint)
    if not request.roles and not request.users:
        raise InvalidInput(DOING, "nobody may send", "add --role NAME, or --user NAME for each person")
    _check_mixed(dict(_pair(one, optional=True) for one in request.users), dict.fromkeys(request.roles, False))
    people = [*request.admins, *(_pair(one)[0] for one in request.groups)]
    people += [_pair(one, optional=True)[1] for one in request.users]
    for person in people:
        if not ACCOUNT.fullmatch(person):
            raise InvalidInput(DOING, f"{person!r} is no name of a person", "use letters, digits and . _ @ -")


def _check_mixed(users: Mapping[str, str], roles: Mapping[str, bool]) -> None:
    reason = mixed(users, roles)
    if reason:
        hint = "name people in one manner: by --user alone, by roles of IAM users, or by roles of IAM Identity Center"
        raise InvalidInput(DOING, reason, hint)


def _pair(text: str, *, optional: bool = False) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or (equals and not value) or (not equals and not optional):
        raise InvalidInput(DOING, f"{text!r} is not {'NAME or ' if optional else ''}NAME=VALUE", "such as ada=vision")
    return name, value or name


def _role(aws: Aws, name: str) -> tuple[str, bool]:
    """Id of a role whose session names are pinned, and True for one of IAM Identity Center."""
    request = Request(f"read the role {name}", "iam", "GetRole", "", {"RoleName": name})
    role = _read(aws, request, "Role")
    reason = unpinned(role["Arn"], _policy(role["AssumeRolePolicyDocument"]))
    if reason:
        hint = f"let its trust policy demand sts:RoleSessionName {USERNAME}, or name the users with --user"
        raise InvalidInput(f"let the role {name} send", reason, hint)
    return str(role["RoleId"]), bool(IDENTITY_CENTER.fullmatch(role["Arn"]))


def _policy(document: Any) -> Mapping[str, Any]:
    """A policy; botocore reads its JSON."""
    return document if isinstance(document, Mapping) else json.loads(document)


def _user(aws: Aws, name: str) -> str:
    request = Request(f"read the user {name}", "iam", "GetUser", "", {"UserName": name})
    return str(_read(aws, request, "User")["UserId"])


def _read(aws: Aws, request: Request, member: str) -> Mapping[str, Any]:
    """A member of IAM's answer; `InvalidInput` if IAM has no such role or user."""
    try:
        [answer] = aws.read(request, lambda page: page[member])
    except GpuctlError as error:
        if code_of(error) == "NoSuchEntity":
            raise InvalidInput(error.doing, error.wrong, "check the name and the account") from error
        raise
    return answer  # type: ignore[no-any-return]
