import os
import time


class Trainer:
    """Bare-bones fit loop: the part of Lightning that we need."""

    def __init__(self, max_epochs, reload_dataloaders_every_n_epochs=0, val_every=2):
        self.max_epochs = max_epochs
        self.reload_every = reload_dataloaders_every_n_epochs
        self.val_every = val_every
        self.max_steps = int(os.environ.get("CASE_STEPS", 0))
        self.global_step = 0
        self._loader = None

    def _train_loader(self, dm, epoch):
        stale = self.reload_every and epoch % self.reload_every == 0
        if self._loader is None or stale:
            self._loader = dm.train_dataloader()
        return self._loader

    def fit(self, model, dm):
        val_loader, t0 = dm.val_dataloader(), 0.0
        for epoch in range(self.max_epochs):
            total = 0.0
            for i, batch in enumerate(self._train_loader(dm, epoch)):
                total += model.training_step(batch)
                self.global_step += 1
                if self.global_step == 10:
                    t0 = time.perf_counter()
                if self.max_steps and self.global_step >= self.max_steps:
                    print(f"steps_per_s {(self.global_step - 10) / (time.perf_counter() - t0):.3f}")
                    return
            msg = f"epoch {epoch} loss {total / (i + 1):.4f}"
            if epoch % self.val_every == 0:
                msg += f" val {sum(model.validation_step(b) for b in val_loader):.4f}"
            print(msg, flush=True)
