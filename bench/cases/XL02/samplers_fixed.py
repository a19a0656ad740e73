import numpy as np
import pandas as pd
from torch.utils.data import Sampler


class BalancedUserSampler(Sampler):
    """At most `per_user` interactions of every user per epoch, so that heavy users do not dominate."""

    def __init__(self, users, per_user, seed=0):
        self.frame = pd.DataFrame({"user": users, "row": np.arange(len(users))})
        self.per_user = per_user
        self.rng = np.random.default_rng(seed)
        self.size = int(np.minimum(self.frame.groupby("user").size(), per_user).sum())

    def __len__(self):
        return self.size

    def __iter__(self):
        picked = self._pick()
        return iter(self.rng.permutation(picked).tolist())

    def _pick(self):
        shuffled = self.frame.iloc[self.rng.permutation(len(self.frame))]
        return shuffled.groupby("user", sort=False).head(self.per_user)["row"].to_numpy()
