"""Outputs of other programs that the audit can judge, recognised by their content. Text in, values out."""

from __future__ import annotations

from dataclasses import replace

from gpuctl.audit.formats import dcgm, mixed, ports, smi_csv, smi_other, smi_text, storage
from gpuctl.audit.formats.model import Format, Record
from gpuctl.audit.formats.smi_elements import facts_of
from gpuctl.engine import gpu_xml


def _is_xml(start: str) -> bool:
    return "<nvidia_smi_log>" in start


def _read_xml(text: str) -> Record:
    """Facts of a whole log; ValueError for a part of one."""
    return Record(facts_of(gpu_xml.elements(text), whole=True), tuple(smi_other.failures(text)))


XML = "nvidia-smi -q -x"
# The first that matches counts: those with the clearest marks stand first, and last two whose sentences logs have, too.
FORMATS = (
    Format(XML, _is_xml, _read_xml),
    Format("dcgmi diag -j", dcgm.is_diag, dcgm.read_diag),
    Format("dcgmi diag", dcgm.is_diag_table, dcgm.read_diag_table),
    Format("dcgmi nvlink -e", dcgm.is_nvlink, dcgm.read_nvlink, once=False),
    Format("dcgmi health", dcgm.is_health, dcgm.read_health),
    Format("dcgmi discovery", dcgm.is_discovery, dcgm.read_discovery),
    Format("nvidia-smi -q", smi_text.matches, smi_text.read),
    Format("nvidia-smi topo -m", smi_other.is_topology, smi_other.read_topology),
    Format("nvidia-smi nvlink -e", smi_other.is_nvlink_errors, smi_other.read_nvlink_errors),
    Format("nvidia-smi nvlink -s", smi_other.nvlink_matches, smi_other.read_nvlink),
    Format("nvidia-smi nvlink -c", smi_other.is_capabilities, smi_other.read_capabilities),
    Format("nvidia-smi -L", smi_other.is_list, smi_other.read_list),
    Format("nvidia-smi", smi_other.is_table, smi_other.read_table),
    Format("nvidia-smi dmon", smi_other.is_samples, smi_other.read_samples, once=False),
    Format("ibstat", ports.is_ibstat, ports.read_ibstat),
    Format("ethtool -S", ports.is_ethtool, ports.read_ethtool, once=False),
    Format("lfs df", storage.is_lfs_df, storage.read_lfs_df, once=False),
    Format("lfs getstripe", storage.is_getstripe, storage.read_getstripe, once=False),
    Format("mount", storage.is_mounts, storage.read_mounts),
    Format("nvidia-smi --query-gpu", smi_csv.matches, smi_csv.read),
    Format("nvidia-smi", smi_other.has_failed, smi_other.read_failure, once=False),
    Format("dcgmi", dcgm.is_other, dcgm.read_other, once=False),
)


def read(known: Format, text: str) -> Record:
    """Record of an output, with doubts about what else is in the text; ValueError for a part of one."""
    record = known.read(text)
    more = mixed.doubts(known.name, text, record)
    return replace(record, findings=(*record.findings, *more)) if more else record


def recognise(start: str) -> Format | None:
    """Format of a text by its first 16 KiB; None for a kernel log, and for what no reader knows."""
    bare = mixed.without_log(start)
    if bare == start:
        return next((known for known in FORMATS if known.matches(start)), None)
    return next((known for known in FORMATS[:-2] if known.matches(start) and known.matches(bare)), None)
