"""Bandwidth of all_reduce as a training gets it: PyTorch's NCCL, or Gloo without GPUs, with the training's environment.

    gpuctl cluster train lab nccl_all_reduce.py                      # all pods
    gpuctl cluster train lab --nodes 2 nccl_all_reduce.py --end 4G   # the first two

nccl-tests measure NCCL alone (`gpuctl nccl run --cluster lab`, `gpuctl cluster test lab --bandwidth`). If this program
is much slower, PyTorch comes with another NCCL, or lacks variables or plugins that nccl-tests have. Exit code 1 if a
sum is wrong.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

UNITS = {"K": 10, "M": 20, "G": 30}
BYTES_PER_VALUE = 4  # float32


def main():
    options = parse_options()
    has_gpus = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpus else torch.device("cpu")
    if has_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpus else "gloo")
    ranks, is_first = dist.get_world_size(), dist.get_rank() == 0
    if is_first:
        version = ".".join(map(str, torch.cuda.nccl.version())) if has_gpus else "none, Gloo"
        print(f"{ranks} ranks on {device.type}, PyTorch {torch.__version__}, NCCL {version}")
        print(f"{'bytes':>12} {'time us':>10} {'algbw GB/s':>11} {'busbw GB/s':>11} {'wrong':>6}", flush=True)
    wrong = 0
    size = options.begin
    while size <= options.end:
        seconds, bad = measure(size // BYTES_PER_VALUE, options, device)
        wrong += bad
        if is_first:
            algbw = size / seconds / 1e9
            busbw = algbw * 2 * (ranks - 1) / ranks  # nccl-tests, doc/PERFORMANCE.md
            print(f"{size:>12} {seconds * 1e6:>10.1f} {algbw:>11.2f} {busbw:>11.2f} {bad:>6}", flush=True)
        size *= 2
    dist.destroy_process_group()
    if wrong:
        sys.exit(f"{wrong} sums were wrong: `gpuctl nccl isolate --cluster` finds the node")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--begin", type=to_bytes, default="1M", help="smallest message, such as 8K or 1M")
    parser.add_argument("--end", type=to_bytes, default="1G", help="largest message")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    return parser.parse_args()


def to_bytes(text):
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in UNITS else (text, "")
    size = int(number) << UNITS.get(unit, 0)
    if size < BYTES_PER_VALUE or size % BYTES_PER_VALUE:
        raise argparse.ArgumentTypeError(f"{text} is not a multiple of {BYTES_PER_VALUE} bytes")
    return size


def measure(count, options, device):
    """Return the mean seconds of an all_reduce, of the slowest rank, and how many sums were wrong on any rank."""
    ranks = dist.get_world_size()
    values = torch.full((count,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(values)
    bad = (values != ranks * (ranks + 1) / 2).sum().to(torch.float64).reshape(1)
    values.zero_()  # sums of zeros stay zero, however often they are added
    for _ in range(options.warmup):
        dist.all_reduce(values)
    finish(device)
    dist.barrier()
    started = time.perf_counter()
    for _ in range(options.iterations):
        dist.all_reduce(values)
    finish(device)
    seconds = torch.tensor([(time.perf_counter() - started) / options.iterations], device=device, dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    dist.all_reduce(bad)
    return seconds.item(), int(bad.item())


def finish(device):
    """Wait for queued work on this GPU; Gloo has none."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    record(main)()
