"""Data-parallel training with torchrun: checkpoints, resumption, and a clean end on SIGTERM.

    gpuctl cluster sync lab --source examples/training
    gpuctl cluster train lab train_ddp.py --steps 2000 --checkpoint /workspace/ddp.pt

Replace `make_batch` and `Model`; the rest is what every job needs. Works with PyTorch 1.13 and newer, with NCCL on GPUs
and Gloo without.
"""

import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    options = parse_options()
    local_rank = int(os.environ["LOCAL_RANK"])  # set by torchrun
    has_gpus = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if has_gpus else torch.device("cpu")
    if has_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpus else "gloo")
    stop = StopRequest()

    torch.manual_seed(0)
    model = DistributedDataParallel(Model(options.width).to(device), device_ids=[local_rank] if has_gpus else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    step = load(options.checkpoint, model, optimizer, device)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: from step {step}, on {device}", flush=True)

    logged_at, logged_step = time.monotonic(), step
    while step < options.steps:
        loss = train_step(model, optimizer, make_batch(options, step, device))
        step += 1
        # All ranks must agree to stop at the same step: otherwise the others wait for one that has left.
        stopping = stop.agreed(device)
        if stopping or step % options.save_every == 0 or step == options.steps:
            save(options.checkpoint, model, optimizer, step)
        if dist.get_rank() == 0 and (step % options.log_every == 0 or step == options.steps):
            rate = (step - logged_step) / max(time.monotonic() - logged_at, 1e-9)
            logged_at, logged_step = time.monotonic(), step
            print(f"step {step}: loss {loss:.6f}, {rate:.1f} steps/s", flush=True)
        if stopping:
            print(f"rank {dist.get_rank()}: stopped at step {step}; the checkpoint is {options.checkpoint}", flush=True)
            break
    dist.destroy_process_group()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--checkpoint", default="/workspace/ddp.pt", help="on a volume that all pods share")
    return parser.parse_args()


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x)


def make_batch(options, step, device):
    """Samples of this rank for this step: each rank has its own, and a resumed training the same ones again."""
    seed = step * dist.get_world_size() + dist.get_rank()
    x = torch.randn(options.batch, 64, generator=torch.Generator().manual_seed(seed))
    return x.to(device), x.sum(dim=1, keepdim=True).sin().to(device)


def train_step(model, optimizer, batch):
    x, y = batch
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


class StopRequest:
    """SIGTERM, which `gpuctl cluster train --stop` and an evicted pod send: finish the step, save, and end."""

    def __init__(self):
        self.received = False
        signal.signal(signal.SIGTERM, self.receive)

    def receive(self, *_):
        self.received = True

    def agreed(self, device):
        """Return whether any rank was asked to stop; the same answer on all ranks."""
        flag = torch.tensor([int(self.received)], device=device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())


def save(path, model, optimizer, step):
    """Rank 0 writes a file beside the old one and renames it, so that a killed job never leaves half a checkpoint."""
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)
    dist.barrier()


def load(path, model, optimizer, device):
    """Resume where the checkpoint ends; a pod that lacks the file fails, instead of starting from other weights."""
    found = torch.tensor([int(os.path.exists(path))], device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    if not found.item():
        return 0
    state = torch.load(path, map_location=device)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


if __name__ == "__main__":
    # `record` writes the exception of a failed rank where torchrun reports it.
    record(main)()
