"""Real test hosts on one machine: `from tests.rig import Rig`."""

from tests.rig.host import TestHost
from tests.rig.hosts import Rig, Wish
from tests.rig.tree import FakeTree, Write

__all__ = ["FakeTree", "Rig", "TestHost", "Wish", "Write"]
