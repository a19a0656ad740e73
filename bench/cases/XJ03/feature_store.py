"""Read-only access to the customer feature base (SQLite file on the department share)."""

import json
import os
import sqlite3
import time

import numpy as np

RTT = 0.005  # one round trip to the share


class FeatureStore:
    def __init__(self, path):
        self.path = path
        self._con, self._pid = None, None

    def connection(self):
        if self._pid != os.getpid():
            self._con = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
            self._pid = os.getpid()
        return self._con

    def lookup(self, customer):
        row = (
            self.connection()
            .execute("SELECT profile, balance, churned FROM customers WHERE id = ?", (customer,))
            .fetchone()
        )
        time.sleep(RTT)
        return row


def create(path, n, width, seed=1):
    rng = np.random.default_rng(seed)
    con = sqlite3.connect(path)
    con.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, profile TEXT, balance REAL, churned INTEGER)")
    rows = (
        (i, json.dumps(np.round(rng.normal(size=width), 3).tolist()), float(rng.normal()), int(rng.random() < 0.2))
        for i in range(n)
    )
    con.executemany("INSERT INTO customers VALUES (?,?,?,?)", rows)
    con.commit()
    con.close()
