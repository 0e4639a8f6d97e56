"""Table of the troubles that the doctor diagnoses."""

from __future__ import annotations

from collections.abc import Mapping

from gpuctl.cluster.doctor.hang import HANG
from gpuctl.cluster.doctor.model import Name, Trouble
from gpuctl.cluster.doctor.slow import SLOW
from gpuctl.cluster.doctor.start import START

TROUBLES: Mapping[Name, Trouble] = {trouble.name: trouble for trouble in (START, HANG, SLOW)}
