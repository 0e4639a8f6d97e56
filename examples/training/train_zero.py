"""Training with DeepSpeed's ZeRO: sharded optimizer and gradients, checkpoints, and a clean end on SIGTERM.

    gpuctl cluster train lab train_zero.py --steps 2000                                # torchrun starts the ranks
    gpuctl cluster train lab --launcher deepspeed-nossh train_zero.py --steps 2000     # its own launcher in each pod
    gpuctl cluster train lab --launcher deepspeed train_zero.py --steps 2000           # by hostfile and ssh

The script works with all three. Every rank writes its part of a checkpoint: the folder must be on a volume that all
pods share.
"""

import argparse
import os
import signal

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

CONFIG = {
    "train_micro_batch_size_per_gpu": 32,
    "gradient_accumulation_steps": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "bf16": {"enabled": torch.cuda.is_available()},
    "gradient_clipping": 1.0,
    # Stage 2 shards gradients and optimizer states, 3 also the parameters.
    "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True},
}


def main():
    options = parse_options()
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    stop = StopRequest()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, options.width), nn.ReLU(), nn.Linear(options.width, 1))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    _, state = engine.load_checkpoint(options.checkpoint)  # (None, None) if there is no checkpoint
    step = state["step"] if state else 0
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: from step {step}, on {engine.device}", flush=True)

    while step < options.steps:
        x, y = make_batch(step, engine)
        loss = nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
        step += 1
        # All ranks must agree to stop at the same step: otherwise the others wait for one that has left.
        stopping = stop.agreed(engine.device)
        if stopping or step % options.save_every == 0 or step == options.steps:
            engine.save_checkpoint(options.checkpoint, tag=f"step-{step}", client_state={"step": step})
        if dist.get_rank() == 0 and (step % options.log_every == 0 or step == options.steps):
            print(f"step {step}: loss {loss.item():.6f}", flush=True)
        if stopping:
            print(f"rank {dist.get_rank()}: stopped at step {step}; checkpoint in {options.checkpoint}", flush=True)
            break
    dist.destroy_process_group()


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--checkpoint", default="/workspace/zero", help="folder on a volume that all pods share")
    # DeepSpeed's own launcher passes it to each rank; torchrun does not.
    parser.add_argument("--local_rank", type=int, default=-1, help=argparse.SUPPRESS)
    return parser.parse_args()


def make_batch(step, engine):
    """Samples of this rank for this step: each rank has its own, and a resumed training the same ones again."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    x = torch.randn(engine.train_micro_batch_size_per_gpu(), 64, generator=generator)
    dtype = next(engine.module.parameters()).dtype
    return x.to(engine.device, dtype), x.sum(dim=1, keepdim=True).sin().to(engine.device, dtype)


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


if __name__ == "__main__":
    record(main)()
