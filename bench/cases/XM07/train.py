"""Double DQN from a recorded replay memory, one loader worker."""

import copy
import os
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from replay import CHUNK, H, PrioritySampler, Replay, SumTree, W
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

N_STEPS = int(os.environ.get("CASE_STEPS", "0"))


def collect(n=4096, seed=4):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:H, :W]
    chunks = []
    for c in range(n // CHUNK):
        noise = rng.integers(0, 24, (H, W), dtype=np.uint8)
        frames = np.empty((CHUNK, H, W), np.uint8)
        for k in range(CHUNK):
            cx, cy = 42 + 30 * np.cos((c * CHUNK + k) / 9), 42 + 30 * np.sin((c * CHUNK + k) / 7)
            frames[k] = noise + 200 * ((xx - cx) ** 2 + (yy - cy) ** 2 < 60)
        chunks.append(zlib.compress(frames.tobytes(), 1))
    return chunks, rng.integers(0, 6, n), rng.normal(0, 1, n), rng.exponential(1.0, n)


class QNet(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 128),
            nn.ReLU(),
        )
        self.value, self.advantage = nn.Linear(128, 1), nn.Linear(128, actions)

    def forward(self, obs):
        h = self.body(obs.float().div(255))
        a = self.advantage(h)
        return self.value(h) + a - a.mean(1, keepdim=True)


class Agent:
    def __init__(self, gamma=0.99**5):
        self.online = QNet()
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.opt = torch.optim.Adam(self.online.parameters(), 1e-4)
        self.gamma = gamma

    def learn(self, obs, action, ret, nxt):
        with torch.no_grad():
            best = self.online(nxt).argmax(1, keepdim=True)
            goal = ret.float() + self.gamma * self.target(nxt).gather(1, best).squeeze(1)
        q = self.online(obs).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        time.sleep(0.045)
        self.opt.step()
        return loss.item()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chunks, actions, rewards, priorities = collect()
    memory = Replay(chunks, actions, rewards)
    sampler = PrioritySampler(SumTree(priorities), draws=32 * 2000, limit=len(memory))
    loader = StatefulDataLoader(memory, batch_size=32, sampler=sampler, num_workers=1, prefetch_factor=4)
    agent, step = Agent(), 0
    for sweep in range(4):
        for obs, action, ret, nxt in loader:
            loss = agent.learn(obs, action, ret, nxt)
            step += 1
            if step % 100 == 0:
                agent.sync()
                print(f"update {step} loss {loss:.4f}", flush=True)
            if step == 10:
                t0 = time.perf_counter()
            if step == N_STEPS:
                print(f"steps_per_s {(step - 10) / (time.perf_counter() - t0):.3f}")
                return


if __name__ == "__main__":
    main()
