"""Off-policy Q-learning on stacked grey frames: act a little, learn a little."""

import os
import time

import numpy as np
import replay
import torch
from torch.utils.data import DataLoader

STEPS = int(os.environ.get("CASE_STEPS", 0))


class PixelChase:
    """A dot to be followed on a small screen; the observation is the last four frames."""

    SIZE, STACK = 36, 4
    MOVES = np.array([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)])

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.me, self.dot = self.rng.integers(2, self.SIZE - 2, (2, 2))
        self.frames = np.zeros((self.STACK, self.SIZE, self.SIZE), np.uint8)
        self.t = 0
        return self._render()

    def _render(self):
        f = self.rng.integers(0, 20, (self.SIZE, self.SIZE), dtype=np.uint8)
        for (y, x), v in ((self.me, 255), (self.dot, 128)):
            f[y - 1 : y + 2, x - 1 : x + 2] = v
        self.frames = np.concatenate([self.frames[1:], f[None]])
        return self.frames

    def step(self, a):
        self.me = np.clip(self.me + self.MOVES[a], 2, self.SIZE - 3)
        self.t += 1
        dist = float(np.abs(self.me - self.dot).sum())
        return self._render(), -dist / self.SIZE, dist < 2 or self.t >= 200


class Agent:
    def __init__(self, env, memory, eps=0.2):
        self.env, self.memory, self.eps = env, memory, eps
        self.obs = env.reset()

    def play(self, n):
        for _ in range(n):
            a = int(self.env.rng.integers(5))
            nxt, r, done = self.env.step(a)
            self.memory.push(replay.Transition(self.obs, a, r, nxt, done))
            self.obs = self.env.reset() if done else nxt


class Learner:
    def __init__(self):
        self.head = torch.nn.Linear(PixelChase.STACK, 5)
        self.opt = torch.optim.Adam(self.head.parameters(), 1e-3)

    def features(self, obs):
        return obs[:, :, ::6, ::6].float().mean((2, 3)) / 255

    def update(self, b):
        q = self.head(self.features(b.obs)).gather(1, b.action[:, None])[:, 0]
        with torch.no_grad():
            target = b.reward + 0.99 * (~b.done) * self.head(self.features(b.next_obs)).max(1).values
        loss = torch.nn.functional.smooth_l1_loss(q, target)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        time.sleep(0.035)
        return loss.item()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    memory = replay.ReplayMemory(8000)
    agent, learner = Agent(PixelChase(0), memory), Learner()
    agent.play(3000)
    loader = DataLoader(replay.ReplayDataset(memory, 64 * 50), batch_size=64, collate_fn=replay.to_batch)
    step, start = 0, None
    for it in range(10_000):
        for batch in loader:
            loss = learner.update(batch.to("cpu"))
            agent.play(2)
            step += 1
            if step == 5:
                start = time.perf_counter()
            if step == STEPS:
                print(f"steps_per_s {(step - 5) / (time.perf_counter() - start):.3f}")
                return
        print(f"iteration {it} loss {loss:.4f} memory {len(memory)}", flush=True)


if __name__ == "__main__":
    main()
