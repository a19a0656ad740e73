import os
import time


class Bucket:
    """Object store seen through a gateway; whole objects only."""

    def __init__(self, root, first_byte=0.0, mb_per_s=1e9):
        self.root, self.first_byte, self.mb_per_s = root, first_byte, mb_per_s

    def list(self):
        return sorted(os.listdir(self.root))

    def get_object(self, key):
        with open(os.path.join(self.root, key), "rb") as f:
            body = f.read()
        time.sleep(self.first_byte + len(body) / 1e6 / self.mb_per_s)
        return body
